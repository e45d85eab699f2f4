"""The parameter `saturation` of the regressor."""

import inspect
import pickle

import numpy as np
import pytest
from sklearn.base import clone

from greatcircle import LipschitzClassifier, LipschitzRegressor, load
from greatcircle.data.saturation import KINDS
from greatcircle.estimators.base import LipschitzEstimator
from greatcircle.objective import losses
from greatcircle.training import data as training_data
from greatcircle.training import settings as training_settings

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3)) * [1, 5, 0.1]
Y = np.stack([np.abs(X[:, 0]), X[:, 1] * X[:, 2]], axis=1)
FAR = 50 * X


class Own:
    """A user's loss."""

    name, curvature = "own", 1.0

    def of_row(self, outputs, targets):
        return losses.Squared().of_row(outputs, targets)

    def check(self, targets):
        pass


def fitted(kind="auto", **changes):
    """Return an estimator of a single fit: the selection has tests of its own."""
    single = {"hidden_layer_sizes": (5,), "selection": False, "max_iter": 3, "random_state": 0}
    return LipschitzRegressor(saturation=kind, **single | changes)


def kind_of(estimator):
    return estimator.model_.saturation.kind


@pytest.mark.parametrize("kind", [False, *KINDS])
def test_predictions_stay_in_their_range(kind):
    plain, model = fitted(False).fit(X, Y), fitted(kind).fit(X, Y)
    limits = model.model_.saturation
    assert limits.kind == kind
    for a, b in zip(plain.weights_, model.weights_, strict=True):
        assert np.array_equal(a, b)  # training does not depend on it
    assert plain.loss_ == model.loss_
    for rows in (X, FAR):
        expected = limits.outputs(plain.predict(limits.inputs(rows)))
        assert np.array_equal(model.predict(rows), expected)
    if limits.clips_outputs:
        room = 0.05 * np.ptp(Y, axis=0)
        assert np.all(model.predict(FAR) <= Y.max(axis=0) + room * (1 + 1e-9))
        assert np.all(model.predict(FAR) >= Y.min(axis=0) - room * (1 + 1e-9))
    if limits.clips_inputs:
        assert np.array_equal([limits.lower, limits.upper], [X.min(axis=0), X.max(axis=0)])
    slopes = np.linalg.norm(model.jacobian(np.vstack([X, FAR])), 2, axis=(1, 2))
    assert slopes.max() <= model.lipschitz_bound_ * (1 + 1e-9)
    assert (str(limits) in model._repr_html_()) == bool(kind)


def test_what_auto_means(monkeypatch):
    for kind in ("outputs", "inputs", "both", False):
        monkeypatch.setattr(training_settings, "AUTOMATIC_SATURATION", kind)
        assert kind_of(fitted().fit(X, Y)) == kind
        assert kind_of(fitted(loss="huber").fit(X, Y)) == kind
        in_paper = {"both": "outputs", "inputs": False}.get(kind, kind)
        assert kind_of(fitted(scaling="paper").fit(X, Y)) == in_paper
        for method in ("ad", "mm", ("steepest", "curvature"), ("auto", "curvature")):
            assert kind_of(fitted(method=method).fit(X, Y)) is False
        # The outputs of an unknown loss may be anything, log-odds for example.
        assert kind_of(fitted(loss=Own()).fit(X, Y)) is False
    assert kind_of(fitted("outputs", method="ad").fit(X, Y)) == "outputs"


def test_rows_of_weight_zero_and_repeated_rows():
    weight = np.ones(60)
    outliers = np.arange(0, 60, 7)
    weight[outliers] = 0
    X_wild, Y_wild = X.copy(), Y.copy()
    X_wild[outliers] *= 1e3
    Y_wild[outliers] *= 1e3
    model = fitted("both").fit(X_wild, Y_wild, weight)
    kept = weight > 0
    fewer = fitted("both").fit(np.repeat(X[kept], 2, axis=0), np.repeat(Y[kept], 2, axis=0))
    for name, ends in vars(model.model_.saturation).items():
        assert np.array_equal(ends, getattr(fewer.model_.saturation, name))


def test_validation_rows_are_not_training_rows():
    model = fitted("inputs", early_stopping=True, validation_fraction=0.5).fit(X, Y)
    assert np.any(model.model_.saturation.upper < X.max(axis=0))


def test_ranges_grow_when_training_continues():
    model = fitted("both", warm_start=True).fit(X[:30], Y[:30])
    first = model.model_.saturation
    model.fit(X[30:], Y[30:])
    assert np.array_equal(model.model_.saturation.lower, X.min(axis=0))
    assert np.array_equal(model.model_.saturation.upper, X.max(axis=0))
    assert np.all(model.model_.saturation.output_upper >= first.output_upper)
    model.set_params(saturation=False).fit(X, Y)
    assert kind_of(model) is False
    online = fitted("inputs")
    for some in np.split(np.arange(60), 4):
        online.partial_fit(X[some], Y[some])
    assert np.array_equal(online.model_.saturation.upper, X.max(axis=0))
    one = fitted().partial_fit(X[:1], Y[:1])
    assert np.array_equal(one.predict(FAR[:3]), np.repeat(Y[:1], 3, axis=0))


def test_constant_targets_and_columns():
    constant = np.full((60, 1), 0.3)
    model = fitted("both").fit(np.hstack([X, constant]), constant[:, 0])
    assert np.all(model.predict(np.hstack([FAR, FAR[:, :1]])) == 0.3)
    assert not model.jacobian(np.hstack([X, constant])).any()


def test_a_budget_holds_for_a_model_that_clips():
    for kind in KINDS:
        model = fitted(kind, lipschitz=0.2).fit(X, Y)
        assert model.lipschitz_bound_ <= 0.2
        rise = np.linalg.norm(np.diff(model.predict(FAR), axis=0), axis=1)
        run = np.linalg.norm(np.diff(FAR, axis=0), axis=1)
        assert np.all(rise <= 0.2 * run + 1e-9)


def test_data_larger_than_memory(monkeypatch):
    monkeypatch.setattr(training_data, "SAMPLE", 20)
    batches = [(X[:30], Y[:30]), (X[30:], Y[30:])]
    assert kind_of(fitted(batch_size=10).fit(batches)) is False
    with pytest.raises(ValueError, match=r"larger than memory.*saturation=False"):
        fitted("outputs", batch_size=10).fit(batches)
    monkeypatch.setattr(training_data, "SAMPLE", 1000)
    assert kind_of(fitted().fit(batches)) == "outputs"


def test_parameters_are_those_of_the_base_class_and_one_more():
    """The constructor of the regressor repeats that of the base class, as scikit-learn needs it."""
    of_base = inspect.signature(LipschitzEstimator.__init__).parameters
    own = dict(inspect.signature(LipschitzRegressor.__init__).parameters)
    assert own.pop("saturation").default == "auto"
    assert own == dict(of_base)
    assert "saturation" not in LipschitzClassifier().get_params()
    given = {name: object() for name in own if name != "self"}
    assert LipschitzRegressor(**given, saturation="both").get_params() == given | {
        "saturation": "both"
    }


def test_copies_and_files(tmp_path):
    model = fitted("both").fit(X, Y)
    assert clone(model).saturation == "both"
    assert model.set_params(saturation="inputs").get_params()["saturation"] == "inputs"
    model.save(tmp_path / "model.safetensors")
    for again in (load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(model))):
        assert again.saturation == "inputs"
        assert kind_of(again) == "both"
        assert np.array_equal(again.predict(FAR), model.predict(FAR))
    for path in model.export(tmp_path / "net.c", saturation=False):
        assert ", clipped to" not in path.read_text()


def test_a_fit_may_be_resumed_with_another_saturation(tmp_path):
    fitted(checkpoint=tmp_path).fit(X, Y)
    again = fitted("both", checkpoint=tmp_path, resume=True, max_iter=5).fit(X, Y)
    assert kind_of(again) == "both"
