"""The landing example: its physics, controller, error bound and script."""

import json
import shutil
from dataclasses import fields, replace

import numpy as np
import polars as pl
import pytest
from scipy.integrate import solve_ivp

import c_code
import controller
import error_bound
import flight as flights
import land
import study
import vehicle
import weather
from approach import Approach
from controller import Gains
from exported import program
from flight import Audit, Pilot, fly
from greatcircle import control
from greatcircle.datasets import ground_effect
from greatcircle.datasets.ground_effect import GRAVITY, VEHICLE

SHORT = Approach(height=0.15, distance=0.15, duration=0.9)
"""A landing from 15 cm, in a quarter of the time."""
HIGH = 60.0  # m, without ground effect


@pytest.fixture(scope="module")
def certified():
    """A small force, quick to train: without a budget, which takes long to compile."""
    model = study.learn(2000, hidden=(10, 8), lipschitz=None, max_iter=10)
    return study.certify(model)


@pytest.fixture(scope="module")
def force(certified, tmp_path_factory):
    if not any(map(shutil.which, c_code.COMPILERS)):
        program("gcc")  # skips with a reason
    return c_code.compile_force(certified.model, tmp_path_factory.mktemp("c"))


@pytest.fixture(scope="module")
def done(certified, force, tmp_path_factory):
    """A small study."""
    folder = tmp_path_factory.mktemp("study")
    return study.run(
        10, seed=3, folder=folder, model=certified.model, approach=SHORT, calibration=12
    )


def states(count: int = 50, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    low = [-1, 0.12, -0.3, -1, -1, -1, 0.6, 0.6]
    return rng.uniform(low, [1, 1.5, 0.3, 1, 1, 1, 1.1, 1.1], (count, 8))


def still(count: int) -> np.ndarray:
    return np.zeros((count, 2))


def test_trim_motor_speeds_hover():
    gain = (1 + VEHICLE.thrust_mismatch) * ground_effect.ground_gain(HIGH)
    each = VEHICLE.mass * GRAVITY / gain / 4 / VEHICLE.thrust_coefficient
    trim = VEHICLE.mass_offset[0] / VEHICLE.rotor_offset
    motors = np.sqrt(each * np.array([1 + trim, 1 - trim]))
    state = np.array([[0, HIGH, 0, 0, 0, 0, *motors]])
    np.testing.assert_allclose(vehicle.derivative(state, motors[None], still(1)), 0, atol=1e-12)


def test_without_thrust_it_falls_and_loses_energy_to_drag():
    state = np.array([[0, HIGH, 0, 0, 0, 0, 0, 0.0]])
    change = vehicle.derivative(state, still(1), still(1))[0]
    assert change[vehicle.VZ] == -GRAVITY
    energy = [GRAVITY * HIGH]
    for step in range(40):
        _, state = vehicle.advance(state, still(1), lambda _: still(1), step * 0.05, 0.05)
        speed = np.sum(state[0, vehicle.VELOCITY] ** 2)
        energy.append(speed / 2 + GRAVITY * state[0, vehicle.Z])
    assert np.all(np.diff(energy) < 0)


def test_the_force_is_that_of_the_generator():
    state = states()
    half, zero = state[:, vehicle.PITCH] / 2, np.zeros(len(state))
    velocity = np.stack([state[:, vehicle.VX], zero, state[:, vehicle.VZ]], axis=1)
    quaternion = np.stack([zero, np.sin(half), zero, np.cos(half)], axis=1)
    motors = state[:, [6, 7, 6, 7]]
    truth = ground_effect.residual_force(state[:, vehicle.Z], velocity, quaternion, motors)
    np.testing.assert_allclose(vehicle.residual_force(state), truth[:, [0, 2]], rtol=1e-14)
    assert np.all(truth[:, 1] == 0)  # no force out of the plane
    np.testing.assert_allclose(vehicle.thrust_axis(2 * half)[:, 0], np.sin(2 * half))
    wind = np.array([0.7, -0.2])
    moved = velocity - [0.7, 0, -0.2]
    windy = ground_effect.residual_force(state[:, vehicle.Z], moved, quaternion, motors)
    np.testing.assert_allclose(vehicle.residual_force(state, wind), windy[:, [0, 2]])


def test_a_forward_pitch_flies_forward_and_a_rear_thrust_pitches_forward():
    state = np.array([[0, HIGH, 0.1, 0, 0, 0, 0.8, 0.95]])
    change = vehicle.derivative(state, state[:, vehicle.MOTORS], still(1))[0]
    assert change[vehicle.VX] > 0
    assert change[vehicle.RATE] > 0


def test_the_integration_is_exact_to_micrometres():
    air, start = weather.draw(4, seed=1), states(4)
    command = np.full((4, 2), 0.85)
    state = start
    for step in range(60):
        _, state = vehicle.advance(state, command, air.wind, step * 0.005, 0.005)
    for index in range(4):
        alone = air.only(np.array([index]))
        exact = solve_ivp(
            lambda t, y, alone=alone, index=index: vehicle.derivative(
                y[None], command[[index]], alone.wind(t)
            )[0],
            (0, 0.3),
            start[index],
            method="DOP853",
            rtol=1e-12,
            atol=1e-12,
        )
        np.testing.assert_allclose(state[index], exact.y[:, -1], atol=1e-6)


@pytest.mark.parametrize("plan", [Approach(), SHORT])
def test_the_approach_starts_at_rest_and_ends_at_the_pad_with_the_sink_speed(plan):
    start, pad = plan.at(0.0), plan.at(plan.duration)
    np.testing.assert_allclose(start.velocity, 0, atol=1e-12)
    np.testing.assert_allclose(start.acceleration, 0, atol=1e-12)
    np.testing.assert_allclose(pad.position, [0, plan.standing_height], atol=1e-12)
    np.testing.assert_allclose(pad.velocity[1], -plan.sink_speed)
    for time in (0.3 * plan.duration, 0.8 * plan.duration, plan.duration + 0.5):
        h = 1e-5
        for value, slope in (("position", "velocity"), ("velocity", "acceleration")):
            difference = getattr(plan.at(time + h), value) - getattr(plan.at(time - h), value)
            np.testing.assert_allclose(
                difference / (2 * h), getattr(plan.at(time), slope), atol=1e-6
            )


def test_weather_stays_within_its_bounds_and_does_not_depend_on_the_number_of_landings():
    air, fewer = weather.draw(200, seed=5), weather.draw(20, seed=5)
    for time in np.linspace(0, 6, 50):
        assert np.all(np.linalg.norm(air.wind(time), axis=1) <= weather.WIND)
    np.testing.assert_array_equal(air.wind(1.3)[:20], fewer.wind(1.3))
    np.testing.assert_array_equal(air.noise(7)[:20], fewer.noise(7))
    assert np.all(np.abs(air.noise(7)) <= weather.NOISE)
    assert np.any(weather.draw(20, seed=6).wind(1.3) != fewer.wind(1.3))


def test_the_c_code_predicts_like_the_model(certified, force):
    table = ground_effect.generate(300, seed=4)
    frame = pl.DataFrame(dict(table.columns)).select(table.inputs)
    np.testing.assert_allclose(force(table.X), certified.model.predict(frame), rtol=1e-5, atol=1e-6)


def test_motor_commands_satisfy_their_lipschitz_constant():
    gains, rng, state = Gains(), np.random.default_rng(2), states(4000)
    one = rng.uniform([-8, 5], [8, 25], (4000, 2))
    other = one + rng.uniform(-1, 1, one.shape) * 10 ** rng.uniform(-4, 0.5, (4000, 1))
    change = controller.motors(gains, state, one) - controller.motors(gains, state, other)
    four = np.sqrt(2) * np.linalg.norm(change, axis=1)  # each pair is two motors
    slopes = four / np.linalg.norm(one - other, axis=1)
    assert np.max(slopes) <= gains.force_to_motors
    assert np.max(slopes) > 0.6 * gains.force_to_motors  # and the constant is not much too large


def test_the_iteration_contracts_as_certified(certified, force):
    gains, rate = Gains(), certified.rule.rate
    assert rate < 1
    state, rng = states(300, seed=1), np.random.default_rng(0)
    wanted = rng.uniform([-4, 10], [4, 18], (300, 2))
    u = [rng.uniform(gains.min_motor_speed, gains.max_motor_speed, (300, 2))]
    for _ in range(certified.iterations + 25):
        u.append(controller.motors(gains, state, wanted - controller.learned(force, state, u[-1])))
    steps = np.sqrt(2) * np.linalg.norm(np.diff(u, axis=0), axis=2)
    assert np.all(steps[1:] <= rate * steps[:-1] + 1e-14)
    found, before = controller.compensated(gains, state, wanted, force, u[0], certified.iterations)
    np.testing.assert_array_equal(found, u[certified.iterations])
    np.testing.assert_array_equal(before, u[certified.iterations - 1])
    left = np.sqrt(2) * np.linalg.norm(found - u[-1], axis=1)
    assert np.max(left) <= study.TOLERANCE


def test_the_bound_solves_the_worst_case():
    limits = error_bound.Limits(gust=1.0, noise=0.5, model=0.4, loop=0.6)
    for damping in (5.0, 2 * VEHICLE.mass):  # in the second both decay rates are equal
        gains = Gains(damping=damping)
        ultimate = control.ultimate_bound(
            bound=1.0,
            model_error=limits.total,
            damping=damping,
            stiffness=gains.stiffness,
            mass=VEHICLE.mass,
        )
        bound = error_bound.Bound(limits, ultimate, gains.stiffness)
        start = [float(bound.error(np.zeros(1))[0]), float(bound.composite(np.zeros(1))[0])]
        time = np.linspace(0, 4, 30)
        worst = solve_ivp(
            lambda t, y, gains=gains: [
                y[1] - gains.stiffness * y[0],
                (limits.total - gains.damping * y[1]) / VEHICLE.mass,
            ],
            (0, 4),
            start,
            t_eval=time,
            rtol=1e-10,
            atol=1e-12,
        )
        np.testing.assert_allclose(bound.error(time), worst.y[0], rtol=1e-7)
        np.testing.assert_allclose(bound.composite(time), worst.y[1], rtol=1e-7)


def test_forces_stay_within_derived_limits_and_add_up(done):
    for name in ("baseline", "compensated"):
        audit, limits = done.flights[name].audit, done.bounds[name].limits
        assert np.nanmax(audit.gust) <= limits.gust
        assert np.nanmax(audit.noise) <= limits.noise
        parts = audit.gust + audit.noise + audit.model + audit.loop
        assert np.nanmax(audit.total - parts) <= 1e-12


def test_epsilon_is_the_residual_of_the_composite_error():
    """Compare ε in the audit with m ṡ + K s from finite differences of the states."""
    flight = fly(Pilot(Gains()), weather.draw(3, seed=2), SHORT)
    references = [SHORT.at(float(time)) for time in flight.time]
    s = np.stack(
        [controller.errors(Gains(), x, r)[1] for x, r in zip(flight.state, references, strict=True)]
    )
    epsilon = VEHICLE.mass * np.diff(s, axis=0) / 0.005 + Gains().damping * (s[1:] + s[:-1]) / 2
    size = np.linalg.norm(epsilon, axis=2)
    # The audit has the largest value in a period, the difference the mean.
    assert np.nanmax(size - flight.audit.total[:-1]) < 2e-2
    assert np.nanmean(np.abs(size - flight.audit.total[:-1])) < 5e-2


def test_a_landing_that_keeps_the_assumptions_stays_within_the_bound(done):
    for name, bound in done.bounds.items():
        flight = done.flights[name]
        kept = np.all(list(error_bound.assumptions_kept(flight, bound).values()), axis=0)
        assert not np.any(error_bound.exceeded(flight, bound) & kept)
        assert kept.sum() >= 5


def test_broken_assumptions_and_bounds_are_noticed(done):
    flight, bound = done.flights["compensated"], done.bounds["compensated"]
    tight = replace(bound, limits=replace(bound.limits, model=1e-3))
    assert not np.any(error_bound.assumptions_kept(flight, tight)["model error"])
    small = replace(bound, ultimate=replace(bound.ultimate, composite=1e-3))
    assert np.all(error_bound.exceeded(flight, small))


def test_compensation_lands_nearer_to_the_pad(done):
    summary = study.results(done)
    json.dumps(summary, allow_nan=False)
    baseline, ours = (summary["controllers"][name] for name in ("baseline", "compensated"))
    for metric in ("touchdown_error", "tracking_rms"):
        assert ours[metric]["high"] < baseline[metric]["low"]
    assert all(row["landed"] == 10 for row in summary["controllers"].values())


def test_the_same_seed_flies_the_same_landings(done, force, certified):
    pilot = Pilot(Gains(), force, certified.iterations)
    again = fly(pilot, weather.draw(4, seed=6), SHORT)
    first = done.flights["compensated"]  # with seed 3, the weather has seed 6
    # The integrator's error norm depends on the number of landings.
    np.testing.assert_allclose(again.touchdown.time, first.touchdown.time[:4], atol=1e-6)
    twice = fly(pilot, weather.draw(4, seed=6), SHORT)
    for part in fields(Audit):
        one, other = (getattr(flight.audit, part.name) for flight in (again, twice))
        np.testing.assert_array_equal(one, other)


def test_a_vehicle_in_the_air_at_the_end_has_not_landed(monkeypatch):
    monkeypatch.setattr(flights, "TIMEOUT", -0.5)
    flight = fly(Pilot(Gains()), weather.draw(2, seed=0), SHORT)
    assert np.all(np.isnan(flight.touchdown.time))
    values = study.metrics(flight, SHORT)
    assert np.all(np.isnan(values["touchdown_error"]))
    assert np.all(np.isfinite(values["tracking_rms"]))


def test_the_confidence_interval_is_students():
    found = study.interval(np.array([1.0, 2.0, 3.0, np.nan]))
    assert found["mean"] == 2.0
    np.testing.assert_allclose(found["high"] - 2.0, 4.302653 / np.sqrt(3), rtol=1e-6)


def test_the_script_prints_a_table_and_writes_everything(tmp_path, capsys, monkeypatch, done):
    given = {}

    def run(landings, *, progress, **others):
        given.update(others, landings=landings)
        progress("10 landings, baseline")
        return done

    monkeypatch.setattr(study, "run", run)
    arguments = ["--landings", "10", "--seed", "3", "--out", str(tmp_path)]
    land.main(arguments)
    assert given.pop("folder").name
    assert given == {"landings": 10, "seed": 3}
    out, err = capsys.readouterr()
    for words in ("touchdown error [cm]", "compensated", "contracts by", "assumptions kept"):
        assert words in out
    assert "10 landings, baseline\n" in err
    assert "report.html" in err
    names = ("paths", "tracking", "touchdown")
    drawn = {f"{name}.{kind}" for name in names for kind in ("png", "pdf")}
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", "report.html"} | drawn
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "@keyframes flight-1-0" in page
    assert "land.py --landings 10" in page
    land.main([*arguments, "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "results.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--landings", "1"], "--landings must be at least 2"),
        (["--seed", "-1"], "--seed must not be negative"),
    ],
)
def test_mistakes_in_the_arguments_are_named(capsys, arguments, message):
    with pytest.raises(SystemExit, match="2"):
        land.main(arguments)
    assert message in capsys.readouterr().err


def test_a_missing_compiler_is_named_before_training(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(study, "learn", None)
    with pytest.raises(FileNotFoundError, match="install gcc or clang"):
        land.main(["--out", str(tmp_path)])


@pytest.mark.slow
@pytest.mark.usefixtures("force")
def test_five_hundred_landings(tmp_path):
    """Check the claims of docs/landing.md."""
    summary = study.results(study.run(500, seed=0, folder=tmp_path))
    baseline, ours = (summary["controllers"][name] for name in ("baseline", "compensated"))
    for metric in ("touchdown_error", "tracking_rms", "tracking_max"):
        assert ours[metric]["high"] < baseline[metric]["low"]
    bound = summary["bounds"]["compensated"]
    assert bound["all_assumptions_kept"] >= 0.95
    assert bound["exceeded_where_kept"] == 0
    assert bound["bound_over_99th_percentile"] <= 10
    assert summary["contraction"]["rate"] < 1
