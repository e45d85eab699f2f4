"""A table: named columns of equal length, with the roles of inputs and targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from greatcircle._runtime.extras import require

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Table"]


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns, some of them inputs and some of them targets.

    Parameters
    ----------
    columns : Mapping[str, numpy.ndarray]
        One-dimensional arrays of one common length: numbers, or text for labels. There may be
        columns that are neither input nor target, such as a time.
    inputs : tuple of str
        Names of the columns of `X`, in order.
    targets : tuple of str
        Names of the columns of `y`, in order.
    ignored : tuple of str
        Names of the columns of the file that were not read into the table.
    """

    columns: Mapping[str, np.ndarray]
    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    ignored: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.inputs or not self.targets:
            raise ValueError(
                f"a table was given inputs={self.inputs} and targets={self.targets}; expected at "
                "least one name in each: name the columns to learn from and the columns to predict"
            )
        missing = [name for name in (*self.inputs, *self.targets) if name not in self.columns]
        if missing:
            raise ValueError(
                f"a table was given the columns {list(self.columns)}, without {missing}, which are "
                "named as inputs or targets: add these columns or correct the names"
            )
        shapes = {name: np.shape(column) for name, column in self.columns.items()}
        if len(set(shapes.values())) > 1 or any(len(shape) != 1 for shape in shapes.values()):
            raise ValueError(
                f"a table was given columns of the shapes {shapes}; expected one-dimensional "
                "arrays of one common length: cut or resample them to the same rows"
            )

    def __len__(self) -> int:
        return len(self.columns[self.inputs[0]])

    @property
    def X(self) -> NDArray[np.float64]:
        """Inputs, (rows, number of inputs)."""
        return self._matrix(self.inputs)

    @property
    def y(self) -> NDArray[np.float64]:
        """Targets, (rows, number of targets)."""
        return self._matrix(self.targets)

    @property
    def labels(self) -> np.ndarray:
        """Class labels of the only target, (rows,), in the type of their column."""
        name, *others = self.targets
        if others:
            raise ValueError(
                f"the table has the targets {', '.join(self.targets)}; expected one column of "
                "class labels"
            )
        return np.asarray(self.columns[name])

    def frames(
        self, rows: slice | np.ndarray = slice(None)
    ) -> tuple[pl.DataFrame, pl.DataFrame | pl.Series]:
        """Return inputs and targets with their names, as `fit` takes them.

        Parameters
        ----------
        rows : slice or array of int
            Rows to take; all by default.

        Returns
        -------
        X : polars.DataFrame
            The inputs.
        y : polars.DataFrame or polars.Series
            The targets; a series for a single one, so that predictions are one-dimensional.
        """
        pl = require("polars", "app", "a table with named columns")
        X = pl.DataFrame({name: np.asarray(self.columns[name])[rows] for name in self.inputs})
        y = pl.DataFrame({name: np.asarray(self.columns[name])[rows] for name in self.targets})
        return X, y[self.targets[0]] if len(self.targets) == 1 else y

    def _matrix(self, names: tuple[str, ...]) -> NDArray[np.float64]:
        text = [name for name in names if np.asarray(self.columns[name]).dtype.kind in "OUS"]
        if text:
            raise ValueError(
                f"the columns {', '.join(map(repr, text))} hold text; expected numbers: "
                "use table.labels for class labels"
            )
        return np.stack([np.asarray(self.columns[name], np.float64) for name in names], axis=1)
