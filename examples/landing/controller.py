"""Tracking controller: from sensor readings to motor commands, with or without a learned force.

The position loop demands the force τ = m(p̈_d − Λė) − Ks − mg with s = ė + Λe, as in
`docs/control.md`. The learned force f̂ predicts the aerodynamic part; the rotors must
generate the rest. Since f̂ depends on the motor speeds u, the controller solves
u = U(τ − f̂(x, u)) by fixed-point iteration.
`docs/landing.md` derives the Lipschitz constant of U.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import vehicle
from approach import Reference
from greatcircle.datasets.ground_effect import GRAVITY, VEHICLE

__all__ = ["Force", "Gains", "compensated", "demand", "errors", "learned", "motors"]

Array = NDArray[np.float64]
Force = Callable[[Array], Array]
"""Maps rows of the twelve inputs to rows of the force (x, y, z) in N."""


@dataclass(frozen=True)
class Gains:
    """Gains of the position and attitude loops, and limits of the commands."""

    damping: float = 5.0  # K, N s/m
    stiffness: float = 2.0  # Λ, 1/s
    integral: float = 0.0  # N/m, multiplies ∫s
    attitude: float = 10.0  # rad/s, natural frequency of the pitch loop
    attitude_damping: float = 0.9  # 1
    min_lift: float = 9.0  # N, smallest vertical force demanded of the rotors
    max_tilt: float = 0.4  # rad
    min_motor_speed: float = 0.6  # divided by 8000 rpm
    max_motor_speed: float = 1.1

    @property
    def force_to_motors(self) -> float:
        """Lipschitz constant of `motors` with respect to the force: motor speeds per newton."""
        arm, stiff = VEHICLE.rotor_offset, VEHICLE.inertia[1] * self.attitude**2
        moment = stiff / self.min_lift + abs(VEHICLE.mass_offset[0])
        thrusts = np.hypot(1 / 2, moment / (2 * arm))
        return float(thrusts / (2 * VEHICLE.thrust_coefficient * self.min_motor_speed))

    @property
    def motor_range(self) -> float:
        """Largest distance between two commands to the four motors."""
        return 2 * (self.max_motor_speed - self.min_motor_speed)


def errors(gains: Gains, state: Array, reference: Reference) -> tuple[Array, Array]:
    """Return the tracking error e and the composite error s = ė + Λe, each (n, 2)."""
    e = state[:, vehicle.POSITION] - reference.position
    return e, state[:, vehicle.VELOCITY] - reference.velocity + gains.stiffness * e


def demand(gains: Gains, state: Array, reference: Reference) -> Array:
    """Return the force (x, z) in N that rotors and air should make together."""
    e, s = errors(gains, state, reference)
    acceleration = reference.acceleration - gains.stiffness * (s - gains.stiffness * e)
    force = VEHICLE.mass * acceleration - gains.damping * s
    force[:, 1] += VEHICLE.mass * GRAVITY
    return force


def motors(gains: Gains, state: Array, force: Array) -> Array:
    """Return the commands (front, rear) that make a force and turn the vehicle towards it: U."""
    across, up = force[:, 0], np.maximum(force[:, 1], gains.min_lift)
    pitch = np.clip(np.arctan2(across, up), -gains.max_tilt, gains.max_tilt)
    axis = vehicle.thrust_axis(state[:, vehicle.PITCH])
    thrust = across * axis[:, 0] + up * axis[:, 1]
    turn = gains.attitude**2 * (pitch - state[:, vehicle.PITCH])
    turn -= 2 * gains.attitude_damping * gains.attitude * state[:, vehicle.RATE]
    moment = VEHICLE.inertia[1] * turn - VEHICLE.mass_offset[0] * thrust
    per_rotor = np.stack([thrust, thrust], axis=1) / 4
    per_rotor += np.outer(moment, [-1, 1]) / (4 * VEHICLE.rotor_offset)
    c = VEHICLE.thrust_coefficient
    low, high = c * gains.min_motor_speed**2, c * gains.max_motor_speed**2
    return np.sqrt(np.clip(per_rotor, low, high) / c)


def compensated(
    gains: Gains, state: Array, demanded: Array, force: Force, start: Array, iterations: int
) -> tuple[Array, Array]:
    """Return commands that solve u = U(τ − f̂(x, u)), and those of the iteration before.

    Parameters
    ----------
    gains
        Gains of the loops.
    state : (n, 8)
        States as measured.
    demanded : (n, 2)
        The force τ that rotors and air should make together.
    force
        The learned force f̂.
    start : (n, 2)
        Commands where the iteration starts: those of the last control step.
    iterations
        Number of iterations: `control.contraction(...).iterations(...)`.
    """
    u, before, rows = start, start, vehicle.features(state, start)
    for _ in range(iterations):
        before, rows[:, vehicle.ROTORS] = u, u[:, vehicle.PAIRS]
        u = motors(gains, state, demanded - force(rows)[:, [0, 2]])
    return u, before


def learned(force: Force, state: Array, motors: Array) -> Array:
    """Return the learned force (x, z) in N at states (n, 8) and motor speeds (n, 2)."""
    return force(vehicle.features(state, motors))[:, [0, 2]]
