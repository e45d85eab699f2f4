"""Sources of batches of rows, for data that memory cannot hold.

| module | data |
|---|---|
| `arrays` | NumPy arrays in memory or memory-mapped |
| `parquet` | a Parquet file, a folder of them or a pattern |
| `batches` | an iterable of batches (X, y) or (X, y, sample_weight) |

A source draws a number of rows at a time, different ones each time, so memory holds one batch only.
Its position can be saved and restored. Rows that were held out are never drawn.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from greatcircle.data.sources.arrays import Arrays
from greatcircle.data.sources.batches import Batches
from greatcircle.data.sources.parquet import Parquet
from greatcircle.data.sources.source import Source

__all__ = ["Arrays", "Batches", "Parquet", "Source", "source_of"]


def source_of(X: Any, y: Any, sample_weight: Any, seed: int) -> Source | None:
    """Return a source for data that must not be read as a whole, or None for other data.

    Parameters
    ----------
    X
        A memory-mapped array; the path of a Parquet file, folder or pattern; or an iterable of
        batches (X, y) or (X, y, sample_weight). A list counts as an iterable of batches if y is
        None and its entries are tuples of two or three arrays.
    y
        Targets of a memory-mapped array; names of the target columns of a Parquet data set; None
        for batches.
    sample_weight
        Weight of each row, of arrays only.
    seed
        Seed of random rows.
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
                "tuple (X, y) with its own y"
            )
        return Batches(X)
    return None


def _refuse_weights(sample_weight: Any, kind: str) -> None:
    if sample_weight is not None:
        raise ValueError(f"sample_weight cannot be given separately from {kind}")


def _is_iterable_of_batches(X: Any) -> bool:
    if isinstance(X, Sequence):
        return bool(X) and all(map(_is_batch, X))
    return (
        isinstance(X, Iterable) and not hasattr(X, "__array__") and not hasattr(X, "__dataframe__")
    )


def _is_batch(entry: Any) -> bool:
    """Return whether a list entry is a batch; a tuple of numbers is a row."""
    return (
        isinstance(entry, tuple)
        and len(entry) in (2, 3)
        and all(hasattr(part, "__array__") and hasattr(part, "__len__") for part in entry)
    )
