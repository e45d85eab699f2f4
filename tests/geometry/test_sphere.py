"""Spheres and great circles against the oracle, and their properties."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from greatcircle import sphere
from greatcircle._runtime.precision import precision
from small import thinned

SHAPES = ((3, 4), (4, 2), (2, 5))
RADII = np.array([1.0, 0.3, 7.0])


def points_and_tangents(seed, dtype=np.float64):
    rng = np.random.default_rng(seed)
    points = sphere.random_points(rng, SHAPES, RADII, dtype)
    ambient = tuple(rng.standard_normal(s).astype(dtype) for s in SHAPES)
    return points, sphere.project(points, ambient, RADII.astype(dtype)), ambient


@given(seed=st.integers(0, 10_000))
def test_projection_agrees_with_the_oracle_and_is_idempotent(seed):
    with precision(np.float64):
        points, tangents, ambient = points_and_tangents(seed)
        again = sphere.project(points, tangents, RADII)
        for x, v, a, h, r in zip(points, tangents, again, ambient, RADII, strict=True):
            np.testing.assert_allclose(v, oracle.project(x, h, r), atol=1e-13)
            np.testing.assert_allclose(a, v, atol=1e-14)
            assert abs(np.sum(x * v)) < 1e-13 * r


@given(seed=st.integers(0, 10_000), angle=st.floats(-7, 7))
def test_turn_is_the_exponential_map(seed, angle):
    with precision(np.float64):
        points, tangents, _ = points_and_tangents(seed)
        moved = sphere.turn(points, tangents, angle, RADII)
        for x, v, m, r in zip(points, tangents, moved, RADII, strict=True):
            np.testing.assert_allclose(m, oracle.turn(x, np.asarray(v), r, angle), atol=1e-12 * r)
        np.testing.assert_allclose(sphere.norm(moved), RADII, rtol=1e-14)


@given(seed=st.integers(0, 10_000), angle=st.floats(0, 3))
def test_angle_measures_the_turn(seed, angle):
    with precision(np.float64):
        points, tangents, _ = points_and_tangents(seed)
        headings = sphere.normalise(tangents)
        moved = sphere.turn(points, headings, angle, RADII)
        np.testing.assert_allclose(sphere.angles(points, moved), angle, atol=1e-14, rtol=1e-13)
        distance = sphere.distance(points, moved)
        np.testing.assert_allclose(distance, np.sqrt(3) * angle, atol=1e-14, rtol=1e-13)


@pytest.mark.usefixtures("x64")
def test_angles_near_zero_and_pi_are_accurate():
    x = jnp.array([[1.0, 0.0]])
    for angle in (1e-12, np.pi - 1e-9):
        y = jnp.array([[np.cos(angle), np.sin(angle)]])
        assert abs(float(sphere.angles(x, y)[0]) - angle) < 1e-15 + 1e-12 * min(angle, 1e-3)
    # The paper's arccos returns zero for the first of them.
    assert oracle.distance(np.asarray(x), np.array([[np.cos(1e-12), 1e-12]]), 1.0) == 0


@given(seed=st.integers(0, 10_000), angle=st.floats(-3, 3))
def test_transport_is_an_isometry_onto_the_tangent_space(seed, angle):
    with precision(np.float64):
        points, headings, _ = points_and_tangents(seed)
        _, u, _ = points_and_tangents(seed + 1)
        u = sphere.project(points, u, RADII)
        v = sphere.project(points, jax.tree.map(jnp.sin, headings), RADII)
        moved = sphere.turn(points, headings, angle, RADII)
        tu = sphere.transport(points, headings, angle, u, RADII)
        tv = sphere.transport(points, headings, angle, v, RADII)
        np.testing.assert_allclose(sphere.inner(moved, tu) / RADII, 0, atol=1e-12)
        np.testing.assert_allclose(sphere.inner(tu, tv), sphere.inner(u, v), atol=1e-12)


@given(seed=st.integers(0, 10_000), angle=st.floats(0.01, 3))
def test_transport_maps_the_velocity_to_the_velocity(seed, angle):
    """The velocity of a geodesic is parallel along it."""
    with precision(np.float64):
        points, headings, _ = points_and_tangents(seed)
        velocity = sphere.scale(headings, RADII)
        transported = sphere.transport(points, headings, angle, velocity, RADII)
        _, derivative = jax.jvp(
            lambda t: sphere.turn(points, headings, t, RADII), (jnp.asarray(angle),), (1.0,)
        )
        for a, b in zip(transported, derivative, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-11)


@pytest.mark.parametrize("angle", thinned((1e-2, 1e-4, 1e-3, 1e-1), 4))
def test_norm_survives_a_hundred_thousand_float32_turns(angle):
    """Each turn along a new random tangent, all in one compiled loop."""
    shape, radius = (25, 30), 1.7
    rng = np.random.default_rng(0)
    start = jnp.asarray(sphere.random_point(rng, shape, radius))

    def random_turn(carry, key):
        x, worst = carry
        heading = sphere.normalise(sphere.project(x, jax.random.normal(key, shape), radius))
        x = sphere.turn(x, heading, angle, radius)
        return (x, jnp.maximum(worst, jnp.abs(sphere.norm(x)[0] - radius))), None

    keys = jax.random.split(jax.random.key(1), 100_000)
    optimised = jax.jit(
        lambda x: jax.lax.scan(random_turn, (x, jnp.zeros(())), keys),
        compiler_options={"xla_backend_optimization_level": 3},
    )
    (end, worst), _ = optimised(start)
    assert end.dtype == jnp.float32
    assert float(worst) / radius < 1e-6
    assert abs(np.linalg.norm(np.asarray(end, np.float64)) / radius - 1) < 1e-6
    assert float(sphere.distance(start, end)) > 10 * angle  # the point has moved


def test_zero_headings_and_zero_matrices_stay():
    x = jnp.asarray(sphere.random_point(np.random.default_rng(0), (3, 3)))
    np.testing.assert_allclose(sphere.turn(x, jnp.zeros((3, 3)), 1.0), x, rtol=1e-6)
    np.testing.assert_array_equal(sphere.normalise(jnp.zeros((3, 3))), 0)
    np.testing.assert_array_equal(sphere.norm(jnp.zeros((2, 2))), 0)


@pytest.mark.parametrize("size", [1e-37, 1e-30, 1e30, 8e37])
def test_norm_neither_underflows_nor_overflows(size):
    x = jnp.full((4, 4), size, jnp.float32)
    np.testing.assert_allclose(sphere.norm(x), 4 * np.float32(size), rtol=1e-6)


def test_random_points_are_on_their_spheres_and_repeatable():
    draw = [sphere.random_points(np.random.default_rng(3), SHAPES, RADII) for _ in range(2)]
    for a, b, r in zip(*draw, RADII, strict=True):
        assert a.dtype == np.float32
        np.testing.assert_array_equal(a, b)
        assert abs(np.linalg.norm(a) / r - 1) < 1e-6


def test_one_matrix_gives_the_same_as_a_tuple_of_one():
    x = sphere.random_point(np.random.default_rng(0), (3, 2), 2.0)
    v = np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(sphere.project(x, v, 2.0), sphere.project((x,), (v,), 2.0)[0])
