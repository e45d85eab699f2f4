"""The two conditions for which control theory wants the constant.

A controller that compensates a learned force f(x, u) is implicit in the control u: it solves
u = u₀ − B⁻¹ f(x, u) by a fixed-point iteration, which contracts if ‖B⁻¹‖ L_u < 1 (`contraction`).
What is left of the force, and what changes while the loop waits for the next control, keep the
tracking error from vanishing; how large it can stay is the `ultimate_bound`. Both are derived in
`docs/control.md`, after Shi et al. 2019 (Neural Lander).
"""

import math
from dataclasses import dataclass
from numbers import Real

from greatcircle.certificate import Certificate


@dataclass(frozen=True)
class Contraction:
    """How fast u ← u₀ − B⁻¹ f(x, u) forgets where it started.

    Parameters
    ----------
    rate
        ‖B⁻¹‖ L_u: each iteration multiplies the distance to the solution by this at most.
    """

    rate: float

    @property
    def holds(self) -> bool:
        """Whether there is one solution, and the iteration finds it."""
        return self.rate < 1

    def iterations(self, first_change: float, tolerance: float) -> int:
        """How many iterations make sure of an error of `tolerance`.

        Parameters
        ----------
        first_change
            ‖u₁ − u₀‖, or a bound on it.
        tolerance
            Largest ‖u_k − u*‖ wanted. Banach: it is at most rateᵏ / (1 − rate) · first_change.
        """
        _positive("first_change", first_change)
        _positive("tolerance", tolerance)
        if not self.holds:
            raise ValueError(
                f"the iteration need not converge: its rate is {self.rate:.4g}; train with a "
                "smaller lipschitz, or use a smaller gain"
            )
        needed = tolerance * (1 - self.rate) / first_change
        return 0 if needed >= 1 or self.rate == 0 else math.ceil(math.log(needed, self.rate))


@dataclass(frozen=True)
class UltimateBound:
    """Where the tracking error ends, and how fast it gets there.

    Parameters
    ----------
    composite
        Largest ‖s‖ = ‖ė + Λe‖ that can stay.
    position
        Largest ‖e‖ that can stay.
    velocity
        Largest ‖ė‖ that can stay.
    decay
        ‖s‖ falls to `composite` at least as fast as exp(−decay · t).
    """

    composite: float
    position: float
    velocity: float
    decay: float


def contraction(gain: float, bound: float | Certificate) -> Contraction:
    """Contraction of the fixed-point iteration of a controller that is implicit in the control.

    Parameters
    ----------
    gain
        ‖B⁻¹‖, how much control a unit of force asks for: controls per newton.
    bound
        Lipschitz bound of the force in the control, newtons per unit of control:
        `certificate.tight(model, inputs=[...])` for the block of controls.

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
    """Bound on the tracking error of a tracking controller with a learned force.

    For m ṡ = −K s + ε with s = ė + Λ e, where the force that is not compensated is at most
    ‖ε‖ ≤ model_error + bound · change · ‖s‖.

    Parameters
    ----------
    bound
        Lipschitz bound of the force in the control.
    model_error
        Largest ‖force − model‖ on the way, disturbances included, in newtons.
    damping
        λ_min(K), in newtons per (metre per second).
    stiffness
        λ_min(Λ), per second.
    mass
        In kilograms.
    change
        ρ with ‖u_k − u_{k−1}‖ ≤ ρ‖s‖: how much the control may change while the force is computed
        with the last one.
    """
    _positive("damping", damping)
    _positive("stiffness", stiffness)
    _positive("mass", mass)
    for name, value in (("model_error", model_error), ("change", change)):
        if not isinstance(value, Real) or not 0 <= float(value) < math.inf:
            raise ValueError(f"{name} is {value!r}; expected a number that is not negative")
    left = damping - _value(bound) * change
    if left <= 0:
        raise ValueError(
            f"damping is {damping:g}, and bound · change is {_value(bound) * change:.4g}; "
            "damping must be larger: raise it, or train with a smaller lipschitz"
        )
    composite = model_error / left
    return UltimateBound(
        composite=composite,
        position=composite / stiffness,
        velocity=2 * composite,
        decay=left / mass,
    )


def _value(bound: float | Certificate) -> float:
    if isinstance(bound, Certificate):
        return bound.value
    return _positive("bound", bound)


def _positive(name: str, value: float) -> float:
    if not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise ValueError(f"{name} is {value!r}; expected a positive number")
    return float(value)
