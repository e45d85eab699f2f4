"""Step rules one by one; `test_oracle.py` follows them over whole runs."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from greatcircle.optimise.arc import Arc, Here
from greatcircle.optimise.steps import (
    TRUST_REGION,
    ClosedForm,
    Curvature,
    DataMajorant,
    Majorant,
    SmoothMajorant,
    Taylor,
)
from small import small, steepest_arc


class Quadratic:
    """An objective along whose every arc slope and curvature are what the test says."""

    unit = 1.0

    def __init__(self, curvature):
        self.curvature = curvature

    def second_order(self, weights, velocity, left):
        return jnp.asarray(self.curvature)

    def value(self, weights):
        return jnp.zeros(())


def here_with(slope, curvature):
    weights = (jnp.eye(2) / math.sqrt(2),)
    heading = (jnp.array([[0.0, 1.0], [-1.0, 0.0]]) / math.sqrt(2),)
    zero = (jnp.zeros((2, 2)),)  # the gradient's pull on γ'' is zero
    arc = Arc(weights, heading, jnp.ones(1))
    return Here(Quadratic(curvature), arc, zero, None, jnp.zeros(()), jnp.asarray(slope))


@given(
    slope=st.sampled_from([0.0, -1e-6, -0.3, -50.0, 0.2]),
    curvature=st.sampled_from([0.0, 1e-9, 0.5, 0.6, 3.0, 1e5, -1e-9, -2.0, -1e4]),
)
@pytest.mark.usefixtures("x64")
def test_algorithm_2_line_by_line(slope, curvature):
    proposal = Curvature().propose(here_with(slope, curvature))
    assert float(proposal.angle) == pytest.approx(
        oracle.curvature_step(slope, curvature), rel=1e-14, abs=0
    )
    t = float(proposal.angle)
    assert float(proposal.predicted) == pytest.approx(-(slope * t + curvature * t**2 / 2), abs=1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("slope", "curvature"), [(-0.3, 0.7), (-1e-5, 20.0), (-3.0, 1e4)])
def test_taylor_2_is_curvature_where_algorithm_2_takes_the_models_minimum(slope, curvature):
    ours = Taylor(2).propose(here_with(slope, curvature))
    theirs = Curvature().propose(here_with(slope, curvature))
    assert float(ours.angle) == pytest.approx(float(theirs.angle), rel=1e-12)
    assert float(ours.predicted) == pytest.approx(float(theirs.predicted), rel=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_closed_form_is_the_authors_rule_and_minimises_its_model(loss):
    s = small(6, depth=3, loss=loss)
    problem = s.problem()
    here = steepest_arc(s, problem, (1.0,) * 3)
    proposal = jax.jit(ClosedForm().propose)(here)
    slope, Q = float(here.slope) * float(problem.unit), oracle.data_constant(s.X, loss)
    angle = float(proposal.angle)
    assert angle == pytest.approx(oracle.closed_form_step(slope, s.radii, Q), rel=1e-10)

    def model(t):
        return slope * t + 0.5 * Q * np.prod(s.radii) ** 2 * np.expm1(3 * t) ** 2

    nearby = model(angle * np.geomspace(0.5, 2, 101))
    assert model(angle) <= nearby.min() + 1e-15
    assert float(proposal.predicted) * float(problem.unit) == pytest.approx(-model(angle), rel=1e-9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Curvature(max_angle=0), "max_angle is 0"),
        (lambda: Taylor(2, max_angle=7), "max_angle is 7"),
        (lambda: Taylor(0), "order is 0"),
        (lambda: Taylor(1.5), "order is 1.5"),
        (lambda: Majorant("newton"), "search is 'newton'"),
        (lambda: DataMajorant("newton"), "search is 'newton'"),
        (lambda: SmoothMajorant("newton"), "search is 'newton'"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_trust_region_is_the_papers():
    assert Curvature().max_angle == TRUST_REGION == math.pi / 6
