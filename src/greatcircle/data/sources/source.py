"""The protocol of sources: draw batches, hold out rows, save and restore the position."""

import json
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from greatcircle.data.rows import Rows

__all__ = ["Source", "decode_position", "encode_position", "skip_held_out"]


class Source(Protocol):
    """A supply of rows, of which each batch is drawn separately."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the inputs, or None."""
        ...

    @property
    def target_names(self) -> tuple[str, ...]:
        """Names of the targets; empty if they have none."""
        ...

    @property
    def size(self) -> int | None:
        """Number of rows, or None if it is unknown."""
        ...

    def sample(self, rows: int) -> Rows | None:
        """Return rows to look at before the first batch: this many, or all if there are fewer.

        None if the source is empty. They can be drawn again later.
        """
        ...

    def hold_out(self, rows: int) -> Rows | None:
        """Return about this many rows for validation, and never draw them again.

        Called at most once, before the first batch.
        """
        ...

    def draw(self, rows: int) -> Rows | None:
        """Return the next batch: this many rows, fewer at the end, or None after the end."""
        ...

    @property
    def position(self) -> np.ndarray:
        """Everything that determines the next batch, as an array that a checkpoint can hold."""
        ...

    def seek(self, position: np.ndarray) -> None:
        """Restore a position of a source with the same rows and the same seed."""
        ...


def skip_held_out(held_out: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Return the numbers, among all rows, of rows that were counted without those held out.

    Parameters
    ----------
    held_out
        Numbers of the rows held out, sorted.
    which
        Numbers among the other rows.
    """
    return which + np.searchsorted(held_out - np.arange(len(held_out)), which, side="right")


def encode_position(state: Mapping[str, Any]) -> np.ndarray:
    """Return a position as bytes, because a generator's state contains 128-bit integers."""
    return np.frombuffer(json.dumps(state).encode(), np.uint8)


def decode_position(position: np.ndarray) -> dict[str, Any]:
    """Return the state that `encode_position` encoded."""
    return json.loads(position.tobytes())
