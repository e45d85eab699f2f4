"""Natural gradients by Kronecker factors, with momentum."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Packed, Tree
from greatcircle.objective.objective import Objective, layered
from greatcircle.optimise.directions.damping import (
    QuadraticModel,
    adapted_damping,
    initial_model,
)
from greatcircle.optimise.directions.direction import (
    Choice,
    Position,
    max_speed,
    ratio,
    unit_max_speed,
)

__all__ = ["Kronecker"]

DAMPING = 0.1
"""λ at the start."""

DECREASE, INCREASE = 0.95, 1.1
"""Factors of λ after a good and after a bad prediction."""

DECAY = 0.9
"""Decay of the moving averages of the factors, after the first ten iterations."""

REGULARISATION = 1e-5
"""Addition to the diagonal of the model in the span, relative to the diagonal."""


Scalar = Float[Array, ""]
InputFactors = Float[Array, "layers a a"]
OutputFactors = Float[Array, "layers b b"]


class _Factors(NamedTuple):
    """Moving averages of the Kronecker factors, the last directions and the damping."""

    inputs: InputFactors
    """Second moments of each layer's inputs."""
    slopes: OutputFactors
    """Second moments of the gradient of the loss with respect to each layer's outputs."""
    last_directions: Packed
    """The last two, stacked."""
    model: QuadraticModel


@dataclass(frozen=True)
class Kronecker:
    """Natural gradient by Kronecker factors (K-FAC), with momentum and without a learning rate.

    Each layer's block of the Gauss-Newton matrix is approximated by a Kronecker product of two
    small matrices (Martens & Grosse 2015), whose inverse is cheap compared with a pass over the
    data. The heading minimises the Gauss-Newton model of the loss over the span of that natural
    gradient, the last two directions and the gradient, which needs four forward passes.

    Parameters
    ----------
    sample
        Approximate number of rows for the factors and the model, different ones at each iteration;
        None for all. Gradient and loss always use all rows.
    """

    sample: int | None = 2048

    def __post_init__(self) -> None:
        if self.sample is not None and (not isinstance(self.sample, int) or self.sample < 1):
            raise ValueError(
                f"sample is {self.sample!r}; expected a whole number of rows of at least 1, or "
                "None for all"
            )

    def check(self, objective: Objective) -> None:
        """Raise TypeError if the objective has no layers."""
        layered(objective, "direction Kronecker", "directions.ConjugateGradient()")

    def init(self, weights: Packed) -> _Factors:
        """Return a state without factors."""
        rows, columns = (max(s[axis] for s in weights.shapes) for axis in (0, 1))
        layers, dtype = len(weights.shapes), weights.rows.dtype
        return _Factors(
            jnp.zeros((layers, rows, rows), dtype),
            jnp.zeros((layers, columns, columns), dtype),
            replace(weights, rows=jnp.zeros((2, *weights.rows.shape), dtype)),
            initial_model(weights, DAMPING),
        )

    def choose(self, position: Position, state: _Factors) -> Choice:
        """Return the best combination of natural gradient, last two directions and gradient."""
        objective = layered(position.objective, "direction Kronecker", "another one")
        model = state.model
        damping = adapted_damping(position, model, DECREASE, INCREASE)
        matrices = sphere.unpack(position.weights)
        every = 1 if self.sample is None else objective.count // self.sample
        sample, fraction = objective.sampled(every, model.iteration)
        cache = position.cache if every <= 1 else sample.cache_at(matrices)
        decay = jnp.minimum(1 - 1 / (model.iteration + 1.0), DECAY).astype(damping.dtype)
        inputs, slopes = (
            decay * old + (1 - decay) * new
            for old, new in zip(state[:2], sample.kronecker(cache), strict=True)
        )
        natural = _natural_gradient(position, inputs, slopes, damping)

        def velocity(v: Packed) -> Tree:
            return sphere.unpack(sphere.scale(v, position.radii))

        last = jax.vmap(position.transport)(state.last_directions).rows
        rows = jnp.stack([natural.rows, *last, unit_max_speed(position.gradient).rows])
        span, flat = replace(natural, rows=rows), rows.reshape(len(rows), -1)
        G = sample.gram(matrices, jax.vmap(velocity)(span), cache)
        slope = flat @ position.gradient.rows.ravel()
        c = _minimiser(G + damping * (flat @ flat.T), slope)
        v = replace(natural, rows=jnp.tensordot(c, rows, 1))
        speed = max_speed(v)
        new = QuadraticModel(
            damping, ratio(c @ slope, speed), ratio(c @ G @ c, speed**2), model.iteration + 1
        )
        # Factors and Gram matrix; for a sample also a gradient. Counted in Gauss-Newton products.
        products = 2.5 if every <= 1 else (2.5 + 0.75) * fraction
        directions = replace(v, rows=jnp.stack([v.rows, last[0]]))
        return Choice(unit_max_speed(v), _Factors(inputs, slopes, directions, new), products)


def _natural_gradient(
    position: Position, inputs: InputFactors, slopes: OutputFactors, damping: Scalar
) -> Packed:
    """Return −(A ⊗ G + λ)⁻¹ ∇ on the tangent space, with factored damping.

    Martens & Grosse (2015), Section 6.3.
    """
    layers, structure = jax.tree.flatten(sphere.unpack(position.weights))
    gradient = sphere.stacked(jax.tree.leaves(sphere.unpack(position.gradient)))
    points = sphere.stacked(layers)
    rows, columns = (np.array([w.shape[axis] for w in layers]) for axis in (0, 1))
    inputs = inputs * (position.radii**2)[:, None, None]
    mean_a = jnp.trace(inputs, axis1=1, axis2=2) / rows
    mean_g = jnp.trace(slopes, axis1=1, axis2=2) / columns
    # A layer whose inputs or slopes are all zero needs no balance.
    nonzero = (mean_a > 0) & (mean_g > 0)
    balance = jnp.sqrt(jnp.where(nonzero, mean_a, 1) / jnp.where(nonzero, mean_g, 1))
    root = jnp.sqrt(damping)
    A = inputs + (root * balance)[:, None, None] * jnp.eye(inputs.shape[1], dtype=inputs.dtype)
    G = slopes + (root / balance)[:, None, None] * jnp.eye(slopes.shape[1], dtype=inputs.dtype)
    # One layer at a time: LAPACK calls on stacks can deadlock (`network/gains.py`).
    solved = jax.lax.map(_tangent_solution, (A, G, gradient, points))
    matrices = [m[:r, :c] for m, r, c in zip(solved, rows, columns, strict=True)]
    tree = sphere.pack(jax.tree.unflatten(structure, matrices))
    return sphere.project(position.weights, tree, position.radii)


def _tangent_solution(
    layer: tuple[
        Float[Array, "a a"], Float[Array, "b b"], Float[Array, "a b"], Float[Array, "a b"]
    ],
) -> Float[Array, "a b"]:
    """Return −(A ⊗ G)⁻¹ ∇ of one layer, on the tangent space of its sphere."""
    A, G, gradient, point = layer
    A, G = jnp.linalg.cholesky(A), jnp.linalg.cholesky(G)
    # Gradient and point in one call, which halves the number of calls to compile.
    both = jax.scipy.linalg.cho_solve((A, True), jnp.hstack([gradient, point]))
    both = jnp.hstack([m.T for m in jnp.split(both, 2, axis=1)])
    free, normal = jnp.split(jax.scipy.linalg.cho_solve((G, True), both).T, 2)
    return ratio(jnp.sum(point * free), jnp.sum(point * normal)) * normal - free


def _minimiser(matrix: Float[Array, "n n"], slope: Float[Array, " n"]) -> Float[Array, " n"]:
    """Return the minimiser of cᵀMc/2 + c·slope, for a small positive semidefinite matrix.

    Directions may be linearly dependent, or zero: a small multiple of the diagonal regularises M.
    """
    diagonal = jnp.diagonal(matrix)
    ridge = jnp.where(diagonal > 0, REGULARISATION * diagonal, 1)
    # Gauss-Jordan elimination, unrolled: a LAPACK call takes longer, also to compile.
    rows = list(jnp.column_stack([matrix + jnp.diag(ridge), -slope]))
    for i in range(len(rows)):
        pivot = rows[i] / rows[i][i]
        rows = [pivot if j == i else row - row[i] * pivot for j, row in enumerate(rows)]
    return jnp.stack([row[-1] for row in rows])
