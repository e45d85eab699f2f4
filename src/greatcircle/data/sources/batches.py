"""Rows of an iterable of batches, such as a generator or a data loader."""

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from greatcircle.data.checks import check_batch
from greatcircle.data.rows import CHUNK, Rows
from greatcircle.data.sources.source import decode_position, encode_position

__all__ = ["Batches"]


class Batches:
    """A source of the rows of batches (X, y) or (X, y, sample_weight), in their order.

    An iterable that is not an iterator, such as a list or a data loader, starts again at its end.
    """

    names: tuple[str, ...] | None = None
    target_names: tuple[str, ...] = ()
    size = None

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches
        self._repeats = not isinstance(batches, Iterator)
        self._remaining = iter(batches)
        self._started = False
        self._buffer: list[Rows] = []
        self._held_out = self._to_skip = 0
        self._drawn = self._checksum = 0

    def sample(self, rows: int) -> Rows | None:
        """Return the first rows, each once, and keep them for later draws."""
        first = self._next(rows)
        self._buffer = [] if first is None else [first, *self._buffer]
        return first

    def hold_out(self, rows: int) -> Rows | None:
        """Return the first rows, which later passes skip."""
        self._held_out = rows
        return self.draw(rows)

    def draw(self, rows: int) -> Rows | None:
        """Return the next rows."""
        drawn = self._next(rows)
        if drawn is None:
            return None
        self._drawn += len(drawn)
        values = np.ascontiguousarray(drawn.inputs, np.float64)
        self._checksum = zlib.crc32(values.tobytes(), self._checksum)
        return check_batch(drawn)

    @property
    def position(self) -> np.ndarray:
        """The number of rows drawn, and a checksum of their inputs."""
        return encode_position({"rows": self._drawn, "checksum": self._checksum})

    def seek(self, position: np.ndarray) -> None:
        """Advance by drawing rows, and check that they are the same as before."""
        target = decode_position(position)
        while (left := target["rows"] - self._drawn) > 0 and self.draw(min(left, CHUNK)):
            pass
        if (self._drawn, self._checksum) != (target["rows"], target["checksum"]):
            raise ValueError(
                f"X does not repeat the {target['rows']} rows that were drawn before the "
                "checkpoint; expected the same rows in the same order, from the beginning: "
                "use resume=False to start again"
            )

    def _next(self, rows: int) -> Rows | None:
        buffer, self._buffer = self._buffer, []
        ended = not self._started  # the first call takes no row twice
        self._started = True
        while sum(map(len, buffer)) < rows:
            batch = next(self._remaining, None)
            if batch is None:
                if not self._repeats or ended:
                    break
                self._remaining, ended = iter(self._batches), True
                self._to_skip = self._held_out
                continue
            checked = _checked_shapes(batch)
            skipped = min(self._to_skip, len(checked))
            self._to_skip -= skipped
            buffer.append(checked.take(slice(skipped, None)))
        if not any(map(len, buffer)):
            return None
        drawn = buffer[0] if len(buffer) == 1 else _joined(buffer)
        if len(drawn) > rows:
            self._buffer = [drawn.take(slice(rows, None))]
        return drawn.take(slice(0, rows))


def _joined(batches: list[Rows]) -> Rows:
    weights = [b.sample_weight if b.sample_weight is not None else np.ones(len(b)) for b in batches]
    kinds = {b.targets.dtype.kind for b in batches}
    # NumPy would join int64 and uint64 to float64, and numbers and text to text: labels that differ
    # would become equal.
    exact = None if len(kinds) == 1 or kinds <= set("if") else object
    return Rows(
        np.concatenate([b.inputs for b in batches]),
        np.concatenate([b.targets for b in batches], dtype=exact),
        np.concatenate(weights) if any(b.sample_weight is not None for b in batches) else None,
    )


def _checked_shapes(batch: Any) -> Rows:
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        raise ValueError(
            f"a batch is of type {type(batch).__name__}; expected a tuple (X, y) or "
            "(X, y, sample_weight)"
        )
    rows = Rows(*map(np.asarray, batch))
    if rows.inputs.ndim != 2 or len({len(values) for values in batch}) != 1:
        raise ValueError(
            f"a batch has shapes {', '.join(str(np.shape(b)) for b in batch)}; expected X as rows "
            "by columns, and the same number of rows in all arrays"
        )
    return rows
