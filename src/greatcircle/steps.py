"""How far to go: an angle for the arc, computed and not tuned.

| step | looks at | the paper |
|---|---|---|
| `Curvature()` | two derivatives along the arc | Method 1, Algorithm 2 |
| `Curvature(compare=True)` | and the true loss at {0, ε, t*} | Section 3.2.1 |
| `Taylor(r)` | r derivatives along the arc | Eq. (7), any order |
| `Majorant()` | gradient and operator norms | Method 2, Algorithm 3 |
| `ClosedForm()` | slope and radii | the authors' program |

Any of them goes with any direction of `directions.py`. A step proposes; the loop accepts the angle
only if the loss falls, and halves it otherwise.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array

from greatcircle import arc as arcs
from greatcircle import gains, search, sphere
from greatcircle.arc import Arc
from greatcircle.problem import Objective, Problem
from greatcircle.record import Evaluations
from greatcircle.sphere import Tree

TRUST_REGION = math.pi / 6
"""ε of the paper: up to here sine and cosine are their second-order expansions, nearly."""


class Here(NamedTuple):
    """All that is known at the start of an arc."""

    objective: Objective
    arc: Arc
    gradient: Tree
    left: Any
    """What the backward pass left for the second-order pass."""
    loss: Array
    slope: Array


class Proposal(NamedTuple):
    """What a step rule wants."""

    angle: Array
    curvature: Array
    """L̄''(0), or NaN."""
    predicted: Array
    """The decrease that the rule's model promises."""


class Step(Protocol):
    """What the loop asks of a step rule."""

    @property
    def cost(self) -> Evaluations:
        """Passes over the data for one proposal."""
        ...

    def check(self, objective: Objective) -> None:
        """Raise TypeError where the rule cannot work with the objective."""
        ...

    def propose(self, here: Here) -> Proposal:
        """The angle."""
        ...


@dataclass(frozen=True)
class Curvature:
    """Method 1: minimise the second-order expansion along the arc (Algorithm 2).

    Parameters
    ----------
    max_angle
        The trust region ε.
    compare
        Choose among {0, ε, t*} by the true loss, as Section 3.2.1 describes before it simplifies,
        instead of trusting the expansion. Two more forward passes. Where 0 is the lowest, the
        loop's halving goes on below the smaller of the other two.
    """

    max_angle: float = TRUST_REGION
    compare: bool = False

    def __post_init__(self) -> None:
        _check_max_angle(self.max_angle)

    @property
    def cost(self) -> Evaluations:
        """One second-order pass; two forward passes to compare."""
        return Evaluations(second=1, forward=2 if self.compare else 0)

    def check(self, objective: Objective) -> None:
        """Works with every objective."""

    def propose(self, here: Here) -> Proposal:
        """Algorithm 2, line by line."""
        slope = here.slope
        curvature = arcs.second_derivative(here.objective, here.arc, here.gradient, here.left)
        epsilon = jnp.asarray(self.max_angle, slope.dtype)
        flat = curvature == 0
        extreme = -slope / jnp.where(flat, 1, curvature)  # t*
        inside = ~flat & (extreme >= 0) & (extreme <= epsilon)
        angle = jnp.where(inside, extreme, epsilon)
        angle = jnp.where(flat & (slope == 0), 0, angle)
        angle = jnp.where(jnp.isfinite(curvature), angle, jnp.nan)  # nothing to go by
        if self.compare:
            return self._lowest(here, curvature, angle)
        return Proposal(angle, curvature, -(slope + 0.5 * curvature * angle) * angle)

    def _lowest(self, here: Here, curvature: Array, angle: Array) -> Proposal:
        """The angle of {0, ε, t*} with the lowest true loss, the first among equals."""
        epsilon = jnp.full_like(angle, self.max_angle)
        points = [sphere.unpack(here.arc.point(t)) for t in (epsilon, angle)]
        values = jnp.stack([here.objective.value(point) for point in points])
        lowest = jnp.nanargmin(jnp.append(values, jnp.inf))
        falls = values[lowest] < here.loss
        half = angle / 2
        return Proposal(
            jnp.where(falls, jnp.stack([epsilon, angle])[lowest], half),
            curvature,
            jnp.where(
                falls, here.loss - values[lowest], -(here.slope + 0.5 * curvature * half) * half
            ),
        )


@dataclass(frozen=True)
class Taylor:
    """Minimise the expansion of order r, Eq. (7), over [0, max_angle].

    All stationary points and both ends are compared. `Taylor(2)` is Algorithm 2 wherever that
    takes the minimum of its model. With `max_angle=2π` the far end is the starting point again:
    the loop never accepts it as a step.
    """

    order: int = 3
    max_angle: float = TRUST_REGION

    def __post_init__(self) -> None:
        if not isinstance(self.order, int | np.integer) or self.order < 1:
            raise ValueError(f"order is {self.order!r}; expected a whole number of at least 1")
        _check_max_angle(self.max_angle)

    @property
    def cost(self) -> Evaluations:
        """One pass, of a kind that depends on the order."""
        return Evaluations(second=int(self.order == 2), higher=int(self.order > 2))

    def check(self, objective: Objective) -> None:
        """Works with every objective."""

    def propose(self, here: Here) -> Proposal:
        """The global minimum of the polynomial."""
        derivatives = [here.loss, here.slope]
        if self.order == 2:
            derivatives.append(
                arcs.second_derivative(here.objective, here.arc, here.gradient, here.left)
            )
        elif self.order > 2:
            derivatives += list(arcs.taylor(here.objective, here.arc, self.order)[2:])
        coefficients = jnp.stack([d / math.factorial(k) for k, d in enumerate(derivatives)])
        angle = search.polynomial(coefficients, self.max_angle)
        angle = jnp.where(jnp.all(jnp.isfinite(coefficients)), angle, jnp.nan)  # nothing to go by
        predicted = -jnp.polyval(coefficients.at[0].set(0)[::-1], angle)
        curvature = derivatives[2] if self.order > 1 else jnp.full_like(angle, jnp.nan)
        return Proposal(angle, curvature, predicted)


@dataclass(frozen=True)
class Majorant:
    """Method 2: minimise the majorant of Eq. (22) over [0, π] (Algorithm 3).

    Where the majorant has several minima, which is rare, the search may end in another one than
    the lowest.

    Parameters
    ----------
    search
        "brent" (default: the same angle in half the evaluations in float32, in a third of them in
        float64) or "golden".
    """

    search: str = "brent"

    def __post_init__(self) -> None:
        if self.search not in ("brent", "golden"):
            raise ValueError(f"search is {self.search!r}; expected 'brent' or 'golden'")

    @property
    def cost(self) -> Evaluations:
        """The search needs no pass over the data."""
        return Evaluations()

    def check(self, objective: Objective) -> None:
        """Operator norms of layers need a network."""
        _check_network(objective, self)

    def propose(self, here: Here) -> Proposal:
        """The minimum of the majorant, searched in log t: angles span many decades."""
        terms = majorant_terms(here)
        find = search.brent if self.search == "brent" else search.golden
        low, high = (jnp.log(t) for t in terms.bracket())
        tolerance = math.sqrt(float(jnp.finfo(low.dtype).eps))
        log_angle, value = find(lambda log_t: terms.value(jnp.exp(log_t)), low, high, tolerance)
        return Proposal(jnp.exp(log_angle), jnp.full_like(value, jnp.nan), -value)


class MajorantTerms(NamedTuple):
    """The numbers of Eq. (23), one entry for each layer, for layers of any speed."""

    alpha: Array
    """⟨∇_i, W_i⟩."""
    beta: Array
    """−⟨∇_i, U_i⟩ with U_i = μ_i V_i / s_i."""
    speed: Array
    """s_i."""
    gain: Array
    """‖W_i‖_op."""
    rate: Array
    """‖U_i‖_op."""
    WW: Array
    """W Wᵀ of each layer (or Wᵀ W, where that is smaller; so for the next two)."""
    WU: Array
    """W Uᵀ + U Wᵀ."""
    UU: Array
    """U Uᵀ."""
    Q: Array
    """Mean of ‖x‖², times the curvature of the loss."""

    def value(self, t: Array) -> Array:
        """Right-hand side of Eq. (22) at angle t, less L(w)."""
        linear = -2 * self.alpha * jnp.sin(self.speed * t / 2) ** 2
        linear -= self.beta * jnp.sin(self.speed * t)
        # P1 − P2 = P2·expm1(Σ log1p(‖ΔΓ_i‖ / ‖W_i‖)), which does not cancel for small t.
        P2 = jnp.prod(self.gain)
        growth = P2 * jnp.expm1(jnp.sum(jnp.log1p(self.moved(t) / self.gain)))
        return jnp.sum(linear) + 0.5 * self.Q * growth**2

    def moved(self, t: Array) -> Array:
        """‖ΔΓ_i(t)‖_op: ΔΓ = 2 sin(st/2) (U cos(st/2) − W sin(st/2))."""
        half = (self.speed * t / 2)[:, None, None]
        sine, cosine = jnp.sin(half), jnp.cos(half)
        chord = sine**2 * self.WW - sine * cosine * self.WU + cosine**2 * self.UU
        return 2 * sine[:, 0, 0] * gains.gains(chord)

    def bracket(self) -> tuple[Array, Array]:
        """Angles between which the minimum lies: see `docs/method2.md` for the lower one."""
        rate = jnp.sum(self.speed * self.rate / self.gain)
        slope = jnp.sum(self.beta * self.speed)
        curvature = self.Q * (jnp.prod(self.gain) * rate) ** 2 + jnp.sum(jnp.abs(self.alpha))
        newton = slope / jnp.where(curvature > 0, curvature, 1)
        low = 0.1 * jnp.minimum(newton, 1 / (1 + rate))
        tiny = jnp.finfo(low.dtype).tiny
        return jnp.maximum(low, tiny), jnp.asarray(math.pi, low.dtype)


def majorant_terms(here: Here) -> MajorantTerms:
    """α, β, P1, P2 and Q of Eq. (23) at the start of an arc."""
    arc, objective = here.arc, here.objective
    assert isinstance(objective, Problem)  # `check` has made sure
    tangent = sphere.project(arc.weights, here.gradient, arc.radii)
    units = sphere.normalise(arc.heading, arc.radii)
    W, U = (gains.aligned(sphere.unpack(x)) for x in (arc.weights, units))
    WW, WU, UU = gains.grams(W, W), gains.grams(W, U), gains.grams(U, U)
    gain, rate = jnp.split(gains.gains(jnp.concatenate([WW, UU])), 2)
    return MajorantTerms(
        alpha=sphere.inner(here.gradient, arc.weights),
        beta=-sphere.inner(tangent, units),
        speed=arc.speeds,
        gain=gain,
        rate=rate,
        WW=WW,
        WU=WU + WU.swapaxes(1, 2),
        UU=UU,
        Q=_scaled_Q(objective),
    )


@dataclass(frozen=True)
class ClosedForm:
    """The exponential rule of the authors' program, after AGD (Bernstein et al. 2023).

    It minimises −β t + ½ Q P² (e^{Lt} − 1)² with P = ∏μ_i. That leaves out α, so it is no proven
    majorant; it needs neither a search nor an operator norm.
    """

    @property
    def cost(self) -> Evaluations:
        """Nothing beyond the gradient."""
        return Evaluations()

    def check(self, objective: Objective) -> None:
        """The data's mean square belongs to a network."""
        _check_network(objective, self)

    def propose(self, here: Here) -> Proposal:
        """The positive root of x² − x = β / (P² Q L), with x = e^{Lt}."""
        assert isinstance(here.objective, Problem)  # `check` has made sure
        layers, P = here.objective.network.depth, jnp.prod(here.arc.radii)
        Q = _scaled_Q(here.objective)
        beta = -here.slope
        scale = P**2 * Q
        ratio = beta / (layers * jnp.where(scale > 0, scale, 1))
        # x − 1 = (√(1 + 4 ratio) − 1) / 2, rationalised: small angles keep their digits.
        excess = 2 * ratio / (1 + jnp.sqrt(1 + 4 * ratio))
        angle = jnp.log1p(excess) / layers
        predicted = beta * angle - 0.5 * scale * excess**2
        return Proposal(angle, jnp.full_like(angle, jnp.nan), predicted)


def _scaled_Q(problem: Problem) -> Array:
    """Q of Eq. (23) for this loss, in units of the problem's `unit`."""
    return problem.mean_square_input * problem.criterion.curvature / problem.unit


def _check_network(objective: Objective, step: Step) -> None:
    if not isinstance(objective, Problem):
        raise TypeError(
            f"step {type(step).__name__} needs a Problem with a Network, because it uses the "
            "norms of its layers; for any other objective use steps.Curvature()"
        )


def _check_max_angle(max_angle: float) -> None:
    if not 0 < max_angle <= 2 * math.pi:
        raise ValueError(f"max_angle is {max_angle!r}; expected an angle in (0, 2π]")
