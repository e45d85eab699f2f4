"""The loss along a great circle: slope, second derivative and Taylor coefficients.

Along γ(t) (`geometry/great_circle.py`) the derivatives of the weights are known without
differentiation; only the loss has to be differentiated.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import jet
from jaxtyping import Float, Int

from greatcircle.geometry import sphere
from greatcircle.geometry.great_circle import Arc
from greatcircle.geometry.sphere import Tree
from greatcircle.objective.objective import Objective, second_order

__all__ = ["ArcStart", "second_derivative", "slope", "taylor"]

Scalar = Float[Array, ""]


class ArcStart(eqx.Module):
    """An objective, its loss and its derivatives at the start of an arc."""

    objective: Objective
    arc: Arc
    gradient: Tree
    cache: Any
    """The cache of the backward pass, for the second-order pass."""
    loss: Scalar
    slope: Scalar
    iteration: Int[Array, ""] | int = 0
    """Number of earlier steps."""


def slope(arc: Arc, gradient: Tree) -> Scalar:
    """Return L̄'(0), Eq. (8), as Σ μ_i ⟨projected gradient, V_i⟩: no cancellation."""
    tangent = sphere.project(arc.weights, gradient, arc.radii)
    return jnp.sum(sphere.inner(tangent, arc.velocity))


def second_derivative(objective: Objective, arc: Arc, gradient: Tree, cache: Any) -> Scalar:
    """Return L̄''(0) = γ'ᵀ ∇²L γ' + ⟨∇L, γ''⟩, with γ'' = −s² W."""
    normal = arc.speeds**2 @ sphere.inner(gradient, arc.weights)
    weights, velocity = sphere.unpack(arc.weights), sphere.unpack(arc.velocity)
    twice = second_order(objective, "the second derivative along an arc")
    return twice.second_order(weights, velocity, cache) - normal


def taylor(objective: Objective, arc: Arc, order: int) -> Float[Array, " terms"]:
    """Return L̄^(k)(0) for k = 0 to `order`, Eq. (7).

    Taylor-mode differentiation (cost of order²) where JAX has rules for every operation of the
    loss; otherwise nested forward mode (cost of 2^order).
    """
    try:
        return _taylor_mode(objective, arc, order)
    except Exception:  # jet is experimental, and a missing rule can raise anything
        return _nested_forward_mode(objective, arc, order)


def _taylor_mode(objective: Objective, arc: Arc, order: int) -> Array:
    leaves, structure = jax.tree.flatten(sphere.unpack(arc.weights))
    series = [
        list(terms) for terms in zip(*map(jax.tree.leaves, arc.derivatives(order)), strict=True)
    ]

    def loss(*weights: Array) -> Array:
        return objective.value(jax.tree.unflatten(structure, weights))

    value, derivatives = jet.jet(loss, tuple(leaves), tuple(series))
    return jnp.stack([value, *derivatives])


def _nested_forward_mode(objective: Objective, arc: Arc, order: int) -> Array:
    """Return derivatives of t ↦ L(Σ γ^(k)(0) t^k / k!), which at 0 are those of L̄."""
    moments = arc.derivatives(order)
    weights = sphere.unpack(arc.weights)
    zero = jnp.zeros((), jax.tree.leaves(weights)[0].dtype)

    def along(t: Array) -> Array:
        point, power = weights, jnp.ones_like(t)
        for k, moment in enumerate(moments, start=1):
            power = power * t / k
            point = jax.tree.map(lambda p, m, c=power: p + c * m, point, moment)
        return objective.value(point)

    functions = [along]
    for _ in range(order):
        functions.append(partial(_derivative, functions[-1]))
    return jnp.stack([function(zero) for function in functions])


def _derivative(function: Callable[[Array], Array], t: Array) -> Array:
    return jax.jvp(function, (t,), (jnp.ones_like(t),))[1]
