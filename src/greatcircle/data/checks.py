"""Checks of data that scikit-learn does not make, and a part held out."""

from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from greatcircle.data.streams import Rows

OF_TEXT = "y has text; expected numbers: for classes use LipschitzClassifier"

SMALLEST, LARGEST = 1e-100, 1e100
"""Range of the largest number of a column: beyond it squares and certificates lose their digits."""


def about_text(X: Any) -> str:
    """What to say of text where numbers should be."""
    if isinstance(X, str):
        return f"X is the text {X!r}; expected rows of numbers: read the file first"
    try:
        np.asarray(X, np.float64)
    except ValueError:
        kinds = getattr(X, "dtypes", ())  # of a data frame
        words = [n for n, k in zip(getattr(X, "columns", ()), kinds, strict=False) if _is_text(k)]
        where = f" in the columns {', '.join(map(str, words))}" if words else ""
        return f"X has text{where}; expected numbers: drop these columns, or encode them"
    return OF_TEXT


def _is_text(kind: Any) -> bool:
    return str(kind).lower() in ("object", "str", "string", "category", "categorical")


def check_range(name: str, values: np.ndarray) -> None:
    """Reject numbers whose squares overflow or vanish; zeros alone are a constant, and allowed."""
    largest = max(float(np.max(values)), -float(np.min(values)))  # no copy, as np.abs would make
    if largest and not SMALLEST <= largest <= LARGEST:
        raise ValueError(
            f"the largest magnitude in {name} is {largest:.3g}; expected {SMALLEST:g} to "
            f"{LARGEST:g}: choose other units"
        )


def names_of(y: Any) -> tuple[str, ...]:
    """Names of the targets, where y is a data frame or a series; otherwise none."""
    names: Any = getattr(y, "columns", None)
    if names is None:
        names = [getattr(y, "name", None)]
    return tuple(names) if all(isinstance(name, str) and name for name in names) else ()


def split_off(
    rows: Rows, fraction: float, strata: np.ndarray | None, seed: int
) -> tuple[Rows, Rows]:
    """Training part and validation part."""
    count = len(rows.inputs)
    if count < 2:
        raise ValueError("early_stopping needs at least two rows, one to train and one to validate")
    try:
        parts: Any = train_test_split(
            np.arange(count), test_size=fraction, random_state=seed, stratify=strata
        )
    except ValueError as error:
        raise ValueError(
            f"early_stopping cannot hold out {fraction:g} of {count} rows with every class in both "
            "parts; use more rows of each class, another validation_fraction, or "
            "early_stopping=False"
        ) from error
    training, unseen = (rows.take(part) for part in parts)
    for name, part in (("training", training), ("validation", unseen)):
        if part.weight is not None and not part.weight.any():
            raise ValueError(
                f"early_stopping left the {name} part with rows of weight zero only; drop those "
                "rows, or use early_stopping=False"
            )
    return training, unseen
