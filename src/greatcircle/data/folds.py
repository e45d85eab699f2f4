"""Parts of the rows to hold out in turn: folds by the content of rows, by groups, in time order.

| `cv` | parts |
|---|---|
| "auto" | five folds up to `FOLD_ROWS` distinct rows, above that one part of a fifth |
| a number | that many folds |
| "time" | five successive parts, each after its training rows; above `FOLD_ROWS` the last fifth |
| a splitter of scikit-learn, or pairs of row numbers | as given |

Folds are drawn by a seeded hash of the row's content, or of its group. So duplicates of a row are
in the same fold, repeating a row is the same as doubling its weight, and the order of the rows does
not matter.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import TimeSeriesSplit

from greatcircle.data.rows import Rows

__all__ = [
    "FOLDS",
    "FOLD_ROWS",
    "Part",
    "check_cv",
    "checked_groups",
    "distinct_rows",
    "held_out_parts",
]

FOLDS = 5
"""The usual compromise: each model is trained on four fifths of the rows."""

FOLD_ROWS = 5000
"""Above this number of rows, a fifth of them measures an error to about 2 %: one part is enough."""


class Part(NamedTuple):
    """Rows to train on and rows held out, by their numbers."""

    training: np.ndarray
    held_out: np.ndarray


def check_cv(cv: Any) -> None:
    """Raise ValueError unless `cv` is one of the table above."""
    if isinstance(cv, str):
        valid = cv in ("auto", "time")
    elif isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        valid = bool(cv >= 2)
    else:
        valid = callable(getattr(cv, "split", None)) or isinstance(cv, Iterable)
    if not valid:
        raise ValueError(
            f"cv is {cv!r}; expected 'auto', 'time', a number of folds of at least 2, a splitter "
            "of scikit-learn, or pairs (training rows, held-out rows)"
        )


def checked_groups(groups: Any, count: int) -> np.ndarray:
    """Return the group of each row as an array, or raise an error if there are not as many."""
    checked = np.asarray(groups)
    if checked.shape != (count,):
        raise ValueError(
            f"groups has shape {checked.shape}; expected one group for each of the {count} rows"
        )
    return checked


def held_out_parts(
    rows: Rows,
    cv: Any,
    seed: int,
    *,
    strata: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    counted: np.ndarray | None = None,
) -> list[Part]:
    """Return the parts to hold out; empty if there are too few distinct rows.

    Parameters
    ----------
    rows
        The rows; their weights do not matter.
    cv
        One of the table above.
    seed
        Seed of the hash.
    strata
        Label of each row: each fold has the same fraction of each label.
    groups
        Group of each row: rows of one group are in the same fold.
    counted
        Numbers of the rows to use, in order; None for all. The parts have positions in it.
    """
    if not isinstance(cv, str | int | np.integer):
        return _given(cv, rows, strata, groups, counted)
    if counted is not None and len(counted) < len(rows):
        rows = rows.take(counted)
        strata, groups = (a if a is None else a[counted] for a in (strata, groups))
    if isinstance(cv, str) and cv == "time":
        if groups is not None:
            raise ValueError(
                "cv is 'time' and groups are given, which may be spread over time; use one of them"
            )
        return _in_time_order(len(rows))
    digests = _digests(rows, seed) if groups is None else _digests_of_groups(groups, seed)
    _, first, distinct = np.unique(digests, return_index=True, return_inverse=True)
    count = len(first)
    folds = FOLDS if isinstance(cv, str) else int(cv)
    if count < 2 * folds:
        return []
    # Sorted by label, and by digest within each label: neighbours go to different folds.
    order = np.arange(count) if strata is None else np.argsort(_codes(strata)[first], kind="stable")
    fold = np.empty(count, np.intp)
    fold[order] = np.arange(count) % folds
    held_out = fold[distinct]
    numbers = range(1) if isinstance(cv, str) and count > FOLD_ROWS else range(folds)
    return [Part(np.flatnonzero(held_out != i), np.flatnonzero(held_out == i)) for i in numbers]


def distinct_rows(rows: Rows) -> np.ndarray:
    """Return a number for each row, the same for rows with equal inputs and targets."""
    return np.unique(_digests(rows, 0), return_inverse=True)[1]


def _in_time_order(count: int) -> list[Part]:
    if count < 2 * FOLDS:
        return []
    if count > FOLD_ROWS:
        first = count - count // FOLDS
        return [Part(np.arange(first), np.arange(first, count))]
    return [Part(*pair) for pair in TimeSeriesSplit(FOLDS).split(np.empty((count, 1)))]


def _given(
    cv: Any,
    rows: Rows,
    strata: np.ndarray | None,
    groups: np.ndarray | None,
    counted: np.ndarray | None,
) -> list[Part]:
    """Return the parts of a splitter, or of an iterable of pairs, as positions in `counted`."""
    targets = rows.targets if strata is None else _codes(strata)
    targets = targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets
    split = getattr(cv, "split", None)
    pairs = cv if split is None else split(rows.inputs, targets, groups)
    position = np.arange(len(rows))
    if counted is not None:
        position = np.full(len(rows), -1)
        position[counted] = np.arange(len(counted))
    parts = []
    for pair in pairs:
        numbers = (position[_row_numbers(part, len(rows))] for part in pair)
        training, held_out = (some[some >= 0] for some in numbers)
        if len(training) == 0 or len(held_out) == 0:
            raise ValueError(
                "cv has a part without rows of positive weight; expected some in both of each pair"
            )
        parts.append(Part(training, held_out))
    if not parts:
        raise ValueError(
            "cv has no parts; expected pairs (training rows, held-out rows): a generator can be "
            "used only once, so pass a list"
        )
    return parts


def _row_numbers(part: Any, count: int) -> np.ndarray:
    numbers = np.asarray(part)
    if numbers.dtype == bool and numbers.shape == (count,):
        return np.flatnonzero(numbers)
    if numbers.size == 0:
        return np.empty(0, np.intp)
    whole = numbers.ndim == 1 and numbers.dtype.kind in "iu"
    if not whole or np.any(numbers < 0) or np.any(numbers >= count):
        raise ValueError(
            f"cv has the part {part!r}; expected numbers of rows, from 0 to {count - 1}"
        )
    return numbers.astype(np.intp)


def _digests(rows: Rows, seed: int) -> np.ndarray:
    """Return a 64-bit hash of each row's inputs and targets."""
    digests = np.full(len(rows), seed, np.uint64)
    for values in (rows.inputs, rows.targets):
        for column in values.T:
            bits = np.ascontiguousarray(column + 0.0, np.float64).view(np.uint64)  # −0 is 0
            digests = _mixed(digests ^ bits)
    return digests


def _digests_of_groups(groups: np.ndarray, seed: int) -> np.ndarray:
    codes = np.unique(groups, return_inverse=True)[1].astype(np.uint64)
    return _mixed(_mixed(codes) ^ np.uint64(seed))


def _mixed(values: np.ndarray) -> np.ndarray:
    """Return the finaliser of SplitMix64 (Steele, Lea and Flood 2014): every bit affects all."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _codes(strata: np.ndarray) -> np.ndarray:
    """Return a number for each label; labels may be rows of a matrix."""
    return np.unique(np.asarray(strata), axis=0, return_inverse=True)[1].ravel()
