"""Method 2: the angle that minimises a majorant of the loss along the arc (Algorithm 3)."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import final

import jax.numpy as jnp

from greatcircle.network import activations, gains
from greatcircle.objective.objective import LayeredObjective, Objective, layered
from greatcircle.optimise.arc import ArcStart
from greatcircle.optimise.record import Evaluations
from greatcircle.optimise.steps.majorants import (
    Terms,
    data_majorant_terms,
    input_bounds,
    majorant_terms,
    smooth_majorant_terms,
)
from greatcircle.optimise.steps.search import Brent, Search
from greatcircle.optimise.steps.step import Proposal, Step

__all__ = ["ClosedForm", "DataMajorant", "Majorant", "SmoothMajorant"]


@dataclass(frozen=True)
class _Majorised(ABC):
    """Minimise a majorant of the loss along the arc over [0, π].

    A majorant with several minima is rare; the search may then return one that is not the lowest.
    """

    search: Search = field(default_factory=Brent)

    def __post_init__(self) -> None:
        if isinstance(self.search, type) or not callable(getattr(self.search, "minimise", None)):
            raise ValueError(
                f"search is {self.search!r}; expected steps.Brent() or steps.GoldenSection()"
            )

    @abstractmethod
    def _terms(self, start: ArcStart) -> Terms:
        """Return the majorant."""

    @final
    def propose(self, start: ArcStart) -> Proposal:
        """Return the minimiser, by a search in log t: angles span many decades."""
        terms = self._terms(start)
        low = terms.lower_limit()
        low = jnp.maximum(low, jnp.finfo(low.dtype).tiny)
        high = jnp.asarray(math.pi, low.dtype)
        tolerance = math.sqrt(float(jnp.finfo(low.dtype).eps))
        log_angle, value = self.search.minimise(
            lambda log_t: terms.value(jnp.exp(log_t)), jnp.log(low), jnp.log(high), tolerance
        )
        return Proposal(jnp.exp(log_angle), jnp.full_like(value, jnp.nan), -value)


@final
@dataclass(frozen=True)
class Majorant(_Majorised):
    """Method 2: minimise the majorant of Eq. (22) over [0, π] (Algorithm 3).

    Parameters
    ----------
    search
        `Brent()` (default: the same angle in half the evaluations in float32, in a third of them
        in float64) or `GoldenSection()`.
    """

    @property
    def cost(self) -> Evaluations:
        """The search needs no pass over the data."""
        return Evaluations()

    def check(self, objective: Objective) -> None:
        """Raise TypeError if the objective has no layers."""
        _layered(objective, self)

    def _terms(self, start: ArcStart) -> Terms:
        return majorant_terms(start)


@final
@dataclass(frozen=True)
class DataMajorant(_Majorised):
    """A tighter majorant, from the inputs of the layers instead of their operator norms.

    The change of a layer's outputs is bounded in the mean square over the rows, by three numbers
    for each layer; operator norms bound only how later layers amplify it (`docs/method2.md`). Like
    the paper's majorant, it rests on Assumption 1.

    Parameters
    ----------
    search
        `Brent()` (default: the same angle in half the evaluations in float32, in a third of them
        in float64) or `GoldenSection()`.
    """

    @property
    def cost(self) -> Evaluations:
        """Computing the three numbers takes one product with each layer's heading."""
        return Evaluations(forward=1)

    def check(self, objective: Objective) -> None:
        """Raise TypeError if the objective has no layers."""
        _layered(objective, self)

    def _terms(self, start: ArcStart) -> Terms:
        return data_majorant_terms(start)


@final
@dataclass(frozen=True)
class SmoothMajorant(_Majorised):
    """A proved majorant for smooth activations, without Assumption 1.

    It bounds the second derivative along the arc over all of [0, t] (`docs/method2.md`). Its angles
    are much smaller than those of the other rules.

    Parameters
    ----------
    search
        `Brent()` (default: the same angle in half the evaluations in float32, in a third of them
        in float64) or `GoldenSection()`.
    """

    @property
    def cost(self) -> Evaluations:
        """The search needs no pass over the data."""
        return Evaluations()

    def check(self, objective: Objective) -> None:
        """Raise TypeError if the objective has no layers."""
        activation = _layered(objective, self).network.activation
        if activation.max_second_derivative is None:
            smooth = [
                name
                for name, known in activations.ACTIVATIONS.items()
                if known.max_second_derivative is not None
            ]
            raise TypeError(
                f"step SmoothMajorant needs an activation with a known bound on its second "
                f"derivative; {activation.name} has none: use one of {', '.join(smooth)}, or "
                "steps.DataMajorant()"
            )

    def _terms(self, start: ArcStart) -> Terms:
        return smooth_majorant_terms(start)


@dataclass(frozen=True)
class ClosedForm:
    """The exponential rule of the authors' program, after AGD (Bernstein et al. 2023).

    It minimises −β t + ½ Q P² (e^{Lt} − 1)² with P = ∏μ_i. It omits α, so it is not a proved
    majorant; it needs neither a search nor an operator norm.
    """

    @property
    def cost(self) -> Evaluations:
        """Nothing beyond the gradient."""
        return Evaluations()

    def check(self, objective: Objective) -> None:
        """Raise TypeError if the objective has no layers."""
        _layered(objective, self)

    def propose(self, start: ArcStart) -> Proposal:
        """Return the positive root of x² − x = β / (P² Q L), with x = e^{Lt}."""
        objective, radii = _layered(start.objective, self), start.arc.radii
        layers = objective.network.depth
        # P √Q; with biases, the largest such product that starts at the input or at a constant.
        reach = jnp.max(input_bounds(objective, radii) * radii * gains.gains_after(radii))
        beta = -start.slope
        scale = reach**2 * objective.criterion.curvature / objective.unit
        ratio = beta / (layers * jnp.where(scale > 0, scale, 1))
        # x − 1 = (√(1 + 4 ratio) − 1) / 2, rationalised to avoid cancellation at small angles.
        excess = 2 * ratio / (1 + jnp.sqrt(1 + 4 * ratio))
        angle = jnp.log1p(excess) / layers
        predicted = beta * angle - 0.5 * scale * excess**2
        return Proposal(angle, jnp.full_like(angle, jnp.nan), predicted)


def _layered(objective: Objective, step: Step) -> LayeredObjective:
    return layered(objective, f"step {type(step).__name__}", "steps.Curvature()")
