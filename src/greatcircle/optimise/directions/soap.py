"""SOAP on spheres: the mean gradient, scaled as by Adam in the eigenbasis of Shampoo's factors.

Vyas et al. (2024), arXiv:2409.11321. What differs on spheres: every batch counts alike, because its
gradient is divided by its norm on each sphere, and every layer turns by the same angle.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Packed
from greatcircle.objective.objective import Objective
from greatcircle.optimise.directions.direction import Choice, Position, unit_speeds

__all__ = ["Soap", "Square", "between", "of_similar_size", "refresh_interval"]

MEAN_DECAY, SQUARE_DECAY, FACTOR_DECAY = 0.9, 0.95, 0.9
"""Decay of the mean gradient and of its squares per step, and of the factors per refresh."""

SHORTEST_INTERVAL = 8
"""Steps between two refreshes of the bases, for narrow layers."""

WIDTH_OF_STEP = 16
"""For wide layers: a refresh costs as much as this many steps of width one, times the width."""

TINY = 1e-30
"""Keeps zero gradients zero."""

Square = Float[Array, "_ _"]


class _Side(NamedTuple):
    """One side of a layer: its rows, or its columns."""

    factor: Square
    """Moving average of g gᵀ, or of gᵀ g."""
    basis: Square
    """Its eigenvectors, approximately."""


class _State(NamedTuple):
    sides: tuple[_Side, ...]
    """Rows and columns of the first layer, of the second, and so on."""
    point: Packed
    """The weights at the last refresh, divided by their norm. Like the next two, in the bases."""
    mean: Packed
    """Moving average of the gradients."""
    square: Packed
    """Moving average of their squares."""
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
        # Made in NumPy, because every operation of JAX outside a program would be compiled.
        dtype, zero = weights.rows.dtype, sphere.zeros_like(weights)
        sides = [n for shape in weights.shapes for n in shape]
        empty = [(np.zeros((n, n), dtype), np.eye(n, dtype=dtype)) for n in sides]
        empty, steps = jax.device_put((empty, np.zeros((), np.int32)))
        return _State(tuple(_Side(*pair) for pair in empty), zero, zero, zero, steps)

    def choose(self, position: Position, state: _State) -> Choice:
        """Return the heading, the same speed on every sphere."""
        weights, gradient = position.weights, sphere.normalise(position.gradient)
        interval = refresh_interval(weights.shapes)
        state = jax.lax.cond(
            state.steps % interval == 0,
            lambda: _refreshed(state, weights, gradient),
            lambda: state,
        )
        rotated = between(gradient, [side.basis for side in state.sides])
        # Scaling would turn a normal part of the mean, of which most comes from old gradients, into
        # a tangent one. The weights have hardly moved since the last refresh.
        tangent = sphere.project(state.point, state.mean)
        mean = sphere.add(sphere.scale(tangent, MEAN_DECAY), rotated, 1 - MEAN_DECAY)
        rows = SQUARE_DECAY * state.square.rows + (1 - SQUARE_DECAY) * rotated.rows**2
        square = replace(state.square, rows=rows)
        scaled = replace(mean, rows=-mean.rows / (jnp.sqrt(square.rows) + TINY))
        heading = between(scaled, [side.basis.T for side in state.sides])
        heading = unit_speeds(sphere.project(weights, heading, position.radii))
        return Choice(heading, _State(state.sides, state.point, mean, square, state.steps + 1))


def refresh_interval(shapes: tuple[tuple[int, ...], ...]) -> int:
    """Return the number of steps between two refreshes, whose cost is cubic in the width."""
    widest = max(min(shape) for shape in shapes)
    return max(SHORTEST_INTERVAL, widest // WIDTH_OF_STEP)


def of_similar_size(sizes: Iterable[int]) -> list[list[int]]:
    """Return the numbers of the sizes in groups; in a group none is below half of the largest.

    One compiled loop serves a group: its matrices are padded to the largest.
    """
    groups: list[list[int]] = []
    sizes = list(sizes)
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        if groups and 2 * sizes[i] >= sizes[groups[-1][0]]:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def _refreshed(state: _State, weights: Packed, gradient: Packed) -> _State:
    """Return the state in new bases: one step of orthogonal iteration."""
    both = [m for g in jax.tree.leaves(sphere.unpack(gradient)) for m in (g, g.T)]
    sides = list(state.sides)
    for group in of_similar_size(map(len, both)):
        factors = sphere.stacked([sides[i].factor for i in group])
        bases = sphere.stacked([sides[i].basis for i in group])
        squares = sphere.stacked([both[i] @ both[i].T for i in group])
        factors = FACTOR_DECAY * factors + (1 - FACTOR_DECAY) * squares
        bases = jax.lax.map(_iterated, (factors, bases))
        for i, factor, basis in zip(group, factors, bases, strict=True):
            n = len(both[i])
            sides[i] = _Side(factor[:n, :n], basis[:n, :n])
    old, new = [side.basis for side in state.sides], [side.basis for side in sides]
    mean = between(state.mean, [a.T @ b for a, b in zip(old, new, strict=True)])
    point = between(sphere.normalise(weights), new)
    return state._replace(sides=tuple(sides), mean=mean, point=point)


def between(matrices: Packed, sides: Sequence[Square]) -> Packed:
    """Return Lᵀ M R of each layer, from L and R of each layer in turn."""
    leaves = jax.tree.leaves(sphere.unpack(matrices))
    products = [a.T @ m @ b for m, a, b in zip(leaves, sides[::2], sides[1::2], strict=True)]
    return sphere.pack(jax.tree.unflatten(matrices.structure, products))


def _iterated(side: tuple[Square, Square]) -> Square:
    """Return an orthonormal basis nearer to the eigenvectors of a positive semidefinite factor."""
    factor, basis = side
    shift = jnp.finfo(factor.dtype).eps * jnp.trace(factor) + TINY
    return jnp.linalg.qr(factor @ basis + shift * basis)[0]
