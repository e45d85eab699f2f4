"""What the training of a candidate measured: held-out losses, and comparisons between candidates.

Two candidates are compared row by row on the parts that both were trained on. Rows differ much more
than candidates do, so the standard error is that of the difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from greatcircle.optimise.record import Record
from greatcircle.training.search import Candidate

__all__ = ["EVERY", "GAIN_OF_DOUBLING", "NEARLY", "Run", "Trial"]

EVERY = 10
"""Iterations between two measurements of the held-out loss, which cost a forward pass each."""

GAIN_OF_DOUBLING = 0.02
"""Training is made twice as long as long as that lowers the held-out loss by this fraction.

The loss is a square, so that is 1 % of the error, for twice the time.
"""

NEARLY = 0.02
"""Held-out losses that differ by less than this fraction are equal: 1 % of the error.

Of equal ones the last is chosen: all rows allow more iterations than four fifths of them.
"""


@dataclass(frozen=True, eq=False)
class Run:
    """Training of a candidate on one part of the rows, up to some iteration."""

    losses: np.ndarray
    """Loss of each row held out, (measurements, rows)."""
    ended: bool
    """Whether training has ended by itself."""
    evaluations: float
    """Passes over all rows, of every kind."""
    bound: float
    """Product of operator norms, in the units of the data."""
    weights: tuple[np.ndarray, ...]
    records: tuple[Record, ...]
    batch_records: int = 0
    """Number of records of training on small batches, which came first."""
    state: Any = None
    """State of the loop on all rows, to train further; None before, or if read from a file."""

    @property
    def iterations(self) -> int:
        """Number of iterations on all rows so far."""
        return len(self.records) - self.batch_records


@dataclass(frozen=True, eq=False)
class Trial:
    """The runs of a candidate."""

    candidate: Candidate
    length: int
    """Largest number of iterations that the runs were allowed."""
    runs: tuple[Run, ...]
    """On the first parts, or on all."""
    weights: tuple[np.ndarray, ...]
    """Weight of each row held out, for each run."""
    codes: tuple[np.ndarray, ...]
    """Number of each row held out, the same for duplicates."""
    size: float
    """Number of rows times number of weights."""
    hopeless: bool = False
    """Whether the other parts were not tried, because another candidate is clearly better."""

    @cached_property
    def curve(self) -> np.ndarray:
        """Mean held-out loss at each measurement; a run that ended keeps its last loss."""
        return self._curve(len(self.runs))

    @property
    def error(self) -> float:
        """The lowest mean held-out loss."""
        return float(np.min(self.curve))

    @property
    def ended(self) -> bool:
        """Whether all runs have ended by themselves."""
        return all(run.ended for run in self.runs)

    @property
    def iterations(self) -> int:
        """The last number of iterations on all rows at which the error is nearly the lowest.

        After small batches it is zero unless iterations on all rows lower the error by more.
        """
        good = self.curve <= (1 + NEARLY) * self.error
        if self.candidate.batches is not None:
            return 0 if good[0] else EVERY * int(np.flatnonzero(good)[-1])
        last = EVERY * (int(np.flatnonzero(good)[-1]) + 1) if np.any(good) else EVERY
        return min(last, self.length)

    @property
    def standard_error(self) -> float:
        """Standard error of the mean held-out loss, from the spread over distinct rows."""
        return self._standard_error(self._row_losses(len(self.runs)))

    @property
    def operations(self) -> float:
        """Passes over the rows, times rows, times weights: in proportion to the time they take."""
        return self.size * sum(run.evaluations for run in self.runs)

    @property
    def operations_of_fit(self) -> float:
        """Operations of a fit of `iterations` iterations, as in the average run."""
        if self.candidate.batches is not None:
            return self.operations / len(self.runs)
        iterations = sum(run.iterations for run in self.runs)
        return self.operations * self.iterations / max(iterations, 1)

    def below(self, other: "Trial") -> bool:
        """Return whether the error is lower, on the parts that both were tried on."""
        common = min(len(self.runs), len(other.runs))
        return bool(np.min(self._curve(common)) < np.min(other._curve(common)))

    def worth_four_times(self, other: "Trial") -> bool:
        """Return whether the error is lower by more than two doublings of the cost must gain."""
        common = min(len(self.runs), len(other.runs))
        gained = (1 - GAIN_OF_DOUBLING) ** 2
        return bool(np.min(self._curve(common)) < gained * np.min(other._curve(common)))

    def clearly_below(self, other: "Trial") -> bool:
        """Return whether it is lower by more than the standard error of the difference."""
        common = min(len(self.runs), len(other.runs))
        pairs = zip(self._row_losses(common), other._row_losses(common), strict=True)
        differences = [mine - theirs for mine, theirs in pairs]
        if not np.all(np.isfinite(np.concatenate(differences))):
            return self.below(other)
        return self._mean(differences) < -self._standard_error(differences)

    def _curve(self, count: int) -> np.ndarray:
        length = max(len(run.losses) for run in self.runs)
        total = np.zeros(length)
        for run, weight in zip(self.runs[:count], self.weights, strict=False):
            sums = run.losses @ weight
            total += np.pad(sums, (0, length - len(sums)), mode="edge")
        curve = total / sum(float(np.sum(w)) for w in self.weights[:count])
        return np.where(np.isfinite(curve), curve, np.inf)

    def _row_losses(self, count: int) -> list[np.ndarray]:
        """Return the held-out losses where the mean over the first runs is lowest."""
        best = int(np.argmin(self._curve(count)))
        return [run.losses[min(best, len(run.losses) - 1)] for run in self.runs[:count]]

    def _mean(self, values: Sequence[np.ndarray]) -> float:
        weight = np.concatenate(self.weights[: len(values)])
        return float(np.average(np.concatenate(values), weights=weight))

    def _standard_error(self, values: Sequence[np.ndarray]) -> float:
        """Return the standard error of the weighted mean; duplicate rows count as one draw."""
        weight, codes = (np.concatenate(a[: len(values)]) for a in (self.weights, self.codes))
        deviations = np.bincount(codes, weight * (np.concatenate(values) - self._mean(values)))
        largest = float(np.max(np.abs(deviations))) or 1.0  # whose square may not be a number
        return largest * float(np.sqrt(np.sum((deviations / largest) ** 2)) / np.sum(weight))
