"""Levenberg-Marquardt damping, adapted to how well a quadratic model predicted the last step."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from greatcircle.geometry.sphere import Tree
from greatcircle.optimise.directions.direction import Position

__all__ = ["QuadraticModel", "adapted_damping", "initial_model"]

Scalar = Float[Array, ""]


class QuadraticModel(NamedTuple):
    """The damping and a quadratic model of the loss along the last heading."""

    damping: Scalar
    slope: Scalar
    """Per radian."""
    curvature: Scalar
    iteration: Int[Array, ""]


def initial_model(weights: Tree, damping: float) -> QuadraticModel:
    """Return the state before the first point: the damping, and no model yet."""
    dtype = jax.tree.leaves(weights)[0].dtype
    nan = jnp.full((), jnp.nan, dtype)
    return QuadraticModel(jnp.asarray(damping, dtype), nan, nan, jnp.zeros((), jnp.int32))


def adapted_damping(
    position: Position, model: QuadraticModel, decrease: float, increase: float
) -> Scalar:
    """Return λ, times `decrease` after a good prediction and times `increase` after a bad one."""
    angle = position.angle
    predicted = -(model.slope + 0.5 * model.curvature * angle) * angle
    good = position.decrease > 0.75 * predicted
    bad = position.decrease < 0.25 * predicted
    factor = jnp.where(bad, increase, jnp.where(good, decrease, 1.0))
    tiny = 10 * jnp.finfo(angle.dtype).eps
    # At the start, and on new rows, there is no last step to compare with.
    return jnp.where(angle > 0, jnp.maximum(factor * model.damping, tiny), model.damping)
