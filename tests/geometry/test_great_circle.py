"""The arc of Eq. (5) against the oracle and against automatic differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from greatcircle import sphere
from greatcircle._runtime.precision import precision
from greatcircle.geometry.great_circle import Arc

SHAPES = ((3, 4), (4, 2), (2, 5))
RADII = (1.0, 0.3, 7.0)
SPEEDS = (1.0, 0.0, 0.4)


def random_arc(seed):
    """Return an arc whose second layer does not move."""
    rng = np.random.default_rng(seed)
    weights = sphere.random_points(rng, SHAPES, RADII, np.float64)
    ambient = tuple(rng.standard_normal(shape) for shape in SHAPES)
    radii = jnp.asarray(RADII)
    heading = sphere.normalise(sphere.project(weights, ambient, radii))
    heading = tuple(s * v for s, v in zip(SPEEDS, heading, strict=True))
    return Arc(tuple(map(jnp.asarray, weights)), heading, radii)


@given(seed=st.integers(0, 10_000), angle=st.floats(-7, 7))
def test_points_agree_with_the_oracle_and_stay_on_the_spheres(seed, angle):
    with precision(np.float64):
        arc = random_arc(seed)
        point = arc.point(angle)
        expected = oracle.turn_all(
            [np.asarray(w) for w in arc.weights], [np.asarray(v) for v in arc.heading], RADII, angle
        )
        for ours, theirs in zip(point, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-12 * np.linalg.norm(theirs))
        np.testing.assert_allclose(sphere.norm(point), RADII, rtol=1e-14)


@pytest.mark.usefixtures("x64")
def test_velocity_and_higher_derivatives_are_those_of_the_point():
    arc = random_arc(0)
    np.testing.assert_allclose(arc.speeds, SPEEDS, rtol=1e-14)
    derivatives, derivative = arc.derivatives(5), arc.point
    assert len(derivatives) == 5
    for known in derivatives:
        derivative = jax.jacfwd(derivative)
        for ours, theirs in zip(known, derivative(jnp.zeros(())), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-11)
    for ours, theirs in zip(derivatives[0], arc.velocity, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.usefixtures("x64")
def test_derivatives_of_a_packed_arc_are_matrices():
    arc = random_arc(1)
    packed = Arc(sphere.pack(arc.weights), sphere.pack(arc.heading), arc.radii)
    for a, b in zip(arc.derivatives(3), packed.derivatives(3), strict=True):
        for ours, theirs in zip(a, b, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-14)


@given(seed=st.integers(0, 10_000), angle=st.floats(-3, 3))
def test_transport_along_the_arc_agrees_with_the_oracle(seed, angle):
    with precision(np.float64):
        arc = random_arc(seed)
        vectors = sphere.project(arc.weights, tuple(map(jnp.sin, arc.weights)), arc.radii)
        transported = arc.transport(vectors, angle)
        layers = zip(arc.weights, arc.heading, RADII, vectors, transported, strict=True)
        for w, v, radius, vector, ours in layers:
            expected = oracle.transport(*map(np.asarray, (w, v)), radius, angle, np.asarray(vector))
            np.testing.assert_allclose(ours, expected, atol=1e-12)
