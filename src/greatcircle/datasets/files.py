"""Tables from the user's own files: CSV, gzipped CSV or Parquet, read by polars.

What a file may get wrong is checked here, once, for every loader: that it exists, that it can be
read, that the columns are there, that they hold numbers, and that none is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from greatcircle.datasets.table import Table

if TYPE_CHECKING:
    import polars as pl

FORMATS = (".csv", ".csv.gz", ".parquet")

_SHOWN = 5  # rows or names an error lists before it only counts


def read(
    path: str | PathLike[str],
    *,
    targets: str | Sequence[str],
    inputs: str | Sequence[str] | None = None,
    time: str | None = None,
) -> Table:
    """Read a table from a CSV or Parquet file.

    Parameters
    ----------
    path : path
        A file that ends in .csv, .csv.gz or .parquet. A CSV has its column names in the first line.
    targets : str or sequence of str
        Names of the columns to predict.
    inputs : str or sequence of str, optional
        Names of the columns to predict from; all other columns of numbers if not given. Columns of
        text and the time are then left out; a column with both numbers and text is an error.
    time : str, optional
        Name of a column that is kept in the table but is no input.

    Returns
    -------
    Table
        The inputs, the targets and the time, as float64.
    """
    path = Path(path)
    table = frame(path)
    given, wanted, held_out = choose(table, path, targets=targets, inputs=inputs, time=time)
    return Table(numbers(table, (*given, *wanted, *held_out), path), given, wanted)


def choose(
    table: pl.DataFrame,
    path: str | PathLike[str],
    *,
    targets: str | Sequence[str],
    inputs: str | Sequence[str] | None = None,
    time: str | None = None,
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Which columns are inputs, which are targets, and which is the time, as for `read`.

    Parameters
    ----------
    table : polars.DataFrame
        As `frame` gives it.
    path : path
        Where the table comes from, for the errors.
    targets, inputs, time
        As for `read`.

    Returns
    -------
    tuple
        Names of the inputs, of the targets, and of the time or nothing.
    """
    wanted = _names(targets)
    held_out = _names(time) if time is not None else ()
    require(table, (*wanted, *held_out), path)
    if inputs is None:
        rest = [name for name in table.columns if name not in (*wanted, *held_out)]
        given = columns_of_numbers(table, rest)
        if not given:
            raise ValueError(
                f"{path} has the columns {_listed(table.columns)}, none of which holds numbers "
                f"and is not the time or a target; expected at least one input: name fewer "
                f"targets than {_listed(wanted)} or add columns"
            )
    else:
        given = _names(inputs)
        require(table, given, path)
    used = (*given, *wanted, *held_out)
    twice = sorted({name for name in used if used.count(name) > 1})
    if twice:
        held = "" if time is None else f" and time={time!r}"
        raise ValueError(
            f"the columns {_listed(twice)} were named more than once among inputs={list(given)}, "
            f"targets={list(wanted)}{held}; expected each column in one place: "
            "remove the repeated names"
        )
    return given, wanted, held_out


def frame(path: str | PathLike[str], *, header: bool = True) -> pl.DataFrame:
    """Read a file as it is, with at least one row.

    Parameters
    ----------
    path : path
        A file that ends in .csv, .csv.gz or .parquet.
    header : bool
        Whether the first line of a CSV holds the names of its columns. If not, it is a row like any
        other.

    Returns
    -------
    polars.DataFrame
        All columns; those of a CSV as text, which `numbers` turns into numbers.
    """
    # Here, not at the top: reading a file is the only thing that needs polars, and importing it
    # takes longer than importing the rest of the datasets.
    import polars as pl

    path = Path(path)
    if not path.is_file():
        what = "a folder" if path.is_dir() else "nothing"
        raise FileNotFoundError(
            f"there is {what} at {path}; expected a file that ends in {', '.join(FORMATS)}: "
            "check the path"
        )
    check_name(path)
    name = path.name.lower()
    try:
        if name.endswith(".parquet"):
            # Not memory mapped: a file on which another process writes would end this one.
            table = pl.read_parquet(path, memory_map=False)
        else:
            # As text: to find the types, polars reads the file a second time, and it would stop at
            # the first number that is spelled wrong, without naming its column.
            table = pl.read_csv(path, has_header=header, infer_schema=False)
    except pl.exceptions.NoDataError:
        raise _no_rows(path) from None
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        kind = "Parquet" if name.endswith(".parquet") else "CSV"
        # The first line says what is wrong; the others advise on arguments of polars.
        reason = (str(error).splitlines() or ["for no stated reason"])[0]
        if "more fields" in reason:
            raise ValueError(
                f"{path} has a row with more fields than its first line has names; expected as "
                "many, separated by commas: check for commas within numbers or text, and for "
                "columns that are separated by other characters"
            ) from error
        raise ValueError(
            f"{path} cannot be read as {kind} ({reason}); expected a complete {kind} file: "
            "check that it was saved or copied to its end"
        ) from error
    if header and not name.endswith(".parquet"):
        _check_header(table.columns, path)
    if table.height == 0:
        raise _no_rows(path)
    return table


def _check_header(names: Sequence[str], path: Path) -> None:
    """The first line of a CSV: names, each of them once, and commas in between."""
    # What polars makes of a name that was there before.
    bare = [re.sub(r"_duplicated_\d+$", "", name) for name in names]
    if all(map(is_number, bare)):
        raise ValueError(
            f"{path} has numbers in its first line, {_listed(bare)}; expected the names of the "
            "columns: add a line with names"
        )
    other = next((mark for mark in ";\t|" if len(names) == 1 and mark in names[0]), None)
    if other:
        raise ValueError(
            f"{path} has one column, {names[0]!r}; expected several, separated by commas: save it "
            f"with ',' in place of {other!r}"
        )
    twice = sorted({b for b, name in zip(bare, names, strict=True) if b != name and b in names})
    if twice:
        raise ValueError(
            f"{path} has more than one column of the name {_listed(twice)}; expected different "
            "names: rename or remove one of them"
        )


def is_number(text: str) -> bool:
    """Whether the text spells a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_name(path: Path) -> None:
    """Raise an error unless the name ends in one of `FORMATS`."""
    if not path.name.lower().endswith(FORMATS):
        raise ValueError(
            f"{path} was given as a table; expected a file that ends in {', '.join(FORMATS)}: "
            "convert or rename it"
        )


def require(table: pl.DataFrame, names: Iterable[str], path: str | PathLike[str]) -> None:
    """Raise an error that names the columns which are not in the table."""
    missing = [name for name in names if name not in table.columns]
    if missing:
        joined = any("," in name for name in missing)
        raise ValueError(
            f"{path} has the columns {_listed(table.columns)}; expected also {_listed(missing)}: "
            "correct the names (capitals and spaces count) or add the columns"
            + (", and give several names one by one, not joined by commas" if joined else "")
        )


def numbers(
    table: pl.DataFrame, names: Sequence[str], path: str | PathLike[str]
) -> dict[str, NDArray[np.float64]]:
    """Take columns of finite numbers from a table.

    Parameters
    ----------
    table : polars.DataFrame
        A table with these columns.
    names : sequence of str
        The columns to take.
    path : path
        Where the table comes from, for the error.

    Returns
    -------
    dict
        One float64 array for each name. Text that spells a number counts as one.
    """
    import polars as pl

    columns: dict[str, NDArray[np.float64]] = {}
    faults: list[str] = []
    for name in names:
        series = table[name]
        if not (series.dtype.is_numeric() or series.dtype == pl.String):
            faults.append(f"column {name!r} holds {series.dtype}")
            continue
        # Missing values come out as NaN, like the text that is no number.
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


def labels(table: pl.DataFrame, name: str, path: str | PathLike[str]) -> NDArray[np.generic]:
    """Take a column of class labels from a table.

    Parameters
    ----------
    table : polars.DataFrame
        A table with this column.
    name : str
        The column to take.
    path : path
        Where the table comes from, for the error.

    Returns
    -------
    array
        Whole numbers where every label is one, otherwise text.
    """
    import polars as pl

    text = table[name].cast(pl.String).str.strip_chars()
    missing = np.flatnonzero((text.is_null() | (text == "")).to_numpy())
    if missing.size:
        shown = ", ".join(str(row + 1) for row in missing[:_SHOWN])
        more = f" and {missing.size - _SHOWN} more" if missing.size > _SHOWN else ""
        raise ValueError(
            f"{path}: column {name!r} has no label in the rows {shown}{more}; expected a label in "
            "every row (rows count from 1, without the header): fill in or remove these rows"
        )
    values = _as_numbers(text)
    if values.null_count() == 0 and bool((values.is_finite() & (values == values.round())).all()):
        return values.cast(pl.Int64).to_numpy()
    return text.to_numpy().astype(np.str_)


def columns_of_numbers(table: pl.DataFrame, names: Sequence[str]) -> tuple[str, ...]:
    """The columns with any number in them.

    One slip of the pen in a column must be an error, which `numbers` raises: leaving the column out
    in silence would train on fewer inputs than the user believes.
    """
    import polars as pl

    return tuple(
        name
        for name in names
        if (dtype := table.schema[name]).is_numeric()
        or (dtype == pl.String and _as_numbers(table[name]).is_finite().any())
    )


def _as_numbers(series: pl.Series) -> pl.Series:
    import polars as pl

    if series.dtype == pl.String:
        series = series.str.strip_chars()
    return series.cast(pl.Float64, strict=False)


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _spelled(value: object) -> str:
    return "empty" if value is None else repr(value)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:40])
    return shown + (f" and {len(names) - 40} more" if len(names) > 40 else "")


def _no_rows(path: Path) -> ValueError:
    return ValueError(
        f"{path} has no rows; expected at least one: check that the file was written to its end"
    )
