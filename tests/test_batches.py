"""Descent on parts of the rows that grow."""

from itertools import pairwise

import numpy as np
import pytest

from greatcircle import LipschitzRegressor, Network, Problem, stopping
from greatcircle.batches import ALL, descend_in_batches
from greatcircle.datasets import ground_effect
from greatcircle.sources import Arrays, Batches
from greatcircle.stopping import MaxIter

TABLE = ground_effect.generate(4000)
RNG = np.random.default_rng(0)
X = RNG.standard_normal((4000, 3)) / 2
NETWORK = Network((3, 5, 1), "abs")
START = NETWORK.initial_weights(seed=1)
TRUTH = NETWORK.predict(NETWORK.initial_weights(seed=0), X)


def whole(noise):
    y = TRUTH + noise * np.random.default_rng(1).standard_normal(TRUTH.shape)
    return Problem(NETWORK, X, y)


def run(noise, **changes):
    asked, problem = [], whole(noise)
    rows = Arrays(np.asarray(problem.inputs), np.asarray(problem.targets), None, 2)

    def problem_of(some):
        asked.append(len(some))
        return problem.with_rows(some.inputs, some.targets)

    settings = {"batch_size": 20, "largest": 2000, "whole": problem, "stop": MaxIter(30)}
    result = descend_in_batches(rows, problem_of, START, **{**settings, **changes})
    return problem, result, asked


def test_noise_makes_batches_grow_and_all_rows_end_it():
    problem, result, asked = run(1.0)
    sizes = list(dict.fromkeys(asked))
    assert sizes[0] == 20
    assert all(b == 8 * a for a, b in pairwise(sizes))
    assert asked == sorted(asked)
    assert result.loss == pytest.approx(float(problem.loss(result.weights)), rel=1e-5)
    assert [r.iteration for r in result.records] == list(range(1, 31))
    assert result.records[0].forward < 0.1 < result.records[-1].forward


def test_without_noise_small_batches_go_further():
    counts = {noise: run(noise, whole=None)[2].count(20) for noise in (0.0, 3.0)}
    assert counts[0.0] > counts[3.0]


def test_every_recorded_turn_lowered_the_loss_of_rows_that_had_not_chosen_it():
    _, result, _ = run(0.3, whole=None)
    assert result.records
    assert all(r.actual > 0 for r in result.records)


def test_norms_stay():
    _, result, _ = run(0.3)
    for a, b in zip(START, result.weights, strict=True):
        assert np.linalg.norm(a) == pytest.approx(np.linalg.norm(b), rel=1e-6)


def test_batches_that_cannot_grow_end_when_they_refuse():
    _, result, asked = run(3.0, whole=None, largest=160, stop=MaxIter(10_000))
    assert result.outcome == "converged"
    assert result.reason == "3 batches of 160 rows in a row refused a turn"
    assert max(asked) == 160


def test_the_end_of_the_rows_is_an_end():
    problem = whole(0.0)

    def run_on(batches):
        return descend_in_batches(
            Batches(iter(batches)),
            lambda rows: problem.with_rows(rows.inputs, rows.targets),
            START,
            batch_size=20,
            largest=20,
        )

    assert run_on([(X[:20], TRUTH[:20])] * 4).reason == "there are no more rows"
    with pytest.raises(ValueError, match="batch_size is 20 and there are fewer rows"):
        run_on([(X[:19], TRUTH[:19])])


def test_a_callback_stops_and_ctrl_c_keeps_what_there_is():
    _, result, _ = run(0.0, callback=lambda record, weights: record.iteration == 2)
    assert (result.outcome, len(result.records)) == ("stopped", 2)

    def interrupt(record, weights):
        raise KeyboardInterrupt

    _, result, _ = run(0.0, callback=interrupt)
    assert result.outcome == "interrupted"
    assert np.all(np.isfinite(result.weights[0]))


@pytest.mark.parametrize("changes", [{}, {"whole": None, "largest": 160}])
def test_from_every_state_it_goes_on_bit_for_bit(changes):
    kept = []
    changes = {"stop": MaxIter(12) | stopping.DecreaseBelow(5e-3), **changes}
    _, result, _ = run(
        1.0, keep=lambda state, records: kept.append((state, list(records))), **changes
    )
    assert any(state.rows > 20 for state, _ in kept)  # grown, and after that
    assert any(state.rows == ALL for state, _ in kept) == ("whole" not in changes)
    for state, records in kept[::3]:
        _, rest, _ = run(1.0, state=state, records=records, **changes)
        assert (rest.outcome, rest.reason, rest.loss) == (
            result.outcome,
            result.reason,
            result.loss,
        )
        for a, b in zip(rest.weights, result.weights, strict=True):
            np.testing.assert_array_equal(a, b)
        for a, b in zip(rest.records, result.records, strict=True):
            np.testing.assert_array_equal(a._replace(seconds=0), b._replace(seconds=0))


def test_few_gains_make_batches_grow_before_they_refuse():
    few = MaxIter(60) | stopping.DecreaseBelow(10.0, patience=1)
    _, result, asked = run(0.0, stop=few)
    assert asked.count(20) <= 3
    assert result.converged


def test_in_the_estimator_it_ends_where_all_rows_do():
    settings = {"hidden_layer_sizes": (8,), "random_state": 0, "max_iter": 60}
    all_rows = LipschitzRegressor(**settings).fit(TABLE.X, TABLE.y)
    some = LipschitzRegressor(batch_size=64, **settings).fit(TABLE.X, TABLE.y)
    rest = ground_effect.generate(4000, seed=5)
    assert some.score(rest.X, rest.y) > all_rows.score(rest.X, rest.y) - 0.02
    again = LipschitzRegressor(batch_size=64, **settings).fit(TABLE.X, TABLE.y)
    np.testing.assert_array_equal(some.predict(rest.X), again.predict(rest.X))
    for bad in (0, 2.5, "64", True):
        with pytest.raises(ValueError, match="batch_size is"):
            LipschitzRegressor(batch_size=bad).fit(TABLE.X, TABLE.y)
