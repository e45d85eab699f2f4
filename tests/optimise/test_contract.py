"""One contract for every direction × step × loss × activation.

Pairs are covered by default, all combinations by the slow tests.
"""

from itertools import combinations, product

import numpy as np
import pytest

from greatcircle import descend, directions, steps, stopping
from small import ACTIVATION_NAMES, LOSS_NAMES, SMOOTH_NAMES, small, thinned

DIRECTIONS = (
    directions.Steepest(),
    directions.RiemannianGradient(),
    directions.MajorantSteepest(),
    directions.ConjugateGradient(),
    directions.ConjugateGradient(directions.HagerZhang()),
    directions.GaussNewton(max_products=5),
    directions.Kronecker(),
    directions.Kronecker(sample=7),
    directions.Muon(),
    directions.Soap(),
    directions.KroneckerMomentum(),
)
STEPS = (
    steps.Curvature(),
    steps.ComparedCurvature(),
    steps.Taylor(1),
    steps.Taylor(2),
    steps.Taylor(3),
    steps.Taylor(4, 2 * np.pi),
    steps.Majorant(),
    steps.DataMajorant(),
    steps.SmoothMajorant(),
    steps.ClosedForm(),
    steps.LinearDecay(100),
)
ITERATIONS = 6
PRODUCTS = {
    directions.GaussNewton(max_products=5): (1, 5),
    directions.Kronecker(): (2.5, 2.5),
    directions.Kronecker(sample=7): (1.625, 1.625),  # every second of the 20 rows
    directions.MajorantSteepest(): (0.25, 0.25),
}


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
        assert r.predicted > 0 or isinstance(step, steps.LinearDecay)  # which predicts nothing
        assert r.actual > 0
        cost = step.cost
        assert r.forward == 1 + r.halvings + cost.forward
        assert (r.backward, r.second, r.higher) == (1, cost.second, cost.higher)
        fewest, most = PRODUCTS.get(direction, (0, 0))
        assert fewest <= r.products <= most

    # The same start gives the same bits; the clock is not part of the result.
    for a, b in zip(first.weights, second.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(first.records, second.records, strict=True):
        np.testing.assert_array_equal(a._replace(seconds=0), b._replace(seconds=0))


def allowed(direction, step, loss, activation):
    return not isinstance(step, steps.SmoothMajorant) or activation in SMOOTH_NAMES


def pairs(row):
    """Return all pairs of entries of the row, with their positions."""
    return {((a, row[a]), (b, row[b])) for a, b in combinations(range(len(row)), 2)}


KINDS = (DIRECTIONS, STEPS, LOSS_NAMES, ACTIVATION_NAMES)
FULL = [row for row in product(*KINDS) if allowed(*row)]


def pairwise():
    """Yield rows until all pairs are covered, each row the one that covers most new pairs."""
    rows = {row: pairs(row) for row in FULL}
    missing = set().union(*rows.values())
    while missing:
        row = max(FULL, key=lambda r: len(rows[r] & missing))
        missing -= rows[row]
        yield row


COVER = list(pairwise())


def test_the_cover_is_pairwise():
    for a, b in combinations(range(4), 2):
        met = {(r[a], r[b]) for r in COVER}
        excluded = {
            (step, activation)
            for step, activation in product(STEPS, ACTIVATION_NAMES)
            if not allowed(None, step, None, activation)
        }
        assert met == set(product(KINDS[a], KINDS[b])) - excluded
    assert len(COVER) < 1.3 * len(STEPS) * len(ACTIVATION_NAMES)


@pytest.mark.parametrize(("direction", "step", "loss", "activation"), thinned(COVER, 4), ids=str)
def test_contract(direction, step, loss, activation):
    contract(direction, step, loss, activation)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("direction", "step", "loss", "activation"),
    FULL,
    ids=str,
)
def test_contract_in_full(direction, step, loss, activation):
    contract(direction, step, loss, activation)
