"""One contract for every direction × step × loss × activation."""

from itertools import product

import numpy as np
import pytest

from greatcircle import descend, directions, steps, stopping
from small import ACTIVATION_NAMES, LOSS_NAMES, small

DIRECTIONS = (directions.Steepest(),)
STEPS = (
    steps.Curvature(),
    steps.Curvature(compare=True),
    steps.Taylor(1),
    steps.Taylor(2),
    steps.Taylor(3),
    steps.Taylor(4, 2 * np.pi),
    steps.Majorant(),
    steps.Majorant("golden"),
    steps.ClosedForm(),
)
ITERATIONS = 6


def contract(direction, step, loss, activation):
    s = small(3, depth=3, loss=loss, activation=activation, rows=20)
    problem = s.problem(np.float32)
    weights = tuple(w.astype(np.float32) for w in s.weights)
    first, second = (
        descend(problem, weights, direction=direction, step=step, stop=stopping.MaxIter(ITERATIONS))
        for _ in range(2)
    )
    assert first.outcome in ("max_iter", "converged", "no_descent")
    assert first.records, first.reason

    # Finite, norms kept, no accepted increase.
    assert all(np.all(np.isfinite(w)) for w in first.weights)
    for w, radius in zip(first.weights, s.radii, strict=True):
        assert abs(np.linalg.norm(w.astype(np.float64)) / radius - 1) < 1e-6
    losses = np.array([first.initial_loss, *(r.loss for r in first.records)])
    assert np.all(np.diff(losses) < 0)
    assert first.loss == losses[-1]
    assert float(problem.loss(first.weights)) == pytest.approx(first.loss, rel=1e-5)

    for r in first.records:
        assert 0 < r.angle < 2 * np.pi
        assert r.slope < 0
        assert r.predicted > 0
        assert r.actual > 0
        cost = step.cost
        assert r.forward == 1 + r.halvings + cost.forward
        assert (r.backward, r.second, r.higher) == (1, cost.second, cost.higher)

    # The same start gives the same bits; the clock is not part of the result.
    for a, b in zip(first.weights, second.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(first.records, second.records, strict=True):
        np.testing.assert_array_equal(a[:-1], b[:-1])


def pairwise():
    """Each step with each activation; losses rotate, so that each meets all of both."""
    for i, step in enumerate(STEPS):
        for j, activation in enumerate(ACTIVATION_NAMES):
            for direction in DIRECTIONS:
                yield direction, step, LOSS_NAMES[(i + j) % len(LOSS_NAMES)], activation


def test_the_cover_is_pairwise():
    rows = list(pairwise())
    kinds = (DIRECTIONS, STEPS, LOSS_NAMES, ACTIVATION_NAMES)
    for a in range(4):
        for b in range(a):
            assert {(r[a], r[b]) for r in rows} == set(product(kinds[a], kinds[b]))


@pytest.mark.parametrize(("direction", "step", "loss", "activation"), list(pairwise()), ids=str)
def test_contract(direction, step, loss, activation):
    contract(direction, step, loss, activation)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("direction", "step", "loss", "activation"),
    list(product(DIRECTIONS, STEPS, LOSS_NAMES, ACTIVATION_NAMES)),
    ids=str,
)
def test_contract_in_full(direction, step, loss, activation):
    contract(direction, step, loss, activation)
