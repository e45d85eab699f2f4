"""Damping that follows how well a quadratic model predicts: Levenberg's and Marquardt's rule."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from greatcircle.geometry.sphere import Tree
from greatcircle.optimise.directions.direction import Place


class Model(NamedTuple):
    """What a direction remembers of its quadratic model."""

    damping: Array
    slope: Array
    """Of the quadratic model along the heading, per radian."""
    curvature: Array
    iteration: Array


def start_model(weights: Tree, damping: float) -> Model:
    """Before the first point: nothing predicted."""
    dtype = jax.tree.leaves(weights)[0].dtype
    nan = jnp.full((), jnp.nan, dtype)
    return Model(jnp.asarray(damping, dtype), nan, nan, jnp.zeros((), jnp.int32))


def adapted_damping(place: Place, memory: Model, less: float, more: float) -> Array:
    """λ after the last arc: Levenberg's and Marquardt's rule, on a quadratic model along it."""
    angle = place.angle
    predicted = -(memory.slope + 0.5 * memory.curvature * angle) * angle
    good = place.decrease > 0.75 * predicted
    bad = place.decrease < 0.25 * predicted
    factor = jnp.where(bad, more, jnp.where(good, less, 1.0))
    tiny = 10 * jnp.finfo(angle.dtype).eps
    # Where no arc led here there is nothing to learn: at the start, or with new rows.
    return jnp.where(angle > 0, jnp.maximum(factor * memory.damping, tiny), memory.damping)
