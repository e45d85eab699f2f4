"""A progress bar for training, in a terminal or a notebook."""

import math
from typing import Self

from greatcircle._runtime.extras import require
from greatcircle.optimise.record import Record

__all__ = ["ProgressBar"]


class ProgressBar:
    """Iterations, loss and bound on standard error, drawn by rich.

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
        self._progress = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[state]}"),
            progress.TimeElapsedColumn(),
            console=console.Console(stderr=True),
        )
        self._task = self._progress.add_task(title, total=max_iter, state="compiling")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        # A run that converges early is complete.
        self._progress.update(self._task, total=self._progress.tasks[0].completed)
        self._progress.stop()

    def show(self, record: Record) -> None:
        """Show the newest iteration."""
        validation = record.validation_loss
        held_out = "" if math.isnan(validation) else f"  validation {validation:.4g}"
        state = f"loss {record.loss:.4g}{held_out}  spectral bound {record.spectral_bound:.3g}"
        self._progress.update(self._task, advance=1, state=state)
