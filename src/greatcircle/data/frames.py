"""Read a CSV or Parquet file into a polars data frame, and check its column names.

A column without a name gets the one that pandas gives it, "Unnamed: 0" for the first column. Such
columns, and `__index_level_0__` of pandas' Parquet files, are row numbers saved along with the
data: they are inputs only if the user names them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from greatcircle._runtime.extras import require

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "FORMATS",
    "check_name",
    "find_columns",
    "is_number",
    "is_unnamed",
    "listed",
    "read_frame",
]

FORMATS = (".csv", ".csv.gz", ".parquet")

_UNNAMED = re.compile(r"Unnamed: \d+(_level_\d+|\.\d+)?|__index_level_\d+__")


def read_frame(path: str | PathLike[str], *, header: bool = True) -> pl.DataFrame:
    """Read a file with at least one row.

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
        All columns; those of a CSV as text, which `columns.numbers` converts.
    """
    path = Path(path)
    if path.is_dir():
        raise FileNotFoundError(
            f"{path} is a folder; expected a file that ends in {', '.join(FORMATS)}"
        )
    if not path.is_file():
        raise FileNotFoundError(f"file not found: {path}")
    check_name(path)
    frame = _parse(path)
    if _is_parquet(path):
        frame.columns = _checked_names(frame.columns, path)
    else:
        while frame.height and not any(cell is not None for cell in frame.row(-1)):
            frame = frame[:-1]  # blank lines at the end
        if header and frame.height:
            first = ["" if cell is None else cell for cell in frame.row(0)]
            _check_header(first, path)
            frame.columns = _checked_names(first, path)
            frame = frame[1:]
    if frame.height == 0:
        raise _no_rows(path)
    return frame


def check_name(path: Path) -> None:
    """Raise an error unless the name ends in one of `FORMATS`."""
    if not path.name.lower().endswith(FORMATS):
        raise ValueError(
            f"{path} was given as a table; expected a file that ends in {', '.join(FORMATS)}: "
            "convert or rename it"
        )


def find_columns(
    columns: Sequence[str], names: Sequence[str], path: str | PathLike[str]
) -> tuple[str, ...]:
    """Find columns by their names, ignoring blanks around a name.

    Parameters
    ----------
    columns : sequence of str
        Names of all columns of a file.
    names : sequence of str
        The columns to find.
    path : path
        The file, for the error.

    Returns
    -------
    tuple of str
        The names in the file, unchanged. Different names never find the same column.
    """
    known = set(columns)
    found = {name: name if name in known else name.strip() for name in names}
    uses = Counter(found.values())
    missing = [n for n, c in found.items() if c not in known or (c != n and uses[c] > 1)]
    if missing:
        lower = {column.lower(): column for column in columns}
        similar = [get_close_matches(name.lower(), lower, 1) for name in missing[:3]]
        guesses = dict.fromkeys(repr(lower[match[0]]) for match in similar if match)
        raise ValueError(
            f"{path}: column{'s' if len(missing) > 1 else ''} {listed(missing)} not found"
            + ("; separate names by spaces, not commas" if any("," in n for n in missing) else "")
            + (f"; did you mean {', '.join(guesses)}?" if guesses else "")
            + f" (columns: {listed(columns)})"
        )
    return tuple(found[name] for name in names)


def is_unnamed(name: str) -> bool:
    """Return whether the name is one that pandas gives to a column without a name."""
    return _UNNAMED.fullmatch(name) is not None


def is_number(text: str) -> bool:
    """Return whether the text spells a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def listed(names: Sequence[str]) -> str:
    """Return names for an error message: in quotes, at most 40 of them."""
    shown = ", ".join(repr(name) for name in names[:40])
    return shown + (f" and {len(names) - 40} more" if len(names) > 40 else "")


def _is_parquet(path: Path) -> bool:
    return path.name.lower().endswith(".parquet")


def _parse(path: Path) -> pl.DataFrame:
    """Return all cells; of a CSV as text, with the header in the first row."""
    # Loaded here, not at the top: importing polars takes longer than importing this package.
    pl = require("polars", "app", f"reading {path.name}")
    try:
        if _is_parquet(path):
            # Not memory mapped: if another process wrote to the file, this process would crash.
            return pl.read_parquet(path, memory_map=False, glob=False)
        # As text: to infer types, polars reads the file a second time, and it stops at the first
        # misspelled number without naming its column. The header is read as a row: polars renames
        # columns of the same name, and does not check that names are UTF-8.
        return pl.read_csv(path, has_header=False, infer_schema=False, glob=False)
    except pl.exceptions.NoDataError:
        raise _no_rows(path) from None
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ValueError:
    kind = "Parquet" if _is_parquet(path) else "CSV"
    # The first line says what is wrong; the others advise on arguments of polars.
    reason = (str(error).splitlines() or ["for no stated reason"])[0]
    if "utf-8" in reason:
        return _not_utf8(path)
    if "more fields" in reason:
        return ValueError(
            f"{path} has a row with more fields than its first line has names; expected the same "
            "number, separated by commas: check for commas within numbers or text, for columns "
            "that are separated by other characters, and for lines above the names"
        )
    return ValueError(
        f"{path} cannot be read as {kind} ({reason}); expected a complete {kind} file: "
        "check that it was saved or copied to its end"
    )


def _check_header(names: Sequence[str], path: Path) -> None:
    """Check that the first line of a CSV holds names, separated by commas."""
    if any("\0" in name for name in names):
        raise _not_utf8(path)
    if any(re.search(r"\r(?!\n)", name) for name in names):
        raise ValueError(
            f"{path} has lines that end in a carriage return alone; expected line feeds: save it "
            "again with Unix or Windows line endings"
        )
    if all(map(is_number, names)):
        raise ValueError(
            f"{path} has numbers in its first line, {listed(names)}; expected the names of the "
            "columns: add a line with names"
        )
    other = next((mark for mark in ";\t|" if len(names) == 1 and mark in names[0]), None)
    if other:
        raise ValueError(
            f"{path} has one column, {names[0]!r}; expected several, separated by commas: save it "
            f"with ',' in place of {other!r}"
        )


def _checked_names(given: Sequence[str], path: Path) -> list[str]:
    """Return distinct names without blanks around them; missing ones as pandas names them."""
    names = [name.strip() for name in given]
    uses = Counter(name for name in names if name)
    repeated = sorted(name for name in uses if uses[name] > 1)
    if repeated:
        raise ValueError(
            f"{path} has more than one column named {listed(repeated)}; expected different "
            "names: rename or remove one of them"
        )
    for position, name in enumerate(names):
        if not name:
            unnamed, copies = f"Unnamed: {position}", 0
            while (name := f"{unnamed}.{copies}" if copies else unnamed) in uses:
                copies += 1
            names[position] = name
            uses[name] = 1
    return names


def _no_rows(path: Path) -> ValueError:
    return ValueError(
        f"{path} has no rows; expected at least one: check that the file was written to its end"
    )


def _not_utf8(path: Path) -> ValueError:
    return ValueError(
        f"{path} is not encoded in UTF-8; save it as 'CSV UTF-8', or convert it: "
        "iconv -f WINDOWS-1252 -t UTF-8 OLD.csv > NEW.csv (or -f UTF-16)"
    )
