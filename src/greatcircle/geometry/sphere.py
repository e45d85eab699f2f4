"""Spheres of matrices with a fixed Frobenius norm, and products of such spheres.

Every function takes a pytree of matrices: a single matrix is one sphere, a tuple of matrices is the
product of spheres that the weights of a network live on. `radius` is one number for all spheres, or
one for each, in order. Section 2.2 of the paper, in forms that are accurate in float32;
`docs/geometry.md` derives them.

Internally the matrices are the rows of one array, padded with zeros, so that one kernel serves all
layers, and neither compilation nor dispatch grows with the depth of a network. `pack` makes such an
array and `unpack` undoes it; the loop keeps weights packed.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float
from numpy.typing import DTypeLike

__all__ = [
    "Packed",
    "Tree",
    "add",
    "angles",
    "distance",
    "dot",
    "inner",
    "norm",
    "normalise",
    "pack",
    "project",
    "random_point",
    "random_points",
    "scale",
    "stacked",
    "transport",
    "turn",
    "unpack",
    "zeros_like",
]


def __dir__() -> list[str]:
    return sorted(__all__)


Tree = Any
"""A pytree of matrices, one for each sphere, or a `Packed` one."""

Rows = Float[Array | np.ndarray, "spheres entries"]
Column = Float[Array, "spheres 1"]
PerSphere = Float[Array, " spheres"]
Scalar = Float[Array, ""]


class Packed(eqx.Module):
    """Matrices as the rows of one array, padded with zeros."""

    rows: Float[Array | np.ndarray, "*stack spheres entries"]
    structure: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)


def pack(tree: Tree) -> Packed:
    """Pack matrices as rows; NumPy arrays stay NumPy arrays."""
    leaves, structure = jax.tree.flatten(tree)
    xp = np if all(isinstance(leaf, np.ndarray) for leaf in leaves) else jnp
    shapes = tuple(np.shape(leaf) for leaf in leaves)
    widest = max(math.prod(shape) for shape in shapes)
    filled = [(xp.ravel(m), xp.zeros(widest - np.size(m), m.dtype)) for m in leaves]
    rows = xp.concatenate(list(chain.from_iterable(filled))).reshape(len(leaves), widest)
    return Packed(rows, structure, shapes)


def unpack(tree: Tree) -> Tree:
    """Return the rows as matrices; a tree that is not packed is returned unchanged."""
    if not isinstance(tree, Packed):
        return tree
    matrices = [
        row[: math.prod(shape)].reshape(shape)
        for row, shape in zip(tree.rows, tree.shapes, strict=True)
    ]
    return jax.tree.unflatten(tree.structure, matrices)


def zeros_like(points: Packed) -> Packed:
    """Return zeros, a NumPy array: JAX would compile a program for it."""
    return replace(points, rows=np.zeros(points.rows.shape, points.rows.dtype))


def stacked(matrices: Sequence[Array | np.ndarray]) -> Float[Array, "matrices rows columns"]:
    """Stack matrices, padded with zeros on the right and below."""
    rows, columns = (max(m.shape[axis] for m in matrices) for axis in (0, 1))
    return jnp.stack(
        [jnp.pad(m, ((0, rows - m.shape[0]), (0, columns - m.shape[1]))) for m in matrices]
    )


def inner(x: Tree, y: Tree) -> PerSphere:
    """Return the Frobenius inner product on each sphere."""
    return _dot(_rows(x), _rows(y))[:, 0]


def norm(x: Tree) -> PerSphere:
    """Return the Frobenius norm on each sphere, without overflow or underflow of the squares."""
    return _norm(_rows(x))[:, 0]


def dot(x: Tree, y: Tree) -> Scalar:
    """Return the inner product on the whole product of spheres."""
    return jnp.sum(inner(x, y))


def add(x: Tree, y: Tree, factor: ArrayLike = 1.0) -> Tree:
    """Return x + factor·y."""
    return _like(_rows(x) + _column(factor) * _rows(y), x)


def scale(x: Tree, factors: ArrayLike) -> Tree:
    """Multiply each matrix by its own factor, or all by one."""
    return _like(_column(factors) * _rows(x), x)


def normalise(x: Tree, radius: ArrayLike = 1.0) -> Tree:
    """Return the nearest point on the spheres; a zero matrix, which has none, stays zero."""
    return _like(_column(radius) * _unit(_rows(x)), x)


def project(points: Tree, vectors: Tree, radius: ArrayLike = 1.0) -> Tree:
    """Project `vectors` onto the tangent space at `points`: Proj_X(H) = H − ⟨X, H⟩ X / μ²."""
    unit, h = _rows(points) / _column(radius), _rows(vectors)
    # The second pass removes the normal part that rounding left in the first; two suffice.
    for _ in range(2):
        h = h - _dot(unit, h) * unit
    return _like(h, vectors)


def turn(points: Tree, headings: Tree, angle: ArrayLike, radius: ArrayLike = 1.0) -> Tree:
    """Follow each great circle for `angle` at speed ‖heading‖: the exponential map, Eq. (5)."""
    x, v, r = _rows(points), _rows(headings), _column(radius)
    t = _norm(v) * angle
    # x cos t + r·unit sin t, written as x plus a small change, which float32 adds accurately.
    moved = x + (r * _unit(v) * jnp.sin(t) - 2 * x * jnp.sin(t / 2) ** 2)
    unit = moved / r  # of norm one up to rounding
    return _like(moved / jnp.sqrt(_dot(unit, unit)), points)


def transport(
    points: Tree, headings: Tree, angle: ArrayLike, vectors: Tree, radius: ArrayLike = 1.0
) -> Tree:
    """Transport tangent `vectors` in parallel along the arc that `turn` follows.

    The component along the heading rotates with the circle, the rest stays: an isometry from the
    tangent space at the start to the one at the end.
    """
    x, v, h = _rows(points) / _column(radius), _rows(headings), _rows(vectors)
    t, unit = _norm(v) * angle, _unit(v)
    along = _dot(unit, h)
    return _like(h - along * (2 * unit * jnp.sin(t / 2) ** 2 + x * jnp.sin(t)), vectors)


def angles(x: Tree, y: Tree) -> PerSphere:
    """Return the angle between each pair of matrices, accurate from 0 to π (Kahan's formula)."""
    a, b = _unit(_rows(x)), _unit(_rows(y))
    return 2 * jnp.arctan2(_norm(a - b), _norm(a + b))[:, 0]


def distance(x: Tree, y: Tree) -> Scalar:
    """Return the geodesic distance in radians; on a product, the root of the sum of squares."""
    return jnp.linalg.norm(angles(x, y))


def random_points(
    rng: np.random.Generator,
    shapes: tuple[tuple[int, ...], ...],
    radius: ArrayLike | Sequence[float] = 1.0,
    dtype: DTypeLike = np.float32,
) -> tuple[np.ndarray, ...]:
    """Draw a point uniformly from a product of spheres."""
    drawn = [rng.standard_normal(shape) for shape in shapes]
    radii = np.broadcast_to(radius, len(shapes))
    return tuple(
        (x * (r / np.linalg.norm(x))).astype(dtype) for x, r in zip(drawn, radii, strict=True)
    )


def random_point(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    radius: float = 1.0,
    dtype: DTypeLike = np.float32,
) -> np.ndarray:
    """Draw a point uniformly from one sphere."""
    return random_points(rng, (shape,), radius, dtype)[0]


def _rows(tree: Tree) -> Any:
    return (tree if isinstance(tree, Packed) else pack(tree)).rows


def _like(rows: Any, tree: Tree) -> Tree:
    """Return `rows` in the form of `tree`: packed, or matrices."""
    if isinstance(tree, Packed):
        return replace(tree, rows=rows)
    leaves, structure = jax.tree.flatten(tree)
    return unpack(Packed(rows, structure, tuple(np.shape(leaf) for leaf in leaves)))


def _column(values: ArrayLike) -> Array:
    """Return one value for all rows, or one for each, in a shape that multiplies them."""
    array = jnp.asarray(values)
    return array[:, None] if array.ndim else array


def _dot(x: Rows, y: Rows) -> Column:
    # One matrix product for all pairs of rows, of which the diagonal is kept. A library provides
    # it, but a sum over each row would be three kernels to compile.
    pairs = jnp.matmul(x, y.T, precision="highest")
    return pairs.ravel()[:: len(x) + 1, None]


def _norm(x: Rows) -> Column:
    return _norm_and_unit(x)[0]


def _unit(x: Rows) -> Rows:
    """Return rows of norm one; a zero row stays zero."""
    return _norm_and_unit(x)[1]


def _norm_and_unit(x: Rows) -> tuple[Column, Rows]:
    """Return norm and direction of each row, from squares of numbers of order one."""
    tiny = jnp.finfo(x.dtype).tiny
    shrink = 1 / jnp.clip(jnp.max(jnp.abs(x), axis=1, keepdims=True), tiny, 0.25 / tiny)
    x = shrink * x
    size = jnp.sqrt(_dot(x, x))
    return size / shrink, x / jnp.where(size > 0, size, 1)
