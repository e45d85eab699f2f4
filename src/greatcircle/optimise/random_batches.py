"""Small batches of rows in random order: every step is taken, and none has to lower the loss.

`RandomBatches` draws from rows in memory, pass after pass, each in a new random order. The batches
of one program are gathered into a block before it runs. So a program never sees all rows, and rows
of any number share one compilation.
"""

import math
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from greatcircle._runtime.precision import precision
from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Packed
from greatcircle.objective.chunks import DeviceRows, HasRows
from greatcircle.objective.objective import Objective, value_of
from greatcircle.optimise.iterations import block_length

__all__ = ["BATCH", "Block", "RandomBatches"]

BATCH = 256
"""Rows of a batch."""

MOST_BATCHES_OF_FEW_ROWS = 16
"""A batch of few rows is smaller: a pass has at least this many, of at least `SMALLEST` rows."""

SMALLEST = 32

STEPS_WITHOUT_ROWS = 10
"""Steps of an iteration of a loss that has no rows."""


class Block(eqx.Module):
    """The rows of consecutive batches."""

    objective: Objective
    size: int | None = eqx.field(static=True, default=None)
    """Rows of a batch; None for all rows in every step."""
    weight: Float[Array, ""] | None = None
    """Factor of the sample weights."""

    def at(self, number: Int[Array, ""]) -> Objective:
        """Return the objective of a batch."""
        if self.size is None or not isinstance(self.objective, HasRows):
            return self.objective
        size, rows = self.size, self.objective.rows
        batch = rows.pick(
            lambda a, axis: jax.lax.dynamic_slice_in_dim(a, number * size, size, axis)
        )
        weighted = batch.with_weight(batch.sample_weight * self.weight)
        return self.objective.with_rows(weighted)  # pyright: ignore[reportReturnType]


class RandomBatches:
    """A small random batch for each step.

    Not a `RowSchedule`: the loop has a branch for it, in which every step is taken.

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

    def __init__(
        self, objective: Any, size: int | None = None, steps: int | None = None, seed: int = 0
    ) -> None:
        self.objective, self._seed = objective, seed
        self._rows: DeviceRows | None = objective.rows if isinstance(objective, HasRows) else None
        self._given_steps = steps
        if self._rows is None:
            self.size = None
            return
        self._counted = np.flatnonzero(np.asarray(self._rows.sample_weight))
        self.size = min(size or _size(self.count), self.count)
        self._orders: dict[int, np.ndarray] = {}

    @property
    def count(self) -> int:
        """Number of rows with positive weight."""
        return len(self._counted)

    def steps(self, weights: Packed) -> int:
        """Return the number of steps in an iteration."""
        if self._given_steps is not None:
            return self._given_steps
        if self.size is None:
            return STEPS_WITHOUT_ROWS
        of_pass = -(-self.count // self.size)
        programs = -(-of_pass // block_length(self.size, weights))
        return -(-of_pass // programs)

    def iterations(self, passes: float, weights: Packed) -> int:
        """Return the number of iterations of this many passes over the rows."""
        total = math.ceil(passes * self.count / (self.size or 1))
        return max(1, round(total / self.steps(weights)))

    def block(self, first: int, steps: int) -> Block:
        """Return the batches of `steps` steps, of which the first has this number."""
        if self.size is None:
            return Block(self.objective)
        start, end = first * self.size, (first + steps) * self.size
        which = self._shuffled(start, end)
        # Few sizes, each compiled separately.
        padding = 2 ** math.ceil(math.log2(steps)) * self.size - len(which)
        inputs, targets, weight = (
            np.concatenate([a[which], np.zeros((padding, *a.shape[1:]), a.dtype)])
            for a in self._on_host
        )
        with precision(weight.dtype):
            arrays = map(jnp.asarray, (inputs, targets, weight))
            factor = jnp.asarray(self.count / self.size, weight.dtype)
        return Block(self.objective.with_rows(DeviceRows(*arrays)), self.size, factor)

    def conditioned(self, weights: Packed) -> Packed:
        """Return an equivalent, well-conditioned point, if the objective can compute one."""
        improve = getattr(self.objective, "conditioned", None)
        return weights if improve is None else improve(weights)

    def loss(self, weights: Packed) -> Array:
        """Return the loss of all rows in units of `unit`."""
        return value_of(self.objective, sphere.unpack(weights))

    def passes(self, steps: int) -> float:
        """Return the passes over the data in this many steps."""
        return float(steps) if self.size is None else steps * self.size / self.count

    @cached_property
    def _on_host(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Inputs, targets and weights, a row after the other."""
        rows: Any = self._rows
        inputs, targets, weight = map(np.asarray, (rows.inputs, rows.targets, rows.sample_weight))
        if rows.columns_first:
            inputs, targets = (np.ascontiguousarray(a.T) for a in (inputs, targets))
        return inputs, targets, weight

    def _shuffled(self, start: int, end: int) -> np.ndarray:
        """Return rows by their place in all passes, one after the other."""
        parts = []
        for number in range(start // self.count, -(-end // self.count)):
            before = number * self.count
            parts.append(self._order(number)[max(start - before, 0) : end - before])
        return np.concatenate(parts)

    def _order(self, number: int) -> np.ndarray:
        """Return the order of the rows in a pass, which depends on its number only."""
        if number not in self._orders:
            rng = np.random.default_rng((self._seed, number))
            self._orders = {**self._orders, number: rng.permutation(self._counted)}
            for old in list(self._orders)[:-2]:
                del self._orders[old]
        return self._orders[number]


def _size(rows: int) -> int:
    """Return the rows of a batch, a power of two."""
    few = max(SMALLEST, rows // MOST_BATCHES_OF_FEW_ROWS)
    return 2 ** int(math.log2(min(BATCH, few)))
