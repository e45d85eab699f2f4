"""Natural gradients of small batches by Kronecker factors, averaged."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Packed
from greatcircle.objective.objective import Objective, layered
from greatcircle.optimise.directions.direction import Choice, Position, unit_speeds
from greatcircle.optimise.directions.soap import refresh_interval

__all__ = ["KroneckerMomentum"]

MEAN_DECAY, FACTOR_DECAY = 0.9, 0.9
"""Decay of the mean per step, and of the factors per refresh."""

DAMPING = 0.3
"""Added to the eigenvalues of each factor, relative to their mean."""


class _State(NamedTuple):
    inputs: Float[Array, "layers a a"]
    """Moving average of the second moments of each layer's inputs."""
    slopes: Float[Array, "layers b b"]
    """Moving average of the second moments of the loss's gradient in each layer's outputs."""
    inverses: tuple[tuple[Array, Array], ...]
    """Of both factors of each layer, damped."""
    mean: Packed
    steps: Int[Array, ""]


@dataclass(frozen=True)
class KroneckerMomentum:
    """Mean of the natural gradients of small batches, by Kronecker factors (K-FAC).

    For small batches (`RandomBatches`) of a network. Each natural gradient is divided by its norm
    on each sphere, so every batch counts alike, and all layers turn by the same angle.
    """

    def check(self, objective: Objective) -> None:
        """Raise TypeError if the objective has no layers."""
        layered(objective, "direction KroneckerMomentum", "directions.Soap()")

    def init(self, weights: Packed) -> _State:
        """Return a state without factors."""
        rows, columns = (max(shape[axis] for shape in weights.shapes) for axis in (0, 1))
        layers, dtype = len(weights.shapes), weights.rows.dtype
        return _State(
            jnp.zeros((layers, rows, rows), dtype),
            jnp.zeros((layers, columns, columns), dtype),
            tuple((jnp.eye(a, dtype=dtype), jnp.eye(b, dtype=dtype)) for a, b in weights.shapes),
            sphere.scale(weights, 0.0),
            jnp.zeros((), jnp.int32),
        )

    def choose(self, position: Position, state: _State) -> Choice:
        """Return the heading, the same speed on every sphere."""
        weights, radii = position.weights, position.radii
        refresh = state.steps % refresh_interval(weights.shapes) == 0
        state = jax.lax.cond(refresh, lambda: _refreshed(position, state), lambda: state)
        gradients = jax.tree.leaves(sphere.unpack(position.gradient))
        natural = [A @ g @ G for (A, G), g in zip(state.inverses, gradients, strict=True)]
        tree = sphere.pack(jax.tree.unflatten(weights.structure, natural))
        one = sphere.normalise(sphere.project(weights, tree, radii))
        mean = sphere.scale(sphere.project(weights, state.mean, radii), MEAN_DECAY)
        mean = sphere.add(mean, one, MEAN_DECAY - 1)
        return Choice(unit_speeds(mean), state._replace(mean=mean, steps=state.steps + 1))


def _refreshed(position: Position, state: _State) -> _State:
    """Return the state with the factors of a batch, and with their inverses."""
    objective = layered(position.objective, "direction KroneckerMomentum", "another one")
    inputs, slopes = (
        FACTOR_DECAY * old + (1 - FACTOR_DECAY) * new
        for old, new in zip(state[:2], objective.kronecker(position.cache), strict=True)
    )
    inverses = tuple(
        (_inverse(A[:a, :a]), _inverse(G[:b, :b]))
        for A, G, (a, b) in zip(inputs, slopes, position.weights.shapes, strict=True)
    )
    return state._replace(inputs=inputs, slopes=slopes, inverses=inverses)


def _inverse(factor: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Return the inverse of a damped factor, up to a scale; of zero, the identity."""
    size, mean = len(factor), jnp.trace(factor) / len(factor)
    relative = factor / jnp.where(mean > 0, mean, 1)
    root = jnp.linalg.cholesky(relative + DAMPING * jnp.eye(size, dtype=factor.dtype))
    identity = jnp.eye(size, dtype=factor.dtype)
    triangular = jax.scipy.linalg.solve_triangular(root, identity, lower=True)
    return triangular.T @ triangular
