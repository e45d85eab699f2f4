"""Row schedules: batches that grow, windows of rows in memory, random batches."""

from dataclasses import dataclass
from itertools import pairwise

import jax
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from greatcircle import (
    Checkpoint,
    LipschitzRegressor,
    Network,
    Problem,
    descend,
    directions,
    steps,
    stopping,
)
from greatcircle.data.sources import Arrays, Batches
from greatcircle.datasets import ground_effect
from greatcircle.objective import chunks
from greatcircle.optimise.checkpoint import NAME
from greatcircle.optimise.schedules import GrowingBatches, WindowSource
from greatcircle.optimise.stopping import MaxIter

TABLE = ground_effect.generate(4000)
RNG = np.random.default_rng(0)
X = RNG.standard_normal((4000, 3)) / 2
NETWORK = Network((3, 5, 1), "abs")
START = NETWORK.initial_weights(seed=1)
TRUTH = np.asarray(Problem(NETWORK, X, X[:, :1]).outputs(NETWORK.initial_weights(seed=0)))


def problem_with(noise):
    y = TRUTH + noise * np.random.default_rng(1).standard_normal(TRUTH.shape)
    return Problem(NETWORK, X, y)


def batches_of(problem, source, asked=None, *, first=20, largest=2000, whole=True):
    def problem_of(drawn):
        if asked is not None:
            asked.append(len(drawn))
        made = Problem(NETWORK, drawn.inputs, drawn.targets)
        return made.with_unit(problem.unit)

    return GrowingBatches(source, problem_of, first, largest, problem if whole else None)


def run(noise, *, whole=True, largest=2000, **options):
    asked, problem = [], problem_with(noise)
    source = Arrays(np.asarray(problem.inputs), np.asarray(problem.targets), None, 2)
    rows = batches_of(problem, source, asked, largest=largest, whole=whole)
    options = {"stop": MaxIter(30), "direction": directions.Kronecker(), **options}
    result = descend(problem, START, rows=rows, **options)
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
    counts = {noise: run(noise, whole=False)[2].count(20) for noise in (0.0, 3.0)}
    assert counts[0.0] > counts[3.0]


def test_every_recorded_step_lowers_the_loss_of_rows_that_did_not_choose_it():
    _, result, _ = run(0.3, whole=False)
    assert result.records
    assert all(r.actual > 0 for r in result.records)


@dataclass(frozen=True)
class TooLong:
    """A step rule whose angle is far too large."""

    usual = steps.Curvature()
    cost = usual.cost

    def check(self, objective):
        self.usual.check(objective)

    def propose(self, start):
        proposal = self.usual.propose(start)
        return proposal._replace(angle=30 * proposal.angle)


def test_a_step_that_its_own_rows_reject_is_halved_and_batches_do_not_grow():
    _, result, asked = run(0.0, step=TooLong(), stop=MaxIter(5))
    assert sum(r.halvings for r in result.records) > 5
    assert set(asked) == {20}
    for record in result.records:
        # A full turn or more is never a step: the rows that chose it are not evaluated.
        rejected = record.angle * 2.0 ** np.arange(1, record.halvings + 1)
        passes = 2 + record.halvings + np.sum(rejected < 2 * np.pi)
        assert record.forward == pytest.approx(20 / 4000 * passes)


def test_norms_stay():
    _, result, _ = run(0.3)
    for a, b in zip(START, result.weights, strict=True):
        assert np.linalg.norm(a) == pytest.approx(np.linalg.norm(b), rel=1e-6)


def test_a_run_on_batches_that_cannot_grow_ends_after_rejected_steps():
    _, result, asked = run(3.0, whole=False, largest=160, stop=MaxIter(10_000))
    assert result.outcome == "converged"
    assert result.reason == "3 consecutive batches of 160 rows rejected a step"
    assert max(asked) == 160


def test_a_run_ends_with_the_rows():
    problem = problem_with(0.0)

    def run_on(batches):
        rows = batches_of(problem, Batches(iter(batches)), largest=20, whole=False)
        return descend(problem, START, rows=rows)

    assert run_on([(X[:20], TRUTH[:20])] * 4).reason == "there are no more rows"
    with pytest.raises(ValueError, match="batch_size is 20 and there are fewer rows"):
        run_on([(X[:19], TRUTH[:19])])


def test_a_callback_stops_and_ctrl_c_keeps_the_weights():
    _, result, _ = run(0.0, callback=lambda record, weights: record.iteration == 2)
    assert (result.outcome, len(result.records)) == ("stopped", 2)

    def interrupt(record, weights):
        raise KeyboardInterrupt

    _, result, _ = run(0.0, callback=interrupt)
    assert result.outcome == "interrupted"
    assert np.all(np.isfinite(result.weights[0]))


class KeepsAll(Checkpoint):
    """A checkpoint of every state, each in a folder of its own."""

    def write_if_due(self, state, records):
        self.write(state, records)
        kept = self.path.with_name(f"{len(list(self.path.parent.iterdir()))}")
        kept.mkdir()
        (kept / NAME).write_bytes(self.path.read_bytes())


@pytest.mark.parametrize("changes", [{}, {"whole": False, "largest": 160}])
def test_every_state_resumes_bit_for_bit(changes, tmp_path):
    changes = {"stop": MaxIter(12) | stopping.DecreaseBelow(5e-3), **changes}
    _, result, _ = run(1.0, checkpoint=KeepsAll(tmp_path), **changes)
    folders = [path for path in tmp_path.iterdir() if path.is_dir()]
    sizes = [int(Checkpoint(f, resume=True).saved.leaves[-4]) for f in folders]
    assert any(size > 20 for size in sizes)  # batches have grown
    assert any(size == 0 for size in sizes) == ("whole" not in changes)  # all rows
    for folder in folders[::3]:
        _, rest, _ = run(1.0, checkpoint=Checkpoint(folder, resume=True), **changes)
        assert (rest.outcome, rest.reason, rest.loss) == (
            result.outcome,
            result.reason,
            result.loss,
        )
        for a, b in zip(rest.weights, result.weights, strict=True):
            np.testing.assert_array_equal(a, b)
        for a, b in zip(rest.records, result.records, strict=True):
            np.testing.assert_array_equal(a._replace(seconds=0), b._replace(seconds=0))


def test_a_resumed_run_converges_by_the_iterations_since_batches_last_grew(tmp_path):
    X = np.random.default_rng(0).standard_normal((600, 3))
    y = np.abs(X[:, 0]) + 0.3 * np.random.default_rng(1).standard_normal(600)

    def fitted(max_iter=200, **options):
        model = LipschitzRegressor(
            (8,),
            selection=False,
            batch_size=16,
            tol=0.8,
            max_iter=max_iter,
            random_state=0,
            **options,
        )
        return model.fit(X, y)

    whole = fitted()
    sizes = whole.history_["backward"]
    grown = int(np.flatnonzero(sizes == 1)[0])
    assert grown > 1
    assert whole.n_iter_ == grown + 10
    for interrupted in (grown - 1, grown, grown + 1, whole.n_iter_ - 1):
        folder = tmp_path / str(interrupted)
        fitted(interrupted, checkpoint=folder)
        rest = fitted(checkpoint=folder, resume=True)
        np.testing.assert_array_equal(rest.history_["loss"], whole.history_["loss"])
        assert rest.reason_ == whole.reason_


@pytest.mark.parametrize("rows", [100_000, 150_000, 1_200_000])
def test_windows_are_all_chunks_in_turn(rows):
    windows = WindowSource(rows)
    count, size = chunks.chunk_layout(rows)
    drawn = [windows.draw(size) for _ in range(count + 1)]
    assert [d.first for d in drawn] == [*range(count), 0]
    wanted = size
    for _ in range(200):  # consecutive windows of up to half of all chunks do not overlap
        wanted = min(wanted * int(RNG.integers(1, 4)), size * (count // 2))
        before, after = windows.draw(wanted), windows.draw(wanted)
        assert before.first + before.count <= count
        assert len(before) >= wanted
        assert before.first + before.count <= after.first or (
            after.first + after.count <= before.first
        )
        wanted = wanted if RNG.random() < 0.9 else size


def test_windows_continue_from_a_position():
    windows = WindowSource(100_000)
    size = windows.size
    assert windows.draw(3 * size - 1).count == 3
    position = windows.position
    expected = windows.draw(4 * size)
    again = WindowSource(100_000)
    again.seek(position)
    assert again.draw(4 * size) == expected
    assert len(windows.draw(10 * 100_000)) >= 100_000


@pytest.fixture
def small_chunks(monkeypatch):
    jax.clear_caches()
    monkeypatch.setattr(chunks, "CHUNK", 128)
    monkeypatch.setattr(chunks, "MAX_AT_ONCE", 512)
    yield
    monkeypatch.undo()
    jax.clear_caches()


@pytest.mark.usefixtures("small_chunks")
def test_many_rows_start_with_a_chunk_of_them(tmp_path):
    settings = {
        "hidden_layer_sizes": (8,),
        "selection": False,
        "random_state": 0,
        "dtype": "float64",
    }
    weight = 1 + RNG.random(4000)
    fit = (TABLE.X, TABLE.y, weight)
    all_rows = LipschitzRegressor(batch_size=None, **settings).fit(*fit)
    some = LipschitzRegressor(**settings).fit(*fit)
    shares = some.history_["backward"]
    assert all_rows.history_["backward"].min() == 1
    assert shares[0] == pytest.approx(1 / 32)
    assert np.all(np.diff(shares) >= 0)
    assert sum(shares == 1) >= 10  # all rows decide when it has converged
    rest = ground_effect.generate(4000, seed=5)
    assert some.score(rest.X, rest.y) > all_rows.score(rest.X, rest.y) - 0.01
    checkpoint = {"checkpoint": tmp_path, "checkpoint_interval": 0, **settings}
    for most in (3, sum(shares < 1) + 4):
        LipschitzRegressor(resume=True, max_iter=most, **checkpoint).fit(*fit)
    resumed = LipschitzRegressor(resume=True, **checkpoint).fit(*fit)
    for a, b in zip(some.weights_, resumed.weights_, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.usefixtures("small_chunks")
def test_rows_of_weight_zero_are_in_no_chunk():
    weight = np.zeros(4000)
    weight[RNG.choice(4000, 700, replace=False)] = 1 + RNG.random(700)
    model = LipschitzRegressor((8,), selection=False, random_state=0, dtype="float64", max_iter=30)
    model.fit(TABLE.X, TABLE.y, weight)
    assert model.history_["backward"][0] < 0.2
    counted = weight > 0
    same = LipschitzRegressor((8,), selection=False, random_state=0, dtype="float64", max_iter=30)
    same.fit(TABLE.X[counted], TABLE.y[counted], weight[counted])
    np.testing.assert_allclose(model.predict(TABLE.X), same.predict(TABLE.X), rtol=1e-6)
    weight[np.flatnonzero(counted)[5:]] = 0  # too few for chunks
    model.fit(TABLE.X, TABLE.y, weight)
    assert model.history_["backward"].min() == 1


@pytest.mark.usefixtures("small_chunks")
def test_a_warm_start_sees_all_rows():
    model = LipschitzRegressor((8,), selection=False, warm_start=True, max_iter=2, random_state=0)
    model.fit(TABLE.X, TABLE.y)
    assert model.history_["backward"].max() < 1
    for _ in range(2):
        model.fit(TABLE.X, TABLE.y)
    assert np.all(model.history_["backward"][-2:] == 1)


@pytest.mark.usefixtures("small_chunks")
def test_early_stopping_waits_for_all_rows_and_the_loss_is_theirs():
    model = LipschitzRegressor(
        (8,),
        selection=False,
        early_stopping=True,
        n_iter_no_change=1,
        random_state=0,
        dtype="float64",
    ).fit(TABLE.X, TABLE.y)
    assert model.history_["backward"][-1] == 1
    short = LipschitzRegressor((8,), selection=False, max_iter=2, random_state=0, dtype="float64")
    short.fit(TABLE.X, TABLE.y)
    error = short.predict(TABLE.X) - TABLE.y
    assert short.loss_ == pytest.approx(np.mean(np.sum(error**2, axis=1)) / 2, rel=1e-9)


def test_ctrl_c_at_the_switch_to_all_rows_reports_their_loss(monkeypatch):
    start = GrowingBatches.start

    def interrupt(schedule):
        if schedule.uses_all_rows:
            raise KeyboardInterrupt
        return start(schedule)

    monkeypatch.setattr(GrowingBatches, "start", interrupt)
    model = LipschitzRegressor(
        (8,), selection=False, batch_size=64, random_state=0, dtype="float64"
    )
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model.fit(TABLE.X, TABLE.y)
    assert model.history_["backward"][-1] < 1
    error = model.predict(TABLE.X) - TABLE.y
    assert model.loss_ == pytest.approx(np.mean(np.sum(error**2, axis=1)) / 2, rel=1e-9)


def test_a_start_resumes(tmp_path):
    problem = problem_with(0.0)
    batches = [(X[i : i + 20], TRUTH[i : i + 20]) for i in range(0, 400, 20)]

    def run_on(iterations, **options):
        rows = batches_of(problem, Batches(batches), largest=20, whole=False)
        return descend(problem, START, rows=rows, stop=MaxIter(iterations), **options)

    assert run_on(0, checkpoint=Checkpoint(tmp_path)).records == []
    rest, at_once = run_on(4, checkpoint=Checkpoint(tmp_path, resume=True)), run_on(4)
    for a, b in zip(rest.weights, at_once.weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_ctrl_c_during_compilation_stops(monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("greatcircle.optimise.iterations.descending_iterations", interrupt)
    _, result, _ = run(0.0)
    assert result.outcome == "interrupted"
    for a, b in zip(START, result.weights, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.usefixtures("small_chunks")
def test_the_papers_methods_always_see_all_rows():
    model = LipschitzRegressor((6,), method="ad", max_iter=3, random_state=0)
    model.fit(TABLE.X, TABLE.y)
    assert model.history_["backward"].min() == 1


def test_small_decreases_make_batches_grow_before_a_step_is_rejected():
    few = MaxIter(60) | stopping.DecreaseBelow(10.0, patience=1)
    _, result, asked = run(0.0, stop=few)
    assert asked.count(20) <= 3
    assert result.converged


def test_in_the_estimator_it_ends_where_all_rows_do():
    settings = {"hidden_layer_sizes": (8,), "selection": False, "random_state": 0, "max_iter": 60}
    all_rows = LipschitzRegressor(**settings).fit(TABLE.X, TABLE.y)
    some = LipschitzRegressor(batch_size=64, **settings).fit(TABLE.X, TABLE.y)
    rest = ground_effect.generate(4000, seed=5)
    assert some.score(rest.X, rest.y) > all_rows.score(rest.X, rest.y) - 0.02
    again = LipschitzRegressor(batch_size=64, **settings).fit(TABLE.X, TABLE.y)
    np.testing.assert_array_equal(some.predict(rest.X), again.predict(rest.X))
    for bad in (0, 2.5, "64", True):
        with pytest.raises(ValueError, match="batch_size is"):
            LipschitzRegressor(batch_size=bad).fit(TABLE.X, TABLE.y)
