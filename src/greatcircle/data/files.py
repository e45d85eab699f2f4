"""Tables from the user's own files: CSV, gzipped CSV or Parquet, read by polars.

Files are checked here, once, for every loader: that the file exists and can be read, that its
columns have names, that the columns asked for are there, and that no value is missing.

A column without a name gets the one that pandas gives it, "Unnamed: 0" for the first column. Such
columns, and `__index_level_0__` of pandas' Parquet files, are row numbers that were saved along
with the data: they are inputs only where they are named.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from greatcircle.data.table import Table

if TYPE_CHECKING:
    import polars as pl

FORMATS = (".csv", ".csv.gz", ".parquet")

_SHOWN = 5  # rows or names an error lists before it only counts

_UNNAMED = re.compile(r"Unnamed: \d+(_level_\d+|\.\d+)?|__index_level_\d+__")
_WHOLE = r"^(0|-?[1-9][0-9]*)$"  # one spelling for each number: no sign +, no zeros in front


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
        A file that ends in .csv, .csv.gz or .parquet. A CSV is encoded in UTF-8 and has its column
        names in the first line; blanks around a name do not count.
    targets : str or sequence of str
        Names of the columns to predict.
    inputs : str or sequence of str, optional
        Names of the columns to predict from; all other columns of numbers if not given. Columns of
        text, columns without a name and the time are then left out; a column with both numbers and
        text is an error.
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
    wanted = find(table, _names(targets), path)
    held_out = find(table, _names(time), path) if time is not None else ()
    if inputs is None:
        others = [name for name in table.columns if name not in (*wanted, *held_out)]
        given = columns_of_numbers(table, [name for name in others if not is_unnamed(name)])
        if not given:
            raise ValueError(
                f"{path} has the columns {_listed(table.columns)}, none of which holds numbers "
                f"and is not the time or a target; expected at least one input: name fewer "
                f"targets than {_listed(wanted)} or add columns"
            )
    else:
        given = find(table, _names(inputs), path)
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
    if path.is_dir():
        raise FileNotFoundError(
            f"{path} is a folder; expected a file that ends in {', '.join(FORMATS)}"
        )
    if not path.is_file():
        raise FileNotFoundError(f"file not found: {path}")
    check_name(path)
    name = path.name.lower()
    try:
        if name.endswith(".parquet"):
            # Not memory mapped: a file on which another process writes would end this one.
            table = pl.read_parquet(path, memory_map=False, glob=False)
        else:
            # As text: to find the types, polars reads the file a second time, and it would stop at
            # the first number that is spelled wrong, without naming its column. The first line is
            # read as a row: polars renames columns of the same name, and does not check that names
            # are UTF-8.
            table = pl.read_csv(path, has_header=False, infer_schema=False, glob=False)
    except pl.exceptions.NoDataError:
        raise _no_rows(path) from None
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        kind = "Parquet" if name.endswith(".parquet") else "CSV"
        # The first line says what is wrong; the others advise on arguments of polars.
        reason = (str(error).splitlines() or ["for no stated reason"])[0]
        if "utf-8" in reason:
            raise _not_utf8(path) from error
        if "more fields" in reason:
            raise ValueError(
                f"{path} has a row with more fields than its first line has names; expected as "
                "many, separated by commas: check for commas within numbers or text, for columns "
                "that are separated by other characters, and for lines above the names"
            ) from error
        raise ValueError(
            f"{path} cannot be read as {kind} ({reason}); expected a complete {kind} file: "
            "check that it was saved or copied to its end"
        ) from error
    if name.endswith(".parquet"):
        table.columns = _unique(table.columns, path)
    else:
        while table.height and not any(cell is not None for cell in table.row(-1)):
            table = table[:-1]  # blank lines at the end
        if header and table.height:
            first = ["" if cell is None else cell for cell in table.row(0)]
            _check_header(first, path)
            table.columns = _unique(first, path)
            table = table[1:]
    if table.height == 0:
        raise _no_rows(path)
    return table


def _check_header(names: Sequence[str], path: Path) -> None:
    """Check that the first line of a CSV holds names, separated by commas."""
    if any("\0" in name for name in names):
        raise _not_utf8(path)
    if any(re.search(r"\r(?!\n)", name) for name in names):
        raise ValueError(
            f"{path} has lines that end in a carriage return alone; expected line feeds: save it "
            "again with the line ends of Unix or Windows"
        )
    if all(map(is_number, names)):
        raise ValueError(
            f"{path} has numbers in its first line, {_listed(names)}; expected the names of the "
            "columns: add a line with names"
        )
    other = next((mark for mark in ";\t|" if len(names) == 1 and mark in names[0]), None)
    if other:
        raise ValueError(
            f"{path} has one column, {names[0]!r}; expected several, separated by commas: save it "
            f"with ',' in place of {other!r}"
        )


def _unique(given: Sequence[str], path: Path) -> list[str]:
    """Names without blanks around them, each once; those that are missing as pandas has them."""
    names = [name.strip() for name in given]
    uses = Counter(name for name in names if name)
    twice = sorted(name for name in uses if uses[name] > 1)
    if twice:
        raise ValueError(
            f"{path} has more than one column of the name {_listed(twice)}; expected different "
            "names: rename or remove one of them"
        )
    for place, name in enumerate(names):
        if not name:
            unnamed, copies = f"Unnamed: {place}", 0
            while (name := f"{unnamed}.{copies}" if copies else unnamed) in uses:
                copies += 1
            names[place] = name
            uses[name] = 1
    return names


def is_unnamed(name: str) -> bool:
    """Whether the name is one that pandas gives to a column without a name."""
    return _UNNAMED.fullmatch(name) is not None


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


def find(table: pl.DataFrame, names: Sequence[str], path: str | PathLike[str]) -> tuple[str, ...]:
    """Find columns by their names; blanks around a name do not count.

    Parameters
    ----------
    table : polars.DataFrame
        As `frame` gives it.
    names : sequence of str
        The columns to find.
    path : path
        Where the table comes from, for the error.

    Returns
    -------
    tuple of str
        The names as they are in the table. Different names never find the same column.
    """
    columns = set(table.columns)
    found = {name: name if name in columns else name.strip() for name in names}
    uses = Counter(found.values())
    missing = [n for n, c in found.items() if c not in columns or (c != n and uses[c] > 1)]
    if missing:
        lower = {column.lower(): column for column in table.columns}
        like = [get_close_matches(name.lower(), lower, 1) for name in missing[:3]]
        guesses = dict.fromkeys(repr(lower[match[0]]) for match in like if match)
        raise ValueError(
            f"{path}: column{'s' if len(missing) > 1 else ''} {_listed(missing)} not found"
            + ("; give names one by one, without commas" if any("," in n for n in missing) else "")
            + (f"; did you mean {', '.join(guesses)}?" if guesses else "")
            + f" (columns: {_listed(table.columns)})"
        )
    return tuple(found[name] for name in names)


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

    Labels are compared by their spelling, without the blanks around them, so that different labels
    stay different: "7", "007", "+7" and "7.0" are four classes. They are returned as int64 where
    every label is a whole number in its usual spelling (no "+", no "-0", no zeros in front, no
    point, within int64), otherwise all of them as text.

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
        int64 or text.
    """
    import polars as pl

    kind = table.schema[name]
    plain = (pl.String, pl.Categorical, pl.Enum, pl.Boolean, pl.Date, pl.Datetime, pl.Time, pl.Null)
    if not (kind.is_numeric() or kind in plain):
        raise ValueError(
            f"{path}: column {name!r} holds {kind}; expected labels: text or whole numbers"
        )
    column = table[name]
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


def _check_labels(wrong: pl.Series, what: str, name: str, path: str | PathLike[str]) -> None:
    rows = np.flatnonzero(wrong.fill_null(False).to_numpy())
    if rows.size:
        shown = ", ".join(str(row + 1) for row in rows[:_SHOWN])
        more = f" and {rows.size - _SHOWN} more" if rows.size > _SHOWN else ""
        raise ValueError(
            f"{path}: column {name!r} has {what} in the rows {shown}{more}; expected a label in "
            "every row (rows count from 1, without the header): fill in or remove these rows"
        )


def columns_of_numbers(table: pl.DataFrame, names: Sequence[str]) -> tuple[str, ...]:
    """Names of the columns with at least one number.

    A column with one typing error must be an error, which `numbers` raises: leaving the column out
    would train on fewer inputs than the user believes.
    """
    import polars as pl

    types = table.schema  # which polars makes anew at each call
    return tuple(
        name
        for name in names
        if (dtype := types[name]).is_numeric()
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


def _not_utf8(path: Path) -> ValueError:
    return ValueError(
        f"{path} is not encoded in UTF-8; save it as 'CSV UTF-8', or convert it: "
        "iconv -f WINDOWS-1252 -t UTF-8 OLD.csv > NEW.csv (or -f UTF-16)"
    )
