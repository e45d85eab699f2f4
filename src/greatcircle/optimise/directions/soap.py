"""SOAP on spheres: the mean gradient, scaled as by Adam in the eigenbasis of Shampoo's factors.

Vyas et al. (2024), arXiv:2409.11321. What differs on spheres: every batch counts alike, because its
gradient is divided by its norm on each sphere, and every layer turns by the same angle.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Packed
from greatcircle.objective.objective import Objective
from greatcircle.optimise.directions.direction import Choice, Position, unit_speeds

__all__ = ["Soap", "refresh_interval"]

MEAN_DECAY, SQUARE_DECAY, FACTOR_DECAY = 0.9, 0.95, 0.9
"""Decay of the mean gradient and of its squares per step, and of the factors per refresh."""

SHORTEST_INTERVAL = 8
"""Steps between two refreshes of the bases, for narrow layers."""

WIDTH_OF_STEP = 16
"""For wide layers: a refresh costs as much as this many steps of width one, times the width."""

TINY = 1e-30
"""Keeps zero gradients zero."""


class _Layer(NamedTuple):
    """Statistics of the gradients of one layer, in the basis of its factors' eigenvectors."""

    left: Float[Array, "a a"]
    """Moving average of g gᵀ."""
    right: Float[Array, "b b"]
    """Moving average of gᵀ g."""
    left_basis: Float[Array, "a a"]
    right_basis: Float[Array, "b b"]
    point: Float[Array, "a b"]
    """The weights at the last refresh, divided by their norm."""
    mean: Float[Array, "a b"]
    square: Float[Array, "a b"]

    def rotated(self, matrix: Float[Array, "a b"]) -> Float[Array, "a b"]:
        """Return a matrix in the bases."""
        return self.left_basis.T @ matrix @ self.right_basis

    def with_gradient(self, gradient: Float[Array, "a b"]) -> "_Layer":
        """Return the statistics with another gradient of norm one."""
        rotated = self.rotated(gradient)
        # Scaling would turn a normal part of the mean, of which most comes from old gradients, into
        # a tangent one. The weights have hardly moved since the last refresh.
        tangent = self.mean - jnp.sum(self.mean * self.point) * self.point
        return self._replace(
            mean=MEAN_DECAY * tangent + (1 - MEAN_DECAY) * rotated,
            square=SQUARE_DECAY * self.square + (1 - SQUARE_DECAY) * rotated**2,
        )

    def refreshed(self, gradient: Float[Array, "a b"], weights: Float[Array, "a b"]) -> "_Layer":
        """Return the statistics in new bases: one step of orthogonal iteration."""
        left = FACTOR_DECAY * self.left + (1 - FACTOR_DECAY) * gradient @ gradient.T
        right = FACTOR_DECAY * self.right + (1 - FACTOR_DECAY) * gradient.T @ gradient
        left_basis = _iterated(left, self.left_basis)
        right_basis = _iterated(right, self.right_basis)
        mean = (left_basis.T @ self.left_basis) @ self.mean @ (self.right_basis.T @ right_basis)
        point = left_basis.T @ (weights / jnp.linalg.norm(weights)) @ right_basis
        return _Layer(left, right, left_basis, right_basis, point, mean, self.square)

    @property
    def heading(self) -> Float[Array, "a b"]:
        """Minus the mean gradient, each entry divided by its root mean square in the bases."""
        scaled = self.mean / (jnp.sqrt(self.square) + TINY)
        return -(self.left_basis @ scaled @ self.right_basis.T)


class _State(NamedTuple):
    layers: tuple[_Layer, ...]
    steps: Int[Array, ""]


@dataclass(frozen=True)
class Soap:
    """The mean gradient, scaled as by Adam in the eigenbasis of Shampoo's factors (SOAP).

    For small batches (`RandomBatches`): it needs gradients only, so it works with every objective.
    """

    def check(self, objective: Objective) -> None:
        """Accept every objective."""

    def init(self, weights: Packed) -> _State:
        """Return statistics of no gradients."""
        dtype = weights.rows.dtype

        def empty(shape: tuple[int, ...]) -> _Layer:
            a, b = (jnp.zeros((n, n), dtype) for n in shape)
            eyes = (jnp.eye(n, dtype=dtype) for n in shape)
            return _Layer(a, b, *eyes, *(jnp.zeros(shape, dtype) for _ in range(3)))

        return _State(tuple(map(empty, weights.shapes)), jnp.zeros((), jnp.int32))

    def choose(self, position: Position, state: _State) -> Choice:
        """Return the heading, the same speed on every sphere."""
        weights = position.weights
        gradients = jax.tree.leaves(sphere.unpack(sphere.normalise(position.gradient)))
        points = jax.tree.leaves(sphere.unpack(weights))

        def refreshed() -> tuple[_Layer, ...]:
            pairs = zip(state.layers, gradients, points, strict=True)
            return tuple(layer.refreshed(g, w) for layer, g, w in pairs)

        refresh = state.steps % refresh_interval(weights.shapes) == 0
        layers = jax.lax.cond(refresh, refreshed, lambda: state.layers)
        layers = tuple(s.with_gradient(g) for s, g in zip(layers, gradients, strict=True))
        tree = jax.tree.unflatten(weights.structure, [layer.heading for layer in layers])
        heading = sphere.project(weights, sphere.pack(tree), position.radii)
        return Choice(unit_speeds(heading), _State(layers, state.steps + 1))


def refresh_interval(shapes: tuple[tuple[int, ...], ...]) -> int:
    """Return the number of steps between two refreshes, whose cost is cubic in the width."""
    widest = max(min(shape) for shape in shapes)
    return max(SHORTEST_INTERVAL, widest // WIDTH_OF_STEP)


def _iterated(factor: Float[Array, "n n"], basis: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Return an orthonormal basis nearer to the eigenvectors of a positive semidefinite factor."""
    shift = jnp.finfo(factor.dtype).eps * jnp.trace(factor) + TINY
    return jnp.linalg.qr(factor @ basis + shift * basis)[0]
