"""Angles that depend on the iteration alone, for stochastic directions."""

import math
from numbers import Real

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from greatcircle.objective.objective import Objective
from greatcircle.optimise.arc import ArcStart
from greatcircle.optimise.record import Evaluations
from greatcircle.optimise.steps.step import Proposal

__all__ = ["CosineSchedule"]


class CosineSchedule(eqx.Module):
    """Fall from `first` to zero along half a cosine, in `total` steps.

    Parameters
    ----------
    first
        The first angle, in radians per unit of the heading's speed.
    total
        Number of steps.
    """

    first: float | Float[Array, ""]
    total: int | Float[Array, ""]

    def __check_init__(self) -> None:
        if isinstance(self.first, Real) and not 0 < float(self.first) < np.inf:
            raise ValueError(f"first is {self.first!r}; expected a positive angle in radians")
        if isinstance(self.total, Real) and (self.total < 1 or self.total != int(self.total)):
            raise ValueError(f"total is {self.total!r}; expected a whole number of at least 1")

    @property
    def cost(self) -> Evaluations:
        """No evaluations beyond the gradient."""
        return Evaluations()

    def check(self, objective: Objective) -> None:
        """Accept every objective."""

    def propose(self, start: ArcStart) -> Proposal:
        """Return the angle of this iteration."""
        done = jnp.asarray(start.iteration, start.loss.dtype) / self.total
        angle = 0.5 * self.first * (1 + jnp.cos(math.pi * done))
        nan = jnp.full_like(angle, jnp.nan)
        return Proposal(angle, nan, nan)
