"""Options, checks, tables and messages that the commands share.

Text from the user (names of columns, labels, paths) is printed unchanged: rich would interpret
`[bold]` as a style and `:smile:` as an emoji, so `table` and `print_plain` pass it as `Text`.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from greatcircle._runtime.extras import require

if TYPE_CHECKING:
    from greatcircle.model import Model

__all__ = [
    "add_json",
    "check_folder",
    "check_integer",
    "check_seed",
    "json_bytes",
    "load_model",
    "message",
    "print_json",
    "print_plain",
    "print_text",
    "print_written",
    "progress_bars",
    "require_app",
    "table",
]

LARGEST_INTEGER = 2**31 - 1
LARGEST_SEED = 2**32 - 1
"""The largest seed that NumPy accepts."""


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option `--json`."""
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the results as JSON on standard output, and nothing else there",
    )


def check_integer(
    name: str, value: int | None, minimum: int, maximum: int = LARGEST_INTEGER
) -> None:
    """Reject the value of an option that is out of range; None is accepted."""
    if value is not None and not minimum <= value <= maximum:
        valid = f"of at least {minimum}" if value < minimum else f"from {minimum} to {maximum}"
        raise ValueError(f"--{name} is {value}; expected a whole number {valid}")


def check_seed(seed: int) -> None:
    """Reject a seed that NumPy would reject."""
    check_integer("seed", seed, 0, LARGEST_SEED)


def check_folder(folder: Path) -> None:
    """Create the output folder and check that it is writable, before any long computation."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"--out is {folder}; expected a writable folder ({error.strerror})"
        ) from None


def require_app(*packages: str) -> None:
    """Check that packages of the extra [app] are installed, before any long computation."""
    for package in packages:
        require(package, "app", "this command")


def load_model(path: Path) -> "Model":
    """Read a model file."""
    if not path.is_file():
        raise FileNotFoundError(
            f"file not found: {path}; expected a model file written by `greatcircle fit`"
        )
    from greatcircle import storage

    return storage.load(path)


def progress_bars(messages: Console, *columns: ProgressColumn) -> Progress:
    """Return progress bars with a description, a count and further columns."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        *columns,
        console=messages,
    )


def table(
    headings: Iterable[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    caption: str | None = None,
) -> Table:
    """Return a table of plain text, the first column aligned left and the others right."""
    made = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, pad_edge=False)
    for index, heading in enumerate(headings):
        made.add_column(Text(heading), justify="right" if index else "left", no_wrap=True)
    for row in rows:
        made.add_row(*map(Text, row))
    return made


def print_plain(console: Console, text: str) -> None:
    """Print plain text without breaking lines."""
    console.print(Text(text), soft_wrap=True)


def message(messages: Console, text: str) -> None:
    """Print a message of the program on standard error."""
    print_plain(messages, f"greatcircle: {text}")


def print_text(text: str) -> None:
    """Print on standard output and flush it, so that a full disk is an error here, not at exit."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:  # a full disk, for example, is reported without a name
        error.filename = error.filename or "standard output"
        raise


def print_json(results: Mapping[str, Any]) -> None:
    """Print results as JSON on standard output."""
    print_text(json.dumps(results, indent=2) + "\n")


def json_bytes(results: Mapping[str, Any]) -> bytes:
    """Return the content of `results.json`."""
    return (json.dumps(results, indent=2, allow_nan=False) + "\n").encode("utf-8")


def print_written(messages: Console, paths: Iterable[Path]) -> None:
    """Print the files written, one line each."""
    for path in paths:
        print_plain(messages, f"wrote {path}")
