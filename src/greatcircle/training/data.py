"""The rows of a fit, and the problems and row schedules made of them.

| rows | schedule |
|---|---|
| in memory | all rows |
| in memory, many, `batch_size="auto"` | growing windows of chunks, then all rows |
| in memory, `batch_size` below half of them | growing random batches, then all rows |
| a stream of at least `SAMPLE` rows | growing batches of the stream |

A shorter stream is read and treated as rows in memory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from greatcircle.data.rows import CHUNK, Rows, chunks
from greatcircle.data.scaling import Scaling
from greatcircle.data.sources import Arrays, Source
from greatcircle.data.split import hold_out
from greatcircle.network.network import Network
from greatcircle.objective.chunks import at_once
from greatcircle.objective.losses import Loss
from greatcircle.objective.problem import Problem
from greatcircle.optimise.schedules import (
    AllRows,
    Chunks,
    GrowingBatches,
    RowSchedule,
    WindowSource,
)
from greatcircle.training.settings import FitSettings

__all__ = ["SAMPLE", "FitData", "Names", "Problems", "row_schedule"]

SAMPLE = 100_000
"""Number of rows of a stream from which scaling and initial weights are computed."""

FIRST_BATCH, LARGEST_BATCH = 1024, 65_536
"""Number of rows of the first and of the largest batches of a stream."""

Encode = Callable[[np.ndarray], np.ndarray]
"""Returns targets or labels as a matrix."""


def _unchanged(targets: np.ndarray) -> np.ndarray:
    return targets


@dataclass(frozen=True)
class Names:
    """Names of inputs and targets, and the labels of a classifier."""

    features: tuple[str, ...] | None = None
    targets: tuple[str, ...] = ()
    classes: np.ndarray | None = None
    single_output: bool = False


@dataclass(frozen=True)
class FitData:
    """The training and validation rows of a fit.

    Parameters
    ----------
    rows
        Training rows, or the first rows of a stream.
    validation
        Rows held out for early stopping, or None; their targets are not encoded yet.
    stream
        The source of all training rows if there are more than `rows`, or None.
    names
        Names of inputs, targets and classes.
    encode
        Returns targets of `validation` and `stream` as a matrix.
    groups
        Group of each row, which the selection keeps together; None without groups.
    """

    rows: Rows
    validation: Rows | None = None
    stream: Source | None = None
    names: Names = Names()
    encode: Encode = _unchanged
    groups: np.ndarray | None = None

    @classmethod
    def in_memory(
        cls,
        rows: Rows,
        names: Names,
        seed: int,
        validation_fraction: float | None = None,
        strata: np.ndarray | None = None,
        groups: np.ndarray | None = None,
    ) -> "FitData":
        """Return rows in memory; a validation part has the same fraction of each stratum."""
        if validation_fraction is None:
            return cls(rows, names=names, groups=groups)
        random = np.random.RandomState(seed).randint(2**31)
        training, validation = hold_out(rows, validation_fraction, strata, random, groups)
        return cls(training, validation, names=names)

    @classmethod
    def streamed(
        cls,
        sample: Rows,
        stream: Source,
        names: Names,
        encode: Encode,
        validation_fraction: float | None = None,
    ) -> "FitData":
        """Return a stream with a sample of its rows, and a validation part of it."""
        validation = None
        if validation_fraction is not None:
            validation = stream.hold_out(max(1, int(validation_fraction * SAMPLE)))
        return cls(sample, validation, stream, names, encode)


@dataclass(frozen=True)
class Problems:
    """Make problems of rows of data."""

    network: Network
    scaling: Scaling
    loss: Loss
    dtype: np.dtype

    def of(
        self, rows: Rows, encode: Encode = _unchanged, order: np.ndarray | None = None
    ) -> Problem:
        """Return the problem of rows, or of the rows `order` in that order, in its own unit."""
        given, weight = Rows(rows.inputs, encode(rows.targets)), rows.sample_weight
        if order is None and len(rows) <= CHUNK:
            inputs, targets = self._scaled(given)
        else:  # chunk by chunk: scaling makes a copy in double precision
            count = len(rows) if order is None else len(order)
            inputs = np.empty((count, given.inputs.shape[1]), self.dtype)
            targets = np.empty((count, given.targets.shape[1]), self.dtype)
            for chunk in chunks(count):
                which = chunk if order is None else order[chunk]
                inputs[chunk], targets[chunk] = self._scaled(given.take(which))
        if weight is not None and order is not None:
            weight = weight[order]
        return Problem.from_checked(self.network, self.loss, inputs, targets, weight, self.dtype)

    def _scaled(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        return self.scaling.inputs(rows.inputs), self.scaling.targets(rows.targets)


def row_schedule(
    data: FitData, problems: Problems, settings: FitSettings, seed: int
) -> tuple[Problem, RowSchedule]:
    """Return the problem of all rows in memory, and the row schedule."""
    rows, count = data.rows, len(data.rows)
    if data.stream is not None:
        whole = problems.of(rows)

        def of_stream(drawn: Rows) -> Problem:
            return problems.of(drawn, data.encode).with_unit(whole.unit)

        first = min(settings.batch_size or FIRST_BATCH, LARGEST_BATCH)
        return whole, GrowingBatches(data.stream, of_stream, first, LARGEST_BATCH)
    weight = np.ones(count) if rows.sample_weight is None else rows.sample_weight
    random = np.random.RandomState(seed)
    if data.validation is not None:
        random.randint(2**31)  # `in_memory` used the first number for the split
    if settings.starts_with_chunk and not at_once(int(np.count_nonzero(weight))):
        order = random.permutation(np.flatnonzero(weight))
        windows = WindowSource(len(order))
        shuffled = problems.of(rows, order=order)

        def of_chunks(drawn: Chunks) -> Problem:
            return shuffled.window(drawn.first, drawn.count)

        whole = shuffled.window(0, windows.chunks)
        return whole, GrowingBatches(windows, of_chunks, windows.size, len(order) // 2, whole)
    whole = problems.of(rows)
    if settings.batch_size is None or settings.batch_size >= count // 2:
        return whole, AllRows(whole)

    def of_batch(drawn: Rows) -> Problem:
        return problems.of(drawn).with_unit(whole.unit)

    batches: Any = Arrays(*rows, random.randint(2**31))
    return whole, GrowingBatches(batches, of_batch, settings.batch_size, count // 2, whole)
