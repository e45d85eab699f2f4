"""Two conditions of control theory on the Lipschitz bound of a learned force.

A controller that compensates a learned force f(x, u) is implicit in the control u. It solves
u = u₀ − B⁻¹ f(x, u) by a fixed-point iteration, which contracts if ‖B⁻¹‖ L_u < 1 (`contraction`).
Because of the model's residual error and the change of the force until the next control, the
tracking error does not vanish; `ultimate_bound` limits how large it can remain. `docs/control.md`
derives both, after Shi et al. 2019 (Neural Lander).
"""

import math
from dataclasses import dataclass
from numbers import Real

from greatcircle.certificate.proof import Certificate

__all__ = ["Contraction", "UltimateBound", "contraction", "ultimate_bound"]


def __dir__() -> list[str]:
    return sorted(__all__)


@dataclass(frozen=True)
class Contraction:
    """Convergence of the iteration u ← u₀ − B⁻¹ f(x, u).

    Parameters
    ----------
    rate
        ‖B⁻¹‖ L_u: each iteration multiplies the distance to the solution by at most this.
    """

    rate: float

    @property
    def holds(self) -> bool:
        """Whether there is exactly one solution and the iteration converges to it."""
        return self.rate < 1

    def iterations(self, first_change: float, tolerance: float) -> int:
        """Return how many iterations guarantee an error of at most `tolerance`.

        Parameters
        ----------
        first_change
            ‖u₁ − u₀‖, or a bound on it.
        tolerance
            Largest ‖u_k − u*‖ allowed, which is at most rateᵏ / (1 − rate) · first_change (Banach).
        """
        _positive("first_change", first_change)
        _positive("tolerance", tolerance)
        if not self.holds:
            raise ValueError(
                f"the iteration need not converge: its rate is {self.rate:.4g}; expected a rate "
                "below 1: train with a smaller lipschitz, or use a smaller gain"
            )
        needed = tolerance * (1 - self.rate) / first_change
        return 0 if needed >= 1 or self.rate == 0 else math.ceil(math.log(needed, self.rate))


@dataclass(frozen=True)
class UltimateBound:
    """Bounds on the tracking error as time goes to infinity, and its rate of decay.

    Parameters
    ----------
    composite
        Bound on ‖s‖ = ‖ė + Λe‖.
    position
        Bound on ‖e‖.
    velocity
        Bound on ‖ė‖.
    decay
        ‖s‖ falls to `composite` at least as fast as exp(−decay · t).
    """

    composite: float
    position: float
    velocity: float
    decay: float


def contraction(gain: float, bound: float | Certificate) -> Contraction:
    """Return how the fixed-point iteration of a controller that is implicit in u contracts.

    Parameters
    ----------
    gain
        ‖B⁻¹‖, the control that one unit of force needs: units of control per newton.
    bound
        Lipschitz bound of the force in the control, newtons per unit of control:
        `certificate.tight(model, inputs=[...])` for the group of controls.

    Examples
    --------
    >>> from greatcircle import control
    >>> control.contraction(gain=0.1, bound=4.0).iterations(first_change=0.5, tolerance=1e-3)
    8
    """
    return Contraction(_positive("gain", gain) * _value(bound))


def ultimate_bound(
    *,
    bound: float | Certificate,
    model_error: float,
    damping: float,
    stiffness: float,
    mass: float,
    change: float = 0.0,
) -> UltimateBound:
    """Return bounds on the tracking error of a controller that compensates a learned force.

    For m ṡ = −K s + ε with s = ė + Λ e, where the force that is not compensated has the bound
    ‖ε‖ ≤ model_error + bound · change · ‖s‖.

    Parameters
    ----------
    bound
        Lipschitz bound of the force in the control.
    model_error
        Largest ‖force − model‖ along the trajectory, disturbances included, in newtons.
    damping
        λ_min(K), in newtons per (metre per second).
    stiffness
        λ_min(Λ), per second.
    mass
        In kilograms.
    change
        ρ with ‖u_k − u_{k−1}‖ ≤ ρ‖s‖: how much the control can change while the force is computed
        from the previous one.
    """
    _positive("damping", damping)
    _positive("stiffness", stiffness)
    _positive("mass", mass)
    for name, value in (("model_error", model_error), ("change", change)):
        if not isinstance(value, Real) or not 0 <= float(value) < math.inf:
            raise ValueError(f"{name} is {value!r}; expected a non-negative finite number")
    net_damping = damping - _value(bound) * change
    if net_damping <= 0:
        raise ValueError(
            f"damping is {damping:g}, and bound · change is {_value(bound) * change:.4g}; "
            "damping must be larger than that: raise it, or train with a smaller lipschitz"
        )
    composite = model_error / net_damping
    return UltimateBound(
        composite=composite,
        position=composite / stiffness,
        velocity=2 * composite,
        decay=net_damping / mass,
    )


def _value(bound: float | Certificate) -> float:
    if isinstance(bound, Certificate):
        return bound.value
    return _positive("bound", bound)


def _positive(name: str, value: float) -> float:
    if not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise ValueError(f"{name} is {value!r}; expected a positive number")
    return float(value)
