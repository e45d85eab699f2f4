"""Simulated quadrotor in the vertical plane, with the true force near the ground.

A state is a row (x, z, pitch, vx, vz, pitch rate, front, rear): metres, radians, seconds, and the
speeds of the two pairs of motors divided by 8000 rpm. A positive pitch tilts the thrust forward.
The force besides gravity and nominal thrust is `ground_effect.residual_force`, which also generated
the training data; in wind it is evaluated at the velocity relative to the air.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from greatcircle.datasets import ground_effect
from greatcircle.datasets.ground_effect import GRAVITY, VEHICLE

__all__ = [
    "FRONT",
    "MOTORS",
    "PAIRS",
    "PITCH",
    "POSITION",
    "RATE",
    "REAR",
    "ROTORS",
    "VELOCITY",
    "VX",
    "VZ",
    "X",
    "Z",
    "advance",
    "derivative",
    "features",
    "nominal_force",
    "residual_force",
    "thrust_axis",
]

Array = NDArray[np.float64]

MOTOR_LAG = 0.04  # s, time constant of a motor
X, Z, PITCH, VX, VZ, RATE, FRONT, REAR = range(8)
ROTORS, PAIRS = slice(8, 12), [0, 1, 0, 1]  # inputs u1 to u4; rotors 1 and 3 are in front
POSITION, VELOCITY, MOTORS = slice(X, PITCH), slice(VX, RATE), slice(FRONT, REAR + 1)


def features(state: Array, motors: Array, velocity: Array | None = None) -> Array:
    """Return the twelve inputs of the learned force, `ground_effect.INPUTS`.

    Parameters
    ----------
    state : (n, 8)
        States; only height, velocity and pitch are used.
    motors : (n, 2)
        Front and rear motor speeds.
    velocity : (n, 2), optional
        Velocity relative to the air; by default the state's.
    """
    v = state[:, VELOCITY] if velocity is None else velocity
    row = np.zeros((len(state), len(ground_effect.INPUTS)))
    row[:, 0] = state[:, Z]
    row[:, 1], row[:, 3] = v.T
    row[:, 5], row[:, 7] = np.sin(state[:, PITCH] / 2), np.cos(state[:, PITCH] / 2)
    row[:, ROTORS] = motors[:, PAIRS]
    return row


def residual_force(state: Array, wind: Array | float = 0.0) -> Array:
    """Return the true force (x, z) in N besides gravity and nominal thrust."""
    row = features(state, state[:, MOTORS], state[:, VELOCITY] - wind)
    force = ground_effect.residual_force(row[:, 0], row[:, 1:4], row[:, 4:8], row[:, 8:])
    return force[:, [0, 2]]


def thrust_axis(pitch: Array) -> Array:
    """Return unit vectors (x, z) in the direction of the thrust."""
    return np.stack([np.sin(pitch), np.cos(pitch)], axis=1)


def nominal_force(state: Array) -> Array:
    """Return the thrust (x, z) in N that the nominal coefficient predicts."""
    thrust = 2 * VEHICLE.thrust_coefficient * np.sum(state[:, MOTORS] ** 2, axis=1)
    return thrust[:, None] * thrust_axis(state[:, PITCH])


def derivative(state: Array, command: Array, wind: Array) -> Array:
    """Return the time derivative of states (n, 8) for motor commands and wind (n, 2)."""
    force = nominal_force(state) + residual_force(state, wind)
    gain = (1 + VEHICLE.thrust_mismatch) * ground_effect.ground_gain(state[:, Z])
    front, rear = 2 * VEHICLE.thrust_coefficient * gain * state[:, MOTORS].T ** 2
    moment = VEHICLE.rotor_offset * (rear - front) + VEHICLE.mass_offset[0] * (front + rear)
    change = np.empty_like(state)
    change[:, POSITION] = state[:, VELOCITY]
    change[:, PITCH] = state[:, RATE]
    change[:, VELOCITY] = force / VEHICLE.mass
    change[:, VZ] -= GRAVITY
    change[:, RATE] = moment / VEHICLE.inertia[1]
    change[:, MOTORS] = (command - state[:, MOTORS]) / MOTOR_LAG
    return change


def advance(state: Array, command: Array, wind, start: float, period: float) -> Array:
    """Return the states (2, n, 8) in the middle and at the end of a period of constant command.

    All vehicles are integrated as one system by SciPy's RK45. `wind` is a function from the time
    to an array (n, 2).
    """

    def change(time: float, flat: Array) -> Array:
        return derivative(flat.reshape(state.shape), command, wind(start + time)).ravel()

    solved = solve_ivp(
        change,
        (0.0, period),
        state.ravel(),
        t_eval=(period / 2, period),
        first_step=period,
        rtol=1e-8,
        atol=1e-8,
    )
    return solved.y.T.reshape(2, *state.shape)
