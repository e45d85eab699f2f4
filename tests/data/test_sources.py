"""Sources of batches, and estimators trained on them."""

import numpy as np
import polars as pl
import pytest

from greatcircle import LipschitzRegressor
from greatcircle.data.sources import Arrays, Batches, Parquet, source_of
from greatcircle.datasets import Table, ground_effect
from greatcircle.training import data as fit_data

FLIGHT = ground_effect.generate(9000)
SMOOTH = np.tanh((FLIGHT.X - FLIGHT.X.mean(axis=0)) / FLIGHT.X.std(axis=0))[:, :3]
NAMES = ("fx", "fy", "fz")


def rows(which):
    """Flights, with targets without noise."""
    columns = dict(
        zip((*FLIGHT.inputs, *NAMES), np.hstack([FLIGHT.X, SMOOTH])[which].T, strict=True)
    )
    return Table(columns, FLIGHT.inputs, NAMES)


TABLE, REST = rows(slice(6000)), rows(slice(6000, None))


def model(**changes):
    settings = {"hidden_layer_sizes": (6,), "selection": False, "max_iter": 30, "random_state": 0}
    return LipschitzRegressor(**{**settings, **changes})


@pytest.fixture
def mapped(tmp_path):
    for name in ("X", "y"):
        np.save(tmp_path / f"{name}.npy", getattr(TABLE, name).astype(np.float32))
    return tuple(np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("X", "y"))


@pytest.fixture
def parquet(tmp_path):
    path = tmp_path / "rows.parquet"
    pl.DataFrame(dict(TABLE.columns)).select(*TABLE.inputs, *TABLE.targets).write_parquet(path)
    return path


@pytest.fixture
def small_stream(monkeypatch):
    """Lower the size limits, so that a few rows are treated like a long stream."""
    monkeypatch.setattr(fit_data, "SAMPLE", 1000)
    monkeypatch.setattr(fit_data, "FIRST_BATCH", 100)
    monkeypatch.setattr(fit_data, "LARGEST_BATCH", 800)


def halves():
    for first in range(0, 6000, 300):
        yield TABLE.X[first : first + 300], TABLE.y[first : first + 300]


def test_mapped_rows_are_rows_of_the_file(mapped):
    drawn = Arrays(*mapped, None, 0)
    first, second = drawn.draw(50), drawn.draw(50)
    assert np.any(first.inputs != second.inputs)
    where = [np.flatnonzero(np.all(mapped[0] == row, axis=1))[0] for row in first.inputs]
    assert where == sorted(where)
    np.testing.assert_array_equal(first.targets, mapped[1][where])
    assert len(drawn.draw(10**6)) == 6000


def test_fortran_order_and_slices_are_read_right(tmp_path):
    np.save(tmp_path / "f.npy", np.asfortranarray(TABLE.X))
    X = np.load(tmp_path / "f.npy", mmap_mode="r")
    np.testing.assert_array_equal(Arrays(X, TABLE.y, None, 0).draw(6000).inputs, TABLE.X)
    part = Arrays(X[1000:], TABLE.y[1000:], None, 0).draw(5000)
    np.testing.assert_array_equal(part.inputs, TABLE.X[1000:])


def test_runs_of_parquet_rows_are_rows_of_the_file(parquet):
    drawn = Parquet(parquet, list(TABLE.targets), 0)
    assert drawn.names == tuple(TABLE.inputs)
    rows = drawn.draw(100)
    where = [np.flatnonzero(np.all(row == TABLE.X, axis=1))[0] for row in rows.inputs]
    np.testing.assert_array_equal(rows.targets, TABLE.y[where])
    assert len(np.unique(np.diff(where) == 1)) == 2  # several runs of consecutive rows
    np.testing.assert_array_equal(drawn.draw(6000).inputs, TABLE.X)


def test_batches_come_in_order_and_whole():
    drawn = Batches(halves())
    np.testing.assert_array_equal(drawn.draw(450).inputs, TABLE.X[:450])
    np.testing.assert_array_equal(drawn.draw(450).inputs, TABLE.X[450:900])
    assert len(drawn.draw(10**6)) == 6000 - 900
    assert drawn.draw(1) is None


def test_a_list_of_batches_begins_again():
    drawn = Batches([(TABLE.X[:10], TABLE.y[:10], np.ones(10))])
    assert len(drawn.draw(7)) == 7
    again = drawn.draw(7)
    np.testing.assert_array_equal(again.inputs, TABLE.X[[7, 8, 9, 0, 1, 2, 3]])
    assert again.sample_weight is not None


def test_data_in_memory_are_not_a_source():
    frame = pl.DataFrame({"a": [1.0, 2.0]})
    for X in (TABLE.X, TABLE.X.tolist(), frame):
        assert source_of(X, TABLE.y, None, 0) is None


def test_a_list_of_tuples_of_arrays_is_a_list_of_batches():
    X, y = TABLE.X[:4], TABLE.y[:4]
    for batches in ([(X, y)], ((X, y, np.ones(4)), (X, y, np.ones(4))), [(pl.DataFrame(X), y)]):
        assert isinstance(source_of(batches, None, None, 0), Batches)
        assert source_of(batches, y, None, 0) is None
    rows = [(1.0, 2.0), (np.float64(3.0), np.float64(4.0))]
    for other in ([], rows, [[X, y]], [(X,)], [(X, y), X], ["ab"]):
        assert source_of(other, None, None, 0) is None


def test_a_list_of_batches_trains_like_its_rows():
    parts = [(TABLE.X[i : i + 100], TABLE.y[i : i + 100]) for i in range(0, 500, 100)]
    for batches in (parts, iter(parts)):  # none of them counts twice
        m = model(max_iter=3).fit(batches)
        np.testing.assert_array_equal(
            m.predict(REST.X), model(max_iter=3).fit(TABLE.X[:500], TABLE.y[:500]).predict(REST.X)
        )


def numbered(count):
    """Rows that are their own numbers."""
    return np.arange(count, dtype=float)[:, None]


def test_row_numbers_of_pandas_are_not_inputs(parquet, tmp_path):
    table = pl.read_parquet(parquet).with_row_index("__index_level_0__")
    table.write_parquet(tmp_path / "index.parquet")
    with_index, plain = (
        Parquet(path, list(TABLE.targets), 0) for path in (tmp_path / "index.parquet", parquet)
    )
    assert with_index.names == plain.names == TABLE.inputs
    np.testing.assert_array_equal(with_index.draw(20).inputs, plain.draw(20).inputs)


@pytest.mark.parametrize("kind", ["memmap", "parquet", "loader", "iterator"])
def test_rows_held_out_are_never_drawn(tmp_path, kind):
    X = numbered(500)
    if kind == "memmap":
        rows = Arrays(X, X[:, 0], None, 0)
    elif kind == "parquet":
        pl.DataFrame({"x": X[:, 0], "y": X[:, 0]}).write_parquet(tmp_path / "n.parquet")
        rows = Parquet(tmp_path / "n.parquet", "y", 0)
    else:
        parts = [(X[i : i + 30], X[i : i + 30, 0]) for i in range(0, 500, 30)]
        rows = Batches(parts if kind == "loader" else iter(parts))
    assert len(rows.sample(200)) == 200
    held = set(rows.hold_out(100).inputs[:, 0])
    assert len(held) == 100 if kind != "parquet" else 50 < len(held) <= 100
    drawn = [rows.draw(60) for _ in range(40)]
    seen = {x for some in drawn if some is not None for x in some.inputs[:, 0]}
    assert not seen & held
    assert len(seen | held) == 500 if isinstance(rows, Batches) else len(seen | held) > 450
    for some in drawn:
        if some is not None:
            np.testing.assert_array_equal(some.inputs[:, 0], some.targets)


@pytest.mark.parametrize("kind", ["memmap", "parquet", "loader"])
def test_a_source_continues_from_a_saved_position(parquet, kind):
    def made():
        if kind == "memmap":
            return Arrays(TABLE.X, TABLE.y, None, 0)
        if kind == "parquet":
            return Parquet(parquet, list(TABLE.targets), 0)
        return Batches(_Loader())

    first, second = made(), made()
    for rows in (first, second):
        rows.sample(500)
        rows.hold_out(50)
    for count in (7, 1600, 5900):
        first.draw(count)
    second.seek(first.position)
    for count in (3, 900):
        a, b = first.draw(count), second.draw(count)
        np.testing.assert_array_equal(a.inputs, b.inputs)
        np.testing.assert_array_equal(a.targets, b.targets)


@pytest.mark.usefixtures("small_stream")
def test_early_stopping_on_a_stream_keeps_the_best_weights(mapped):
    m = model(early_stopping=True, n_iter_no_change=1, tol=0, max_iter=12).fit(*mapped)
    unseen = m.history_["validation_loss"]
    assert np.all(np.isfinite(unseen))
    best = int(np.argmin(unseen))
    assert m.loss_ == m.history_["loss"][best]
    again = model(tol=0, max_iter=best + 1, early_stopping=True).fit(*mapped)
    np.testing.assert_array_equal(again.predict(REST.X), m.predict(REST.X))


@pytest.mark.usefixtures("small_stream")
def test_every_stream_trains_about_as_well_as_all_rows(mapped, parquet):
    scores = {
        "memory": model().fit(TABLE.X, TABLE.y),
        "memmap": model().fit(*mapped),
        "parquet": nameless(model().fit(parquet, list(TABLE.targets))),
        "batches": model().fit(_Loader()),
    }
    scores = {name: m.score(REST.X, REST.y) for name, m in scores.items()}
    for name, score in scores.items():
        assert score > scores["memory"] - 0.05, (name, scores)


def nameless(m):
    """The same model for arrays."""
    del m.feature_names_in_
    return m


class _Loader:
    """Gives its batches as often as it is asked, in an order of their own."""

    def __iter__(self):
        order = np.random.default_rng(0).permutation(6000)
        for first in range(0, 6000, 300):
            rows = order[first : first + 300]
            yield TABLE.X[rows], TABLE.y[rows]


@pytest.mark.usefixtures("small_stream")
def test_a_stream_that_ends_ends_training():
    m = model().fit(halves())
    assert m.reason_ == "there are no more rows" or m.outcome_ == "converged"
    assert m.predict(TABLE.X).shape == TABLE.y.shape


def test_a_short_stream_is_read_and_trained_on_as_a_whole(parquet):
    m = model(max_iter=3).fit(parquet, list(TABLE.targets))
    same = model(max_iter=3).fit(TABLE.X, TABLE.y)
    assert m.feature_names_in_.tolist() == list(TABLE.inputs)
    named = pl.DataFrame(TABLE.X, schema=list(TABLE.inputs))
    np.testing.assert_allclose(m.predict(named), same.predict(TABLE.X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("X", "y", "weight", "message"),
    [
        ("rows.csv", ["fx"], None, "expected a .parquet file"),
        (iter([]), None, None, "X has no rows"),
        (iter([1]), None, None, r"a batch is of type int; expected a tuple \(X, y\)"),
        (iter([(np.ones(3), np.ones(3))]), None, None, "a batch has shapes"),
        (iter([(np.ones((3, 1)), np.ones(4))]), None, None, "same number of rows"),
        (iter([]), np.ones(3), None, "expected y=None"),
        (iter([]), None, np.ones(3), "sample_weight cannot be given"),
    ],
)
def test_bad_sources_are_named(X, y, weight, message):
    with pytest.raises(ValueError, match=message):
        model().fit(X, y, weight)


def test_bad_parquet_data_are_named(parquet, tmp_path):
    with pytest.raises(ValueError, match=r"column 'drag' not found \(columns: 'z', 'vx'"):
        model().fit(parquet, ["drag"])
    with pytest.raises(ValueError, match="names the target columns"):
        model().fit(parquet, 3)
    pl.DataFrame({"a": [1.0], "where": ["sea"], "y": [2.0]}).write_parquet(tmp_path / "w.parquet")
    with pytest.raises(ValueError, match="non-numeric columns: where"):
        model().fit(tmp_path / "w.parquet", "y")


def test_a_missing_parquet_file_is_named():
    with pytest.raises(FileNotFoundError, match=r"file not found: missing\.parquet"):
        model().fit("missing.parquet", "y")


def test_a_similar_name_of_a_target_is_suggested(parquet):
    with pytest.raises(ValueError, match=r"column 'FX' not found; did you mean 'fx'\?"):
        model().fit(parquet, ["FX"])


@pytest.mark.parametrize("kind", ["memmap", "parquet", "batches"])
def test_rows_are_checked_when_they_are_drawn(tmp_path, kind):
    X, y = np.ones((50, 2)), np.ones(50)
    X[:, 1], y[-1] = np.arange(50.0), np.inf
    X[7, 0] = np.nan

    def drawn(X, y, weight=None):
        if kind == "memmap":
            return Arrays(X, y, weight, 0).draw(50)
        if kind == "parquet":
            path = tmp_path / "rows.parquet"
            pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y}).write_parquet(path)
            return Parquet(path, "y", 0).draw(50)
        return Batches([(X, y) if weight is None else (X, y, weight)]).draw(50)

    with pytest.raises(ValueError, match="X has 1 entries that are NaN or infinite in a batch"):
        drawn(X, y)
    with pytest.raises(ValueError, match="y has 1 entries that are NaN or infinite in a batch"):
        drawn(np.nan_to_num(X), y)
    assert len(drawn(np.nan_to_num(X), np.ones(50))) == 50
    if kind != "parquet":
        with pytest.raises(ValueError, match="sample_weight must be finite, non-negative"):
            drawn(np.nan_to_num(X), np.ones(50), -np.ones(50))


def test_lengths_must_agree(mapped):
    with pytest.raises(ValueError, match="X has 6000 rows and y 5; expected the same"):
        model().fit(mapped[0], np.ones(5))
