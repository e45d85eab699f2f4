"""Rows that users give: checked, a piece at a time, so that no copy of all of them is made."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from greatcircle._runtime.dtypes import FLOATS

PIECE = 65_536
"""Rows that are looked at in float64 at a time."""

SAMPLE = 32_768
"""Most rows that initial weights and headroom are taken from: more of them tell the same."""


def pieces(rows: int) -> Iterator[slice]:
    """Slices that together are all rows."""
    return (slice(first, first + PIECE) for first in range(0, rows, PIECE))


def checked_rows(values: ArrayLike, name: str, columns: int) -> np.ndarray:
    """Finite matrix with at least one row, or an error that names the argument.

    Copied only where it is not of floating-point numbers already.
    """
    try:
        array = np.asarray(values)
        if array.dtype not in FLOATS:
            array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} has entries that are not numbers; expected a matrix: encode text, and give "
            "all rows the same length"
        ) from None
    if array.ndim != 2:
        raise ValueError(
            f"{name} has shape {array.shape}; expected two dimensions, rows by columns: "
            f"reshape one column with {name}.reshape(-1, 1)"
        )
    if 0 in array.shape:
        raise ValueError(f"{name} is empty, shape {array.shape}; expected at least one row")
    if array.shape[1] != columns:
        raise ValueError(
            f"{name} has {array.shape[1]} columns; the network expects {columns}: "
            "change the data or the network's sizes"
        )
    bad = [
        np.argwhere(~np.isfinite(array[some])) + np.array([some.start, 0])
        for some in pieces(len(array))
        if not np.all(np.isfinite(array[some]))
    ]
    if bad:
        count, (row, column) = sum(map(len, bad)), bad[0][0]
        raise ValueError(
            f"{name} has {count} entries that are NaN or infinite, the first in row {row}, "
            f"column {column}: remove or fill them before training"
        )
    return array


def checked_share(sample_weight: ArrayLike | None, rows: int) -> np.ndarray:
    """Weight of each row, summing to one."""
    if sample_weight is None:
        return np.full(rows, 1 / rows)
    try:
        share = np.asarray(sample_weight, np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"sample_weight has entries that are not numbers; expected one weight for each of the "
            f"{rows} rows"
        ) from None
    if share.shape != (rows,):
        raise ValueError(
            f"sample_weight has shape {share.shape}; expected one weight for each of the "
            f"{rows} rows"
        )
    if not np.all(np.isfinite(share) & (share >= 0)) or not np.any(share):
        raise ValueError(
            "sample_weight must be finite, not negative, and not all zero; its entries are from "
            f"{share.min():g} to {share.max():g}"
        )
    share = share / share.max()  # the sum of large weights could overflow
    return share / share.sum()


def sampled(share: np.ndarray) -> tuple[np.ndarray | slice, np.ndarray]:
    """Which rows to look at, and their weights: all, or a random sample by their weights."""
    if len(share) <= SAMPLE:
        return slice(None), share
    rng, alike = np.random.default_rng(0), share.min() == share.max()
    sample = (
        rng.choice(len(share), SAMPLE, replace=False)
        if alike
        else rng.choice(len(share), SAMPLE, p=share)
    )
    return np.sort(sample), np.full(SAMPLE, 1 / SAMPLE)


def row_norms(x: np.ndarray) -> np.ndarray:
    """‖x‖ of each row as a column, without overflow or underflow of the squares."""
    _, largest, norm = unit_rows(x)
    return largest * norm


def unit_rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x/‖x‖ of each row, zero for a row of zeros, and ‖x‖ as two factors, each a column.

    The factors are the largest entry and the norm of the row divided by it: their product may
    overflow, and below the smallest normal number it loses digits.
    """
    x = np.asarray(x, np.float64)
    largest = np.max(np.abs(x), axis=1, keepdims=True)
    unit = np.divide(x, largest, out=np.zeros_like(x), where=largest > 0)
    norm = np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1)  # less only for zeros
    unit /= norm
    return unit, largest, norm
