"""The data sets of `any_data.py`, with their splits into training and test rows."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn import datasets

from beyond import COLUMNS
from greatcircle.data import files
from greatcircle.datasets import neural_fly

__all__ = ["LOOKED_AT", "PUBLISHED", "SETS", "UNTOUCHED", "DataSet", "load"]

PUBLISHED = ("concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")
"""Sets with published test errors of dropout networks that were tuned for each."""

LOOKED_AT = (
    *("bike", "concrete", "elevators", "kin40k", "pendulum", "protein", "stock"),
    *("wine", "yacht"),
)
"""Of the fourteen public sets, those whose test errors were seen while the method was chosen."""

UNTOUCHED = ("airfoil", "energy", "kin8nm", "naval", "power")
"""The other five, measured at the end only."""

FEW, MANY = 5, 3
"""Splits of a set; `MANY` where there are more than `LARGE` rows."""

LARGE = 10_000


class DataSet(NamedTuple):
    """Rows and, for each split, which of them are tested."""

    X: np.ndarray
    y: np.ndarray
    tests: list[np.ndarray]


def load(name: str, folder: Path, *, all_splits: bool = False) -> DataSet:
    """Return a data set; `folder` contains uci/ and the two flights."""
    X, y, tests = SETS[name](folder)
    return DataSet(X, y, tests if all_splits else tests[: MANY if len(X) > LARGE else FEW])


def _public(name: str, folder: Path) -> DataSet:
    with np.load(folder / "uci" / f"{name}.npz", allow_pickle=False) as data:
        return DataSet(data["X"], data["y"], list(data["test"]))


def _surrogate(folder: Path) -> DataSet:
    table = files.read(folder / "neural_lander_surrogate.csv.gz", **COLUMNS)
    return _split(table.X, table.y)


def _fly(folder: Path) -> DataSet:
    table = neural_fly.load(folder / "neural_fly.csv.gz", conditions=["nowind"])
    return _split(table.X, table.y)


def _friedman(number: int, noise: float, _: Path) -> DataSet:
    """Return 1,000 rows of Friedman's function, with noise relative to its standard deviation."""
    make = (datasets.make_friedman1, datasets.make_friedman2, datasets.make_friedman3)[number - 1]
    X, y = make(1000, random_state=0)
    y = y + noise * y.std() * np.random.default_rng(0).standard_normal(len(y))
    return _split(X, y)


def _curve(function: Callable[[np.ndarray], np.ndarray], _: Path) -> DataSet:
    """Return 300 noisy points of a function of one input."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 300)
    return _split(x[:, None], function(x) + 0.1 * rng.standard_normal(len(x)))


def _digits(_: Path) -> DataSet:
    X, y = datasets.load_digits(return_X_y=True)
    return _split(X, y)


def _split(X: np.ndarray, y: np.ndarray) -> DataSet:
    """Test a random fifth of the rows in each split."""
    tests = []
    for seed in range(FEW):
        tested = np.zeros(len(X), bool)
        tested[np.random.default_rng(seed).permutation(len(X))[: len(X) // 5]] = True
        tests.append(tested)
    return DataSet(X, y, tests)


SETS: dict[str, Callable[[Path], DataSet]] = {
    **{name: partial(_public, name) for name in (*LOOKED_AT, *UNTOUCHED)},
    "surrogate": _surrogate,
    "fly": _fly,
    **{f"friedman{i}": partial(_friedman, i, 0.0) for i in (1, 2, 3)},
    **{f"friedman{i} noisy": partial(_friedman, i, 0.3) for i in (1, 2, 3)},
    "step": partial(_curve, np.sign),
    "sine": partial(_curve, lambda x: np.sin(3 * np.pi * x)),
    "digits": _digits,
}
