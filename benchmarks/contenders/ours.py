"""`LipschitzRegressor`, in the code that its users would write."""

import warnings
from collections.abc import Sequence

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from contenders.contest import GRADIENT, Case, Layers, Watch
from greatcircle import LipschitzRegressor
from greatcircle.data.scaling import Scaling
from greatcircle.optimise.record import Record


def unscaled(weights: Sequence[np.ndarray], scaling: Scaling) -> Layers:
    """Return the layers of the same network for unscaled data.

    The last row of each matrix is its bias.
    """
    layers = [(np.asarray(w[:-1], float), np.asarray(w[-1], float)) for w in weights]
    w, b = layers[0]
    layers[0] = w * scaling.scale[:, None], b - (scaling.shift * scaling.scale) @ w
    w, b = layers[-1]
    layers[-1] = w / scaling.factor, b / scaling.factor + scaling.target_shift
    return layers


def passes(record: Record) -> float:
    """Return the cost of an iteration in forward passes, as derived in docs/directions.md."""
    direction = 4 * record.products
    gradient = record.forward + (GRADIENT - 1) * record.backward
    return gradient + GRADIENT * record.second + direction


class Watched(LipschitzRegressor):
    """The same estimator. Its bound of each iteration is where the weights can be seen."""

    watch: Watch
    passes = 0.0

    def _bound(self, weights: Sequence[np.ndarray]) -> float:
        self.newest = weights
        return super()._bound(weights)

    def after_iteration(self, record: Record) -> None:
        self.passes += passes(record)
        self.watch.look(self.passes, lambda: unscaled(self.newest, self.scaling_))


def fit(case: Case, watch: Watch, **settings: float) -> None:
    model = Watched(case.hidden, random_state=case.seed, **settings)
    model.watch, model.callbacks = watch, [model.after_iteration]
    watch.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(case.X, case.y)
    watch.look(model.passes, lambda: unscaled(model.weights_, model.scaling_), last=True)


def auto(case: Case, watch: Watch) -> None:
    """All defaults."""
    fit(case, watch)


def auto_without_tol(case: Case, watch: Watch) -> None:
    """Fit without a stopping rule until the time budget is used up."""
    fit(case, watch, tol=0.0, max_iter=1_000_000)
