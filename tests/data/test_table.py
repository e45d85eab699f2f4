"""Tables: named columns with the roles of inputs and targets."""

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from greatcircle import LipschitzClassifier, LipschitzRegressor
from greatcircle.data.table import Table

Array = NDArray[np.float64]


def test_table_stacks_inputs_and_targets_in_their_order() -> None:
    table = Table(
        {"a": np.array([1, 2]), "b": np.array([3.0, 4.0]), "c": np.array([5, 6], np.float32)},
        inputs=("b", "a"),
        targets=("c",),
    )
    assert len(table) == 2
    np.testing.assert_array_equal(table.X, [[3, 1], [4, 2]])
    np.testing.assert_array_equal(table.y, [[5], [6]])
    assert table.X.dtype == table.y.dtype == np.float64


@pytest.mark.parametrize(
    ("columns", "inputs", "targets", "message"),
    [
        ({"a": np.zeros(2)}, ("a",), ("b",), r"\['a'\], without \['b'\].*add"),
        ({"a": np.zeros(2), "b": np.zeros(3)}, ("a",), ("b",), r"\(3,\).*common length.*cut"),
        ({"a": np.zeros((2, 1)), "b": np.zeros((2, 1))}, ("a",), ("b",), "one-dimensional"),
        ({"a": np.zeros(2)}, ("a",), (), "at least one name"),
    ],
)
def test_table_refuses_what_is_not_a_table(
    columns: dict[str, Array], inputs: tuple[str, ...], targets: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Table(columns, inputs, targets)


COLUMNS = {
    "a": np.arange(6.0),
    "b": np.array([1, 3, 2, 5, 4, 9]),
    "y": np.array([1.0, 0.0, 2.0, 3.0, 1.0, 2.0]),
    "up": np.array(["yes", "no", "yes", "no", "yes", "no"]),
    "group": np.array([2, 2, 1, 1, 2, 2**53 + 1]),
}


def test_frames_have_the_names_of_inputs_and_targets() -> None:
    X, y = Table(COLUMNS, ("b", "a"), ("y", "group")).frames()
    assert (X.columns, y.columns) == (["b", "a"], ["y", "group"])
    np.testing.assert_array_equal(X.to_numpy(), np.stack([COLUMNS["b"], COLUMNS["a"]], axis=1))
    model = LipschitzRegressor((2,), selection=False, max_iter=1, random_state=0).fit(X, y)
    assert model.model_.feature_names == ("b", "a")
    assert model.model_.target_names == ("y", "group")
    assert model.predict(X).shape == (6, 2)


@pytest.mark.parametrize("rows", [slice(1, 4), np.array([5, 0, 3])], ids=["slice", "array"])
def test_frames_of_some_rows(rows: slice | np.ndarray) -> None:
    X, y = Table(COLUMNS, ("a",), ("y",)).frames(rows)
    np.testing.assert_array_equal(X["a"], COLUMNS["a"][rows])
    assert isinstance(y, pl.Series)
    np.testing.assert_array_equal(y, COLUMNS["y"][rows])
    model = LipschitzRegressor((2,), selection=False, max_iter=1, random_state=0).fit(X, y)
    assert model.model_.target_names == ("y",)
    assert model.predict(X).shape == (3,)


@pytest.mark.parametrize("name", ["up", "group"])
def test_labels_keep_their_type(name: str) -> None:
    table = Table(COLUMNS, ("a", "b"), (name,))
    assert table.labels.dtype == COLUMNS[name].dtype
    np.testing.assert_array_equal(table.labels, COLUMNS[name])
    model = LipschitzClassifier((2,), selection=False, max_iter=1, random_state=0).fit(
        *table.frames()
    )
    np.testing.assert_array_equal(model.classes_, np.unique(COLUMNS[name]), strict=True)
    assert model.model_.target_names == (name,)


def test_text_is_neither_inputs_nor_numeric_targets() -> None:
    with pytest.raises(ValueError, match=r"columns 'up' hold text.*use table\.labels"):
        _ = Table(COLUMNS, ("a",), ("up",)).y
    with pytest.raises(ValueError, match="targets up, y; expected one column of class labels"):
        _ = Table(COLUMNS, ("a",), ("up", "y")).labels
