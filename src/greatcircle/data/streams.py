"""Where batches of rows come from: arrays, Parquet data sets, iterables of batches.

A source draws so many rows at a time, other ones each time, so memory is needed for one batch only.
Where it is can be written down and found again; rows held out are never drawn.
"""

import json
import mmap
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

    def take(self, which: slice | np.ndarray) -> "Rows":
        """Some of them, by their numbers."""

        def of(values: np.ndarray) -> np.ndarray:
            # Twice as fast as values[which], and the same.
            return values[which] if isinstance(which, slice) else np.take(values, which, axis=0)

        weight = None if self.weight is None else of(self.weight)
        return Rows(of(self.inputs), of(self.targets), weight)

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

    @property
    def size(self) -> int | None:
        """How many rows there are, where that is known."""
        ...

    def sample(self, rows: int) -> Rows | None:
        """So many rows to look at before anything is drawn, or all; None where there are none."""
        ...

    def hold_out(self, rows: int) -> Rows | None:
        """So many rows that are never drawn, or fewer; once, before anything is drawn."""
        ...

    def draw(self, rows: int) -> Rows | None:
        """So many rows, or fewer at the end; None where there are no more."""
        ...

    @property
    def position(self) -> np.ndarray:
        """All that decides what is drawn next."""
        ...

    def seek(self, place: np.ndarray) -> None:
        """Go on to a place that a source of the same rows and seed has been at."""
        ...


def source(X: Any, y: Any, sample_weight: Any, seed: int) -> Source | None:
    """A source for data that must not be read as a whole; None for everything else.

    Memory-mapped arrays, the path of a Parquet file, folder or pattern (y: names of the target
    columns), or an iterable of batches (X, y) or (X, y, sample_weight) (y: None). A list is one of
    batches if y is None and its entries are tuples of two or three arrays.
    """
    if isinstance(X, np.memmap):
        return Arrays(X, y, sample_weight, seed)
    if isinstance(X, str | Path):
        _refuse_weights(sample_weight, "a Parquet data set; read it with polars and pass arrays")
        return Parquet(X, y, seed)
    if isinstance(X, Iterator) or (y is None and _is_iterable_of_batches(X)):
        _refuse_weights(sample_weight, "batches: each is a tuple (X, y, sample_weight)")
        if y is not None:
            raise ValueError(
                "X is an iterator of batches and y is given; expected y=None: each batch is a "
                "tuple (X, y) and brings its own y"
            )
        return Batches(X)
    return None


def _refuse_weights(sample_weight: Any, kind: str) -> None:
    if sample_weight is not None:
        raise ValueError(f"sample_weight cannot be given apart from {kind}")


def _is_iterable_of_batches(X: Any) -> bool:
    if isinstance(X, Sequence):
        return bool(X) and all(map(_is_batch, X))
    return (
        isinstance(X, Iterable) and not hasattr(X, "__array__") and not hasattr(X, "__dataframe__")
    )


def _is_batch(entry: Any) -> bool:
    """A tuple of numbers is a row."""
    return (
        isinstance(entry, tuple)
        and len(entry) in (2, 3)
        and all(hasattr(part, "__array__") and hasattr(part, "__len__") for part in entry)
    )


class Arrays:
    """Arrays in memory or on disk: random rows, in the order of the arrays."""

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
        self.size = len(X)
        self._rng = np.random.default_rng(seed)
        self._held = np.arange(0)

    def sample(self, rows: int) -> Rows:
        """Random ones; all of them where there are no more than that."""
        return self.draw(rows)

    def hold_out(self, rows: int) -> Rows:
        """Random ones."""
        self._held = np.sort(self._rng.choice(self.size, rows, replace=False))
        return self._take(self._held)

    def draw(self, rows: int) -> Rows:
        """Random ones; all of them where there are no more than that."""
        left = self.size - len(self._held)
        which = np.arange(left) if rows >= left else np.sort(self._rng.integers(0, left, rows))
        return self._take(_besides(self._held, which))

    @property
    def position(self) -> np.ndarray:
        """The generator's state."""
        return _packed(self._rng.bit_generator.state)

    def seek(self, place: np.ndarray) -> None:
        """To any place."""
        self._rng.bit_generator.state = _unpacked(place)

    def _take(self, which: np.ndarray) -> Rows:
        weight = None if self.weight is None else _read(self.weight, which)
        return Rows(_read(self.X, which), _read(self.y, which), weight)


def _besides(held: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Numbers of rows that were counted without those held out, which are in order."""
    return which + np.searchsorted(held - np.arange(len(held)), which, side="right")


def _packed(place: Mapping[str, Any]) -> np.ndarray:
    """As an array, which any file can hold: a generator's state has whole numbers of 128 bits."""
    return np.frombuffer(json.dumps(place).encode(), np.uint8)


def _unpacked(place: np.ndarray) -> dict[str, Any]:
    return json.loads(place.tobytes())


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

        from greatcircle.data.files import is_unnamed

        self._frame = pl.scan_parquet(path)
        schema = _schema(self._frame, path)
        if missing := [t for t in targets if t not in schema]:
            raise ValueError(
                f"y names {', '.join(missing)}; the columns are {', '.join(schema.names())}"
            )
        others = {
            name: kind
            for name, kind in schema.items()
            if name not in targets and not is_unnamed(name)  # row numbers that pandas saved
        }
        if words := [name for name, kind in others.items() if not kind.is_numeric()]:
            raise ValueError(
                f"X is {path}, which has columns without numbers: {', '.join(words)}; write a copy "
                "without them, or encode them as numbers"
            )
        self.names, self.target_names = tuple(others), tuple(targets)
        self.size = self._frame.select(pl.len()).collect().item()
        self._rng = np.random.default_rng(seed)
        self._held = np.arange(0)

    def sample(self, rows: int) -> Rows:
        """From random places; all rows where there are no more than that."""
        return self.draw(rows)

    def hold_out(self, rows: int) -> Rows:
        """From random places; fewer where two pieces have rows in common."""
        self._held = np.unique(self._pieces(self.size, rows))
        return self._read(self._held)

    def draw(self, rows: int) -> Rows:
        """From random places; all rows where there are no more than that."""
        left = self.size - len(self._held)
        which = np.arange(left) if rows >= left else self._pieces(left, rows)
        return self._read(_besides(self._held, which))

    @property
    def position(self) -> np.ndarray:
        """The generator's state."""
        return _packed(self._rng.bit_generator.state)

    def seek(self, place: np.ndarray) -> None:
        """To any place."""
        self._rng.bit_generator.state = _unpacked(place)

    def _pieces(self, among: int, rows: int) -> np.ndarray:
        """Numbers of so many rows, in pieces."""
        length = -(-rows // self.PIECES)
        places = np.sort(self._rng.integers(0, among - length + 1, -(-rows // length)))
        return (places[:, None] + np.arange(length)).ravel()[:rows]

    def _read(self, which: np.ndarray) -> Rows:
        import polars as pl

        runs = np.split(which, np.flatnonzero(np.diff(which) != 1) + 1)
        first = [int(run[0]) if len(run) else 0 for run in runs]
        slices = [
            self._frame.slice(place, len(run)) for place, run in zip(first, runs, strict=True)
        ]
        frame = pl.concat(pl.collect_all(slices))
        targets = frame.select(self.target_names).to_numpy()
        return Rows(
            frame.select(self.names).to_numpy(),
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

    One that can be gone through again, like a list or a data loader, is, when it ends.
    """

    names: tuple[str, ...] | None = None
    target_names: tuple[str, ...] = ()
    size = None

    PIECE = 65_536
    """So many rows at a time are skipped."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches
        self._again = not isinstance(batches, Iterator)
        self._rest = iter(batches)
        self._begun = False
        self._kept: list[Rows] = []
        self._held = self._skip = 0
        self._drawn = self._checksum = 0

    def sample(self, rows: int) -> Rows | None:
        """The first ones, which are drawn later all the same; all of them at most once."""
        first = self._next(rows)
        self._kept = [] if first is None else [first, *self._kept]
        return first

    def hold_out(self, rows: int) -> Rows | None:
        """The first ones of the first pass. Later passes leave out as many at their beginning."""
        self._held = rows
        return self.draw(rows)

    def draw(self, rows: int) -> Rows | None:
        """The next ones."""
        drawn = self._next(rows)
        if drawn is not None:
            self._drawn += len(drawn)
            values = np.ascontiguousarray(drawn.inputs, np.float64)
            self._checksum = zlib.crc32(values.tobytes(), self._checksum)
        return drawn

    @property
    def position(self) -> np.ndarray:
        """How many rows have been drawn, and a checksum of their inputs."""
        return _packed({"rows": self._drawn, "checksum": self._checksum})

    def seek(self, place: np.ndarray) -> None:
        """Forward only, by drawing, so it is known whether they are the same rows."""
        there = _unpacked(place)
        while (left := there["rows"] - self._drawn) > 0 and self.draw(min(left, self.PIECE)):
            pass
        if (self._drawn, self._checksum) != (there["rows"], there["checksum"]):
            raise ValueError(
                f"X gives other batches than before: of the {there['rows']} rows that the "
                "checkpoint has drawn, not all came again; expected the same ones in the same "
                "order, from the beginning: use resume=False to begin anew"
            )

    def _next(self, rows: int) -> Rows | None:
        kept, self._kept = self._kept, []
        ended = not self._begun  # a first look takes no row twice
        self._begun = True
        while sum(map(len, kept)) < rows:
            batch = next(self._rest, None)
            if batch is None:
                if not self._again or ended:
                    break
                self._rest, ended, self._skip = iter(self._batches), True, self._held
                continue
            checked = _checked_batch(batch)
            skipped = min(self._skip, len(checked))
            self._skip -= skipped
            kept.append(checked.take(slice(skipped, None)))
        if not any(map(len, kept)):
            return None
        drawn = kept[0] if len(kept) == 1 else _joined(kept)
        if len(drawn) > rows:
            self._kept = [drawn.take(slice(rows, None))]
        return drawn.take(slice(0, rows))


def _joined(parts: list[Rows]) -> Rows:
    weights = [r.weight if r.weight is not None else np.ones(len(r)) for r in parts]
    kinds = {r.targets.dtype.kind for r in parts}
    # NumPy would join int64 and uint64 to float64, and numbers and text to text: labels that differ
    # would become equal.
    exact = None if len(kinds) == 1 or kinds <= set("if") else object
    return Rows(
        np.concatenate([r.inputs for r in parts]),
        np.concatenate([r.targets for r in parts], dtype=exact),
        np.concatenate(weights) if any(r.weight is not None for r in parts) else None,
    )


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
