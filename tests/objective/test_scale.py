"""Rows in chunks, on several devices and in several processes give the same result."""

import os
import re
import socket
import subprocess
import sys
from contextlib import closing
from itertools import chain
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from greatcircle import Checkpoint, Network, Problem, descend, directions, steps, stopping
from greatcircle.objective import chunks
from greatcircle.objective.chunks import DeviceRows
from greatcircle.objective.sharding import _gathered, shard
from greatcircle.optimise.checkpoint import NAME
from small import LOSS_NAMES, small, thinned

SCRIPT = Path(__file__).parents[1] / "scale_script.py"

DIRECTIONS = (
    directions.Steepest(),
    directions.MajorantSteepest(),
    directions.ConjugateGradient(),
    directions.GaussNewton(),
    directions.Kronecker(),
)
STEPS = (
    steps.Curvature(),
    steps.ComparedCurvature(),
    steps.Taylor(3),
    steps.Majorant(steps.GoldenSection()),
    steps.DataMajorant(steps.GoldenSection()),
    steps.ClosedForm(),
)


@pytest.fixture
def small_chunks(monkeypatch):
    """Use chunks of at most 8 rows from 13 rows on: for 20 rows three of 7, which overlap."""

    def use():
        jax.clear_caches()  # compiled programs contain the sizes
        monkeypatch.setattr(chunks, "CHUNK", 8)
        monkeypatch.setattr(chunks, "MAX_AT_ONCE", 12)

    yield use
    monkeypatch.undo()
    jax.clear_caches()


def all_passes(problem, weights):
    """Return the result of every pass over the rows."""

    def passes(problem, weights):
        velocity = tuple(0.3 + 0.1 * w for w in weights)
        loss, cache = problem.forward(weights)
        gradient, cache = problem.backward(weights, cache)
        product, _ = problem.gauss_newton(weights, cache)
        return {
            "value": problem.value(weights),
            "loss": loss,
            "gradient": gradient,
            "second order": problem.second_order(weights, velocity, cache),
            "product": product(velocity),
            "moments": problem.moments(velocity, cache),
            "output gradient": problem.output_gradient(cache),
            "largest input": problem.largest_input(),
            "gram": problem.gram(
                weights, tuple(map(jnp.stack, zip(velocity, gradient, strict=True))), cache
            ),
            "kronecker": problem.kronecker(cache),
        }

    with jax.enable_x64(True):
        return jax.device_get(jax.jit(passes)(problem, weights))


@pytest.mark.parametrize(
    ("loss", "bias"), [(name, i % 2 == 0) for i, name in enumerate(LOSS_NAMES)]
)
def test_passes_in_chunks_agree_with_passes_at_once(small_chunks, loss, bias):
    s = small(3, rows=20, loss=loss, activation="tanh", bias=bias)
    weight = np.arange(20.0)  # one row has weight zero
    problem = Problem(s.network, s.X, s.Y, loss=loss, sample_weight=weight, dtype=np.float64)
    whole = all_passes(problem, s.weights)
    assert not problem.rows.in_chunks
    small_chunks()
    assert problem.rows.in_chunks
    chunked = all_passes(problem, s.weights)
    for name, expected in whole.items():
        for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(chunked[name]), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-14, err_msg=name)


@pytest.mark.parametrize(("first", "count"), [(0, 1), (1, 2), (2, 1), (0, 3)])
def test_passes_over_a_window_agree_with_passes_over_its_rows(small_chunks, first, count):
    s = small(3, rows=20, loss="huber", activation="tanh", bias=True)
    weight = np.arange(20.0)
    problem = Problem(s.network, s.X, s.Y, loss="huber", sample_weight=weight, dtype=np.float64)
    rows = slice(7 * first, 7 * (first + count))
    with jax.enable_x64(True):
        arrays = map(jnp.asarray, (s.X[rows], s.Y[rows], weight[rows] / weight[rows].sum()))
        of_rows = problem.with_rows(DeviceRows(*arrays))
    expected = all_passes(of_rows, s.weights)
    small_chunks()
    problem = Problem(s.network, s.X, s.Y, loss="huber", sample_weight=weight, dtype=np.float64)
    found = all_passes(problem.window(first, count), s.weights)
    for passes in (expected, found):
        del passes["largest input"]  # that of all rows, also in a window
    for name, of_rows in expected.items():
        for a, b in zip(jax.tree.leaves(of_rows), jax.tree.leaves(found[name]), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-14, err_msg=name)


def test_all_windows_share_one_program(small_chunks):
    small_chunks()
    s = small(2, rows=60)
    problem, traces = s.problem(), []

    @jax.jit
    def passes(problem, weights):
        traces.append(1)
        loss, cache = problem.forward(weights)
        gradient, cache = problem.backward(weights, cache)
        return loss, gradient, problem.kronecker(cache), problem.sampled(2, 1)[1]

    with jax.enable_x64(True):
        for first, count in ((0, 1), (3, 2), (0, 8)):
            passes(problem.window(first, count), s.weights)
    assert len(traces) == 1


def sampled_rows(problem, every, iterations):
    """Yield the rows in the sample of each iteration; the first input is the number of the row."""

    @jax.jit
    def sampled(problem, iteration):
        sample, fraction = problem.sampled(every, iteration)
        return sample.inputs, sample.targets, sample.rows.sample_weight, fraction

    with jax.enable_x64(True):
        for iteration in range(iterations):
            inputs, targets, weight, fraction = jax.device_get(sampled(problem, iteration))
            assert fraction == 1 / every
            counted = weight > 0
            assert counted.sum() >= len(counted) - 1  # the last one may be padding
            rows = inputs[counted, 0].round().astype(int)
            np.testing.assert_array_equal(targets[counted], np.asarray(problem.targets)[rows])
            full = np.asarray(problem.rows.sample_weight)[rows]
            np.testing.assert_allclose(weight[counted], full / full.sum(), rtol=1e-12)
            yield rows.tolist()


@pytest.mark.parametrize("every", [2, 3, 5, 10, 16])
@pytest.mark.parametrize("columns_first", [True, False])
def test_samples_spread_over_all_rows_and_take_each_once(every, columns_first, monkeypatch):
    if not columns_first:
        monkeypatch.setattr(chunks, "MAX_AT_ONCE", 0)
    number = np.arange(50.0)[:, None]
    problem = Problem(
        Network((1, 2, 1)), number, number**2, sample_weight=1 + number[:, 0], dtype=np.float64
    )
    assert problem.rows.columns_first == columns_first
    samples = list(sampled_rows(problem, every, every))
    for rows in samples:
        assert np.all(np.diff(rows) == every)
    assert sorted(chain(*samples)) == list(range(50))  # each row once
    if every > 3:  # successive samples do not start at neighbouring rows
        firsts = np.array([rows[0] for rows in samples])
        assert np.all(np.abs(np.diff(firsts)) > 1)


@pytest.mark.usefixtures("x64")
def test_a_sample_of_all_rows_is_the_problem():
    problem = small(1, rows=5).problem()
    sample, fraction = problem.sampled(1, 3)
    assert sample.rows.inputs is problem.rows.inputs
    assert fraction == 1
    sample, fraction = problem.sampled(9, 3)  # of five rows
    assert (sample.count, fraction) == (1, 0.2)


@pytest.mark.usefixtures("x64")
def test_a_sample_of_rows_without_weight_has_zero_products():
    s = small(1, rows=4)
    problem = Problem(s.network, s.X, s.Y, sample_weight=[1, 0, 1, 0], dtype=np.float64)
    weights = tuple(map(jnp.asarray, s.weights))
    cache = problem.cache_at(weights)
    products = [
        problem.gauss_newton(weights, cache, 0.5, iteration)[0](tuple(jnp.cos(w) for w in weights))
        for iteration in (0, 1)
    ]
    assert np.any(products[0][0] != 0)
    assert all(np.all(p == 0) for p in products[1])


@pytest.mark.parametrize(
    "direction", [directions.Kronecker(sample=20), directions.GaussNewton(fraction=0.4)], ids=str
)
def test_runs_on_samples_in_chunks_agree_with_runs_at_once(small_chunks, direction):
    """Every second of 50 rows, which are more than are passed at once."""
    s = small(4, rows=50, activation="tanh")
    problem = s.problem()

    def result():
        return descend(problem, s.weights, direction=direction, stop=stopping.MaxIter(4))

    whole = result()
    small_chunks()
    chunked = result()
    for a, b in zip(whole.weights, chunked.weights, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-11)


CASES = [(d, s) for d in DIRECTIONS for s in STEPS]


@pytest.mark.parametrize(("direction", "step"), thinned(CASES, 7))
def test_runs_in_chunks_agree_with_runs_at_once(small_chunks, direction, step):
    s = small(5, rows=40)
    problem = s.problem()

    def result():
        return descend(problem, s.weights, direction=direction, step=step, stop=stopping.MaxIter(5))

    whole = result()
    small_chunks()
    chunked = result()
    # A search finds the minimum of a majorant to the square root of the rounding only.
    searched = isinstance(step, steps.Majorant | steps.DataMajorant)
    tolerance = 1e-6 if searched else 1e-9
    assert len(chunked.records) == len(whole.records)
    assert chunked.loss == pytest.approx(whole.loss, rel=tolerance)
    for a, b in zip(whole.weights, chunked.weights, strict=True):
        np.testing.assert_allclose(b, a, atol=tolerance)


def test_memory_of_a_compiled_iteration_does_not_grow_with_the_rows():
    def temporary(rows):
        network = Network((4, 8, 2))
        problem = Problem(network, np.ones((rows, 4)), np.ones((rows, 2)))

        @jax.jit
        def passes(problem, weights):
            loss, cache = problem.forward(weights)
            gradient, cache = problem.backward(weights, cache)
            return loss, gradient, problem.second_order(weights, gradient, cache)

        compiled = passes.lower(problem, network.initial_weights(0)).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporary(chunks.MAX_AT_ONCE + 1) < 1.01 * temporary(chunks.CHUNK)
    assert temporary(20 * chunks.CHUNK) < 2 * temporary(chunks.MAX_AT_ONCE + 1)


def test_large_jax_arrays_are_not_copied():
    rows = chunks.MAX_AT_ONCE + 1
    x, y = jnp.ones((rows, 2)), jnp.ones((rows, 1))
    problem = Problem(Network((2, 3, 1)), x, y)
    assert problem.inputs is x
    assert problem.targets is y


def test_a_mesh_of_one_device_gives_the_same():
    s = small(1, rows=20)
    problem = s.problem()
    sharded = shard(problem)
    whole, chunked = all_passes(problem, s.weights), all_passes(sharded, s.weights)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(chunked), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-14)
    assert float(sharded.loss(s.weights)) == pytest.approx(
        float(problem.loss(s.weights)), rel=1e-14
    )
    assert _gathered(np.ones(3)).shape == (1, 3)


ON_TWO_DEVICES = """
import jax, numpy as np
from greatcircle import Network, Problem, descend, directions, shard, stopping
assert jax.device_count() == 2
rng = np.random.default_rng(0)
X = rng.standard_normal((501, 4))
problem = Problem(Network((4, 8, 2)), X, np.abs(X[:, :2]))
weights = problem.network.initial_weights(0)
def even(dtype):
    return Problem(problem.network, X[:500], np.abs(X[:500, :2]), dtype=dtype)
cases = [
    (problem, directions.Kronecker(), 1e-5),
    (problem, directions.GaussNewton(), 1e-5),
    # Every third row: 84 of the first half, 83 of the other.
    (even(np.float32), directions.Kronecker(sample=166), 1e-5),
    # In float32, solves with so few rows amplify rounding to 4e-5.
    (even(np.float64), directions.GaussNewton(fraction=0.34), 1e-10),
]
for case, direction, close in cases:
    one, two = (
        descend(p, weights, direction=direction, stop=stopping.MaxIter(6))
        for p in (case, shard(case))
    )
    assert abs(two.loss / one.loss - 1) < close, (one.loss, two.loss)
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=close)
assert shard(problem).inputs.addressable_shards[0].data.shape == (251, 4)
"""


def run_on_two_devices(script):
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    environment = {**os.environ, "XLA_FLAGS": flags}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=240)


def test_two_devices_agree_with_one():
    run_on_two_devices(ON_TWO_DEVICES)


BATCHES_ON_TWO_DEVICES = """
import jax, numpy as np
from greatcircle import Network, Problem, descend, directions, shard
from greatcircle.optimise.random_batches import RandomBatches
from greatcircle.optimise.steps import LinearDecay
assert jax.device_count() == 2
rng = np.random.default_rng(0)
X = rng.standard_normal((500, 4))
Y = np.abs(X[:, :2])
network = Network((4, 8, 2))
weights = network.initial_weights(0, dtype=np.float64)
whole = Problem(network, X, Y, dtype=np.float64)
def run(problem, steps, distance):
    # Not SOAP, whose first basis depends on rounding.
    direction, batches = directions.KroneckerMomentum(), RandomBatches(problem, 250, 3)
    step = LinearDecay(steps, distance)
    return descend(problem, weights, direction=direction, step=step, rows=batches)
two = run(shard(whole), 6, 0.3)
assert two.reason == "finished: step schedule completed"
assert [r.forward for r in two.records] == [3.0]
# Each device took three of the six steps on its own rows, twice as long.
ends = [
    run(
        Problem(network, X[half], Y[half], dtype=np.float64).with_unit(whole.unit),
        3,
        2 * 0.3 / np.sqrt(2),
    ).weights
    for half in (slice(0, 250), slice(250, 500))
]
for start, a, b, found in zip(weights, *ends, two.weights, strict=True):
    expected = (a + b) * (np.linalg.norm(start) / np.linalg.norm(a + b))
    np.testing.assert_allclose(found, expected, atol=1e-12)
# Padding does not count, and a long run on few rows of each device lowers the loss.
odd = shard(Problem(network, X[:101], Y[:101]))
result = descend(
    odd, weights, direction=directions.Soap(), step=LinearDecay(400), rows=RandomBatches(odd)
)
assert result.loss < 0.7 * result.initial_loss, (result.loss, result.initial_loss)
"""


def test_on_small_batches_two_devices_average_the_ends_of_their_own_steps():
    run_on_two_devices(BATCHES_ON_TWO_DEVICES)


def started(folder, count, *more):
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return [
        subprocess.Popen(
            [sys.executable, SCRIPT, str(i), str(count), str(port), folder, *map(str, more)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(count)
    ]


def finished(processes):
    """Return what the processes wrote to stderr; kill those that still run."""
    try:
        return [p.communicate(timeout=240)[1] for p in processes]
    finally:
        for process in processes:
            process.kill()


def test_two_processes_agree_with_one_and_survive_the_loss_of_the_other(tmp_path):
    one, two, lost = folders = [tmp_path / name for name in ("one", "two", "lost")]
    for folder in folders:
        folder.mkdir()
    runs = [started(one, 1), started(two, 2), started(lost, 2, 5)]
    errors = [finished(processes) for processes in runs]
    assert [[p.returncode for p in processes] for processes in runs[:2]] == [[0], [0, 0]], errors
    expected = np.load(one / "0.npz")
    for process in (0, 1):
        found = np.load(two / f"{process}.npz")
        assert found["devices"] == 2 * expected["devices"]
        assert float(found["loss"]) == pytest.approx(float(expected["loss"]), rel=1e-5)
        for name in ("arr_0", "arr_1"):
            np.testing.assert_allclose(found[name], expected[name], atol=1e-5)
    # On small batches processes take steps of their own, and then agree to the last bit.
    ends = [np.load(two / f"{process}.npz") for process in (0, 1)]
    for name in ("batches_0", "batches_1"):
        np.testing.assert_array_equal(ends[0][name], ends[1][name])
    assert ends[0]["batches_loss"] < 0.8 * ends[0]["batches_initial_loss"]
    assert float(ends[0]["batches_loss"]) == pytest.approx(float(expected["batches_loss"]), rel=0.3)

    # Process 1 died after iteration 5: process 0 reports it, and leaves a checkpoint.
    assert runs[2][1].returncode < 0
    assert runs[2][0].returncode != 0
    message = errors[2][0]
    assert re.search(r"LostProcess: iteration [67] did not end, because another process", message)
    assert f"the checkpoint is {lost / 'checkpoint' / NAME}; resume it with resume=True" in message
    (again,) = started(lost, 1)  # one process alone resumes with all rows
    assert finished([again]) == [""]
    found = np.load(lost / "0.npz")
    assert float(found["loss"]) == pytest.approx(float(expected["loss"]), rel=1e-5)


def test_a_run_resumes_from_its_checkpoint(tmp_path):
    s = small(2)
    problem = s.problem()

    def run(folder, iterations, resume=False, **more):
        checkpoint = Checkpoint(folder, interval=0, resume=resume)
        rule = stopping.MaxIter(iterations)
        return descend(problem, s.weights, stop=rule, checkpoint=checkpoint, **more)

    whole = run(tmp_path / "whole", 9)
    run(tmp_path / "halves", 4)
    rest = run(tmp_path / "halves", 9, resume=True)
    assert [r.iteration for r in rest.records] == list(range(1, 10))
    for a, b in zip(whole.weights, rest.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="another fit, which differs in step"):
        run(tmp_path / "halves", 9, resume=True, step=steps.Majorant())


def test_losses_outside_a_run_are_computed_in_chunks_too(small_chunks):
    s = small(6, rows=40)
    whole = float(s.problem().loss(s.weights))
    small_chunks()
    assert float(s.problem().loss(s.weights)) == pytest.approx(whole, rel=1e-13)
