"""A progress bar for training, in a terminal or a notebook."""

import math
from typing import Self

from greatcircle._runtime.extras import require
from greatcircle.optimise.record import Record

__all__ = ["ProgressBar"]


class ProgressBar:
    """Candidates, then iterations, loss and bound on standard error, drawn by rich.

    Parameters
    ----------
    title
        What is running.
    max_iter
        Largest number of iterations.
    """

    def __init__(self, title: str, max_iter: int) -> None:
        progress = require("rich.progress", "app", "the progress bar of verbose=True")
        console = require("rich.console", "app", "the progress bar of verbose=True")
        table = require("rich.table", "app", "the progress bar of verbose=True")
        # A narrow terminal cuts off the end of the line.
        last = table.Column(no_wrap=True, overflow="ellipsis", ratio=1)
        self._progress = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=12),
            progress.TextColumn("{task.fields[count]}"),
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.fields[state]}", table_column=last),
            console=console.Console(stderr=True),
            expand=True,
        )
        self._title, self._max_iter = title, max_iter
        self._tried: list[str] = []
        self._task = self._progress.add_task(title, count="", state="compiling")
        self._begin(title)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        # A run that converges early is complete.
        completed = int(self._progress.tasks[0].completed)
        self._progress.update(self._task, total=completed)
        if completed:
            self._progress.update(self._task, count=f"{completed}/{completed}")
        self._progress.stop()

    def candidate(self, name: str) -> None:
        """Show which candidate is trained on part of the rows, at first or for more iterations."""
        again = name in self._tried
        if not again:
            self._tried.append(name)
        # Nobody knows how many there will be: the bar only moves. `update` would ignore None.
        self._progress.tasks[0].total = None
        self._progress.update(
            self._task,
            description=f"candidate {self._tried.index(name) + 1}",
            count="",
            state=f"{name}, more iterations" if again else name,
        )

    def network(self, number: int, count: int, max_iter: int) -> None:
        """Begin to show a network, one of several, with its largest number of iterations."""
        self._max_iter = max_iter
        self._begin(self._title if count == 1 else f"network {number} of {count}")

    def expect(self, iterations: int) -> None:
        """Begin to count iterations of a run again, with this largest number of them."""
        self._max_iter = iterations
        self._progress.update(self._task, completed=0, total=iterations, count=f"0/{iterations}")

    def show(self, record: Record) -> None:
        """Show the newest iteration."""
        validation = record.validation_loss
        held_out = "" if math.isnan(validation) else f"  validation {validation:.4g}"
        state = f"loss {record.loss:.4g}{held_out}  spectral bound {record.spectral_bound:.3g}"
        iterations = int(self._progress.tasks[0].completed) + 1
        count = f"{iterations}/{self._max_iter}"
        self._progress.update(self._task, completed=iterations, count=count, state=state)

    def _begin(self, title: str) -> None:
        self._progress.update(
            self._task,
            description=title,
            completed=0,
            total=self._max_iter,
            count=f"0/{self._max_iter}",
            state="compiling",
        )
