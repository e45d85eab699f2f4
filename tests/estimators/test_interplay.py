"""The estimators inside scikit-learn's tools, in worker processes, and with other losses."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingClassifier, BaggingRegressor
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from greatcircle import LipschitzClassifier, LipschitzRegressor, certificate
from greatcircle.network.activations import declare
from greatcircle.objective.losses import Huber

RNG = np.random.default_rng(0)
X = RNG.standard_normal((90, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1]
LABELS = np.where(Y > 0, "up", "down")
QUICK = {"hidden_layer_sizes": (4,), "selection": False, "max_iter": 2, "random_state": 0}


def verified(model):
    return certificate.verify(model.certificate_, model)


def soft(z):
    return 0.5 * np.tanh(1.0) * z / (1 + abs(z))


# joblib replaces workers whose memory grows, which compiled programs make it do; it warns of that.
@pytest.mark.filterwarnings("ignore:A worker stopped while some jobs")
def test_a_grid_over_everything_that_a_user_would_try():
    grid = [
        {"hidden_layer_sizes": [(3,)], "lipschitz": [None, 0.5]},
        {"loss": [Huber(0.1)], "activation": [declare(soft, (0.0, 0.5))]},
    ]
    model = LipschitzRegressor(selection=False, max_iter=2, random_state=0)
    search = GridSearchCV(model, grid, cv=2, n_jobs=2)
    best = search.fit(X, Y).best_estimator_
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))
    assert verified(best)


def test_bagging_with_weights_and_columns():
    bag = BaggingRegressor(
        LipschitzRegressor(**QUICK), 3, max_features=2, bootstrap_features=True, random_state=0
    )
    bag.fit(X, Y, sample_weight=RNG.uniform(0, 2, 90))
    assert bag.predict(X).shape == (90,)
    assert all(verified(model) for model in bag.estimators_)
    votes = BaggingClassifier(LipschitzClassifier(**QUICK), 3, random_state=0).fit(X, LABELS)
    assert set(votes.predict(X)) <= {"up", "down"}


def test_transformed_targets():
    model = TransformedTargetRegressor(
        LipschitzRegressor(**QUICK), func=np.exp, inverse_func=np.log
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a log of what two iterations predict
        assert model.fit(X, Y).predict(X).shape == (90,)
    scaled = TransformedTargetRegressor(LipschitzRegressor(**QUICK), transformer=StandardScaler())
    np.testing.assert_allclose(scaled.fit(X, 1e6 * Y).predict(X) / 1e6, scaled.fit(X, Y).predict(X))


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_calibrated_probabilities(method):
    model = CalibratedClassifierCV(LipschitzClassifier(**QUICK), method=method, cv=2)
    chances = model.fit(X, LABELS).predict_proba(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1)


def test_metadata_routing():
    weight = RNG.uniform(0, 2, 90)
    with config_context(enable_metadata_routing=True):
        model = LipschitzRegressor(**QUICK).set_fit_request(sample_weight=True)
        model = model.set_score_request(sample_weight=True)
        pipe = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
        pipe.fit(X, Y, sample_weight=weight)
        scores = cross_validate(pipe, X, Y, params={"sample_weight": weight}, cv=2)
        assert np.all(np.isfinite(scores["test_score"]))
        search = GridSearchCV(model, {"hidden_layer_sizes": [(2,), (3,)]}, cv=2)
        assert verified(search.fit(X, Y, sample_weight=weight).best_estimator_)
        partial = clone(model).set_partial_fit_request(sample_weight=True)
        assert verified(partial.partial_fit(X, Y, sample_weight=weight))


def fitted(seed):
    return LipschitzRegressor(**{**QUICK, "random_state": seed}).fit(X, Y)


def test_workers_of_loky_fit_the_same_models():
    there = Parallel(n_jobs=2, backend="loky")(delayed(fitted)(seed) for seed in (0, 1))
    for seed, model in enumerate(there):
        np.testing.assert_allclose(model.predict(X), fitted(seed).predict(X), rtol=1e-6, atol=1e-9)
        assert verified(model)
        assert pickle.loads(pickle.dumps(model)).certificate_ == model.certificate_


@pytest.mark.skipif(sys.platform != "linux", reason="fork is for Linux here")
def test_a_process_forked_after_the_import_can_fit():
    """JAX's threads do not survive a fork, so the import alone must not start any."""
    code = (
        "import os, sys, numpy as np, greatcircle\n"
        "from greatcircle import LipschitzRegressor\n"
        "pid = os.fork()\n"
        "if pid:\n"
        "    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        "X = np.random.default_rng(0).standard_normal((30, 2))\n"
        "model = LipschitzRegressor((3,), selection=False, max_iter=2, random_state=0)\n"
        "model.fit(X, X[:, 0])\n"
        "assert model.certificate_.value > 0\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["huber", Huber(1e-3), Huber(1e3)])
def test_huber_and_declared_activations_have_bounds_and_budgets(kind):
    kwargs = {**QUICK, "loss": kind, "activation": declare(soft, (0.0, 0.5))}
    model = LipschitzRegressor(**kwargs).fit(X, Y)
    assert verified(model)
    assert "declared" in str(verified(model))
    assert np.linalg.norm(model.jacobian(X), 2, axis=(1, 2)).max() <= model.certificate_.value * (
        1 + 1e-12
    )
    within = LipschitzRegressor(**kwargs, lipschitz=0.1).fit(X, Y)
    assert within.certificate_.value <= 0.1
