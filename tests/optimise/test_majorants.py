"""Majorants as functions of the angle, and the step rules that minimise them."""

from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from greatcircle import Network, Problem, descend, sphere
from greatcircle.geometry.great_circle import Arc
from greatcircle.network.activations import declare
from greatcircle.optimise import arc as arcs
from greatcircle.optimise.arc import ArcStart
from greatcircle.optimise.steps import (
    Brent,
    DataMajorant,
    GoldenSection,
    Majorant,
    SmoothMajorant,
)
from greatcircle.optimise.steps.majorants import (
    data_majorant_terms,
    majorant_terms,
    smooth_majorant_terms,
)
from small import LOSS_NAMES, SMOOTH_NAMES, small, start_of_arc, steepest_arc, thinned


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("loss", ["squared", "softmax"])
def test_majorant_agrees_with_equation_22_for_layers_of_any_speed(loss):
    s = small(4, depth=4, loss=loss)
    problem = s.problem()
    start = steepest_arc(s, problem, (1.0, 0.4, 0.0, 0.7))
    terms = jax.jit(majorant_terms)(start)
    unit = float(problem.unit)
    gradients = [np.asarray(g) * unit for g in start.gradient]
    headings = [np.asarray(v) for v in start.arc.heading]
    Q = oracle.data_constant(s.X, loss)
    value = jax.jit(lambda t: terms.value(t))
    for t in np.geomspace(1e-9, np.pi, 25):
        expected = oracle.majorant(t, s.weights, gradients, headings, s.radii, Q)
        assert float(value(t)) * unit == pytest.approx(expected, rel=1e-9, abs=1e-18)
    angle = oracle.majorant_step(s.weights, gradients, headings, s.radii, Q)
    assert float(terms.lower_limit()) < angle
    for search in (Brent(), GoldenSection()):
        proposal = jax.jit(Majorant(search).propose)(start)
        assert float(proposal.angle) == pytest.approx(angle, rel=1e-6)
        assert float(proposal.predicted) == pytest.approx(-float(value(angle)), rel=1e-9)


@jax.jit
def input_bounds_and_lower_limit(start):
    terms = majorant_terms(start)
    # The gradients belong to no loss: take its unit as one.
    terms = eqx.tree_at(lambda t: t.layers.loss_curvature, terms, jnp.ones(()))
    return terms.inputs, terms.lower_limit()


@pytest.mark.usefixtures("x64")
@given(seed=st.integers(0, 10_000))
def test_the_search_starts_below_the_minimum(seed):
    """Radii and gradients over many decades; the oracle finds the minimum by a dense scan."""
    rng = np.random.default_rng(seed)
    weights = sphere.random_points(rng, ((2, 3), (3, 2)), 10 ** rng.uniform(-2, 2, 2), np.float64)
    gradients = [g * 10 ** rng.uniform(-6, 3) for g in map(np.sin, weights)]
    gradients = [g + 0.1 * rng.standard_normal(g.shape) * np.linalg.norm(g) for g in gradients]
    radii = [float(np.linalg.norm(w)) for w in weights]
    headings = oracle.steepest(weights, gradients, radii)
    problem = Problem(Network((2, 3, 2)), np.eye(2), np.eye(2), dtype=np.float64)
    arc = Arc(weights, tuple(headings), jnp.array(radii))
    start = ArcStart(problem, arc, tuple(gradients), None, jnp.zeros(()), jnp.zeros(()))
    inputs, lower_limit = input_bounds_and_lower_limit(start)
    assert float(inputs[0]) == pytest.approx(1)  # inputs of mean square one
    angle = oracle.majorant_step(weights, gradients, headings, radii, 1.0)
    assert float(lower_limit) < angle


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bias", thinned((True, False), 2))
@pytest.mark.parametrize("loss", ["squared", "softmax"])
def test_data_majorant_agrees_with_the_oracle_for_layers_of_any_speed(loss, bias):
    s = small(4, depth=4, loss=loss, bias=bias)
    problem = s.problem()
    start = steepest_arc(s, problem, (1.0, 0.4, 0.0, 0.7))
    terms = jax.jit(data_majorant_terms)(start)
    unit = float(problem.unit)
    gradients = oracle.gradient(s.weights, s.X, s.Y, "relu", loss, bias)
    headings = [np.asarray(v) for v in start.arc.heading]

    def expected(t):
        data = (s.X, "relu", loss, bias)
        return oracle.data_majorant(t, s.weights, gradients, headings, s.radii, *data)

    value = jax.jit(lambda t: terms.value(t))
    for t in np.geomspace(1e-4, np.pi, 20):
        assert float(value(t)) * unit == pytest.approx(expected(t), rel=1e-8, abs=1e-15)
    for search in (Brent(), GoldenSection()):
        angle = float(jax.jit(DataMajorant(search).propose)(start).angle)
        assert float(terms.lower_limit()) < angle
        nearby = [expected(t) for t in angle * np.geomspace(0.2, 5, 40) if t <= np.pi]
        assert expected(angle) <= min(nearby) + 1e-12


DRAWS = 60
ANGLES = np.append(np.geomspace(1e-3, 1, 12), np.linspace(1.2, np.pi, 6))


def drawn(rng, network, radii=(0.3, 2.0)):
    """Draw stacks of weights, of tangent headings with different speeds, and of radii."""
    sizes = rng.uniform(*radii, (DRAWS, network.depth))
    speeds = rng.uniform(0, 1, (DRAWS, network.depth))
    speeds[np.arange(DRAWS), rng.integers(0, network.depth, DRAWS)] = 1.0
    speeds[::7, 0] = 0.0
    weights, headings = [], []
    for i, shape in enumerate(network.shapes):
        # Half of them nearly of rank one, whose operator norms are as large as possible.
        W = rng.standard_normal((DRAWS, *shape))
        low = rng.standard_normal((DRAWS, shape[0], 1)) * rng.standard_normal((DRAWS, 1, shape[1]))
        W[::2] = 0.01 * W[::2] + low[::2]
        W *= (sizes[:, i] / np.linalg.norm(W, axis=(1, 2)))[:, None, None]
        V = rng.standard_normal((DRAWS, *shape))
        V -= (np.sum(V * W, axis=(1, 2)) / sizes[:, i] ** 2)[:, None, None] * W
        V *= (speeds[:, i] / np.linalg.norm(V, axis=(1, 2)))[:, None, None]
        weights.append(W)
        headings.append(V)
    return tuple(weights), tuple(headings), sizes


def growth(terms, t):
    """Return the bound on √E‖Δf‖² that a majorant contains."""
    excess = terms.value(t) - terms.layers.linear(t)
    return jnp.sqrt(2 * jnp.maximum(excess, 0) / terms.layers.loss_curvature)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("hidden", "activation", "bias"),
    thinned(product([(), (4,), (3, 5, 4)], ["relu", "abs", "tanh"], [False, True]), 3),
)
def test_the_change_of_the_outputs_never_exceeds_either_bound(hidden, activation, bias):
    rng = np.random.default_rng(len(hidden))
    network = Network((3, *hidden, 2), activation, bias=bias)
    X, Y = rng.standard_normal((6, 3)), rng.standard_normal((6, 2))
    weight = rng.uniform(0, 1, 6)
    problem = Problem(network, X, Y, sample_weight=weight, dtype=np.float64)

    @jax.jit
    @jax.vmap
    def measure(weights, heading, radii):
        start = start_of_arc(problem, weights, heading, radii)
        paper, data = majorant_terms(start), data_majorant_terms(start)
        before = network.apply(weights, problem.inputs)

        def moved(t):
            after = network.apply(start.arc.point(t), problem.inputs)
            return jnp.sqrt(problem.rows.sample_weight @ jnp.sum((after - before) ** 2, axis=1))

        angles = jnp.asarray(ANGLES)
        return (
            jax.lax.map(moved, angles),
            jax.lax.map(lambda t: growth(data, t), angles),
            jax.lax.map(lambda t: growth(paper, t), angles),
            jax.lax.map(data.value, angles),
            jax.lax.map(paper.value, angles),
        )

    weights, headings, radii = drawn(rng, network)
    moved, data, paper, data_value, paper_value = map(np.asarray, measure(weights, headings, radii))
    # Rounding of the linear part, which `growth` subtracts again.
    slack = 1e-6 * ANGLES
    assert np.all(moved <= data * (1 + 1e-9) + slack)
    assert np.all(moved <= paper * (1 + 1e-9) + slack)
    far = data > 1e-3
    assert np.max(moved[far] / data[far]) > (0.999 if not hidden else 0.3)  # not much too large
    if not bias:
        assert np.all(data_value <= paper_value + 1e-10 * (1 + np.abs(paper_value)))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bias", thinned((False, True), 2))
@pytest.mark.parametrize(("activation", "loss"), thinned(product(SMOOTH_NAMES, LOSS_NAMES), 3))
def test_the_loss_never_crosses_the_smooth_majorant(activation, loss, bias):
    """A theorem, so no tolerance beyond rounding, at any angle and in any direction."""
    rng = np.random.default_rng(3)
    network = Network((3, 4, 3, 3), activation, bias=bias)
    X = rng.standard_normal((5, 3))
    Y = np.eye(3)[rng.integers(0, 3, 5)] if loss in ("softmax", "logistic") else 3 * X[:, ::-1]
    weight = rng.uniform(0.1, 1, 5)
    problem = Problem(network, X, Y, loss=loss, sample_weight=weight, dtype=np.float64)

    @jax.jit
    @jax.vmap
    def measure(weights, heading, radii):
        start = start_of_arc(problem, weights, heading, radii)
        terms = smooth_majorant_terms(start)

        def both(t):
            return problem.value(start.arc.point(t)) - start.loss, terms.value(t)

        second = arcs.second_derivative(problem, start.arc, start.gradient, start.cache)
        return *jax.lax.map(both, jnp.asarray(ANGLES)), second, terms.curvature(jnp.zeros(()))

    weights, headings, radii = drawn(rng, network, (0.2, 1.2))
    change, bound, second, curvature = map(np.asarray, measure(weights, headings, radii))
    assert np.all(change <= bound + 1e-12 * (1 + np.abs(change)))
    assert np.all(second <= curvature * (1 + 1e-12))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("k", [1.0, 4.0])
def test_the_smooth_majorant_is_tight_for_one_linear_layer(k):
    """For one row and a longer target in the same direction, its bound is the second derivative."""
    network = Network((1, 2), "identity")
    W = np.array([[0.6, 0.8]])
    problem = Problem(network, np.array([[2.0]]), k * 2.0 * W, dtype=np.float64)
    start = start_of_arc(problem, (jnp.asarray(W),), (jnp.array([[0.8, -0.6]]),), jnp.ones(1))
    terms = jax.jit(smooth_majorant_terms)(start)
    second = arcs.second_derivative(problem, start.arc, start.gradient, start.cache)
    assert float(second) == pytest.approx(k * 4 / float(problem.unit), rel=1e-12)
    assert float(terms.curvature(jnp.asarray(1e-12))) == pytest.approx(float(second), rel=1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bias", thinned((True, False), 2))
@pytest.mark.parametrize("search", [Brent(), GoldenSection()], ids=str)
def test_the_smooth_step_minimises_the_majorant(search, bias):
    s = small(4, depth=3, activation="tanh", bias=bias)
    start = steepest_arc(s, s.problem(), (1.0, 0.4, 0.7))
    terms = jax.jit(smooth_majorant_terms)(start)
    proposal = jax.jit(SmoothMajorant(search).propose)(start)
    grid = np.geomspace(1e-9, np.pi, 2000)
    values = np.asarray(jax.jit(jax.vmap(lambda t: terms.value(t)))(grid))
    assert float(proposal.angle) == pytest.approx(grid[np.argmin(values)], rel=0.02)
    assert float(proposal.predicted) >= -values.min()
    assert float(terms.lower_limit()) < float(proposal.angle)


def test_smooth_majorant_rejects_activations_without_a_known_bound():
    s = small(0, activation="relu")
    with pytest.raises(TypeError, match=r"SmoothMajorant.*relu has none.*tanh.*DataMajorant"):
        descend(s.problem(), s.weights, step=SmoothMajorant())
    unknown = declare(lambda z: jnp.sin(z), (-1.0, 1.0), "mine")
    problem = Problem(Network((2, 3, 1), unknown), np.ones((3, 2)), np.ones((3, 1)))
    with pytest.raises(TypeError, match="mine has none"):
        SmoothMajorant().check(problem)
