"""Rows of data: chunks of them, a sample of them, and their norms."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

__all__ = ["CHUNK", "SAMPLE", "Rows", "chunks", "row_norms", "sample_rows", "unit_rows"]

CHUNK = 65_536
"""Rows that are converted to float64 at a time, so that no copy of all rows is made."""

SAMPLE = 32_768
"""Most rows that initial weights and target gain are computed from; more do not change them."""


class Rows(NamedTuple):
    """Rows of data: inputs, targets (or labels), and the weight of each row or None."""

    inputs: np.ndarray
    targets: np.ndarray
    sample_weight: np.ndarray | None = None

    def take(self, which: slice | np.ndarray) -> "Rows":
        """Return some of the rows, by their numbers."""

        def of(values: np.ndarray) -> np.ndarray:
            # For an array of numbers, twice as fast as values[which].
            return values[which] if isinstance(which, slice) else np.take(values, which, axis=0)

        weight = None if self.sample_weight is None else of(self.sample_weight)
        return Rows(of(self.inputs), of(self.targets), weight)

    def followed_by(self, other: "Rows") -> "Rows":
        """Return these rows and others after them."""
        weight = None
        if self.sample_weight is not None or other.sample_weight is not None:
            weight = np.concatenate([rows._weight_or_ones() for rows in (self, other)])
        inputs, targets = (np.concatenate(pair) for pair in zip(self[:2], other[:2], strict=True))
        return Rows(inputs, targets, weight)

    def _weight_or_ones(self) -> np.ndarray:
        return np.ones(len(self)) if self.sample_weight is None else self.sample_weight

    def __len__(self) -> int:
        return len(self.inputs)


def chunks(rows: int) -> Iterator[slice]:
    """Return slices of at most `CHUNK` rows that cover all rows in order."""
    return (slice(first, first + CHUNK) for first in range(0, rows, CHUNK))


def sample_rows(sample_weight: np.ndarray) -> tuple[np.ndarray | slice, np.ndarray]:
    """Choose at most `SAMPLE` rows: all, or random ones in proportion to their weights.

    Parameters
    ----------
    sample_weight
        Weight of each row, summing to one.

    Returns
    -------
    rows
        Their numbers, or a slice of all.
    sample_weight
        Their weights, summing to one.
    """
    if len(sample_weight) <= SAMPLE:
        return slice(None), sample_weight
    rng, equal = np.random.default_rng(0), sample_weight.min() == sample_weight.max()
    sample = (
        rng.choice(len(sample_weight), SAMPLE, replace=False)
        if equal
        else rng.choice(len(sample_weight), SAMPLE, p=sample_weight)
    )
    return np.sort(sample), np.full(SAMPLE, 1 / SAMPLE)


def row_norms(x: np.ndarray) -> np.ndarray:
    """Return ‖x‖ of each row as a column, without overflow or underflow of the squares."""
    _, largest, norm = unit_rows(x)
    return largest * norm


def unit_rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x/‖x‖ of each row, zero for a row of zeros, and ‖x‖ as two factors, each a column.

    The factors are the largest entry and the norm of the row divided by it: their product may
    overflow, or lose precision below the smallest normal number.
    """
    x = np.asarray(x, np.float64)
    largest = np.max(np.abs(x), axis=1, keepdims=True)
    unit = np.divide(x, largest, out=np.zeros_like(x), where=largest > 0)
    norm = np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1)  # below one only for zeros
    unit /= norm
    return unit, largest, norm
