"""Validation of rows, targets and weights, at the border of the library.

| where data enter | checks |
|---|---|
| estimators, arrays | scikit-learn's `validate_data`, `normalised_weights`, `check_range` |
| estimators, a source of batches | the same for the first sample, `check_batch` for each batch |
| `Problem` | `checked_data` |
| files | `data.files.read`, which calls `check_range` |

Nothing is checked again inside the library.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from greatcircle._runtime.dtypes import FLOATS
from greatcircle.data.rows import Rows, chunks

__all__ = [
    "TEXT_TARGETS",
    "check_batch",
    "check_range",
    "checked_data",
    "names_of",
    "normalised_weights",
    "text_message",
]

TEXT_TARGETS = "y contains text; expected numbers: for classes use LipschitzClassifier"

SMALLEST, LARGEST = 1e-100, 1e100
"""Range of the largest number of a column: beyond it squares and certificates lose precision."""


def text_message(X: Any) -> str:
    """Return the error message for data that hold text in place of numbers."""
    if isinstance(X, str):
        return f"X is the string {X!r}; expected rows of numbers: read the file first"
    try:
        np.asarray(X, np.float64)
    except ValueError:
        kinds = getattr(X, "dtypes", ())  # of a data frame
        text = [n for n, k in zip(getattr(X, "columns", ()), kinds, strict=False) if _is_text(k)]
        where = f" in the columns {', '.join(map(str, text))}" if text else ""
        return f"X contains text{where}; expected numbers: drop these columns, or encode them"
    return TEXT_TARGETS


def names_of(y: Any) -> tuple[str, ...]:
    """Return the names of the targets if y is a data frame or a series, otherwise none."""
    names: Any = getattr(y, "columns", None)
    if names is None:
        names = [getattr(y, "name", None)]
    return tuple(names) if all(isinstance(name, str) and name for name in names) else ()


def check_range(name: str, values: np.ndarray) -> None:
    """Reject numbers whose squares overflow or underflow; a column of zeros is allowed."""
    largest = max(float(np.max(values)), -float(np.min(values)))  # np.abs would make a copy
    if largest and not SMALLEST <= largest <= LARGEST:
        raise ValueError(
            f"the largest magnitude in {name} is {largest:.3g}; expected {SMALLEST:g} to "
            f"{LARGEST:g}: choose other units"
        )


def checked_data(
    inputs: ArrayLike,
    targets: ArrayLike,
    sample_weight: ArrayLike | None,
    columns: tuple[int, int],
) -> Rows:
    """Check the data of a `Problem`.

    Parameters
    ----------
    inputs, targets
        Matrices of finite numbers with one row for each row of data. Arrays of floating-point
        numbers are not copied.
    sample_weight
        Weight of each row; None for equal weights.
    columns
        Number of inputs and of targets that the network expects.

    Returns
    -------
    Rows
        The matrices, and weights that sum to one.
    """
    x = _checked_matrix(inputs, "inputs", columns[0])
    y = _checked_matrix(targets, "targets", columns[1])
    if len(x) != len(y):
        raise ValueError(
            f"inputs has {len(x)} rows and targets {len(y)}; expected the same number: one row "
            "of targets for each row of inputs"
        )
    return Rows(x, y, normalised_weights(sample_weight, len(x)))


def check_batch(rows: Rows) -> Rows:
    """Check that rows drawn from a source hold finite numbers and valid weights; return them."""
    for name, values in (("X", rows.inputs), ("y", rows.targets)):
        if values.dtype.kind == "f" and not np.all(np.isfinite(values)):
            raise ValueError(
                f"{name} has {np.sum(~np.isfinite(values))} entries that are NaN or infinite in a "
                f"batch of {len(rows)} rows: remove or fill them before training"
            )
    if rows.sample_weight is not None:
        normalised_weights(rows.sample_weight, len(rows))
    return rows


def normalised_weights(sample_weight: ArrayLike | None, rows: int) -> np.ndarray:
    """Check the weights of all rows, and return them divided by their sum."""
    if sample_weight is None:
        return np.full(rows, 1 / rows)
    try:
        weight = np.asarray(sample_weight, np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"sample_weight has entries that are not numbers; expected one weight for each of the "
            f"{rows} rows"
        ) from None
    if weight.shape != (rows,):
        raise ValueError(
            f"sample_weight has shape {weight.shape}; expected one weight for each of the "
            f"{rows} rows"
        )
    if not np.all(np.isfinite(weight) & (weight >= 0)) or not np.any(weight):
        raise ValueError(
            "sample_weight must be finite, non-negative and not all zero; its entries range from "
            f"{weight.min():g} to {weight.max():g}"
        )
    weight = weight / weight.max()  # the sum of large weights could overflow
    return weight / weight.sum()


def _checked_matrix(values: ArrayLike, name: str, columns: int) -> np.ndarray:
    """Return a finite matrix with at least one row, or raise an error that names the argument."""
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
        for some in chunks(len(array))
        if not np.all(np.isfinite(array[some]))
    ]
    if bad:
        count, (row, column) = sum(map(len, bad)), bad[0][0]
        raise ValueError(
            f"{name} has {count} entries that are NaN or infinite, the first in row {row}, "
            f"column {column}: remove or fill them before training"
        )
    return array


def _is_text(kind: Any) -> bool:
    return str(kind).lower() in ("object", "str", "string", "category", "categorical")
