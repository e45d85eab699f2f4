"""Random rows of arrays in memory or on disk."""

import mmap
from typing import Any

import numpy as np

from greatcircle.data.checks import check_batch
from greatcircle.data.rows import Rows
from greatcircle.data.sources.source import decode_position, encode_position, skip_held_out

__all__ = ["Arrays"]


class Arrays:
    """A source of random rows of arrays, each batch in the order of the arrays."""

    names: tuple[str, ...] | None = None
    target_names: tuple[str, ...] = ()

    def __init__(self, X: np.ndarray, y: Any, sample_weight: Any, seed: int) -> None:
        self.X, self.y = X, np.asanyarray(y)
        self.sample_weight = None if sample_weight is None else np.asanyarray(sample_weight)
        if X.ndim != 2:
            raise ValueError(f"X has shape {X.shape}; expected two dimensions, rows by columns")
        for name, values in (("y", self.y), ("sample_weight", self.sample_weight)):
            if values is not None and len(values) != len(X):
                raise ValueError(
                    f"X has {len(X)} rows and {name} {len(values)}; expected the same number"
                )
        self.size = len(X)
        self._rng = np.random.default_rng(seed)
        self._held_out = np.arange(0)

    def sample(self, rows: int) -> Rows:
        """Return random rows, or all rows if there are at most this many."""
        return self.draw(rows)

    def hold_out(self, rows: int) -> Rows:
        """Return random rows, and never draw them again."""
        self._held_out = np.sort(self._rng.choice(self.size, rows, replace=False))
        return self._take(self._held_out)

    def draw(self, rows: int) -> Rows:
        """Return random rows, or all rows if there are at most this many."""
        count = self.size - len(self._held_out)
        which = np.arange(count) if rows >= count else np.sort(self._rng.integers(0, count, rows))
        return self._take(skip_held_out(self._held_out, which))

    @property
    def position(self) -> np.ndarray:
        """The state of the random generator."""
        return encode_position(self._rng.bit_generator.state)

    def seek(self, position: np.ndarray) -> None:
        """Restore the state of the random generator."""
        self._rng.bit_generator.state = decode_position(position)

    def _take(self, which: np.ndarray) -> Rows:
        weight = None if self.sample_weight is None else _read(self.sample_weight, which)
        return check_batch(Rows(_read(self.X, which), _read(self.y, which), weight))


def _read(values: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Return rows of an array; of a file through a new mapping.

    Pages that were read stay in the memory of the process as long as their mapping exists.
    """
    if isinstance(values, np.memmap) and isinstance(values.base, mmap.mmap):
        columns_first = values.flags.f_contiguous and not values.flags.c_contiguous
        file: Any = values.filename
        values = np.memmap(
            file,
            dtype=values.dtype,
            mode="r",
            offset=values.offset,
            shape=values.shape,
            order="F" if columns_first else "C",
        )
    return np.array(values[which])
