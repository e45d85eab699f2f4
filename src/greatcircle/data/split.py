"""Which rows train and which test."""

import numpy as np
from numpy.typing import NDArray

SPLITS = ("random", "time")

Rows = NDArray[np.intp]


def split(
    count: int,
    *,
    fraction: float = 0.2,
    kind: str = "random",
    seed: int = 0,
    strata: NDArray[np.generic] | None = None,
) -> tuple[Rows, Rows]:
    """Rows to train on and rows to test on, each in the order of the table.

    Parameters
    ----------
    count : int
        Rows in all.
    fraction : float
        Part that is for testing; both parts have at least one row.
    kind : str
        "random", or "time": the last rows test, as for a series whose neighbours are alike.
    seed : int
        Of a random split.
    strata : array, optional
        Label of each row: a random split then takes its part of each label, and with a fraction
        below one half no label with two rows or more is missing from the training part.

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
            order = order[_spread(strata[order])]
    testing = min(max(round(fraction * count), 1), count - 1)
    return np.sort(order[: count - testing]), np.sort(order[count - testing :])


def _spread(labels: NDArray[np.generic]) -> Rows:
    """An order in which every stretch has each label about as often as the whole.

    The k-th of n rows with one label, counted from zero, goes to the place k / n: the first of
    every label comes first.
    """
    place = np.empty(len(labels))
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        place[rows] = np.arange(len(rows)) / len(rows)
    return np.argsort(place, kind="stable")
