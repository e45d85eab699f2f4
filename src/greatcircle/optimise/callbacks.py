"""Ready-made callbacks: rows of `history_` to a CSV file or to TensorBoard, while training runs.

A callback is any function of a `greatcircle.record.Record`; one that returns True ends training.
These keep their file open from the first iteration of a fit to the last, and write every row at
once, so that a look at the file, or a crash, finds all of them.
"""

import csv
import math
from os import PathLike
from pathlib import Path
from typing import Any

from greatcircle.optimise.record import Record


class CSV:
    """Write each iteration as a line of a CSV file.

    Parameters
    ----------
    path
        The file. One that is there is replaced by the first iteration of a fit, and gets longer
        by the next ones.

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
        """Add a line; the first iteration begins the file anew."""
        begins = row.iteration == 1 or not self.path.exists()
        with open(self.path, "w" if begins else "a", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            if begins:
                lines.writerow(Record._fields)
            lines.writerow(row)


class TensorBoard:
    """Write each iteration's numbers as scalars for TensorBoard.

    Needs the package `tensorboardX` (`pip install greatcircle[tensorboard]`).

    Parameters
    ----------
    folder
        Where TensorBoard looks: `tensorboard --logdir folder`.
    """

    SHOWN = ("loss", "validation_loss", "angle", "slope", "spectral_bound", "seconds")

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        self._writer: Any = None

    def __call__(self, row: Record) -> None:
        """Write the row; NaN, which means that there is no such number, is left out."""
        if self._writer is None:
            self._writer = _summary_writer(self.folder)
        for name in self.SHOWN:
            value = getattr(row, name)
            if not math.isnan(value):
                self._writer.add_scalar(f"greatcircle/{name}", value, row.iteration)
        self._writer.flush()

    def close(self) -> None:
        """Close the file; the next row opens another one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def __getstate__(self) -> dict[str, Any]:
        """An open file belongs to one process."""
        return {**self.__dict__, "_writer": None}


def _summary_writer(folder: Path) -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise ImportError(
            "callbacks.TensorBoard needs the package tensorboardX: "
            "pip install 'greatcircle[tensorboard]', or use callbacks.CSV"
        ) from None
    return SummaryWriter(str(folder))
