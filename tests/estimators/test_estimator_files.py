"""Files of estimators: parameters come back beside the model, and code is refused."""

import contextlib
import copy
import json
import pickle

import jax
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from greatcircle import (
    LipschitzClassifier,
    LipschitzRegressor,
    activations,
    directions,
    load,
    losses,
    steps,
    storage,
)
from greatcircle._runtime.container import pack, unpack
from greatcircle.estimators import files
from greatcircle.estimators.parameters import decode, encode
from greatcircle.network.activations import declare
from greatcircle.training.methods import DIRECTIONS, STEPS

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 4))
Y = np.stack([np.abs(X[:, 0]), X[:, 1] * X[:, 2]], axis=1)
TINY = {"hidden_layer_sizes": (3,), "selection": False, "max_iter": 2, "random_state": 0}


def regressor(y=Y, **changes):
    return LipschitzRegressor(**{**TINY, **changes}).fit(X, y)


def classifier(labels, **changes):
    labels = np.asarray(labels)
    return LipschitzClassifier(**{**TINY, **changes}).fit(
        X, labels[np.arange(len(X)) % len(labels)]
    )


@pytest.fixture(scope="module")
def fitted():
    return regressor()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def saved_and_loaded(model, path):
    model.save(path)
    return load(path)


def with_parameters(model, **changes):
    """A copy with other parameters: much faster than another fit."""
    return copy.deepcopy(model).set_params(**changes)


def same(a, b):
    """Equal in value and in type; NaN equals NaN."""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist()
    return type(a) is type(b) and (a == b or repr(a) == repr(b))


def public(model):
    return {name for name in vars(model) if not name.startswith("_")}


def check_same(model, loaded, rows=X):
    assert type(loaded) is type(model)
    assert public(loaded) == public(model)  # no attribute is lost
    np.testing.assert_array_equal(loaded.predict(rows), model.predict(rows), strict=True)
    for name, value in model.get_params().items():
        assert same(value, loaded.get_params()[name]), name
    assert list(loaded.history_) == list(model.history_)
    for name, column in model.history_.items():
        np.testing.assert_array_equal(loaded.history_[name], column, strict=True)
    for name in (
        "certificate_",
        "network_",
        "n_iter_",
        "n_features_in_",
        "loss_",
        "outcome_",
        "reason_",
        "target_names_",
    ):
        assert getattr(loaded, name) == getattr(model, name), name
    for a, b in zip(loaded.weights_, model.weights_, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
    for name, value in vars(model.scaling_).items():
        assert same(value, getattr(loaded.scaling_, name)), name
    if isinstance(model, LipschitzClassifier):
        np.testing.assert_array_equal(loaded.classes_, model.classes_, strict=True)
        np.testing.assert_array_equal(loaded.predict_proba(rows), model.predict_proba(rows))


# Round trips


@pytest.mark.parametrize("y", [Y[:, 0], Y[:, :1], Y], ids=["one", "one column", "two"])
def test_a_regressor_is_loaded_as_it_was_saved(y, path):
    model = regressor(y)
    check_same(model, saved_and_loaded(model, path))


@pytest.mark.parametrize(
    "labels",
    [[True, False], ["a", "b"], [0, 1, 2], [0, 1], [-1.0, 1.0], np.array(["a", "bc"], object)],
    ids=str,
)
def test_a_classifier_is_loaded_as_it_was_saved(labels, path):
    model = classifier(labels)
    check_same(model, saved_and_loaded(model, path))
    y = np.array(labels)
    assert same(load(path)._encoded(y, reset=False), model._encoded(y, reset=False))


def test_the_papers_method_is_loaded_as_it_was_saved(path):
    model = regressor(method="ad", early_stopping=True, n_iter_no_change=1, dtype="float32")
    assert not model.network_.bias
    check_same(model, saved_and_loaded(model, path))
    np.testing.assert_array_equal(load(path).jacobian(X), model.jacobian(X), strict=True)


def test_the_model_of_an_estimator_is_loaded_alone(fitted, path):
    fitted.save(path)
    model = storage.load(path)
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X), strict=True)
    assert model.certificate == fitted.certificate_


@pytest.mark.parametrize(
    "changes",
    [
        {"method": ("steepest", "taylor3")},
        {"method": (directions.GaussNewton(residual=0.2, max_products=3), steps.Taylor(4))},
        {"method": ("auto", steps.Majorant(steps.GoldenSection())), "hidden_layer_sizes": [3]},
        {"method": (directions.Soap(), steps.LinearDecay(50, 0.2))},
        {"loss": "huber"},
        {"loss": losses.Huber(np.float64(0.5))},
        {"radius": np.array([2.0, 3.0]), "hidden_layer_sizes": 3},
        {"radius": (2.0, np.float32(3.0)), "tol": np.float64(1e-3), "max_iter": np.int64(2)},
        {"tol": np.inf, "dtype": np.float32},
        {"dtype": np.dtype("float64"), "lipschitz": 2, "early_stopping": True},
        {"callbacks": [], "random_state": np.int64(3), "activation": np.str_("tanh")},
    ],
    ids=str,
)
def test_parameters_keep_their_types(changes, fitted, path):
    model = with_parameters(fitted, **changes)
    check_same(model, saved_and_loaded(model, path))


@pytest.mark.parametrize("activation", activations.ACTIVATIONS)
def test_every_activation_is_kept(activation, fitted, path):
    check_same(
        model := with_parameters(fitted, activation=activation), saved_and_loaded(model, path)
    )
    model.set_params(activation=activations.get(activation))
    assert saved_and_loaded(model, path).activation is model.activation


@pytest.mark.parametrize("named", [DIRECTIONS, STEPS, losses.LOSSES, activations.ACTIVATIONS])
def test_every_named_object_is_decoded_as_it_was_encoded(named):
    for value in named.values():
        assert decode(json.loads(json.dumps(encode(value)))) == value


def test_objects_without_a_name_are_decoded_as_they_were_encoded():
    for value in (
        directions.PolakRibiere(),
        directions.GaussNewton(fraction=0.5),
        directions.Muon(),
        directions.Soap(),
        directions.KroneckerMomentum(),
        steps.DataMajorant(steps.GoldenSection()),
        steps.SmoothMajorant(steps.GoldenSection()),
        steps.ComparedCurvature(0.1),
        steps.LinearDecay(50),
        steps.LinearDecay(50, 0.2),
    ):
        assert decode(json.loads(json.dumps(encode(value)))) == value


FORMER_OBJECTS = [
    ("ConjugateGradient", {"beta": "polak-ribiere"}, directions.ConjugateGradient()),
    (
        "ConjugateGradient",
        {"beta": "hager-zhang"},
        directions.ConjugateGradient(directions.HagerZhang()),
    ),
    ("Curvature", {"max_angle": 0.25, "compare": False}, steps.Curvature(0.25)),
    ("Curvature", {"max_angle": 0.25, "compare": True}, steps.ComparedCurvature(0.25)),
    (
        "GaussNewton",
        {"residual": 0.2, "max_products": 3, "share": 0.5},
        directions.GaussNewton(0.2, 3, 0.5),
    ),
    ("Kronecker", {"sample": 100}, directions.Kronecker(100)),
    ("Steepest", {"speed": "unit"}, directions.Steepest()),
    ("Steepest", {"speed": "gradient"}, directions.RiemannianGradient()),
    ("Steepest", {"speed": "trust"}, directions.MajorantSteepest()),
    *(
        (kind.__name__, {"search": text}, kind(search))
        for kind in (steps.Majorant, steps.DataMajorant, steps.SmoothMajorant)
        for text, search in (("brent", steps.Brent()), ("golden", steps.GoldenSection()))
    ),
]


@pytest.mark.parametrize(("name", "given", "expected"), FORMER_OBJECTS, ids=str)
def test_objects_of_version_0_1_are_decoded(name, given, expected):
    assert decode({"object": name, "fields": given}) == expected


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("ConjugateGradient", {"beta": "fletcher-reeves"}),
        ("Curvature", {"compare": "yes"}),
        ("Majorant", {"search": "linear"}),
        ("Majorant", {"search": 3}),
        ("Steepest", {"speed": "fast"}),
        ("Steepest", {"speed": ["fast"]}),
        ("GaussNewton", {"share": 2.0}),
    ],
    ids=str,
)
def test_unknown_values_in_objects_are_refused(name, given):
    with pytest.raises(ValueError):
        decode({"object": name, "fields": given})


def test_a_file_of_version_0_1_with_objects_is_loaded(path):
    method = {
        "tuple": [
            {"object": "ConjugateGradient", "fields": {"beta": "hager-zhang"}},
            {"object": "Majorant", "fields": {"search": "golden"}},
        ]
    }
    parameters = json.loads(FILE[1]["parameters"]) | {"method": method, "checkpoint_seconds": 9.0}
    del parameters["checkpoint_interval"]
    write(path, parameters=json.dumps(parameters))
    loaded = load(path)
    assert loaded.method == (
        directions.ConjugateGradient(directions.HagerZhang()),
        steps.Majorant(steps.GoldenSection()),
    )
    assert loaded.checkpoint_interval == 9.0


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.lists(inner).map(tuple),
        max_leaves=8,
    )
)
def test_plain_values_are_decoded_as_they_were_encoded(value):
    found = decode(json.loads(json.dumps(encode(value), allow_nan=False)))
    assert repr(found) == repr(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["float", "tuple", "numpy", "value", "array", "values", "dtype", "type",
                             "activation", "object", "fields", "sizes", "loss"]),
            inner | st.sampled_from(["float64", "bool", "Huber", "Steepest", "relu", "str", "nan"]),
            max_size=3,
        )
    ),
    max_leaves=6,
)  # fmt: skip


@given(JSON)
def test_decode_gives_a_value_or_a_value_error(value):
    with contextlib.suppress(ValueError):
        decode(value)


@given(st.data())
def test_wrong_parameters_with_a_right_checksum_are_refused_or_set(tmp_path_factory, data):
    tensors, texts = FILE
    given = json.loads(texts["parameters"])
    given[data.draw(st.sampled_from(sorted(given)))] = data.draw(JSON)
    path = tmp_path_factory.mktemp("altered") / "model.safetensors"
    path.write_bytes(pack(tensors, texts | {"parameters": json.dumps(given)}))
    with contextlib.suppress(ValueError):
        assert isinstance(load(path), LipschitzRegressor)


def test_feature_names_are_checked_by_a_loaded_model(fitted, path):
    frame = pl.DataFrame(X, schema=["a", "b", "Gewicht in µg", "d"])
    model = LipschitzRegressor(**TINY).fit(frame, Y)
    loaded = saved_and_loaded(model, path)
    check_same(model, loaded, frame)
    np.testing.assert_array_equal(loaded.feature_names_in_, model.feature_names_in_, strict=True)
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(frame.rename({"a": "z"}))
    with pytest.raises(ValueError, match="3 features"):
        saved_and_loaded(fitted, path).predict(X[:, :3])


def test_a_loaded_model_can_be_cloned_pickled_saved_and_shown(fitted, path):
    loaded = saved_and_loaded(fitted, path)
    before = path.read_bytes()
    assert clone(loaded).get_params() == fitted.get_params()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(loaded)).predict(X), fitted.predict(X))
    check_same(fitted, saved_and_loaded(loaded, path))
    assert path.read_bytes() == before  # the same model, the same bytes
    assert "Lipschitz bound" in loaded._repr_html_()
    loaded.weights_[0][:] = 0  # the arrays do not share memory with the file


@pytest.mark.parametrize("kind", [LipschitzRegressor, LipschitzClassifier])
def test_a_loaded_model_can_be_trained_further(kind, path):
    targets = Y if kind is LipschitzRegressor else np.array(["a", "b", "c", "a"] * 10)
    model = kind(**TINY).fit(X, targets)
    loaded = saved_and_loaded(model, path)
    loaded.partial_fit(X, targets)
    assert loaded.n_iter_ == len(loaded.history_["loss"]) == 3
    assert loaded.history_["iteration"].tolist() == [1, 2, 3]
    assert loaded.loss_ < model.loss_
    loaded = load(path).set_params(warm_start=True).fit(X, targets)
    assert loaded.loss_ < model.loss_
    np.testing.assert_allclose(
        [np.linalg.norm(w) for w in loaded.weights_], [np.linalg.norm(w) for w in model.weights_]
    )


def test_a_direction_without_state_continues_bit_for_bit(path):
    model = regressor(method=("steepest", "curvature"))
    loaded = saved_and_loaded(model, path)
    for m in (model, loaded):
        m.set_params(warm_start=True).fit(X, Y)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


# Parameters that are not stored


def test_what_belongs_to_one_process_is_left_out(fitted, path):
    random = np.random.RandomState(0)
    changes = {"callbacks": (lambda row: None,), "random_state": random, "checkpoint": "folder"}
    model = with_parameters(fitted, **changes, resume=True)
    loaded = saved_and_loaded(model, path)
    assert loaded.callbacks == ()
    assert loaded.random_state is None
    assert (loaded.checkpoint, loaded.resume) == (None, False)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


FILE = unpack(files.encoded(regressor()))


def write(path, **texts):
    path.write_bytes(pack(FILE[0], FILE[1] | texts))


def test_a_parameter_missing_in_the_file_keeps_its_default(path):
    parameters = json.loads(FILE[1]["parameters"])
    del parameters["verbose"]
    write(path, parameters=json.dumps(parameters))
    assert load(path).verbose is False


class OwnLoss(losses.Squared):
    name = "own"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"activation": declare(jax.numpy.tanh, (0, 1), "mine")}, "activation is .*mine"),
        ({"loss": OwnLoss()}, r"loss is .*set_params\(loss='auto'\)"),
        ({"method": ("auto", type("Own", (steps.Curvature,), {})())}, "method is .*but no code"),
    ],
    ids=["activation", "loss", "method"],
)  # fmt: skip
def test_a_users_own_code_is_refused(changes, words, fitted, path):
    with pytest.raises(ValueError, match=words):
        with_parameters(fitted, **changes).save(path)
    assert not path.exists()


def test_only_fitted_estimators_of_this_library_are_saved(fitted, path):
    with pytest.raises(NotFittedError):
        LipschitzRegressor().save(path)
    with pytest.raises(TypeError, match=r"model is a Pipeline.*save its last step"):
        files.save(make_pipeline(fitted), path)
    with pytest.raises(TypeError, match=r"model is a Pipeline.*pass its last step"):
        storage.save(make_pipeline(fitted), path)
    with pytest.raises(TypeError, match="model is a Mine"):
        files.save(type("Mine", (LipschitzRegressor,), {})(), path)


# Files that `save` did not write


def refused(path, words, **texts):
    write(path, **texts)
    with pytest.raises(ValueError, match=words) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_wrong_texts_are_refused(path):
    refused(path, "estimator is 'os.system'", estimator="os.system")
    refused(path, "but it has no classes", estimator="LipschitzClassifier")
    unknown = json.loads(FILE[1]["parameters"]) | {"teleport": 1}
    refused(path, "know: teleport", parameters=json.dumps(unknown))
    for wrong in ("", "[]", "null", "NaN", "[" * 100_000, "eval", '{"a": NaN}', '{"a": 1}'):
        refused(path, ".", parameters=wrong)
        refused(path, ".", estimator=wrong)
    tensors, texts = FILE
    for name in ("estimator", "parameters"):
        path.write_bytes(pack(tensors, {n: text for n, text in texts.items() if n != name}))
        with pytest.raises(ValueError, match=name):
            load(path)
