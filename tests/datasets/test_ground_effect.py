"""The generated flight: form of the table, physics, and similarity to the real flight."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from greatcircle.datasets import Table, ground_effect

Array = NDArray[np.float64]

COLUMNS = ("t", *ground_effect.INPUTS, *ground_effect.TARGETS)
LEVEL = np.array([0.0, 0.0, 0.0, 1.0])
HOVER = np.full(4, 0.8)


@pytest.fixture(scope="module")
def flight() -> Table:
    return ground_effect.generate()


@pytest.fixture(scope="module")
def quiet() -> Table:
    """The same flight without noise."""
    return ground_effect.generate(noise_variance=0)


@pytest.fixture(scope="module")
def surrogate(surrogate: Table) -> Mapping[str, Array]:
    """Its columns alone."""
    return surrogate.columns


def velocity_of(table: Table) -> Array:
    return table.X[:, 1:4]


def quaternion_of(table: Table) -> Array:
    return table.X[:, 4:8]


def rms(error: Array) -> float:
    return float(np.sqrt(np.mean(np.sum(error**2, axis=1))))


def measured_acceleration(table: Table) -> Array:
    """Central differences of the velocity column: independent of how the flight was made."""
    v = velocity_of(table)
    return (v[2:] - v[:-2]) * (ground_effect.RATE / 2)


# Generated flight: form


def test_columns_and_rate(flight: Table) -> None:
    assert tuple(flight.columns) == COLUMNS
    assert flight.X.shape == (28_001, 12)
    assert flight.y.shape == (28_001, 3)
    np.testing.assert_allclose(np.diff(flight.columns["t"]), 0.01, rtol=1e-9)
    assert all(np.isfinite(column).all() for column in flight.columns.values())


def test_same_seed_same_table_other_seed_other_table() -> None:
    first, again, other = (ground_effect.generate(500, seed=seed) for seed in (3, 3, 4))
    for name in COLUMNS:
        np.testing.assert_array_equal(first.columns[name], again.columns[name])
    assert all(np.all(first.columns[n] != other.columns[n]) for n in ("z", "vx", "u1", "fz"))


@pytest.mark.parametrize("rows", [1, 2, 3, 17, 1000, 4099])
def test_shorter_table_is_the_beginning_of_the_longer(flight: Table, rows: int) -> None:
    shorter = ground_effect.generate(rows)
    assert len(shorter) == rows
    for name in COLUMNS:
        np.testing.assert_array_equal(shorter.columns[name], flight.columns[name][:rows])


def test_noise_touches_the_forces_only_and_has_its_variance(flight: Table, quiet: Table) -> None:
    np.testing.assert_array_equal(flight.X, quiet.X)
    noise = flight.y - quiet.y
    # Standard errors over 28,001 rows: 0.003 for a mean, 0.002 for a (co)variance.
    np.testing.assert_allclose(noise.mean(axis=0), 0, atol=0.015)
    np.testing.assert_allclose(np.cov(noise.T), 0.2176 * np.eye(3), atol=0.01)
    assert abs(np.corrcoef(noise[1:, 0], noise[:-1, 0])[0, 1]) < 0.03  # white in time


@pytest.mark.parametrize("rows", [0, -5])
def test_too_few_rows_are_refused(rows: int) -> None:
    with pytest.raises(ValueError, match=f"rows={rows}; expected at least 1: ask for"):
        ground_effect.generate(rows)


@pytest.mark.parametrize("variance", [-0.1, float("nan"), float("inf")])
def test_impossible_noise_is_refused(variance: float) -> None:
    with pytest.raises(
        ValueError, match=r"noise_variance=.*expected a finite non-negative variance.*use 0"
    ):
        ground_effect.generate(10, noise_variance=variance)


# Generated flight: physics


@pytest.mark.parametrize("seed", range(5))
def test_flight_is_physical(seed: int) -> None:
    table = ground_effect.generate(seed=seed)
    q, z, u = quaternion_of(table), table.columns["z"], table.X[:, 8:]
    np.testing.assert_allclose(np.linalg.norm(q, axis=1), 1, rtol=1e-12)
    assert np.all(np.sum(q[1:] * q[:-1], axis=1) > 0.999)  # continuous, no change of sign
    assert z.min() > ground_effect.VEHICLE.standing_height
    assert 0.3 < u.min() < u.max() < 1.2
    # Down to the ground and up again, many times in 280 s.
    low = (z < 0.4).astype(int)
    assert np.count_nonzero(np.diff(low) == 1) >= 10


def test_velocity_is_the_derivative_of_the_height(quiet: Table) -> None:
    z, vz = quiet.columns["z"], quiet.columns["vz"]
    np.testing.assert_allclose((z[2:] - z[:-2]) * 50, vz[1:-1], atol=1e-3)


def test_newton_closes_the_flight(quiet: Table) -> None:
    vehicle = ground_effect.VEHICLE
    axis = ground_effect.thrust_axis(quaternion_of(quiet))
    thrust = ground_effect.nominal_thrust(quiet.X[:, 8:])[:, None] * axis
    weight = np.array([0, 0, -vehicle.mass * ground_effect.GRAVITY])
    total = (thrust + weight + quiet.y)[1:-1]
    # What remains is the error of the central difference.
    np.testing.assert_allclose(total, vehicle.mass * measured_acceleration(quiet), atol=2e-3)


def test_thrust_axis_points_along_acceleration_minus_gravity(quiet: Table) -> None:
    axis = ground_effect.thrust_axis(quaternion_of(quiet))[1:-1]
    felt = measured_acceleration(quiet) + np.array([0, 0, ground_effect.GRAVITY])
    felt /= np.linalg.norm(felt, axis=1, keepdims=True)
    angle = 2 * np.arcsin(np.linalg.norm(axis - felt, axis=1) / 2)
    # Drag is at most about 1 N against a weight of 14 N, and tilts the axis by no more.
    assert np.rad2deg(angle).max() < 5
    tilt = np.linalg.norm(felt[:, :2], axis=1)
    assert np.mean(angle**2) < 0.1 * np.mean(tilt**2)


def test_thrust_axis_is_the_rotated_vertical() -> None:
    half = np.deg2rad(15)
    about_x = [np.sin(half), 0, 0, np.cos(half)]
    about_y = [0, np.sin(half), 0, np.cos(half)]
    expected = [[0, -0.5, np.cos(2 * half)], [0.5, 0, np.cos(2 * half)]]
    np.testing.assert_allclose(ground_effect.thrust_axis([about_x, about_y]), expected, atol=1e-15)


def test_ground_effect_decreases_with_height_and_vanishes_far_away() -> None:
    vehicle = ground_effect.VEHICLE
    heights = np.linspace(vehicle.standing_height, 5, 400)
    gain = ground_effect.ground_gain(heights)
    assert np.all(np.diff(gain) < 0)
    assert 1.05 < gain[0] < 1.3
    assert ground_effect.ground_gain(100.0) - 1 < 1e-5
    # Finite, and no more than standing, wherever a simulation may overshoot to.
    np.testing.assert_array_equal(ground_effect.ground_gain([0.0, -1.0]), gain[0])

    single = replace(vehicle, ground_coefficient=1.0, rotor_height=0.0)
    radius = single.rotor_radius
    # Cheeseman and Bennett's rotor, two radii above the ground: 1 / (1 − 1/64).
    np.testing.assert_allclose(ground_effect.ground_gain(2 * radius, single), 64 / 63)


def test_hover_feels_thrust_gain_only() -> None:
    vehicle = ground_effect.VEHICLE
    force = ground_effect.residual_force(np.array([0.12, 0.5, 50.0]), np.zeros(3), LEVEL, HOVER)
    np.testing.assert_array_equal(force[:, :2], 0)
    assert np.all(np.diff(force[:, 2]) < 0)
    mismatch = vehicle.thrust_mismatch * ground_effect.nominal_thrust(HOVER)
    np.testing.assert_allclose(force[2, 2], mismatch, rtol=1e-3)


def test_drag_opposes_velocity_in_every_attitude() -> None:
    rng = np.random.default_rng(0)
    velocity = rng.normal(size=(200, 3))
    quaternion = rng.normal(size=(200, 4))
    quaternion /= np.linalg.norm(quaternion, axis=1, keepdims=True)
    moving = ground_effect.residual_force(0.8, velocity, quaternion, HOVER)
    still = ground_effect.residual_force(0.8, np.zeros(3), quaternion, HOVER)
    power = np.sum((moving - still) * velocity, axis=1)
    least = min(ground_effect.VEHICLE.rotor_drag, ground_effect.VEHICLE.axial_drag)
    assert np.all(power <= -least * np.sum(velocity**2, axis=1))


def test_generated_forces_are_the_residual_force_of_their_rows(quiet: Table) -> None:
    force = ground_effect.residual_force(
        quiet.columns["z"], velocity_of(quiet), quaternion_of(quiet), quiet.X[:, 8:]
    )
    np.testing.assert_array_equal(force, quiet.y)


def test_rotors_balance_the_moment_they_are_asked_for() -> None:
    vehicle = ground_effect.VEHICLE
    rng = np.random.default_rng(1)
    thrust, moment = rng.uniform(10, 20, 5), rng.normal(size=(5, 3)) * 0.1
    rotors = ground_effect._mix(thrust, moment, vehicle)
    # Front right, rear left, front left, rear right: r × T e₃ plus the reaction torque.
    place = vehicle.rotor_offset * np.array([[1, -1], [-1, 1], [1, 1], [-1, -1]])
    spin = np.array([-1, -1, 1, 1])
    np.testing.assert_allclose(rotors.sum(axis=1), thrust)
    np.testing.assert_allclose(rotors @ place[:, 1], moment[:, 0])
    np.testing.assert_allclose(-rotors @ place[:, 0], moment[:, 1])
    np.testing.assert_allclose(rotors @ spin * vehicle.torque_per_thrust, moment[:, 2])


# Generated flight: the learning problem


@pytest.mark.parametrize("seed", range(5))
def test_predicting_the_mean_leaves_something_to_learn(seed: int) -> None:
    y = ground_effect.generate(seed=seed).y
    train, test = y[::2], y[1::2]
    assert 0.90 <= rms(train - train.mean(axis=0)) <= 1.0
    assert 0.90 <= rms(test - train.mean(axis=0)) <= 1.0


def test_residual_is_learnable_from_normalised_inputs(flight: Table) -> None:
    """Least squares on random rectified features of x/‖x‖, no bias, comes near the floor."""
    rng = np.random.default_rng(0)
    order = rng.permutation(len(flight))
    x, y = flight.X[order], flight.y[order]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    features = np.maximum(x @ rng.normal(size=(12, 300)), 0)
    train, test = slice(0, 22_400), slice(22_400, None)
    gram = features[train].T @ features[train]
    ridge = 1e-6 * np.trace(gram) / len(gram) * np.eye(len(gram))
    weights = np.linalg.solve(gram + ridge, features[train].T @ y[train])
    floor = np.sqrt(3 * 0.2176)
    error = rms(y[test] - features[test] @ weights)
    assert error < floor + 0.2 * (rms(y[test] - y[train].mean(axis=0)) - floor)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("z", 0.3),
        ("vx", 1.0),
        ("vy", 1.0),
        ("vz", 0.5),
        ("qx", 0.1),
        ("qy", 0.1),
        ("u1", 0.1),
        ("u2", 0.1),
        ("u3", 0.1),
        ("u4", 0.1),
    ],
)
def test_residual_depends_on_every_input_of_the_physics(name: str, change: float) -> None:
    state = dict.fromkeys(ground_effect.INPUTS, 0.0) | {"z": 0.2, "qw": 1.0}
    state |= dict.fromkeys(("u1", "u2", "u3", "u4"), 0.8)

    def force(values: dict[str, float]) -> Array:
        x = np.array([values[name] for name in ground_effect.INPUTS])
        return ground_effect.residual_force(x[0], x[1:4], x[4:8] / np.linalg.norm(x[4:8]), x[8:])

    moved = force(state | {name: state[name] + change})
    assert np.linalg.norm(moved - force(state)) > 0.05  # N


# Comparison with the surrogate of the real flight


def test_columns_are_those_of_the_surrogate(surrogate: dict[str, Array]) -> None:
    assert tuple(surrogate) == COLUMNS


@pytest.mark.parametrize("name", COLUMNS[1:])
def test_scale_is_that_of_the_surrogate(
    flight: Table, surrogate: dict[str, Array], name: str
) -> None:
    ours, real = flight.columns[name], surrogate[name]
    spread = np.std(real)
    assert 0.6 < np.std(ours) / spread < 1.6
    low, high = np.percentile(ours, [1, 99])
    assert real.min() - spread < low < high < real.max() + spread
    # The surrogate's constant lateral force is no part of the physics here.
    if name not in ("fx", "fy"):
        assert abs(np.mean(ours) - np.mean(real)) < spread
