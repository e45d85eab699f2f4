"""What the commands share: options, and where words and files go."""

import argparse
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option `--json`."""
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the results as JSON on standard output, and nothing else there",
    )


def check_whole(name: str, value: int | None, least: int) -> None:
    """Refuse a number that is given and too small."""
    if value is not None and value < least:
        raise ValueError(f"--{name} is {value}; expected a whole number of at least {least}")


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
    """What is done, how much of how much, and then more columns."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *more, console=messages
    )


def print_json(results: Any) -> None:
    """On standard output."""
    print(json.dumps(results, indent=2))


def say_written(messages: Console, paths: Iterable[Path]) -> None:
    """On standard error, one line for each file."""
    for path in paths:
        messages.print(f"wrote {path}", highlight=False, markup=False, soft_wrap=True)
