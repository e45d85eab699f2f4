"""Natural gradients by Kronecker factors, with momentum."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greatcircle import sphere
from greatcircle.directions.damping import Model, adapted_damping, start_model
from greatcircle.directions.direction import Chosen, Place, fastest_speed, ratio, scaled
from greatcircle.objective import Objective
from greatcircle.problem import Problem
from greatcircle.sphere import Tree

DAMPING = 0.1
LESS, MORE = 0.95, 1.1
MEMORY = 0.9


class _Natural(NamedTuple):
    seen: Array
    """Moving average of the second moments of each layer's input."""
    slopes: Array
    """The same of the loss's slope in each layer's output."""
    way: Tree
    """The last direction."""
    model: Model


@dataclass(frozen=True)
class Kronecker:
    """Natural gradient by Kronecker factors (K-FAC), with momentum; no rate for either.

    Every layer's block of the Gauss-Newton matrix is approximated by a Kronecker product of two
    small matrices (Martens & Grosse 2015), whose inverse costs nothing beside a pass over the
    data. The heading is the combination of that natural gradient and of the last direction that is
    lowest in the Gauss-Newton model of the loss, which needs two forward passes.
    """

    def check(self, objective: Objective) -> None:
        """Needs the layers of a network."""
        if not isinstance(objective, Problem):
            raise TypeError(
                "direction Kronecker needs a Problem with a Network, because it uses what its "
                "layers see; for any other objective use directions.ConjugateGradient()"
            )

    def start(self, weights: Tree) -> _Natural:
        """No factors yet."""
        assert isinstance(weights, sphere.Packed)
        rows, columns = (max(s[axis] for s in weights.shapes) for axis in (0, 1))
        layers, dtype = len(weights.shapes), weights.rows.dtype
        return _Natural(
            jnp.zeros((layers, rows, rows), dtype),
            jnp.zeros((layers, columns, columns), dtype),
            sphere.scale(weights, 0.0),
            start_model(weights, DAMPING),
        )

    def choose(self, place: Place, memory: _Natural) -> Chosen:
        """The best combination of natural gradient and last direction."""
        problem = place.objective
        assert isinstance(problem, Problem)  # `check` has made sure
        model = memory.model
        damping = adapted_damping(place, model, LESS, MORE)
        age = jnp.minimum(1 - 1 / (model.iteration + 1.0), MEMORY).astype(damping.dtype)
        seen, slopes = (
            age * old + (1 - age) * new
            for old, new in zip(memory[:2], problem.kronecker(place.left), strict=True)
        )
        natural = _natural_gradient(place, seen, slopes, damping)
        last = place.bring(memory.way)
        matrices = sphere.unpack(place.weights)

        def velocity(v: Tree) -> Tree:
            return sphere.unpack(sphere.scale(v, place.radii))

        G = problem.gram(matrices, [velocity(natural), velocity(last)], place.left)
        sizes = [sphere.dot(x, y) for x, y in ((natural, natural), (natural, last), (last, last))]
        S = jnp.array([[sizes[0], sizes[1]], [sizes[1], sizes[2]]])
        slope = jnp.stack([sphere.dot(place.gradient, v) for v in (natural, last)])
        c = _solve_2(G + damping * S, -slope)
        v = sphere.add(sphere.scale(natural, c[0]), last, c[1])
        fastest = fastest_speed(v)
        new = Model(
            damping, ratio(c @ slope, fastest), ratio(c @ G @ c, fastest**2), model.iteration + 1
        )
        return Chosen(scaled(v), _Natural(seen, slopes, v, new), 1.5)


def _natural_gradient(place: Place, seen: Array, slopes: Array, damping: Array) -> Tree:
    """−(A ⊗ G + λ)⁻¹ ∇ on the tangent space, with factored damping (Martens & Grosse, §6.3)."""
    layers, structure = jax.tree.flatten(sphere.unpack(place.weights))
    gradient = sphere.stacked(jax.tree.leaves(sphere.unpack(place.gradient)))
    points = sphere.stacked(layers)
    rows, columns = (np.array([w.shape[axis] for w in layers]) for axis in (0, 1))
    seen = seen * (place.radii**2)[:, None, None]
    mean_a = jnp.trace(seen, axis1=1, axis2=2) / rows
    mean_g = jnp.trace(slopes, axis1=1, axis2=2) / columns
    # A layer that sees nothing, or that nothing depends on, has nothing to balance.
    some = (mean_a > 0) & (mean_g > 0)
    balance = jnp.sqrt(jnp.where(some, mean_a, 1) / jnp.where(some, mean_g, 1))
    root = jnp.sqrt(damping)
    A = seen + (root * balance)[:, None, None] * jnp.eye(seen.shape[1], dtype=seen.dtype)
    G = slopes + (root / balance)[:, None, None] * jnp.eye(slopes.shape[1], dtype=seen.dtype)
    # One layer at a time: LAPACK calls on stacks can wait for each other for ever (`gains.py`).
    solved = jax.lax.map(_tangent_solution, (A, G, gradient, points))
    matrices = [m[:r, :c] for m, r, c in zip(solved, rows, columns, strict=True)]
    tree = sphere.pack(jax.tree.unflatten(structure, matrices))
    return sphere.project(place.weights, tree, place.radii)


def _tangent_solution(layer: tuple[Array, Array, Array, Array]) -> Array:
    """−(A ⊗ G)⁻¹ ∇ of one layer, on the tangent space of its sphere."""
    A, G, gradient, point = layer
    A, G = jnp.linalg.cholesky(A), jnp.linalg.cholesky(G)

    def inverse(m: Array) -> Array:
        left = jax.scipy.linalg.cho_solve((A, True), m)
        return jax.scipy.linalg.cho_solve((G, True), left.T).T

    free, normal = inverse(gradient), inverse(point)
    return ratio(jnp.sum(point * free), jnp.sum(point * normal)) * normal - free


def _solve_2(matrix: Array, right: Array) -> Array:
    """Two equations; where the second direction adds nothing to the first, the first alone."""
    (a, b), (_, d) = matrix
    determinant = a * d - b * b
    good = determinant > 1e-5 * a * d
    safe = jnp.where(good, determinant, 1)
    both = jnp.stack([d * right[0] - b * right[1], a * right[1] - b * right[0]]) / safe
    alone = jnp.stack([ratio(right[0], a), jnp.zeros_like(a)])
    return jnp.where(good, both, alone)
