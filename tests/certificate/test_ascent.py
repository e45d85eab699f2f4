"""The largest Jacobian norm found."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from greatcircle import Network, certificate
from greatcircle.network.activations import declare
from small import ACTIVATION_NAMES, ROUNDING_FACTOR, network_jacobian, random_network


def test_ascent_finds_larger_slopes_than_sampling():
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


def test_jacobians_at_kinks_do_not_count():
    """At x = 0 both units of |x| = relu(x) + relu(−x) are at their kink, and no slope is 2."""
    weights = [[[1.0, -1.0]], [[1.0], [-1.0]]]
    assert certificate.lower(weights, X=[[0.0]], starts=1).value == pytest.approx(1)


@pytest.mark.parametrize("sizes", [(3, 7, 30), (30, 7, 3), (5, 4)])
@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_the_slope_found_is_that_of_the_network(activation, sizes):
    weights, _ = random_network(3, sizes)
    found = certificate.lower(weights, activation=activation, starts=8)
    jacobian = network_jacobian(Network(sizes, activation), weights, found.at[None])[0]
    assert np.linalg.norm(jacobian, 2) == pytest.approx(found.value, rel=1e-6)
    tight = certificate.tight(weights, activation=activation).value
    assert found.value <= tight * ROUNDING_FACTOR


def test_declared_activations_are_searched_too():
    half = declare(lambda z: 0.5 * jnp.sin(z), (-0.5, 0.5))
    weights, _ = random_network(0, (3, 5, 2))
    found = certificate.lower(weights, activation=half, starts=4)
    known = certificate.lower(weights, activation="sin", starts=4)
    assert found.value == pytest.approx(known.value / 2, rel=1e-6)


def test_bounds_do_not_import_jax():
    program = (
        "import sys; from greatcircle import certificate; w = [[[1.0, -1.0]], [[1.0], [1.0]]]; "
        "certificate.verify(certificate.tight(w), w); certificate.lower(w, starts=1); "
        "certificate.local(w, [0], [1]); sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
