"""Sums over rows, part by part: chunk by chunk, and device by device.

All that training asks of the data are sums over rows. Up to `WHOLE` rows on one device are done at
once, and passes share what they see. More rows are done in chunks, one after the other, each of
which makes again what it needs and leaves only sums, so memory does not grow with the rows. That
is a third more arithmetic, but from about that size on less time (`docs/scale.md`).
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec
from numpy.typing import DTypeLike

from greatcircle._runtime import allocator, threads

if TYPE_CHECKING:
    from greatcircle.objective.problem import Problem

CHUNK = 8_192
"""Most rows of a chunk for several cores, among which larger products are shared at less of a loss.
For one core half of it, which stays in its cache."""

WHOLE = 4 * CHUNK
"""Most rows of a device that are done at once."""

AXIS = "rows"
"""Of the mesh of devices."""


class Window(NamedTuple):
    """Some of the chunks, told to a compiled program when it runs: one program for all of them."""

    first: Array
    """Number of the first of them."""
    chunks: Array
    """How many there are."""
    weight: Array
    """Of their rows, among all."""


Quantity = Callable[..., Any]
"""A sum over the rows of a problem, of which the other arguments are the same for all parts."""


def summed(problem: "Problem", quantity: Quantity, *more: Any) -> Any:
    """`quantity(problem, *more)`, where that is a sum over rows."""
    return _on_each_device(problem, partial(_chunk_by_chunk, quantity), *more)


def sample(problem: "Problem", every: int, turn: Any) -> "Problem":
    """Every so many rows, other ones each turn, weighted as if there were no others.

    Neighbours are often alike, as in a record of a flight: so a sample reaches over all rows, and
    from one turn to the next it moves by about the golden section of the way to the next row. After
    `every` turns each row was taken once. Rows that are spread over devices are counted through, so
    that the sample does not depend on how many devices there are.
    """
    each = problem.count if problem.mesh is None else problem.count // problem.mesh.size
    every = min(every, problem.count)
    if every <= 1:
        return problem
    jump = next(j for j in range(round(0.618 * every), 0, -1) if math.gcd(j, every) == 1)
    first = jnp.asarray(turn) % every * jump % every

    def some(leaves: Sequence[Array], first: Array) -> list[Array]:
        before = 0 if problem.mesh is None else jax.lax.axis_index(AXIS) * each
        rows = (first - before) % every + every * jnp.arange(-(-each // every))
        inputs, targets, share = (
            jnp.take(values, jnp.minimum(rows, each - 1), axis)
            for values, axis in zip(leaves, _axes(problem), strict=True)
        )
        return [inputs, targets, jnp.where(rows < each, share, 0)]

    leaves, structure = problem.tree_flatten()
    unit, square, _ = leaves[3:]  # a window is no matter: the sample is as small as it should be
    if problem.mesh is not None:
        spread, same = PartitionSpec(AXIS), PartitionSpec()
        some = jax.shard_map(some, mesh=problem.mesh, in_specs=(spread, same), out_specs=spread)
    part = problem.tree_unflatten(structure, [*some(leaves[:3], first), unit, square, None])
    weight = summed(part, lambda part: jnp.sum(part.share))
    part.share = part.share / jnp.where(weight > 0, weight, 1)
    return part


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
    specs = (spread, spread, spread, same, same, same)
    return jax.shard_map(
        local, mesh=problem.mesh, in_specs=(specs, same), out_specs=same, check_vma=False
    )(leaves, more)


def _chunk_by_chunk(quantity: Quantity, problem: "Problem", *more: Any) -> Any:
    rows, window = problem.count, problem.window
    if at_once(rows) and window is None:
        return quantity(problem, *more)
    chunks, size = chunks_of(rows)

    def add(total: Any, chunk: Array) -> Any:
        # The last chunk begins earlier than its turn, to be as long as the others: rows that have
        # been counted do not count again.
        first = jnp.minimum(chunk * size, rows - size)
        part = _rows(problem, first, size)
        share = part.share if window is None else part.share / window.weight
        part.share = jnp.where(first + jnp.arange(size) >= chunk * size, share, 0)
        return jax.tree.map(jnp.add, total, quantity(part, *more))

    nothing = jax.tree.map(
        lambda shape: jnp.zeros(shape.shape, shape.dtype), jax.eval_shape(quantity, problem, *more)
    )
    if window is None:
        numbers = jnp.arange(chunks)
        return jax.lax.scan(lambda total, chunk: (add(total, chunk), None), nothing, numbers)[0]
    last = window.first + window.chunks
    return jax.lax.fori_loop(window.first, last, lambda chunk, total: add(total, chunk), nothing)


def at_once(rows: int) -> bool:
    """Whether a device does so many together."""
    return rows <= WHOLE


def chunks_of(rows: int) -> tuple[int, int]:
    """How many chunks, and of how many rows each."""
    count = -(-rows // (CHUNK if threads.cores() > 1 else CHUNK // 2))
    return count, -(-rows // count)


def _rows(problem: "Problem", first: Array, count: int) -> "Problem":
    """Some of the rows, as they are weighted among all."""
    leaves, structure = problem.tree_flatten()
    some = [
        jax.lax.dynamic_slice_in_dim(values, first, count, axis)
        for values, axis in zip(leaves[:3], _axes(problem), strict=True)
    ]
    unit, square, _ = leaves[3:]
    return problem.tree_unflatten(structure, [*some, unit, square, None])


def _axes(problem: "Problem") -> tuple[int, int, int]:
    """Along which inputs, targets and weights of rows have the rows."""
    return int(problem.turned), int(problem.turned), 0


SEEN_AT_MOST = 16 << 20
"""What the layers see, in bytes, for which a thread's heap has room: the passes hold four of it."""


def room_for(sizes: Sequence[int], rows: int, dtype: DTypeLike) -> None:
    """One heap, where what the layers see would not fit in a heap of a thread's own."""
    together = rows if at_once(rows) else CHUNK
    if sum(sizes) * together * np.dtype(dtype).itemsize > SEEN_AT_MOST:
        allocator.one_heap()
