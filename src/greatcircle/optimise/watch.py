"""What a fit does after each iteration beside the iteration: write down, show, keep the best, ask.

A `Watch` is the callback that the estimators give to the loop. Its rows become `history_`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from greatcircle.geometry.sphere import Tree
from greatcircle.optimise.history import History as History
from greatcircle.optimise.record import Record


class Watch:
    """Called after each iteration.

    Parameters
    ----------
    unit
        What a loss of the loop is multiplied by, to be in the units of the targets.
    lipschitz
        Bound of given weights.
    validation
        Loss of given weights on rows that training does not see, in the loop's units; or None.
    patience
        How many iterations without a lower validation loss end the fit.
    callbacks
        Functions of a `Record`; one that returns True ends the fit.
    bar
        Progress bar, or None.
    rows
        Of a fit that this one continues.
    """

    def __init__(
        self,
        *,
        unit: float = 1.0,
        lipschitz: Callable[[Tree], float],
        validation: Callable[[Tree], float] | None = None,
        patience: int = 10,
        callbacks: Iterable[Callable[[Record], Any]] = (),
        bar: "Bar | None" = None,
        rows: Sequence[Record] = (),
        best: Tree | None = None,
    ) -> None:
        self.unit, self.lipschitz, self.validation = unit, lipschitz, validation
        self.patience, self.callbacks, self.bar = patience, tuple(callbacks), bar
        self.rows = list(rows)
        self.first = 0
        """Row from which validation losses are compared."""
        self.best = best
        """Weights of the lowest validation loss."""
        self.ends_whole = False
        """Whether all rows follow on some of them, whose turns then do not try our patience."""
        self.reason = "a callback asked to stop"

    def __call__(self, record: Record, weights: Tree) -> bool:
        """Write the iteration down; whether to stop."""
        unseen = math.nan if self.validation is None else self.validation(weights) * self.unit
        units = {
            name: getattr(record, name) * self.unit
            for name in ("loss", "slope", "curvature", "predicted", "actual")
        }
        # A fit that goes on counts on.
        units["iteration"] = (self.rows[-1].iteration if self.rows else 0) + 1
        row = record._replace(**units, validation_loss=unseen, lipschitz=self.lipschitz(weights))
        lowest = min((r.validation_loss for r in self.rows[self.first :]), default=math.inf)
        self.rows.append(row)
        if self.validation is not None and not unseen >= lowest:
            self.best = weights
        if self.bar:
            self.bar.show(row)
        answers = [callback(row) for callback in self.callbacks]  # all are asked, one yes is enough
        return any(answers) or self.done()

    def begin_again(self, lipschitz: Callable[[Tree], float]) -> None:
        """From here on weights are of another kind: none of those so far is the best."""
        self.first, self.best, self.lipschitz = len(self.rows), None, lipschitz
        self.ends_whole = False

    def done(self) -> bool:
        """Whether the validation loss has not fallen for long enough."""
        if self.validation is None:
            return False
        rows = self.rows[self.first :]
        losses = [r.validation_loss for r in rows]
        lowest = int(np.nanargmin(losses)) if not np.all(np.isnan(losses)) else len(losses)
        since = [row for row in rows[lowest + 1 :] if row.backward >= 1 or not self.ends_whole]
        if len(since) < self.patience:
            return False
        self.reason = f"the validation loss has not fallen for {self.patience} iterations"
        return True


class Bar:
    """Progress in a terminal or a notebook, on standard error: iteration, loss and bound."""

    def __init__(self, title: str, most: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task(title, total=most, state="compiling")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Training that converges early is done, not cut short.
        self._progress.update(self._task, total=self._progress.tasks[0].completed)
        self._progress.stop()

    def show(self, row: Record) -> None:
        """The newest iteration."""
        unseen = "" if math.isnan(row.validation_loss) else f"  unseen {row.validation_loss:.4g}"
        state = f"loss {row.loss:.4g}{unseen}  bound {row.lipschitz:.3g}"
        self._progress.update(self._task, advance=1, state=state)
