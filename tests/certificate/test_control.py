"""Conditions of control theory on the Lipschitz bound."""

import numpy as np
import pytest

from greatcircle import LipschitzRegressor, certificate, control
from greatcircle.datasets import ground_effect


def test_the_number_of_iterations_is_sufficient():
    rng = np.random.default_rng(0)
    for rate in (0.05, 0.5, 0.95):
        matrix = rng.standard_normal((4, 4))
        matrix *= rate / np.linalg.norm(matrix, 2)
        offset = rng.standard_normal(4)
        solution = np.linalg.solve(np.eye(4) - matrix, offset)
        rule = control.contraction(gain=1.0, bound=rate)
        u = np.zeros(4)
        first = np.linalg.norm(offset)
        for _ in range(rule.iterations(first, 1e-6)):
            u = matrix @ u + offset
        assert rule.holds
        assert np.linalg.norm(u - solution) <= 1e-6


def test_the_iteration_finds_the_control_for_a_wanted_force():
    table = ground_effect.generate(500)
    model = LipschitzRegressor((8,), lipschitz=2.0, selection=False, max_iter=10, random_state=0)
    model.fit(table.X, table.y)
    controls = [8, 9, 10, 11]
    bound = certificate.tight(model, inputs=controls)
    inverse = np.linalg.pinv(np.tile(np.eye(3), 2)[:, :4]) / 4
    rule = control.contraction(np.linalg.norm(inverse, 2), bound)
    assert rule.holds
    x, wanted = table.X[:1].copy(), np.array([0.1, 0.0, 9.0])

    def next_control(u):
        x[0, controls] = u
        return inverse @ (wanted - model.predict(x)[0])

    u = np.zeros(4)
    change = np.linalg.norm(next_control(u) - u)
    for _ in range(rule.iterations(change, 1e-5)):
        u = next_control(u)
    assert np.linalg.norm(next_control(u) - u) <= 2e-5


def test_without_contraction_the_number_of_iterations_is_an_error():
    rule = control.contraction(gain=2.0, bound=0.5)
    assert not rule.holds
    with pytest.raises(ValueError, match="need not converge: its rate is 1"):
        rule.iterations(1.0, 0.1)


def test_simulated_errors_stay_below_the_ultimate_bound():
    rng = np.random.default_rng(1)
    mass, damping, stiffness, change, slope, error = 1.3, 4.0, 2.0, 0.5, 1.5, 0.7
    limit = control.ultimate_bound(
        bound=slope,
        model_error=error,
        damping=damping,
        stiffness=stiffness,
        mass=mass,
        change=change,
    )
    step, e, s = 1e-3, np.array([0.5, 0.0]), np.array([1.0, -0.5])
    worst_e = worst_s = 0.0
    start = np.linalg.norm(s)
    for k in range(20_000):
        # The worst force: along s, as large as allowed.
        worst = error + slope * change * np.linalg.norm(s)
        force = worst * s / np.linalg.norm(s) + 1e-9 * rng.standard_normal(2)
        s = s + step * (-damping * s + force) / mass
        e = e + step * (-stiffness * e + s)
        decayed = start * np.exp(-limit.decay * step * (k + 1))
        assert np.linalg.norm(s) <= limit.composite + decayed + 1e-2
        if k > 15_000:
            worst_e, worst_s = max(worst_e, np.linalg.norm(e)), max(worst_s, np.linalg.norm(s))
    # The worst case reaches the bound, so no smaller bound holds.
    assert worst_s == pytest.approx(limit.composite, rel=1e-3)
    assert worst_e == pytest.approx(limit.position, rel=1e-3)
    assert limit.velocity == 2 * limit.composite


def test_too_little_damping_is_an_error():
    with pytest.raises(ValueError, match="damping must be larger"):
        control.ultimate_bound(
            bound=10.0, model_error=1.0, damping=1.0, stiffness=1.0, mass=1.0, change=0.2
        )
