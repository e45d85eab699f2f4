"""The loss along one great circle: where it leads, how fast, and its Taylor coefficients.

γ(t) of Eq. (5) leaves the weights along a heading; layer i turns by t·s_i, where s_i = ‖V_i‖ is
its angular speed (the paper has s_i = 1). Since each layer moves on a circle, its derivatives at
t = 0 are known without differentiation: γ' = μ V, γ'' = −s² W, γ''' = −s² μ V, and so on. Only the
loss has to be differentiated.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import jet

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Tree
from greatcircle.objective.objective import Objective


class Arc(NamedTuple):
    """A great circle on each sphere, walked together."""

    weights: Tree
    heading: Tree
    radii: Array
    """μ_i of each layer."""

    def point(self, angle: Array | float) -> Tree:
        """γ(angle), Eq. (5)."""
        return sphere.turn(self.weights, self.heading, angle, self.radii)

    @property
    def velocity(self) -> Tree:
        """γ'(0) = μ_i V_i."""
        return sphere.scale(self.heading, self.radii)

    @property
    def speeds(self) -> Array:
        """s_i = ‖V_i‖, the angular speed of each layer."""
        return sphere.norm(self.heading)


class Here(NamedTuple):
    """All that is known at the start of an arc."""

    objective: Objective
    arc: Arc
    gradient: Tree
    left: Any
    """What the backward pass left for the second-order pass."""
    loss: Array
    slope: Array


def slope(arc: Arc, gradient: Tree) -> Array:
    """L̄'(0), Eq. (8), as Σ μ_i ⟨projected gradient, V_i⟩: no cancellation."""
    tangent = sphere.project(arc.weights, gradient, arc.radii)
    return jnp.sum(sphere.inner(tangent, arc.velocity))


def second_derivative(objective: Objective, arc: Arc, gradient: Tree, left: Any) -> Array:
    """L̄''(0) = γ'ᵀ ∇²L γ' + ⟨∇L, γ''⟩, with γ'' = −s² W; `left` by `objective.backward`."""
    pull = arc.speeds**2 @ sphere.inner(gradient, arc.weights)
    weights, velocity = sphere.unpack(arc.weights), sphere.unpack(arc.velocity)
    return objective.second_order(weights, velocity, left) - pull


def taylor(objective: Objective, arc: Arc, order: int) -> Array:
    """L̄^(k)(0) for k = 0 to `order`, Eq. (7).

    Taylor-mode differentiation (cost of order²) where JAX has rules for all that the loss is made
    of; otherwise nested forward mode (cost of 2^order).
    """
    try:
        return _taylor_mode(objective, arc, order)
    except Exception:  # jet is experimental, and a missing rule raises whatever it meets
        return _nested(objective, arc, order)


def _taylor_mode(objective: Objective, arc: Arc, order: int) -> Array:
    leaves, structure = jax.tree.flatten(sphere.unpack(arc.weights))
    series = [
        list(terms) for terms in zip(*map(jax.tree.leaves, _moments(arc, order)), strict=True)
    ]

    def loss(*weights: Array) -> Array:
        return objective.value(jax.tree.unflatten(structure, weights))

    value, derivatives = jet.jet(loss, tuple(leaves), tuple(series))
    return jnp.stack([value, *derivatives])


def _nested(objective: Objective, arc: Arc, order: int) -> Array:
    """Differentiate t ↦ L(Σ γ^(k)(0) t^k / k!), which has the same derivatives at 0 as L̄."""
    moments = _moments(arc, order)
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


def _moments(arc: Arc, order: int) -> list[Tree]:
    """γ^(k)(0) for k = 1 to `order`: γ', then each is −s² times the one two before."""
    moments = [arc.weights, arc.velocity]
    for _ in range(order - 1):
        moments.append(sphere.scale(moments[-2], -(arc.speeds**2)))
    return [sphere.unpack(m) for m in moments[1 : order + 1]]
