"""The sphere of matrices of one Frobenius norm, and products of such spheres.

Every function takes a pytree of matrices: a lone matrix is one sphere, a tuple of matrices is the
product that the weights of a network live on. `radius` is one number for all spheres, or one for
each, in order. Section 2.2 of the paper, in forms that survive float32: see `docs/geometry.md` for
why each is written as it is.

Inside, the matrices become the rows of one array, filled up with zeros. Then one kernel serves all
layers, and neither compilation nor dispatch grows with the depth of a network. `pack` makes such an
array to be passed from function to function, as the loop does, and `unpack` undoes it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpy.typing import DTypeLike

Tree = Any
"""A pytree of matrices, one for each sphere; or the same, packed."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Packed:
    """Matrices as the rows of one array, filled up with zeros."""

    rows: Any
    """An array of JAX or NumPy."""
    structure: Any = field(metadata={"static": True})
    shapes: tuple[tuple[int, ...], ...] = field(metadata={"static": True})


def pack(tree: Tree) -> Packed:
    """The matrices as rows; NumPy's stay NumPy's."""
    leaves, structure = jax.tree.flatten(tree)
    xp = np if all(isinstance(leaf, np.ndarray) for leaf in leaves) else jnp
    shapes = tuple(np.shape(leaf) for leaf in leaves)
    widest = max(math.prod(shape) for shape in shapes)
    filled = [(xp.ravel(m), xp.zeros(widest - np.size(m), m.dtype)) for m in leaves]
    rows = xp.concatenate(list(chain.from_iterable(filled))).reshape(len(leaves), widest)
    return Packed(rows, structure, shapes)


def unpack(tree: Tree) -> Tree:
    """The rows as matrices; what is not packed comes back as it is."""
    if not isinstance(tree, Packed):
        return tree
    matrices = [
        row[: math.prod(shape)].reshape(shape)
        for row, shape in zip(tree.rows, tree.shapes, strict=True)
    ]
    return jax.tree.unflatten(tree.structure, matrices)


def stacked(matrices: Sequence[Array]) -> Array:
    """Matrices as one stack, filled up with zeros on the right and below."""
    rows, columns = (max(m.shape[axis] for m in matrices) for axis in (0, 1))
    return jnp.stack(
        [jnp.pad(m, ((0, rows - m.shape[0]), (0, columns - m.shape[1]))) for m in matrices]
    )


def inner(x: Tree, y: Tree) -> Array:
    """Frobenius inner product on each sphere."""
    return _dot(_rows(x), _rows(y))[:, 0]


def norm(x: Tree) -> Array:
    """Frobenius norm on each sphere, without overflow or underflow of the squares."""
    return _norm(_rows(x))[:, 0]


def dot(x: Tree, y: Tree) -> Array:
    """Inner product on the whole product of spheres."""
    return jnp.sum(inner(x, y))


def add(x: Tree, y: Tree, factor: ArrayLike = 1.0) -> Tree:
    """X + factor·y."""
    return _like(_rows(x) + _column(factor) * _rows(y), x)


def scale(x: Tree, factors: ArrayLike) -> Tree:
    """Each matrix times its own factor, or all times one."""
    return _like(_column(factors) * _rows(x), x)


def normalise(x: Tree, radius: ArrayLike = 1.0) -> Tree:
    """The nearest point of the spheres; a zero matrix, which has none, stays zero."""
    return _like(_column(radius) * _unit(_rows(x)), x)


def project(points: Tree, vectors: Tree, radius: ArrayLike = 1.0) -> Tree:
    """Tangent part of ambient `vectors` at `points`: Proj_X(H) = H − ⟨X, H⟩ X / μ²."""
    unit, h = _rows(points) / _column(radius), _rows(vectors)
    # Twice is enough: the second pass removes what rounding left of the normal part.
    for _ in range(2):
        h = h - _dot(unit, h) * unit
    return _like(h, vectors)


def turn(points: Tree, headings: Tree, angle: ArrayLike, radius: ArrayLike = 1.0) -> Tree:
    """Exponential map: follow each great circle for `angle` at the speed ‖heading‖, Eq. (5)."""
    x, v, r = _rows(points), _rows(headings), _column(radius)
    t = _norm(v) * angle
    # x cos t + r·unit sin t, written as x plus a small move, so that small moves add exactly.
    moved = x + (r * _unit(v) * jnp.sin(t) - 2 * x * jnp.sin(t / 2) ** 2)
    unit = moved / r  # but for rounding
    return _like(moved / jnp.sqrt(_dot(unit, unit)), points)


def transport(
    points: Tree, headings: Tree, angle: ArrayLike, vectors: Tree, radius: ArrayLike = 1.0
) -> Tree:
    """Parallel transport of tangent `vectors` along the arc that `turn` follows.

    The part of a vector along the heading turns with the circle, the rest stays: an isometry from
    the tangent space at the start onto the one at the end.
    """
    x, v, h = _rows(points) / _column(radius), _rows(headings), _rows(vectors)
    t, unit = _norm(v) * angle, _unit(v)
    along = _dot(unit, h)
    return _like(h - along * (2 * unit * jnp.sin(t / 2) ** 2 + x * jnp.sin(t)), vectors)


def angles(x: Tree, y: Tree) -> Array:
    """Angle between the matrices of each pair, accurate from 0 to π (Kahan's formula)."""
    a, b = _unit(_rows(x)), _unit(_rows(y))
    return 2 * jnp.arctan2(_norm(a - b), _norm(a + b))[:, 0]


def distance(x: Tree, y: Tree) -> Array:
    """Angle between two points of a sphere; on a product, the root of the sum of their squares."""
    return jnp.linalg.norm(angles(x, y))


def random_points(
    rng: np.random.Generator,
    shapes: tuple[tuple[int, ...], ...],
    radius: ArrayLike = 1.0,
    dtype: DTypeLike = np.float32,
) -> tuple[np.ndarray, ...]:
    """A point drawn uniformly from a product of spheres."""
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
    """A point drawn uniformly from one sphere."""
    return random_points(rng, (shape,), radius, dtype)[0]


def _rows(tree: Tree) -> Array:
    return (tree if isinstance(tree, Packed) else pack(tree)).rows


def _like(rows: Array, tree: Tree) -> Tree:
    """Rows to what `tree` is: packed, or matrices."""
    if isinstance(tree, Packed):
        return replace(tree, rows=rows)
    leaves, structure = jax.tree.flatten(tree)
    return unpack(Packed(rows, structure, tuple(np.shape(leaf) for leaf in leaves)))


def _column(values: ArrayLike) -> Array:
    """One value for all rows, or one for each, ready to multiply them."""
    array = jnp.asarray(values)
    return array[:, None] if array.ndim else array


def _dot(x: Array, y: Array) -> Array:
    # All pairs of rows by one product, which comes from a library: a sum for each row would be
    # three kernels to compile. The diagonal is every so many of the pairs.
    pairs = jnp.matmul(x, y.T, precision="highest")
    return pairs.ravel()[:: len(x) + 1, None]


def _norm(x: Array) -> Array:
    return _measured(x)[0]


def _unit(x: Array) -> Array:
    """Rows of norm one; a zero row stays zero."""
    return _measured(x)[1]


def _measured(x: Array) -> tuple[Array, Array]:
    """Norm and direction of each row, from squares of numbers of order one."""
    tiny = jnp.finfo(x.dtype).tiny
    shrink = 1 / jnp.clip(jnp.max(jnp.abs(x), axis=1, keepdims=True), tiny, 0.25 / tiny)
    x = shrink * x
    size = jnp.sqrt(_dot(x, x))
    return size / shrink, x / jnp.where(size > 0, size, 1)
