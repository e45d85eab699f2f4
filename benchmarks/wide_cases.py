"""The cases of `wide.py`: rows, test rows, hidden layers, and the passes that Adam gets."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits

import any_data_sets

__all__ = ["CASES", "Case", "Kind", "load"]

TEST_ROWS = 20_000
"""Largest number of test rows."""

LATENT = 20
"""Number of latent inputs of the synthetic set of classes."""


class Kind(NamedTuple):
    """What a case consists of, before its rows are read."""

    rows: Callable[[Path], tuple[np.ndarray, np.ndarray, np.ndarray]]
    """X, y and the mask of the test rows."""
    hidden: tuple[int, ...]
    passes: int
    """Passes over the rows that optimisers with a schedule get."""
    few: int | None = None
    """Train on this number of rows only."""


class Case(NamedTuple):
    """Standardised rows in float32. Targets are values, or integer classes."""

    X: np.ndarray
    y: np.ndarray
    test_X: np.ndarray
    test_y: np.ndarray
    hidden: tuple[int, ...]
    passes: int

    @property
    def classes(self) -> int | None:
        """Number of classes, or None for regression."""
        return int(self.y.max()) + 1 if self.y.dtype.kind == "i" else None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Widths of all layers."""
        outputs = self.classes or self.y.shape[1]
        return (self.X.shape[1], *self.hidden, outputs)

    def error(self, outputs: np.ndarray) -> float:
        """Return the test RMSE in standard deviations of the targets, or the test log-loss."""
        if self.classes is None:
            return float(np.sqrt(np.mean((outputs - self.test_y) ** 2)))
        shifted = outputs - outputs.max(axis=1, keepdims=True)
        log_sum = np.log(np.exp(shifted).sum(axis=1))
        return float(np.mean(log_sum - shifted[np.arange(len(shifted)), self.test_y]))


def _set(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    data = any_data_sets.load(name, folder)
    return data.X, data.y, data.tests[0]


def _tenth(rows: int) -> np.ndarray:
    """Return a mask of a random tenth of the rows, at most `TEST_ROWS`."""
    tested = np.zeros(rows, bool)
    order = np.random.default_rng(1).permutation(rows)
    tested[order[: min(rows // 10, TEST_ROWS)]] = True
    return tested


def _smooth(rng: np.random.Generator, inputs: int, outputs: int) -> Callable[..., np.ndarray]:
    """Return a random smooth function: a wide layer of sines."""
    directions = rng.standard_normal((inputs, 200)) * (1.5 / np.sqrt(inputs))
    phases, weights = rng.uniform(0, 2 * np.pi, 200), rng.standard_normal((200, outputs)) / 10
    return lambda x: np.sin(x @ directions + phases) @ weights


def _million(_: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return 1e6 rows of a smooth function of 12 inputs with noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1_000_000 + TEST_ROWS, 12)).astype(np.float32)
    y = _smooth(rng, 12, 1)(X)
    y += 0.1 * y.std() * rng.standard_normal(y.shape)
    tested = np.zeros(len(X), bool)
    tested[-TEST_ROWS:] = True
    return X, y, tested


def _images(_: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return 60,000 rows of 784 dependent inputs and ten classes that overlap a little."""
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((60_000 + 10_000, LATENT))
    X = _smooth(rng, LATENT, 784)(latent) + 0.3 * rng.standard_normal((len(latent), 784))
    scores = 4 * _smooth(rng, LATENT, 10)(latent) + rng.gumbel(size=(len(latent), 10)) / 4
    tested = np.zeros(len(X), bool)
    tested[-10_000:] = True
    return X, scores.argmax(axis=1), tested


def _digits(_: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    tested = np.zeros(len(X), bool)
    tested[np.random.default_rng(0).permutation(len(X))[: len(X) // 5]] = True
    return X, y, tested


kin40k = partial(_set, "kin40k")

CASES: dict[str, Kind] = {
    "kin40k 64-64": Kind(kin40k, (64, 64), 30),
    "kin40k 256-256": Kind(kin40k, (256, 256), 30),
    "kin40k 512-512": Kind(kin40k, (512, 512), 10),
    "bike 128-128": Kind(partial(_set, "bike"), (128, 128), 30),
    "elevators 128-128": Kind(partial(_set, "elevators"), (128, 128), 30),
    "protein 128-128": Kind(partial(_set, "protein"), (128, 128), 30),
    "surrogate 25-30-15": Kind(partial(_set, "surrogate"), (25, 30, 15), 30),
    "surrogate 256-256": Kind(partial(_set, "surrogate"), (256, 256), 20),
    "fly 25-30-15": Kind(partial(_set, "fly"), (25, 30, 15), 100),
    "1,000 rows 256-256": Kind(kin40k, (256, 256), 300, few=1000),
    "1e6 rows 128-128": Kind(_million, (128, 128), 3),
    "digits 128-128": Kind(_digits, (128, 128), 100),
    "60,000 × 784 256-256": Kind(_images, (256, 256), 10),
}


def load(name: str, folder: Path) -> Case:
    """Return a case, standardised by its training rows."""
    kind = CASES[name]
    X, y, tested = kind.rows(folder)
    train = np.flatnonzero(~tested)
    if kind.few is not None:
        train = np.random.default_rng(0).permutation(train)[: kind.few]
    spread = X[train].std(axis=0)
    X = (X - X[train].mean(axis=0)) / np.where(spread > 0, spread, 1)
    if y.dtype.kind == "i":
        y = y.astype(np.int64)
    else:
        y = y.reshape(len(X), -1)
        y = ((y - y[train].mean(axis=0)) / np.sqrt(np.mean(y[train].var(axis=0)))).astype(
            np.float32
        )
    X = X.astype(np.float32)
    test = np.flatnonzero(tested)[:TEST_ROWS]
    return Case(X[train], y[train], X[test], y[test], kind.hidden, kind.passes)
