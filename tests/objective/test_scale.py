"""Rows in chunks, on several devices and in several processes: the same descent."""

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
from greatcircle.optimise.lasting import descend_lasting

from greatcircle import Network, Problem, descend, directions, spread, steps, stopping
from greatcircle.objective import chunks as parts
from greatcircle.objective.chunks import WHOLE
from greatcircle.objective.sharding import _gathered
from greatcircle.optimise import loop as descent
from greatcircle.optimise.checkpoint import NAME
from small import LOSS_NAMES, small, thinned

SCRIPT = Path(__file__).parents[1] / "scale_script.py"

DIRECTIONS = (
    directions.Steepest(),
    directions.Steepest("trust"),
    directions.ConjugateGradient(),
    directions.GaussNewton(),
    directions.Kronecker(),
)
STEPS = (
    steps.Curvature(),
    steps.Curvature(compare=True),
    steps.Taylor(3),
    steps.Majorant("golden"),
    steps.DataMajorant("golden"),
    steps.ClosedForm(),
)


@pytest.fixture
def small_chunks(monkeypatch):
    """From 13 rows on, chunks of at most 8: three of 7 for 20 rows, the last of which overlaps."""

    def begin():
        jax.clear_caches()  # the sizes are no arguments of compiled programs
        monkeypatch.setattr(parts, "CHUNK", 8)
        monkeypatch.setattr(parts, "WHOLE", 12)

    yield begin
    monkeypatch.undo()
    jax.clear_caches()


def all_passes(problem, weights):
    """Everything that the loop can ask of the rows."""

    def passes(problem, weights):
        velocity = tuple(0.3 + 0.1 * w for w in weights)
        loss, left = problem.forward(weights)
        gradient, left = problem.backward(weights, left)
        product, _ = problem.linearised(weights, left)
        return {
            "value": problem.value(weights),
            "loss": loss,
            "gradient": gradient,
            "second order": problem.second_order(weights, velocity, left),
            "product": product(velocity),
            "moments": problem.moments(velocity, left),
            "pull": problem.pull(left),
            "largest input": problem.largest_input(),
            "gram": problem.gram(
                weights, tuple(map(jnp.stack, zip(velocity, gradient, strict=True))), left
            ),
            "kronecker": problem.kronecker(left),
        }

    with jax.enable_x64(True):
        return jax.device_get(jax.jit(passes)(problem, weights))


@pytest.mark.parametrize(
    ("loss", "bias"), [(name, i % 2 == 0) for i, name in enumerate(LOSS_NAMES)]
)
def test_passes_in_chunks_are_those_over_all_rows(small_chunks, loss, bias):
    s = small(3, rows=20, loss=loss, activation="tanh", bias=bias)
    weight = np.arange(20.0)  # one row does not count
    problem = Problem(s.network, s.X, s.Y, loss=loss, sample_weight=weight, dtype=np.float64)
    whole = all_passes(problem, s.weights)
    assert not problem.in_parts
    small_chunks()
    assert problem.in_parts
    parted = all_passes(problem, s.weights)
    for name, expected in whole.items():
        for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(parted[name]), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-14, err_msg=name)


@pytest.mark.parametrize(("first", "count"), [(0, 1), (1, 2), (2, 1), (0, 3)])
def test_passes_over_a_window_are_those_over_its_rows(small_chunks, first, count):
    s = small(3, rows=20, loss="huber", activation="tanh", bias=True)
    weight = np.arange(20.0)
    problem = Problem(s.network, s.X, s.Y, loss="huber", sample_weight=weight, dtype=np.float64)
    rows = slice(7 * first, 7 * (first + count))
    expected = all_passes(problem.with_rows(s.X[rows], s.Y[rows], weight[rows]), s.weights)
    small_chunks()
    problem = Problem(s.network, s.X, s.Y, loss="huber", sample_weight=weight, dtype=np.float64)
    found = all_passes(problem.within(first, count), s.weights)
    for passes in (expected, found):
        del passes["largest input"]  # a bound, from all rows
    for name, of_rows in expected.items():
        for a, b in zip(jax.tree.leaves(of_rows), jax.tree.leaves(found[name]), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-14, err_msg=name)


def test_all_windows_share_one_program(small_chunks):
    small_chunks()
    s = small(2, rows=60)
    problem, programs = s.problem(), set()
    for first, count in ((0, 1), (3, 2), (0, 8)):
        some = problem.within(first, count)
        descend(some, s.weights, direction=directions.Kronecker(), stop=stopping.MaxIter(2))
        programs.add(descent.visit_point._cache_size())
    assert len(programs) == 1


def rows_of_each_turn(problem, every, turns):
    """Which rows the samples of some turns are made of, the first input being a row's number."""

    @jax.jit
    def sampled(problem, turn):
        part, share = problem.sampled(every, turn)
        return part.inputs, part.targets, part.share, share

    with jax.enable_x64(True):
        for turn in range(turns):
            inputs, targets, weight, share = jax.device_get(sampled(problem, turn))
            assert share == 1 / every
            counted = weight > 0
            assert counted.sum() >= len(counted) - 1  # the last one may be there for its shape only
            rows = inputs[counted, 0].round().astype(int)
            np.testing.assert_array_equal(targets[counted], np.asarray(problem.targets)[rows])
            of_all = np.asarray(problem.share)[rows]
            np.testing.assert_allclose(weight[counted], of_all / of_all.sum(), rtol=1e-12)
            yield rows.tolist()


@pytest.mark.parametrize("every", [2, 3, 5, 10, 16])
@pytest.mark.parametrize("turned", [True, False])
def test_a_sample_reaches_over_all_rows_and_samples_take_turns(every, turned, monkeypatch):
    if not turned:
        monkeypatch.setattr(parts, "WHOLE", 0)
    number = np.arange(50.0)[:, None]
    problem = Problem(
        Network((1, 2, 1)), number, number**2, sample_weight=1 + number[:, 0], dtype=np.float64
    )
    assert problem.turned == turned
    seen = list(rows_of_each_turn(problem, every, every))
    for rows in seen:
        assert np.all(np.diff(rows) == every)
    assert sorted(chain(*seen)) == list(range(50))  # each row once
    if every > 3:  # neighbours are not taken one after another
        firsts = np.array([rows[0] for rows in seen])
        assert np.all(np.abs(np.diff(firsts)) > 1)


@pytest.mark.usefixtures("x64")
def test_a_sample_of_everything_is_the_problem_itself():
    problem = small(1, rows=5).problem()
    assert problem.sampled(1, 3) == (problem, 1.0)
    some, share = problem.sampled(9, 3)  # there are only five
    assert (some.count, share) == (1, 0.2)


@pytest.mark.usefixtures("x64")
def test_a_sample_without_weight_has_no_curvature():
    s = small(1, rows=4)
    problem = Problem(s.network, s.X, s.Y, sample_weight=[1, 0, 1, 0], dtype=np.float64)
    weights = tuple(map(jnp.asarray, s.weights))
    left = problem.revisited(weights)
    products = [
        problem.linearised(weights, left, 0.5, turn)[0](tuple(jnp.cos(w) for w in weights))
        for turn in (0, 1)
    ]
    assert np.any(products[0][0] != 0)
    assert all(np.all(p == 0) for p in products[1])


@pytest.mark.parametrize(
    "direction", [directions.Kronecker(sample=20), directions.GaussNewton(share=0.4)], ids=str
)
def test_a_sample_in_chunks_is_the_sample(small_chunks, direction):
    """Every second of 50 rows: more than are done at once."""
    s = small(4, rows=50, activation="tanh")
    problem = s.problem()

    def descent():
        return descend(problem, s.weights, direction=direction, stop=stopping.MaxIter(4))

    whole = descent()
    small_chunks()
    parted = descent()
    for a, b in zip(whole.weights, parted.weights, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-11)


CASES = [(d, s) for d in DIRECTIONS for s in STEPS]


@pytest.mark.parametrize(("direction", "step"), thinned(CASES, 7))
def test_descents_in_chunks_are_those_over_all_rows(small_chunks, direction, step):
    s = small(5, rows=40)
    problem = s.problem()

    def descent():
        return descend(problem, s.weights, direction=direction, step=step, stop=stopping.MaxIter(5))

    whole = descent()
    small_chunks()
    parted = descent()
    # A search for the minimum of a majorant is exact to the root of the rounding only.
    searched = isinstance(step, steps.Majorant | steps.DataMajorant)
    tolerance = 1e-6 if searched else 1e-9
    assert len(parted.records) == len(whole.records)
    assert parted.loss == pytest.approx(whole.loss, rel=tolerance)
    for a, b in zip(whole.weights, parted.weights, strict=True):
        np.testing.assert_allclose(b, a, atol=tolerance)


def test_memory_of_a_compiled_iteration_does_not_grow_with_the_rows():
    def temporary(rows):
        network = Network((4, 8, 2))
        problem = Problem(network, np.ones((rows, 4)), np.ones((rows, 2)))

        @jax.jit
        def passes(problem, weights):
            loss, left = problem.forward(weights)
            gradient, left = problem.backward(weights, left)
            return loss, gradient, problem.second_order(weights, gradient, left)

        compiled = passes.lower(problem, network.initial_weights(0)).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporary(parts.WHOLE + 1) < 1.01 * temporary(parts.CHUNK)
    assert temporary(20 * parts.CHUNK) < 2 * temporary(parts.WHOLE + 1)


def test_many_rows_of_jax_are_not_copied():
    x, y = jax.numpy.ones((WHOLE + 1, 2)), jax.numpy.ones((WHOLE + 1, 1))
    problem = Problem(Network((2, 3, 1)), x, y)
    assert problem.inputs is x
    assert problem.targets is y


def test_one_device_is_a_mesh_too():
    s = small(1, rows=20)
    problem = s.problem()
    over = spread(problem)
    whole, parted = all_passes(problem, s.weights), all_passes(over, s.weights)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(parted), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-14)
    assert float(over.loss(s.weights)) == pytest.approx(float(problem.loss(s.weights)), rel=1e-14)
    assert _gathered(np.ones(3)).shape == (1, 3)


ON_TWO_DEVICES = """
import jax, numpy as np
from greatcircle import Network, Problem, descend, directions, spread, stopping
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
    # Solves with so few rows turn the rounding of float32 into anything up to 4e-5.
    (even(np.float64), directions.GaussNewton(share=0.34), 1e-10),
]
for case, direction, close in cases:
    one, two = (
        descend(p, weights, direction=direction, stop=stopping.MaxIter(6))
        for p in (case, spread(case))
    )
    assert abs(two.loss / one.loss - 1) < close, (one.loss, two.loss)
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=close)
assert spread(problem).inputs.addressable_shards[0].data.shape == (251, 4)
"""


def test_two_devices_do_what_one_does():
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    environment = {**os.environ, "XLA_FLAGS": flags}
    subprocess.run([sys.executable, "-c", ON_TWO_DEVICES], check=True, env=environment, timeout=240)


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
    """Their errors; none is left running."""
    try:
        return [p.communicate(timeout=240)[1] for p in processes]
    finally:
        for process in processes:
            process.kill()


def test_two_processes_do_what_one_does_and_outlive_each_other(tmp_path):
    folders = [tmp_path / name for name in ("one", "two", "lost")]
    for folder in folders:
        folder.mkdir()
    one, two, lost = folders
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

    # Process 1 died after iteration 5: process 0 says so, and leaves a checkpoint of it.
    assert runs[2][1].returncode < 0
    assert runs[2][0].returncode != 0
    message = errors[2][0]
    assert re.search(r"LostProcess: iteration [67] did not end, because another process", message)
    assert f"the checkpoint is {lost / 'checkpoint' / NAME}; go on from it" in message
    (again,) = started(lost, 1)  # and one process alone goes on from it, with all rows
    assert finished([again]) == [""]
    found = np.load(lost / "0.npz")
    assert float(found["loss"]) == pytest.approx(float(expected["loss"]), rel=1e-5)


def test_a_descent_goes_on_from_its_checkpoint(tmp_path):
    s = small(2)
    problem = s.problem()

    def run(folder, most, **more):
        rule = stopping.MaxIter(most)
        return descend_lasting(problem, s.weights, folder, stop=rule, seconds=0, **more)

    whole = run(tmp_path / "whole", 9)
    run(tmp_path / "halves", 4)
    rest = run(tmp_path / "halves", 9, resume=True)
    assert [r.iteration for r in rest.records] == list(range(1, 10))
    for a, b in zip(whole.weights, rest.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="another fit: step differ"):
        run(tmp_path / "halves", 9, resume=True, step=steps.Majorant())


def test_values_outside_of_a_descent_are_in_parts_too(small_chunks):
    s = small(6, rows=40)
    whole = float(s.problem().loss(s.weights))
    small_chunks()
    assert float(s.problem().loss(s.weights)) == pytest.approx(whole, rel=1e-13)
