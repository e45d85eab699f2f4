"""Stochastic gradients, each entry divided by its root mean square (Kingma & Ba 2015)."""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Packed
from greatcircle.objective.objective import Objective
from greatcircle.optimise.directions.direction import Choice, Position

__all__ = ["RootMeanSquare"]

MEAN_DECAY, SQUARE_DECAY = 0.9, 0.999
"""Decay per step of the moving averages of gradients and of their squares."""

SMALL, TINY = 1e-3, 1e-30
"""Entries whose root mean square is below SMALL times that of their layer move less."""


class _Averages(NamedTuple):
    mean: Float[Array, "spheres entries"]
    square: Float[Array, "spheres entries"]
    steps: Int[Array, ""]


@dataclass(frozen=True)
class RootMeanSquare:
    """The mean of each entry of the gradient, divided by its root mean square.

    The ratio has no unit, and neither has a point on a sphere divided by its radius, so the angle
    along such a heading is a pure number (`CosineSchedule`). Headings are not scaled to unit speed.
    """

    def check(self, objective: Objective) -> None:
        """Accept every objective."""

    def init(self, weights: Packed) -> _Averages:
        """Return averages of no gradients."""
        zero = jnp.zeros_like(weights.rows)
        return _Averages(zero, zero, jnp.zeros((), jnp.int32))

    def choose(self, position: Position, state: _Averages) -> Choice:
        """Return minus the scaled mean gradient, on the tangent space."""
        gradient = sphere.scale(position.gradient, 1 / position.radii)
        rows, steps = gradient.rows, state.steps + 1
        mean = MEAN_DECAY * state.mean + (1 - MEAN_DECAY) * rows
        square = SQUARE_DECAY * state.square + (1 - SQUARE_DECAY) * rows**2
        # The averages start from zero: divide by the sum of their weights so far.
        unbiased_mean = mean / (1 - MEAN_DECAY**steps)
        unbiased_square = square / (1 - SQUARE_DECAY**steps)
        entries = jnp.array([[math.prod(shape)] for shape in gradient.shapes])
        of_layer = jnp.sqrt(jnp.sum(unbiased_square, axis=1, keepdims=True) / entries)
        scaled = unbiased_mean / (jnp.sqrt(unbiased_square) + SMALL * of_layer + TINY)
        tangent = sphere.project(position.weights, replace(gradient, rows=-scaled), position.radii)
        heading = sphere.scale(tangent, 1 / position.radii)
        return Choice(heading, _Averages(mean, square, steps))
