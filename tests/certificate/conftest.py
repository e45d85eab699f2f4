"""Fitted models with every scaling."""

from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from greatcircle import LipschitzRegressor
from greatcircle.data.scaling import Scaling


def _changed(estimator, **changes):
    """Return a copy of an estimator whose model has these fields and no certificate yet."""
    changed = copy(estimator)
    changed.model_ = replace(estimator.model_, **changes, known_certificate=None)
    return changed


@pytest.fixture(scope="module")
def models():
    """Return inputs, and a fitted regressor for each scaling; that of "max" has float32 weights."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 4)) * [1, 5, 0.1, 2] + [3, 0, 1, 0]
    Y = np.stack([np.abs(X[:, 0] - 3) + X[:, 1], 5 * X[:, 2] * X[:, 3]], axis=1)
    first = LipschitzRegressor((8, 6), selection=False, max_iter=5, scaling="standard")
    first.set_params(random_state=0).fit(X, Y)
    fitted = {"standard": first}
    for name in ("max", "paper"):
        weights = first.model_.weights
        if name == "max":
            weights = tuple(np.asarray(w, np.float32) for w in weights)
        scaling = Scaling.fit(name, X, Y)
        fitted[name] = _changed(first, weights=weights, scaling=scaling)
    return X, fitted
