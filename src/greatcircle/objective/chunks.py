"""Sums over rows of data, chunk by chunk and device by device.

Everything that training computes from the data is a sum over rows. Up to `MAX_AT_ONCE` rows on one
device are processed at once, and passes share their caches. More rows are processed in chunks, one
after the other; each recomputes what it needs and adds only to the sums, so memory does not grow
with the number of rows. That is a third more arithmetic, but above this size it takes less time
(`docs/scale.md`).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Float, Int

from greatcircle._runtime import threads

__all__ = ["DeviceRows", "HasRows", "Window", "at_once", "chunk_layout", "sample", "summed"]

CHUNK = 8_192
"""Largest number of rows in a chunk; half of it on one core, to fit into its cache."""

MAX_AT_ONCE = 4 * CHUNK
"""Largest number of rows that a device processes at once."""

AXIS = "rows"
"""Name of the mesh axis over devices."""


class Window(eqx.Module):
    """A range of chunks. It is an argument of compiled programs: one program serves all ranges."""

    first: Int[Array, ""]
    """Index of the first chunk."""
    chunks: Int[Array, ""]
    """Number of chunks."""
    weight: Float[Array, ""]
    """Sum of the sample weights of their rows."""


class DeviceRows(eqx.Module):
    """Rows of data on one device or on several."""

    inputs: Array
    """(rows, inputs), or transposed with `columns_first`."""
    targets: Array
    """(rows, outputs), likewise."""
    sample_weight: Float[Array, " rows"]
    """Summing to one."""
    columns_first: bool = eqx.field(static=True, default=False)
    """Whether rows of data are columns of the arrays, as they are during the passes."""
    mesh: Mesh | None = eqx.field(static=True, default=None)
    """The devices that the rows are sharded over (`sharding.py`); None for one."""
    window: Window | None = None
    """The chunks that count; None for all."""

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.sample_weight)

    @property
    def in_chunks(self) -> bool:
        """Whether passes over the rows go chunk by chunk."""
        return self.mesh is not None or self.window is not None or not at_once(self.count)

    def with_weight(self, sample_weight: Array) -> "DeviceRows":
        """Return the same rows with new sample weights and no window."""
        return DeviceRows(
            self.inputs, self.targets, sample_weight, self.columns_first, self.mesh, None
        )

    def pick(self, take: Callable[[Array, int], Array]) -> "DeviceRows":
        """Apply `take(array, axis of the rows)` to inputs, targets and weights."""
        axis = int(self.columns_first)
        return DeviceRows(
            take(self.inputs, axis),
            take(self.targets, axis),
            take(self.sample_weight, 0),
            self.columns_first,
        )


@runtime_checkable
class HasRows(Protocol):
    """An objective over rows of data."""

    @property
    def rows(self) -> DeviceRows:
        """The rows."""
        ...

    def with_rows(self, rows: DeviceRows) -> "HasRows":
        """Return the same objective, in the same unit, with other rows."""
        ...


Quantity = Callable[..., Any]
"""`quantity(objective, *arguments)`, a sum over the rows of the objective."""


def at_once(rows: int) -> bool:
    """Return whether a device processes this number of rows at once."""
    return rows <= MAX_AT_ONCE


def chunk_layout(rows: int) -> tuple[int, int]:
    """Return the number of chunks and the number of rows in each."""
    count = -(-rows // (CHUNK if threads.cores() > 1 else CHUNK // 2))
    return count, -(-rows // count)


def summed(objective: HasRows, quantity: Quantity, *arguments: Any) -> Any:
    """Return `quantity(objective, *arguments)`, summed over devices and chunks."""
    rows, over_chunks = objective.rows, partial(_summed_over_chunks, quantity)
    if rows.mesh is None:
        return over_chunks(objective, *arguments)

    def on_device(inputs: Array, targets: Array, sample_weight: Array, arguments: Any) -> Any:
        local = DeviceRows(inputs, targets, sample_weight, rows.columns_first)
        # All sums in one message: its latency dominates, not its size.
        sums, unravel = ravel_pytree(over_chunks(objective.with_rows(local), *arguments))
        return unravel(jax.lax.psum(sums, AXIS))

    sharded, replicated = PartitionSpec(AXIS), PartitionSpec()
    return jax.shard_map(
        on_device,
        mesh=rows.mesh,
        in_specs=(sharded, sharded, sharded, replicated),
        out_specs=replicated,
        check_vma=False,
    )(rows.inputs, rows.targets, rows.sample_weight, arguments)


def sample(rows: DeviceRows, every: int, iteration: Any) -> DeviceRows:
    """Return every n-th row, a different subset at each iteration, with weights that sum to one.

    Neighbouring rows are often alike, as in a recorded flight, so a sample is spread over all rows,
    and from one iteration to the next its offset moves by about the golden section of n. After
    `every` iterations each row was taken once. Rows are numbered across devices, so the sample does
    not depend on the number of devices.
    """
    every = min(every, rows.count)
    if every <= 1:
        return rows
    per_device = rows.count if rows.mesh is None else rows.count // rows.mesh.size
    jump = next(j for j in range(round(0.618 * every), 0, -1) if math.gcd(j, every) == 1)
    offset = jnp.asarray(iteration) % every * jump % every

    def taken(inputs: Array, targets: Array, weight: Array, offset: Array) -> tuple[Array, ...]:
        before = 0 if rows.mesh is None else jax.lax.axis_index(AXIS) * per_device
        index = (offset - before) % every + every * jnp.arange(-(-per_device // every))
        local = DeviceRows(inputs, targets, weight, rows.columns_first)
        local = local.pick(lambda a, axis: jnp.take(a, jnp.minimum(index, per_device - 1), axis))
        counted = jnp.where(index < per_device, local.sample_weight, 0)
        return local.inputs, local.targets, counted

    if rows.mesh is not None:
        sharded, replicated = PartitionSpec(AXIS), PartitionSpec()
        specs = (sharded, sharded, sharded, replicated)
        taken = jax.shard_map(taken, mesh=rows.mesh, in_specs=specs, out_specs=sharded)
    inputs, targets, weight = taken(rows.inputs, rows.targets, rows.sample_weight, offset)
    total = jnp.sum(weight)
    return DeviceRows(
        inputs, targets, weight / jnp.where(total > 0, total, 1), rows.columns_first, rows.mesh
    )


def _summed_over_chunks(quantity: Quantity, objective: Any, *arguments: Any) -> Any:
    rows, window = objective.rows, objective.rows.window
    if at_once(rows.count) and window is None:
        return quantity(objective, *arguments)
    chunks, size = chunk_layout(rows.count)

    def add(total: Any, chunk: Array) -> Any:
        # The last chunk starts earlier, so that all have the same length; rows that an earlier
        # chunk has counted get weight zero.
        first = jnp.minimum(chunk * size, rows.count - size)
        part = rows.pick(lambda a, axis: jax.lax.dynamic_slice_in_dim(a, first, size, axis))
        weight = part.sample_weight if window is None else part.sample_weight / window.weight
        part = part.with_weight(jnp.where(first + jnp.arange(size) >= chunk * size, weight, 0))
        return jax.tree.map(jnp.add, total, quantity(objective.with_rows(part), *arguments))

    zero = jax.tree.map(
        lambda shape: jnp.zeros(shape.shape, shape.dtype),
        jax.eval_shape(lambda *given: quantity(objective, *given), *arguments),
    )
    if window is None:
        return jax.lax.scan(
            lambda total, chunk: (add(total, chunk), None), zero, jnp.arange(chunks)
        )[0]
    end = window.first + window.chunks
    return jax.lax.fori_loop(window.first, end, lambda chunk, total: add(total, chunk), zero)
