import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import NotFittedError

from greatcircle import LipschitzRegressor
from greatcircle.datasets import ground_effect
from small import ACTIVATION_NAMES

TABLE = ground_effect.generate(3000)


def model(**changes):
    return LipschitzRegressor(**{"max_iter": 15, "random_state": 0, **changes})


@pytest.mark.parametrize("method", ["ad", "mm"])
def test_fit_predict_score(method):
    m = model(method=method, hidden_layer_sizes=(10, 8)).fit(TABLE.X, TABLE.y)
    assert m.predict(TABLE.X).shape == TABLE.y.shape
    assert m.n_iter_ == len(m.history_["loss"]) == 15
    assert np.all(np.diff(m.history_["loss"]) < 0)
    residual = m.predict(TABLE.X) - TABLE.y
    # The loss is half the mean square in scaled units: the way back is exact.
    assert m.loss_ == pytest.approx(
        0.5 * np.mean(np.sum(residual**2, axis=1)) * m.scaling_.factor**2, rel=1e-5
    )
    assert m.score(TABLE.X, TABLE.y) > (-0.5 if method == "ad" else -5)


def test_predictions_respect_the_bound():
    m = model().fit(TABLE.X, TABLE.y)
    unit = TABLE.X / np.linalg.norm(TABLE.X, axis=1, keepdims=True)
    f = m.predict(TABLE.X)
    i, j = np.random.default_rng(0).integers(0, len(f), (2, 2000))
    moved = np.linalg.norm(f[i] - f[j], axis=1)
    assert np.all(moved <= m.certificate_.value * np.linalg.norm(unit[i] - unit[j], axis=1) + 1e-5)


def test_one_column_of_targets_comes_back_as_one():
    m = model().fit(TABLE.X, TABLE.y[:, 2])
    assert m.predict(TABLE.X).shape == (len(TABLE),)


def test_same_seed_same_bits_and_clone():
    m = model(random_state=3).fit(TABLE.X, TABLE.y)
    again = clone(m).fit(TABLE.X, TABLE.y)
    other = model(random_state=4).fit(TABLE.X, TABLE.y)
    np.testing.assert_array_equal(m.predict(TABLE.X), again.predict(TABLE.X))
    assert np.any(m.predict(TABLE.X) != other.predict(TABLE.X))


def test_tol_ends_a_run_that_no_longer_gains():
    m = model(max_iter=500, tol=0.5).fit(TABLE.X, TABLE.y)
    assert m.outcome_ == "converged"
    assert m.n_iter_ < 500
    assert model(max_iter=15, tol=0).fit(TABLE.X, TABLE.y).outcome_ == "max_iter"


def test_all_zero_targets_shrink_the_outputs():
    m = model().fit(TABLE.X[:5], np.zeros((5, 2)))
    assert np.all(np.isfinite(m.predict(TABLE.X)))
    assert m.loss_ < m.history_["loss"][0]


def test_constant_targets():
    m = model(max_iter=200).fit(TABLE.X[:50], np.full((50, 2), 2.0))
    assert np.sqrt(np.mean((m.predict(TABLE.X[:50]) - 2) ** 2)) < 0.5


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_a_fitted_model_can_be_pickled(activation):
    m = model(activation=activation, max_iter=1).fit(TABLE.X[:50], TABLE.y[:50])
    again = pickle.loads(pickle.dumps(m))
    np.testing.assert_array_equal(again.predict(TABLE.X), m.predict(TABLE.X))


def test_huber_is_not_moved_by_outliers_as_squared_is():
    y = TABLE.y.copy()
    y[::50] += 100
    errors = {}
    for loss in ("squared", "huber"):
        m = model(loss=loss, max_iter=100).fit(TABLE.X, y)
        errors[loss] = np.sqrt(np.mean((m.predict(TABLE.X) - TABLE.y) ** 2))
    assert errors["huber"] < 0.8 * errors["squared"]


def test_training_that_fails_says_so():
    with pytest.warns(ConvergenceWarning, match=r"0 iterations.*float64"):
        model(hidden_layer_sizes=(20,) * 20).fit(TABLE.X, TABLE.y)


def test_one_sample():
    m = model(max_iter=100, hidden_layer_sizes=12).fit(TABLE.X[:1], TABLE.y[:1])
    assert np.linalg.norm(m.predict(TABLE.X[:1]) - TABLE.y[:1]) < np.linalg.norm(TABLE.y[:1])


def test_a_row_of_zeros_predicts_zero():
    m = model().fit(TABLE.X, TABLE.y)
    np.testing.assert_array_equal(m.predict(np.zeros((1, 12))), 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "adam"}, "method is 'adam'; expected one of ad, mm"),
        ({"scaling": "none"}, "scaling is 'none'; expected one of paper"),
        ({"loss": "mae"}, "loss is 'mae'"),
        ({"loss": "logistic"}, "loss is 'logistic'; expected one of squared, huber"),
        ({"activation": "gelu"}, "activation 'gelu' is refused"),
        ({"hidden_layer_sizes": (5, 0)}, "hidden_layer_sizes is"),
        ({"hidden_layer_sizes": (5, -1)}, "hidden_layer_sizes is"),
        ({"hidden_layer_sizes": 2.5}, "hidden_layer_sizes is"),
        ({"radius": -1.0}, "radius is -1.0"),
        ({"radius": (1.0, 2.0)}, "radius has 2 entries"),
        ({"max_iter": -1}, "max_iter is -1"),
        ({"tol": -1.0}, "tol is -1.0"),
        ({"tol": np.nan}, "tol is nan"),
        ({"tol": "1e-4"}, "tol is '1e-4'"),
        ({"max_iter": "10"}, "max_iter is '10'"),
        ({"loss": None}, "loss is None"),
        ({"dtype": None}, "dtype is None"),
        ({"dtype": "float16"}, "dtype is 'float16'"),
    ],
)
def test_bad_arguments_are_named_before_training(change, message):
    with pytest.raises(ValueError, match=message):
        model(**change).fit(TABLE.X[:20], TABLE.y[:20])


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.full((3, 2), np.nan), np.ones(3), "Input X contains NaN"),
        (np.ones((3, 2)), np.array([1, np.inf, 2]), "Input y contains infinity"),
        (np.ones((3, 2)), np.ones(4), "inconsistent numbers of samples"),
        (np.ones((0, 2)), np.ones(0), "0 sample"),
        (np.ones(3), np.ones(3), "Reshape your data"),
    ],
)
def test_bad_data_is_named(X, y, message):
    with pytest.raises(ValueError, match=message):
        model().fit(X, y)


def test_predict_before_fit_and_with_other_columns():
    with pytest.raises(NotFittedError):
        model().predict(TABLE.X)
    with pytest.raises(ValueError, match="expecting 12 features"):
        model().fit(TABLE.X, TABLE.y).predict(TABLE.X[:, :5])
