"""Columns of a data frame as arrays: finite numbers, or class labels with their exact spelling."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from greatcircle._runtime.extras import require

if TYPE_CHECKING:
    import polars as pl

__all__ = ["labels", "numbers", "numeric_columns"]

_SHOWN = 5  # rows that an error lists before it only counts
_WHOLE = r"^(0|-?[1-9][0-9]*)$"  # one spelling for each number: no sign +, no leading zeros


def numbers(
    frame: pl.DataFrame, names: Sequence[str], path: str | PathLike[str]
) -> dict[str, NDArray[np.float64]]:
    """Return columns of finite numbers.

    Parameters
    ----------
    frame : polars.DataFrame
        A frame with these columns.
    names : sequence of str
        The columns to take.
    path : path
        The file of the frame, for the error.

    Returns
    -------
    dict
        One float64 array for each name. Text that spells a number counts as one.
    """
    pl = _polars()
    columns: dict[str, NDArray[np.float64]] = {}
    faults: list[str] = []
    for name in names:
        series = frame[name]
        if not (series.dtype.is_numeric() or series.dtype == pl.String):
            faults.append(f"column {name!r} holds {series.dtype}")
            continue
        # Missing values become NaN, like text that is not a number.
        values = np.array(_as_numbers(series).fill_null(np.nan).to_numpy(), np.float64)
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            shown = [f"{row + 1} ({_spelled(series[int(row)])})" for row in bad[:_SHOWN]]
            more = f" and {bad.size - _SHOWN} more" if bad.size > _SHOWN else ""
            faults.append(f"column {name!r} has no number in the rows {', '.join(shown)}{more}")
        columns[name] = values
    if faults:
        raise ValueError(
            f"{path}: {'; '.join(faults)}; expected a finite number in every row (rows count from "
            "1, without the header): fill in or remove these rows, or leave these columns out"
        )
    return columns


def labels(frame: pl.DataFrame, name: str, path: str | PathLike[str]) -> NDArray[np.generic]:
    """Return a column of class labels.

    Labels are compared by their spelling, without the blanks around them, so that different labels
    stay different: "7", "007", "+7" and "7.0" are four classes. They are returned as int64 if
    every label is a whole number in its usual spelling (no "+", no "-0", no leading zeros, no
    point, within int64), otherwise all of them as text.

    Parameters
    ----------
    frame : polars.DataFrame
        A frame with this column.
    name : str
        The column to take.
    path : path
        File that the frame was read from; errors name it.

    Returns
    -------
    array
        int64 or text.
    """
    pl = _polars()
    kind = frame.schema[name]
    plain = (pl.String, pl.Categorical, pl.Enum, pl.Boolean, pl.Date, pl.Datetime, pl.Time, pl.Null)
    if not (kind.is_numeric() or kind in plain):
        raise ValueError(
            f"{path}: column {name!r} holds {kind}; expected labels: text or whole numbers"
        )
    column = frame[name]
    if kind.is_float():
        column = column.fill_nan(None)
    text = column.cast(pl.String).str.strip_chars()
    _check_labels(text.is_null() | (text == ""), "no label", name, path)
    # NumPy's text drops these at the end.
    _check_labels(text.str.contains("\0", literal=True), "a NUL character", name, path)
    if text.str.contains(_WHOLE).all():
        values = text.cast(pl.Int64, strict=False)
        if values.null_count() == 0:
            return values.to_numpy()
    return text.to_numpy().astype(np.str_)


def numeric_columns(frame: pl.DataFrame, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns with at least one number.

    A column with one misspelled number counts, so that `numbers` raises an error: leaving the
    column out would train on fewer inputs than the user believes.
    """
    pl = _polars()
    types = frame.schema  # polars builds it anew at each access
    return tuple(
        name
        for name in names
        if (dtype := types[name]).is_numeric()
        or (dtype == pl.String and _as_numbers(frame[name]).is_finite().any())
    )


def _polars() -> Any:
    return require("polars", "app", "reading data files")


def _check_labels(wrong: pl.Series, what: str, name: str, path: str | PathLike[str]) -> None:
    rows = np.flatnonzero(wrong.fill_null(False).to_numpy())
    if rows.size:
        shown = ", ".join(str(row + 1) for row in rows[:_SHOWN])
        more = f" and {rows.size - _SHOWN} more" if rows.size > _SHOWN else ""
        raise ValueError(
            f"{path}: column {name!r} has {what} in the rows {shown}{more}; expected a label in "
            "every row (rows count from 1, without the header): fill in or remove these rows"
        )


def _as_numbers(series: pl.Series) -> pl.Series:
    pl = _polars()
    if series.dtype == pl.String:
        series = series.str.strip_chars()
    return series.cast(pl.Float64, strict=False)


def _spelled(value: object) -> str:
    return "empty" if value is None else repr(value)
