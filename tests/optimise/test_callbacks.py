"""Callbacks that write records to files."""

import pickle
import sys

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone

from greatcircle import LipschitzRegressor, callbacks
from greatcircle.optimise.record import Record

X = np.random.default_rng(0).standard_normal((40, 2))


def model(*functions, **changes):
    settings = {"hidden_layer_sizes": (3,), "max_iter": 4, "tol": 0, "random_state": 0}
    settings["selection"] = False
    return LipschitzRegressor(callbacks=list(functions), **{**settings, **changes})


def test_csv_has_the_history(tmp_path):
    path = tmp_path / "training.csv"
    m = model(callbacks.CSV(path), early_stopping=True)
    for _ in range(2):  # another fit overwrites the file
        m.fit(X, X[:, 0])
        lines = pl.read_csv(path)
        assert lines.columns == list(Record._fields)
        for name in Record._fields:
            np.testing.assert_array_equal(lines[name].to_numpy(), m.history_[name])
    with pytest.raises(FileNotFoundError, match="its folder does not exist; create it first"):
        callbacks.CSV(tmp_path / "nowhere" / "training.csv")


def test_tensorboard_contains_every_number(tmp_path):
    from tensorboardX.proto.event_pb2 import Event

    board = callbacks.TensorBoard(tmp_path)
    m = model(board).fit(X, X[:, 0])
    board.close()
    (path,) = tmp_path.iterdir()
    data, position, scalars = path.read_bytes(), 0, {}
    while position < len(data):  # length, its checksum, the event, its checksum
        length = int.from_bytes(data[position : position + 8], "little")
        event = Event.FromString(data[position + 12 : position + 12 + length])
        position += 12 + length + 4
        for value in event.summary.value:
            scalars.setdefault(value.tag, []).append((event.step, value.simple_value))
    assert set(scalars) == {f"greatcircle/{n}" for n in board.SHOWN if n != "validation_loss"}
    steps, losses = zip(*scalars["greatcircle/loss"], strict=True)
    assert steps == (1, 2, 3, 4)
    np.testing.assert_allclose(losses, m.history_["loss"], rtol=1e-6)


def test_callbacks_survive_clones_and_pickles(tmp_path):
    m = model(callbacks.CSV(tmp_path / "a.csv"), callbacks.TensorBoard(tmp_path)).fit(X, X[:, 0])
    for again in (clone(m), pickle.loads(pickle.dumps(m))):
        again.fit(X, X[:, 0])
        for board in again.callbacks[1:]:
            board.close()
    m.callbacks[1].close()


def test_tensorboard_names_the_missing_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match=r"pip install 'greatcircle\[tensorboard\]'"):
        model(callbacks.TensorBoard(tmp_path)).fit(X, X[:, 0])
