"""A model file gives back the saved model, or a ValueError; and it is never written in part."""

import copy
import json
import os
import pickle
import subprocess
import sys
import textwrap
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save as plain_save

import greatcircle
from greatcircle import LipschitzRegressor, Scaling, storage
from greatcircle._runtime.container import pack, unpack
from greatcircle._runtime.versions import versions
from greatcircle.model import Model, SelectionRow, SelectionTable, Training
from greatcircle.network.activations import ACTIVATIONS, declare
from greatcircle.optimise.history import History
from greatcircle.optimise.record import Record
from greatcircle.storage import load, save
from greatcircle.storage.describe import describe
from small import ACTIVATION_NAMES

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 4))
Y = np.stack([np.abs(X[:, 0]), X[:, 1] * X[:, 2]], axis=1)
SOURCE = str(Path(greatcircle.__file__).parents[1])


def record(i):
    """A record whose values differ, in the types of its fields."""
    kinds = Record.__annotations__.values()
    return Record(*(i if kind is int else k / i for k, kind in enumerate(kinds, 1)))


def a_model(outputs, **changes):
    """A model of random weights, so that importing this file is fast."""
    sizes = (4, 3, outputs)
    rng = np.random.default_rng(1)
    model = Model(
        weights=tuple(rng.normal(size=(m + 1, n)) for m, n in pairwise(sizes)),
        bias=True,
        activation=ACTIVATIONS["relu"],
        scaling=replace(Scaling.fit("standard", X, Y[:, [0] * outputs], centred=True), factor=0.3),
        target_names=("drag", "lift")[:outputs],
        training=Training(
            History.of([record(1), record(2)]), 0.5, "max_iter", "MaxIter(iterations=2)"
        ),
    )
    return replace(model, **changes)


def labelled(labels):
    """A classifier of these labels."""
    classes = np.unique(labels)
    outputs = 1 if len(classes) == 2 else len(classes)
    return a_model(outputs, classes=classes, target_names=("label",))


MODEL = a_model(2)
THREE = labelled(["x", "y", "z"])
TENSORS, TEXTS = describe(MODEL)
DATA = pack(TENSORS, TEXTS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def saved_and_loaded(model, path):
    save(model, path)
    return load(path)


def same(a, b):
    """Equal in value and in type; NaN equals NaN."""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist()
    if isinstance(a, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, History):
        return list(a) == list(b) and all(same(a[name], b[name]) for name in a)
    if isinstance(a, Scaling | Training):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return type(a) is type(b) and (a == b or repr(a) == repr(b))


def check_same(model, loaded):
    for field in fields(Model):
        if field.name != "known_certificate":
            assert same(getattr(model, field.name), getattr(loaded, field.name)), field.name
    assert loaded.known_certificate == model.certificate
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X), strict=True)
    np.testing.assert_array_equal(loaded.jacobian(X), model.jacobian(X), strict=True)
    if model.classes is not None:
        np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


# Round trips


@pytest.mark.parametrize(("outputs", "single"), [(1, True), (1, False), (2, False)])
def test_a_regressor_is_loaded_as_it_was_saved(outputs, single, path):
    model = a_model(outputs, single_output=single)
    check_same(model, saved_and_loaded(model, path))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weights_keep_their_precision(dtype, path):
    model = replace(MODEL, weights=tuple(w.astype(dtype) for w in MODEL.weights))
    check_same(model, saved_and_loaded(model, path))


@pytest.mark.parametrize("loss", [np.nan, np.inf, 0.0, 5e-324])
def test_a_failed_training_is_loaded_as_it_was_saved(loss, path):
    empty = History({name: column[:0] for name, column in MODEL.training.history.items()})
    model = replace(MODEL, training=Training(empty, loss, "non_finite", "diverged"))
    check_same(model, saved_and_loaded(model, path))


@pytest.mark.parametrize(
    "changes",
    [
        {"training": None},
        {"lipschitz": 2.0},
        {"target_names": ()},
        {"feature_names": ("a", "b", "Gewicht in µg", "\ud800")},
    ],
    ids=str,
)
def test_every_field_is_kept(changes, path):
    model = replace(MODEL, **changes)
    check_same(model, saved_and_loaded(model, path))


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
def test_a_classifier_is_loaded_as_it_was_saved(labels, path):
    model = labelled(labels)
    check_same(model, saved_and_loaded(model, path))


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_every_activation_is_kept(activation, path):
    model = replace(MODEL, activation=ACTIVATIONS[activation])
    check_same(model, saved_and_loaded(model, path))


@pytest.mark.parametrize("scaling", ["paper", "standard", "max"])
@pytest.mark.parametrize("varying", [True, False])
def test_every_scaling_is_kept(scaling, varying, path):
    rows = np.where([True, True, varying, True], X, 5.0)
    model = replace(MODEL, scaling=replace(Scaling.fit(scaling, rows, Y), factor=np.pi))
    assert np.isinf(model.scaling.spread[2]) == (scaling == "standard" and not varying)
    check_same(model, saved_and_loaded(model, path))


def test_a_network_without_biases_is_kept(path):
    model = replace(MODEL, bias=False, weights=tuple(w[:-1] for w in MODEL.weights))
    check_same(model, saved_and_loaded(model, path))


def candidate(i, **changes):
    """A row of a selection whose values differ, in the types of its fields."""
    row = SelectionRow((i, 4), 2.0 * i, 10 * i, 5, 0.1 / i, 0.01 / i, 99.5 * i, 7.0 / i, i == 1)
    return row._replace(**changes)


TABLE = SelectionTable.of(
    [
        candidate(1, direction="soap", steps=1024, iterations=0),
        candidate(2, direction="k-fac", steps=4096, target_gain=np.nan),
        candidate(3),
    ]
)
SELECTED = replace(MODEL, training=replace(MODEL.training, selection=TABLE))


def assert_same_table(table, other):
    assert list(table) == list(other)
    for name, column in table.items():
        np.testing.assert_array_equal(other[name], column, name, strict=True)


def test_the_table_of_a_selection_is_kept(path):
    loaded = saved_and_loaded(SELECTED, path)
    assert_same_table(loaded.training.selection, TABLE)
    assert loaded.training.selection["direction"].tolist() == ["soap", "k-fac", ""]
    assert loaded.training.selection["steps"].tolist() == [1024, 4096, 0]
    assert saved_and_loaded(MODEL, path).training.selection is None


def altered_candidates(alter):
    """Return a file of `SELECTED` whose candidates were altered as JSON objects."""
    tensors, texts = describe(SELECTED)
    selection = json.loads(texts["selection"])
    for row in selection["candidates"]:
        alter(row)
    return pack(tensors, texts | {"selection": json.dumps(selection)})


def test_a_selection_of_a_file_without_small_batches_is_loaded(path):
    """Files of earlier versions have no direction and no number of steps."""

    def alter(row):
        del row["direction"], row["steps"]

    path.write_bytes(altered_candidates(alter))
    rows = [row._replace(direction="", steps=0) for row in TABLE.rows()]
    assert_same_table(load(path).training.selection, SelectionTable.of(rows))


@pytest.mark.parametrize(
    "wrong", [{"direction": 3}, {"direction": None}, {"steps": "1024"}, {"steps": 0.5}], ids=str
)
def test_wrong_small_batches_of_a_candidate_are_refused(path, wrong):
    refused(altered_candidates(lambda row: row.update(wrong)), path, str(next(iter(wrong))))


def test_a_loaded_model_can_be_copied_pickled_and_saved_again(path):
    loaded = saved_and_loaded(MODEL, path)
    before = path.read_bytes()
    for copied in (copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        np.testing.assert_array_equal(copied.predict(X), MODEL.predict(X))
    check_same(MODEL, saved_and_loaded(loaded, path))
    assert path.read_bytes() == before  # the same model, the same bytes
    loaded.weights[0][:] = 0  # the arrays do not share memory with the file


def test_a_model_checks_the_number_of_columns(path):
    with pytest.raises(ValueError, match=r"shape \(40, 3\); expected rows of 4 columns"):
        saved_and_loaded(MODEL, path).predict(X[:, :3])


# Without JAX


WITHOUT_JAX = textwrap.dedent("""
    import sys

    for name in ("jax", "jaxlib", "equinox"):
        sys.modules[name] = None  # importing it raises ImportError
    import numpy as np
    from greatcircle import storage
    from greatcircle.certificate import verify

    model = storage.load(sys.argv[1])
    X = np.load(sys.argv[2])
    assert verify(model.certificate, model)
    np.savez(sys.argv[3], predict=model.predict(X), jacobian=model.jacobian(X))
    storage.save(model, sys.argv[4])
""")


def test_a_model_is_loaded_used_verified_and_saved_without_jax(path):
    save(MODEL, path)
    rows, results = path.with_name("rows.npy"), path.with_name("results.npz")
    again = path.with_name("again.safetensors")
    np.save(rows, X)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAX, *map(str, (path, rows, results, again))],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    with np.load(results) as found:
        np.testing.assert_array_equal(found["predict"], MODEL.predict(X))
        np.testing.assert_array_equal(found["jacobian"], MODEL.jacobian(X))
    assert again.read_bytes() == path.read_bytes()


# Files of earlier versions

EARLIER = Path(__file__).parent
PROBE = np.array([[0.5, -1.0, 2.0], [0.0, 0.25, -0.125]])


def test_a_regressor_of_version_0_1_is_loaded():
    """Its file holds a budget, names of inputs and targets, and the history."""
    path = EARLIER / "regressor_0.1.safetensors"
    model = load(path)
    expected = [
        [1.2220282026395075, -0.8976584640876828],
        [0.8818049254175494, -0.10603046570983855],
    ]
    np.testing.assert_allclose(model.predict(PROBE), expected, rtol=1e-13)
    assert model.certificate.value == 0.8445240805153074
    assert (model.feature_names, model.target_names) == (("a", "b", "c"), ("fx", "fz"))
    assert (model.lipschitz, model.sizes, model.bias) == (5.0, (3, 4, 2), True)
    assert (model.training.outcome, model.training.loss) == ("max_iter", 0.23182432349982765)
    assert model.training.reason == "the most iterations allowed, 3"
    assert list(model.training.history) == list(Record._fields)
    assert model.training.history["iteration"].tolist() == [1, 2, 3, 4, 5, 6]
    assert all(np.isfinite(model.training.history["angle"]))
    estimator = greatcircle.load(path)
    assert (estimator.max_iter, estimator.lipschitz, estimator.n_iter_) == (3, 5.0, 6)
    np.testing.assert_array_equal(estimator.feature_names_in_, ["a", "b", "c"])
    assert estimator.model_.certificate == model.certificate


def test_a_classifier_of_version_0_1_is_loaded():
    path = EARLIER / "classifier_0.1.safetensors"
    model = load(path)
    expected = [
        [0.37304508379673446, 0.30804175889498253, 0.3189131573082829],
        [0.32530167113252506, 0.3273995414528771, 0.3472987874145979],
    ]
    np.testing.assert_allclose(model.predict_proba(PROBE), expected, rtol=1e-13)
    assert model.predict(PROBE).tolist() == ["down", "up"]
    assert model.certificate.value == 1.628403718444153
    assert (model.scaling.name, model.bias) == ("paper", False)
    estimator = greatcircle.load(path)
    assert (estimator.method, estimator.predict(PROBE).tolist()) == ("ad", ["down", "up"])


# What cannot be stored


def test_a_users_own_activation_is_refused(path):
    for name in ("mine", "relu"):
        model = replace(MODEL, activation=declare(jax.numpy.tanh, (0, 1), name))
        with pytest.raises(ValueError, match=rf"activation is '{name}', a user's own code"):
            save(model, path)
    assert not path.exists()


def test_labels_of_other_types_are_refused(path):
    with pytest.raises(ValueError, match=r"classes_ has the type complex128; expected numbers"):
        save(replace(THREE, classes=np.array([1j, 2j, 3j])), path)


def test_only_models_are_saved(path):
    with pytest.raises(TypeError, match="model is a dict; expected a fitted"):
        save({}, path)
    with pytest.raises((TypeError, AttributeError)):
        save(LipschitzRegressor(), path)


# Paths


def test_paths(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"ends in \.safetensors: try .*model\.pkl\.safetensors'"):
        save(MODEL, tmp_path / "model.pkl")
    with pytest.raises(ValueError, match=r"try 'model\.safetensors'"):
        save(MODEL, "")
    with pytest.raises(TypeError, match="path is of type int"):
        save(MODEL, 3)
    with pytest.raises(FileNotFoundError, match=r"the folder '.*none' does not exist; create it"):
        save(MODEL, tmp_path / "none" / "model.safetensors")
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(ValueError, match="which is a folder"):
        save(MODEL, tmp_path / "folder.safetensors")
    with pytest.raises(ValueError, match=r"is a folder; expected a \.safetensors file"):
        load(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"file not found: m\.safetensors.*relative to"):
        load("m.safetensors")
    save(MODEL, "m.safetensors")
    os.rename("m.safetensors", "any name")
    check_same(MODEL, load("any name"))


def test_a_write_keeps_links_and_permissions(tmp_path):
    real, link = tmp_path / "real.safetensors", tmp_path / "link.safetensors"
    save(MODEL, real)
    real.chmod(0o640)
    link.symlink_to(real)
    save(THREE, link)
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    check_same(THREE, load(real))


def test_a_failed_write_leaves_the_old_file_and_nothing_else(path, monkeypatch):
    save(MODEL, path)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(THREE, path)
    assert os.listdir(path.parent) == [path.name]
    check_same(MODEL, load(path))


KILLED = textwrap.dedent("""
    import os, random, signal, sys, time, warnings
    warnings.simplefilter("ignore")  # JAX warns of forks; nothing here computes with it
    from dataclasses import replace
    from greatcircle.storage import load, save

    path, random = sys.argv[1], random.Random(0)
    a = load(path)
    # Files of different lengths.
    b = replace(a, training=replace(a.training, reason="another" * 50_000))
    for _ in range(25):
        before, end = os.stat(path).st_mtime_ns, time.monotonic() + 20
        child = os.fork()
        if not child:
            while True:
                save(a, path)
                save(b, path)
        # A busy machine may let it wait: killed before it writes, it would try nothing.
        while os.stat(path).st_mtime_ns == before and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(random.uniform(0, 0.06))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert load(path).training.reason in (a.training.reason, b.training.reason)
        print(os.stat(path).st_mtime_ns)
""")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_file_is_whole_whenever_its_writer_is_killed(path):
    save(MODEL, path)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert len(set(done.stdout.split())) == 25  # every writer did write
    load(path)


# Files that `save` did not write


def refused(data, path, words="."):
    path.write_bytes(data)
    with pytest.raises(ValueError, match=words) as caught:
        load(path)
    assert str(path) in str(caught.value)


@pytest.fixture(scope="module")
def altered_path(tmp_path_factory):
    return tmp_path_factory.mktemp("altered") / "model.safetensors"


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_one_altered_byte_is_noticed(altered_path, at, change):
    data = bytearray(DATA)
    data[at] ^= change
    refused(bytes(data), altered_path)


def test_every_byte_of_the_header_is_noticed():
    """Spaces that become tabs, small letters that become capitals: still JSON, no longer ours."""
    end = 8 + int.from_bytes(DATA[:8], "little")
    for at in range(end):
        for change in (0x01, 0x20, 0x29):
            data = bytearray(DATA)
            data[at] ^= change
            with pytest.raises(ValueError):
                unpack(bytes(data))


@given(st.integers(0, len(DATA) - 1))
def test_a_cut_file_is_noticed(altered_path, length):
    refused(DATA[:length], altered_path)


@given(st.binary(min_size=1, max_size=100))
def test_bytes_at_the_end_are_noticed(altered_path, more):
    refused(DATA + more, altered_path)


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(altered_path, data):
    refused(data, altered_path)
    refused(len(data).to_bytes(8, "little") + data, altered_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["float", "value", "values", "activation", "sizes", "loss", "labels"]),
            inner | st.sampled_from(["float64", "bool", "relu", "str", "nan"]),
            max_size=3,
        )
    ),
    max_leaves=6,
)

SECTIONS = {
    name: json.loads(text)
    for name, text in TEXTS.items()
    if name in ("network", "certificate", "fit")
}


@given(st.data())
def test_wrong_content_with_a_right_checksum_is_refused(altered_path, data):
    name = data.draw(st.sampled_from(sorted(SECTIONS)))
    section = dict(SECTIONS[name])
    key = data.draw(st.sampled_from(sorted(section)))
    if key in ("outcome", "reason", "loss"):
        wrong = data.draw(JSON.filter(lambda v: type(v) not in (str, float, dict)))
    elif key in ("lipschitz", "feature_names_in", "target_names"):  # others may be valid
        wrong = data.draw(JSON.filter(lambda v: v is not None and type(v) not in (float, list)))
    else:
        wrong = data.draw(JSON.filter(lambda v: v != section[key]))
    section[key] = wrong
    refused(pack(TENSORS, TEXTS | {name: json.dumps(section)}), altered_path)


@given(st.data())
def test_wrong_arrays_with_a_right_checksum_are_refused(altered_path, data):
    name = data.draw(st.sampled_from(sorted(n for n in TENSORS if not n.startswith("history."))))
    array = TENSORS[name]
    choices = [
        array.astype(np.float16),
        array[None],
        array.reshape(-1)[:-1],
        np.zeros(0),
        np.full_like(array, np.nan),
    ]
    if "shift" not in name:  # any finite shift may be valid
        choices += [np.full_like(array, 1e200), np.full_like(array, 1e-320), array * -1.5]
    wrong = data.draw(st.sampled_from(choices))
    refused(pack(TENSORS | {name: wrong}, TEXTS), altered_path)


@pytest.mark.parametrize("name", sorted(TENSORS))
def test_every_array_is_needed(name, path):
    refused(pack({n: t for n, t in TENSORS.items() if n != name}, TEXTS), path, "array")


@pytest.mark.parametrize("name", sorted(TEXTS.keys() - {"versions"}))
def test_every_text_is_needed(name, path):
    others = {n: text for n, text in TEXTS.items() if n != name}
    refused(pack(TENSORS, others), path, f"its metadata do not contain '{name}'")
    for wrong in ("", "[]", "null", "NaN", "[" * 100_000, "eval", '{"a": NaN}', '{"a": 1}'):
        refused(pack(TENSORS, others | {name: wrong}), path)


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
        data = pack(tensors, texts | {"classes": json.dumps(classes)})
    else:
        del texts["classes"]
        data = pack(tensors | {"classes": classes}, texts)
    if ok:
        path.write_bytes(data)
        load(path)
    else:
        refused(data, path)


@pytest.mark.parametrize(
    ("model", "changes", "words"),
    [
        (MODEL, {"target_names": ["drag"]}, r"has 1 target_names for 2 output\(s\)"),
        (MODEL, {"target_names": ["drag", 2]}, "target_names are not all strings"),
        (THREE, {"target_names": ["x", "y", "z"]}, "has 3 target_names for one column of labels"),
        (MODEL, {"feature_names_in": ["a"] * 3}, "not one name for each input"),
        (MODEL, {"feature_names_in": ["a", "b", "c", 4]}, "not one name for each input"),
        (MODEL, {"lipschitz": 0.0}, "lipschitz is 0.0; expected a positive number"),
        (MODEL, {"lipschitz": {"float": "inf"}}, "lipschitz is inf; expected a positive number"),
        (MODEL, {"n_iter": 3}, "n_iter is 3; its history has 2 rows"),
    ],
)
def test_names_and_numbers_of_the_fit_are_checked(model, changes, words, path):
    tensors, texts = describe(model)
    fit = json.loads(texts["fit"]) | changes
    refused(pack(tensors, texts | {"fit": json.dumps(fit)}), path, words)


# Messages


def test_messages_say_what_is_wrong(path):
    tensors, texts = TENSORS, TEXTS
    refused(b"", path, "it has 0 bytes, fewer than any")
    refused(DATA[:1000], path, "header would end at byte .* cut short")
    refused(DATA[:-8], path, "its checksum does not match its content")
    refused(b"PK\x03\x04" + bytes(500), path, "its header is not JSON|not a safetensors file")
    refused(pickle.dumps(MODEL), path, "not a safetensors file")
    refused(plain_save({"a": np.ones(3)}), path, "a safetensors file, but not a greatcircle model")
    refused(plain_save({}, {"format": "pt"}), path, "but not a greatcircle model")
    refused(pack(tensors | {"extra": X}, texts), path, "arrays that are not part of a model: extra")
    newer = texts | {"versions": json.dumps({"greatcircle": "9.1"}), "format_version": "2"}
    refused(pack(tensors, newer), path, "format version '2', written by greatcircle 9.1; this is")
    refused(pack(tensors, newer | {"versions": "[]"}), path, "an unknown version")
    refused(pack(tensors, texts | {"kind": "checkpoint"}), path, "a checkpoint of training")
    heavier = tensors["weights.0"] * 2
    refused(pack(tensors | {"weights.0": heavier}, texts), path, "its radii are not the norms")
    radii = tensors["radii"] * [2, 1]
    both = {"weights.0": heavier, "radii": radii}
    refused(pack(tensors | both, texts), path, "its certificate says .*do not trust this file")
    refused(storage.encoded(MODEL, certified=False), path, "it has no certificate")


def test_an_array_of_another_type_is_named(path):
    wrong = TENSORS["radii"].astype(np.complex64)
    refused(pack(TENSORS | {"radii": wrong}, TEXTS), path, "array 'radii' is of type 'C64'")


# Other readers


def test_plain_safetensors_reads_the_file(path):
    save(MODEL, path)
    with safe_open(path, "np") as file:
        found = json.loads(file.metadata()["versions"])
        weights = file.get_tensor("weights.0")
        radii = file.get_tensor("radii")
    assert found == versions()
    assert found["greatcircle"] == greatcircle.__version__
    assert (found["jax"], found["numpy"]) == (jax.__version__, np.__version__)
    np.testing.assert_array_equal(weights, MODEL.weights[0])
    assert radii[0] == pytest.approx(np.linalg.norm(weights), rel=1e-12)
