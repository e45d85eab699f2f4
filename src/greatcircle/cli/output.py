"""Options, checks and printing that the commands share.

Text that comes from the user (names of columns, labels, paths) is printed as it is. Rich would read
`[bold]` as a style and `:smile:` as a picture, so `table` and `say` give it `Text`.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

LARGEST = 2**31 - 1
LARGEST_SEED = 2**32 - 1
"""The largest seed that NumPy takes."""


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option `--json`."""
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the results as JSON on standard output, and nothing else there",
    )


def check_whole(name: str, value: int | None, least: int, most: int = LARGEST) -> None:
    """Reject a whole number that is given and out of range."""
    if value is not None and not least <= value <= most:
        allowed = f"of at least {least}" if value < least else f"from {least} to {most}"
        raise ValueError(f"--{name} is {value}; expected a whole number {allowed}")


def check_seed(seed: int) -> None:
    """Reject a seed that NumPy would reject."""
    check_whole("seed", seed, 0, LARGEST_SEED)


def check_model(path: Path) -> None:
    """Reject the path of a model that is not there."""
    if not path.is_file():
        raise FileNotFoundError(
            f"file not found: {path}; expected a model that `greatcircle fit` wrote"
        )


def check_writable(folder: Path) -> None:
    """Fail now, not after training."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"--out is {folder}; expected a folder that can be written ({error.strerror})"
        ) from None


def bars(messages: Console, *more: ProgressColumn) -> Progress:
    """Progress bars: description, bar, how many of how many, and then more columns."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        *more,
        console=messages,
    )


def table(headings: Iterable[str], rows: Iterable[Sequence[str]]) -> Table:
    """Make a table of plain text, the first column left-aligned and the others right-aligned."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, heading in enumerate(headings):
        made.add_column(Text(heading), justify="right" if index else "left", no_wrap=True)
    for row in rows:
        made.add_row(*map(Text, row))
    return made


def say(console: Console, words: str) -> None:
    """Print plain text; lines are not broken."""
    console.print(Text(words), soft_wrap=True)


def print_text(words: str) -> None:
    """Print on standard output, to its end: a full disk is an error here, not when Python ends."""
    with naming("standard output"):
        sys.stdout.write(words)
        sys.stdout.flush()


def print_json(results: Any) -> None:
    """Print results as JSON on standard output."""
    print_text(json.dumps(results, indent=2) + "\n")


def say_written(messages: Console, paths: Iterable[Path]) -> None:
    """Print the files written, one line each."""
    for path in paths:
        say(messages, f"wrote {path}")


@contextmanager
def naming(place: object) -> Iterator[None]:
    """Name the file in errors of the operating system that do not, such as a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(place)
        raise
