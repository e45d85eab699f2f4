"""Bounds in order, proofs that prove, and no pair of inputs beyond any of them."""

import math
import sys
import tracemalloc
from copy import copy
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greatcircle import LipschitzRegressor, Network, certificate
from greatcircle.certificate import Box, digest, verify
from greatcircle.certificate.box import slopes_in_box
from greatcircle.certificate.closed_form import recursion
from greatcircle.certificate.interior import optimum
from greatcircle.certificate.proof import narrowed
from greatcircle.certificate.stack import stack
from greatcircle.data.scaling import Scaling
from greatcircle.network.activations import declare
from oracle import activate
from small import (
    ACTIVATION_NAMES,
    attack_bounds,
    evaluated,
    network_jacobian,
    pairs,
    random_network,
    rounding,
    thinned,
)

CLOSE = 1 + 1e-9


def sizes_of_depth(depth):
    return tuple(np.random.default_rng(depth).integers(2, 9, depth + 1).tolist())


# --- in order ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", thinned(range(200), 10))
def test_bounds_are_in_order(seed):
    weights, _ = random_network(seed, sizes_of_depth(2 + seed // 10 % 7))
    lower = certificate.lower(weights, starts=16).value
    bounds = [
        getattr(certificate, name)(weights) for name in ("tight", "fast", "spectral", "frobenius")
    ]
    assert lower <= bounds[0].value * CLOSE
    for tighter, looser in pairwise(bounds):
        assert tighter.value <= looser.value * CLOSE
    assert all(verify(bound, weights) for bound in bounds)


@pytest.mark.parametrize(
    ("activation", "depth"), thinned([(a, d) for a in ("abs", "sin") for d in range(2, 9)], 4)
)
def test_bounds_of_slopes_of_both_signs_are_in_order(activation, depth):
    weights, _ = random_network(depth, sizes_of_depth(depth))
    lower = certificate.lower(weights, activation=activation, starts=16).value
    bounds = [
        getattr(certificate, name)(weights, activation=activation)
        for name in ("tight", "fast", "spectral", "frobenius")
    ]
    assert lower <= bounds[0].value * CLOSE
    for tighter, looser in pairwise(bounds):
        assert tighter.value <= looser.value * CLOSE
    assert all(verify(bound, weights) for bound in bounds)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "abs", "identity"])
@pytest.mark.parametrize("depth", thinned(range(2, 9), 3))
def test_an_independent_solver_finds_the_same_bound(activation, depth):
    pytest.importorskip("clarabel")
    weights, _ = random_network(depth, sizes_of_depth(depth))
    tight = certificate.tight(weights, activation=activation)
    exact = certificate.exact(weights, activation=activation)
    assert exact.value == pytest.approx(tight.value, rel=2e-3)
    assert exact.method == "exact"
    assert verify(exact, weights)


def test_exact_needs_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "clarabel", None)
    with pytest.raises(ImportError, match=r"greatcircle\[sdp\]"):
        certificate.exact(random_network(0, (2, 3, 1))[0])


@given(seed=st.integers(0, 10**6), depth=st.integers(2, 8), activation=st.sampled_from(
    ["relu", "leaky_relu", "abs"]
))  # fmt: skip
def test_no_multipliers_prove_less_than_tight(seed, depth, activation):
    """The program is convex: no step towards any other multipliers may lower the bound."""
    weights, _ = random_network(seed, sizes_of_depth(depth))
    of = stack(weights, activation=activation)
    multipliers, value = optimum(of.matrices, of.slopes())
    rng = np.random.default_rng(seed)
    for size in (1e-3, 1e-1):
        moved = [m * np.exp(size * rng.standard_normal(m.shape)) for m in multipliers]
        candidate = of.certificate(value * (1 - 1e-6), "tight", moved, of.slopes())
        assert not verify(candidate, weights)


# --- known answers ----------------------------------------------------------------------------


def test_the_recursion_would_be_wrong_for_abs():
    weights = [[[1.0, -1.0]], [[1.0], [1.0]]]
    for name in ("tight", "exact", "fast", "spectral"):
        found = getattr(certificate, name)(weights, activation="abs")
        assert found.value == pytest.approx(2, rel=1e-6)
        assert verify(found, weights)
    matrices = [np.transpose(w) for w in weights]
    assert recursion(matrices)[1] == pytest.approx(np.sqrt(2))
    assert certificate.lower(weights, activation="abs", starts=8).value == pytest.approx(2)


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_identity_multiplies(depth):
    weights, _ = random_network(depth, sizes_of_depth(depth))
    product = np.linalg.norm(np.linalg.multi_dot(weights) if depth > 1 else weights[0], 2)
    found = certificate.tight(weights, activation="identity")
    assert product * (1 - 1e-12) <= found.value <= product * (1 + 2e-4)
    assert verify(found, weights)


def test_one_layer_is_its_norm():
    weights, _ = random_network(0, (5, 3))
    for name in ("tight", "exact", "fast", "spectral"):
        found = getattr(certificate, name)(weights)
        assert found.value == pytest.approx(np.linalg.norm(weights[0], 2), rel=1e-9)
        assert verify(found, weights)
    assert certificate.lower(weights, starts=4).value == pytest.approx(found.value, rel=1e-9)


def test_one_unit_is_a_product():
    found = certificate.tight([[[3.0]], [[-2.0]], [[0.5]]])
    assert found.value == pytest.approx(3, rel=1e-6)


@pytest.mark.parametrize("zeros", [(0,), (1,), (7,), (0, 3), tuple(range(8))])
@pytest.mark.parametrize("name", ["tight", "fast", "spectral", "frobenius"])
@pytest.mark.parametrize("activation", ["relu", "abs", "leaky_relu"])
def test_matrices_of_zeros(name, zeros, activation):
    weights, _ = random_network(3, (3, 4, 4, 4, 4, 4, 4, 4, 2))
    weights = [0 * w if i in zeros else w for i, w in enumerate(weights)]
    found = getattr(certificate, name)(weights, activation=activation)
    assert found.value == 0
    assert verify(found, weights)
    if name == "tight" and activation == "relu":
        assert certificate.lower(weights, starts=16).value == 0


@pytest.mark.parametrize("sizes", [(784, 10, 5), (4, 10, 300), (200, 3, 200)])
def test_wide_inputs_and_outputs(sizes):
    weights, _ = random_network(0, sizes)
    found = certificate.tight(weights)
    assert found.value <= certificate.fast(weights).value * CLOSE
    assert verify(found, weights)


def test_smaller_slopes_give_smaller_bounds():
    weights, _ = random_network(1, (6, 12, 12, 4))
    assert (
        certificate.tight(weights, activation="leaky_relu").value
        < certificate.tight(weights, activation="relu").value * (1 - 1e-4)
        < certificate.tight(weights, activation="abs").value
    )


def test_units_of_weights_do_not_matter():
    weights, _ = random_network(2, (4, 9, 9, 3))
    scaled = [1e-6 * weights[0], 1e9 * weights[1], weights[2]]
    ratio = certificate.tight(scaled).value / certificate.tight(weights).value
    assert ratio == pytest.approx(1e3, rel=1e-6)


def test_a_declared_activation_is_called_so():
    half = declare(lambda z: 0.5 * jnp.sin(z), (-0.5, 0.5), name="relu")
    weights, biases = random_network(0, (3, 5, 2), bias=True)
    known = certificate.tight(weights, biases=biases, activation="sin")
    found = certificate.tight(weights, biases=biases, activation=half)
    assert found.declared
    assert not known.declared
    assert "declared" in str(found)
    assert "declared" not in str(known)
    model = LipschitzRegressor((3,), half, max_iter=1, random_state=0).fit(np.eye(4), np.arange(4))
    for flag in (True, np.True_, 1):
        verdict = verify(replace(model.certificate_, declared=flag), model)
        assert "declared" in str(verdict)
    assert found.value == pytest.approx(known.value / 2, rel=1e-6)
    there = certificate.local(weights, -np.ones(3), np.ones(3), biases=biases, activation=half)
    assert there.declared
    assert there.value == pytest.approx(found.value)


# --- proofs -----------------------------------------------------------------------------------


def form(proof, weights, number=float):
    """The quadratic form of the proof from its definition, in floating point or in fractions.

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
    """LDLᵀ in exact arithmetic."""
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
    if lower > 0:  # a few narrow networks are off everywhere: any value is a bound of theirs
        # A value below a slope that the network has is no bound.
        assert not verify(replace(found, value=below * lower), weights)
        # relu is homogeneous: a layer c times as large makes every slope c times as large.
        factor *= found.value / lower
        larger = [factor * w if i == layer else w for i, w in enumerate(weights)]
        assert not verify(replace(found, digest=digest(larger)), larger)
    # One weight or one multiplier: whether it breaks the proof, other arithmetic says.
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
def test_numbers_that_make_no_proof(change):
    weights, _ = random_network(0, (3, 4, 2))
    assert not verify(replace(certificate.tight(weights), **change), weights)


def test_a_proof_for_other_slopes_does_not_hold_for_the_network():
    """Slopes are part of what is proved: abs cannot be proved with the multipliers of relu."""
    weights, _ = random_network(0, (3, 8, 8, 2))
    found = certificate.tight(weights)
    assert not verify(replace(found, slopes=stack(weights, activation="abs").slopes()), weights)


def test_a_verdict_says_why_and_what_was_not_checked(models):
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
        ("paper", lambda m: certificate.tight(m, at_least=10.0)),
        ("paper", lambda m: certificate.tight(m, at_least=10.0, inputs=[0])),
    ],
)
def test_no_field_of_a_models_certificate_can_be_altered(models, kind, bound):
    """Each alteration would pass for matrices alone or make the bound look better than it is."""
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
        {"at_least": 20.0 if found.at_least else 1.0},
        {"multipliers": tuple(m * 1000 for m in found.multipliers)},
    ]
    if found.holds != "everywhere":
        alterations.append({"holds": "everywhere"})
        everywhere = {"holds": "everywhere", "inputs": None, "at_least": None, "box": None}
        alterations.append(everywhere)
        alterations.append(everywhere | {"slopes": certificate.tight(model).slopes})
    for change in alterations:
        assert not verify(replace(found, **change), model), change
    for name, value in vars(found).items():  # of another kind altogether
        for other in (None, "text", -1.0, np.ones((2, 2)), [object()]):
            if not (value is None and other is None):
                altered = verify(replace(found, **{name: other}), model)
                assert not altered or name == "method"


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


def log2(fraction):
    """Of a fraction that floating point may not hold."""
    return math.log2(fraction.numerator) - math.log2(fraction.denominator)


def log2_products(of, weights):
    """log₂ of the square of the gain up to each hidden unit of a chain."""
    gains = [Fraction(float(w[0, 0])) ** 2 for w in weights[:-1]]
    return np.cumsum([log2(g) for g in gains]) + 2 * math.log2(of.scale[0])


@pytest.mark.parametrize("seed", range(400))
def test_no_bound_is_too_low_for_numbers_of_any_size(seed):
    """A chain of single units has a constant that fractions know, also where products underflow."""
    rng = np.random.default_rng(seed)
    powers = rng.choice([-1070, -1060, -540, -100, 0, 100, 540], rng.integers(1, 4))
    if len(powers) > 1:
        powers[0] = np.clip(-powers[1:].sum() + rng.integers(-300, 300), -1000, 900)
    weights = [np.ldexp(rng.uniform(0.5, 1, (1, 1)), p) for p in powers[:-1]]
    weights.append(np.ldexp(rng.uniform(0.5, 1, (1, 3)), powers[-1]))
    scale, gain = np.ldexp(rng.uniform(0.5, 1, 2), rng.choice([-540, -100, 0, 100, 540], 2))
    plain = stack(weights, orientation="in-out")
    square = math.prod(Fraction(float(w[0, 0])) ** 2 for w in weights[:-1])
    square *= sum(Fraction(float(w)) ** 2 for w in weights[-1][0])
    units = (Fraction(float(scale)) * Fraction(float(gain))) ** 2
    other = replace(plain, scale=np.array([scale]), gain=float(gain))
    for of, truth in ((plain, square), (other, square * units)):
        with np.errstate(over="ignore"):  # the check refuses infinity
            value = float(np.exp2(log2(truth) / 2))
            multipliers = [np.array([np.exp2(1 - p)]) for p in log2_products(of, weights)]
        for factor in (0.6, 0.8, 0.95, 1 - 1e-9, 1 + 1e-9):
            found = of.certificate(value * factor, "chain", multipliers, of.slopes())
            assert not verify(found, weights) or Fraction(found.value) ** 2 >= truth


@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
@pytest.mark.parametrize(
    ("power", "low", "high", "bias"),
    [
        (0, -1.0, 1.0, 0.0),
        (-400, -1e-210, 1e-210, 0.0),
        (-120, -1e-300, 1e-300, 0.0),
        (400, -1e100, 1e200, 1e200),
        (400, -1e200, 1e300, 0.0),
    ],
)
def test_boxes_of_any_size_have_sound_slopes(activation, power, low, high, bias):
    """Where intervals overflow or vanish, a unit may have any of its slopes."""
    first = np.array([[1.0, 1.0 if bias else -1.0]])
    last = np.array([[1.0], [-0.9 if bias else 0.9]])
    weights = [np.ldexp(first, power), np.ldexp(last, -power)]
    biases = [np.array([0.0, bias]), np.zeros(1)]
    found = certificate.local(weights, [low], [high], biases=biases, activation=activation)
    assert verify(found, weights, biases)
    # Between the two kinks, or beside the only one, a single unit is on and the other nearly off.
    assert found.value >= (0.89 if bias else 0.99)


def test_a_margin_knows_the_range_of_float32():
    for weights in ([[[1e30]], [[2.2e-45]]], [[[1e-10]], [[3.5e38]]], [[[1e-50]], [[1.0]]]):
        found = certificate.tight(weights)
        with np.errstate(over="ignore"):
            rounded = [np.float64(np.float32(w[0][0])) for w in weights]
        assert rounded[0] * rounded[1] <= found.value * (1 + found.margin)
        assert verify(found, weights)


@given(
    seed=st.integers(0, 10**6),
    activation=st.sampled_from(ACTIVATION_NAMES),
    share=st.sampled_from([0.3, 0.6, 0.9]),
)
def test_networks_with_weights_of_zero(seed, activation, share):
    """Units that nothing reaches or that reach nothing, and networks that are constant."""
    rng = np.random.default_rng(seed)
    weights, _ = random_network(seed, sizes_of_depth(int(rng.integers(1, 6))))
    weights = [np.where(rng.random(w.shape) < share, 0.0, w) for w in weights]
    of = {"activation": activation, "orientation": "in-out"}
    paths = np.linalg.multi_dot([np.abs(w) for w in weights]) if len(weights) > 1 else weights[0]
    columns = len(weights[0])
    bounds = [
        certificate.local(weights, -np.ones(columns), np.ones(columns), **of),
        *(getattr(certificate, n)(weights, **of) for n in ("tight", "fast", "spectral")),
    ]
    for found in bounds:
        assert verify(found, weights)
    values = [found.value for found in bounds]
    assert values[1:] == sorted(values[1:])
    assert values[0] <= values[1] * CLOSE
    assert (values[1] == 0) == (not np.any(paths))
    x, y = pairs(rng, 50, columns)
    (f, e), (g, d) = (evaluated(weights, None, activation, rows) for rows in (x, y))
    run = np.linalg.norm(x - y, axis=1)
    assert np.all(np.linalg.norm(f - g, axis=1) <= values[1] * run * (1 + 1e-15) + e + d)


def test_a_unit_that_is_off_in_a_box_makes_the_network_constant_there():
    weights, biases = [np.ones((2, 3)), np.ones((3, 1))], [np.full(3, -10.0), np.zeros(1)]
    found = certificate.local(weights, [-1, -1], [1, 1], biases=biases)
    assert found.value == 0
    assert verify(found, weights, biases)
    assert not verify(replace(found, box=replace(found.box, high=np.full(2, 9.0))), weights, biases)


@given(seed=st.integers(0, 10**6))
def test_narrowed_layers_are_no_smaller_in_exact_arithmetic(seed):
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(1, 4)), int(rng.integers(4, 9))
    a = rng.standard_normal((rows, columns)) * 10.0 ** rng.integers(-100, 100, (rows, 1))
    if seed % 3 == 0:
        a[-1] = a[0]  # linearly dependent
    square = narrowed(a)
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


# --- pairs of inputs --------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), activation=st.sampled_from(ACTIVATION_NAMES), bias=st.booleans())
def test_no_pair_is_beyond_a_bound(seed, activation, bias):
    rng = np.random.default_rng(seed)
    weights, biases = random_network(seed, sizes_of_depth(int(rng.integers(1, 6))), bias)
    attack_bounds(rng, weights, biases, activation, 500)


@pytest.fixture(scope="module")
def models():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 4)) * [1, 5, 0.1, 2] + [3, 0, 1, 0]
    Y = np.stack([np.abs(X[:, 0] - 3) + X[:, 1], 5 * X[:, 2] * X[:, 3]], axis=1)
    first = LipschitzRegressor((8, 6), max_iter=5, random_state=0, scaling="standard").fit(X, Y)
    fitted = {"standard": first}
    for name in ("max", "paper"):
        fitted[name] = copy(first)
        fitted[name].scaling_ = Scaling.fit(name, X, Y)
    fitted["max"].weights_ = tuple(np.asarray(w, np.float32) for w in first.weights_)
    return X, fitted


@pytest.mark.parametrize("kind", ["standard", "max"])
def test_no_pair_of_predictions_is_beyond_the_certificate(models, kind):
    X, fitted = models
    model = fitted[kind]
    bound = model.certificate_
    rng = np.random.default_rng(1)
    a = X[rng.integers(len(X), size=2000)] + rng.standard_normal((2000, 4))
    b = a + 10 ** rng.uniform(-4, 1, (2000, 1)) * rng.standard_normal((2000, 4))
    block = certificate.tight(model, inputs=[1, 3])
    for found, right in ((bound, b), (block, np.where([False, True, False, True], b, a))):
        assert verify(found, model)
        rise = np.linalg.norm(model.predict(a) - model.predict(right), axis=1)
        run = np.linalg.norm(a - right, axis=1)
        assert np.all(rise <= found.value * run + rounding(model, a) + rounding(model, right))
    assert np.all(np.linalg.norm(model.jacobian(a), 2, axis=(1, 2)) <= bound.value * CLOSE)
    lower = certificate.lower(model, X=X, starts=16)
    assert 0.3 * bound.value < lower.value <= bound.value * CLOSE
    slope = np.linalg.norm(model.jacobian(lower.at[None])[0], 2)
    assert slope == pytest.approx(lower.value, rel=1e-6)


def test_the_papers_scaling_is_bounded_away_from_zero(models):
    model = models[1]["paper"]
    rng = np.random.default_rng(2)
    for least in (0.5, 1.0, 10.0):
        bound = certificate.tight(model, at_least=least)
        assert f"{least:g}" in bound.holds
        assert bound.value == pytest.approx(certificate.tight(model).value / least, rel=1e-6)
        a = rng.standard_normal((2000, 4))
        a *= least * 10 ** rng.uniform(0, 1, (2000, 1)) / np.linalg.norm(a, axis=1, keepdims=True)
        b = a + 10 ** rng.uniform(-4, 1, (2000, 1)) * rng.standard_normal((2000, 4))
        b = np.where(np.linalg.norm(b, axis=1, keepdims=True) < least, a, b)
        rise = np.linalg.norm(model.predict(a) - model.predict(b), axis=1)
        assert np.all(rise <= bound.value * np.linalg.norm(a - b, axis=1) + 1e-12)
        lower = certificate.lower(model, at_least=least, starts=16)
        assert lower.value <= bound.value * CLOSE
        assert np.linalg.norm(lower.at) == pytest.approx(least)
        slope = np.linalg.norm(model.jacobian(lower.at[None])[0], 2)
        assert slope == pytest.approx(lower.value, rel=1e-6)
        block = certificate.lower(model, at_least=least, inputs=[0], starts=16)
        assert block.value <= lower.value * CLOSE


def test_blocks_add_up(models):
    model = models[1]["standard"]
    whole = model.certificate_.value
    parts = [certificate.tight(model, inputs=[i]).value for i in range(4)]
    assert max(parts) <= whole * CLOSE
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


# --- in a box ---------------------------------------------------------------------------------

WITH_RULE = [n for n in ACTIVATION_NAMES if n not in ("abs", "sin")]


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_smaller_boxes_have_smaller_bounds(activation):
    weights, biases = random_network(4, (4, 8, 8, 3), bias=True)
    of = {"biases": biases, "activation": activation}
    tight = certificate.tight(weights, **of).value
    middle = np.random.default_rng(0).standard_normal(4)
    values = []
    for half in (np.inf, 1e6, 1.0, 0.3, 0.1, 0.01, 0.0):
        found = certificate.local(weights, middle - half, middle + half, **of)
        assert verify(found, weights, biases)
        values.append(found.value)
    assert values[0] <= tight * (1 + 1e-6)
    assert all(b <= a * (1 + 1e-4) for a, b in pairwise(values))
    if activation in ("relu", "leaky_relu", "elu"):
        assert values[0] == pytest.approx(tight, rel=1e-6)
    if activation in WITH_RULE:
        slope = np.linalg.norm(jacobian(weights, biases, activation, middle), 2)
        assert slope * (1 - 1e-9) <= values[-1] <= slope * (1 + 1e-3)
    else:
        assert values == pytest.approx([tight] * len(values))


def jacobian(weights, biases, activation, x):
    h, J = x, np.eye(len(x))
    for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
        h, J = h @ w + b, J @ w
        if i < len(weights) - 1:
            h, slope = activate(activation, h)
            J = J * slope
    return J.T


@given(seed=st.integers(0, 10**6), activation=st.sampled_from(WITH_RULE))
def test_slopes_in_a_box_are_those_of_its_points(seed, activation):
    rng = np.random.default_rng(seed)
    weights, biases = random_network(seed, (3, 5, 4, 2), bias=True)
    low = 3 * rng.standard_normal(3)
    high = low + 10 ** rng.uniform(-3, 1) * rng.uniform(0, 1, 3)
    shift, scale = rng.standard_normal(3), rng.uniform(-2, 2, 3)
    box = Box(low, high, shift, scale, activation)
    slopes = slopes_in_box(box, [w.T for w in weights], biases)
    h = (rng.uniform(low, high, (300, 3)) - shift) * scale
    for (least, most), w, b in zip((s.T for s in slopes), weights, biases, strict=False):
        h, slope = activate(activation, h @ w + b)
        assert np.all((slope >= least) & (slope <= most))


def test_a_certificate_in_a_box_is_checked_with_the_box():
    weights, biases = random_network(4, (4, 8, 8, 3), bias=True)
    found = certificate.local(weights, -0.1 * np.ones(4), 0.1 * np.ones(4), biases=biases)
    assert found.value < 0.9 * certificate.tight(weights, biases=biases).value
    assert "in a box" in found.holds
    assert found.box is not None
    for change in (
        {"high": np.ones(4)},
        {"low": -np.ones(4)},
        {"high": -np.ones(4)},
        {"shift": np.ones(4)},
        {"scale": np.zeros(4)},
        {"low": np.zeros(3)},
        {"activation": "abs"},
        {"high": np.full(4, np.nan)},
    ):
        assert not verify(replace(found, box=replace(found.box, **change)), weights, biases)
    hidden = replace(found, at_least=1.0, holds="for ‖x‖ ≥ 1")  # words that leave out the box
    assert "exclude each other" in str(verify(hidden, weights, biases))
    slopes = tuple(s.copy() for s in found.slopes)
    slopes[0][:, 1] *= 0.5
    assert not verify(replace(found, slopes=slopes), weights, biases)
    other = [-b for b in biases]
    assert not verify(replace(found, digest=digest(weights, other)), weights, other)


def test_boxes_in_physical_units_by_name(models):
    X, fitted = models
    model = copy(fitted["standard"])
    model.feature_names_in_ = np.array(["z", "v", "q", "u"], dtype=object)
    whole = certificate.local(model, {}, {})
    assert whole.value == pytest.approx(model.certificate_.value, rel=1e-6)
    block = certificate.tight(model, inputs=["z"]).value
    for low, high in (({"z": 3.0}, {"z": 3.5}), ({"z": 0.0, "v": -1.0}, {"z": 1.0, "v": 1.0})):
        found = certificate.local(model, low, high, inputs=["z"])
        assert verify(found, model)
        assert found.value <= block * CLOSE
    low, high = np.quantile(X, 0.4, axis=0), np.quantile(X, 0.6, axis=0)
    there = certificate.local(model, low, high)
    assert there.value <= whole.value * CLOSE
    a, b = np.random.default_rng(0).uniform(low, high, (2, 1000, 4))
    model = fitted["standard"]  # which knows no names to warn of
    rise = np.linalg.norm(model.predict(a) - model.predict(b), axis=1)
    run = np.linalg.norm(a - b, axis=1)
    assert np.all(rise <= there.value * run + rounding(model, a) + rounding(model, b))


# --- the largest slope found ------------------------------------------------------------------


def test_ascent_finds_more_than_samples():
    weights, _ = random_network(7, (8, 16, 16, 16, 2))
    rng = np.random.default_rng(0)
    network = Network((8, 16, 16, 16, 2))
    samples = network_jacobian(network, weights, rng.standard_normal((10_000, 8)))
    found = certificate.lower(weights, seed=1)
    assert found.value > 1.05 * np.linalg.norm(samples, 2, axis=(1, 2)).max()
    slope = np.linalg.norm(network_jacobian(network, weights, found.at[None])[0], 2)
    assert slope == pytest.approx(found.value, rel=1e-9)
    assert found.method == "lower"
    assert "below" in str(found)
    assert certificate.lower(weights, seed=1).value == found.value


def test_kinks_are_not_counted():
    """At x = 0 both units of |x| = relu(x) + relu(−x) are at their kink, and no slope is 2."""
    weights = [[[1.0, -1.0]], [[1.0], [-1.0]]]
    assert certificate.lower(weights, X=[[0.0]], starts=1).value == pytest.approx(1)
