"""An interrupted fit resumes with bit-identical results."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest
from sklearn.exceptions import ConvergenceWarning

from greatcircle import LipschitzClassifier, LipschitzRegressor
from greatcircle.optimise.checkpoint import NAME
from greatcircle.training import data as training_data
from small import thinned

RNG = np.random.default_rng(0)
X = RNG.standard_normal((150, 3))
Y = np.abs(X[:, :1]) + 0.3 * RNG.standard_normal((150, 1))


def model(folder=None, kind=LipschitzRegressor, **changes):
    settings = {"hidden_layer_sizes": (5,), "max_iter": 12, "tol": 0, "random_state": 0}
    settings["selection"] = False
    return kind(checkpoint=folder, **{**settings, **changes})


def same(a, b):
    for v, w in zip(a.weights_, b.weights_, strict=True):
        np.testing.assert_array_equal(v, w, strict=True)
    for name in a.history_:
        if name != "seconds":
            np.testing.assert_array_equal(a.history_[name], b.history_[name], strict=True)
    assert (a.n_iter_, a.loss_, a.outcome_, a.reason_) == (
        b.n_iter_,
        b.loss_,
        b.outcome_,
        b.reason_,
    )


@pytest.mark.parametrize("dtype", thinned(("float64", "float32"), 2))
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (LipschitzRegressor, {}),
        (LipschitzRegressor, {"method": "mm"}),
        (LipschitzRegressor, {"method": ("hager-zhang", "taylor4"), "loss": "huber"}),
        (LipschitzRegressor, {"early_stopping": True, "n_iter_no_change": 4, "max_iter": 40}),
        (LipschitzRegressor, {"batch_size": 8}),
        (LipschitzClassifier, {}),
        (LipschitzClassifier, {"batch_size": 8, "early_stopping": True}),
    ],
)
def test_a_fit_in_two_parts_is_the_fit_in_one(tmp_path, kind, changes, dtype):
    y = Y[:, 0] > 1 if kind is LipschitzClassifier else Y
    whole = model(kind=kind, dtype=dtype, **changes).fit(X, y)
    model(tmp_path, kind, dtype=dtype, **{**changes, "max_iter": 5}).fit(X, y)
    rest = model(tmp_path, kind, dtype=dtype, resume=True, **changes).fit(X, y)
    same(whole, rest)
    again = model(tmp_path, kind, dtype=dtype, resume=True, **changes).fit(X, y)  # nothing to do
    same(whole, again)


@pytest.fixture
def small_stream(monkeypatch):
    """Streams as long ones are treated, with few rows."""
    monkeypatch.setattr(training_data, "SAMPLE", 100)
    monkeypatch.setattr(training_data, "FIRST_BATCH", 10)
    monkeypatch.setattr(training_data, "LARGEST_BATCH", 40)


def stream(kind, folder, X=X):
    """The same rows, as `fit` takes them."""
    batches = [(X[i : i + 25], Y[i : i + 25, 0]) for i in range(0, len(X), 25)]
    if kind == "iterator":
        return (iter(batches),)
    if kind == "list":
        return (batches,)
    if kind == "memmap":
        np.save(folder / "X.npy", X)
        return np.load(folder / "X.npy", mmap_mode="r"), Y[: len(X)]
    columns = {f"x{i}": X[:, i] for i in range(X.shape[1])}
    pl.DataFrame({**columns, "y": Y[: len(X), 0]}).write_parquet(folder / "rows.parquet")
    return folder / "rows.parquet", "y"


@pytest.mark.usefixtures("small_stream")
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("iterator", {}),
        ("list", {"early_stopping": True, "n_iter_no_change": 4}),
        ("memmap", {"batch_size": 20}),
        ("parquet", {"early_stopping": True}),
    ],
)
def test_a_stream_in_two_parts_is_the_stream_in_one(tmp_path, kind, changes):
    changes = {"dtype": "float64", **changes}
    whole = model(**changes).fit(*stream(kind, tmp_path))
    assert whole.n_iter_ > 2
    model(tmp_path, **{**changes, "max_iter": 2}).fit(*stream(kind, tmp_path))
    for _ in range(2):  # the second time, training is already complete
        rest = model(tmp_path, resume=True, **changes).fit(*stream(kind, tmp_path))
        same(whole, rest)


@pytest.mark.usefixtures("small_stream")
def test_another_stream_is_refused(tmp_path):
    def resumed(*data):
        return model(tmp_path, resume=True).fit(*data)

    model(tmp_path, max_iter=11).fit(*stream("list", tmp_path))
    late = X.copy()
    late[101] += 1  # after the sample, but it had been drawn
    with pytest.raises(ValueError, match="X does not repeat the "):
        resumed(*stream("list", tmp_path, late))
    with pytest.raises(ValueError, match="another fit, which differs in X;"):
        resumed(*stream("list", tmp_path, late[::-1]))
    model(tmp_path, max_iter=2).fit(*stream("memmap", tmp_path))
    with pytest.raises(ValueError, match="another fit, which differs in X, number of rows, y;"):
        resumed(*stream("memmap", tmp_path, X[:120]))


@pytest.mark.usefixtures("small_stream")
def test_the_seed_of_a_streams_checkpoint_counts(tmp_path):
    first = model(tmp_path, random_state=None, max_iter=2).fit(*stream("memmap", tmp_path))
    rest = model(tmp_path, random_state=None, resume=True).fit(*stream("memmap", tmp_path))
    np.testing.assert_array_equal(rest.history_["loss"][:2], first.history_["loss"])


def test_the_checkpoints_seed_counts(tmp_path):
    first = model(tmp_path, random_state=None, max_iter=3, early_stopping=True).fit(X, Y)
    rest = model(tmp_path, random_state=None, early_stopping=True, resume=True).fit(X, Y)
    np.testing.assert_array_equal(rest.history_["loss"][:3], first.history_["loss"])


@pytest.mark.parametrize("changes", [{}, {"batch_size": 8}])
def test_ctrl_c_leaves_a_checkpoint(tmp_path, changes):
    def interrupt(row):
        if row.iteration == 4:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model(tmp_path, callbacks=[interrupt], **changes).fit(X, Y)
    same(model(**changes).fit(X, Y), model(tmp_path, resume=True, **changes).fit(X, Y))


def test_without_a_checkpoint_training_starts_from_the_beginning(tmp_path):
    same(model().fit(X, Y), model(tmp_path / "new", resume=True).fit(X, Y))


def test_without_resume_training_starts_from_the_beginning(tmp_path):
    model(tmp_path, max_iter=3).fit(X, Y)
    same(model().fit(X, Y), model(tmp_path).fit(X, Y))


def test_another_fit_is_refused(tmp_path):
    model(tmp_path, max_iter=2).fit(X, Y)
    for changes, rows, message in (
        ({"hidden_layer_sizes": (6,)}, (X, Y), "hidden_layer_sizes;"),
        ({"method": "ad"}, (X, Y), "method;"),
        ({}, (X + 1, Y), "X;"),
        ({}, (X[:99], Y[:99]), "X, y;"),
    ):
        with pytest.raises(ValueError, match=f"belongs to another fit, which differs in {message}"):
            model(tmp_path, resume=True, **changes).fit(*rows)
    with pytest.raises(ValueError, match="differs in sample_weight;"):
        model(tmp_path, resume=True).fit(X, Y, np.ones(150))


def test_a_damaged_checkpoint_is_refused(tmp_path):
    model(tmp_path, max_iter=2).fit(X, Y).save(tmp_path / "model.safetensors")
    path = tmp_path / NAME
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"cannot resume from .*: its checksum"):
        model(tmp_path, resume=True).fit(X, Y)
    path.write_bytes((tmp_path / "model.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"it is a model, not a checkpoint"):
        model(tmp_path, resume=True).fit(X, Y)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resume": True}, "resume is True and checkpoint is None"),
        ({"checkpoint": "there", "warm_start": True}, "checkpoint and warm_start"),
        ({"checkpoint": "there", "checkpoint_interval": -1}, "checkpoint_interval is -1"),
        ({"checkpoint": __file__}, "which is a file; expected a folder"),
    ],
)
def test_bad_arguments_are_named(changes, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        LipschitzRegressor(**changes).fit(X, Y)


LOOP = """
import sys
import numpy as np
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/.."]
from test_checkpoint import X, Y, model
print("begins", flush=True)
changes = {"batch_size": 8} if sys.argv[3] == "batches" else {}
model(sys.argv[2], max_iter=100_000, checkpoint_interval=0, **changes).fit(X, Y)
"""


@pytest.mark.parametrize("rows", ["all", "batches"])
@pytest.mark.parametrize("kills", thinned((1, 10), 2))
def test_a_killed_fit_leaves_a_complete_checkpoint(tmp_path, kills, rows):
    changes = {"batch_size": 8} if rows == "batches" else {}
    rng = np.random.default_rng(kills)
    here = os.path.dirname(__file__)
    for _ in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-c", LOOP, here, str(tmp_path), rows], stdout=subprocess.PIPE
        )
        try:
            process.stdout.readline()
            times = set()
            while (
                len(times) < 8 and process.poll() is None
            ):  # batches also write when a step is rejected
                if (tmp_path / NAME).exists():
                    times.add((tmp_path / NAME).stat().st_mtime_ns)
            time.sleep(rng.uniform(0, 0.3))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
        kept = model(tmp_path, resume=True, max_iter=0, **changes).fit(X, Y)
        assert kept.n_iter_ > 3
    whole = model(max_iter=kept.n_iter_, **changes).fit(X, Y)
    np.testing.assert_array_equal(whole.history_["loss"], kept.history_["loss"])
