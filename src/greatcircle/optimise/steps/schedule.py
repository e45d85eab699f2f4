"""Angles that depend on the iteration alone, for stochastic directions."""

import math
from dataclasses import dataclass
from numbers import Real

import jax.numpy as jnp
import numpy as np

from greatcircle.objective.objective import Objective
from greatcircle.optimise.arc import ArcStart
from greatcircle.optimise.record import Evaluations
from greatcircle.optimise.steps.step import Proposal

__all__ = ["CosineSchedule"]


@dataclass(frozen=True)
class CosineSchedule:
    """Fall from `first` to zero along half a cosine, in `total` steps.

    Parameters
    ----------
    first
        The first angle, in radians per unit of the heading's speed.
    total
        Number of steps.
    """

    first: float
    total: int

    def __post_init__(self) -> None:
        if not isinstance(self.first, Real) or not 0 < float(self.first) < np.inf:
            raise ValueError(f"first is {self.first!r}; expected a positive angle in radians")
        if not isinstance(self.total, int | np.integer) or self.total < 1:
            raise ValueError(f"total is {self.total!r}; expected a whole number of at least 1")

    @property
    def cost(self) -> Evaluations:
        """Nothing beyond the gradient."""
        return Evaluations()

    def check(self, objective: Objective) -> None:
        """Accept every objective."""

    def propose(self, start: ArcStart) -> Proposal:
        """Return the angle of this iteration."""
        done = jnp.asarray(start.iteration, start.loss.dtype) / self.total
        angle = 0.5 * self.first * (1 + jnp.cos(math.pi * done))
        nan = jnp.full_like(angle, jnp.nan)
        return Proposal(angle, nan, nan)
