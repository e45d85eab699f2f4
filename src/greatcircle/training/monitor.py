"""Follow the runs of a fit: measure each iteration, show it, call back, and stop early.

The loop's losses are in units of the scaled targets. Records that a user sees are in the units of
the targets, and numbered through all runs of a fit.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from greatcircle.data.scaling import Scaling
from greatcircle.geometry.sphere import Tree
from greatcircle.network.network import Network
from greatcircle.objective.problem import Problem
from greatcircle.optimise.descent import Result
from greatcircle.optimise.early_stopping import EarlyStopping
from greatcircle.optimise.history import History
from greatcircle.optimise.outcome import Outcome
from greatcircle.optimise.progress import ProgressBar
from greatcircle.optimise.record import Record

__all__ = ["Monitor", "spectral_bound"]

IN_UNITS = ("loss", "slope", "curvature", "predicted", "actual", "validation_loss")
"""Fields of a record that are in the units of the loss."""


@dataclass(frozen=True)
class Monitor:
    """Monitor one run of a fit: validation, early stopping, callbacks and progress bar.

    Parameters
    ----------
    network, scaling
        Network and scaling of the model that is trained.
    validation
        The problem of the rows held out, or None.
    early
        Early stopping, or None.
    callbacks
        The user's functions of a record; one that returns True ends training.
    bar
        Progress bar, or None.
    earlier
        Records of earlier runs, in the units of the targets.
    """

    network: Network
    scaling: Scaling
    validation: Problem | None = None
    early: EarlyStopping | None = None
    callbacks: tuple[Callable[[Record], Any], ...] = ()
    bar: ProgressBar | None = None
    earlier: tuple[Record, ...] = ()

    @property
    def unit(self) -> float:
        """Factor from the loss of the scaled targets to the loss in the units of the targets.

        Only the squared loss is trained on scaled targets; for others the factor is one.
        """
        return self.scaling.factor**-2

    @property
    def callback(self) -> Callable[[Record, Tree], bool] | None:
        """The function that may stop the run after any iteration; None if nothing may."""
        return self._call_back if self.early is not None or self.callbacks else None

    def observe(self, record: Record, weights: Tree) -> Record:
        """Add validation loss and spectral bound to a record, and show it."""
        if self.validation is not None:
            record = record._replace(validation_loss=float(self.validation.loss(weights)))
        record = record._replace(spectral_bound=spectral_bound(self.network, self.scaling, weights))
        if self.bar is not None:
            self.bar.show(self.in_units(record))
        return record

    def in_units(self, record: Record) -> Record:
        """Return a record in the units of the targets, numbered after earlier runs."""
        values = {name: getattr(record, name) * self.unit for name in IN_UNITS}
        return record._replace(**values, iteration=len(self.earlier) + record.iteration)

    def history(self, records: Sequence[Record]) -> History:
        """Return the records of earlier runs and of this one."""
        return History.of([*self.earlier, *map(self.in_units, records)])

    def before_next_run(self, records: Sequence[Record], early: EarlyStopping | None) -> "Monitor":
        """Return the monitor of a run that follows one with these records."""
        earlier = (*self.earlier, *map(self.in_units, records))
        return replace(self, earlier=earlier, early=early)

    def finished(self, result: Result) -> Result:
        """Return the result with the reason for stopping, and with the best validated weights."""
        early = self.early
        if self.stopped_early and result.outcome != Outcome.INTERRUPTED:
            result = replace(result, outcome=Outcome.STOPPED, reason=early.reason)  # pyright: ignore
        elif result.outcome == Outcome.STOPPED:
            result = replace(result, reason="a callback asked to stop")
        if early is None or early.best is None:
            return result
        best = int(np.nanargmin([record.validation_loss for record in result.records]))
        return replace(result, weights=early.best, loss=result.records[best].loss)

    @property
    def stopped_early(self) -> bool:
        """Whether early stopping has ended the run."""
        return self.early is not None and self.early.finished

    def _call_back(self, record: Record, weights: Tree) -> bool:
        stop = self.early is not None and self.early(record, weights)
        # All callbacks are called, and one True is enough.
        answers = [callback(self.in_units(record)) for callback in self.callbacks]
        return stop or any(answers)


def spectral_bound(network: Network, scaling: Scaling, weights: Tree) -> float:
    """Return ∏ ‖W_i‖_op in the units of the data: cheap enough for every iteration."""
    first, *others = network.linear(weights)
    norms = map(_operator_norm, [first * scaling.scale[:, None], *others])
    return math.prod(norms) / scaling.factor


def _operator_norm(matrix: np.ndarray) -> float:
    """Return the largest singular value, by an eigenvalue: as accurate as an SVD, and faster."""
    size = float(np.max(np.abs(matrix))) or 1.0
    unit = np.asarray(matrix, np.float64) / size  # whose squares neither overflow nor vanish
    square = unit @ unit.T if len(unit) < unit.shape[1] else unit.T @ unit
    return size * math.sqrt(max(np.linalg.eigvalsh(square)[-1], 0.0))
