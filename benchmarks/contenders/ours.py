"""`LipschitzRegressor`, in the code that its users would write."""

import warnings
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from contenders.contest import GRADIENT, Case, Layers, Watch
from greatcircle import LipschitzRegressor
from greatcircle.data.scaling import Scaling
from greatcircle.network.network import Network
from greatcircle.optimise.record import Record
from greatcircle.training import monitor


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


class Measurement:
    """Measures the weights of a fit after each iteration.

    Callbacks of an estimator do not receive weights; the function that computes the spectral bound
    of each record does.
    """

    def __init__(self, watch: Watch) -> None:
        self.watch, self.passes = watch, 0.0
        self.spectral_bound_of = monitor.spectral_bound

    def spectral_bound(self, network: Network, scaling: Scaling, weights: Any) -> float:
        self.weights, self.scaling = weights, scaling
        return self.spectral_bound_of(network, scaling, weights)

    def callback(self, record: Record) -> None:
        self.passes += passes(record)
        self.watch.look(self.passes, lambda: unscaled(self.weights, self.scaling))


def fit(case: Case, watch: Watch, **settings: float) -> None:
    measured = Measurement(watch)
    model = LipschitzRegressor(
        case.hidden,
        selection=False,
        saturation=False,
        random_state=case.seed,
        callbacks=[measured.callback],
        **settings,
    )
    watch.start()
    with (
        warnings.catch_warnings(),
        patch.object(monitor, "spectral_bound", measured.spectral_bound),
    ):
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = model.fit(case.X, case.y).model_
    watch.look(measured.passes, lambda: unscaled(fitted.weights, fitted.scaling), last=True)


def auto(case: Case, watch: Watch) -> None:
    """One fit with default arguments."""
    fit(case, watch)


def auto_without_tol(case: Case, watch: Watch) -> None:
    """Fit without a stopping rule until the time budget is used up."""
    fit(case, watch, tol=0.0, max_iter=1_000_000)
