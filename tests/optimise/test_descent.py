from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from greatcircle import (
    Checkpoint,
    Network,
    Problem,
    descend,
    directions,
    losses,
    sphere,
    steps,
    stopping,
)
from greatcircle._runtime.precision import precision
from greatcircle.data.sources import Arrays, Batches
from greatcircle.objective.function import function_objective
from greatcircle.optimise import iterations
from greatcircle.optimise.loop import initial_state, iterate
from greatcircle.optimise.random_batches import RandomBatches, StreamBatches
from greatcircle.optimise.record import Evaluations, Record
from greatcircle.optimise.schedules import AllRows
from small import LOSS_NAMES, small, thinned


class Sphere:
    """A user's objective: distance to a target on each sphere; weights are a dict."""

    def __init__(self, targets):
        self.targets = targets

    def loss(self, weights):
        return sum(jnp.sum((weights[k] - self.targets[k]) ** 2) for k in self.targets)


def assert_same_records(a, b):
    """All but the seconds are equal."""
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one._replace(seconds=0), other._replace(seconds=0))


def user_problem(dtype=np.float64):
    rng = np.random.default_rng(0)
    unit = {k: rng.standard_normal((3, 2)) for k in "ab"}
    unit = {k: (v / np.linalg.norm(v)).astype(dtype) for k, v in unit.items()}
    start = {k: np.eye(3, 2).astype(dtype) / np.sqrt(2).astype(dtype) for k in "ab"}
    return Sphere(unit), start


def test_any_object_with_a_loss_and_any_pytree():
    problem, start = user_problem()
    result = descend(problem, start, stop=stopping.MaxIter(100) | stopping.LossBelow(1e-13))
    assert result.converged
    for k, target in problem.targets.items():
        np.testing.assert_allclose(result.weights[k], target, atol=1e-6)
    assert result.weights["a"].dtype == np.float64


def test_custom_and_network_paths_take_the_same_steps():
    s = small(0, activation="tanh")
    problem = s.problem()

    class Same:
        def loss(self, weights):
            return problem.loss_of(problem.network.apply(weights, problem.inputs))

    ours, theirs = (
        descend(p, s.weights, direction=directions.Steepest(), stop=stopping.MaxIter(5))
        for p in (problem, Same())
    )
    for a, b in zip(ours.records, theirs.records, strict=True):
        np.testing.assert_allclose(a[:9], b[:9], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "step", [steps.Curvature(), steps.ComparedCurvature(), steps.Taylor(1), steps.Taylor(3)]
)
def test_evaluation_counts_are_those_of_actual_passes(step):
    """Each pass through a user's loss is counted where it happens."""
    calls = []

    class Counted(Sphere):
        def loss(self, weights):
            jax.debug.callback(lambda: calls.append(1))
            return super().loss(weights)

    targets, start = user_problem(np.float32)
    result = descend(Counted(targets.targets), start, step=step, stop=stopping.MaxIter(4))
    jax.effects_barrier()
    spent = result.evaluations
    # The gradient re-uses its forward pass; the second-order and Taylor passes hold one each.
    assert len(calls) == spent.forward + spent.second + spent.higher
    in_records = [sum(getattr(r, k) for r in result.records) for k in Evaluations._fields]
    start_cost = Evaluations(forward=1, backward=1).plus(step.cost)
    assert result.records
    assert Evaluations(*in_records).plus(start_cost) == spent


def test_evaluation_counts_of_a_network_are_those_of_actual_passes():
    calls = []

    class Counted(losses.Squared):
        def of_row(self, outputs, targets):
            jax.debug.callback(lambda: calls.append(1))
            return super().of_row(outputs, targets)

    s = small(1)
    problem = Problem(s.network, s.X, s.Y, loss=Counted())
    calls.clear()
    result = descend(problem, s.weights, direction=directions.Steepest(), stop=stopping.MaxIter(6))
    jax.effects_barrier()
    spent = result.evaluations
    # Each of the three passes calls the loss once.
    assert len(calls) == spent.forward + spent.backward + spent.second


class Outcome:
    """Objectives with a defined bad end."""

    def __init__(self, function):
        self.function = function

    def loss(self, weights):
        return self.function(weights[0])


START = (np.array([[0.6, 0.8]], np.float32),)


def test_non_finite_start():
    result = descend(Outcome(lambda w: jnp.sum(w) * jnp.nan), START)
    assert result.outcome == "non_finite"
    assert not result.converged
    np.testing.assert_array_equal(result.weights[0], START[0])


def test_non_finite_gradient():
    result = descend(Outcome(lambda w: jnp.sum(jnp.sqrt(w - w))), START)
    assert result.outcome == "non_finite"
    assert result.records == []


@pytest.mark.parametrize("step", [steps.Curvature(), steps.Taylor(2), steps.Taylor(3)])
def test_non_finite_curvature(step):
    """Slope minus one at w = e₂, and a second derivative that is infinite there."""
    result = descend(
        Outcome(lambda w: w[0, 0] + jnp.abs(w[0, 0]) ** 1.5), (np.array([[0.0, 1.0]]),), step=step
    )
    assert result.outcome == "non_finite"
    assert result.records == []


@pytest.mark.parametrize("step", [steps.Curvature(), steps.Majorant(), steps.ClosedForm()])
def test_a_direction_that_leads_uphill_is_no_descent(step):
    class Uphill(directions.Steepest):
        def choose(self, *arguments):
            chosen = super().choose(*arguments)
            return chosen._replace(heading=sphere.scale(chosen.heading, -1.0))

    s = small(0)
    result = descend(s.problem(), s.weights, direction=Uphill(), step=step)
    assert (result.outcome, result.records) == ("no_descent", [])


def test_interrupt_before_the_first_point():
    class Interrupted:
        def loss(self, weights):
            raise KeyboardInterrupt

    result = descend(Interrupted(), START)
    assert result.outcome == "interrupted"
    np.testing.assert_array_equal(result.weights[0], START[0])


def test_zero_gradient_is_convergence():
    result = descend(Outcome(lambda w: jnp.sum(w * 0)), START)
    assert result.outcome == "converged"
    assert "zero" in result.reason
    dead = Network((2, 2, 1))
    weights = (-np.ones((2, 2)), np.ones((2, 1)))
    result = descend(Problem(dead, np.ones((3, 2)), np.ones((3, 1))), weights)
    assert result.outcome == "converged"


def test_no_descent_is_bounded_and_keeps_the_best():
    """A loss that rises in every direction, with a derivative that says otherwise."""

    @jax.custom_jvp
    def liar(w):
        return jnp.where(jnp.abs(w[0, 0] - 0.6) < 1e-12, 0.0, 1.0)

    liar.defjvp(lambda p, t: (liar(*p), t[0][0, 0]))
    result = descend(Outcome(liar), START)
    assert result.outcome == "no_descent"
    assert result.evaluations.forward == 1 + iterations.MAX_HALVINGS + 1
    np.testing.assert_allclose(result.weights[0], START[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda w: w["a"] ** 2, r"loss\(weights\) has shape \(3, 3\); expected one number"),
        (lambda w: np.array(w["a"]).sum(), "expected functions of jax.numpy"),
    ],
)
def test_a_loss_that_cannot_be_minimised_is_named(loss, message):
    with pytest.raises((TypeError, ValueError), match=message):
        descend(SimpleNamespace(loss=loss), {"a": np.ones((3, 3))})


def test_by_default_a_run_ends_when_ten_iterations_gain_little():
    s = small(0, rows=30)
    result = descend(s.problem(), s.weights)
    assert result.converged
    assert result.reason == "the loss fell by less than 0.2 % in 10 iterations"
    assert 10 <= len(result.records) < 200
    gained = result.history["actual"][-10:].sum()
    assert gained <= 2e-3 * result.loss


WITH_STATE = (
    directions.Steepest(),
    directions.Kronecker(),
    directions.ConjugateGradient(),
    directions.GaussNewton(max_products=4),
)


@pytest.mark.parametrize("direction", WITH_STATE, ids=str)
@pytest.mark.parametrize("dtype", thinned((np.float64, np.float32), 2))
def test_continuing_from_a_state_is_the_uninterrupted_run(direction, dtype):
    s = small(1, activation="tanh", rows=30)
    problem = s.problem(dtype)

    def run(weights, iterations, state=None):
        return descend(
            problem,
            weights,
            direction=direction,
            stop=stopping.MaxIter(iterations),
            state=state,
        )

    whole, first = run(s.weights, 6), run(s.weights, 3)
    second = run(first.weights, 3, first.state)
    assert (whole.initial_loss, second.initial_loss) == (first.initial_loss, first.loss)
    for a, b in zip(whole.records[3:], second.records, strict=True):
        np.testing.assert_array_equal(a._replace(seconds=0)[1:], b._replace(seconds=0)[1:])
    for a, b in zip(whole.weights, second.weights, strict=True):
        np.testing.assert_array_equal(a, b)


# Small batches


FOR_SMALL_BATCHES = (directions.Soap(), directions.KroneckerMomentum())


def random_batches(s, iterations=100, *, total=80, steps_of_program=10, **options):
    """Train on random batches of 8 rows, by default 10 steps in each iteration."""
    problem = s.problem()
    usual = {
        "direction": directions.Soap(),
        "step": steps.LinearDecay(total, 0.3),
        "stop": stopping.MaxIter(iterations),
    }
    rows = RandomBatches(problem, 8, steps_of_program)
    return descend(problem, s.weights, rows=rows, **usual | options)


def assert_same_weights(a, b):
    for one, other in zip(a.weights, b.weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("direction", FOR_SMALL_BATCHES, ids=str)
def test_a_run_on_random_batches_continues_from_a_state_or_a_checkpoint(direction, tmp_path):
    s = small(1, activation="tanh", rows=30)
    train = partial(random_batches, s, direction=direction)
    whole, first = train(), train(3)
    second = train(state=first.state)
    # The loss of the state is the mean of the batches of its last program.
    assert second.initial_loss == first.records[-1].loss
    train(3, checkpoint=Checkpoint(tmp_path))
    resumed = train(checkpoint=Checkpoint(tmp_path, resume=True))
    assert_same_records(resumed.records, whole.records)
    assert len(second.records) == len(whole.records) - 3 == 5
    for rest in (second, resumed):
        assert rest.loss == whole.loss
        assert (rest.outcome, rest.reason) == (whole.outcome, whole.reason)
        assert_same_weights(rest, whole)


def test_a_run_on_random_batches_ends_with_its_step_schedule():
    s = small(1, activation="tanh", rows=30)
    result = random_batches(s, total=25)
    assert (result.outcome, result.reason) == ("converged", "finished: step schedule completed")
    assert int(result.state.point.iteration) == 25
    # The angle of the last step of each program.
    left = 1 - np.array([9, 19, 24]) / 25
    np.testing.assert_allclose([r.angle for r in result.records], 0.3 / 5 * left, rtol=1e-12)
    passes = [10 * 8 / 30, 10 * 8 / 30, 5 * 8 / 30]
    assert [r.backward for r in result.records] == pytest.approx(passes)
    assert [r.forward for r in result.records] == pytest.approx(passes)
    # All rows are passed forward at the start, and to check the loss after the last step.
    assert result.evaluations == pytest.approx((2 + sum(passes), sum(passes), 0, 0, 0))
    assert result.loss == pytest.approx(float(s.problem().loss(result.weights)), rel=1e-12)
    again = random_batches(s, total=25, state=result.state)
    assert (again.records, again.outcome, again.loss) == ([], "converged", result.loss)
    assert_same_weights(again, result)


@pytest.mark.parametrize("direction", FOR_SMALL_BATCHES, ids=str)
def test_steps_of_an_iteration_do_not_change_a_run_on_random_batches(direction):
    """Up to the rounding of the radii, which are computed again for each program."""
    s = small(1, activation="tanh", rows=30)
    runs = [
        random_batches(s, total=60, steps_of_program=n, direction=direction) for n in (60, 7, 1)
    ]
    assert [len(result.records) for result in runs] == [1, 9, 60]
    for other in runs[1:]:
        assert other.loss == pytest.approx(runs[0].loss, rel=1e-9)
        for a, b in zip(other.weights, runs[0].weights, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


def test_records_of_random_batches_have_the_mean_loss_before_their_steps():
    s = small(1, activation="tanh", rows=16)
    result = random_batches(s, total=12, steps_of_program=1)
    problem = s.problem()
    losses = [float(problem.loss(s.weights)), *(r.loss for r in result.records)]
    assert result.initial_loss == pytest.approx(losses[0], rel=1e-12)
    np.testing.assert_allclose([r.actual for r in result.records], -np.diff(losses), rtol=1e-9)
    together = random_batches(s, total=12, steps_of_program=4)
    means = np.reshape(losses[1:], (3, 4)).mean(axis=1)
    np.testing.assert_allclose([r.loss for r in together.records], means, rtol=1e-9)


@pytest.mark.parametrize("when", ["callback", "program"])
def test_ctrl_c_keeps_the_state_of_a_run_on_random_batches(when, monkeypatch):
    s = small(1, activation="tanh", rows=30)
    whole = random_batches(s)

    def interrupt(record, weights):
        if record.iteration == 3:
            raise KeyboardInterrupt

    calls, program = [], iterations.sampled_iterations

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return program(*arguments, **options)

    if when == "callback":
        result = random_batches(s, callback=interrupt)
    else:
        monkeypatch.setattr(iterations, "sampled_iterations", interrupted)
        result = random_batches(s)
        monkeypatch.undo()
    assert (result.outcome, len(result.records)) == ("interrupted", 3)
    assert_same_records(result.records, whole.records[:3])
    assert int(result.state.point.iteration) == 30
    assert result.loss == pytest.approx(float(s.problem().loss(result.weights)), rel=1e-12)
    assert_same_weights(random_batches(s, state=result.state), whole)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_small_batches_lower_every_loss(loss, dtype):
    s = small(2, activation="tanh", loss=loss, rows=60)
    start = float(s.problem().loss(s.weights))
    for direction in FOR_SMALL_BATCHES:
        problem = s.problem(dtype)
        result = descend(
            problem,
            s.weights,
            direction=direction,
            step=steps.LinearDecay(300),
            stop=stopping.MaxIter(1000),
            rows=RandomBatches(problem, 16),
        )
        assert result.converged
        assert result.weights[0].dtype == dtype
        assert result.initial_loss == pytest.approx(start, rel=1e-5)
        assert result.loss < 0.97 * start
        assert result.loss == pytest.approx(float(s.problem().loss(result.weights)), rel=1e-4)
        for w, radius in zip(result.weights, s.radii, strict=True):
            assert np.linalg.norm(w) == pytest.approx(radius, rel=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_random_batches_of_a_loss_without_rows_are_the_whole_loss(dtype):
    problem, start = user_problem(dtype)
    with precision(dtype):
        rows = RandomBatches(function_objective(problem, np.dtype(dtype)))
    result = descend(
        rows.objective,
        start,
        direction=directions.Soap(),
        step=steps.LinearDecay(200, 2.0),
        stop=stopping.MaxIter(1000),
        rows=rows,
    )
    assert (result.outcome, len(result.records)) == ("converged", 20)
    assert [(r.forward, r.backward) for r in result.records] == [(10, 10)] * 20
    assert result.weights["a"].dtype == dtype
    assert result.loss < 0.05 * result.initial_loss
    assert result.loss == pytest.approx(float(problem.loss(result.weights)), rel=1e-4)


STREAMED = np.random.default_rng(3).standard_normal((5000, 3))
STREAM_NETWORK = Network((3, 6, 1), "tanh", bias=True)


def stream(source, iterations, *, total=2000, stop=None, **options):
    """Train on batches of 16 rows of a source, at most 128 steps in each iteration."""
    first = Problem(STREAM_NETWORK, STREAMED[:200], np.sin(STREAMED[:200, :1]), dtype=np.float64)

    def problem_of(drawn):
        made = Problem(STREAM_NETWORK, drawn.inputs, drawn.targets, dtype=np.float64)
        return made.with_unit(first.unit)

    return descend(
        first,
        STREAM_NETWORK.initial_weights(0, dtype=np.float64),
        direction=directions.Soap(),
        step=steps.LinearDecay(total),
        stop=stop or stopping.MaxIter(iterations),
        rows=StreamBatches(first, source, problem_of, 16, seed=4),
        **options,
    )


def arrays():
    return Arrays(STREAMED, np.sin(STREAMED[:, :1]), None, 7)


def test_a_run_on_a_stream_resumes_bit_for_bit_by_seeking(tmp_path):
    whole = stream(arrays(), 5)
    assert whole.loss < 0.5 * whole.initial_loss
    first = stream(arrays(), 2, checkpoint=Checkpoint(tmp_path))
    resumed = stream(arrays(), 5, checkpoint=Checkpoint(tmp_path, resume=True))
    assert_same_records(resumed.records, whole.records)
    continued = stream(arrays(), 3, state=first.state)
    for rest in (resumed, continued):
        assert rest.loss == whole.loss
        assert_same_weights(rest, whole)
    # From the beginning of the source, other rows are drawn.
    assert not np.array_equal(first.state.rows, arrays().position)
    other = stream(arrays(), 3, state=replace(first.state, rows=arrays().position))
    assert np.max(np.abs(other.weights[0] - whole.weights[0])) > 1e-6


def test_ctrl_c_while_rows_are_drawn_loses_no_rows():
    class Interrupted(Arrays):
        draws = 0

        def draw(self, rows):
            drawn = super().draw(rows)
            self.draws += 1
            if self.draws == 3:
                raise KeyboardInterrupt
            return drawn

    source = Interrupted(STREAMED, np.sin(STREAMED[:, :1]), None, 7)
    result = stream(source, 5)
    assert (result.outcome, len(result.records)) == ("interrupted", 2)
    assert_same_weights(stream(source, 3, state=result.state), stream(arrays(), 5))


def test_a_run_on_a_stream_ends_with_its_rows():
    rows = 128 * 16
    batches = [(STREAMED[:400], np.sin(STREAMED[:400, :1]))] * 13  # of 5200 rows
    result = stream(Batches(iter(batches)), 1000)
    assert (result.outcome, result.reason) == ("max_iter", "there are no more rows")
    assert len(result.records) == 5200 // rows == 2
    assert int(result.state.point.iteration) == 256
    assert result.records[0].forward == pytest.approx(rows / 200)  # passes over the sample
    short = stream(Batches(iter(batches)), 1000, total=200)
    assert (short.outcome, short.reason) == ("converged", "finished: step schedule completed")
    assert int(short.state.point.iteration) == 200


def test_rules_that_mean_convergence_do_not_end_a_run_on_a_stream():
    """Its records are losses of other rows each."""
    lax = stopping.DecreaseBelow(10.0, patience=1)
    result = stream(arrays(), 0, stop=stopping.MaxIter(4) | lax)
    assert (result.outcome, len(result.records)) == ("max_iter", 4)
    s = small(1, activation="tanh", rows=30)
    in_memory = random_batches(s, stop=stopping.MaxIter(4) | lax)
    assert (in_memory.outcome, len(in_memory.records)) == ("converged", 1)


def test_a_run_on_random_batches_ends_where_the_loss_is_not_finite():
    s = small(1, activation="tanh", rows=1)
    targets = -s.network.predict(s.weights, s.X)
    limit = 0.2 * float(Problem(s.network, s.X, targets, dtype=np.float64).loss(s.weights))

    class NotBelow(losses.Squared):
        def of_row(self, outputs, targets):
            value = super().of_row(outputs, targets)
            return jnp.where(value < limit, jnp.nan, value)

    problem = Problem(s.network, s.X, targets, loss=NotBelow(), dtype=np.float64)
    result = descend(
        problem,
        s.weights,
        direction=directions.Soap(),
        step=steps.LinearDecay(10**6, 3.0),
        stop=stopping.MaxIter(1000),
        rows=RandomBatches(problem, 1, 10),
    )
    assert result.outcome == "non_finite"
    assert result.reason == "the loss is not finite after a step"
    assert 0 < len(result.records) < 1000
    assert all(np.isfinite(r.loss) for r in result.records)
    assert np.isfinite(result.loss)
    assert result.loss == pytest.approx(problem.loss(result.weights))


def test_a_run_on_random_batches_from_a_loss_that_is_not_finite():
    network, x = Network((1, 2, 1)), np.ones((5, 1))
    problem = Problem(network, x, np.full((5, 1), 1e-10))
    result = descend(
        problem,
        [np.full(shape, 1e30, np.float32) for shape in network.shapes],
        direction=directions.Soap(),
        step=steps.LinearDecay(80),
        stop=stopping.MaxIter(8),
        rows=RandomBatches(problem, 2, 10),
    )
    assert (result.outcome, result.reason) == (
        "non_finite",
        "the loss is not finite at the start",
    )
    assert result.records == []


# All rows


def test_negative_curvature_goes_to_the_edge_of_the_trust_region():
    """Away from a maximum: Algorithm 2 answers with ε."""
    w = np.array([[np.sin(0.1), np.cos(0.1)]])
    result = descend(Outcome(lambda w: w[0, 1]), (w,), stop=stopping.MaxIter(1))
    assert result.records[0].curvature < 0
    assert result.records[0].angle == pytest.approx(np.pi / 6)
    assert result.records[0].halvings == 0


def test_a_trial_that_is_not_finite_is_halved():
    """The loss has a wall at half of the proposed angle."""

    def wall(w):
        return jnp.where(w[0, 1] < np.cos(0.3), jnp.nan, w[0, 1])

    result = descend(Outcome(wall), (np.array([[0.0, 1.0]]) + 1e-3,), stop=stopping.MaxIter(1))
    assert result.records[0].halvings == 1
    assert np.isfinite(result.loss)


def test_a_full_turn_is_never_a_step():
    """The model falls everywhere, so its minimum is at 2π, which is the starting point again."""
    result = descend(
        Outcome(lambda w: w[0, 0]), START, step=steps.Taylor(1, 2 * np.pi), stop=stopping.MaxIter(3)
    )
    assert all(r.angle < 2 * np.pi for r in result.records)
    assert all(r.halvings >= 1 for r in result.records)


def test_interrupt_keeps_the_last_iteration():
    s = small(0)

    def interrupt(record, weights):
        if record.iteration == 3:
            raise KeyboardInterrupt

    result = descend(s.problem(), s.weights, callback=interrupt)
    assert result.outcome == "interrupted"
    assert len(result.records) == 3
    assert float(s.problem().loss(result.weights)) == pytest.approx(result.loss, rel=1e-12)


def test_a_changed_object_is_seen():
    """Compiled programs hold the data of a user's object: they must not outlive a change."""
    problem, start = user_problem()
    first = descend(problem, start, stop=stopping.MaxIter(30))
    problem.targets = {k: -v for k, v in problem.targets.items()}
    second = descend(problem, start, stop=stopping.MaxIter(30))
    np.testing.assert_allclose(second.weights["a"], -first.weights["a"], atol=1e-2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stop": 200}, "stop is 200"),
        ({"step": "ad"}, "step is 'ad'"),
        ({"step": steps.Curvature}, "step is <class"),
        ({"direction": "steepest"}, "direction is 'steepest'"),
    ],
)
def test_arguments_of_the_wrong_kind_are_named(arguments, message):
    s = small(0)
    with pytest.raises(TypeError, match=message):
        descend(s.problem(), s.weights, **arguments)


def test_a_decrease_below_rounding_is_convergence():
    problem, start = user_problem(np.float32)
    result = descend(problem, start)
    assert result.converged
    assert "rounding" in result.reason or "zero" in result.reason


def test_callback_sees_every_record_and_may_stop():
    s = small(0)
    seen = []

    def callback(record, weights):
        seen.append((record, float(s.problem().loss(weights))))
        return record.iteration == 4

    result = descend(s.problem(), s.weights, callback=callback)
    assert result.outcome == "stopped"
    assert [r for r, _ in seen] == result.records
    for record, loss in seen:
        assert record.loss == pytest.approx(loss, rel=1e-12)


def test_max_iter_zero_evaluates_the_start_only():
    s = small(0)
    result = descend(s.problem(), s.weights, stop=stopping.MaxIter(0))
    assert result.outcome == "max_iter"
    assert result.records == []
    assert result.history["loss"].shape == (0,)
    assert result.loss == result.initial_loss


def test_outcomes_distinguish_convergence_from_a_limit():
    s = small(0)
    out = descend(s.problem(), s.weights, stop=stopping.MaxIter(2))
    assert (out.outcome, out.converged) == ("max_iter", False)
    done = descend(s.problem(), s.weights, stop=stopping.MaxIter(50) | stopping.LossBelow(1e9))
    assert (done.outcome, done.converged) == ("converged", True)
    assert done.reason == "the loss reached 1e+09"


def test_history_is_the_records_as_columns():
    s = small(0)
    result = descend(s.problem(), s.weights, stop=stopping.MaxIter(3))
    assert list(result.history) == list(Record._fields)
    np.testing.assert_array_equal(result.history["iteration"], [1, 2, 3])


@pytest.mark.parametrize("power", [-12, 12])
def test_scaling_the_loss_never_changes_the_angles_of_method_1(power):
    s = small(2)
    plain, scaled = (
        descend(
            Problem(s.network, s.X, s.Y * factor),
            (*s.weights[:-1], s.weights[-1] * factor),
            direction=directions.Steepest(),
            stop=stopping.MaxIter(5),
        )
        for factor in (1.0, 2.0**power)
    )
    # A power of two on targets and last layer scales the loss exactly.
    np.testing.assert_allclose(scaled.history["angle"], plain.history["angle"], rtol=1e-5)


@pytest.mark.parametrize(
    "step",
    [steps.Majorant(), steps.DataMajorant(), steps.SmoothMajorant(), steps.ClosedForm()],
    ids=str,
)
def test_majorants_need_a_network(step):
    with pytest.raises(TypeError, match=r"needs a Problem with a Network.*Curvature"):
        descend(Outcome(jnp.sum), START, step=step)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ((np.zeros((2, 2)), np.ones((2, 1))), r"weights\[0\] has norm 0"),
        ((np.full((2, 2), np.nan), np.ones((2, 1))), r"weights\[0\] has norm nan"),
        ((np.ones((2, 2)),), "weights has 1 matrices"),
    ],
)
def test_bad_starting_weights_are_named(weights, message):
    problem = Problem(Network((2, 2, 1)), np.ones((3, 2)), np.ones((3, 1)))
    with pytest.raises(ValueError, match=message):
        descend(problem, weights)


def test_users_configuration_is_neither_needed_nor_changed():
    s = small(0)
    before = jax.config.jax_enable_x64
    wide = descend(s.problem(np.float64), s.weights, stop=stopping.MaxIter(2))
    narrow = descend(s.problem(np.float32), s.weights, stop=stopping.MaxIter(2))
    with jax.enable_x64(True):
        inside = descend(s.problem(np.float32), s.weights, stop=stopping.MaxIter(2))
    assert jax.config.jax_enable_x64 == before
    assert wide.weights[0].dtype == np.float64
    assert narrow.weights[0].dtype == inside.weights[0].dtype == np.float32
    np.testing.assert_array_equal(narrow.weights[0], inside.weights[0])


def test_one_compilation_serves_all_problems_of_one_shape():
    traces = []

    class Traced(directions.Steepest):
        def choose(self, *arguments):
            traces.append(1)
            return super().choose(*arguments)

    for seed in (1, 2, 3):
        rng = np.random.default_rng(seed)
        network = Network((3, 5, 2), "arctan")
        problem = Problem(network, rng.standard_normal((11, 3)), rng.standard_normal((11, 2)))
        weights = network.initial_weights(seed)
        descend(problem, weights, direction=Traced(), stop=stopping.MaxIter(2))
    assert len(traces) == 1


def test_a_plain_function_is_minimised_like_an_object():
    problem, start = user_problem()
    of_object, of_function = (
        descend(given, start, stop=stopping.MaxIter(10)) for given in (problem, problem.loss)
    )
    assert of_function.records
    assert_same_records(of_object.records, of_function.records)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"w": np.ones((2, 2)), "b": np.ones(2)}, r"weights\['b'\] has shape \(2,\); .* reshape"),
        ({"w": np.ones((2, 2)), "b": np.float32(1)}, r"weights\['b'\] has shape \(\)"),
        (
            {"w": np.ones((2, 2)), "b": np.zeros((2, 1))},
            r"weights\['b'\] has norm 0.*leave a constant",
        ),
        ({}, "weights is empty"),
    ],
)
def test_leaves_without_a_sphere_are_named(weights, message):
    with pytest.raises(ValueError, match=message):
        descend(lambda w: jnp.sum(w["w"]), weights)


@pytest.mark.parametrize("direction", WITH_STATE, ids=str)
def test_iterations_in_one_program_are_those_of_single_programs(direction, monkeypatch):
    s = small(3, rows=40)

    def run():
        return descend(s.problem(), s.weights, direction=direction, stop=stopping.MaxIter(20))

    together = run()
    monkeypatch.setattr(iterations, "MAX_LENGTH", 1)
    single = run()
    assert len(together.records) > 5
    assert_same_records(together.records, single.records)
    for a, b in zip(together.weights, single.weights, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("last", [1, 2, 5])
@pytest.mark.parametrize("how", ["stop", "interrupt"])
def test_a_callback_ends_a_run_exactly_where_it_asks(last, how):
    """The iterations of its program that come after it are forgotten."""
    s = small(3, rows=40)

    def callback(record, weights):
        if record.iteration == last and how == "interrupt":
            raise KeyboardInterrupt
        return record.iteration == last

    direction = directions.Kronecker()
    ended = descend(s.problem(), s.weights, direction=direction, callback=callback)
    exact = descend(s.problem(), s.weights, direction=direction, stop=stopping.MaxIter(last))
    assert ended.outcome == ("stopped" if how == "stop" else "interrupted")
    assert_same_records(ended.records, exact.records)
    assert (ended.loss, ended.evaluations) == (exact.loss, exact.evaluations)
    for a, b in zip(ended.weights, exact.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    rest, whole = (
        descend(
            s.problem(), s.weights, direction=direction, state=of.state, stop=stopping.MaxIter(2)
        )
        for of in (ended, exact)
    )
    assert_same_records(rest.records, whole.records)


def test_an_observer_completes_every_record_and_sees_its_weights():
    s = small(0)
    seen = []

    def observe(record, weights):
        seen.append(float(s.problem().loss(weights)))
        return record._replace(validation_loss=2.0 * record.iteration)

    result = descend(s.problem(), s.weights, observe=observe, stop=stopping.MaxIter(6))
    np.testing.assert_allclose(result.history["loss"], seen, rtol=1e-12)
    np.testing.assert_array_equal(result.history["validation_loss"], 2.0 * np.arange(1, 7))


def test_the_loop_is_a_generator_of_states():
    s = small(0)
    problem = s.problem()
    with precision(np.float64):
        schedule, stop = AllRows(problem), stopping.MaxIter(5)
        direction, step = directions.Steepest(), steps.Curvature()
        radii = np.array([np.linalg.norm(w) for w in s.weights])
        state = initial_state(s.weights, radii, direction, stop, schedule)
        updates = list(iterate(schedule, state, direction, step, stop))
    assert [update.ending for update in updates[:-1]] == [None] * (len(updates) - 1)
    assert updates[-1].ending.outcome == "max_iter"
    records = [record for update in updates for record in update.records]
    same = descend(problem, s.weights, direction=direction, step=step, stop=stop)
    assert_same_records(records, same.records)


@pytest.mark.parametrize("interval", [0, 60])
def test_a_checkpoint_of_a_problem_resumes_bit_for_bit(tmp_path, interval):
    s = small(1, activation="tanh", rows=30)

    def run(iterations, **options):
        return descend(s.problem(), s.weights, stop=stopping.MaxIter(iterations), **options)

    whole = run(8)
    run(3, checkpoint=Checkpoint(tmp_path, interval))
    rest = run(8, checkpoint=Checkpoint(tmp_path, interval, resume=True))
    assert_same_records(whole.records, rest.records)
    for a, b in zip(whole.weights, rest.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="belongs to another fit, which differs in direction"):
        run(8, direction=directions.Steepest(), checkpoint=Checkpoint(tmp_path, resume=True))
