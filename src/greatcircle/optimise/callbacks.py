"""Callbacks that write each iteration to a CSV file or to TensorBoard, during training.

The estimators take any function of a `greatcircle.optimise.record.Record` as a callback, and
`descend` one of a record and the weights; training stops if it returns True. These write every
record when they are called, which is after the compiled program of its iteration has ended.
"""

import csv
import math
from os import PathLike
from pathlib import Path
from typing import Any

from greatcircle._runtime.extras import require
from greatcircle.optimise.record import Record

__all__ = ["CSV", "TensorBoard"]


def __dir__() -> list[str]:
    return sorted(__all__)


class CSV:
    """Write each iteration as a line of a CSV file.

    Parameters
    ----------
    path
        The file. The first iteration of a fit overwrites an existing file; later ones append.

    Examples
    --------
    >>> from greatcircle import LipschitzRegressor, callbacks
    >>> model = LipschitzRegressor(callbacks=[callbacks.CSV("training.csv")])
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise FileNotFoundError(
                f"path is {str(path)!r}, and its folder does not exist; create it first"
            )

    def __call__(self, row: Record) -> None:
        """Append a line, or start a new file at the first iteration."""
        is_new = row.iteration == 1 or not self.path.exists()
        with open(self.path, "w" if is_new else "a", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            if is_new:
                lines.writerow(Record._fields)
            lines.writerow(row)


class TensorBoard:
    """Write the numbers of each iteration as scalars for TensorBoard.

    Needs the package `tensorboardX` (`pip install greatcircle[tensorboard]`).

    Parameters
    ----------
    folder
        Folder for the event files, to show with `tensorboard --logdir folder`.
    """

    SHOWN = ("loss", "validation_loss", "angle", "slope", "spectral_bound", "seconds")

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        self._writer: Any = None

    def __call__(self, row: Record) -> None:
        """Write the numbers of a record, except NaN."""
        if self._writer is None:
            tensorboard = require("tensorboardX", "tensorboard", "callbacks.TensorBoard")
            self._writer = tensorboard.SummaryWriter(str(self.folder))
        for name in self.SHOWN:
            value = getattr(row, name)
            if not math.isnan(value):
                self._writer.add_scalar(f"greatcircle/{name}", value, row.iteration)
        self._writer.flush()

    def close(self) -> None:
        """Close the file; the next record opens a new one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the open file, which belongs to one process."""
        return {**self.__dict__, "_writer": None}
