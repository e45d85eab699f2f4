"""Natural gradients by Kronecker factors, with momentum."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Packed, Tree
from greatcircle.objective.objective import Objective
from greatcircle.objective.problem import Problem
from greatcircle.optimise.directions.damping import Model, adapted_damping, start_model
from greatcircle.optimise.directions.direction import Chosen, Place, fastest_speed, ratio, scaled

DAMPING = 0.1
LESS, MORE = 0.95, 1.1
MEMORY = 0.9
DEPENDENT = 1e-5
"""How much is added to the diagonal of the model, relative to it."""


class _Natural(NamedTuple):
    seen: Array
    """Moving average of the second moments of each layer's input."""
    slopes: Array
    """The same of the loss's slope in each layer's output."""
    ways: Packed
    """The last two directions, stacked."""
    model: Model


@dataclass(frozen=True)
class Kronecker:
    """Natural gradient by Kronecker factors (K-FAC), with momentum; no rate for either.

    Every layer's block of the Gauss-Newton matrix is approximated by a Kronecker product of two
    small matrices (Martens & Grosse 2015), whose inverse costs nothing beside a pass over the
    data. The heading is the combination of that natural gradient, of the last two directions and of
    the gradient that is lowest in the Gauss-Newton model of the loss, which needs four forward
    passes.

    Parameters
    ----------
    sample
        About how many rows the factors and the model are made from, each iteration other ones;
        None for all. The gradient always sees all, and so does the loss.
    """

    sample: int | None = 2048

    def __post_init__(self) -> None:
        if self.sample is not None and (not isinstance(self.sample, int) or self.sample < 1):
            raise ValueError(
                f"sample is {self.sample!r}; expected a whole number of rows of at least 1, or "
                "None for all"
            )

    def check(self, objective: Objective) -> None:
        """Needs the layers of a network."""
        if not isinstance(objective, Problem):
            raise TypeError(
                "direction Kronecker needs a Problem with a Network, because it uses what its "
                "layers see; for any other objective use directions.ConjugateGradient()"
            )

    def start(self, weights: Tree) -> _Natural:
        """No factors yet."""
        assert isinstance(weights, Packed)
        rows, columns = (max(s[axis] for s in weights.shapes) for axis in (0, 1))
        layers, dtype = len(weights.shapes), weights.rows.dtype
        return _Natural(
            jnp.zeros((layers, rows, rows), dtype),
            jnp.zeros((layers, columns, columns), dtype),
            replace(weights, rows=jnp.zeros((2, *weights.rows.shape), dtype)),
            start_model(weights, DAMPING),
        )

    def choose(self, place: Place, memory: _Natural) -> Chosen:
        """The best combination of natural gradient, last two directions and gradient."""
        problem = place.objective
        assert isinstance(problem, Problem)  # `check` has made sure
        model = memory.model
        damping = adapted_damping(place, model, LESS, MORE)
        matrices = sphere.unpack(place.weights)
        every = 1 if self.sample is None else problem.count // self.sample
        some, share = problem.sampled(every, model.iteration)
        left = place.left if every <= 1 else some.revisited(matrices)
        age = jnp.minimum(1 - 1 / (model.iteration + 1.0), MEMORY).astype(damping.dtype)
        seen, slopes = (
            age * old + (1 - age) * new
            for old, new in zip(memory[:2], some.kronecker(left), strict=True)
        )
        natural = _natural_gradient(place, seen, slopes, damping)

        def velocity(v: Packed) -> Tree:
            return sphere.unpack(sphere.scale(v, place.radii))

        ways = jax.vmap(place.bring)(memory.ways).rows
        rows = jnp.stack([natural.rows, *ways, scaled(place.gradient).rows])
        span, flat = replace(natural, rows=rows), rows.reshape(len(rows), -1)
        G = some.gram(matrices, jax.vmap(velocity)(span), left)
        slope = flat @ place.gradient.rows.ravel()
        c = _lowest(G + damping * (flat @ flat.T), slope)
        v = replace(natural, rows=jnp.tensordot(c, rows, 1))
        fastest = fastest_speed(v)
        new = Model(
            damping, ratio(c @ slope, fastest), ratio(c @ G @ c, fastest**2), model.iteration + 1
        )
        # Factors and pushes; of a sample also a gradient. By count, in Gauss-Newton products.
        products = 2.5 if every <= 1 else (2.5 + 0.75) * share
        ways = replace(v, rows=jnp.stack([v.rows, ways[0]]))
        return Chosen(scaled(v), _Natural(seen, slopes, ways, new), products)


def _natural_gradient(place: Place, seen: Array, slopes: Array, damping: Array) -> Packed:
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
    # Both at once: half as many calls to compile.
    both = jax.scipy.linalg.cho_solve((A, True), jnp.hstack([gradient, point]))
    both = jnp.hstack([m.T for m in jnp.split(both, 2, axis=1)])
    free, normal = jnp.split(jax.scipy.linalg.cho_solve((G, True), both).T, 2)
    return ratio(jnp.sum(point * free), jnp.sum(point * normal)) * normal - free


def _lowest(matrix: Array, slope: Array) -> Array:
    """Where cᵀMc/2 + c·slope is lowest, for a small positive semidefinite matrix.

    Directions may depend on one another, or be zero: a little more on the diagonal keeps M regular.
    """
    diagonal = jnp.diagonal(matrix)
    more = jnp.where(diagonal > 0, DEPENDENT * diagonal, 1)
    # Gauss and Jordan's elimination, written out: a call of LAPACK takes longer, also to compile.
    rows = list(jnp.column_stack([matrix + jnp.diag(more), -slope]))
    for i in range(len(rows)):
        pivot = rows[i] / rows[i][i]
        rows = [pivot if j == i else row - row[i] * pivot for j, row in enumerate(rows)]
    return jnp.stack([row[-1] for row in rows])
