import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from greatcircle import Network, PaperScaling
from greatcircle.scaling import spectral_initialisation
from small import small


@given(seed=st.integers(0, 1000), exponent=st.integers(-8, 8))
def test_algorithm_1_agrees_with_the_oracle(seed, exponent):
    s = small(seed, rows=9)
    Y = s.Y * 10.0**exponent
    train, test = slice(0, 6), slice(6, 9)
    _, X1, Y1, X2, Y2, factor = oracle.spectral_initialisation(
        s.weights, s.X[train], Y[train], s.X[test], Y[test], s.radii
    )
    scaling = PaperScaling.fit(Y[train], s.weights)
    assert scaling.factor == pytest.approx(factor, rel=1e-13)
    np.testing.assert_allclose(scaling.inputs(s.X), np.concatenate([X1, X2]), rtol=1e-14)
    np.testing.assert_allclose(scaling.targets(Y), np.concatenate([Y1, Y2]), rtol=1e-13)
    np.testing.assert_allclose(scaling.outputs(scaling.targets(Y)), Y, rtol=1e-15)


def test_scaled_training_targets_just_fit_under_the_gain():
    s = small(0)
    scaling = PaperScaling.fit(s.Y, s.weights)
    gain = np.prod([np.linalg.norm(w, 2) for w in s.weights])
    longest = np.linalg.norm(scaling.targets(s.Y), axis=1).max()
    assert longest == pytest.approx(gain, rel=1e-14)
    assert scaling.bound(gain) == pytest.approx(np.linalg.norm(s.Y, axis=1).max(), rel=1e-14)


def test_the_test_part_does_not_leak():
    s = small(0)
    scaling = PaperScaling.fit(s.Y[:4], s.weights)
    louder = s.Y.copy()
    louder[4:] *= 100
    assert PaperScaling.fit(louder[:4], s.weights) == scaling


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1.0, 1e160, 1e300])
def test_rows_of_every_magnitude_come_to_unit_norm(size):
    rows = PaperScaling(1.0).inputs(size * np.array([[3.0, 4.0], [0.0, 0.0]]))
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0.0, 0.0]], rtol=1e-14)


@pytest.mark.parametrize(
    "targets", [np.zeros((4, 2)), np.full((4, 2), 3.0), np.array([[1.0, 2.0]])]
)
def test_zero_constant_and_single_targets(targets):
    network = Network((3, 4, 2))
    weights, scaling = spectral_initialisation(network, targets, 0)
    assert np.isfinite(scaling.factor)
    assert scaling.factor > 0
    np.testing.assert_allclose(scaling.outputs(scaling.targets(targets)), targets, rtol=1e-15)
    assert all(abs(np.linalg.norm(w) - 1) < 1e-6 for w in weights)
