"""The training problem of a contender, and the stopwatch that times it and measures test errors.

A contender is a function of a `Case` and a `Watch`. It trains in the code that its users would
write, and calls `watch.look(passes, layers)` after each step. The watch is stopped while the test
error is computed, and raises `TimeUp` at the end of the time budget. One thread computes test
errors, because further threads would keep spinning afterwards and slow the contender down.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from greatcircle.experiments.run import TRAIN_FRACTION

Layers = list[tuple[np.ndarray, np.ndarray]]
"""Matrix (fan_in, fan_out) and bias of each layer of a ReLU network, for standardised data."""

GRADIENT, PRODUCT = 3.0, 6.0
"""Cost of a gradient and of a product with the Hessian, in forward passes over the same rows."""

BETWEEN_LOOKS = 1.05
"""The test error is computed each time the elapsed time has grown by this factor."""

TEST_ROWS = 50_000
"""Largest number of test rows; more would change only the error's third digit, and take minutes."""


class TimeUp(Exception):
    """The time budget is used up, or the weights are not finite."""


@dataclass(frozen=True)
class Case:
    """A training problem: standardised rows, the network's hidden layers, a seed and a rate.

    All targets are divided by one number, `unit`; test errors are multiplied by it.
    """

    X: np.ndarray
    y: np.ndarray
    test_X: np.ndarray
    test_y: np.ndarray
    unit: float
    hidden: tuple[int, ...]
    seed: int
    rate: float | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.X.shape[1], *self.hidden, self.y.shape[1])

    @cached_property
    def test(self) -> tuple[np.ndarray, np.ndarray]:
        return self.test_X.astype(np.float32), self.test_y.astype(np.float32)


def split(
    X: np.ndarray, y: np.ndarray, hidden: tuple[int, ...], seed: int, rate: float | None = None
) -> Case:
    """Split 80/20 as in beyond.py, and standardise by the training rows."""
    order = np.random.default_rng(seed).spawn(2)[0].permutation(len(X))
    first = int(TRAIN_FRACTION * len(X))
    learn, test = order[:first], order[first:][:TEST_ROWS]
    spread = X[learn].std(0)
    X = (X - X[learn].mean(0)) / np.where(spread > 0, spread, 1)
    unit = float(np.sqrt(np.mean(y[learn].var(0))))
    y = (y - y[learn].mean(0)) / unit
    return Case(X[learn], y[learn], X[test], y[test], unit, hidden, seed, rate)


@dataclass
class Watch:
    """A stopwatch that is stopped while the test error is computed."""

    case: Case
    budget: float
    seconds: list[float] = field(default_factory=list)
    passes: list[float] = field(default_factory=list)
    rms: list[float] = field(default_factory=list)
    layers: Layers = field(default_factory=list)
    """Layers at the last test error."""
    _started: float = field(default_factory=time.perf_counter)
    _next: float = 0.0

    def start(self) -> None:
        """Restart the clock, for a contender that has to convert the data first."""
        self._started = time.perf_counter()

    def look(self, passes: float, layers: Callable[[], Layers], *, last: bool = False) -> None:
        """Record the test error if enough time has passed since the last; may raise `TimeUp`."""
        now = time.perf_counter() - self._started
        over = now >= self.budget
        if now < self._next and not over and not last:
            return
        found = layers()
        with blas_threads(1):
            error = test_rms(found, *self.case.test) * self.case.unit
        if np.isfinite(error):
            self.layers = found
            self.seconds.append(now)
            self.passes.append(passes)
            self.rms.append(error)
        self._next = now * BETWEEN_LOOKS
        if over or not np.isfinite(error):
            raise TimeUp
        self._started = time.perf_counter() - now


def blas_threads(count: int) -> Any:
    """Return a context in which NumPy's linear algebra uses this number of threads."""
    return _libraries().limit(limits=count, user_api="blas")


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def test_rms(layers: Layers, X: np.ndarray, y: np.ndarray) -> float:
    """Return the root of the mean of ‖error‖², as in the paper."""
    h = X
    with np.errstate(all="ignore"):  # the network may have diverged
        for i, (w, b) in enumerate(layers):
            h = (np.maximum(h, 0) if i else h) @ w.astype(np.float32) + b.astype(np.float32)
        return float(np.sqrt(np.mean(np.sum((h - y) ** 2, axis=1))))


test_rms.__test__ = False  # pytest would collect it because of its name
