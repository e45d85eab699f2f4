"""`bounded` and `budget`, and the smooth certificates of `gains` that they use."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from greatcircle import Network, Problem, certificate, gains, stopping
from greatcircle.bounded import Bounded
from greatcircle.budget import best_multipliers, certified, descend_within, shrunk
from greatcircle.precision import precision

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 3))
Y = np.stack([np.sin(2 * X[:, 0]) + X[:, 1], np.abs(X[:, 2])], axis=1)
SCALE = np.array([1.0, 0.5, 2.0])


def problem_of(activation="relu"):
    network = Network((3, 6, 5, 2), activation, bias=True)
    return Problem(network, X * SCALE, Y, dtype="float64")


def bounded_of(activation="relu", budget=1.5, seed=0):
    problem = problem_of(activation)
    weights = problem.network.initial_weights(
        seed, scheme="normal", radius=[2.0, 3.0, 1.0], dtype=np.float64
    )
    roots, shares, _ = best_multipliers(problem.network, weights, SCALE)
    return Bounded(problem, np.asarray(budget), SCALE, shares), (*weights, *roots)


@pytest.mark.parametrize("activation", ["relu", "tanh", "abs"])
def test_the_smooth_certificate_is_one_for_every_choice_of_multipliers(activation):
    bounded, weights = bounded_of(activation)
    network = bounded.problem.network
    rng = np.random.default_rng(1)
    for scramble in (0.0, 0.3, 2.0):
        roots = [r * np.exp(scramble * rng.standard_normal(r.shape)) for r in weights[3:]]
        with precision(np.float64):
            linear = [jnp.asarray(w) for w in network.linear(weights[:3])]
            if activation == "abs":
                log = gains.log_signed_certificate(linear, jnp.asarray(SCALE), roots)
            else:
                log = gains.log_certificate(
                    linear, jnp.asarray(SCALE), roots, jnp.asarray(bounded.shares)
                )
        least = certified(network, weights[:3], SCALE)
        assert np.exp(float(log)) >= least * (1 - 1e-9)
        if scramble == 0:  # and with the best ones it is nearly the best
            assert np.exp(float(log)) <= 1.25 * least


@pytest.mark.parametrize("activation", ["relu", "tanh", "abs"])
def test_passes_agree_with_automatic_differentiation(activation):
    bounded, weights = bounded_of(activation)
    rng = np.random.default_rng(2)
    with precision(np.float64):
        weights = tuple(map(jnp.asarray, weights))
        velocity = tuple(jnp.asarray(rng.standard_normal(w.shape)) for w in weights)
        loss, left = bounded.forward(weights)
        gradient, more = bounded.backward(weights, left)
        expected = jax.grad(bounded.value)(weights)
        second = bounded.second_order(weights, velocity, more)

        def along(t):
            return bounded.value(tuple(w + t * v for w, v in zip(weights, velocity, strict=True)))

        assert float(loss) == pytest.approx(float(bounded.value(weights)), rel=1e-12)
        for a, b in zip(gradient, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        exact = jax.jvp(jax.grad(along), (0.0,), (1.0,))[1]
        np.testing.assert_allclose(second, exact, rtol=1e-8)


def test_products_are_those_of_the_gauss_newton_matrix_and_the_certificate():
    bounded, weights = bounded_of(budget=0.1)
    rng = np.random.default_rng(3)
    with precision(np.float64):
        # Outputs that point towards the targets, and fall short of them.
        agree = float(jnp.vdot(bounded.outputs(tuple(map(jnp.asarray, weights))), Y))
        weights = (*weights[:2], weights[2] * np.sign(agree), *weights[3:])
        weights = tuple(map(jnp.asarray, weights))
        velocity = tuple(jnp.asarray(rng.standard_normal(w.shape)) for w in weights)
        _, left = bounded.forward(weights)
        _, more = bounded.backward(weights, left)
        product, share = bounded.linearised(weights, more)
        outputs, push = jax.linearize(bounded.outputs, weights)
        loss = bounded.problem.scaled_loss_of
        curved = jax.jvp(jax.grad(loss), (outputs,), (push(velocity),))[1]
        newton = jax.linear_transpose(push, weights)(curved)[0]
        price = min(float(jnp.vdot(jax.grad(loss)(outputs), outputs)), 0.0)
        bend = jax.jvp(jax.grad(bounded.log_scale), (weights,), (velocity,))[1]
        assert share == 1.0
        assert price < 0  # a larger bound would help, so that both terms are there
        for got, a, b in zip(product(velocity), newton, bend, strict=True):
            np.testing.assert_allclose(got, a + price * b, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("activation", ["relu", "abs"])
def test_a_descent_stays_within_the_budget_and_uses_it(activation):
    problem = problem_of(activation)
    start = problem.network.initial_weights(0, scheme="orthogonal", dtype=np.float64)
    losses, bounds = {}, []

    def callback(record, weights):
        bounds.append(certified(problem.network, weights, SCALE))

    for budget in (0.3, 1.0):
        result = descend_within(
            problem, start, SCALE, budget, stop=stopping.MaxIter(25), callback=callback
        )
        matrices = problem.network.linear(result.weights)
        folded = [matrices[0] * SCALE[:, None], *matrices[1:]]
        value = certificate.tight(folded, activation=activation).value
        assert 0.98 * budget <= value <= budget
        assert max(bounds) <= budget * (1 + 1e-9)
        assert result.loss == pytest.approx(float(problem.loss(result.weights)), rel=1e-12)
        assert result.loss <= result.records[-1].loss * (1 + 1e-12)
        assert len(result.records) == 25
        losses[budget] = result.loss
    assert losses[1.0] < losses[0.3]


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
