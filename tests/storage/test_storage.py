"""A file gives back the model that was saved, or a ValueError; and it is always a whole file."""

import contextlib
import copy
import json
import os
import pickle
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import polars as pl
import pytest
from greatcircle.optimise.watch import History
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save as plain_save
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

import greatcircle
from greatcircle import (
    LipschitzClassifier,
    LipschitzRegressor,
    Network,
    Scaling,
    activations,
    directions,
    load,
    losses,
    steps,
    storage,
)
from greatcircle._runtime.container import opened, sealed
from greatcircle.estimators.parameters import decode, encode
from greatcircle.network.activations import declare
from greatcircle.optimise.record import Record
from greatcircle.storage.contents import describe, rebuild
from greatcircle.training.methods import DIRECTIONS, STEPS
from small import ACTIVATION_NAMES

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 4))
Y = np.stack([np.abs(X[:, 0]), X[:, 1] * X[:, 2]], axis=1)
TINY = {"hidden_layer_sizes": (3,), "max_iter": 2, "random_state": 0}


def regressor(y=Y, **changes):
    return LipschitzRegressor(**{**TINY, **changes}).fit(X, y)


def classifier(labels, **changes):
    labels = np.asarray(labels)
    return LipschitzClassifier(**{**TINY, **changes}).fit(
        X, labels[np.arange(len(X)) % len(labels)]
    )


def altered(model, **attributes):
    """A copy with other attributes: much faster than another fit."""
    model = copy.deepcopy(model)
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


def as_if_fitted(model, outputs):
    """With the attributes of a fit and random weights, so that importing this file is fast."""
    network = Network((4, 3, outputs), bias=True)
    rows = [Record(i, *(x / i for x in range(1, 7)), i, *range(1, 9)) for i in (1, 2)]
    return altered(
        model,
        network_=network,
        weights_=network.initial_weights(0, dtype=np.float64),
        scaling_=replace(Scaling.fit("standard", X, Y[:, [0] * outputs], centred=True), factor=0.3),
        history_=History.of(rows),
        n_iter_=2,
        n_features_in_=4,
        target_names_=("drag",),
        loss_=0.5,
        outcome_="max_iter",
        reason_="MaxIter(iterations=2)",
    )


def labelled(labels):
    """A classifier of these labels."""
    model = as_if_fitted(LipschitzClassifier(**TINY), 1 if len(labels) == 2 else len(labels))
    model._learn_classes(labels)
    return model


MODEL = altered(as_if_fitted(LipschitzRegressor(**TINY), 2), _single_output=False)
THREE = labelled(["x", "y", "z"])
TENSORS, TEXTS = describe(MODEL)
DATA = sealed(TENSORS, TEXTS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def there_and_back(model, path):
    model.save(path)
    return load(path)


def same(a, b):
    """Equal in value and in type; NaN equals NaN."""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist()
    return type(a) is type(b) and (a == b or repr(a) == repr(b))


def check_same(model, loaded, rows=X):
    assert type(loaded) is type(model)
    assert vars(loaded).keys() == vars(model).keys() - {"_memory"}  # nothing is forgotten
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
        "loss_",
        "outcome_",
        "reason_",
        "target_names_",
    ):
        assert getattr(loaded, name) == getattr(model, name)
    for a, b in zip(loaded.weights_, model.weights_, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
    for name, value in vars(model.scaling_).items():
        assert same(value, getattr(loaded.scaling_, name)), name
    if isinstance(model, LipschitzClassifier):
        np.testing.assert_array_equal(loaded.classes_, model.classes_, strict=True)
        np.testing.assert_array_equal(loaded.predict_proba(rows), model.predict_proba(rows))


# Round trips


@pytest.mark.parametrize("y", [Y[:, 0], Y[:, :1], Y], ids=["one", "one column", "two"])
def test_a_regressor_comes_back(y, path):
    model = regressor(y)
    check_same(model, there_and_back(model, path))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_precision_comes_back(dtype, path):
    model = altered(MODEL, weights_=tuple(w.astype(dtype) for w in MODEL.weights_), dtype=dtype)
    check_same(model, there_and_back(model, path))


@pytest.mark.parametrize("loss", [np.nan, np.inf, 0.0, 5e-324])
def test_a_training_that_failed_comes_back(loss, path):
    empty = History({name: column[:0] for name, column in MODEL.history_.items()})
    model = altered(MODEL, loss_=loss, history_=empty, n_iter_=0, outcome_="non_finite")
    loaded = there_and_back(model, path)
    assert same(loaded.loss_, loss)
    check_same(altered(model, loss_=0.0), altered(loaded, loss_=0.0))


@pytest.mark.parametrize(
    "labels",
    [
        [0, 1],
        [3, 7, 9],
        [False, True],
        [-1.0, 1.0],
        ["no", "yes"],
        ["π", "", "x\x00y", "\ud800"],
        np.array(["a", "b", "c"], "U10"),
        np.array(["short", "a longer one"], object),
        np.array([1, 2], np.uint8),
        np.arange(30),
    ],
    ids=lambda labels: f"{np.asarray(labels).dtype}-{len(labels)}",
)
def test_a_classifier_comes_back(labels, path):
    model = labelled(labels)
    check_same(model, there_and_back(model, path))


@pytest.mark.parametrize("labels", [[True, False], ["a", "b"], [0, 1, 2]], ids=str)
def test_a_fitted_classifier_comes_back(labels, path):
    model = classifier(labels)
    check_same(model, there_and_back(model, path))
    y = np.array(labels)
    assert same(load(path)._encoded(y, reset=False), model._encoded(y, reset=False))


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_every_activation_comes_back(activation, path):
    network = Network(MODEL.network_.sizes, activation, bias=True)
    model = altered(MODEL, network_=network, activation=activation)
    check_same(model, there_and_back(model, path))
    model.set_params(activation=activations.get(activation))
    assert there_and_back(model, path).activation is model.activation


@pytest.mark.parametrize("scaling", ["paper", "standard", "max"])
@pytest.mark.parametrize("varying", [True, False])
def test_every_scaling_comes_back(scaling, varying, path):
    rows = np.where([True, True, varying, True], X, 5.0)
    model = altered(MODEL, scaling_=replace(Scaling.fit(scaling, rows, Y), factor=np.pi))
    assert np.isinf(model.scaling_.spread[2]) == (scaling == "standard" and not varying)
    check_same(model, there_and_back(model, path))


def test_the_papers_method_comes_back(path):
    model = regressor(method="ad", early_stopping=True, n_iter_no_change=1, dtype="float32")
    assert not model.network_.bias
    check_same(model, there_and_back(model, path))
    np.testing.assert_array_equal(load(path).jacobian(X), model.jacobian(X), strict=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"method": ("steepest", "taylor3")},
        {"method": (directions.GaussNewton(residual=0.2, max_products=3), steps.Taylor(4))},
        {"method": ("auto", steps.Majorant("golden")), "hidden_layer_sizes": [3]},
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
def test_parameters_come_back_with_their_types(changes, path):
    model = copy.deepcopy(MODEL).set_params(**changes)
    check_same(model, there_and_back(model, path))


@pytest.mark.parametrize("named", [DIRECTIONS, STEPS, losses.LOSSES, activations.ACTIVATIONS])
def test_everything_that_has_a_name_comes_back(named):
    for value in named.values():
        assert decode(json.loads(json.dumps(encode(value)))) == value


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.lists(inner).map(tuple),
        max_leaves=8,
    )
)
def test_plain_values_come_back(value):
    found = decode(json.loads(json.dumps(encode(value), allow_nan=False)))
    assert repr(found) == repr(value)


def test_feature_names_are_checked_by_a_loaded_model(path):
    frame = pl.DataFrame(X, schema=["a", "b", "Gewicht in µg", "d"])
    model = LipschitzRegressor(**TINY).fit(frame, Y)
    loaded = there_and_back(model, path)
    check_same(model, loaded, frame)
    np.testing.assert_array_equal(loaded.feature_names_in_, model.feature_names_in_, strict=True)
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(frame.rename({"a": "z"}))
    with pytest.raises(ValueError, match="3 features"):
        there_and_back(MODEL, path).predict(X[:, :3])


def test_a_loaded_model_can_be_cloned_pickled_saved_and_shown(path):
    loaded = there_and_back(MODEL, path)
    before = path.read_bytes()
    assert clone(loaded).get_params() == MODEL.get_params()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(loaded)).predict(X), MODEL.predict(X))
    check_same(MODEL, there_and_back(loaded, path))
    assert path.read_bytes() == before  # the same model, the same bytes
    assert "Lipschitz bound" in loaded._repr_html_()
    loaded.weights_[0][:] = 0  # arrays of its own, which can be written


@pytest.mark.parametrize("kind", [LipschitzRegressor, LipschitzClassifier])
def test_training_goes_on(kind, path):
    targets = Y if kind is LipschitzRegressor else np.array(["a", "b", "c", "a"] * 10)
    model = kind(**TINY).fit(X, targets)
    loaded = there_and_back(model, path)
    loaded.partial_fit(X, targets)
    assert loaded.n_iter_ == len(loaded.history_["loss"]) == 3
    assert loaded.history_["iteration"].tolist() == [1, 2, 3]
    assert loaded.loss_ < model.loss_
    loaded = load(path).set_params(warm_start=True).fit(X, targets)
    assert loaded.loss_ < model.loss_
    np.testing.assert_allclose(
        [np.linalg.norm(w) for w in loaded.weights_], [np.linalg.norm(w) for w in model.weights_]
    )


def test_without_a_memory_training_goes_on_bit_for_bit(path):
    model = regressor(method=("steepest", "curvature"))
    loaded = there_and_back(model, path)
    for m in (model, loaded):
        m.set_params(warm_start=True).fit(X, Y)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_what_belongs_to_one_process_is_left_out(path):
    random = np.random.RandomState(0)
    model = altered(MODEL, callbacks=(lambda row: None,), random_state=random)
    loaded = there_and_back(model, path)
    assert loaded.callbacks == ()
    assert loaded.random_state is None
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_a_parameter_that_the_file_does_not_know_keeps_its_default():
    parameters = json.loads(TEXTS["parameters"])
    del parameters["verbose"]
    assert rebuild(TENSORS, TEXTS | {"parameters": json.dumps(parameters)}).verbose is False


# What cannot be stored


class OwnLoss(losses.Squared):
    name = "own"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"activation": declare(jax.numpy.tanh, (0, 1), "mine")}, "activation is .*mine"),
        ({"loss": OwnLoss()}, r"loss is .*set_params\(loss='auto'\)"),
        ({"method": ("auto", type("Own", (steps.Curvature,), {})())}, "method is .*not for code"),
    ],
    ids=["activation", "loss", "method"],
)  # fmt: skip
def test_a_users_own_code_is_refused(changes, words, path):
    with pytest.raises(ValueError, match=words):
        altered(MODEL, **changes).save(path)
    assert not path.exists()


def test_an_activation_is_refused_that_only_the_network_remembers(path):
    network = Network(MODEL.network_.sizes, declare(jax.numpy.tanh, (0, 1), "relu"), bias=True)
    with pytest.raises(ValueError, match=r"activation is .*declared=True"):
        altered(MODEL, network_=network).save(path)


def test_labels_that_no_file_holds_are_refused(path):
    with pytest.raises(ValueError, match=r"classes_ has the type complex128; expected numbers"):
        altered(THREE, classes_=np.array([1j, 2j, 3j])).save(path)


def test_only_fitted_estimators_of_this_library_are_saved(path):
    with pytest.raises(NotFittedError):
        LipschitzRegressor().save(path)
    with pytest.raises(TypeError, match=r"model is a Pipeline.*save its last step"):
        storage.save(make_pipeline(MODEL), path)
    with pytest.raises(TypeError, match="model is a Mine"):
        storage.save(type("Mine", (LipschitzRegressor,), {})(), path)


# Paths


def test_paths(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"ends in \.safetensors: try .*model\.pkl\.safetensors'"):
        MODEL.save(tmp_path / "model.pkl")
    with pytest.raises(ValueError, match=r"try 'model\.safetensors'"):
        MODEL.save("")
    with pytest.raises(FileNotFoundError, match=r"the folder '.*none' does not exist; create it"):
        MODEL.save(tmp_path / "none" / "model.safetensors")
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(ValueError, match="which is a folder"):
        MODEL.save(tmp_path / "folder.safetensors")
    with pytest.raises(ValueError, match=r"is a folder; expected a \.safetensors file"):
        load(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"there is no file m\.safetensors.*seen from"):
        load("m.safetensors")
    MODEL.save("m.safetensors")
    os.rename("m.safetensors", "any name")
    check_same(MODEL, load("any name"))


def test_a_link_stays_a_link_and_a_mode_a_mode(tmp_path):
    real, link = tmp_path / "real.safetensors", tmp_path / "link.safetensors"
    MODEL.save(real)
    real.chmod(0o640)
    link.symlink_to(real)
    THREE.save(link)
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    check_same(THREE, load(real))


def test_a_failed_write_leaves_the_old_file_and_nothing_else(path, monkeypatch):
    MODEL.save(path)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        THREE.save(path)
    assert os.listdir(path.parent) == [path.name]
    check_same(MODEL, load(path))


KILLED = textwrap.dedent("""
    import os, random, signal, sys, time, warnings
    warnings.simplefilter("ignore")  # JAX warns of forks; nothing here computes with it
    from greatcircle import load

    path, random = sys.argv[1], random.Random(0)
    a, b = load(path), load(path)
    b.reason_ = "another" * 50_000  # files of different lengths
    for _ in range(25):
        before, end = os.stat(path).st_mtime_ns, time.monotonic() + 20
        child = os.fork()
        if not child:
            while True:
                a.save(path)
                b.save(path)
        # A busy machine may let it wait: killed before it writes, it would try nothing.
        while os.stat(path).st_mtime_ns == before and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(random.uniform(0, 0.06))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert load(path).reason_ in (a.reason_, b.reason_)
        print(os.stat(path).st_mtime_ns)
""")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_file_is_whole_whenever_its_writer_is_killed(path):
    MODEL.save(path)
    source = str(Path(greatcircle.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert len(set(done.stdout.split())) == 25  # every writer did write
    load(path)


# Files that are not what `save` wrote


def refused(data, path, words="."):
    path.write_bytes(data)
    with pytest.raises(ValueError, match=words) as caught:
        load(path)
    assert str(path) in str(caught.value)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("altered") / "model.safetensors"


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_one_altered_byte_is_noticed(place, at, change):
    data = bytearray(DATA)
    data[at] ^= change
    refused(bytes(data), place)


def test_every_byte_of_the_header_is_noticed():
    """Spaces that become tabs, small letters that become capitals: still JSON, no longer ours."""
    end = 8 + int.from_bytes(DATA[:8], "little")
    for at in range(end):
        for change in (0x01, 0x20, 0x29):
            data = bytearray(DATA)
            data[at] ^= change
            with pytest.raises(ValueError):
                opened(bytes(data))


@given(st.integers(0, len(DATA) - 1))
def test_a_cut_file_is_noticed(place, length):
    refused(DATA[:length], place)


@given(st.binary(min_size=1, max_size=100))
def test_bytes_at_the_end_are_noticed(place, more):
    refused(DATA + more, place)


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(place, data):
    refused(data, place)
    refused(len(data).to_bytes(8, "little") + data, place)


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

SECTIONS = {
    name: json.loads(text)
    for name, text in TEXTS.items()
    if name in ("network", "certificate", "fit")
}


@given(st.data())
def test_wrong_content_with_a_right_checksum_is_refused(place, data):
    name = data.draw(st.sampled_from(sorted(SECTIONS)))
    section = dict(SECTIONS[name])
    key = data.draw(st.sampled_from(sorted(section)))
    if key in ("outcome", "reason", "loss"):
        wrong = data.draw(JSON.filter(lambda v: type(v) not in (str, float, dict)))
    else:
        wrong = data.draw(JSON.filter(lambda v: v != section[key]))
    section[key] = wrong
    refused(sealed(TENSORS, TEXTS | {name: json.dumps(section)}), place)


@given(JSON)
def test_decode_gives_a_value_or_a_value_error(value):
    with contextlib.suppress(ValueError):
        decode(value)


@given(st.data())
def test_wrong_arrays_with_a_right_checksum_are_refused(place, data):
    name = data.draw(st.sampled_from(sorted(n for n in TENSORS if not n.startswith("history."))))
    array = TENSORS[name]
    choices = [
        array.astype(np.float16),
        array[None],
        array.reshape(-1)[:-1],
        np.zeros(0),
        np.full_like(array, np.nan),
    ]
    if "shift" not in name:  # where any finite number may be right
        choices += [np.full_like(array, 1e200), np.full_like(array, 1e-320), array * -1.5]
    wrong = data.draw(st.sampled_from(choices))
    refused(sealed(TENSORS | {name: wrong}, TEXTS), place)


@pytest.mark.parametrize("name", sorted(TENSORS))
def test_every_array_is_needed(name, path):
    refused(sealed({n: t for n, t in TENSORS.items() if n != name}, TEXTS), path, "array")


@pytest.mark.parametrize("name", sorted(TEXTS.keys() - {"versions"}))
def test_every_text_is_needed(name, path):
    others = {n: text for n, text in TEXTS.items() if n != name}
    refused(sealed(TENSORS, others), path, f"its metadata have no '{name}'")
    for wrong in ("", "[]", "null", "NaN", "[" * 100_000, "eval", '{"a": NaN}', '{"a": 1}'):
        refused(sealed(TENSORS, others | {name: wrong}), path)


@pytest.mark.parametrize(
    ("classes", "ok"),
    [
        ({"labels": ["a", "b", "c"], "width": 1}, True),
        ({"labels": ["a", "b", "c"], "width": None}, True),
        ({"labels": ["a", "b", "c"], "width": 0}, False),
        ({"labels": ["a", "b", "c"], "width": 10**12}, False),
        ({"labels": ["a", "c", "b"], "width": 1}, False),
        ({"labels": ["a", "a", "b"], "width": 1}, False),
        ({"labels": ["a", "b"], "width": 1}, False),
        ({"labels": [], "width": 1}, False),
        ({"labels": ["a", "b", 3], "width": 1}, False),
        (np.array([1.0, 2.0, np.nan]), False),
        (np.array([1.0, 2.0, np.inf]), False),
        (np.array([1.0, 2.0, 2.5]), False),
        (np.array([1.0, 2.0, 1e300]), False),
        (np.array([[1.0], [2.0], [3.0]]), False),
        (np.array(1.0), False),
        (np.array([3, 2, 1]), False),
        (np.array([1, 2, 3]), True),
    ],
)
def test_classes_are_checked(path, classes, ok):
    tensors, texts = describe(THREE)
    if isinstance(classes, dict):
        data = sealed(tensors, texts | {"classes": json.dumps(classes)})
    else:
        del texts["classes"]
        data = sealed(tensors | {"classes": classes}, texts)
    if ok:
        path.write_bytes(data)
        load(path)
    else:
        refused(data, path)


# Messages


def test_the_messages_say_what_is_wrong(path):
    tensors, texts = TENSORS, TEXTS
    refused(b"", path, "it has 0 bytes, fewer than any")
    refused(DATA[:1000], path, "header would end at byte .* cut short")
    refused(DATA[:-8], path, "its checksum does not match its content")
    refused(b"PK\x03\x04" + bytes(500), path, "its header is not JSON|no safetensors file")
    refused(pickle.dumps(MODEL), path, "no safetensors file")
    refused(plain_save({"a": np.ones(3)}), path, "a safetensors file, but no greatcircle model")
    refused(plain_save({}, {"format": "pt"}), path, "but no greatcircle model")
    refused(sealed(tensors | {"extra": X}, texts), path, "belong to no model: extra")
    refused(sealed(tensors, texts | {"estimator": "os.system"}), path, "estimator is 'os.system'")
    newer = texts | {"versions": json.dumps({"greatcircle": "9.1"}), "format_version": "2"}
    refused(sealed(tensors, newer), path, "format version '2', written by greatcircle 9.1; this is")
    refused(sealed(tensors, newer | {"versions": "[]"}), path, "an unknown version")
    unknown = json.loads(texts["parameters"]) | {"teleport": 1}
    refused(sealed(tensors, texts | {"parameters": json.dumps(unknown)}), path, "know: teleport")
    heavier = tensors["weights.0"] * 2
    refused(sealed(tensors | {"weights.0": heavier}, texts), path, "its radii are not the norms")
    radii = tensors["radii"] * [2, 1]
    both = {"weights.0": heavier, "radii": radii}
    refused(sealed(tensors | both, texts), path, "its certificate says .*do not trust this file")


def test_an_array_of_another_type_is_named(path):
    wrong = TENSORS["radii"].astype(np.complex64)
    refused(sealed(TENSORS | {"radii": wrong}, TEXTS), path, "array 'radii' is of type 'C64'")


# What others see


def test_plain_safetensors_reads_the_file(path):
    MODEL.save(path)
    with safe_open(path, "np") as file:
        versions = json.loads(file.metadata()["versions"])
        weights = file.get_tensor("weights.0")
        radii = file.get_tensor("radii")
    assert versions == {
        "greatcircle": greatcircle.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
    }
    np.testing.assert_array_equal(weights, MODEL.weights_[0])
    assert radii[0] == pytest.approx(np.linalg.norm(weights), rel=1e-12)
