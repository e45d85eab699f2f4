"""Split rows into a training part and a test part, or into a training and a validation part."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupShuffleSplit, train_test_split

from greatcircle.data.rows import Rows

__all__ = ["SPLITS", "hold_out", "split"]

SPLITS = ("random", "time")

RowNumbers = NDArray[np.intp]


def split(
    count: int,
    *,
    fraction: float = 0.2,
    kind: str = "random",
    seed: int = 0,
    strata: NDArray[np.generic] | None = None,
) -> tuple[RowNumbers, RowNumbers]:
    """Return the numbers of the rows to train on and of those to test on, each in order.

    Parameters
    ----------
    count : int
        Number of rows.
    fraction : float
        Fraction of the rows to test on; both parts have at least one row.
    kind : str
        "random", or "time": test on the last rows, for a time series whose neighbouring rows are
        similar.
    seed : int
        Seed of a random split.
    strata : array, optional
        Label of each row. A random split then takes the same fraction of each label, and with a
        fraction below one half every label with at least two rows is in the training part.

    Returns
    -------
    tuple of arrays
        Row numbers, counted from zero.
    """
    if kind not in SPLITS:
        raise ValueError(f"split is {kind!r}; expected one of {', '.join(SPLITS)}")
    if not 0 < fraction < 1:
        raise ValueError(f"the test fraction is {fraction:g}; expected a number between 0 and 1")
    if count < 2:
        raise ValueError(
            f"{count} row cannot be split; expected at least two, one to train and one to test"
        )
    if kind == "time":
        order = np.arange(count)
    else:
        order = np.random.default_rng(seed).permutation(count)
        if strata is not None:
            order = order[_interleave(strata[order])]
    testing = min(max(round(fraction * count), 1), count - 1)
    return np.sort(order[: count - testing]), np.sort(order[count - testing :])


def hold_out(
    rows: Rows,
    fraction: float,
    strata: np.ndarray | None,
    seed: int,
    groups: np.ndarray | None = None,
) -> tuple[Rows, Rows]:
    """Split rows into a training part and a validation part for early stopping.

    Parameters
    ----------
    rows
        The rows to split.
    fraction
        Fraction of the rows in the validation part.
    strata
        Label of each row, if both parts are to have all labels.
    seed
        Seed of the random split.
    groups
        Group of each row: whole groups are held out, whatever their labels.
    """
    count = len(rows)
    if count < 2:
        raise ValueError("early_stopping needs at least two rows, one to train and one to validate")
    splitter = GroupShuffleSplit(1, test_size=fraction, random_state=seed)
    try:
        parts: Any = (
            train_test_split(
                np.arange(count), test_size=fraction, random_state=seed, stratify=strata
            )
            if groups is None
            else next(splitter.split(np.empty((count, 1)), groups=groups))
        )
    except ValueError as error:
        raise ValueError(
            f"early_stopping cannot hold out {fraction:g} of {count} rows with every class in both "
            "parts, or whole groups; use more rows of each class, more groups, another "
            "validation_fraction, or early_stopping=False"
        ) from error
    training, validation = (rows.take(part) for part in parts)
    for name, part in (("training", training), ("validation", validation)):
        if part.sample_weight is not None and not part.sample_weight.any():
            raise ValueError(
                f"early_stopping leaves only rows of zero weight in the {name} part; drop the rows "
                "of zero weight, or use early_stopping=False"
            )
    return training, validation


def _interleave(labels: NDArray[np.generic]) -> RowNumbers:
    """Return an order in which every stretch has each label about as often as all rows.

    Of n rows with one label, row k (from zero) gets the position k / n: the first rows of all
    labels come first.
    """
    position = np.empty(len(labels))
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        position[rows] = np.arange(len(rows)) / len(rows)
    return np.argsort(position, kind="stable")
