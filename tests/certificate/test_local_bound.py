"""Bounds in a box of inputs, and the slopes of units in it."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greatcircle import certificate
from greatcircle.certificate import Box, digest, verify
from greatcircle.certificate.box import slopes_in_box
from oracle import activate
from small import ACTIVATION_NAMES, ROUNDING_FACTOR, random_network, rounding

NONDECREASING = [n for n in ACTIVATION_NAMES if n not in ("abs", "sin")]


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_smaller_boxes_have_smaller_bounds(activation):
    weights, biases = random_network(4, (4, 8, 8, 3), bias=True)
    options = {"biases": biases, "activation": activation}
    tight = certificate.tight(weights, **options).value
    middle = np.random.default_rng(0).standard_normal(4)
    values = []
    for half in (np.inf, 1e6, 1.0, 0.3, 0.1, 0.01, 0.0):
        found = certificate.local(weights, middle - half, middle + half, **options)
        assert verify(found, weights, biases)
        values.append(found.value)
    assert values[0] <= tight * (1 + 1e-6)
    assert all(b <= a * (1 + 1e-4) for a, b in pairwise(values))
    if activation in ("relu", "leaky_relu", "elu"):
        assert values[0] == pytest.approx(tight, rel=1e-6)
    if activation in NONDECREASING:
        slope = np.linalg.norm(jacobian(weights, biases, activation, middle), 2)
        assert slope * (1 - 1e-9) <= values[-1] <= slope * (1 + 1e-3)
    else:
        assert values == pytest.approx([tight] * len(values))


def jacobian(weights, biases, activation, x):
    """Return the Jacobian at x, by the oracle's activations."""
    h, J = x, np.eye(len(x))
    for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
        h, J = h @ w + b, J @ w
        if i < len(weights) - 1:
            h, slope = activate(activation, h)
            J = J * slope
    return J.T


@given(seed=st.integers(0, 10**6), activation=st.sampled_from(NONDECREASING))
def test_slopes_at_points_of_a_box_are_in_its_intervals(seed, activation):
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


def test_the_box_of_a_certificate_is_checked():
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
    hidden = replace(found, min_input_norm=1.0, holds="for ‖x‖ ≥ 1")  # words that hide the box
    assert "exclude each other" in str(verify(hidden, weights, biases))
    slopes = tuple(s.copy() for s in found.slopes)
    slopes[0][:, 1] *= 0.5
    assert not verify(replace(found, slopes=slopes), weights, biases)
    other = [-b for b in biases]
    assert not verify(replace(found, digest=digest(weights, other)), weights, other)


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
    """If intervals overflow or underflow, a unit may have any of its slopes."""
    first = np.array([[1.0, 1.0 if bias else -1.0]])
    last = np.array([[1.0], [-0.9 if bias else 0.9]])
    weights = [np.ldexp(first, power), np.ldexp(last, -power)]
    biases = [np.array([0.0, bias]), np.zeros(1)]
    found = certificate.local(weights, [low], [high], biases=biases, activation=activation)
    assert verify(found, weights, biases)
    # Between the two kinks, or beside the only one, one unit is on and the other is nearly off.
    assert found.value >= (0.89 if bias else 0.99)


def test_a_network_whose_units_are_off_in_a_box_is_constant_there():
    weights, biases = [np.ones((2, 3)), np.ones((3, 1))], [np.full(3, -10.0), np.zeros(1)]
    found = certificate.local(weights, [-1, -1], [1, 1], biases=biases)
    assert found.value == 0
    assert verify(found, weights, biases)
    assert not verify(replace(found, box=replace(found.box, high=np.full(2, 9.0))), weights, biases)


def test_boxes_by_names_in_physical_units(models):
    X, fitted = models
    model = fitted["standard"].model_
    model = replace(model, feature_names=("z", "v", "q", "u"))
    whole = certificate.local(model, {}, {})
    assert whole.value == pytest.approx(model.certificate.value, rel=1e-6)
    group = certificate.tight(model, inputs=["z"]).value
    for low, high in (({"z": 3.0}, {"z": 3.5}), ({"z": 0.0, "v": -1.0}, {"z": 1.0, "v": 1.0})):
        found = certificate.local(model, low, high, inputs=["z"])
        assert verify(found, model)
        assert found.value <= group * ROUNDING_FACTOR
    low, high = np.quantile(X, 0.4, axis=0), np.quantile(X, 0.6, axis=0)
    there = certificate.local(model, low, high)
    assert there.value <= whole.value * ROUNDING_FACTOR
    a, b = np.random.default_rng(0).uniform(low, high, (2, 1000, 4))
    rise = np.linalg.norm(model.predict(a) - model.predict(b), axis=1)
    run = np.linalg.norm(a - b, axis=1)
    assert np.all(rise <= there.value * run + rounding(model, a) + rounding(model, b))
