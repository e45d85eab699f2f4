"""Derivatives along an arc, by the slopes of their Taylor remainders and against the oracle."""

import math
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracle
from greatcircle import sphere
from greatcircle._runtime.precision import precision
from greatcircle.geometry.great_circle import Arc
from greatcircle.network.activations import declare
from greatcircle.optimise import arc as arcs
from small import ACTIVATION_NAMES, LOSS_NAMES, small, thinned

KINKED = ("relu", "leaky_relu", "abs", "softsign", "elu")  # also those with a kink in a derivative

HEADINGS = 5


def remainder_order(angles, values, derivatives):
    """Return the log-log slope of the remainder of Taylor polynomials.

    The median over several arcs: on one alone, two terms of the remainder may happen to cancel.
    """
    slopes = []
    for row, taylor in zip(np.asarray(values), np.asarray(derivatives), strict=True):
        polynomial = sum(d * angles**k / math.factorial(k) for k, d in enumerate(taylor))
        slopes.append(np.polyfit(np.log(angles), np.log(np.abs(row - polynomial)), 1)[0])
    return np.median(slopes)


def random_headings(s, radii):
    """Draw a stack of tangent headings whose layers have different speeds."""
    rng = np.random.default_rng(0)
    drawn = [
        tuple(
            rng.uniform(0.2, 1) * rng.standard_normal(w.shape) / np.sqrt(w.size) for w in s.weights
        )
        for _ in range(HEADINGS)
    ]
    tangent = [sphere.project(s.weights, v, radii) for v in drawn]
    return jax.tree.map(lambda *v: jnp.stack(v), *tangent)


@partial(jax.jit, static_argnames="speeds")
def arc_of(problem, weights, radii, speeds):
    """Return the steepest arc with layers of the given speeds, the gradient, and the cache."""
    _, cache = problem.forward(weights)
    gradient, cache = problem.backward(weights, cache)
    heading = sphere.normalise(sphere.project(weights, gradient, radii), -1.0)
    heading = tuple(v * h for v, h in zip(speeds, heading, strict=True))
    return Arc(weights, heading, radii), gradient, cache


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("activation", "loss"), thinned(product(ACTIVATION_NAMES, LOSS_NAMES), 3))
def test_taylor_remainders_have_the_right_order(activation, loss):
    """Gradient, closed-form slope, second-order pass and Taylor mode, along arcs."""
    margin = 0.08 if activation in KINKED else 0
    s = small(11, activation=activation, loss=loss, rows=2, away_from_kinks=margin)
    problem, radii = s.problem(), jnp.asarray(s.radii)
    # Small enough that no unit crosses its kink, large enough that rounding is negligible.
    coarse, fine = np.geomspace(6e-3, 3e-2, 7), np.geomspace(5e-4, 5e-3, 7)

    @jax.jit
    @jax.vmap
    def measure(heading):
        arc = Arc(tuple(map(jnp.asarray, s.weights)), heading, radii)
        value, cache = problem.forward(arc.weights)
        gradient, cache = problem.backward(arc.weights, cache)
        second = arcs.second_derivative(problem, arc, gradient, cache)
        euclidean = jnp.sum(sphere.inner(gradient, arc.velocity))
        by_hand = jnp.stack([value, arcs.slope(arc, gradient), second])

        def along(t):
            return problem.value(arc.point(t))

        values = jax.lax.map(along, jnp.concatenate([coarse, fine]))
        return values, by_hand, arcs.taylor(problem, arc, 3), euclidean

    values, by_hand, taylor, euclidean = measure(random_headings(s, radii))
    for derivatives in (by_hand, taylor):
        assert remainder_order(fine, values[:, 7:], derivatives[:, :2]) >= 1.9
        assert remainder_order(coarse, values[:, :7], derivatives[:, :3]) >= 2.9
    assert remainder_order(coarse, values[:, :7], taylor) >= 3.9
    np.testing.assert_allclose(by_hand[:, 1], euclidean, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("activation", "loss"),
    thinned([*product(ACTIVATION_NAMES, ["squared"]), *product(["tanh"], LOSS_NAMES[1:])], 2),
)
def test_taylor_coefficients_agree_with_the_oracle_for_layers_of_any_speed(activation, loss):
    """Taylor mode and nested forward mode; one layer has speed zero."""
    s = small(7, depth=4, activation=activation, loss=loss)
    problem = s.problem()
    arc, *_ = arc_of(problem, s.weights, np.array(s.radii), (1.0, 0.0, 0.3, 0.7))
    headings = [np.asarray(v) for v in arc.heading]
    expected = oracle.arc_derivatives(s.weights, headings, s.radii, s.X, s.Y, activation, loss, 5)
    expected = np.array(expected) / float(problem.unit)
    size = np.abs(expected).max()
    for taylor, order in ((arcs.taylor, 5), (arcs._nested_forward_mode, 3)):
        found = jax.jit(taylor, static_argnums=2)(problem, arc, order)
        np.testing.assert_allclose(found, expected[: order + 1], rtol=1e-8, atol=1e-10 * size)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("function", [jax.nn.relu, lambda z: jnp.clip(z, -1, 1)])
def test_taylor_falls_back_where_taylor_mode_has_no_rule(function):
    """Nested forward mode takes over, whatever the experimental Taylor mode raises."""
    s = small(0, activation=declare(function, (0, 1), name="user"))
    problem = s.problem()
    arc, gradient, cache = arc_of(problem, s.weights, np.array(s.radii), (1.0,) * 3)
    found = jax.jit(arcs.taylor, static_argnums=2)(problem, arc, 3)
    second = jax.jit(arcs.second_derivative)(problem, arc, gradient, cache)
    np.testing.assert_allclose(found[2], second, rtol=1e-9, atol=1e-12)


def test_slope_of_float32_weights_does_not_cancel():
    """The paper's √(a² − b²) loses all digits if the gradient is nearly normal; ours does not."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((20, 20))
    w /= np.linalg.norm(w)
    tangent = rng.standard_normal((20, 20))
    tangent -= np.sum(w * tangent) * w
    tangent *= 1e-4 / np.linalg.norm(tangent)
    weights = (jnp.asarray(w, jnp.float32),)
    gradient = (jnp.asarray(w + tangent, jnp.float32),)
    heading = sphere.normalise(sphere.project(weights, gradient, jnp.ones(1)), -1.0)
    slope = float(arcs.slope(Arc(weights, heading, jnp.ones(1)), gradient))
    assert slope == pytest.approx(-1e-4, rel=1e-2)
    a2 = np.float32(np.sum(np.asarray(gradient[0]) ** 2))
    b = np.float32(np.sum(np.asarray(gradient[0]) * np.asarray(weights[0])))
    literal = -np.sqrt(np.maximum(np.float32(a2 - b**2), 0))
    assert abs(literal / -1e-4 - 1) > 0.5


def test_second_order_pass_in_float32_is_close_to_float64():
    s = small(3, activation="tanh")
    values = []
    for dtype in (np.float32, np.float64):
        with precision(dtype):
            problem = s.problem(dtype)
            weights = tuple(w.astype(dtype) for w in s.weights)
            arc, gradient, cache = arc_of(problem, weights, np.array(s.radii, dtype), (1.0,) * 3)
            assert all(v.dtype == dtype for v in arc.heading)
            values.append(float(arcs.second_derivative(problem, arc, gradient, cache)))
    assert values[0] == pytest.approx(values[1], rel=1e-4)
