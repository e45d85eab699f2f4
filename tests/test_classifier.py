import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.preprocessing import LabelBinarizer

from greatcircle import LipschitzClassifier
from greatcircle.losses import Squared

X, Y = load_wine(return_X_y=True)


def model(**changes):
    return LipschitzClassifier(
        **{"hidden_layer_sizes": (8,), "max_iter": 15, "random_state": 0, **changes}
    )


@pytest.fixture(scope="module")
def three():
    return model().fit(X, Y)


@pytest.fixture(scope="module")
def two():
    return model().fit(X, np.where(Y == 1, "one", "other"))


def test_more_classes_have_a_logit_each(three):
    logits = three.decision_function(X)
    assert logits.shape == (len(X), 3)
    odds = np.exp(logits)
    np.testing.assert_allclose(three.predict_proba(X), odds / odds.sum(1, keepdims=True))
    np.testing.assert_array_equal(three.predict(X), np.argmax(logits, axis=1))
    assert three.score(X, Y) > 0.95


def test_two_classes_have_one_logit_and_any_labels(two):
    logits = two.decision_function(X)
    assert logits.shape == (len(X),)
    np.testing.assert_allclose(two.predict_proba(X)[:, 1], 1 / (1 + np.exp(-logits)))
    np.testing.assert_array_equal(two.predict(X), np.where(logits > 0, "other", "one"))
    assert two.classes_.tolist() == ["one", "other"]


def test_the_loss_is_the_cross_entropy_of_the_probabilities(three, two):
    chosen = three.predict_proba(X)[np.arange(len(X)), Y]
    assert three.loss_ == pytest.approx(-np.mean(np.log(chosen)), rel=1e-6)
    chosen = two.predict_proba(X)[np.arange(len(X)), (Y != 1).astype(int)]
    assert two.loss_ == pytest.approx(-np.mean(np.log(chosen)), rel=1e-6)


def pairs(seed=0):
    rng = np.random.default_rng(seed)
    a = X[rng.integers(0, len(X), 4000)]
    return a, a + 10.0 ** rng.uniform(-3, 2, (len(a), 1)) * rng.standard_normal(a.shape)


@pytest.mark.parametrize("name", ["two", "three"])
def test_logits_respect_the_bound(name, request):
    m = request.getfixturevalue(name)
    a, b = pairs()
    far = (m.decision_function(a) - m.decision_function(b)).reshape(len(a), -1)
    moved = np.linalg.norm(a - b, axis=1)
    assert np.all(np.linalg.norm(far, axis=1) <= m.certificate_.value * moved * (1 + 1e-9))
    steepest = np.linalg.norm(m.jacobian(X), ord=2, axis=(1, 2)).max()
    assert 1e-3 * m.certificate_.value < steepest <= m.certificate_.value


def test_a_budget_bounds_the_logits_and_the_decisions():
    m = model(lipschitz=0.01, max_iter=5).fit(X, Y == 1)
    assert m.certificate_.value <= 0.01
    safe = np.abs(m.decision_function(X)) / 0.01
    away = np.random.default_rng(0).standard_normal(X.shape)
    away *= 0.999 * (safe / np.linalg.norm(away, axis=1))[:, None]
    np.testing.assert_array_equal(m.predict(X + away), m.predict(X))


def test_learning_ends_where_nothing_is_left_to_learn():
    m = model(hidden_layer_sizes=(30,), max_iter=500).fit(X, Y)
    assert "LossBelow" in m.reason_
    assert m.loss_ <= 0.01 * np.log(3)
    assert model(max_iter=60, tol=0).fit(X, Y).n_iter_ == 60


def test_a_loss_of_ones_own():
    m = model(loss=Squared(), max_iter=10).fit(X, Y)
    assert m.loss_ < 0.5 * np.mean(LabelBinarizer().fit_transform(Y) ** 2) * 3
    with pytest.raises(ValueError, match="loss is 'huber'; expected 'auto' or a loss object"):
        model(loss="huber").fit(X, Y)


def test_partial_fit_needs_to_know_the_classes():
    m = model()
    first = Y < 2
    m.partial_fit(X[first], Y[first], classes=[0, 1, 2])
    assert m.predict_proba(X).shape == (len(X), 3)
    for _ in range(6):
        m.partial_fit(X, Y)
    assert m.n_iter_ == 7
    assert m.score(X, Y) > 0.8
    other = model().partial_fit(X[first], Y[first])
    with pytest.raises(ValueError, match=r"classes that were not there at the first fit: \[2\]"):
        other.partial_fit(X, Y)


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="y has one class, 1; a classifier needs at least two"):
        model().fit(X, np.ones(len(X), int))


def test_the_part_held_out_has_all_classes():
    rare = np.where(np.arange(len(X)) % 10 == 0, 2, Y % 2)
    m = model(early_stopping=True, validation_fraction=0.2, max_iter=4).fit(X, rare)
    assert np.all(np.isfinite(m.history_["validation_loss"]))


@pytest.mark.slow
def test_digits_at_the_defaults():
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    scores = cross_val_score(
        LipschitzClassifier(random_state=0), *load_digits(return_X_y=True), cv=folds
    )
    assert scores.mean() >= 0.97
