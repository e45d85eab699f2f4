"""Tests of the target gain: from noise, rows, parameters and depth, and within reach."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greatcircle import Network
from greatcircle.training.initialisation import initialise
from greatcircle.training.target_gain import automatic_target_gain, largest_target_gain


def network(of_a_layer, layers=4):
    """Return a network each of whose layers has this number of parameters."""
    return Network(([of_a_layer, 1] * layers)[: layers + 1])


def test_residuals_of_a_linear_fit_are_not_always_noise():
    """For a nonlinear function without noise, neighbours show that there is none."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2000, 2))
    Y = np.sin(4 * X[:, :1]) * np.cos(3 * X[:, 1:])
    noise = rng.standard_normal(Y.shape)
    assert automatic_target_gain(X, Y, network(500)) < 3
    assert automatic_target_gain(X, Y + noise, network(500)) > 10 * automatic_target_gain(
        X, Y, network(500)
    )


def test_a_row_is_not_a_neighbour_of_its_copy():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((200, 3)), rng.standard_normal((200, 1))
    once = automatic_target_gain(X, X[:, :1] + Y, network(5))
    twice = automatic_target_gain(np.tile(X, (2, 1)), np.tile(X[:, :1] + Y, (2, 1)), network(10))
    assert twice == pytest.approx(once, rel=1e-10)


@given(seed=st.integers(0, 1000), depth=st.integers(1, 5))
def test_no_matrices_with_these_norms_exceed_the_largest_target_gain(seed, depth):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, depth + 1)
    some = Network([int(size) for size in sizes])
    matrices = [rng.standard_normal(shape) for shape in some.shapes]
    norms = [np.linalg.norm(m) for m in matrices]
    line = matrices[0] if depth == 1 else np.linalg.multi_dot(matrices)
    assert largest_target_gain(some, norms, line) >= 0.5 * (1 - 1e-10)
    # Equal shares of each singular value reach it.
    u, gains, v = np.linalg.svd(line)
    rank = min(sizes)
    share = np.diag(gains[:rank] ** (1 / depth))
    shares = [share] * depth
    shares[0] = u[:, :rank] @ shares[0]
    shares[-1] = shares[-1] @ v[:rank]
    norms = [np.linalg.norm(s) for s in shares]
    assert largest_target_gain(some, norms, line) == pytest.approx(0.5, rel=1e-6)
    assert largest_target_gain(some, norms, 0 * line) == np.inf


def test_a_network_with_many_outputs_can_still_represent_the_linear_fit():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 10))
    Y = X @ rng.standard_normal((10, 10)) + 3 * rng.standard_normal((300, 10))
    three = Network((10, 10, 10, 10), bias=True)
    weights, scaling = initialise(three, X, Y, 0, dtype=np.float64)
    radii = [np.linalg.norm(w) for w in weights]
    scaled, targets = scaling.inputs(X), scaling.targets(Y)
    line = np.linalg.lstsq(scaled, targets, rcond=None)[0]
    gains = np.linalg.svd(line, compute_uv=False)
    needed = np.sum(gains ** (2 / 3)) ** (3 / 2)
    assert needed == pytest.approx(0.5 * np.prod(radii), rel=0.05)  # up to the ridge penalty
    used = np.sqrt(np.mean(targets**2))
    assert used < 0.5 * automatic_target_gain(X, Y, three)


def noisy(noise):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3))
    return X, X @ rng.standard_normal((3, 2)) + noise * rng.standard_normal((400, 2))


def test_the_target_gain_grows_with_the_noise_within_its_limits():
    gains = [automatic_target_gain(*noisy(size), network(10)) for size in (0.0, 3.0, 4.0, 1e9)]
    assert gains[0] == 1.0
    assert 1 < gains[1] < gains[2] < gains[3] == 100.0
    more = automatic_target_gain(*noisy(3.0), network(20))
    assert more == pytest.approx(2 * gains[1], rel=1e-12)
    X, _ = noisy(0.0)
    assert automatic_target_gain(X, np.full((400, 2), 3.0), network(10)) == 1.0


def test_every_layer_has_the_same_share_of_the_target_gain():
    shares = [
        automatic_target_gain(*noisy(3.0), network(10, layers)) ** (1 / layers)
        for layers in (1, 2, 3, 4, 8)
    ]
    assert shares[0] > 1
    assert shares == pytest.approx([shares[0]] * 5, rel=1e-12)
    assert automatic_target_gain(*noisy(1e9), network(10, 2)) == pytest.approx(10.0)
    assert automatic_target_gain(*noisy(1e9), network(10, 12)) == 100.0


def test_weights_equal_repetition():
    X, Y = (values[:6] for values in noisy(3.0))
    repeats = np.array([1, 3, 0, 2, 5, 1])
    X[2], Y[2] = 1e6, -1e6  # weight zero: changes nothing
    repeated = np.repeat(X, repeats, axis=0), np.repeat(Y, repeats, axis=0)
    weighted = automatic_target_gain(X, Y, network(2), repeats)
    assert weighted == pytest.approx(automatic_target_gain(*repeated, network(2)), rel=1e-10)


def test_the_targets_are_the_initial_outputs_times_the_target_gain():
    X, Y = noisy(3.0)
    three = Network((3, 5, 4, 2), bias=True)
    for gain in (1.0, 7.0):
        weights, scaling = initialise(three, X, Y, 0, target_gain=gain, radius=1.5, dtype="float64")
        outputs = three.predict(weights, scaling.inputs(X))
        size = np.sqrt(np.mean(scaling.targets(Y) ** 2) / np.mean(outputs**2))
        assert size == pytest.approx(gain, rel=1e-10)
    found = initialise(three, X, Y, 0, dtype="float64")[1].factor
    once = initialise(three, X, Y, 0, target_gain=1.0, dtype="float64")[1].factor
    assert 1.1 < found / once <= automatic_target_gain(X, Y, three) * (1 + 1e-12)


@pytest.mark.parametrize("gain", [0.0, -1.0, np.inf, np.nan])
def test_an_invalid_target_gain_is_named(gain):
    X, Y = noisy(0.0)
    with pytest.raises(ValueError, match=r"target_gain is .*; expected a positive number, or None"):
        initialise(Network((3, 5, 2)), X, Y, 0, target_gain=gain)
