"""Read a table, or the inputs of a fitted model, from a CSV or Parquet file.

These are the only ways from a path to numbers; the command line uses them as well. They check that
the file exists and can be read, that its columns have names, that the requested columns are there,
and that every value is a finite number (or a label).
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from greatcircle.data.checks import check_range
from greatcircle.data.columns import labels, numbers, numeric_columns
from greatcircle.data.frames import (
    FORMATS,
    check_name,
    find_columns,
    is_unnamed,
    listed,
    read_frame,
)
from greatcircle.data.table import Table

if TYPE_CHECKING:
    import polars as pl

__all__ = ["FORMATS", "check_name", "is_unnamed", "read", "read_inputs"]


def read(
    path: str | PathLike[str],
    *,
    targets: str | Sequence[str],
    inputs: str | Sequence[str] | None = None,
    time: str | None = None,
    classify: bool = False,
) -> Table:
    """Read a table from a CSV or Parquet file.

    Parameters
    ----------
    path : path
        A file that ends in .csv, .csv.gz or .parquet. A CSV is encoded in UTF-8 and has its column
        names in the first line; blanks around a name are ignored.
    targets : str or sequence of str
        Names of the columns to predict.
    inputs : str or sequence of str, optional
        Names of the columns to predict from; by default all other columns of numbers. Columns of
        text, columns without a name and the time are then ignored; a column with both numbers and
        text is an error.
    time : str, optional
        Name of a column that is kept in the table but is not an input.
    classify : bool
        Whether the target is a column of class labels. They are kept exactly: as int64 if all are
        whole numbers in their usual spelling, otherwise as text.

    Returns
    -------
    Table
        The inputs, the targets and the time, as float64; labels as int64 or text.
    """
    path = Path(path)
    frame = read_frame(path)
    given, predicted, held_out = _choose(frame, path, targets, inputs, time)
    if classify and len(predicted) != 1:
        raise ValueError(
            f"targets are {listed(predicted)} with class labels; expected one column of labels"
        )
    if not classify:
        _check_numeric(frame, predicted, path)
    used = (*given, *(() if classify else predicted), *held_out)
    columns: dict[str, np.ndarray] = dict(numbers(frame, used, path))
    for name in used:
        if name not in held_out:
            check_range(f"column {name!r} of {path}", columns[name])
    if classify:
        columns[predicted[0]] = labels(frame, predicted[0], path)
    ignored = tuple(name for name in frame.columns if name not in columns)
    return Table(columns, given, predicted, ignored)


def read_inputs(
    path: str | PathLike[str], names: Sequence[str] | None, count: int
) -> NDArray[np.float64]:
    """Read the inputs of a fitted model from a CSV or Parquet file.

    Parameters
    ----------
    path : path
        The file, as for `read`.
    names : sequence of str, optional
        Names of the model's inputs, in order; other columns are ignored. None takes all columns
        that have a name, in order: for a model that was trained on an array.
    count : int
        Number of the model's inputs.

    Returns
    -------
    array, (rows, count)
        The inputs as float64.
    """
    path = Path(path)
    frame = read_frame(path)
    if names is not None:
        found = find_columns(frame.columns, names, path)
    else:
        found = tuple(name for name in frame.columns if not is_unnamed(name))
        if len(found) != count:
            raise ValueError(
                f"{path} has {len(found)} named column{'s' * (len(found) != 1)}; the model was "
                f"trained on an array without names: expected its {count} columns in the same "
                "order, and no others"
            )
    columns = numbers(frame, found, path)
    return np.stack([columns[name] for name in found], axis=1)


def _choose(
    frame: pl.DataFrame,
    path: Path,
    targets: str | Sequence[str],
    inputs: str | Sequence[str] | None,
    time: str | None,
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the names of the inputs, of the targets, and of the time (or nothing)."""
    predicted = find_columns(frame.columns, _names(targets), path)
    held_out = find_columns(frame.columns, (time,), path) if time is not None else ()
    if inputs is None:
        others = [name for name in frame.columns if name not in (*predicted, *held_out)]
        given = numeric_columns(frame, [name for name in others if not is_unnamed(name)])
        if not given:
            raise ValueError(
                f"{path} has no numeric column to use as input; expected at least one besides the "
                f"targets {listed(predicted)} and the time: name fewer targets, or add columns "
                f"(columns: {listed(frame.columns)})"
            )
    else:
        given = find_columns(frame.columns, _names(inputs), path)
    used = (*given, *predicted, *held_out)
    repeated = sorted({name for name in used if used.count(name) > 1})
    if repeated:
        held = "" if time is None else f" and time={time!r}"
        raise ValueError(
            f"the columns {listed(repeated)} were named more than once among "
            f"inputs={list(given)}, targets={list(predicted)}{held}; expected each column in one "
            "place: remove the repeated names"
        )
    return given, predicted, held_out


def _check_numeric(frame: pl.DataFrame, targets: Sequence[str], path: Path) -> None:
    numeric = numeric_columns(frame, targets)
    text = [name for name in targets if name not in numeric]
    if text:
        raise ValueError(
            f"{path}: the target{'s' if len(text) > 1 else ''} {listed(text)} "
            f"hold{'' if len(text) > 1 else 's'} no numbers; expected numbers: to predict classes, "
            "use classify=True (command line: --classify)"
        )


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
