"""Sandwich layers: networks with a Lipschitz bound by construction, and their loss."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from greatcircle import certificate, sphere
from greatcircle._runtime.precision import precision
from greatcircle.bounded import sandwich
from greatcircle.bounded.budget import certified_bound, multipliers
from greatcircle.bounded.objective import SandwichObjective
from sandwich_problems import (
    ACTIVATIONS,
    RNG,
    SCALE,
    X,
    network_weights,
    problem_of,
    random_layers,
    sandwich_objective,
)


@pytest.mark.parametrize("hidden", [(), (6,), (6, 5, 4)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_all_layers_have_the_bound(activation, bias, hidden):
    network = problem_of(activation, bias, hidden).network
    for seed in range(5):
        weights = network_weights(network, random_layers(network, seed), 1.7)
        network.check_weights(weights)
        assert certified_bound(network, weights, SCALE) <= 1.7 * (1 + 1e-9)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_multipliers_that_prove_the_bound_are_those_of_the_layers(activation):
    network = problem_of(activation).network
    layers = random_layers(network)
    weights = network_weights(network, layers, 1.7)
    proof = []
    for layer, (fan_in, out) in zip(layers[:-1], pairwise(network.sizes[:-1]), strict=True):
        psi = np.exp(layer[-1] * np.sqrt(out) / np.linalg.norm(layer[: fan_in + out]))
        proof.append((1 if activation == "abs" else 2) * psi**2 / 1.7)
    linear = [w[:-1] for w in weights]
    linear[0] = linear[0] * SCALE[:, None]
    least = -1.0 if activation == "abs" else 0.0
    found = certificate.Certificate(
        value=1.7 * (1 + 1e-9),
        method="sandwich",
        multipliers=tuple(proof),
        slopes=tuple(np.tile([least, 1.0], (len(m), 1)) for m in proof),
        scale=np.ones(3),
        gain=1.0,
        digest=certificate.proof.digest(linear),
    )
    assert certificate.verify(found, linear)


def test_the_network_depends_on_neither_length_nor_triangular_factor_of_a_layer():
    network = problem_of("tanh").network
    layers = random_layers(network)
    weights = network_weights(network, layers, 0.9)
    longer = network_weights(network, [3 * layer for layer in layers], 0.9)
    with precision(np.float64):
        orthonormal = [
            np.asarray(sandwich.orthonormal(jnp.asarray(layer), fan_in + out))
            for layer, (fan_in, out) in zip(layers, pairwise(network.sizes), strict=True)
        ]
    for layer, (fan_in, out) in zip(orthonormal, pairwise(network.sizes), strict=True):
        G = layer[: fan_in + out]
        np.testing.assert_allclose(G.T @ G, np.eye(out), atol=1e-12)
    for same in (longer, network_weights(network, orthonormal, 0.9)):
        for a, b in zip(weights, same, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_the_derivative_of_the_orthonormal_factor_is_that_of_its_definition():
    with precision(np.float64):
        G, cotangent = (jnp.asarray(RNG.standard_normal((9, 4))) for _ in range(2))

        def plain(G):
            lower = jnp.linalg.cholesky(G.T @ G)
            return jax.scipy.linalg.solve_triangular(lower, G.T, lower=True).T

        np.testing.assert_allclose(sandwich.orthonormal_factor(G), plain(G), rtol=1e-12)
        got, expected = (
            jax.vjp(f, G)[1](cotangent)[0] for f in (sandwich.orthonormal_factor, plain)
        )
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_layers_of_a_network_stand_for_it(activation, bias):
    network = problem_of(activation, bias).network
    weights = network_weights(network, random_layers(network), 1.7, 2.0)
    proof, value = multipliers(network, weights, SCALE)
    bound = 1.2 * value
    layers = sandwich.layers_of(network, weights, proof, SCALE, bound, 2.0)
    again = network_weights(network, layers, bound, 2.0)
    expected = network.predict(weights, X * SCALE)
    error = network.predict(again, X * SCALE) - expected
    # Multipliers that prove the least bound make A nearly singular, which costs digits.
    assert np.linalg.norm(error) <= 0.02 * np.linalg.norm(expected)


def test_layers_of_a_network_with_a_dead_unit_are_finite():
    network = problem_of().network
    weights = [w.copy() for w in network_weights(network, random_layers(network), 1.0)]
    weights[0][:, 0] = weights[1][0] = 0
    proof, value = multipliers(network, weights, SCALE)
    layers = sandwich.layers_of(network, weights, proof, SCALE, 2 * value, 1.0)
    assert all(np.all(np.isfinite(layer)) for layer in layers)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_objective_is_the_loss_of_the_network(activation):
    problem = problem_of(activation, sample_weight=RNG.uniform(0.5, 2, 300))
    layers = random_layers(problem.network)
    expected = float(problem.loss(network_weights(problem.network, layers, 0.8, 1.5)))
    with precision(np.float64):
        objective = sandwich_objective(problem, 0.8, 1.5)
        arrays = tuple(map(jnp.asarray, layers))
        for loss in (objective.value(arrays), objective.forward(arrays)[0]):
            assert float(loss * objective.unit) == pytest.approx(expected, rel=1e-12)
        assert objective.count == 300


def test_the_gradient_of_the_objective_is_its_derivative():
    """The remainder of the first-order expansion falls with the square of the step."""
    problem = problem_of("tanh")
    layers = random_layers(problem.network)
    rng = np.random.default_rng(1)
    directions = [rng.standard_normal(layer.shape) for layer in layers]
    with precision(np.float64):
        objective = sandwich_objective(problem, 0.8, 1.5)
        value = jax.jit(lambda layers: objective.value(layers))
        loss, cache = objective.forward(tuple(map(jnp.asarray, layers)))
        gradient, _ = objective.backward(tuple(map(jnp.asarray, layers)), cache)
        slope = sum(float(np.sum(g * d)) for g, d in zip(gradient, directions, strict=True))
        remainders = [
            abs(
                float(value(tuple(w + t * d for w, d in zip(layers, directions, strict=True))))
                - float(loss)
                - t * slope
            )
            for t in (1e-3, 1e-4)
        ]
    assert remainders[0] < 0.1 * 1e-3 * abs(slope)
    assert remainders[0] / remainders[1] == pytest.approx(100, rel=0.1)


def test_the_objective_of_some_rows_keeps_the_unit():
    problem = problem_of()
    with precision(np.float64):
        objective = sandwich_objective(problem, 0.8)
        rows = problem.rows.pick(lambda values, axis: jnp.take(values, jnp.arange(100), axis))
        some = objective.with_rows(rows.with_weight(jnp.full(100, 0.01)))
        assert isinstance(some, SandwichObjective)
        assert (some.count, float(some.unit)) == (100, float(objective.unit))
        layers = random_layers(problem.network)
        weights = network_weights(problem.network, layers, 0.8)
        outputs = problem.network.predict(weights, np.asarray(problem.inputs)[:100])
        targets = np.asarray(problem.targets)[:100]
        expected = np.mean(np.sum((outputs - targets) ** 2, axis=1)) / 2
        found = float(some.value(tuple(map(jnp.asarray, layers))) * some.unit)
        assert found == pytest.approx(expected, rel=1e-12)


def test_conditioning_changes_the_factors_and_not_the_network():
    problem = problem_of("tanh")
    layers = random_layers(problem.network)
    with precision(np.float64):
        objective = sandwich_objective(problem, 0.8, 1.5)
        arrays = tuple(map(jnp.asarray, layers))
        conditioned = sphere.unpack(objective.conditioned(sphere.pack(arrays)))
        before, after = objective.weights(arrays), objective.weights(conditioned)
    for layer, (fan_in, out) in zip(conditioned, pairwise(problem.network.sizes), strict=True):
        G = np.asarray(layer)[: fan_in + out]
        np.testing.assert_allclose(G.T @ G, np.eye(out), atol=1e-12)
    for a, b in zip(before, after, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
