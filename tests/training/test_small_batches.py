"""Selection and training on small batches: what is chosen and kept, and that it resumes."""

import itertools
import warnings
from functools import partial

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from greatcircle import LipschitzClassifier, LipschitzRegressor, losses
from greatcircle.data import folds
from greatcircle.data.rows import Rows
from greatcircle.data.sources import Arrays, Batches
from greatcircle.estimators import base
from greatcircle.optimise import iterations
from greatcircle.optimise.random_batches import RandomBatches, StreamBatches
from greatcircle.training import batches, ladder, selection, train, trials
from greatcircle.training import data as training_data
from greatcircle.training.trials import Trials

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (160, 2))
CURVE = np.sin(X[:, 0]) + 0.3 * X[:, 1]
Y = CURVE + 0.1 * RNG.standard_normal(160)
LABELS = np.digitize(Y, [-0.5, 0.5])

BATCH = 32
"""Rows of a batch of so few rows."""

STEPS_OF_PASS = 5
"""Steps of a record of the final fit: a pass over 160 rows."""

QUICK = {"hidden_layer_sizes": (6,), "target_gain": 2.0}
"""One network: only the number of steps and the direction are chosen."""


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Few narrow candidates with few steps; as with many rows, one part is held out."""
    monkeypatch.setattr(folds, "FOLD_ROWS", 50)
    monkeypatch.setattr(selection, "MANY_ROWS", 100)
    monkeypatch.setattr(selection, "ITERATIONS", 20)
    monkeypatch.setattr(ladder, "WIDTHS_ON_BATCHES", (4, 8))
    monkeypatch.setattr(ladder, "DEPTHS_ON_BATCHES", (1, 2))
    monkeypatch.setattr(ladder, "STEPS", 16)


@pytest.fixture
def few_steps(monkeypatch):
    """A network of 6 units cannot afford more than the first number of steps."""
    monkeypatch.setattr(ladder, "MOST_OPERATIONS", 1e5)


@pytest.fixture
def candidates(monkeypatch):
    """Return a list of the candidates whose training has begun."""
    begun = []
    original = Trials.start

    def start(self, candidate, iterations, rival):
        begun.append(candidate)
        return original(self, candidate, iterations, rival)

    monkeypatch.setattr(Trials, "start", start)
    return begun


@pytest.fixture
def final_runs(monkeypatch):
    """Return a list of the runs of the final fit: the phase and the result of each."""
    runs = []
    original = batches.descend_on_batches

    def descend(phase, *args, **options):
        result = original(phase, *args, **options)
        runs.append((phase, result))
        return result

    monkeypatch.setattr(batches, "descend_on_batches", descend)
    return runs


def model(kind=LipschitzRegressor, **options):
    defaults = {"max_iter": 16, "ensemble": 1, "random_state": 0, "dtype": "float32"}
    return kind(**{**defaults, **options})


def fit(**options):
    return model(**options).fit(X, Y)


def chosen(fitted):
    (row,) = [row for row in fitted.selection_.rows() if row.chosen]
    return row


def of_batches(fitted):
    """Return for each record whether it is one of training on small batches."""
    return np.isnan(fitted.history_["slope"])


def records_of(steps):
    """Return the number of records of this many steps on all 160 rows."""
    return -(-steps // STEPS_OF_PASS)


def assert_same(one, other):
    """Check that weights, records and tables of two models have the same bits."""
    for a, b in zip(one.weights_, other.weights_, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
    assert repr(one.selection_) == repr(other.selection_)
    assert (one.outcome_, one.reason_) == (other.outcome_, other.reason_)
    for name, column in one.history_.items():
        if name != "seconds":
            np.testing.assert_array_equal(column, other.history_[name], name)


# What is chosen


@pytest.mark.parametrize(
    ("kind", "y", "options"),
    [
        (LipschitzRegressor, Y, {}),
        (LipschitzRegressor, Y, QUICK),
        (LipschitzRegressor, np.stack([Y, X[:, 0] * X[:, 1]], axis=1), QUICK),
        (LipschitzRegressor, Y, {**QUICK, "loss": losses.Huber(0.5)}),
        (LipschitzRegressor, Y, {**QUICK, "dtype": "float64"}),
        (LipschitzClassifier, LABELS, {"hidden_layer_sizes": (6,)}),
        (LipschitzClassifier, LABELS > 0, {"hidden_layer_sizes": (6,)}),
    ],
    ids=["regressor", "one network", "outputs", "huber", "float64", "classifier", "two classes"],
)
def test_the_model_is_the_chosen_candidate(kind, y, options):
    fitted = model(kind, **options).fit(X, y)
    table, row = fitted.selection_, chosen(fitted)
    assert {*table["direction"]} == {"soap", "k-fac"}
    assert {16, 64} <= {*table["steps"]}
    assert np.all(np.isin(table["steps"], [16, 64]))
    assert len({(*row[:2], *row[-2:]) for row in table.rows()}) == len(table.rows())
    assert fitted.model_.sizes[1:-1] == row.hidden_layer_sizes
    assert {w.dtype.name for w in fitted.weights_} == {options.get("dtype", "float32")}
    # First the steps on small batches, then the iterations on all rows that the table says.
    count = records_of(row.steps)
    assert of_batches(fitted).tolist() == [True] * count + [False] * (fitted.n_iter_ - count)
    assert fitted.n_iter_ <= count + row.iterations
    np.testing.assert_array_equal(fitted.history_["iteration"], 1 + np.arange(fitted.n_iter_))
    assert fitted.score(X, y) > 0.75
    assert fitted.outcome_ == "converged"
    assert row.held_out_loss == np.min(table["held_out_loss"])


def test_the_target_gain_is_that_of_the_table():
    fitted = fit()
    row = chosen(fitted)
    gains = {row.target_gain for row in fitted.selection_.rows()}
    assert len(gains) > 3
    options = {"hidden_layer_sizes": row.hidden_layer_sizes, "selection": False, "max_iter": 1}
    factors = {gain: fit(target_gain=gain, **options).scaling_.factor for gain in gains}
    assert [gain for gain in gains if factors[gain] == fitted.scaling_.factor] == [row.target_gain]


def test_iterations_on_all_rows_follow_where_they_lower_the_error(few_steps):
    with_noise = model(**QUICK).fit(X, Y + RNG.standard_normal(160))
    assert chosen(with_noise).iterations == 0
    assert np.all(of_batches(with_noise))
    assert with_noise.reason_ == "finished: step schedule completed"
    without = model(**QUICK).fit(X, CURVE)
    row = chosen(without)
    assert row.iterations == 10 * (row.iterations // 10) > 0
    assert np.sum(~of_batches(without)) == row.iterations
    assert without.reason_ == (
        f"the held-out loss is lowest after {row.iterations} iterations on all rows that follow "
        "16 steps on small batches"
    )
    assert without.loss_ < 0.5 * without.history_["loss"][of_batches(without)][-1]


def test_same_seed_same_bits():
    assert_same(fit(), fit())
    one, other = fit(**QUICK), fit(**QUICK, random_state=1)
    assert repr(other.selection_) != repr(one.selection_)
    assert np.all(other.weights_[0] != one.weights_[0])


def test_rows_of_weight_zero_are_left_out():
    """The candidates have the same bits, as they are trained on the other rows only.

    The final fit is given all rows, so mean, spread and loss are sums in another order: its weights
    differ by rounding.
    """
    count = 40
    order = RNG.permutation(160 + count)
    rows = np.vstack([X, 10 + X[:count]])[order]
    targets = np.append(Y, 100 * Y[:count])[order]
    weight = np.append(np.ones(160), np.zeros(count))[order]
    kept = weight > 0
    options = {"hidden_layer_sizes": (6,), "dtype": "float64"}
    with_zeros = model(**options).fit(rows, targets, sample_weight=weight)
    without = model(**options).fit(rows[kept], targets[kept])
    assert repr(with_zeros.selection_) == repr(without.selection_)
    assert with_zeros.n_iter_ == without.n_iter_
    np.testing.assert_allclose(with_zeros.predict(X), without.predict(X), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("max_iter", [2, 3, 16])
def test_max_iter_bounds_the_passes_of_each_phase(max_iter, candidates):
    fitted = fit(max_iter=max_iter)
    training = 128
    assert len({candidate.target_gain for candidate in candidates}) > 1
    assert max(c.batches.steps for c in candidates) * BATCH <= max_iter * training
    batch_records = of_batches(fitted)
    assert np.sum(fitted.history_["forward"][batch_records]) <= max_iter
    assert np.sum(~batch_records) <= max_iter


@pytest.mark.parametrize("rows", [130, 158])
def test_max_iter_bounds_the_passes_of_any_number_of_rows(rows, candidates):
    model(max_iter=3).fit(X[:rows], Y[:rows])
    training = rows - -(-rows // 5)
    assert max(c.batches.steps for c in candidates) * BATCH <= 3 * training
    assert len({candidate.target_gain for candidate in candidates}) > 1


def test_no_iterations_leave_the_initial_weights():
    fitted = fit(**QUICK, max_iter=0)
    assert fitted.n_iter_ == 0


def test_the_first_candidate_may_have_fewer_steps_than_usual(monkeypatch, candidates):
    monkeypatch.setattr(ladder, "STEPS", 10_000)
    fit(**QUICK, max_iter=3)
    assert candidates[0].batches.steps == 3 * 128 // BATCH


def test_networks_of_many_units_are_few(monkeypatch):
    options = {"target_gain": 2.0, "max_iter": 3, "ensemble": "auto", "cv": 3}
    units = max(chosen(fit(**options)).hidden_layer_sizes)
    for most, networks in ((3 * units, 3), (2 * units + 1, 2), (units, 1), (1, 1)):
        monkeypatch.setattr(selection, "MOST_UNITS", most)
        assert fit(**options).model_.networks == networks
    assert fit(**{**options, "ensemble": 3}).model_.networks == 3  # what is asked for is done


# Where there are no small batches


@pytest.fixture
def no_batches(monkeypatch):
    """Fail if small batches are made."""
    for module in (trials, batches):
        monkeypatch.setattr(module, "RandomBatches", lambda *_, **__: pytest.fail("small batches"))


@pytest.mark.parametrize(
    "options",
    [
        {"method": "ad"},
        {"method": "mm"},
        {"method": ("gauss-newton", "curvature")},
        {"selection": False},
        {"batch_size": 64},
        {"batch_size": None},
        {"lipschitz": 2.0, "target_gain": "auto"},
    ],
    ids=str,
)
def test_a_given_method_or_batch_size_excludes_small_batches(options, no_batches):
    fitted = fit(**{**QUICK, "max_iter": 3, **options})
    if fitted.selection_ is not None:
        assert {*fitted.selection_["direction"]} == {""}
        assert {*fitted.selection_["steps"]} == {0}


def test_few_rows_are_all_seen_in_every_iteration(no_batches, monkeypatch):
    assert {*model(**QUICK, max_iter=3).fit(X[:100], Y[:100]).selection_["steps"]} == {0}
    weight = np.arange(160) < 100  # rows of weight zero do not count
    assert {*model(**QUICK, max_iter=3).fit(X, Y, weight).selection_["steps"]} == {0}


def test_a_fit_that_continues_sees_all_rows(monkeypatch, request):
    continued = fit(**QUICK, warm_start=True)
    assert np.any(of_batches(continued))
    request.getfixturevalue("no_batches")
    continued.fit(X, Y)
    assert not np.any(of_batches(continued))
    continued.partial_fit(X, Y)


# Resumed fits


class Stop(Exception):
    """Ends a fit from inside."""


def after(count, error, original):
    """Return a method of `Trials` that raises at its last call but one."""
    calls = itertools.count(1)

    def method(self, *args):
        if next(calls) > count:
            raise error
        return original(self, *args)

    return method


def raising_at(number, error):
    """Return a callback that raises when it is called for this time."""
    calls = itertools.count(1)

    def callback(record):
        if next(calls) == number:
            raise error

    return callback


@pytest.mark.parametrize(("method", "finished"), [("start", 1), ("start", 5), ("extend", 0)])
def test_a_search_resumes_with_the_same_bits(tmp_path, monkeypatch, candidates, method, finished):
    whole = fit(checkpoint=tmp_path / "whole")
    total = len(candidates)
    with monkeypatch.context() as patch:
        patch.setattr(Trials, method, after(finished, Stop, getattr(Trials, method)))
        with pytest.raises(Stop):
            fit(checkpoint=tmp_path / "cut")
    candidates.clear()
    runs = []
    original = trials.descend_on_batches
    monkeypatch.setattr(
        trials, "descend_on_batches", lambda *a, **k: runs.append(a) or original(*a, **k)
    )
    again = fit(checkpoint=tmp_path / "cut", resume=True, random_state=5)
    # Iterations on all rows continue from the weights in the file.
    assert len(candidates) == len(runs) == (total - finished if method == "start" else 0)
    assert_same(again, whole)


def test_a_longer_trial_resumes_with_the_same_bits(tmp_path, monkeypatch, few_steps, candidates):
    """A trial that was read from the file is repeated, small batches and iterations."""
    options = {**QUICK, "max_iter": 80}
    whole = model(**options).fit(X, CURVE)
    assert chosen(whole).iterations > 20
    with monkeypatch.context() as patch:
        patch.setattr(Trials, "extend", after(1, Stop, Trials.extend))
        with pytest.raises(Stop):
            model(**options, checkpoint=tmp_path).fit(X, CURVE)
    candidates.clear()
    again = model(**options, checkpoint=tmp_path, resume=True).fit(X, CURVE)
    assert candidates == []
    assert_same(again, whole)


@pytest.mark.parametrize("networks", [1, 2])
@pytest.mark.parametrize("phase", ["small batches", "all rows"])
def test_a_final_fit_resumes_with_the_same_bits(tmp_path, monkeypatch, few_steps, phase, networks):
    """Interrupted while the last network is trained."""
    length = 4
    monkeypatch.setattr(iterations, "MAX_LENGTH", length)
    seen = []
    options = {**QUICK, "ensemble": networks, "checkpoint_interval": 0.0}

    def fitted(folder, callback, **more):
        settings = {**options, **more, "callbacks": [callback]}
        return model(**settings, checkpoint=tmp_path / folder).fit(X, CURVE)

    whole = fitted("whole", seen.append)
    total, of_batches_only = len(seen), sum(np.isnan(record.slope) for record in seen) // networks
    assert total > networks * (of_batches_only + length)
    # The records of the first network come before.
    before = max((i for i, record in enumerate(seen) if record.iteration == 1), default=0)
    cut = before + (2 if phase == "small batches" else of_batches_only + length + 2)
    with pytest.raises(Stop):
        fitted("cut", raising_at(cut, Stop))
    seen.clear()
    again = fitted("cut", seen.append, resume=True, random_state=5)
    # Records are saved once for each program, before the next one is run.
    assert total - cut < len(seen) <= total - cut + length
    assert_same(again, whole)


def test_a_fit_resumed_with_another_limit_is_that_of_the_new_limit(tmp_path, monkeypatch):
    """The files of both choices are apart: another number of steps comes before."""
    monkeypatch.setattr(ladder, "STEPS", 10_000)
    fits = {}
    for folder, limits in {"both": (10, 16), "fresh": (16,)}.items():
        for max_iter in limits:
            settings = {**QUICK, "max_iter": max_iter, "checkpoint": tmp_path / folder}
            fits[folder, max_iter] = model(**settings, resume=True).fit(X, CURVE)
    assert {*fits["both", 10].selection_["steps"]} == {40}
    assert {*fits["both", 16].selection_["steps"]} == {64}
    assert all(chosen(fitted).iterations > 0 for fitted in fits.values())
    assert_same(fits["both", 16], fits["fresh", 16])


def test_a_finished_fit_resumes_without_training(tmp_path, candidates):
    seen = []
    options = {**QUICK, "checkpoint": tmp_path, "callbacks": [seen.append], "ensemble": 2}
    first = fit(**options)
    assert candidates
    assert seen
    candidates.clear()
    seen.clear()
    again = fit(**options, resume=True)
    assert candidates == seen == []
    assert_same(again, first)


# Ctrl-C


@pytest.mark.parametrize(
    ("kind", "y"), [(LipschitzRegressor, Y), (LipschitzClassifier, LABELS)], ids=str
)
def test_ctrl_c_while_candidates_are_compared_keeps_the_best_one(kind, y, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Trials, "start", after(3, KeyboardInterrupt, Trials.start))
        patch.setattr(train, "fit", lambda *_, **__: pytest.fail("a new training began"))
        with pytest.warns(ConvergenceWarning, match="while candidates were compared"):
            fitted = model(kind).fit(X, y)
    table, row = fitted.selection_, chosen(fitted)
    assert fitted.outcome_ == "interrupted"
    assert len(table.rows()) == 3
    assert row.held_out_loss == np.min(table["held_out_loss"])
    assert fitted.model_.sizes[1:-1] == row.hidden_layer_sizes
    assert fitted.n_iter_ == 16 * BATCH // 128  # passes of its training rows
    assert fitted.score(X, y) > 0.3
    assert np.isfinite(fitted.loss_)


def test_records_of_a_candidate_that_was_interrupted_are_numbered_in_order(monkeypatch, few_steps):
    monkeypatch.setattr(Trials, "extend", after(1, KeyboardInterrupt, Trials.extend))
    with pytest.warns(ConvergenceWarning, match="while candidates were compared"):
        fitted = model(**QUICK, max_iter=80).fit(X, CURVE)
    assert fitted.n_iter_ == 4 + 20
    np.testing.assert_array_equal(fitted.history_["iteration"], 1 + np.arange(24))


def test_ctrl_c_stops_candidates_on_small_batches(monkeypatch):
    """A worker thread does not see Ctrl-C: the first thread tells it to stop."""
    stopped = []
    original = trials.descend_on_batches

    def wait_interrupted(futures):
        raise KeyboardInterrupt

    def descend(phase, *args, **options):
        result = original(phase, *args, **options)
        stopped.append((len(result.records), str(result.outcome)))
        return result

    monkeypatch.setattr(trials, "wait", wait_interrupted)
    monkeypatch.setattr(trials, "descend_on_batches", descend)
    monkeypatch.setattr(ladder, "STEPS", 4000)
    with pytest.raises(KeyboardInterrupt):
        fit(**QUICK, max_iter=1000)
    assert stopped
    assert all(count < 1000 and outcome == "stopped" for count, outcome in stopped)


@pytest.mark.parametrize("networks", [1, 2])
@pytest.mark.parametrize("number", [2, 12], ids=["small batches", "all rows"])
def test_ctrl_c_in_the_final_fit_keeps_the_weights_so_far(number, networks, few_steps):
    """They are those of a run that a callback stops there; no other network is trained."""
    options = {**QUICK, "ensemble": networks}
    callback = raising_at(number, KeyboardInterrupt)
    with pytest.warns(ConvergenceWarning, match=f"ended after {number} iterations: interrupted"):
        interrupted = model(**options, callbacks=[callback]).fit(X, CURVE)
    calls = itertools.count(1)
    stopped = model(**options, callbacks=[lambda record: next(calls) == number]).fit(X, CURVE)
    assert (interrupted.outcome_, stopped.outcome_) == ("interrupted", "stopped")
    assert stopped.reason_ == "a callback asked to stop"
    for fitted in (interrupted, stopped):
        assert (fitted.n_iter_, fitted.model_.networks) == (number, 1)
    assert np.any(of_batches(interrupted))
    assert np.all(of_batches(interrupted)) == (number == 2)
    np.testing.assert_array_equal(interrupted.predict(X), stopped.predict(X))
    whole = model(**options).fit(X, CURVE)
    np.testing.assert_array_equal(
        interrupted.history_["loss"][:number], whole.history_["loss"][:number]
    )


def test_ctrl_c_in_the_second_network_keeps_the_first(few_steps):
    one = model(**QUICK).fit(X, CURVE)
    callback = raising_at(one.n_iter_ + 2, KeyboardInterrupt)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        both = model(**QUICK, **{"ensemble": 2}, callbacks=[callback]).fit(X, CURVE)
    assert both.model_.networks == 1
    np.testing.assert_array_equal(both.predict(X), one.predict(X))


# Early stopping and budgets


def test_early_stopping_shares_its_part_and_ends_iterations_on_all_rows(few_steps):
    """The steps on small batches are taken to the end, as their number was chosen."""
    patience, outcomes = 2, []
    for seed in range(5):
        options = {"early_stopping": True, "n_iter_no_change": patience, "random_state": seed}
        fitted = fit(**QUICK, **options)
        assert {*fitted.selection_["parts"]} == {1}
        validation, on_batches = fitted.history_["validation_loss"], of_batches(fitted)
        assert np.all(np.isfinite(validation))
        assert np.sum(on_batches) == 4
        outcomes.append(fitted.outcome_)
        if fitted.outcome_ == "stopped":
            best = 4 + int(np.argmin(validation[4:]))
            assert fitted.n_iter_ == best + 1 + patience
            assert fitted.loss_ == fitted.history_["loss"][best]
    assert "stopped" in outcomes


@pytest.mark.parametrize("early_stopping", [False, True])
def test_a_budget_is_kept(early_stopping):
    fitted = model(lipschitz=0.8, early_stopping=early_stopping).fit(X, Y)
    assert fitted.certificate_.value <= 0.8
    assert len({*fitted.selection_["hidden_layer_sizes"]}) > 1
    assert np.all(fitted.selection_["steps"] >= 16)
    assert np.all(np.isnan(fitted.selection_["target_gain"]))
    assert fitted.model_.sizes[1:-1] == chosen(fitted).hidden_layer_sizes
    assert fitted.score(X, Y) > 0.5
    np.testing.assert_array_equal(fitted.history_["iteration"], 1 + np.arange(fitted.n_iter_))
    assert np.all(np.isfinite(fitted.history_["validation_loss"])) == early_stopping


def test_early_stopping_ends_iterations_within_a_budget(monkeypatch, few_steps):
    monkeypatch.setattr(selection, "MOST_OPERATIONS", 0.0)  # no iterations on all rows
    options = {"early_stopping": True, "n_iter_no_change": 1, "lipschitz": 0.8, "max_iter": 40}
    fitted = fit(**options)
    assert fitted.outcome_ == "stopped"
    assert fitted.n_iter_ < records_of(chosen(fitted).steps) + 40


def test_iterations_within_a_budget_that_reach_their_limit_are_named_as_the_reason():
    fitted = fit(lipschitz=0.8)
    assert (fitted.outcome_, fitted.reason_) == ("max_iter", "reached the limit of 16 iterations")


# More rows than the candidates saw


@pytest.fixture
def grows(monkeypatch):
    """Candidates see 100 of the 160 rows; the final fit may take four times the first steps."""
    monkeypatch.setattr(selection, "ROWS_ON_BATCHES", 100)
    monkeypatch.setattr(ladder, "MOST_OPERATIONS", 3e5)


@pytest.fixture
def held_out(monkeypatch):
    """Return a list of the held-out problems of final fits, with the batches of the others."""
    found = []
    original = batches._growing

    def growing(*args):
        found.append(original(*args))
        return found[-1]

    monkeypatch.setattr(batches, "_growing", growing)
    return found


@pytest.mark.parametrize("y", [CURVE, Y, RNG.standard_normal(160)], ids=["exact", "noisy", "noise"])
def test_steps_are_doubled_while_that_lowers_the_held_out_loss(y, grows, held_out, final_runs):
    fitted = model(**QUICK).fit(X, y)
    ((rows, problem),) = held_out
    steps = [phase.steps for phase, _ in final_runs]
    lowest = [float(problem.loss(result.weights)) for _, result in final_runs]
    row = chosen(fitted)
    assert {phase.direction for phase, _ in final_runs} == {row.direction}
    assert steps == [row.steps * 2**i for i in range(len(steps))]
    # Each doubling but the last lowered the loss of the rows held out by 2 %.
    assert all(b < 0.98 * a for a, b in itertools.pairwise(lowest[:-1]))
    assert len(steps) >= 2
    assert steps[-1] == 64 or lowest[-1] >= 0.98 * lowest[-2]
    best = final_runs[int(np.argmin(lowest))][1]
    assert fitted.n_iter_ == len(best.records)
    for kept, trained in zip(fitted.weights_, best.weights, strict=True):
        np.testing.assert_array_equal(kept, trained)
    # No row is in both, and all are in one of them.
    inputs = np.hstack([np.asarray(p.rows.inputs) for p in (rows.objective, problem)])
    weight = np.concatenate([np.asarray(p.rows.sample_weight) for p in (rows.objective, problem)])
    assert np.sum(weight > 0) == 160
    assert len(np.unique(inputs[:, weight > 0], axis=1).T) == 160
    assert problem.count == 16


class Held:
    """A problem of rows held out, with given losses."""

    def __init__(self, values):
        self.values = iter(values)

    def loss(self, weights):
        return next(self.values)


@pytest.mark.parametrize(
    ("values", "runs", "kept"),
    [
        ([1.0, 1.1], 2, 0),
        ([1.0, 0.99], 2, 1),
        ([1.0, 0.9, 0.95], 3, 1),
        ([1.0, np.nan], 2, 0),
        ([1.0, 0.9, 0.8, 0.7], 3, 2),  # more steps cost too much
    ],
    ids=str,
)
def test_the_run_with_the_lowest_held_out_loss_is_kept(
    values, runs, kept, grows, monkeypatch, final_runs
):
    original = batches._growing
    monkeypatch.setattr(batches, "_growing", lambda *args: (original(*args)[0], Held(values)))
    fitted = fit(**QUICK)
    assert [phase.steps for phase, _ in final_runs] == [16 * 2**i for i in range(runs)]
    assert len(fitted.history_["loss"]) == len(final_runs[kept][1].records)
    np.testing.assert_array_equal(fitted.weights_[0], final_runs[kept][1].weights[0])


def test_a_fit_that_grows_has_one_network_and_no_iterations_on_all_rows(grows):
    fitted = model(**QUICK, **{"ensemble": "auto"}).fit(X, CURVE)
    assert fitted.model_.networks == 1
    assert np.all(of_batches(fitted))


def test_a_fit_that_grows_resumes_with_the_same_bits(tmp_path, grows, final_runs):
    """Interrupted in the second run, of twice the steps."""
    seen = []
    options = {**QUICK, "checkpoint_interval": 0.0}
    whole = model(**options, checkpoint=tmp_path / "whole", callbacks=[seen.append]).fit(X, Y)
    total, first = len(seen), len(final_runs[0][1].records)
    assert len(final_runs) > 1
    cut = first + 3
    with pytest.raises(Stop):
        fit(**options, checkpoint=tmp_path / "cut", callbacks=[raising_at(cut, Stop)])
    seen.clear()
    again = fit(**options, checkpoint=tmp_path / "cut", resume=True, callbacks=[seen.append])
    assert len(seen) == total - cut + 1
    assert_same(again, whole)


def test_ctrl_c_in_a_longer_run_ends_the_fit(grows):
    whole = fit(**QUICK)
    number = records_of(16) + 2
    callback = raising_at(number, KeyboardInterrupt)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        fitted = fit(**QUICK, ensemble=2, callbacks=[callback])
    assert fitted.outcome_ == "interrupted"
    assert fitted.model_.networks == 1
    assert fitted.n_iter_ <= whole.n_iter_


def test_a_classifier_grows_too(grows, held_out, final_runs):
    fitted = model(LipschitzClassifier, hidden_layer_sizes=(6,)).fit(X, LABELS)
    lowest = [float(held_out[0][1].loss(result.weights)) for _, result in final_runs]
    best = final_runs[int(np.argmin(lowest))][1]
    np.testing.assert_array_equal(fitted.weights_[0], best.weights[0])
    assert fitted.score(X, LABELS) > 0.75


# Streams

SIZE, MOST_STEPS = 16, 4
"""Rows of a batch of a stream, and steps of a program."""


@pytest.fixture
def stream(monkeypatch):
    """Data of at least 120 rows are a stream."""
    monkeypatch.setattr(training_data, "SAMPLE", 120)
    monkeypatch.setattr(batches, "StreamBatches", partial(StreamBatches, size=SIZE))
    monkeypatch.setattr(iterations, "MAX_STEPS", MOST_STEPS)
    monkeypatch.setattr(ladder, "MOST_OPERATIONS", 3e5)


def parts(rows=160, y=Y):
    """Return batches of 40 rows, again and again up to this number of rows."""
    starts = [i % 160 for i in range(0, rows, 40)]
    return [(X[i : i + 40], y[i : i + 40]) for i in starts]


@pytest.fixture(params=["list", "memory map", "generator"])
def streamed(request, tmp_path, stream):
    """Return a function that makes the arguments of `fit`, the same rows each time."""
    if request.param == "list":
        return lambda: (parts(),)
    if request.param == "generator":
        return lambda: (iter(parts(8000)),)
    path = tmp_path / "rows.dat"
    np.memmap(path, np.float64, "w+", shape=X.shape)[:] = X
    return lambda: (np.memmap(path, np.float64, "r", shape=X.shape), Y)


def test_a_stream_trains_on_small_batches_with_bounded_draws(streamed, monkeypatch, final_runs):
    asked = []
    for kind in (Arrays, Batches):

        def draw(self, rows, original=kind.draw):
            asked.append(rows)
            return original(self, rows)

        monkeypatch.setattr(kind, "draw", draw)
    fitted = model(**QUICK).fit(*streamed())
    row = chosen(fitted)
    assert asked.count(120) <= 1  # the sample
    draws = [rows for rows in asked if rows != 120]
    assert max(draws) <= MOST_STEPS * SIZE
    steps = [phase.steps for phase, _ in final_runs]
    assert steps[0] == row.steps
    assert steps == [row.steps * 2**i for i in range(len(steps))]
    # A list ends within a draw, and the rest is drawn from its beginning.
    assert sum(steps) * SIZE <= sum(draws) <= 2 * sum(steps) * SIZE
    assert np.all(of_batches(fitted))
    assert fitted.n_iter_ in [steps // MOST_STEPS for steps in steps]
    assert fitted.score(X, Y) > 0.9


def test_a_stream_resumes_with_the_same_bits(streamed, tmp_path, final_runs):
    """Interrupted in the first run, and in the second one of twice the steps."""
    seen = []
    options = {**QUICK, "checkpoint_interval": 0.0}
    whole = model(**options, callbacks=[seen.append]).fit(*streamed())
    total, first = len(seen), len(final_runs[0][1].records)
    assert len(final_runs) > 1
    for cut in (2, first + 3):
        folder = tmp_path / str(cut)
        with pytest.raises(Stop):
            model(**options, checkpoint=folder, callbacks=[raising_at(cut, Stop)]).fit(*streamed())
        seen.clear()
        resumed = model(**options, checkpoint=folder, resume=True, callbacks=[seen.append])
        resumed.fit(*streamed())
        assert len(seen) == total - cut + 1
        assert_same(resumed, whole)


@pytest.mark.parametrize("rows", [120, 200, 400])
def test_a_generator_may_end_while_small_batches_are_drawn(rows, stream, final_runs):
    """120 and 200 rows end the first run, 400 rows the second."""
    fitted = model(**QUICK).fit(iter(parts(rows)))
    counts = [len(result.records) for _, result in final_runs]
    assert sum(counts) * MOST_STEPS * SIZE <= rows
    assert len(counts) == 1 + (rows == 400)
    assert str(final_runs[-1][1].outcome) == "max_iter"
    assert fitted.n_iter_ in counts
    assert fitted.score(X, Y) > 0.5
    assert np.isfinite(fitted.loss_)


def test_a_generator_that_ends_is_named_as_the_reason(stream):
    fitted = model(**QUICK).fit(iter(parts(200)))
    assert (fitted.outcome_, fitted.reason_) == ("max_iter", "there are no more rows")


def test_a_stream_holds_out_rows_for_early_stopping(streamed):
    fitted = model(**QUICK, early_stopping=True, validation_fraction=0.2).fit(*streamed())
    assert np.all(np.isfinite(fitted.history_["validation_loss"]))
    assert {*fitted.selection_["parts"]} == {1}
    assert fitted.score(X, Y) > 0.8


def test_a_classifier_is_trained_on_a_stream(stream):
    fitted = model(LipschitzClassifier, hidden_layer_sizes=(6,)).fit(parts(y=LABELS))
    assert np.all(of_batches(fitted))
    assert fitted.score(X, LABELS) > 0.75


# Callbacks and the progress bar


class Bar:
    """Records what a progress bar is told."""

    def __init__(self, title, max_iter):
        self.candidates, self.networks, self.runs = [], [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def candidate(self, name):
        self.candidates.append(name)

    def network(self, number, count, max_iter):
        self.networks.append((number, count))

    def expect(self, iterations):
        self.runs.append((iterations, []))

    def show(self, record):
        self.runs[-1][1].append(record)


@pytest.fixture
def bars(monkeypatch):
    """Return a list of the progress bars of fits."""
    made = []

    def bar(*args):
        made.append(Bar(*args))
        return made[-1]

    monkeypatch.setattr(base, "ProgressBar", bar)
    return made


def assert_same_records(some, others):
    np.testing.assert_array_equal(np.array(some), np.array(others))


def test_callbacks_and_bar_see_every_record_of_the_final_fit(few_steps, bars, candidates):
    seen = []
    fitted = model(**QUICK, callbacks=[seen.append], verbose=True).fit(X, CURVE)
    assert_same_records(seen, fitted.history_.rows())
    (bar,) = bars
    (steps, on_batches), (most, on_all_rows) = bar.runs
    assert_same_records(on_batches + on_all_rows, seen)
    assert steps == len(on_batches) == records_of(16)
    assert 0 < len(on_all_rows) <= most == chosen(fitted).iterations
    # The candidates, and the one that is trained further.
    assert len(bar.candidates) == len(candidates) + 1
    assert bar.candidates[0] == "6, target gain 2, soap 16 steps"
    assert bar.networks == [(1, 1)]


def test_callbacks_and_bar_see_every_run_of_a_fit_that_grows(grows, bars, final_runs):
    seen = []
    fitted = fit(**QUICK, callbacks=[seen.append], verbose=True)
    (bar,) = bars
    assert [expected for expected, _ in bar.runs] == [len(shown) for _, shown in bar.runs]
    assert len(bar.runs) == len(final_runs) > 1
    assert_same_records([record for _, shown in bar.runs for record in shown], seen)
    assert any(
        np.array_equal(np.array(shown), np.array(fitted.history_.rows()), equal_nan=True)
        for _, shown in bar.runs
    )


def test_callbacks_and_bar_see_every_record_of_a_stream(stream, bars):
    seen = []
    fitted = model(**QUICK, callbacks=[seen.append], verbose=True).fit(parts())
    (bar,) = bars
    assert_same_records([record for _, shown in bar.runs for record in shown], seen)
    assert [expected for expected, _ in bar.runs] == [len(shown) for _, shown in bar.runs]
    assert fitted.n_iter_ in [len(shown) for _, shown in bar.runs]


def test_every_network_is_shown(few_steps, bars):
    fitted = model(**QUICK, **{"ensemble": 2}, verbose=True).fit(X, CURVE)
    (bar,) = bars
    assert bar.networks == [(1, 2), (2, 2)]
    assert len(bar.runs) == 4
    assert fitted.n_iter_ == sum(len(shown) for _, shown in bar.runs[:2])


def test_batches_are_those_of_the_seed(monkeypatch):
    """Each part and each network has batches, and initial weights, of its own seed."""
    seeds = []

    def seeded(problem, *args, seed=0, **options):
        seeds.append(seed)
        return RandomBatches(problem, *args, seed=seed, **options)

    for module in (trials, batches):
        monkeypatch.setattr(module, "RandomBatches", seeded)
    fit(**QUICK, cv=2, ensemble=2)
    first = np.random.RandomState(0).randint(2**31)
    assert {*seeds[:-2]} == {first, first + 1}
    assert seeds[-2:] == [first, first + 1]


# Rare targets


def test_the_even_part_of_known_distributions():
    rng = np.random.default_rng(0)
    normal = rng.standard_normal((200_000, 1))
    found = selection._even_part(Rows(normal, normal))
    assert found == pytest.approx(2 / np.pi, rel=0.01)
    p = 0.01
    rare = (np.arange(10_000) < p * 10_000).astype(float)[:, None]
    assert selection._even_part(Rows(rare, rare)) == pytest.approx(4 * p * (1 - p))
    both = np.hstack([normal[:10_000], rare])
    assert selection._even_part(Rows(both, both)) == pytest.approx(4 * p * (1 - p))
    weighted = Rows(rare[[0, -1]], rare[[0, -1]], np.array([p, 1 - p]))
    assert selection._even_part(weighted) == pytest.approx(4 * p * (1 - p))
    constant = np.full((10, 1), 3.0)
    assert selection._even_part(Rows(constant, constant)) == 1
    for size in (1e300, 1e-300):
        assert selection._even_part(Rows(rare, rare * size)) == pytest.approx(4 * p * (1 - p))


@pytest.mark.parametrize("kind", [LipschitzRegressor, LipschitzClassifier])
def test_rare_targets_are_not_left_to_small_batches(kind):
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((400, 2))
    common, rare = (rng.permutation(400) < count for count in (100, 8))
    for which, uses in ((common, True), (rare, False)):
        model = kind((5,), max_iter=20, ensemble=1, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            steps = model.fit(inputs, which.astype(int)).selection_["steps"]
        assert np.all((steps > 0) == uses)
