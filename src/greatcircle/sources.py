"""Rows that are not all in memory: memory-mapped arrays, Parquet data sets, iterators of batches.

A source draws so many rows at a time, other ones each time. Nothing else is asked of it, so memory
is needed for one batch only.
"""

import mmap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:  # a quarter of a second that only Parquet needs
    import polars as pl


class Rows(NamedTuple):
    """Rows of data: inputs, targets (or labels), and the weight of each row or None."""

    inputs: np.ndarray
    targets: np.ndarray
    weight: np.ndarray | None = None

    def take(self, which: Any) -> "Rows":
        """Some of them."""
        weight = None if self.weight is None else self.weight[which]
        return Rows(self.inputs[which], self.targets[which], weight)

    def __len__(self) -> int:
        return len(self.inputs)


class Source(Protocol):
    """Where rows come from."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """Of the inputs, where they have any."""
        ...

    @property
    def target_names(self) -> tuple[str, ...]:
        """Of the targets, or none."""
        ...

    def draw(self, rows: int) -> Rows | None:
        """So many rows, or fewer at the end; None where there are no more."""
        ...


def source(X: Any, y: Any, sample_weight: Any, seed: int) -> Source | None:
    """A source for data that must not be read as a whole; None for everything else.

    Memory-mapped arrays, the path of a Parquet file, folder or pattern (y: names of the target
    columns), or an iterable of batches (X, y) or (X, y, sample_weight) (y: None).
    """
    if isinstance(X, np.memmap):
        return Mapped(X, y, sample_weight, seed)
    if isinstance(X, str | Path):
        _refuse_weights(sample_weight, "a Parquet data set; read it with polars and pass arrays")
        return Parquet(X, y, seed)
    if isinstance(X, Iterator) or (y is None and _is_iterable_of_batches(X)):
        _refuse_weights(sample_weight, "an iterator: it yields (X, y, sample_weight)")
        if y is not None:
            raise ValueError(
                "X is an iterator of batches and y is given; expected y=None: each batch is a "
                "tuple (X, y) and brings its own y"
            )
        return Batches(X)
    if y is None and isinstance(X, list | tuple) and X and isinstance(X[0], tuple):
        raise ValueError(
            f"X is a {type(X).__name__} of tuples and y is None; expected y, or for batches "
            "(X, y) an iterator: iter(X)"
        )
    return None


def _refuse_weights(sample_weight: Any, kind: str) -> None:
    if sample_weight is not None:
        raise ValueError(f"sample_weight cannot be given apart from {kind}")


def _is_iterable_of_batches(X: Any) -> bool:
    return (
        isinstance(X, Iterable)
        and not hasattr(X, "__array__")
        and not hasattr(X, "__dataframe__")
        and not isinstance(X, Sequence)
    )


class Mapped:
    """Arrays on disk: random rows, in the order of the file."""

    names: tuple[str, ...] | None = None
    target_names: tuple[str, ...] = ()

    def __init__(self, X: np.ndarray, y: Any, sample_weight: Any, seed: int) -> None:
        self.X, self.y = X, np.asanyarray(y)
        self.weight = None if sample_weight is None else np.asanyarray(sample_weight)
        if X.ndim != 2:
            raise ValueError(f"X has shape {X.shape}; expected two dimensions, rows by columns")
        for name, values in (("y", self.y), ("sample_weight", self.weight)):
            if values is not None and len(values) != len(X):
                raise ValueError(
                    f"X has {len(X)} rows and {name} {len(values)}; expected the same number"
                )
        self._rng = np.random.default_rng(seed)

    def draw(self, rows: int) -> Rows:
        """Random ones; all of them where there are no more than that."""
        if rows >= len(self.X):
            which = np.arange(len(self.X))
        else:
            which = np.sort(self._rng.integers(0, len(self.X), rows))
        weight = None if self.weight is None else _read(self.weight, which)
        return Rows(_read(self.X, which), _read(self.y, which), weight)


def _read(values: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Rows of an array, through a mapping of its own where it is a file.

    Pages that have been read stay in the process's memory as long as their mapping does.
    """
    if isinstance(values, np.memmap) and isinstance(values.base, mmap.mmap):
        columns_first = values.flags.f_contiguous and not values.flags.c_contiguous
        place: Any = values.filename
        values = np.memmap(
            place,
            dtype=values.dtype,
            mode="r",
            offset=values.offset,
            shape=values.shape,
            order="F" if columns_first else "C",
        )
    return np.array(values[which])


class Parquet:
    """A Parquet file, a folder of them or a pattern: short pieces from random places."""

    PIECES = 32

    def __init__(self, path: str | Path, targets: Any, seed: int) -> None:
        path = Path(path)
        if path.is_dir():
            path = path / "**/*.parquet"
        elif path.suffix != ".parquet":
            raise ValueError(
                f"X is the path {str(path)!r}; expected a .parquet file or a folder of them "
                "(read other files with greatcircle.datasets.files, or polars)"
            )
        if isinstance(targets, str):
            targets = [targets]
        if not isinstance(targets, Sequence) or not all(isinstance(t, str) for t in targets):
            given = "None" if targets is None else f"a {type(targets).__name__}"
            raise ValueError(
                f"y is {given}; with a Parquet data set it names the target "
                "columns, as in fit('flight.parquet', ['fx', 'fz'])"
            )
        import polars as pl

        self._frame = pl.scan_parquet(path)
        schema = _schema(self._frame, path)
        if missing := [t for t in targets if t not in schema]:
            raise ValueError(
                f"y names {', '.join(missing)}; the columns are {', '.join(schema.names())}"
            )
        others = {name: kind for name, kind in schema.items() if name not in targets}
        if words := [name for name, kind in others.items() if not kind.is_numeric()]:
            raise ValueError(
                f"X is {path}, which has columns without numbers: {', '.join(words)}; write a copy "
                "without them, or encode them as numbers"
            )
        self.names, self.target_names = tuple(others), tuple(targets)
        self.rows = self._frame.select(pl.len()).collect().item()
        self._rng = np.random.default_rng(seed)

    def draw(self, rows: int) -> Rows:
        """From random places; all rows where there are no more than that."""
        if rows >= self.rows:
            return self._read([self._frame])
        length = -(-rows // self.PIECES)
        places = np.sort(self._rng.integers(0, self.rows - length + 1, -(-rows // length)))
        drawn = self._read([self._frame.slice(int(place), length) for place in places])
        return drawn.take(slice(0, rows))

    def _read(self, frames: "list[pl.LazyFrame]") -> Rows:
        import polars as pl

        frame = pl.concat(pl.collect_all(frames))
        targets = frame.select(self.target_names).to_numpy()
        return Rows(
            frame.drop(self.target_names).to_numpy(),
            targets[:, 0] if len(self.target_names) == 1 else targets,
        )


def _schema(frame: "pl.LazyFrame", path: Path) -> "pl.Schema":
    """Names and types of the columns, or an error that names the path."""
    import polars as pl

    try:
        return frame.collect_schema()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"X is {path}, and there is no such file; check the name and the folder, which is "
            f"seen from {Path.cwd()}"
        ) from None
    except pl.exceptions.PolarsError as error:
        reason = (str(error).splitlines() or ["for no stated reason"])[0]
        empty = "**" in path.parts and not any(path.parents[1].rglob("*.parquet"))
        raise ValueError(
            f"X is {path}, which holds no Parquet file; expected at least one"
            if empty
            else f"X is {path}, which cannot be read as Parquet ({reason}); expected complete files"
        ) from error


class Batches:
    """An iterable of (X, y) or (X, y, sample_weight), taken as it comes.

    One that can be gone through again, like a data loader, is, when it ends.
    """

    names: tuple[str, ...] | None = None
    target_names: tuple[str, ...] = ()

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches
        self._again = not isinstance(batches, Iterator)
        self._rest = iter(batches)
        self._kept: list[Rows] = []

    def draw(self, rows: int) -> Rows | None:
        """The next ones."""
        kept, self._kept = self._kept, []
        ended = False
        while sum(map(len, kept)) < rows:
            batch = next(self._rest, None)
            if batch is None:
                if not self._again or ended:
                    break
                self._rest, ended = iter(self._batches), True
                continue
            kept.append(_checked_batch(batch))
        if not kept:
            return None
        weights = [r.weight if r.weight is not None else np.ones(len(r)) for r in kept]
        drawn = Rows(
            np.concatenate([r.inputs for r in kept]),
            np.concatenate([r.targets for r in kept]),
            np.concatenate(weights) if any(r.weight is not None for r in kept) else None,
        )
        if len(drawn) > rows:
            self._kept = [drawn.take(slice(rows, None))]
        return drawn.take(slice(0, rows))


def _checked_batch(batch: Any) -> Rows:
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        raise ValueError(
            f"a batch is a {type(batch).__name__}; expected a tuple (X, y) or (X, y, sample_weight)"
        )
    rows = Rows(*map(np.asarray, batch))
    if rows.inputs.ndim != 2 or len({len(values) for values in batch}) != 1:
        raise ValueError(
            f"a batch has shapes {', '.join(str(np.shape(b)) for b in batch)}; expected rows by "
            "columns, and the same number of rows in all"
        )
    return rows
