"""Rows of Parquet files: short runs of neighbouring rows from random positions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from greatcircle._runtime.extras import require
from greatcircle.data.checks import check_batch
from greatcircle.data.frames import find_columns, is_unnamed
from greatcircle.data.rows import Rows
from greatcircle.data.sources.source import decode_position, encode_position, skip_held_out

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Parquet"]


class Parquet:
    """A source of the rows of a Parquet file, a folder of them, or a glob pattern."""

    RUNS = 32
    """Runs of neighbouring rows in a batch: single rows would be slow to read."""

    def __init__(self, path: str | Path, targets: Any, seed: int) -> None:
        path = Path(path)
        if path.is_dir():
            path = path / "**/*.parquet"
        elif path.suffix != ".parquet":
            raise ValueError(
                f"X is the path {str(path)!r}; expected a .parquet file or a folder of them "
                "(read other files with greatcircle.datasets.read)"
            )
        if isinstance(targets, str):
            targets = [targets]
        if not isinstance(targets, Sequence) or not all(isinstance(t, str) for t in targets):
            given = "None" if targets is None else f"a {type(targets).__name__}"
            raise ValueError(
                f"y is {given}; with a Parquet data set it names the target "
                "columns, as in fit('flight.parquet', ['fx', 'fz'])"
            )
        self._polars = require("polars", "app", "training on Parquet files")
        self._frame = self._polars.scan_parquet(path)
        schema = _schema(self._frame, path)
        self.target_names = find_columns(schema.names(), targets, path)
        others = {
            name: kind
            for name, kind in schema.items()
            if name not in self.target_names and not is_unnamed(name)  # row numbers of pandas
        }
        if text := [name for name, kind in others.items() if not kind.is_numeric()]:
            raise ValueError(
                f"X is {path}, which has non-numeric columns: {', '.join(text)}; write a copy "
                "without them, or encode them as numbers"
            )
        self.names = tuple(others)
        self.size = self._frame.select(self._polars.len()).collect().item()
        self._rng = np.random.default_rng(seed)
        self._held_out = np.arange(0)

    def sample(self, rows: int) -> Rows:
        """Return runs of rows from random positions, or all rows if there are at most this many."""
        return self.draw(rows)

    def hold_out(self, rows: int) -> Rows:
        """Return runs from random positions, and never draw them again.

        There are fewer rows if two runs overlap.
        """
        self._held_out = np.unique(self._random_runs(self.size, rows))
        return self._read(self._held_out)

    def draw(self, rows: int) -> Rows:
        """Return runs of rows from random positions, or all rows if there are at most this many."""
        count = self.size - len(self._held_out)
        which = np.arange(count) if rows >= count else self._random_runs(count, rows)
        return self._read(skip_held_out(self._held_out, which))

    @property
    def position(self) -> np.ndarray:
        """The state of the random generator."""
        return encode_position(self._rng.bit_generator.state)

    def seek(self, position: np.ndarray) -> None:
        """Restore the state of the random generator."""
        self._rng.bit_generator.state = decode_position(position)

    def _random_runs(self, count: int, rows: int) -> np.ndarray:
        """Return the numbers of `rows` rows among `count`, in runs."""
        length = -(-rows // self.RUNS)
        starts = np.sort(self._rng.integers(0, count - length + 1, -(-rows // length)))
        return (starts[:, None] + np.arange(length)).ravel()[:rows]

    def _read(self, which: np.ndarray) -> Rows:
        runs = np.split(which, np.flatnonzero(np.diff(which) != 1) + 1)
        slices = [self._frame.slice(int(run[0]) if len(run) else 0, len(run)) for run in runs]
        frame = self._polars.concat(self._polars.collect_all(slices))
        targets = frame.select(self.target_names).to_numpy()
        return check_batch(
            Rows(
                frame.select(self.names).to_numpy(),
                targets[:, 0] if len(self.target_names) == 1 else targets,
            )
        )


def _schema(frame: pl.LazyFrame, path: Path) -> pl.Schema:
    """Return names and types of the columns, or raise an error that names the path."""
    polars = require("polars", "app", "training on Parquet files")
    try:
        return frame.collect_schema()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"file not found: {path} (given as X); check the name and the folder, which is "
            f"relative to {Path.cwd()}"
        ) from None
    except polars.exceptions.PolarsError as error:
        reason = (str(error).splitlines() or ["for no stated reason"])[0]
        empty = "**" in path.parts and not any(path.parents[1].rglob("*.parquet"))
        raise ValueError(
            f"no Parquet files found: {path} (given as X); expected at least one"
            if empty
            else f"X is {path}, which cannot be read as Parquet ({reason}); expected complete files"
        ) from error
