"""Every algorithm against the slow oracle, step by step, in float64.

At each of 20 iterations the oracle starts from the weights that the library has reached, so that
differences do not add up.
"""

import numpy as np
import pytest

import oracle
from greatcircle import descend, directions, steps, stopping
from small import ACTIVATION_NAMES, LOSS_NAMES, small, thinned

RULES = {
    "curvature": (steps.Curvature(), {}),
    "compare": (steps.ComparedCurvature(), {}),
    "taylor": (steps.Taylor(3), {"order": 3}),
    "taylor around": (steps.Taylor(4, 2 * np.pi), {"order": 4, "max_angle": 2 * np.pi}),
    "majorant": (steps.Majorant(), {}),
    "golden": (steps.Majorant(steps.GoldenSection()), {}),
    "closed_form": (steps.ClosedForm(), {}),
}
ORACLE_NAMES = {"golden": "majorant", "taylor around": "taylor"}
SEED = 200
SEARCHED = ("majorant", "golden")


@pytest.mark.parametrize("depth", thinned((1, 2, 3, 4, 5, 6), 3))
@pytest.mark.parametrize("rule", RULES)
def test_twenty_iterations_agree(rule, depth):
    case = depth + list(RULES).index(rule)  # covers every activation and loss
    # Half a turn of an even number of odd layers gives the same network: rounding would decide.
    names = ("leaky_relu", "abs", "elu") if rule == "taylor around" else ACTIVATION_NAMES
    activation = names[case % len(names)]
    loss = LOSS_NAMES[case % len(LOSS_NAMES)]
    s = small(SEED + case, depth=depth, activation=activation, loss=loss)
    visited = [s.weights]
    step, options = RULES[rule]
    result = descend(
        s.problem(),
        s.weights,
        direction=directions.Steepest(),
        step=step,
        stop=stopping.MaxIter(20),
        callback=lambda record, weights: visited.append([np.asarray(w) for w in weights]),
    )
    assert len(result.records) == 20, result.reason
    for record, before, after in zip(result.records, visited[:-1], visited[1:], strict=True):
        (expected,) = oracle.descend(
            before,
            s.X,
            s.Y,
            radii=s.radii,
            activation=activation,
            loss=loss,
            step=ORACLE_NAMES.get(rule, rule),
            iterations=1,
            **options,
        )
        tolerance = 1e-6 if rule in SEARCHED else 1e-8
        assert record.halvings == expected["halvings"]
        assert record.angle == pytest.approx(expected["angle"], rel=tolerance)
        assert record.slope == pytest.approx(expected["slope"], rel=1e-8)
        if expected["curvature"] is not None:
            assert record.curvature == pytest.approx(expected["curvature"], rel=1e-8, abs=1e-12)
        assert record.loss == pytest.approx(expected["loss_after"], rel=1e-8)
        for ours, theirs in zip(after, expected["weights"], strict=True):
            np.testing.assert_allclose(ours, theirs, atol=tolerance * np.linalg.norm(theirs))
