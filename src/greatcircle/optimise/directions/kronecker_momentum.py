"""Natural gradients of small batches by Kronecker factors, averaged."""

from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Int

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Packed
from greatcircle.objective.objective import Objective, layered
from greatcircle.optimise.directions.direction import Choice, Position, unit_speeds
from greatcircle.optimise.directions.soap import (
    Square,
    between,
    of_similar_size,
    refresh_interval,
)

__all__ = ["KroneckerMomentum"]

MEAN_DECAY, FACTOR_DECAY = 0.9, 0.9
"""Decay of the mean per step, and of the factors per refresh."""

DAMPING = 0.3
"""Added to the eigenvalues of each factor, relative to their mean."""


class _State(NamedTuple):
    factors: tuple[Square, ...]
    """Moving averages of the second moments of the inputs of the first layer, of the loss's
    gradient in its outputs, of the inputs of the second layer, and so on."""
    inverses: tuple[Square, ...]
    """Of the damped factors."""
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
        # Made in NumPy, because every operation of JAX outside a program would be compiled.
        dtype = weights.rows.dtype
        sides = [n for shape in weights.shapes for n in shape]
        zeros = tuple(np.zeros((n, n), dtype) for n in sides)
        eyes = tuple(np.eye(n, dtype=dtype) for n in sides)
        zeros, eyes, steps = jax.device_put((zeros, eyes, np.zeros((), np.int32)))
        return _State(zeros, eyes, sphere.zeros_like(weights), steps)

    def choose(self, position: Position, state: _State) -> Choice:
        """Return the heading, the same speed on every sphere."""
        weights, radii = position.weights, position.radii
        refresh = state.steps % refresh_interval(weights.shapes) == 0
        state = jax.lax.cond(refresh, lambda: _refreshed(position, state), lambda: state)
        natural = sphere.project(weights, between(position.gradient, state.inverses), radii)
        mean = sphere.scale(sphere.project(weights, state.mean, radii), MEAN_DECAY)
        mean = sphere.add(mean, sphere.normalise(natural), MEAN_DECAY - 1)
        return Choice(unit_speeds(mean), state._replace(mean=mean, steps=state.steps + 1))


def _refreshed(position: Position, state: _State) -> _State:
    """Return the state with the factors of a batch, and with their inverses."""
    objective = layered(position.objective, "direction KroneckerMomentum", "another one")
    moments = chain.from_iterable(zip(*objective.kronecker(position.cache), strict=True))
    factors = tuple(
        FACTOR_DECAY * old + (1 - FACTOR_DECAY) * new[: len(old), : len(old)]
        for old, new in zip(state.factors, moments, strict=True)
    )
    inverses = list(factors)
    for group in of_similar_size(map(len, factors)):
        inverted = jax.lax.map(_inverse, sphere.stacked([_damped(factors[i]) for i in group]))
        for i, inverse in zip(group, inverted, strict=True):
            n = len(factors[i])
            # Slopes that underflow can leave a factor indefinite: the earlier inverse stays.
            valid = jnp.all(jnp.isfinite(inverse))
            inverses[i] = jnp.where(valid, inverse[:n, :n], state.inverses[i])
    return state._replace(factors=factors, inverses=tuple(inverses))


def _damped(factor: Square) -> Square:
    """Return a factor in units of its mean eigenvalue, with damping; of zero, its damping."""
    mean = jnp.trace(factor) / len(factor)
    identity = jnp.eye(len(factor), dtype=factor.dtype)
    return factor / jnp.where(mean > 0, mean, 1) + DAMPING * identity


def _inverse(padded: Square) -> Square:
    """Return the inverse of a positive definite matrix; rows and columns of zeros are padding."""
    padding = jnp.where(jnp.diagonal(padded) > 0, 0, 1).astype(padded.dtype)
    root = jnp.linalg.cholesky(padded + jnp.diag(padding))
    identity = jnp.eye(len(padded), dtype=padded.dtype)
    triangular = jax.scipy.linalg.solve_triangular(root, identity, lower=True)
    return triangular.T @ triangular
