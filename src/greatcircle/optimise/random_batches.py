"""Small batches of rows in random order: every step is taken, and none has to lower the loss.

| schedule | rows |
|---|---|
| `RandomBatches` | in memory, pass after pass, each in a new random order |
| `StreamBatches` | drawn from a source, for data larger than memory |

The batches of one program are gathered into a block before it runs. So a program never sees all
rows, and any number of rows shares one compilation. Rows that are sharded over devices stay where
they are: each device takes its own steps, and after each block their weights are averaged.
"""

import math
from collections.abc import Callable, Sequence
from functools import cached_property, reduce
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float, Int

from greatcircle._runtime.precision import precision
from greatcircle.data.rows import Rows
from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Packed
from greatcircle.objective.chunks import AXIS, DeviceRows, HasRows
from greatcircle.objective.objective import Objective, value_of
from greatcircle.objective.problem import Problem
from greatcircle.optimise.iterations import block_length

__all__ = [
    "BATCH",
    "Block",
    "RandomBatches",
    "SmallBatches",
    "StreamBatches",
    "batch_size",
    "loss_of_all",
]

BATCH = 256
"""Rows of a batch."""

MOST_BATCHES_OF_FEW_ROWS = 16
"""A batch of few rows is smaller: a pass has at least this many, of at least `SMALLEST` rows."""

SMALLEST = 32

STEPS_APART = 16
"""Steps of each device before weights are averaged: a message takes about as long as two steps."""

STEPS_WITHOUT_ROWS = 10
"""Steps of an iteration of a loss that has no rows."""


class Block(eqx.Module):
    """The rows of consecutive batches."""

    objective: Objective
    size: int | None = eqx.field(static=True, default=None)
    """Rows of a batch; None for all rows in every step."""
    weight: Float[Array, ""] | None = None
    """Factor of the sample weights."""
    mesh: Mesh | None = eqx.field(static=True, default=None)
    """The devices of which each has a block of its own, one after the other; None for one."""

    @property
    def devices(self) -> int:
        """Number of devices that each take the steps of a block."""
        return 1 if self.mesh is None else self.mesh.size

    def at(self, number: Int[Array, ""] | int) -> Objective:
        """Return the objective of a batch."""
        if self.size is None or not isinstance(self.objective, HasRows):
            return self.objective
        size, rows, factor = self.size, self.objective.rows, self.weight
        batch = rows.pick(
            lambda a, axis: jax.lax.dynamic_slice_in_dim(a, number * size, size, axis)
        )
        weight = batch.sample_weight if factor is None else factor * batch.sample_weight
        return self.objective.with_rows(batch.with_weight(weight))  # pyright: ignore[reportReturnType]


class _HostRows(NamedTuple):
    """Rows in NumPy arrays, a row after the other."""

    inputs: np.ndarray
    targets: np.ndarray
    weight: np.ndarray

    @classmethod
    def of(cls, rows: Any) -> "_HostRows":
        """Return the rows of a device."""
        inputs, targets, weight = map(np.asarray, (rows.inputs, rows.targets, rows.sample_weight))
        if rows.columns_first:
            inputs, targets = (np.ascontiguousarray(a.T) for a in (inputs, targets))
        return cls(inputs, targets, weight)

    def taken(self, which: np.ndarray, length: int) -> "_HostRows":
        """Return some rows, followed by rows of weight zero up to this number."""
        padding = length - len(which)
        return _HostRows(
            *(np.concatenate([a[which], np.zeros((padding, *a.shape[1:]), a.dtype)]) for a in self)
        )


class RandomBatches:
    """Small batches of rows in memory, on one device or sharded over several.

    Parameters
    ----------
    objective
        With all rows; one without rows is passed as a whole in every step.
    size
        Number of rows of a batch; by default 256, less for fewer than 4,096 rows.
    steps
        Number of steps in an iteration, after which the mean loss of its batches is recorded; by
        default a pass over the rows, or an equal part of one that takes about a second.
    seed
        Determines the order of the rows.
    """

    can_converge = True
    position: Any = ()
    """The number of the step determines the batches."""

    def __init__(
        self, objective: Any, size: int | None = None, steps: int | None = None, seed: int = 0
    ) -> None:
        self.objective, self._seed, self._given_steps = objective, seed, steps
        rows = objective.rows if isinstance(objective, HasRows) else None
        self._mesh: Mesh | None = None if rows is None else rows.mesh
        if rows is None:
            self.size = None
            return
        self.count = int(jnp.count_nonzero(rows.sample_weight))
        per_device = self.count if self._mesh is None else rows.count // self._mesh.size
        self.size = min(size or batch_size(per_device), per_device)
        self._steps_of_pass = -(-per_device // self.size)
        self._orders: dict[tuple[int, int], np.ndarray] = {}

    def steps(self, weights: Packed) -> int:
        """Return the number of steps of each device in an iteration."""
        if self._given_steps is not None:
            return self._given_steps
        if self.size is None:
            return STEPS_WITHOUT_ROWS
        longest = block_length(self.size, weights)
        longest = longest if self._mesh is None else min(longest, STEPS_APART)
        programs = -(-self._steps_of_pass // longest)
        return -(-self._steps_of_pass // programs)

    @property
    def devices(self) -> int:
        """Number of devices, each of which takes steps on rows of its own."""
        return 1 if self._mesh is None else self._mesh.size

    def block(self, first: int, steps: int, usual: int = 1) -> Block:
        """Return the batches of `steps` steps of each device; the first has this number.

        A block of fewer steps than usual is padded: it needs no program of its own.
        """
        if self.size is None:
            return Block(self.objective)
        length = _padded_steps(max(steps, usual)) * self.size
        parts = []
        for device, rows in enumerate(self._on_host):
            which = self._shuffled(device, first * self.size, (first + steps) * self.size)
            parts.append(rows.taken(which, length))
        return _block(self.objective, parts, self.size, self.count / self.size, self._mesh)

    def passes(self, steps: int) -> float:
        """Return the passes over the data in this many steps of each device."""
        if self.size is None:
            return float(steps)
        return steps * self.size * self.devices / self.count

    def seek(self, position: Any) -> None:
        """Do nothing: there is only one position."""

    @cached_property
    def _on_host(self) -> list[_HostRows]:
        """The rows of each device of this process."""
        rows: DeviceRows = self.objective.rows
        if self._mesh is None:
            return [_HostRows.of(rows)]
        shards = zip(
            *(a.addressable_shards for a in (rows.inputs, rows.targets, rows.sample_weight)),
            strict=True,
        )
        return [_HostRows(*(np.asarray(shard.data) for shard in device)) for device in shards]

    @cached_property
    def _counted(self) -> list[np.ndarray]:
        """The rows with positive weight of each device of this process."""
        return [np.flatnonzero(rows.weight) for rows in self._on_host]

    def _shuffled(self, device: int, start: int, end: int) -> np.ndarray:
        """Return rows by their place in all passes, one after the other."""
        count, parts = len(self._counted[device]), [np.empty(0, int)]
        for number in range(start // count, -(-end // count)) if count else ():
            before = number * count
            order = self._order(device, number)
            parts.append(order[max(start - before, 0) : end - before])
        return np.concatenate(parts)

    def _order(self, device: int, number: int) -> np.ndarray:
        """Return the order of the rows in a pass, which depends on its number only."""
        key = (device, number)
        if key not in self._orders:
            place = (self._seed, number) if self._mesh is None else (self._seed, number, device)
            rng = np.random.default_rng(place)
            kept = {k: order for k, order in self._orders.items() if k[1] >= number - 1}
            self._orders = {**kept, key: rng.permutation(self._counted[device])}
        return self._orders[key]


class StreamBatches:
    """Small batches of the rows of a source.

    Parameters
    ----------
    objective
        With a sample of the rows: its loss is recorded at the start.
    source
        Where rows come from, as for `GrowingBatches`.
    problem_of
        Makes a problem of drawn rows, in the unit of `objective`.
    size
        Number of rows of a batch.
    seed
        Determines the order of the rows that are drawn at once.
    """

    can_converge = False
    devices = 1

    def __init__(
        self,
        objective: Any,
        source: Any,
        problem_of: Callable[[Any], Problem],
        size: int = BATCH,
        seed: int = 0,
    ) -> None:
        self.objective, self.source, self.problem_of = objective, source, problem_of
        self.size, self._seed = size, seed

    def steps(self, weights: Packed) -> int:
        """Return the number of steps in an iteration, which is one program."""
        return block_length(self.size, weights)

    def block(self, first: int, steps: int, usual: int = 1) -> Block | None:
        """Return the next batches; None if the source has fewer rows left."""
        count = steps * self.size
        drawn = self._drawn(count)
        if drawn is None:
            return None
        problem = self.problem_of(drawn)
        # Some sources sort the rows that they draw at once.
        which = np.random.default_rng((self._seed, first)).permutation(count)
        length = _padded_steps(max(steps, usual)) * self.size
        rows = _HostRows.of(problem.rows).taken(which, length)
        return _block(problem, [rows], self.size, float(steps))

    def _drawn(self, count: int) -> Rows | None:
        """Draw this many rows; a source with fewer returns all of them each time."""
        parts: list[Rows] = []
        while (left := count - sum(map(len, parts))) > 0:
            part = self.source.draw(left)
            if part is None or len(part) == 0:
                return None
            parts.append(part)
        return reduce(Rows.followed_by, parts)

    def passes(self, steps: int) -> float:
        """Return the passes over the sample in this many steps."""
        return steps * self.size / self.objective.count

    @property
    def position(self) -> np.ndarray:
        """The position of the source."""
        return self.source.position

    def seek(self, position: Any) -> None:
        """Continue from a position of the source."""
        if not np.array_equal(position, self.source.position):
            self.source.seek(position)


SmallBatches = RandomBatches | StreamBatches
"""A small batch for each step. The loop takes every step, so these are no `RowSchedule`."""


def batch_size(rows: int) -> int:
    """Return the rows of a batch, a power of two."""
    few = max(SMALLEST, rows // MOST_BATCHES_OF_FEW_ROWS)
    return 2 ** int(math.log2(min(BATCH, few)))


def loss_of_all(schedule: SmallBatches, weights: Packed) -> Array:
    """Return the loss of all rows, or of the sample of a stream, in units of `unit`."""
    return value_of(schedule.objective, sphere.unpack(weights))


def _padded_steps(steps: int) -> int:
    """Return the steps of a block in memory: few numbers, each compiled separately."""
    return 2 ** math.ceil(math.log2(steps))


def _block(
    objective: Any,
    parts: Sequence[_HostRows],
    size: int,
    factor: float,
    mesh: Mesh | None = None,
) -> Block:
    """Return the block of the rows of each device of this process."""
    with precision(parts[0].weight.dtype):
        weight = jnp.asarray(factor, parts[0].weight.dtype)
        if mesh is None:
            inputs, targets, weights = map(jnp.asarray, parts[0])
            rows = DeviceRows(inputs, targets, weights)
            return Block(objective.with_rows(rows), size, weight)
        sharding = NamedSharding(mesh, PartitionSpec(AXIS))
        inputs, targets, weights = (
            jax.make_array_from_process_local_data(sharding, np.concatenate(column))
            for column in zip(*parts, strict=True)
        )
        rows = DeviceRows(inputs, targets, weights)
        return Block(objective.with_rows(rows), size, weight, mesh)
