"""Sums over rows, part by part: chunk by chunk, and device by device.

All that training asks of the data are sums over rows. Up to `WHOLE` rows on one device are done at
once, and passes share what they see. More rows are done in chunks, one after the other, each of
which makes again what it needs and leaves only sums, so memory does not grow with the rows. That
is a third more arithmetic, but from about that size on less time (`docs/scale.md`).
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec

from greatcircle import threads

if TYPE_CHECKING:
    from greatcircle.problem import Problem

CHUNK = 8_192
"""Most rows of a chunk for several cores, among which larger products are shared at less of a loss.
For one core half of it, which stays in its cache."""

WHOLE = 4 * CHUNK
"""Most rows of a device that are done at once."""

AXIS = "rows"
"""Of the mesh of devices."""

Quantity = Callable[..., Any]
"""A sum over the rows of a problem, of which the other arguments are the same for all parts."""


def summed(problem: "Problem", quantity: Quantity, *more: Any) -> Any:
    """`quantity(problem, *more)`, where that is a sum over rows."""
    return _on_each_device(problem, partial(_chunk_by_chunk, quantity), *more)


def linearised(
    problem: "Problem", image: Quantity, weights: Any, share: float, turn: Any
) -> tuple[Callable[[Any], Any], float]:
    """The map v ↦ image(block, weights, v), with a block of every device's rows for all of them.

    The block is about a share of the rows; blocks take turns.
    """
    devices = 1 if problem.mesh is None else problem.mesh.size
    rows = problem.count // devices
    taken = max(1, min(rows, round(share * rows)))
    blocks = rows // taken

    def of_block(quantity: Quantity, part: "Problem", turn: Array, *more: Any) -> Any:
        block = part if blocks == 1 else _rows(part, (turn % blocks) * taken, taken)
        return _chunk_by_chunk(quantity, block, *more)

    def total(block: "Problem") -> Array:
        return jnp.sum(block.share)

    turn = jnp.asarray(turn)
    weight = _on_each_device(problem, partial(of_block, total), turn)
    # A block without weight has no curvature.
    scale = 1 / jnp.where(weight > 0, weight, 1)

    def product(velocity: Any) -> Any:
        parts = _on_each_device(problem, partial(of_block, image), turn, weights, velocity)
        return jax.tree.map(lambda part: scale * part, parts)

    return product, taken / rows if blocks > 1 else 1.0


def _on_each_device(problem: "Problem", quantity: Quantity, *more: Any) -> Any:
    if problem.mesh is None:
        return quantity(problem, *more)
    leaves, structure = problem.tree_flatten()

    def local(leaves: Any, more: Any) -> Any:
        part = problem.tree_unflatten(structure._replace(mesh=None), leaves)
        # All sums in one message: what takes time is that there is one, not what is in it.
        sums, apart = ravel_pytree(quantity(part, *more))
        return apart(jax.lax.psum(sums, AXIS))

    spread, same = PartitionSpec(AXIS), PartitionSpec()
    specs = (spread, spread, spread, same, same)
    return jax.shard_map(
        local, mesh=problem.mesh, in_specs=(specs, same), out_specs=same, check_vma=False
    )(leaves, more)


def _chunk_by_chunk(quantity: Quantity, problem: "Problem", *more: Any) -> Any:
    rows = problem.count
    if rows <= WHOLE:
        return quantity(problem, *more)
    chunks = -(-rows // (CHUNK if threads.cores() > 1 else CHUNK // 2))
    size = -(-rows // chunks)

    def add(total: Any, chunk: Array) -> tuple[Any, None]:
        # The last chunk begins earlier than its turn, to be as long as the others: rows that have
        # been counted do not count again.
        first = jnp.minimum(chunk * size, rows - size)
        part = _rows(problem, first, size)
        part.share = jnp.where(first + jnp.arange(size) >= chunk * size, part.share, 0)
        return jax.tree.map(jnp.add, total, quantity(part, *more)), None

    nothing = jax.tree.map(
        lambda shape: jnp.zeros(shape.shape, shape.dtype), jax.eval_shape(quantity, problem, *more)
    )
    return jax.lax.scan(add, nothing, jnp.arange(chunks))[0]


def _rows(problem: "Problem", first: Array, count: int) -> "Problem":
    """Some of the rows, as they are weighted among all."""
    leaves, structure = problem.tree_flatten()
    some = [
        jax.lax.dynamic_slice_in_dim(values, first, count, axis)
        for values, axis in zip(leaves[:3], (problem.turned, problem.turned, 0), strict=True)
    ]
    return problem.tree_unflatten(structure, [*some, *leaves[3:]])
