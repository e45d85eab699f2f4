"""Training and validation rows of a fit: the split, its problems, and all row schedules."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from greatcircle import LipschitzRegressor, Network, losses
from greatcircle.data.rows import Rows
from greatcircle.data.scaling import Scaling
from greatcircle.data.sources import Arrays, Batches
from greatcircle.objective import chunks
from greatcircle.optimise.schedules import AllRows, Chunks, GrowingBatches, WindowSource
from greatcircle.training import data as training_data
from greatcircle.training.data import FitData, Names, Problems, row_schedule
from greatcircle.training.settings import fit_settings

ROWS = 60
NUMBERS = np.arange(1.0, ROWS + 1)[:, None]
"""Inputs that tell which row they belong to."""

DATA = Rows(NUMBERS, np.hstack([np.sqrt(NUMBERS), NUMBERS**2]))
PROBLEMS = Problems(
    Network((1, 3, 2)),
    replace(Scaling.fit("standard", *DATA[:2], centred=True), factor=0.1),
    losses.Squared(),
    np.dtype(np.float64),
)


def settings(**changes):
    return fit_settings(
        SimpleNamespace(**LipschitzRegressor().get_params(deep=False) | changes), (3,)
    )


def row_numbers(problem):
    """Return the numbers of a problem's rows, undoing the scaling."""
    scaling = PROBLEMS.scaling
    inputs = np.asarray(problem.inputs)[:, 0]
    return np.round(inputs * scaling.spread * scaling.divisor + scaling.shift).astype(int)


@pytest.fixture
def small_chunks(monkeypatch):
    """Treat more than 12 rows as many, in chunks of at most 8."""
    jax.clear_caches()  # compiled programs contain the sizes
    monkeypatch.setattr(chunks, "CHUNK", 8)
    monkeypatch.setattr(chunks, "MAX_AT_ONCE", 12)
    yield
    monkeypatch.undo()
    jax.clear_caches()


# Validation rows


def test_a_validation_part_is_held_out_of_rows_in_memory():
    names = Names(features=("x",), targets=("a", "b"))
    data = FitData.in_memory(DATA, names, 3, 0.25)
    assert data.stream is None
    assert data.names == names
    assert data.validation is not None
    assert (len(data.rows), len(data.validation)) == (45, 15)
    parts = [set(part.inputs[:, 0]) for part in (data.rows, data.validation)]
    assert not parts[0] & parts[1]
    assert parts[0] | parts[1] == set(NUMBERS[:, 0])
    for part in (data.rows, data.validation):
        np.testing.assert_array_equal(part.targets[:, 1], part.inputs[:, 0] ** 2)
    again, other = (FitData.in_memory(DATA, names, seed, 0.25) for seed in (3, 4))
    np.testing.assert_array_equal(again.rows.inputs, data.rows.inputs)
    assert np.any(other.validation.inputs != data.validation.inputs)
    assert FitData.in_memory(DATA, names, 3).validation is None


def test_both_parts_have_all_strata():
    strata = np.repeat([0, 1, 2], [40, 16, 4])
    data = FitData.in_memory(DATA, Names(), 0, 0.25, strata)
    for part, counts in ((data.rows, [30, 12, 3]), (data.validation, [10, 4, 1])):
        labels = strata[part.inputs[:, 0].astype(int) - 1]
        assert np.bincount(labels).tolist() == counts


def test_a_validation_part_is_held_out_of_a_stream(monkeypatch):
    monkeypatch.setattr(training_data, "SAMPLE", 20)
    stream = Arrays(*DATA, 0)
    data = FitData.streamed(stream.sample(20), stream, Names(), lambda y: y, 0.25)
    held = set(data.validation.inputs[:, 0])
    assert len(held) == 5
    drawn = [set(stream.draw(10).inputs[:, 0]) for _ in range(30)]
    assert not held & set.union(*drawn)
    assert FitData.streamed(stream.sample(20), stream, Names(), lambda y: y).validation is None


# Problems


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("order", [None, np.array([5, 3, 59, 0])])
def test_problems_hold_the_scaled_rows(weighted, order, monkeypatch):
    weight = np.arange(ROWS, dtype=float) if weighted else None
    rows = Rows(DATA.inputs, DATA.targets, weight)
    which = slice(None) if order is None else order
    expected_weight = (np.ones(ROWS) if weight is None else weight)[which]

    def check():
        problem = PROBLEMS.of(rows, order=order)
        scaling = PROBLEMS.scaling
        np.testing.assert_array_equal(problem.inputs, scaling.inputs(DATA.inputs[which]))
        np.testing.assert_array_equal(problem.targets, scaling.targets(DATA.targets[which]))
        np.testing.assert_allclose(
            problem.rows.sample_weight, expected_weight / expected_weight.sum(), rtol=1e-14
        )
        return problem

    whole = check()
    monkeypatch.setattr(training_data, "CHUNK", 7)  # rows are converted in several parts
    monkeypatch.setattr("greatcircle.data.rows.CHUNK", 7)
    np.testing.assert_allclose(check().unit, whole.unit, rtol=1e-14)


def test_targets_are_encoded():
    labels = Rows(NUMBERS, np.array(["a", "b"] * 30))
    problem = PROBLEMS.of(labels, lambda y: np.stack([y == "a", y == "b"], axis=1) * 1.0)
    expected = PROBLEMS.scaling.targets(np.tile(np.eye(2), (30, 1)))
    np.testing.assert_array_equal(problem.targets, expected)


# Row schedules


@pytest.mark.parametrize("batch_size", ["auto", None, 30, 59, 10**6])
def test_few_rows_or_large_batches_are_all_rows(batch_size):
    whole, schedule = row_schedule(FitData(DATA), PROBLEMS, settings(batch_size=batch_size), 0)
    assert isinstance(schedule, AllRows)
    assert schedule.start().objective is whole
    assert (whole.count, schedule.rows, schedule.fraction) == (ROWS, ROWS, 1.0)
    assert schedule.uses_all_rows
    np.testing.assert_array_equal(row_numbers(whole), NUMBERS[:, 0])


@pytest.mark.usefixtures("small_chunks")
def test_many_rows_start_with_a_chunk_of_them():
    whole, schedule = row_schedule(FitData(DATA), PROBLEMS, settings(), 0)
    assert isinstance(schedule, GrowingBatches)
    assert isinstance(schedule.source, WindowSource)
    assert schedule.whole is whole
    assert not schedule.uses_all_rows
    assert schedule.size == schedule.source.size <= 8
    assert schedule.largest == ROWS // 2
    numbers = row_numbers(whole)
    assert sorted(numbers) == NUMBERS[:, 0].tolist()
    assert np.any(np.diff(numbers) < 0)  # in random order
    # The chunks together contain all rows, and each has the unit of the whole problem.
    weights = PROBLEMS.network.initial_weights(0, dtype=np.float64)
    assert float(whole.loss(weights)) == pytest.approx(
        float(PROBLEMS.of(DATA).loss(weights)), rel=1e-12
    )
    window = schedule.problem_of(Chunks(1, 2, 2 * schedule.source.size))
    assert float(window.unit) == float(whole.unit)
    # The order depends on the seed alone.
    same, other = (row_schedule(FitData(DATA), PROBLEMS, settings(), seed)[0] for seed in (0, 1))
    np.testing.assert_array_equal(same.inputs, whole.inputs)
    assert np.any(np.asarray(other.inputs) != np.asarray(whole.inputs))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("changes", [{"batch_size": None}, {"method": "ad"}, {"method": "mm"}])
def test_many_rows_without_a_chunk_first(changes):
    whole, schedule = row_schedule(FitData(DATA), PROBLEMS, settings(**changes), 0)
    assert isinstance(schedule, AllRows)
    assert whole.rows.in_chunks
    np.testing.assert_array_equal(row_numbers(whole), NUMBERS[:, 0])


@pytest.mark.usefixtures("small_chunks")
def test_rows_without_weight_do_not_make_many():
    weight = np.zeros(ROWS)
    weight[:12] = 1
    data = FitData(Rows(DATA.inputs, DATA.targets, weight))
    assert isinstance(row_schedule(data, PROBLEMS, settings(), 0)[1], AllRows)
    weight[12:20] = 2
    whole, schedule = row_schedule(data, PROBLEMS, settings(), 0)
    assert isinstance(schedule, GrowingBatches)
    assert sorted(row_numbers(whole)) == list(range(1, 21))
    numbers, shares = row_numbers(whole), np.asarray(whole.rows.sample_weight)
    np.testing.assert_allclose(shares[numbers <= 12], 1 / 28, rtol=1e-12)
    np.testing.assert_allclose(shares[numbers > 12], 2 / 28, rtol=1e-12)


def test_small_batches_are_drawn_from_the_rows_in_memory():
    whole, schedule = row_schedule(FitData(DATA), PROBLEMS, settings(batch_size=7), 5)
    assert isinstance(schedule, GrowingBatches)
    assert isinstance(schedule.source, Arrays)
    assert (schedule.size, schedule.largest, schedule.whole) == (7, 30, whole)
    assert schedule.fraction == 7 / ROWS
    assert schedule.can_converge
    batch = schedule.start().objective
    assert batch.count == 7
    assert float(batch.unit) == float(whole.unit)
    assert set(row_numbers(batch)) <= set(NUMBERS[:, 0])
    again = row_schedule(FitData(DATA), PROBLEMS, settings(batch_size=7), 5)[1].start().objective
    np.testing.assert_array_equal(again.inputs, batch.inputs)
    other = row_schedule(FitData(DATA), PROBLEMS, settings(batch_size=7), 6)[1].start().objective
    assert np.any(np.asarray(other.inputs) != np.asarray(batch.inputs))


def test_batches_are_other_rows_than_the_validation_split_suggests():
    """The split has drawn one number of the seed; batches continue after it."""
    held = FitData.in_memory(DATA, Names(), 5, 0.25)
    free = FitData(held.rows)
    one, other = (
        row_numbers(row_schedule(d, PROBLEMS, settings(batch_size=7), 5)[1].start().objective)
        for d in (held, free)
    )
    assert np.any(one != other)
    assert not set(one) & set(held.validation.inputs[:, 0].astype(int))


@pytest.mark.parametrize(
    ("batch_size", "first"), [("auto", 16), (None, 16), (5, 5), (40, 40), (10**6, 50)]
)
def test_streams_have_batches_without_an_end_on_all_rows(batch_size, first, monkeypatch):
    monkeypatch.setattr(training_data, "FIRST_BATCH", 16)
    monkeypatch.setattr(training_data, "LARGEST_BATCH", 50)
    stream = Arrays(*DATA, 0)
    sample = stream.sample(20)
    data = FitData.streamed(sample, stream, Names(), lambda y: 2 * y)
    whole, schedule = row_schedule(data, PROBLEMS, settings(batch_size=batch_size), 0)
    assert isinstance(schedule, GrowingBatches)
    assert (schedule.source, schedule.whole) == (stream, None)
    assert (schedule.size, schedule.largest) == (first, 50)
    assert not schedule.can_converge
    assert schedule.fraction == 1.0
    np.testing.assert_array_equal(row_numbers(whole), sample.inputs[:, 0])
    batch = schedule.start().objective
    assert batch.count == first
    assert float(batch.unit) == float(whole.unit)
    doubled = PROBLEMS.scaling.targets(2 * DATA.targets[row_numbers(batch) - 1])
    np.testing.assert_allclose(batch.targets, doubled, rtol=1e-12)


def test_a_stream_with_fewer_rows_than_a_batch_is_named():
    stream = Batches(iter([DATA[:2]]))
    data = FitData.streamed(DATA, stream, Names(), lambda y: y)
    _, schedule = row_schedule(data, PROBLEMS, settings(batch_size=61), 0)
    with pytest.raises(ValueError, match="batch_size is 61 and there are fewer rows"):
        schedule.start()
