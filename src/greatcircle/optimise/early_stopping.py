"""Early stopping: end a run when the validation loss no longer falls, and keep the best weights."""

import math
from collections.abc import Sequence

from greatcircle.geometry.sphere import Tree
from greatcircle.optimise.record import Record

__all__ = ["EarlyStopping"]


class EarlyStopping:
    """A callback that ends a run when the validation loss of its records no longer falls.

    Parameters
    ----------
    patience
        The run ends after this number of iterations without a lower validation loss.
    counts_batches
        Whether iterations on part of the rows count; False if all rows are used later.
    """

    def __init__(self, patience: int, *, counts_batches: bool = True) -> None:
        self.patience, self.counts_batches = patience, counts_batches
        self.best: Tree | None = None
        """Weights with the lowest validation loss."""
        self._lowest, self._since = math.inf, 0

    def __call__(self, record: Record, weights: Tree) -> bool:
        """Compare a record with the best one; return whether to stop."""
        if self._count(record):
            self.best = weights
        return self.finished

    @property
    def finished(self) -> bool:
        """Whether the validation loss has not fallen for long enough."""
        return self._since >= self.patience

    @property
    def reason(self) -> str:
        """Why the run ended."""
        return f"the validation loss has not fallen for {self.patience} iterations"

    def restore(self, records: Sequence[Record], best: Tree | None) -> None:
        """Continue a run from its records and best weights."""
        for record in records:
            self._count(record)
        self.best = best

    def _count(self, record: Record) -> bool:
        """Count a record; return whether its validation loss is the lowest so far."""
        if record.validation_loss < self._lowest:
            self._lowest, self._since = record.validation_loss, 0
            return True
        if record.backward >= 1 or self.counts_batches:
            self._since += 1
        return False
