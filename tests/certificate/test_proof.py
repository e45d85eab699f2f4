"""The check of certificates: against exact arithmetic, and against altered certificates."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greatcircle import certificate
from greatcircle.certificate import digest, verify
from greatcircle.certificate.proof import gram_factor
from greatcircle.certificate.scaled_network import as_scaled_network
from small import (
    random_network,
    sizes_of_depth,
    thinned,
)


def form(proof, weights, number=float):
    """Return the quadratic form of the proof by its definition, in floats or in fractions.

    Variables δx, δh of each hidden unit, δf; ‖δx‖² + Σ λ (δh − α δz)(δh − β δz) + 2 δfᵀ A h + L²‖δf‖².
    """  # noqa: E501
    sizes = [len(weights[0]), *(len(w[0]) for w in weights)]
    ends = np.cumsum([0, *sizes]).tolist()
    M = [[number(0)] * ends[-1] for _ in range(ends[-1])]
    for i in range(sizes[0]):
        M[i][i] = number(1)

    def add(rows, columns, factor):
        for i, p in rows.items():
            for j, q in columns.items():
                M[i][j] += factor * p * q / 2
                M[j][i] += factor * p * q / 2

    for k, w in enumerate(weights):
        factor = [number(float(s)) for s in proof.scale] if k == 0 else [number(1)] * sizes[k]
        for j in range(sizes[k + 1]):
            z = {ends[k] + i: number(float(w[i][j])) * factor[i] for i in range(sizes[k])}
            here = ends[k + 1] + j
            if k == len(weights) - 1:
                gain = number(float(proof.gain))
                add({here: number(1)}, {i: 2 * gain * a for i, a in z.items()}, number(1))
                M[here][here] += number(float(proof.value)) ** 2
                continue
            low, high = (number(float(s)) for s in proof.slopes[k][j])
            p, q = ({i: -s * a for i, a in z.items()} | {here: number(1)} for s in (low, high))
            add(p, q, number(float(proof.multipliers[k][j])))
    return M


def is_semidefinite(M):
    """Decide it by an LDLᵀ factorisation in exact arithmetic."""
    M, n = [list(row) for row in M], len(M)
    for k in range(n):
        if M[k][k] < 0 or (M[k][k] == 0 and any(M[i][k] != 0 for i in range(k + 1, n))):
            return False
        if M[k][k] > 0:
            for i in range(k + 1, n):
                factor = M[i][k] / M[k][k]
                for j in range(k + 1, n):
                    M[i][j] -= factor * M[k][j]
    return True


def least_eigenvalue(M):
    M = np.array(M)
    root = 1 / np.sqrt(np.maximum(np.diagonal(M), 1e-300))
    return np.linalg.eigvalsh(root[:, None] * M * root)[0]


@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(["tight", "fast", "spectral"]),
    activation=st.sampled_from(["relu", "leaky_relu", "abs"]),
    change=st.sampled_from([0.0, 1e-12, 1e-10, 1e-6, 1e-3, -1e-12, -1e-10, -1e-6, -1e-3]),
)
def test_verify_is_as_strict_as_exact_arithmetic(seed, name, activation, change):
    rng = np.random.default_rng(seed)
    weights, _ = random_network(seed, tuple(rng.integers(1, 4, rng.integers(2, 5)).tolist()))
    found = getattr(certificate, name)(weights, activation=activation)
    assert verify(found, weights)
    assert is_semidefinite(form(found, weights, Fraction))
    altered = replace(found, value=found.value * (1 + change))
    truth = is_semidefinite(form(altered, weights, Fraction))
    assert truth or not verify(altered, weights)
    if change >= 0:
        assert truth
        assert verify(altered, weights)
    if len(weights) > 1:
        layer = rng.integers(len(weights) - 1)
        multipliers = [m.copy() for m in found.multipliers]
        multipliers[layer][rng.integers(len(multipliers[layer]))] *= np.exp(10 * change)
        altered = replace(found, multipliers=tuple(multipliers))
        assert is_semidefinite(form(altered, weights, Fraction)) or not verify(altered, weights)


def test_any_altered_weight_fails_the_hash():
    weights, biases = random_network(0, (3, 4, 2), bias=True)
    found = certificate.tight(weights, biases=biases)
    assert verify(found, weights, biases)
    assert not verify(found, weights)
    for arrays in (weights, biases):
        for array in arrays:
            for index in np.ndindex(array.shape):
                kept = array[index]
                array[index] = np.nextafter(kept, np.inf)
                assert not verify(found, weights, biases)
                array[index] = kept
    assert verify(found, weights, biases)
    assert not verify(found, weights[::-1], biases)


@pytest.mark.parametrize("seed", thinned(range(1000), 10))
def test_alterations_that_break_the_bound_are_rejected(seed):
    rng = np.random.default_rng(seed)
    depth = 2 + seed // 10 % 4
    weights, _ = random_network(seed, sizes_of_depth(depth))
    found = getattr(certificate, ("tight", "fast", "spectral")[rng.integers(3)])(weights)
    lower = certificate.lower(weights, starts=16).value
    assert verify(found, weights)
    layer = rng.integers(depth)
    below, factor = rng.uniform(0.1, 0.999), rng.uniform(1.001, 3)
    if lower > 0:  # in a few narrow networks all units are off everywhere
        # A value below a slope of the network is not a bound.
        assert not verify(replace(found, value=below * lower), weights)
        # relu is homogeneous: a layer c times as large makes every slope c times as large.
        factor *= found.value / lower
        larger = [factor * w if i == layer else w for i, w in enumerate(weights)]
        assert not verify(replace(found, digest=digest(larger)), larger)
    # If one weight or one multiplier is altered, eigenvalues tell whether the proof still holds.
    entry = [w.copy() for w in weights]
    index = tuple(rng.integers(entry[layer].shape))
    entry[layer][index] += rng.choice([-1, 1]) * 10 ** rng.uniform(-3, 2)
    multipliers = [m.copy() for m in found.multipliers]
    hidden = rng.integers(depth - 1)
    multipliers[hidden][rng.integers(len(multipliers[hidden]))] *= 10 ** rng.uniform(-3, 3)
    negative = [m.copy() for m in found.multipliers]
    negative[hidden][0] *= -1
    for proof, layers in (
        (replace(found, digest=digest(entry)), entry),
        (replace(found, multipliers=tuple(multipliers)), weights),
        (replace(found, value=found.value * rng.uniform(1, 2)), weights),
    ):
        least = least_eigenvalue(form(proof, layers))
        if abs(least) > 1e-11:
            assert bool(verify(replace(proof, margin=np.inf), layers)) == (least > 0)
    assert not verify(replace(found, multipliers=tuple(negative)), weights)


@pytest.mark.parametrize(
    "change",
    [
        {"value": np.nan},
        {"value": np.inf},
        {"value": -3.0},
        {"value": 0.0},
        {"gain": np.nan},
        {"gain": 1e200},
        {"scale": np.full(3, np.nan)},
        {"scale": np.ones(2)},
        {"multipliers": ()},
        {"multipliers": (np.ones(3),)},
        {"multipliers": (np.full(4, np.nan),)},
        {"multipliers": (np.full(4, np.inf),)},
        {"multipliers": (np.zeros(4),)},
        {"slopes": ()},
        {"slopes": (np.full((4, 2), np.nan),)},
    ],
    ids=str,
)
def test_invalid_numbers_are_rejected(change):
    weights, _ = random_network(0, (3, 4, 2))
    assert not verify(replace(certificate.tight(weights), **change), weights)


def test_multipliers_for_relu_do_not_prove_a_bound_for_abs():
    """The proof depends on the slopes of the units."""
    weights, _ = random_network(0, (3, 8, 8, 2))
    found = certificate.tight(weights)
    assert not verify(
        replace(found, slopes=as_scaled_network(weights, activation="abs").slopes()), weights
    )


def test_a_verdict_gives_the_reason_and_what_was_taken_on_trust(models):
    weights, _ = random_network(0, (3, 4, 2))
    found = certificate.tight(weights)
    verdict = verify(found, weights)
    assert verdict
    assert str(verdict).startswith("verified, taking on trust: units")
    refused = verify(replace(found, value=found.value / 2), weights)
    assert not refused
    assert str(refused).startswith("not verified: its multipliers do not prove the bound")
    assert "weights and biases" in str(verify(found, [2 * w for w in weights]))
    model = models[1]["standard"]
    assert str(verify(model.certificate_, model)) == "verified"


@pytest.mark.parametrize(
    ("kind", "bound"),
    [
        ("standard", lambda m: m.certificate_),
        ("max", lambda m: certificate.fast(m)),
        ("standard", lambda m: certificate.tight(m, inputs=[1, 3])),
        ("standard", lambda m: certificate.local(m, [3, 0, 1, 0], [3.1, 0.1, 1.1, 0.1])),
        ("paper", lambda m: certificate.tight(m, min_input_norm=10.0)),
        ("paper", lambda m: certificate.tight(m, min_input_norm=10.0, inputs=[0])),
    ],
)
def test_no_field_of_the_certificate_of_a_model_can_be_altered(models, kind, bound):
    """Each alteration would pass for matrices alone or make the bound look better."""
    model = models[1][kind]
    found = bound(model)
    assert verify(found, model)
    less = found.value / 1000
    alterations = [
        {"value": less},
        {"value": less, "gain": found.gain / 1000},
        {"value": less, "scale": found.scale / 1000},
        {"value": less, "slopes": tuple(s / 1000 for s in found.slopes)},
        {"slopes": tuple(0 * s for s in found.slopes), "value": 0.0},
        {"margin": 0.0},
        {"margin": found.margin / 1000},
        {"holds": "on the whole moon"},
        {"declared": not found.declared},
        {"digest": "0" * 64},
        {"scale": found.scale * [1, 1, 0, 1], "value": less},
        {"inputs": (2,)}
        if found.inputs
        else {"inputs": (1, 2), "scale": found.scale * [0, 1, 1, 0]},
        {"min_input_norm": 20.0 if found.min_input_norm else 1.0},
        {"multipliers": tuple(m * 1000 for m in found.multipliers)},
    ]
    if found.holds != "everywhere":
        alterations.append({"holds": "everywhere"})
        everywhere = {"holds": "everywhere", "inputs": None, "min_input_norm": None, "box": None}
        alterations.append(everywhere)
        alterations.append(everywhere | {"slopes": certificate.tight(model).slopes})
    for change in alterations:
        assert not verify(replace(found, **change), model), change
    for name, value in vars(found).items():  # values of another type
        for other in (None, "text", -1.0, np.ones((2, 2)), [object()]):
            if not (value is None and other is None):
                altered = verify(replace(found, **{name: other}), model)
                assert not altered or name == "method"


def log2(fraction):
    """Return log₂ of a fraction that may be out of the range of floats."""
    return math.log2(fraction.numerator) - math.log2(fraction.denominator)


def log2_products(network, weights):
    """Return log₂ of the square of the gain up to each hidden unit of a chain."""
    gains = [Fraction(float(w[0, 0])) ** 2 for w in weights[:-1]]
    return np.cumsum([log2(g) for g in gains]) + 2 * math.log2(network.scale[0])


@pytest.mark.parametrize("seed", range(400))
def test_no_bound_is_too_low_for_numbers_of_any_size(seed):
    """For layers of one unit, fractions give the constant even if products underflow."""
    rng = np.random.default_rng(seed)
    powers = rng.choice([-1070, -1060, -540, -100, 0, 100, 540], rng.integers(1, 4))
    if len(powers) > 1:
        powers[0] = np.clip(-powers[1:].sum() + rng.integers(-300, 300), -1000, 900)
    weights = [np.ldexp(rng.uniform(0.5, 1, (1, 1)), p) for p in powers[:-1]]
    weights.append(np.ldexp(rng.uniform(0.5, 1, (1, 3)), powers[-1]))
    scale, gain = np.ldexp(rng.uniform(0.5, 1, 2), rng.choice([-540, -100, 0, 100, 540], 2))
    plain = as_scaled_network(weights, orientation="in-out")
    square = math.prod(Fraction(float(w[0, 0])) ** 2 for w in weights[:-1])
    square *= sum(Fraction(float(w)) ** 2 for w in weights[-1][0])
    units = (Fraction(float(scale)) * Fraction(float(gain))) ** 2
    other = replace(plain, scale=np.array([scale]), gain=float(gain))
    for network, truth in ((plain, square), (other, square * units)):
        with np.errstate(over="ignore"):  # the check rejects infinity
            value = float(np.exp2(log2(truth) / 2))
            multipliers = [np.array([np.exp2(1 - p)]) for p in log2_products(network, weights)]
        for factor in (0.6, 0.8, 0.95, 1 - 1e-9, 1 + 1e-9):
            found = network.certificate(value * factor, "chain", multipliers, network.slopes())
            assert not verify(found, weights) or Fraction(found.value) ** 2 >= truth


def test_the_margin_covers_the_range_of_float32():
    for weights in ([[[1e30]], [[2.2e-45]]], [[[1e-10]], [[3.5e38]]], [[[1e-50]], [[1.0]]]):
        found = certificate.tight(weights)
        with np.errstate(over="ignore"):
            rounded = [np.float64(np.float32(w[0][0])) for w in weights]
        assert rounded[0] * rounded[1] <= found.value * (1 + found.margin)
        assert verify(found, weights)


@given(seed=st.integers(0, 10**6))
def test_gram_factors_are_no_smaller_in_exact_arithmetic(seed):
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(1, 4)), int(rng.integers(4, 9))
    a = rng.standard_normal((rows, columns)) * 10.0 ** rng.integers(-100, 100, (rows, 1))
    if seed % 3 == 0:
        a[-1] = a[0]  # linearly dependent
    square = gram_factor(a)
    assert square.shape == (rows, rows)
    exact, larger = ([[Fraction(v) for v in row] for row in m.tolist()] for m in (a, square))
    difference = [
        [
            sum(p * q for p, q in zip(larger[i], larger[j], strict=True))
            - sum(p * q for p, q in zip(exact[i], exact[j], strict=True))
            for j in range(rows)
        ]
        for i in range(rows)
    ]
    assert is_semidefinite(difference)
    size = np.linalg.norm(a, axis=1)
    np.testing.assert_allclose(np.linalg.norm(square, axis=1), size, rtol=1e-13)
