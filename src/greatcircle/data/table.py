"""A table: named columns of equal length, and which of them are inputs and which are targets."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns, split into the inputs and the targets of a regression.

    Parameters
    ----------
    columns : Mapping[str, numpy.ndarray]
        One-dimensional arrays of one common length. Columns that are neither input nor target
        (a time, a label) may be among them.
    inputs : tuple of str
        Names of the columns of `X`, in order.
    targets : tuple of str
        Names of the columns of `y`, in order.
    """

    columns: Mapping[str, np.ndarray]
    inputs: tuple[str, ...]
    targets: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.inputs or not self.targets:
            raise ValueError(
                f"a table was given inputs={self.inputs} and targets={self.targets}; expected at "
                "least one name in each: name the columns to learn from and the columns to predict"
            )
        missing = [name for name in (*self.inputs, *self.targets) if name not in self.columns]
        if missing:
            raise ValueError(
                f"a table was given the columns {list(self.columns)}; expected also {missing}, "
                "which are named as inputs or targets: add these columns or correct the names"
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
        return self._stack(self.inputs)

    @property
    def y(self) -> NDArray[np.float64]:
        """Targets, (rows, number of targets)."""
        return self._stack(self.targets)

    def _stack(self, names: tuple[str, ...]) -> NDArray[np.float64]:
        return np.stack([np.asarray(self.columns[name], np.float64) for name in names], axis=1)
