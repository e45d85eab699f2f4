"""Several iterations in one compiled program equal single iterations, and cost less."""

import math
import os
import platform
import subprocess
import sys
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from greatcircle import Network, Problem, directions, sphere, steps
from greatcircle._runtime.precision import precision
from greatcircle.objective.function import function_objective
from greatcircle.optimise.iterations import (
    MAX_HALVINGS,
    MAX_LENGTH,
    MAX_STEPS,
    PRODUCTS,
    PROGRAM_OPERATIONS,
    Batch,
    block_length,
    descending_iterations,
    program_length,
    sampled_iterations,
    unevaluated,
)
from greatcircle.optimise.outcome import Status
from greatcircle.optimise.random_batches import BATCH, RandomBatches, batch_size
from greatcircle.optimise.steps import LinearDecay, Proposal
from greatcircle.optimise.stopping import DecreaseBelow, LossBelow, MaxIter
from small import small

LENGTH = 8


def run(
    s,
    limit,
    before=None,
    *,
    problem=None,
    stop=None,
    direction=None,
    step=None,
    length=LENGTH,
):
    """Run one program from a small problem's weights, or from the end of another program."""
    with precision(np.float64):
        problem, stop = problem or s.problem(), stop or MaxIter(1000)
        direction, step = direction or directions.ConjugateGradient(), step or steps.Curvature()
        if before is None:
            point, state = unevaluated(sphere.pack(s.weights), direction), stop.init()
        else:
            point, state = before.point, before.stop_state
        batch = problem if isinstance(problem, Batch) else Batch(problem)
        radii = jnp.asarray([np.linalg.norm(w) for w in s.weights])
        return descending_iterations(
            batch,
            radii,
            point,
            stop,
            state,
            np.asarray(limit, np.int32),
            direction=direction,
            step=step,
            length=length,
        )


def measured_rows(result):
    """Return what was measured of each recorded iteration."""
    return np.array([np.asarray(c)[: int(result.recorded)] for c in result.measured]).T


def weights_after(result):
    """Return the weights after each recorded iteration."""
    rows = np.asarray(result.weights)[: int(result.recorded)]
    shapes = result.point.weights.shapes
    return [
        [
            w.ravel()[: math.prod(shape)].reshape(shape)
            for w, shape in zip(each, shapes, strict=True)
        ]
        for each in rows
    ]


def test_evaluating_the_start_records_nothing():
    s = small(0)
    result = run(s, 0)
    assert (int(result.recorded), int(result.status)) == (0, Status.RUNNING)
    assert int(result.point.iteration) == 0
    loss = float(result.point.loss) * float(s.problem().unit)
    assert loss == pytest.approx(
        oracle.objective(s.weights, s.X, s.Y, "relu", "squared"), rel=1e-12
    )
    for a, b in zip(sphere.unpack(result.point.weights), s.weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)
    assert np.all(np.isnan(result.measured.loss))


def test_iterations_are_turns_on_the_spheres_that_lower_the_loss():
    s = small(1, activation="tanh", rows=30)
    start = run(s, 0)
    result = run(s, LENGTH, start)
    assert int(result.recorded) == LENGTH
    unit = float(s.problem().unit)
    points = [s.weights, *weights_after(result)]
    losses = [oracle.objective(w, s.X, s.Y, "tanh", "squared") / unit for w in points]
    np.testing.assert_allclose(result.measured.loss, losses[1:], rtol=1e-10)
    np.testing.assert_allclose(result.measured.actual, -np.diff(losses), rtol=1e-8)
    assert np.all(np.diff(losses) < 0)
    for (before, after), angle in zip(pairwise(points), result.measured.angle, strict=True):
        turns = [
            oracle.distance(a, b, radius)
            for a, b, radius in zip(before, after, s.radii, strict=True)
        ]
        assert max(turns) == pytest.approx(float(angle), rel=1e-5, abs=1e-7)
        for w, radius in zip(after, s.radii, strict=True):
            assert np.linalg.norm(w) == pytest.approx(radius, rel=1e-13)
    assert int(result.point.iteration) == LENGTH


@pytest.mark.parametrize(
    "direction",
    [
        directions.Steepest(),
        directions.ConjugateGradient(),
        directions.GaussNewton(),
        directions.Kronecker(),
    ],
    ids=str,
)
def test_programs_of_any_number_of_iterations_give_the_same_bits(direction):
    s = small(2, activation="tanh", rows=30)
    whole = run(s, LENGTH, run(s, 0, direction=direction), direction=direction)
    result, rows, weights = run(s, 0, direction=direction), [], []
    for limit in (1, 2, 3, 2):
        result = run(s, limit, result, direction=direction)
        assert int(result.recorded) == limit
        rows.extend(measured_rows(result))
        weights.extend(weights_after(result))
    np.testing.assert_array_equal(rows, measured_rows(whole))
    for a, b in zip(weights, weights_after(whole), strict=True):
        for v, w in zip(a, b, strict=True):
            np.testing.assert_array_equal(v, w)
    for a, b in zip(jax.tree.leaves(result.point), jax.tree.leaves(whole.point), strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
    together = run(s, LENGTH, direction=direction)  # the start in the same program
    np.testing.assert_array_equal(measured_rows(together), measured_rows(whole))


def test_unused_entries_hold_no_numbers():
    s = small(1, rows=30)
    result = run(s, 3, run(s, 0))
    assert int(result.recorded) == 3
    assert np.all(np.isnan(np.asarray(result.measured.loss)[3:]))
    assert np.all(np.asarray(result.measured.forward)[3:] == 0)
    assert np.all(np.asarray(result.weights)[3:] == 0)


def test_a_rule_ends_a_program_between_iterations():
    s = small(1, activation="tanh", rows=30)
    whole = measured_rows(run(s, LENGTH))
    loss = whole[3, 0] * float(s.problem().unit)
    for stop, count in ((MaxIter(3), 3), (LossBelow(loss * (1 + 1e-9)), 4)):
        result = run(s, LENGTH, stop=stop)
        assert (int(result.recorded), int(result.status)) == (count, Status.RULE_FIRED)
        np.testing.assert_array_equal(measured_rows(result), whole[:count])
        again = run(s, LENGTH, result, stop=stop)
        assert (int(again.recorded), int(again.status)) == (0, Status.RULE_FIRED)
    assert int(run(s, LENGTH, stop=MaxIter(0)).recorded) == 0


def test_other_numbers_and_limits_compile_nothing():
    def compiled(limit, stop):
        run(small(3), limit, stop=stop)
        return descending_iterations._cache_size()

    first = compiled(0, MaxIter(3) | DecreaseBelow(1e-3))
    for limit, stop in (
        (1, MaxIter(3) | DecreaseBelow(1e-3)),
        (LENGTH, MaxIter(10**10) | DecreaseBelow(0.5)),
    ):
        assert compiled(limit, stop) == first
    assert compiled(1, MaxIter(3) | DecreaseBelow(1e-3, patience=2)) == first + 1  # another shape


class FixedAngle:
    """A step rule that always proposes the same angle."""

    cost = steps.ClosedForm().cost

    def __init__(self, angle):
        self.angle = angle

    def check(self, objective):
        pass

    def propose(self, start):
        angle = jnp.full_like(start.loss, self.angle)
        return Proposal(angle, jnp.full_like(angle, jnp.nan), -start.slope * angle)


def function_of(loss):
    with precision(np.float64):
        return function_objective(loss, np.dtype(np.float64))


class OneMatrix:
    """A point on a circle of radius one: w[0, 0] is the cosine of its angle."""

    radii = (1.0,)

    def __init__(self, angle):
        self.weights = (np.array([[math.cos(angle), math.sin(angle)]]),)


def test_an_angle_is_halved_until_the_loss_falls():
    start, objective = OneMatrix(0.5), function_of(lambda w: w[0][0, 0])
    options = {"problem": objective, "direction": directions.Steepest()}
    # A turn by 6 leads from cos 0.5 to cos 6.5, which is higher; a turn by 3 to cos 3.5.
    result = run(start, 1, step=FixedAngle(6.0), **options)
    turned = 6.0 / 2 ** int(result.measured.halvings[0])
    assert turned == float(result.measured.angle[0]) == 3.0
    assert int(result.measured.forward[0]) == 2
    assert float(result.measured.loss[0]) == pytest.approx(math.cos(3.5), rel=1e-12)


def test_a_full_turn_is_halved_without_a_decrease():
    start, objective = OneMatrix(0.5), function_of(lambda w: w[0][0, 0])
    step = FixedAngle(2 * math.pi)
    result = run(start, 1, problem=objective, direction=directions.Steepest(), step=step)
    assert int(result.measured.halvings[0]) >= 1
    assert float(result.measured.angle[0]) < 2 * math.pi


def test_halvings_are_bounded_and_counted():
    start = OneMatrix(math.pi / 2)
    start.weights[0][0, 0] = 0.0
    # The minimum of |w|, with the slope of the right branch: no angle lowers the loss.
    objective = function_of(lambda w: jnp.where(w[0][0, 0] < 0, -w[0][0, 0], w[0][0, 0]) + 1)
    options = {"problem": objective, "direction": directions.Steepest(), "step": FixedAngle(0.5)}
    result = run(start, 5, **options)
    assert (int(result.recorded), int(result.status)) == (0, Status.NO_DECREASE)
    assert int(result.forward) == MAX_HALVINGS + 1
    np.testing.assert_array_equal(sphere.unpack(result.point.weights)[0], start.weights[0])


def cosine(w):
    return w[0][0, 0] + 2


@pytest.mark.parametrize(
    ("angle", "other", "asked"),
    [
        # The rows that chose the step accept it, other rows do not.
        (0.1, lambda w: 2 - w[0][0, 0], 2),
        # Both reject the first trial, which is halved; then the rows that chose the step accept.
        (6.0, lambda w: 2 - w[0][0, 1], 4),
        # A negligible turn is rejected without evaluating the chooser.
        (1e-17, lambda w: 2 - w[0][0, 0], 1),
    ],
)
def test_other_rows_may_refuse_a_step(angle, other, asked):
    start, chooser, judge = OneMatrix(0.5), function_of(cosine), function_of(other)
    options = {"direction": directions.Steepest(), "step": FixedAngle(angle), "length": 1}
    evaluated = run(start, 0, problem=Batch(chooser, chooser, np.asarray(False)), **options)
    batch = Batch(judge, chooser, np.asarray(True))
    result = run(start, 1, evaluated, problem=batch, **options)
    assert (int(result.recorded), int(result.status)) == (0, Status.TOO_NOISY)
    # The judge evaluates the start and every trial; the chooser evaluates the trials that the
    # judge rejects, unless they are negligible.
    assert int(result.forward) == 1 + asked
    agreeing = run(
        start, 1, evaluated, problem=Batch(chooser, chooser, np.asarray(True)), **options
    )
    assert int(agreeing.recorded) == int(angle > 1e-10)


# The length of a program


@given(
    rows=st.integers(0, 10**9),
    more=st.integers(0, 10**6),
    width=st.sampled_from([1, 16, 300, 2000]),
)
def test_a_program_is_as_long_as_its_operations_allow(rows, more, width):
    packed = sphere.pack((np.ones((12, width)), np.ones((width, 3))))
    length = program_length(rows, packed)
    assert 1 <= length <= MAX_LENGTH
    assert program_length(rows + more, packed) <= length
    operations = 2 * PRODUCTS * max(rows, 1) * 15 * width  # multiplications and additions
    assert length == 1 or length * operations <= PROGRAM_OPERATIONS
    assert length == MAX_LENGTH or (length + 1) * operations > PROGRAM_OPERATIONS
    other = sphere.pack((np.zeros((12, width)), np.full((width, 3), 7.0)))
    assert program_length(rows, other) == length  # shapes alone decide


PAGES = """
import resource
import numpy as np
from greatcircle import Network, Problem, descend, directions, sphere, stopping
from greatcircle.optimise import iterations

rng = np.random.default_rng(0)
X = rng.standard_normal((20_000, 12))
network = Network((12, 64, 64, 3))
problem, weights = Problem(network, X, np.abs(X[:, :3])), network.initial_weights(0)

def pages_of_an_iteration(most):
    iterations.MAX_LENGTH = most
    length = iterations.program_length(20_000, sphere.pack(weights))
    descend(problem, weights, direction=directions.Steepest(), stop=stopping.MaxIter(2))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    run = descend(
        problem, weights, direction=directions.Steepest(), stop=stopping.MaxIter(24)
    )
    assert len(run.records) == 24
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 24, length

print(*pages_of_an_iteration(1), *pages_of_an_iteration(8))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_several_iterations_in_one_program_fetch_fewer_pages():
    """The system provides the memory of each program anew."""
    settings = ("GLIBC_TUNABLES", "MALLOC_")  # they may make glibc keep freed memory
    environment = {k: v for k, v in os.environ.items() if not k.startswith(settings)}
    done = subprocess.run(
        [sys.executable, "-c", PAGES], env=environment, capture_output=True, text=True, check=True
    )
    single, _, together, length = map(float, done.stdout.split())
    assert single > 2_000  # otherwise the test would show nothing
    assert length >= 6
    assert together < 1.5 / length * single


# Steps on small batches


SAMPLED = np.random.default_rng(0).standard_normal((400, 3))


def sampled_problem(rows=400):
    weight = np.random.default_rng(1).uniform(0.5, 2, rows)
    X = SAMPLED[:rows]
    Y = np.stack([np.sin(X[:, 0]), np.abs(X[:, 1])], axis=1)
    network = Network((3, 6, 2), "tanh", bias=True)
    return Problem(network, X, Y, sample_weight=weight, dtype=np.float64)


def sampled(problem, counts, *, direction=None, distance=0.05, total=10.0, size=32):
    """Take steps in programs of these lengths; return the points after each, and the angles."""
    weights = problem.network.initial_weights(0, dtype=np.float64)
    rows, direction = RandomBatches(problem, size), direction or directions.Soap()
    with precision(np.float64):
        packed = sphere.pack(tuple(map(jnp.asarray, weights)))
        point, points, angles = unevaluated(packed, direction), [], []
        for count in counts:
            point, angle = sampled_iterations(
                rows.block(int(point.iteration), count),
                np.asarray(count, np.int32),
                sphere.norm(packed),
                point,
                direction=direction,
                step=LinearDecay(jnp.asarray(total), jnp.asarray(distance)),
            )
            points.append(point)
            angles.append(float(angle))
        return points, angles


FOR_SMALL_BATCHES = [directions.Soap(), directions.KroneckerMomentum()]


@pytest.mark.parametrize("direction", FOR_SMALL_BATCHES, ids=str)
def test_sampled_steps_in_programs_of_any_length_are_the_same(direction):
    problem = sampled_problem()
    (whole,), (angle,) = sampled(problem, [19], direction=direction, total=25.0)
    for counts in ([2, 17], [8, 8, 3]):
        points, angles = sampled(problem, counts, direction=direction, total=25.0)
        for name in ("weights", "direction_state", "iteration"):
            ours, theirs = (jax.tree.leaves(getattr(p, name)) for p in (points[-1], whole))
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(a, b)
        assert angles[-1] == angle == pytest.approx(0.05 / 5 * (1 - 18 / 25), rel=1e-12)
        assert [int(p.iteration) for p in points] == np.cumsum(counts).tolist()
        losses = np.array([float(p.loss) for p in points])
        assert losses @ counts / 19 == pytest.approx(float(whole.loss), rel=1e-12)


def test_every_sampled_step_turns_every_layer_by_the_angle():
    points, angles = sampled(sampled_problem(), [1] * 9)
    weights = [sphere.unpack(jax.device_get(p.weights)) for p in points]
    for before, after, angle in zip(weights, weights[1:], angles[1:], strict=False):
        for a, b in zip(before, after, strict=True):
            assert np.linalg.norm(b) == pytest.approx(np.linalg.norm(a), rel=1e-13)
            turn = oracle.distance(a, b, np.linalg.norm(a)) / np.linalg.norm(a)
            assert turn == pytest.approx(angle, rel=1e-5)


@pytest.mark.usefixtures("x64")
def test_the_loss_of_sampled_steps_is_the_mean_of_their_batches_before_each():
    problem = sampled_problem()
    rows = RandomBatches(problem, 32)
    start = tuple(map(jnp.asarray, problem.network.initial_weights(0, dtype=np.float64)))
    visited = [start, *(sphere.unpack(p.weights) for p in sampled(problem, [1] * 6)[0])]
    losses = [float(rows.block(0, 7).at(i).value(w)) for i, w in enumerate(visited[:6])]
    assert np.ptp(losses) > 1e-3
    ((point,), _) = sampled(problem, [6])
    assert float(point.loss) == pytest.approx(np.mean(losses), rel=1e-12)


def test_sampled_steps_need_not_lower_the_loss():
    problem = sampled_problem()
    points, _ = sampled(problem, [1] * 8, distance=3.0, size=2)
    weights = [sphere.unpack(jax.device_get(p.weights)) for p in points]
    assert np.any(np.diff([float(problem.loss(w)) for w in weights]) > 0)


def test_other_numbers_of_sampled_steps_compile_nothing():
    """Another angle, total, number of rows or of steps, if the block is as long in memory."""
    sampled(sampled_problem(), [5])
    size = sampled_iterations._cache_size()
    sampled(sampled_problem(), [8, 6], distance=0.3, total=100.0)
    sampled(sampled_problem(300), [7])
    assert sampled_iterations._cache_size() == size
    sampled(sampled_problem(), [9])  # a block of sixteen batches
    assert sampled_iterations._cache_size() == size + 1


@given(rows=st.integers(1, 10**6), width=st.sampled_from([1, 16, 300, 2000]))
def test_a_block_is_as_long_as_its_operations_allow(rows, width):
    packed = sphere.pack((np.ones((12, width)), np.ones((width, 3))))
    length = block_length(rows, packed)
    assert length in 2 ** np.arange(8)
    assert length <= MAX_STEPS
    assert block_length(rows + 1000, packed) <= length
    operations = 4 * PRODUCTS * rows * 15 * width
    assert length == 1 or length * operations <= PROGRAM_OPERATIONS
    assert length == MAX_STEPS or 2 * length * operations > PROGRAM_OPERATIONS


# Random batches


def numbered(counts, **options):
    """Return a problem whose first input is the number of the row; rows with count 0 weigh 0."""
    weight = np.asarray(counts, float)
    X = np.stack([np.arange(1.0, len(weight) + 1), np.ones(len(weight))], axis=1)
    network = Network((2, 3, 1), "tanh")
    return Problem(network, X, X[:, :1] / 10, sample_weight=weight, dtype=np.float64, **options)


def numbers(rows, first, steps):
    """Return the numbers of the rows in a block, one after the other."""
    block = rows.block(first, steps)
    inputs, weight = np.asarray(block.objective.rows.inputs), block.objective.rows.sample_weight
    assert len(inputs) == rows.size * 2 ** math.ceil(math.log2(steps))
    np.testing.assert_array_equal(weight[rows.size * steps :], 0)
    assert np.all(np.asarray(weight[: rows.size * steps]) > 0)
    return inputs[: rows.size * steps, 0].astype(int) - 1


@given(
    counted=st.lists(st.booleans(), min_size=2, max_size=30).filter(any),
    size=st.integers(1, 12),
    seed=st.integers(0, 3),
    cuts=st.lists(st.integers(1, 7), min_size=1, max_size=6),
)
def test_a_pass_has_every_row_that_counts_once(counted, size, seed, cuts):
    """However the steps are divided into programs."""
    rows = RandomBatches(numbered(counted), size, seed=seed)
    expected = np.flatnonzero(counted)
    starts = np.cumsum([0, *cuts])
    parts = [numbers(rows, int(a), n) for a, n in zip(starts, cuts, strict=False)]
    found = np.concatenate(parts)
    for start in range(0, len(found) - len(expected) + 1, len(expected)):
        np.testing.assert_array_equal(np.sort(found[start : start + len(expected)]), expected)
    assert len(set(found[len(found) // len(expected) * len(expected) :])) == (
        len(found) % len(expected)
    )
    again = RandomBatches(numbered(counted), size, seed=seed)
    np.testing.assert_array_equal(numbers(again, 0, sum(cuts)), found)
    assert rows.passes(sum(cuts)) == pytest.approx(len(found) / len(expected))


def test_the_order_of_a_pass_depends_on_seed_and_number_only():
    def passes(size, seed, first=0):
        rows = RandomBatches(numbered(np.ones(60)), size, seed=seed)
        found = [numbers(rows, k * 60 // size, 60 // size) for k in range(first, 3)]
        return {k: order.tolist() for k, order in enumerate(found, start=first)}

    expected = passes(12, 5)
    assert len(set(map(tuple, expected.values()))) == 3  # another order in each pass
    assert passes(20, 5) == expected
    assert passes(12, 5, first=2) == {2: expected[2]}  # as after resuming
    assert all(passes(12, 6)[k] != order for k, order in expected.items())
    back = RandomBatches(numbered(np.ones(60)), 60, seed=5)
    assert [numbers(back, k, 1).tolist() for k in (2, 0, 2, 1)] == [
        expected[k] for k in (2, 0, 2, 1)
    ]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("size", "passes"), [(10, 1), (16, 2), (40, 1)])
def test_the_mean_gradient_of_the_batches_of_a_pass_is_that_of_all_rows(size, passes):
    """With unequal weights, some of them zero; 40 rows count."""
    weight = np.random.default_rng(0).uniform(0.2, 3, 50)
    weight[::5] = 0
    problem = numbered(weight)
    weights = tuple(map(jnp.asarray, problem.network.initial_weights(0, dtype=np.float64)))
    steps = 40 * passes // size
    block = RandomBatches(problem, size).block(0, steps)

    @jax.jit
    def gradient(objective):
        gradient, _ = objective.backward(weights, objective.forward(weights)[1])
        return gradient

    each = [gradient(block.at(jnp.asarray(i))) for i in range(steps)]
    for *parts, whole in zip(*each, gradient(problem), strict=True):
        np.testing.assert_allclose(np.mean(parts, axis=0), whole, rtol=1e-12, atol=1e-15)
        assert steps == 1 or np.max(np.abs(parts[0] - whole)) > 1e-3 * np.max(np.abs(whole))


def test_sizes_of_batches_and_of_iterations_follow_from_the_rows():
    packed = sphere.pack(tuple(numbered(np.ones(2)).network.initial_weights(0)))
    sizes = [batch_size(rows) for rows in range(1, 10_000, 7)]
    assert sizes == sorted(sizes)
    assert (min(sizes), max(sizes)) == (32, BATCH)
    for count in (20, 100, 700, 5000):
        rows = RandomBatches(numbered(np.ones(count)))
        assert rows.size == min(batch_size(count), count)
        # A pass, of which the last batch may begin the next one.
        steps = rows.steps(packed)
        assert 1 <= rows.passes(steps) < 1 + rows.size / count
    many = RandomBatches(numbered(np.ones(5000)), 2)
    parts = 2500 / many.steps(packed)
    assert many.steps(packed) <= MAX_STEPS
    assert parts == pytest.approx(math.ceil(2500 / MAX_STEPS), rel=0.01)
    assert RandomBatches(numbered(np.ones(50)), 1000).size == 50
    assert RandomBatches(numbered(np.ones(50)), steps=7).steps(packed) == 7


def test_a_loss_without_rows_is_passed_as_a_whole_in_every_step():
    objective = function_of(cosine)
    rows = RandomBatches(objective)
    steps = rows.steps(sphere.pack((np.ones((1, 2)),)))
    assert rows.block(3, steps).at(jnp.asarray(1)) is objective
    assert rows.passes(steps) == steps > 1
