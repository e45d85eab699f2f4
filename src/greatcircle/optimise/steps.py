"""How far to go: an angle for the arc, computed and not tuned.

| step | looks at | the paper |
|---|---|---|
| `Curvature()` | two derivatives along the arc | Method 1, Algorithm 2 |
| `Curvature(compare=True)` | and the true loss at {0, ε, t*} | Section 3.2.1 |
| `Taylor(r)` | r derivatives along the arc | Eq. (7), any order |
| `Majorant()` | gradient and operator norms | Method 2, Algorithm 3 |
| `DataMajorant()` | and what the layers see | tighter |
| `SmoothMajorant()` | and the activation's curvature | proved, smooth activations only |
| `ClosedForm()` | slope and radii | the authors' program |

Any of them goes with any direction of `directions/`. A step proposes; the loop accepts the angle
only if the loss falls, and halves it otherwise.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple, Protocol, final

import jax.numpy as jnp
import numpy as np
from jax import Array

from greatcircle.geometry import sphere
from greatcircle.network import activations, gains
from greatcircle.objective.objective import Objective
from greatcircle.objective.problem import Problem
from greatcircle.optimise import arc as arcs
from greatcircle.optimise import search
from greatcircle.optimise.arc import Here
from greatcircle.optimise.majorants import (
    Terms,
    data_majorant_terms,
    majorant_terms,
    seen,
    smooth_majorant_terms,
)
from greatcircle.optimise.record import Evaluations

TRUST_REGION = math.pi / 6
"""ε of the paper: up to here sine and cosine are their second-order expansions, nearly."""


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
class _Majorised(ABC):
    """The minimum of a bound on the loss along the arc, over [0, π].

    A rule adds which bound (`_terms`), what it costs and what it needs. Where a bound has several
    minima, which is rare, the search may end in another one than the lowest.
    """

    search: str = "brent"

    def __post_init__(self) -> None:
        if self.search not in ("brent", "golden"):
            raise ValueError(f"search is {self.search!r}; expected 'brent' or 'golden'")

    @abstractmethod
    def _terms(self, here: Here) -> Terms:
        """The bound."""

    @final
    def propose(self, here: Here) -> Proposal:
        """Searched in log t: angles span many decades."""
        terms = self._terms(here)
        find = search.brent if self.search == "brent" else search.golden
        low = terms.lowest()
        low = jnp.maximum(low, jnp.finfo(low.dtype).tiny)
        high = jnp.asarray(math.pi, low.dtype)
        tolerance = math.sqrt(float(jnp.finfo(low.dtype).eps))
        log_angle, value = find(
            lambda log_t: terms.value(jnp.exp(log_t)), jnp.log(low), jnp.log(high), tolerance
        )
        return Proposal(jnp.exp(log_angle), jnp.full_like(value, jnp.nan), -value)


@final
@dataclass(frozen=True)
class Majorant(_Majorised):
    """Method 2: minimise the majorant of Eq. (22) over [0, π] (Algorithm 3).

    Where the majorant has several minima, which is rare, the search may end in another one than
    the lowest.

    Parameters
    ----------
    search
        "brent" (default: the same angle in half the evaluations in float32, in a third of them in
        float64) or "golden".
    """

    @property
    def cost(self) -> Evaluations:
        """The search needs no pass over the data."""
        return Evaluations()

    def check(self, objective: Objective) -> None:
        """Operator norms of layers need a network."""
        _check_network(objective, self)

    def _terms(self, here: Here) -> Terms:
        return majorant_terms(here)


@final
@dataclass(frozen=True)
class DataMajorant(_Majorised):
    """A tighter majorant: what the layers see on the data, instead of operator norms.

    The change of a layer's output is bounded in the mean square over the rows, by three numbers
    for each layer, and only its way through the later layers by their operator norms
    (`docs/method2.md`). Like the paper's, it rests on Assumption 1.

    Parameters
    ----------
    search
        "brent" or "golden".
    """

    @property
    def cost(self) -> Evaluations:
        """The three numbers take one product with each layer's heading."""
        return Evaluations(forward=1)

    def check(self, objective: Objective) -> None:
        """What layers see needs a network."""
        _check_network(objective, self)

    def _terms(self, here: Here) -> Terms:
        return data_majorant_terms(here)


@final
@dataclass(frozen=True)
class SmoothMajorant(_Majorised):
    """A majorant that is proved, for smooth activations: no Assumption 1.

    It bounds the second derivative along the arc over all of [0, t] (`docs/method2.md`). The price
    is angles that are much smaller than the other rules'.

    Parameters
    ----------
    search
        "brent" or "golden".
    """

    @property
    def cost(self) -> Evaluations:
        """The search needs no pass over the data."""
        return Evaluations()

    def check(self, objective: Objective) -> None:
        """The activation's derivative must be Lipschitz."""
        _check_network(objective, self)
        assert isinstance(objective, Problem)
        activation = objective.network.activation
        if activation.max_second_derivative is None:
            smooth = [n for n, a in activations.ACTIVATIONS.items() if a.max_second_derivative is not None]
            raise TypeError(
                f"step SmoothMajorant needs an activation with a known bound on its second "
                f"derivative; {activation.name} has none: use one of {', '.join(smooth)}, or "
                "steps.DataMajorant()"
            )

    def _terms(self, here: Here) -> Terms:
        return smooth_majorant_terms(here)


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
        layers, radii = here.objective.network.depth, here.arc.radii
        # P √Q; with constant units, the most that any of them or the input can become.
        reach = jnp.max(seen(here.objective, radii) * radii * gains.after(radii))
        beta = -here.slope
        scale = reach**2 * here.objective.criterion.curvature / here.objective.unit
        ratio = beta / (layers * jnp.where(scale > 0, scale, 1))
        # x − 1 = (√(1 + 4 ratio) − 1) / 2, rationalised: small angles keep their digits.
        excess = 2 * ratio / (1 + jnp.sqrt(1 + 4 * ratio))
        angle = jnp.log1p(excess) / layers
        predicted = beta * angle - 0.5 * scale * excess**2
        return Proposal(angle, jnp.full_like(angle, jnp.nan), predicted)


def _check_network(objective: Objective, step: Step) -> None:
    if not isinstance(objective, Problem):
        raise TypeError(
            f"step {type(step).__name__} needs a Problem with a Network, because it uses the "
            "norms of its layers; for any other objective use steps.Curvature()"
        )


def _check_max_angle(max_angle: float) -> None:
    if not isinstance(max_angle, Real) or not 0 < float(max_angle) <= 2 * math.pi:
        raise ValueError(f"max_angle is {max_angle!r}; expected an angle in radians, in (0, 2π]")
