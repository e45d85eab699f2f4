import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits, load_wine
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.preprocessing import LabelBinarizer

from greatcircle import LipschitzClassifier, load
from greatcircle.estimators.classifier import exact_labels
from greatcircle.objective.losses import Squared

X, Y = load_wine(return_X_y=True)


def model(**changes):
    """Return an estimator of a single fit: the selection has tests of its own."""
    single = {"hidden_layer_sizes": (8,), "selection": False, "max_iter": 15, "random_state": 0}
    return LipschitzClassifier(**{**single, **changes})


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
    assert "the loss reached" in m.reason_
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
    with pytest.raises(ValueError, match=r"classes that the first fit did not have: \[2\]"):
        other.partial_fit(X, Y)


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="y has no classes; a classifier needs at least two"):
        model().partial_fit(X, Y, classes=[])
    with pytest.raises(ValueError, match=r"classes is .*0\.5.*; expected labels"):
        model().partial_fit(X, Y, classes=[0, 1, 2, 0.5])
    with pytest.raises(ValueError, match="y has one class, 1; a classifier needs at least two"):
        model().fit(X, np.ones(len(X), int))


def test_the_part_held_out_has_all_classes():
    rare = np.where(np.arange(len(X)) % 10 == 0, 2, Y % 2)
    m = model(early_stopping=True, validation_fraction=0.2, max_iter=4).fit(X, rare)
    assert np.all(np.isfinite(m.history_["validation_loss"]))


BIG, HUGE = 2**53, 2**63

LABELS = {
    "int64": np.array([BIG, BIG + 1, BIG + 2]),
    "uint64": np.array([1, HUGE, HUGE + 1], np.uint64),
    "list": [1, HUGE, HUGE + 1],  # NumPy makes float64 of it
    "tuple": (-1, BIG, BIG + 1),
    "list of scalars": [np.int64(BIG), np.uint64(HUGE), np.int64(BIG + 1)],
    "objects": np.array([1, HUGE, HUGE + 1], object),
    "pandas": pd.Series([BIG, BIG + 1, BIG + 2], name="kind"),
    "nullable": pd.Series([BIG, BIG + 1, BIG + 2], dtype="Int64", name="kind"),
    "category": pd.Series(pd.Categorical([BIG, BIG + 1, BIG + 2]), name="kind"),
    "frame": pd.DataFrame({"kind": pd.Series([BIG, BIG + 1, BIG + 2], dtype="Int64")}),
    "polars": pl.Series("kind", [1, HUGE, HUGE + 1], dtype=pl.UInt64),
    "whole floats": [1.0, 2.0, 2.0**60],
    "numbers": [1, 2.0, 3],
    "text": ["7", "007", "+7"],
    "text objects": np.array(["a", "a ", "A"], object),
    "strings": pd.Series(["1", "1.0", "-0"], dtype="string", name="kind"),
}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
def test_different_labels_stay_different(kind, tmp_path):
    """Through fit, file and prediction, on rows that any network can tell apart."""
    three = LABELS[kind]
    rows = np.eye(3)
    m = model(max_iter=60, tol=0).fit(rows, three)
    labels = np.array(three, object).ravel().tolist()
    assert sorted(m.classes_.tolist()) == sorted(labels)
    m.save(tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    for trained in (m, loaded):
        assert trained.predict(rows).tolist() == labels
        assert trained.classes_.dtype == m.classes_.dtype
    if hasattr(three, "columns") or hasattr(three, "name"):
        assert loaded.target_names_ == ("kind",)
    loaded.partial_fit(rows, three)  # the labels are the ones it knows


whole = st.integers(-HUGE, HUGE - 1) | st.sampled_from([BIG, BIG + 1, -BIG, -BIG - 1])


@given(
    st.lists(whole, min_size=2)
    | st.lists(st.integers(0, 2 * HUGE - 1), min_size=2)
    | st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=2)
    | st.lists(st.booleans(), min_size=2)
)
@settings(deadline=None)
def test_rows_are_encoded_alike_only_if_their_labels_are_equal(labels):
    m = model()
    for given_as in (list, lambda y: np.array(y, object)):
        y = exact_labels(given_as(labels))
        if len(set(labels)) < 2:
            with pytest.raises(ValueError, match="y has one class"):
                m._encoded(np.asarray(y), reset=True)
            continue
        encoded = m._encoded(np.asarray(y), reset=True)
        assert m.classes_.tolist() == sorted(set(labels))
        assert len(np.unique(encoded, axis=0)) == len(set(labels))
        where = encoded[:, 0].astype(int) if len(set(labels)) == 2 else encoded.argmax(axis=1)
        assert m.classes_[where].tolist() == labels


def test_known_classes_of_another_type_are_compared_exactly():
    m = model().partial_fit(X[:3], np.array([1, 2, 3]), classes=np.array([1, 2, 3], np.uint64))
    assert m.partial_fit(X[:3], [3, 2, 1]).n_iter_ == 2
    m = model().partial_fit(X[:2], np.array([1, BIG]), classes=np.array([1, BIG, HUGE], np.uint64))
    with pytest.raises(ValueError, match=f"the first fit did not have: .{BIG + 1}.;"):
        m.partial_fit(X[:2], np.array([1, BIG + 1]))


def test_labels_of_streams_stay_different(tmp_path):
    rows = np.memmap(tmp_path / "rows.dat", np.float64, "w+", shape=(4, 2))
    rows[:] = X[:4, :2]
    labels = [BIG, BIG + 1, HUGE, HUGE + 1]
    first, second = np.array(labels[:2]), np.array(labels[2:], np.uint64)
    batches = [(rows[:2], first), (rows[2:], second)]
    pl.DataFrame({"a": rows[:, 0], "y": np.array(labels, np.uint64)}).write_parquet(
        tmp_path / "rows.parquet"
    )
    for data in ((rows, labels), (batches,), (tmp_path / "rows.parquet", "y")):
        assert model(max_iter=1).fit(*data).classes_.tolist() == labels
    batches = [(rows[:2], np.array([1, 2])), (rows[2:], np.array(["1", "2"]))]
    with pytest.raises(ValueError, match="y has labels of the types int, str"):
        model().fit(batches)


@pytest.mark.parametrize(
    ("labels", "types"),
    [
        ([1, "1", 2], "int, str"),
        (np.array(["a", None, "b"], object), "NoneType, str"),
        (["a", float("nan"), "b"], "float, str"),
        ([True, 2, 3], "bool, int"),
        ([1.5, 2**60, 3], "float, int"),
    ],
)
def test_labels_of_several_types_are_refused(labels, types):
    with pytest.raises(ValueError, match=f"y has labels of the types {types}; expected one type"):
        model().fit(X[:3], labels)


def test_labels_beyond_64_bits_are_refused():
    for labels in ([-1, 1, HUGE], [1, 2, 2**70]):
        with pytest.raises(ValueError, match="expected whole numbers within int64 or within uint"):
            model().fit(X[:3], labels)


@pytest.mark.slow
def test_digits_at_the_defaults():
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    scores = cross_val_score(
        LipschitzClassifier(random_state=0), *load_digits(return_X_y=True), cv=folds
    )
    assert scores.mean() >= 0.97
