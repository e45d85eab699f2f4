"""Step rules one by one; `test_oracle.py` compares whole runs."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from greatcircle.geometry.great_circle import Arc
from greatcircle.optimise.arc import ArcStart
from greatcircle.optimise.record import Evaluations
from greatcircle.optimise.steps import (
    Brent,
    ClosedForm,
    ComparedCurvature,
    Curvature,
    DataMajorant,
    LinearDecay,
    Majorant,
    SmoothMajorant,
    Taylor,
)
from greatcircle.optimise.steps.step import TRUST_REGION
from small import small, steepest_arc, unless_types_are_checked


class Quadratic:
    """An objective with the given second derivative along every arc."""

    unit = 1.0

    def __init__(self, curvature):
        self.curvature = curvature

    def value(self, weights):
        return jnp.zeros(())

    def forward(self, weights):
        return self.value(weights), None

    def backward(self, weights, cache):
        return jax.tree.map(jnp.zeros_like, weights), None

    def second_order(self, weights, velocity, cache):
        return jnp.asarray(self.curvature)

    def gauss_newton(self, weights, cache, fraction=1.0, iteration=0):
        return (lambda velocity: velocity), 1.0


def start_with(slope, curvature, iteration=0):
    """Return the start of an arc with the given slope and second derivative."""
    weights = (jnp.eye(2) / math.sqrt(2),)
    heading = (jnp.array([[0.0, 1.0], [-1.0, 0.0]]) / math.sqrt(2),)
    zero = (jnp.zeros((2, 2)),)  # a zero gradient: γ'' adds nothing to the second derivative
    arc = Arc(weights, heading, jnp.ones(1))
    loss, slope = jnp.zeros(()), jnp.asarray(slope)
    return ArcStart(Quadratic(curvature), arc, zero, None, loss, slope, iteration)


@given(
    slope=st.sampled_from([0.0, -1e-6, -0.3, -50.0, 0.2]),
    curvature=st.sampled_from([0.0, 1e-9, 0.5, 0.6, 3.0, 1e5, -1e-9, -2.0, -1e4]),
)
@pytest.mark.usefixtures("x64")
def test_algorithm_2_line_by_line(slope, curvature):
    proposal = Curvature().propose(start_with(slope, curvature))
    assert float(proposal.angle) == pytest.approx(
        oracle.curvature_step(slope, curvature), rel=1e-14, abs=0
    )
    t = float(proposal.angle)
    assert float(proposal.predicted) == pytest.approx(-(slope * t + curvature * t**2 / 2), abs=1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("slope", "curvature"), [(-0.3, 0.7), (-1e-5, 20.0), (-3.0, 1e4)])
def test_taylor_2_agrees_with_curvature_if_algorithm_2_takes_the_minimum(slope, curvature):
    ours = Taylor(2).propose(start_with(slope, curvature))
    theirs = Curvature().propose(start_with(slope, curvature))
    assert float(ours.angle) == pytest.approx(float(theirs.angle), rel=1e-12)
    assert float(ours.predicted) == pytest.approx(float(theirs.predicted), rel=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_closed_form_is_the_authors_rule_and_minimises_its_model(loss):
    s = small(6, depth=3, loss=loss)
    problem = s.problem()
    start = steepest_arc(s, problem, (1.0,) * 3)
    proposal = jax.jit(ClosedForm().propose)(start)
    slope, Q = float(start.slope) * float(problem.unit), oracle.data_constant(s.X, loss)
    angle = float(proposal.angle)
    assert angle == pytest.approx(oracle.closed_form_step(slope, s.radii, Q), rel=1e-10)

    def model(t):
        return slope * t + 0.5 * Q * np.prod(s.radii) ** 2 * np.expm1(3 * t) ** 2

    nearby = model(angle * np.geomspace(0.5, 2, 101))
    assert model(angle) <= nearby.min() + 1e-15
    assert float(proposal.predicted) * float(problem.unit) == pytest.approx(-model(angle), rel=1e-9)


@unless_types_are_checked
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Curvature(max_angle=0), "max_angle is 0"),
        (lambda: Taylor(2, max_angle=7), "max_angle is 7"),
        (lambda: Taylor(0), "order is 0"),
        (lambda: Taylor(1.5), "order is 1.5"),
        (lambda: Majorant("newton"), "search is 'newton'"),
        (lambda: DataMajorant(Brent), "search is <class"),
        (lambda: SmoothMajorant("newton"), "search is 'newton'"),
        (lambda: LinearDecay(0), "total is 0"),
        (lambda: LinearDecay(-3), "total is -3"),
        (lambda: LinearDecay(2.5), "total is 2.5"),
        (lambda: LinearDecay(10, 0.0), "distance is 0.0"),
        (lambda: LinearDecay(10, 3.2), "distance is 3.2"),
        (lambda: LinearDecay(10, np.nan), "distance is nan"),
    ],
)
def test_invalid_arguments_are_rejected(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@given(
    total=st.integers(1, 60),
    distance=st.sampled_from([1e-3, 0.7, math.pi]),
    slope=st.sampled_from([-1.0, 0.0, 30.0, np.nan]),
)
@pytest.mark.usefixtures("x64")
def test_linear_decay_divides_a_distance_by_the_root_of_the_steps(total, distance, slope):
    """The angles fall linearly to zero at the end, whatever the loss does."""
    schedule = LinearDecay(total, distance)
    proposals = [schedule.propose(start_with(slope, 2.0, t)) for t in range(total + 3)]
    angles = np.array([float(p.angle) for p in proposals])
    assert angles[0] == pytest.approx(distance / math.sqrt(total), rel=1e-14)
    lost = angles[0] / total  # from one step to the next
    np.testing.assert_allclose(np.diff(angles[: total + 1]), -lost, rtol=1e-10, atol=1e-16)
    np.testing.assert_array_equal(angles[total:], 0)
    assert angles.sum() == pytest.approx(distance * (total + 1) / (2 * math.sqrt(total)), rel=1e-12)
    assert all(np.isnan(p.predicted) and np.isnan(p.curvature) for p in proposals)
    assert schedule.cost == Evaluations()


@pytest.mark.usefixtures("x64")
def test_numbers_of_linear_decay_are_arguments_of_compiled_programs():
    compiled = jax.jit(lambda step, t: step.propose(start_with(-1.0, 2.0, t)).angle)
    for total, distance in ((8, 0.3), (500, 0.7)):
        for t in (0, 3, 8):
            of_python = float(LinearDecay(total, distance).propose(start_with(-1.0, 2.0, t)).angle)
            given = LinearDecay(jnp.asarray(float(total)), jnp.asarray(distance))
            assert float(compiled(given, jnp.asarray(t))) == pytest.approx(of_python, rel=1e-14)
    assert compiled._cache_size() == 1
    assert LinearDecay(50) == LinearDecay(50, 0.7)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("values", "angle", "decrease"),
    [
        ({"epsilon": 1.0, "extreme": 0.5}, "extreme", 0.5),
        ({"epsilon": 0.2, "extreme": 0.5}, "epsilon", 0.8),
        ({"epsilon": 0.5, "extreme": 0.5}, "epsilon", 0.5),  # the first of equals
        ({"epsilon": np.nan, "extreme": 0.5}, "extreme", 0.5),
        ({"epsilon": np.nan, "extreme": np.nan}, "half", None),
        ({"epsilon": 2.0, "extreme": 1.5}, "half", None),
    ],
)
def test_compared_curvature_takes_the_lowest_true_loss(values, angle, decrease):
    """Of {0, ε, t*}; half of t* if the loss at 0 is the lowest."""
    start = start_with(-0.1, 0.4)
    extreme, epsilon = 0.25, TRUST_REGION

    class Known(Quadratic):
        def value(self, weights):
            turned = jnp.arctan2(weights[0][0, 1], weights[0][0, 0])
            far = turned > (extreme + epsilon) / 2
            return jnp.where(far, values["epsilon"], values["extreme"])

    start = dataclasses.replace(start, objective=Known(0.4), loss=jnp.ones(()))
    proposal = ComparedCurvature().propose(start)
    expected = {"extreme": extreme, "epsilon": epsilon, "half": extreme / 2}[angle]
    assert float(proposal.angle) == pytest.approx(expected, rel=1e-14)
    model = 0.1 * expected - 0.2 * expected**2
    predicted = model if decrease is None else decrease
    assert float(proposal.predicted) == pytest.approx(predicted, rel=1e-12)
    assert ComparedCurvature().cost == Evaluations(second=1, forward=2)


def test_trust_region_is_the_papers():
    assert Curvature().max_angle == TRUST_REGION == math.pi / 6
