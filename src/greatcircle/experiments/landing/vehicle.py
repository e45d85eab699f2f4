"""The quadrotor in the vertical plane: the truth, as the generator of the training data has it.

A state is a row (x, z, pitch, vx, vz, pitch rate, front, rear): metres, radians, seconds, and the
speeds of the two pairs of motors over 8000 rpm. Pitch turns about body y, so that a positive one
tilts the thrust forward. The force besides gravity and nominal thrust is
`ground_effect.residual_force`, with the velocity through the air where the air moves.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from greatcircle.datasets import ground_effect
from greatcircle.datasets.ground_effect import GRAVITY, VEHICLE

Array = NDArray[np.float64]

MOTOR_LAG = 0.04  # s, time constant of a motor that follows its command
X, Z, PITCH, VX, VZ, RATE, FRONT, REAR = range(8)
ROTORS, PAIRS = slice(8, 12), [0, 1, 0, 1]  # inputs u1 to u4; rotors 1 and 3 are in front
POSITION, VELOCITY, MOTORS = slice(X, PITCH), slice(VX, RATE), slice(FRONT, REAR + 1)


def features(state: Array, motors: Array, velocity: Array | None = None) -> Array:
    """The twelve inputs of the learned force, `ground_effect.INPUTS`, for rows in the plane.

    Parameters
    ----------
    state : (n, 8)
        States, of which height, velocity and pitch count.
    motors : (n, 2)
        Front and rear motor speeds.
    velocity : (n, 2), optional
        Another velocity than the state's: through the air.
    """
    v = state[:, VELOCITY] if velocity is None else velocity
    row = np.zeros((len(state), len(ground_effect.INPUTS)))
    row[:, 0] = state[:, Z]
    row[:, 1], row[:, 3] = v.T
    row[:, 5], row[:, 7] = np.sin(state[:, PITCH] / 2), np.cos(state[:, PITCH] / 2)
    row[:, ROTORS] = motors[:, PAIRS]
    return row


def residual_force(state: Array, wind: Array | float = 0.0) -> Array:
    """Force (x, z) in N besides gravity and nominal thrust: what is to be learned, and wind."""
    row = features(state, state[:, MOTORS], state[:, VELOCITY] - wind)
    force = ground_effect.residual_force(row[:, 0], row[:, 1:4], row[:, 4:8], row[:, 8:])
    return force[:, [0, 2]]


def thrust_axis(pitch: Array) -> Array:
    """Unit vectors (x, z) along which the rotors pull."""
    return np.stack([np.sin(pitch), np.cos(pitch)], axis=1)


def nominal_force(state: Array) -> Array:
    """Thrust (x, z) in N that the nominal coefficient predicts for the motor speeds."""
    thrust = 2 * VEHICLE.thrust_coefficient * np.sum(state[:, MOTORS] ** 2, axis=1)
    return thrust[:, None] * thrust_axis(state[:, PITCH])


def derivative(state: Array, command: Array, wind: Array) -> Array:
    """Time derivative of states (n, 8) for motor commands (n, 2) in a wind (n, 2)."""
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
    """States (2, n, 8) in the middle and at the end of a period with a command that is held.

    All vehicles are one system of ODEs for SciPy's RK45. `wind` is a function of the time that
    gives (n, 2).
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
