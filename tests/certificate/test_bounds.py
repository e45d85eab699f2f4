"""Bounds: their order, known answers, and no pair of inputs that exceeds any of them."""

import sys
import tracemalloc
from dataclasses import replace
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greatcircle import LipschitzRegressor, certificate
from greatcircle.certificate import verify
from greatcircle.certificate.closed_form import eclipse_fast
from greatcircle.certificate.lipsdp import optimal_multipliers
from greatcircle.certificate.scaled_network import as_scaled_network
from greatcircle.network.activations import declare
from small import (
    ACTIVATION_NAMES,
    ROUNDING_FACTOR,
    attack_bounds,
    evaluated,
    pairs,
    random_network,
    rounding,
    sizes_of_depth,
    thinned,
)


@pytest.mark.parametrize("seed", thinned(range(200), 10))
def test_bounds_are_in_order(seed):
    weights, _ = random_network(seed, sizes_of_depth(2 + seed // 10 % 7))
    lower = certificate.lower(weights, starts=16).value
    bounds = [
        getattr(certificate, name)(weights) for name in ("tight", "fast", "spectral", "frobenius")
    ]
    assert lower <= bounds[0].value * ROUNDING_FACTOR
    for tighter, looser in pairwise(bounds):
        assert tighter.value <= looser.value * ROUNDING_FACTOR
    assert all(verify(bound, weights) for bound in bounds)


@pytest.mark.parametrize(
    ("activation", "depth"), thinned([(a, d) for a in ("abs", "sin") for d in range(2, 9)], 4)
)
def test_bounds_for_slopes_of_both_signs_are_in_order(activation, depth):
    weights, _ = random_network(depth, sizes_of_depth(depth))
    lower = certificate.lower(weights, activation=activation, starts=16).value
    bounds = [
        getattr(certificate, name)(weights, activation=activation)
        for name in ("tight", "fast", "spectral", "frobenius")
    ]
    assert lower <= bounds[0].value * ROUNDING_FACTOR
    for tighter, looser in pairwise(bounds):
        assert tighter.value <= looser.value * ROUNDING_FACTOR
    assert all(verify(bound, weights) for bound in bounds)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "abs", "identity"])
@pytest.mark.parametrize("depth", thinned(range(2, 9), 3))
def test_an_independent_solver_finds_the_same_bound(activation, depth):
    pytest.importorskip("clarabel")
    weights, _ = random_network(depth, sizes_of_depth(depth))
    tight = certificate.tight(weights, activation=activation)
    exact = certificate.sdp(weights, activation=activation)
    assert exact.value == pytest.approx(tight.value, rel=2e-3)
    assert exact.method == "sdp"
    assert verify(exact, weights)


def test_sdp_without_clarabel_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "clarabel", None)
    with pytest.raises(ImportError, match=r"greatcircle\[sdp\]"):
        certificate.sdp(random_network(0, (2, 3, 1))[0])


@given(seed=st.integers(0, 10**6), depth=st.integers(2, 8), activation=st.sampled_from(
    ["relu", "leaky_relu", "abs"]
))  # fmt: skip
def test_no_multipliers_prove_less_than_tight(seed, depth, activation):
    """The program is convex, so no step towards other multipliers lowers the bound."""
    weights, _ = random_network(seed, sizes_of_depth(depth))
    network = as_scaled_network(weights, activation=activation)
    multipliers, value = optimal_multipliers(network.matrices, network.slopes())
    rng = np.random.default_rng(seed)
    for size in (1e-3, 1e-1):
        moved = [m * np.exp(size * rng.standard_normal(m.shape)) for m in multipliers]
        candidate = network.certificate(value * (1 - 1e-6), "tight", moved, network.slopes())
        assert not verify(candidate, weights)


def test_eclipse_fast_would_be_wrong_for_abs():
    weights = [[[1.0, -1.0]], [[1.0], [1.0]]]
    for name in ("tight", "sdp", "fast", "spectral"):
        found = getattr(certificate, name)(weights, activation="abs")
        assert found.value == pytest.approx(2, rel=1e-6)
        assert verify(found, weights)
    matrices = [np.transpose(w) for w in weights]
    assert eclipse_fast(matrices)[1] == pytest.approx(np.sqrt(2))
    assert certificate.lower(weights, activation="abs", starts=8).value == pytest.approx(2)


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_identity_has_the_norm_of_the_product_of_its_layers(depth):
    weights, _ = random_network(depth, sizes_of_depth(depth))
    product = np.linalg.norm(np.linalg.multi_dot(weights) if depth > 1 else weights[0], 2)
    found = certificate.tight(weights, activation="identity")
    assert product * (1 - 1e-12) <= found.value <= product * (1 + 2e-4)
    assert verify(found, weights)


def test_one_layer_has_its_norm_as_bound():
    weights, _ = random_network(0, (5, 3))
    for name in ("tight", "sdp", "fast", "spectral"):
        found = getattr(certificate, name)(weights)
        assert found.value == pytest.approx(np.linalg.norm(weights[0], 2), rel=1e-9)
        assert verify(found, weights)
    assert certificate.lower(weights, starts=4).value == pytest.approx(found.value, rel=1e-9)


def test_layers_of_one_unit_have_the_product_as_bound():
    found = certificate.tight([[[3.0]], [[-2.0]], [[0.5]]])
    assert found.value == pytest.approx(3, rel=1e-6)


@pytest.mark.parametrize("zeros", [(0,), (1,), (7,), (0, 3), tuple(range(8))])
@pytest.mark.parametrize("name", ["tight", "fast", "spectral", "frobenius"])
@pytest.mark.parametrize("activation", ["relu", "abs", "leaky_relu"])
def test_a_matrix_of_zeros_gives_the_bound_zero(name, zeros, activation):
    weights, _ = random_network(3, (3, 4, 4, 4, 4, 4, 4, 4, 2))
    weights = [0 * w if i in zeros else w for i, w in enumerate(weights)]
    found = getattr(certificate, name)(weights, activation=activation)
    assert found.value == 0
    assert verify(found, weights)
    if name == "tight" and activation == "relu":
        assert certificate.lower(weights, starts=16).value == 0


@given(
    seed=st.integers(0, 10**6),
    activation=st.sampled_from(ACTIVATION_NAMES),
    share=st.sampled_from([0.3, 0.6, 0.9]),
)
def test_networks_with_weights_of_zero(seed, activation, share):
    """Some units are not connected to inputs or outputs, and some networks are constant."""
    rng = np.random.default_rng(seed)
    weights, _ = random_network(seed, sizes_of_depth(int(rng.integers(1, 6))))
    weights = [np.where(rng.random(w.shape) < share, 0.0, w) for w in weights]
    options = {"activation": activation, "orientation": "in-out"}
    paths = np.linalg.multi_dot([np.abs(w) for w in weights]) if len(weights) > 1 else weights[0]
    columns = len(weights[0])
    bounds = [
        certificate.local(weights, -np.ones(columns), np.ones(columns), **options),
        *(getattr(certificate, n)(weights, **options) for n in ("tight", "fast", "spectral")),
    ]
    for found in bounds:
        assert verify(found, weights)
    values = [found.value for found in bounds]
    assert values[1:] == sorted(values[1:])
    assert values[0] <= values[1] * ROUNDING_FACTOR
    assert (values[1] == 0) == (not np.any(paths))
    x, y = pairs(rng, 50, columns)
    (f, e), (g, d) = (evaluated(weights, None, activation, rows) for rows in (x, y))
    run = np.linalg.norm(x - y, axis=1)
    assert np.all(np.linalg.norm(f - g, axis=1) <= values[1] * run * (1 + 1e-15) + e + d)


@pytest.mark.parametrize("sizes", [(784, 10, 5), (4, 10, 300), (200, 3, 200)])
def test_many_inputs_or_outputs(sizes):
    weights, _ = random_network(0, sizes)
    found = certificate.tight(weights)
    assert found.value <= certificate.fast(weights).value * ROUNDING_FACTOR
    assert verify(found, weights)


@pytest.mark.parametrize("sizes", [(20_000, 3, 2), (3, 4, 20_000), (20_000, 2), (2, 20_000)])
def test_many_inputs_or_outputs_take_little_memory(sizes):
    weights, _ = random_network(0, sizes)
    tracemalloc.start()
    for name in ("tight", "fast"):
        found = getattr(certificate, name)(weights)
        assert verify(found, weights)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 30e6  # a matrix of all inputs would take 3.2e9


def test_smaller_slopes_give_smaller_bounds():
    weights, _ = random_network(1, (6, 12, 12, 4))
    assert (
        certificate.tight(weights, activation="leaky_relu").value
        < certificate.tight(weights, activation="relu").value * (1 - 1e-4)
        < certificate.tight(weights, activation="abs").value
    )


def test_rescaled_layers_rescale_the_bound():
    weights, _ = random_network(2, (4, 9, 9, 3))
    scaled = [1e-6 * weights[0], 1e9 * weights[1], weights[2]]
    ratio = certificate.tight(scaled).value / certificate.tight(weights).value
    assert ratio == pytest.approx(1e3, rel=1e-6)


@pytest.mark.parametrize("power", [-140, -100, -20, 20, 100, 140])
@pytest.mark.parametrize("activation", ["relu", "abs", "identity", "leaky_relu"])
def test_bounds_of_any_size_are_proved(power, activation):
    weights, _ = random_network(5, (4, 6, 5, 3))
    expected = certificate.tight(weights, activation=activation).value
    for layer in range(3):
        scaled = [w * 10.0**power if i == layer else w for i, w in enumerate(weights)]
        for name in ("tight", "fast", "spectral", "frobenius"):
            found = getattr(certificate, name)(scaled, activation=activation)
            assert verify(found, scaled)
            assert not verify(replace(found, value=1e-3 * found.value), scaled)
        tight = certificate.tight(scaled, activation=activation).value
        assert tight == pytest.approx(expected * 10.0**power, rel=1e-6)
    huge = [weights[0], weights[1] * 1e100, weights[2] * 1e100]
    assert verify(certificate.tight(huge, activation=activation), huge)


def test_certificates_say_that_slopes_were_declared():
    half = declare(lambda z: 0.5 * jnp.sin(z), (-0.5, 0.5), name="relu")
    weights, biases = random_network(0, (3, 5, 2), bias=True)
    known = certificate.tight(weights, biases=biases, activation="sin")
    found = certificate.tight(weights, biases=biases, activation=half)
    assert found.declared
    assert not known.declared
    assert "declared" in str(found)
    assert "declared" not in str(known)
    model = LipschitzRegressor((3,), half, selection=False, max_iter=1, random_state=0)
    model.fit(np.eye(4), np.arange(4))
    for flag in (True, np.True_, 1):
        verdict = verify(replace(model.certificate_, declared=flag), model)
        assert "declared" in str(verdict)
    assert found.value == pytest.approx(known.value / 2, rel=1e-6)
    there = certificate.local(weights, -np.ones(3), np.ones(3), biases=biases, activation=half)
    assert there.declared
    assert there.value == pytest.approx(found.value)


def test_square_matrices_need_an_orientation():
    weights, _ = random_network(0, (4, 4, 4, 4))
    with pytest.raises(ValueError, match="orientation='out-in'"):
        certificate.tight(weights)
    here = certificate.tight(weights, orientation="in-out")
    there = certificate.tight([w.T for w in weights], orientation="out-in")
    assert here == there
    assert here.value != certificate.tight(weights, orientation="out-in").value
    assert verify(here, weights)
    assert not verify(here, [w.T for w in weights])
    assert verify(here, [w.T for w in weights], orientation="out-in")
    symmetric = [w + w.T for w in weights]
    assert certificate.tight(symmetric) == certificate.tight(symmetric, orientation="out-in")
    torch, _ = random_network(0, (3, 5, 2))
    with pytest.raises(ValueError, match="orientation='out-in'"):
        certificate.tight([w.T for w in torch])
    assert certificate.tight([w.T for w in torch], orientation="out-in").value == pytest.approx(
        certificate.tight(torch).value, rel=1e-12
    )


@given(seed=st.integers(0, 10**6), activation=st.sampled_from(ACTIVATION_NAMES), bias=st.booleans())
def test_no_pair_of_inputs_exceeds_a_bound(seed, activation, bias):
    rng = np.random.default_rng(seed)
    weights, biases = random_network(seed, sizes_of_depth(int(rng.integers(1, 6))), bias)
    attack_bounds(rng, weights, biases, activation, 500)


@pytest.mark.parametrize("kind", ["standard", "max"])
def test_no_pair_of_predictions_exceeds_the_certificate(models, kind):
    X, fitted = models
    model = fitted[kind]
    bound = model.certificate_
    rng = np.random.default_rng(1)
    a = X[rng.integers(len(X), size=2000)] + rng.standard_normal((2000, 4))
    b = a + 10 ** rng.uniform(-4, 1, (2000, 1)) * rng.standard_normal((2000, 4))
    group = certificate.tight(model, inputs=[1, 3])
    for found, right in ((bound, b), (group, np.where([False, True, False, True], b, a))):
        assert verify(found, model)
        rise = np.linalg.norm(model.predict(a) - model.predict(right), axis=1)
        run = np.linalg.norm(a - right, axis=1)
        assert np.all(rise <= found.value * run + rounding(model, a) + rounding(model, right))
    slopes = np.linalg.norm(model.jacobian(a), 2, axis=(1, 2))
    assert slopes.max() <= bound.value * ROUNDING_FACTOR
    lower = certificate.lower(model, X=X, starts=16)
    assert 0.3 * bound.value < lower.value <= bound.value * ROUNDING_FACTOR
    slope = np.linalg.norm(model.jacobian(lower.at[None])[0], 2)
    assert slope == pytest.approx(lower.value, rel=1e-6)


def test_the_paper_scaling_has_a_bound_away_from_zero(models):
    model = models[1]["paper"]
    rng = np.random.default_rng(2)
    for least in (0.5, 1.0, 10.0):
        bound = certificate.tight(model, min_input_norm=least)
        assert f"{least:g}" in bound.holds
        assert bound.value == pytest.approx(certificate.tight(model).value / least, rel=1e-6)
        a = rng.standard_normal((2000, 4))
        a *= least * 10 ** rng.uniform(0, 1, (2000, 1)) / np.linalg.norm(a, axis=1, keepdims=True)
        b = a + 10 ** rng.uniform(-4, 1, (2000, 1)) * rng.standard_normal((2000, 4))
        b = np.where(np.linalg.norm(b, axis=1, keepdims=True) < least, a, b)
        rise = np.linalg.norm(model.predict(a) - model.predict(b), axis=1)
        assert np.all(rise <= bound.value * np.linalg.norm(a - b, axis=1) + 1e-12)
        lower = certificate.lower(model, min_input_norm=least, starts=16)
        assert lower.value <= bound.value * ROUNDING_FACTOR
        assert np.linalg.norm(lower.at) == pytest.approx(least)
        slope = np.linalg.norm(model.jacobian(lower.at[None])[0], 2)
        assert slope == pytest.approx(lower.value, rel=1e-6)
        group = certificate.lower(model, min_input_norm=least, inputs=[0], starts=16)
        assert group.value <= lower.value * ROUNDING_FACTOR


def test_bounds_of_groups_of_inputs_add_up(models):
    model = models[1]["standard"]
    whole = model.certificate_.value
    parts = [certificate.tight(model, inputs=[i]).value for i in range(4)]
    assert max(parts) <= whole * ROUNDING_FACTOR
    assert whole <= np.linalg.norm(parts) * (1 + 1e-6)
    assert "other inputs than 1 fixed" in certificate.tight(model, inputs=[1]).holds


def test_weights_rounded_to_float32_stay_within_the_margin():
    for seed, activation in enumerate(("relu", "leaky_relu", "abs", "tanh")):
        weights, _ = random_network(seed, (5, 12, 12, 3))
        found = certificate.tight(weights, activation=activation)
        rounded = [w.astype(np.float32).astype(float) for w in weights]
        assert 0 < found.margin < 1e-4
        again = certificate.tight(rounded, activation=activation)
        assert again.value <= found.value * (1 + found.margin)
