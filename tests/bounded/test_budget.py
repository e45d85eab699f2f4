"""`frames` and `budget`: networks that have a bound by construction, and descents among them."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone

from greatcircle import (
    LipschitzClassifier,
    LipschitzRegressor,
    Network,
    Problem,
    certificate,
    sphere,
)
from greatcircle._runtime.precision import precision
from greatcircle.bounded import budget
from greatcircle.bounded import sandwich as frames
from greatcircle.bounded.budget import best_multipliers, certified, descend_within, shrunk
from greatcircle.network.activations import declare
from small import ACTIVATION_NAMES, thinned

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 3))
Y = np.stack([np.sin(2 * X[:, 0]) + X[:, 1], np.abs(X[:, 2])], axis=1)
SCALE = np.array([1.0, 0.5, 2.0])
ACTIVATIONS = ["relu", "tanh", "abs"]


def problem_of(activation="relu", bias=True, hidden=(6, 5), **options):
    network = Network((3, *hidden, 2), activation, bias=bias)
    return Problem(network, X * SCALE, Y, dtype="float64", **options)


def any_frames(network, seed=0):
    """Not orthonormal, and of any length."""
    rng = np.random.default_rng(seed)
    return tuple(
        rng.standard_normal((fan_in + out + network.bias + (i < network.depth - 1), out))
        for i, (fan_in, out) in enumerate(pairwise(network.sizes))
    )


def made(network, layers, bound, length=1.0):
    with precision(np.float64):
        arrays = [jnp.asarray(v, np.float64) for v in (SCALE, bound, length)]
        made = frames.matrices(network, tuple(map(jnp.asarray, layers)), *arrays)
        return jax.device_get(made)


@pytest.mark.parametrize("hidden", [(), (6,), (6, 5, 4)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_frames_have_the_bound_wherever_they_are(activation, bias, hidden):
    network = problem_of(activation, bias, hidden).network
    for seed in range(5):
        weights = made(network, any_frames(network, seed), 1.7)
        network.check_weights(weights)
        assert certified(network, weights, SCALE) <= 1.7 * (1 + 1e-9)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_multipliers_that_prove_it_are_those_of_the_frames(activation):
    network = problem_of(activation).network
    layers = any_frames(network)
    weights = made(network, layers, 1.7)
    multipliers = []
    for frame, (fan_in, out) in zip(layers[:-1], pairwise(network.sizes[:-1]), strict=True):
        psi = np.exp(frame[-1] * np.sqrt(out) / np.linalg.norm(frame[: fan_in + out]))
        multipliers.append((1 if activation == "abs" else 2) * psi**2 / 1.7)
    linear = [w[:-1] for w in weights]
    linear[0] = linear[0] * SCALE[:, None]
    least = -1.0 if activation == "abs" else 0.0
    proof = certificate.Certificate(
        value=1.7 * (1 + 1e-9),
        method="frames",
        multipliers=tuple(multipliers),
        slopes=tuple(np.tile([least, 1.0], (len(m), 1)) for m in multipliers),
        scale=np.ones(3),
        gain=1.0,
        digest=certificate.proof.digest(linear),
    )
    assert certificate.verify(proof, linear)


def test_neither_length_nor_lean_of_a_frame_matters():
    network = problem_of("tanh").network
    layers = any_frames(network)
    weights = made(network, layers, 0.9)
    longer = made(network, [3 * frame for frame in layers], 0.9)
    with precision(np.float64):
        upright = [
            np.asarray(frames.orthonormal(jnp.asarray(frame), fan_in + out))
            for frame, (fan_in, out) in zip(layers, pairwise(network.sizes), strict=True)
        ]
    for frame, (fan_in, out) in zip(upright, pairwise(network.sizes), strict=True):
        G = frame[: fan_in + out]
        np.testing.assert_allclose(G.T @ G, np.eye(out), atol=1e-12)
    for same in (longer, made(network, upright, 0.9)):
        for a, b in zip(weights, same, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_the_derivative_of_the_factor_is_that_of_its_definition():
    with precision(np.float64):
        G, pull = (jnp.asarray(RNG.standard_normal((9, 4))) for _ in range(2))

        def plain(G):
            lower = jnp.linalg.cholesky(G.T @ G)
            return jax.scipy.linalg.solve_triangular(lower, G.T, lower=True).T

        np.testing.assert_allclose(frames.factor(G), plain(G), rtol=1e-12)
        got, expected = (jax.vjp(f, G)[1](pull)[0] for f in (frames.factor, plain))
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_network_of_frames_has_frames(activation, bias):
    network = problem_of(activation, bias).network
    weights = made(network, any_frames(network), 1.7, 2.0)
    multipliers, value = best_multipliers(network, weights, SCALE)
    bound = 1.2 * value
    found = frames.frames_of(network, weights, multipliers, SCALE, bound, 2.0)
    again = made(network, found, bound, 2.0)
    expected = network.predict(weights, X * SCALE)
    error = network.predict(again, X * SCALE) - expected
    # Multipliers that prove the least bound leave A flat somewhere, hence not all digits.
    assert np.linalg.norm(error) <= 0.02 * np.linalg.norm(expected)


def test_a_unit_that_is_off_does_no_harm():
    network = problem_of().network
    weights = [w.copy() for w in made(network, any_frames(network), 1.0)]
    weights[0][:, 0] = weights[1][0] = 0
    multipliers, value = best_multipliers(network, weights, SCALE)
    found = frames.frames_of(network, weights, multipliers, SCALE, 2 * value, 1.0)
    assert all(np.all(np.isfinite(frame)) for frame in found)


def test_a_round_is_that_of_a_plain_loop():
    problem = problem_of("tanh", sample_weight=RNG.uniform(0.5, 2, 300))
    network = problem.network
    layers = any_frames(network)
    with precision(np.float64):
        arrays = (jnp.asarray(v, np.float64) for v in (SCALE, 0.8, 1.5, 0.01, 3.0))
        within = budget.Within(problem, *arrays)
        state, weights, _ = budget.turned(within, budget.start_of(tuple(map(jnp.asarray, layers))))
        assert int(state.turn) == budget.TURNS
        slope = jax.jit(jax.grad(lambda layers, rows: within.loss(sphere.pack(layers), rows)))
        points = [np.array(frame) for frame in layers]
        mean, square = ([np.zeros_like(p) for p in points] for _ in range(2))
        for turn in range(budget.TURNS):
            key = jax.random.fold_in(jax.random.key(0), turn)
            rows = jax.random.randint(key, (256,), 0, 300)
            size = 0.01 * 0.5 * (1 + np.cos(np.pi * turn / (3 * budget.TURNS)))
            for i, g in enumerate(slope(tuple(points), rows)):
                g, p, radius = np.asarray(g), points[i], np.linalg.norm(points[i])
                mean[i] = 0.9 * mean[i] + 0.1 * g
                square[i] = 0.999 * square[i] + 0.001 * g**2
                m, s = mean[i] / (1 - 0.9 ** (turn + 1)), square[i] / (1 - 0.999 ** (turn + 1))
                way = -size * m / (np.sqrt(s) + 1e-3 * np.sqrt(np.mean(s)))
                way -= np.sum(way * p) / radius**2 * p
                angle = np.linalg.norm(way) / radius
                points[i] = np.cos(angle) * p + np.sin(angle) * radius * way / np.linalg.norm(way)
        for a, b in zip(weights, within.matrices(tuple(map(jnp.asarray, points))), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_descent_stays_within_the_budget_and_uses_it(activation):
    problem = problem_of(activation)
    start = problem.network.initial_weights(
        0, scheme="orthogonal", radius=[3.0, 3.0, 3.0], dtype=np.float64
    )
    losses, bounds = {}, []

    def callback(record, weights):
        bounds.append(certified(problem.network, weights, SCALE))

    for most in (0.3, 1.0):
        bounds.clear()
        result = descend_within(problem, start, SCALE, most, rounds=12, callback=callback)
        matrices = problem.network.linear(result.weights)
        folded = [matrices[0] * SCALE[:, None], *matrices[1:]]
        value = certificate.tight(folded, activation=activation).value
        assert 0.97 * most <= value <= most
        assert max(bounds) <= most
        assert result.loss == pytest.approx(float(problem.loss(result.weights)), rel=1e-12)
        # The value of a certificate is 1e-7 above the least there is: the last layer gives that.
        assert result.loss <= result.records[-1].loss * (1 + 1e-6)
        assert [r.iteration for r in result.records] == [*range(1, 13)]
        assert result.outcome == "max_iter"
        assert result.records[-1].angle < 0.05 * result.records[0].angle
        losses[most] = result.loss
    assert losses[1.0] < losses[0.3] < 0.9 * float(problem.loss([0 * w for w in start]))


def test_a_start_with_a_smaller_bound_keeps_it():
    problem = problem_of()
    start = problem.network.initial_weights(0, scheme="orthogonal", dtype=np.float64)
    value = certified(problem.network, start, SCALE)
    result = descend_within(problem, start, SCALE, 100 * value, rounds=3)
    assert certified(problem.network, result.weights, SCALE) <= value
    assert result.loss < result.initial_loss


def test_the_same_descent_twice_and_one_that_is_stopped():
    problem = problem_of()
    start = problem.network.initial_weights(0, scheme="orthogonal", dtype=np.float64)
    first, second = (descend_within(problem, start, SCALE, 0.1, rounds=3) for _ in range(2))
    for a, b in zip(first.weights, second.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    stopped = descend_within(problem, start, SCALE, 0.1, callback=lambda r, w: r.iteration == 2)
    assert (stopped.outcome, len(stopped.records)) == ("stopped", 2)

    def interrupt(record, weights):
        raise KeyboardInterrupt

    ended = descend_within(problem, start, SCALE, 0.1, callback=interrupt)
    assert (ended.outcome, len(ended.records)) == ("interrupted", 1)
    assert certified(problem.network, ended.weights, SCALE) <= 0.1


def test_shrinking_changes_the_last_layer_only_and_only_where_it_must():
    problem = problem_of()
    weights = problem.network.initial_weights(0, dtype=np.float64)
    value = certified(problem.network, weights, SCALE)
    same = shrunk(problem.network, weights, SCALE, 2 * value)
    assert all(a is b for a, b in zip(same, weights, strict=True))
    less = shrunk(problem.network, weights, SCALE, value / 3)
    assert all(a is b for a, b in zip(less[:-1], weights[:-1], strict=True))
    assert certified(problem.network, less, SCALE) == pytest.approx(value / 3, rel=1e-5)
    assert certified(problem.network, less, SCALE) <= value / 3


BUMP = declare(lambda z: 0.5 * jnp.sin(z) + 0.25 * z, (-0.25, 0.75), name="bump")
EVERY = [
    (kind, activation, dtype)
    for kind in (LipschitzRegressor, LipschitzClassifier)
    for dtype in ("float64", "float32")
    for activation in ("identity", BUMP, *(n for n in ACTIVATION_NAMES if n != "identity"))
]


@pytest.mark.parametrize(("kind", "activation", "dtype"), thinned(EVERY, 11))
def test_a_budget_is_never_exceeded(kind, activation, dtype):
    """Not by the last digit, whatever the activation, the precision and the size of the budget."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((60, 2))
    y = X @ [1.0, 2.0] if kind is LipschitzRegressor else X[:, 0] > X[:, 1]
    for most in (1e-12, 1e-6, 0.1, 0.5, 1e12):
        model = kind((4,), activation, lipschitz=most, max_iter=2, dtype=dtype, random_state=0)
        model.fit(X, y)
        assert model.certificate_.value <= most
        assert certificate.verify(model.certificate_, model)
        if most < 0.1 and dtype == "float64":  # float32 losses cannot tell small bounds apart
            assert model.certificate_.value >= 0.99 * most
        stopped = clone(model).set_params(early_stopping=True).fit(X, y)
        assert stopped.certificate_.value <= most
    for _ in range(2):
        model.set_params(lipschitz=0.3).partial_fit(X, y)
        assert model.certificate_.value <= 0.3


def test_a_constant_network_is_within_every_budget():
    X = np.random.default_rng(0).standard_normal((30, 2))
    model = LipschitzRegressor((3,), lipschitz=0.1, max_iter=2, random_state=0)
    model.fit(X, np.full(30, 4.0))
    assert model.certificate_.value <= 0.1
    np.testing.assert_allclose(model.predict(X), 4.0, atol=0.5)
