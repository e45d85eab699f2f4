"""Angles that follow a schedule: for stochastic directions, whose arcs are not measured."""

import math

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from greatcircle.objective.objective import Objective
from greatcircle.optimise.arc import ArcStart
from greatcircle.optimise.record import Evaluations
from greatcircle.optimise.steps.step import Proposal

__all__ = ["CosineSchedule"]


class CosineSchedule(eqx.Module):
    """From `first` down to zero along half a cosine, in `total` steps.

    Parameters
    ----------
    first
        The first angle, in radians per unit of the heading's speed.
    total
        Number of steps.
    """

    first: float | Float[Array, ""]
    total: int | Float[Array, ""]

    @property
    def cost(self) -> Evaluations:
        """Nothing beyond the gradient."""
        return Evaluations()

    def check(self, objective: Objective) -> None:
        """Works with every objective."""

    def propose(self, start: ArcStart) -> Proposal:
        """Return the angle of this iteration."""
        done = jnp.asarray(start.iteration, start.loss.dtype) / self.total
        angle = 0.5 * self.first * (1 + jnp.cos(math.pi * done))
        nan = jnp.full_like(angle, jnp.nan)
        return Proposal(angle, nan, nan)
