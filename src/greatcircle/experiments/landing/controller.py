"""From what the sensors say to motor commands, with or without a learned force.

The position loop asks for the force m(p̈_d − Λė) − Ks − mg with s = ė + Λe, as in
`docs/control.md`. Part of it the air provides, says the learned force f̂; the rotors make the rest.
As f̂ depends on the motor speeds, these solve u = U(τ − f̂(x, u)), by as many iterations as the
contraction needs. `docs/landing.md` derives the Lipschitz constant of U.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from greatcircle.datasets.ground_effect import GRAVITY, VEHICLE
from greatcircle.experiments.landing import vehicle
from greatcircle.experiments.landing.approach import Reference

Array = NDArray[np.float64]
Force = Callable[[Array], Array]
"""Rows of the twelve inputs to rows of the force (x, y, z) in N."""


@dataclass(frozen=True)
class Gains:
    """Of both loops, and the range in which the motors run."""

    damping: float = 5.0  # K, N s/m
    stiffness: float = 2.0  # Λ, 1/s
    integral: float = 0.0  # N/m, multiplies ∫s
    attitude: float = 10.0  # rad/s, natural frequency of the pitch loop
    attitude_damping: float = 0.9  # 1
    least_lift: float = 9.0  # N, least vertical force that is asked of the rotors
    most_tilt: float = 0.4  # rad
    slowest: float = 0.6  # of a motor, over 8000 rpm
    fastest: float = 1.1

    @property
    def force_to_motors(self) -> float:
        """Lipschitz constant of `motors` in the force: ‖B⁻¹‖, motor speeds per newton."""
        arm, stiff = VEHICLE.rotor_offset, VEHICLE.inertia[1] * self.attitude**2
        moment = stiff / self.least_lift + abs(VEHICLE.mass_offset[0])
        thrusts = np.hypot(1 / 2, moment / (2 * arm))
        return float(thrusts / (2 * VEHICLE.thrust_coefficient * self.slowest))

    @property
    def motor_range(self) -> float:
        """Largest distance between two commands to the four motors."""
        return 2 * (self.fastest - self.slowest)


def errors(gains: Gains, state: Array, reference: Reference) -> tuple[Array, Array]:
    """Tracking error e and composite error s = ė + Λe, each (n, 2)."""
    e = state[:, vehicle.POSITION] - reference.position
    return e, state[:, vehicle.VELOCITY] - reference.velocity + gains.stiffness * e


def demand(gains: Gains, state: Array, reference: Reference) -> Array:
    """Force (x, z) in N that rotors and air should make together."""
    e, s = errors(gains, state, reference)
    wanted = reference.acceleration - gains.stiffness * (s - gains.stiffness * e)
    force = VEHICLE.mass * wanted - gains.damping * s
    force[:, 1] += VEHICLE.mass * GRAVITY
    return force


def motors(gains: Gains, state: Array, force: Array) -> Array:
    """Commands (front, rear) with which the rotors make a force, and turn towards it: U."""
    across, up = force[:, 0], np.maximum(force[:, 1], gains.least_lift)
    pitch = np.clip(np.arctan2(across, up), -gains.most_tilt, gains.most_tilt)
    axis = vehicle.thrust_axis(state[:, vehicle.PITCH])
    thrust = across * axis[:, 0] + up * axis[:, 1]
    turn = gains.attitude**2 * (pitch - state[:, vehicle.PITCH])
    turn -= 2 * gains.attitude_damping * gains.attitude * state[:, vehicle.RATE]
    moment = VEHICLE.inertia[1] * turn - VEHICLE.mass_offset[0] * thrust
    per_rotor = np.stack([thrust, thrust], axis=1) / 4
    per_rotor += np.outer(moment, [-1, 1]) / (4 * VEHICLE.rotor_offset)
    c = VEHICLE.thrust_coefficient
    return np.sqrt(np.clip(per_rotor, c * gains.slowest**2, c * gains.fastest**2) / c)


def compensated(
    gains: Gains, state: Array, wanted: Array, force: Force, start: Array, iterations: int
) -> tuple[Array, Array]:
    """Commands that solve u = U(τ − f̂(x, u)), and those of the last iteration but one.

    Parameters
    ----------
    gains
        Of the loops.
    state : (n, 8)
        As the sensors have it.
    wanted : (n, 2)
        The force τ that rotors and air should make together.
    force
        The learned force f̂.
    start : (n, 2)
        Where the iteration starts: the last command.
    iterations
        How often: `control.contraction(...).iterations(...)`.
    """
    u, before, rows = start, start, vehicle.features(state, start)
    for _ in range(iterations):
        before, rows[:, vehicle.ROTORS] = u, u[:, vehicle.PAIRS]
        u = motors(gains, state, wanted - force(rows)[:, [0, 2]])
    return u, before


def learned(force: Force, state: Array, motors: Array) -> Array:
    """The learned force (x, z) in N at states (n, 8) and motor speeds (n, 2)."""
    return force(vehicle.features(state, motors))[:, [0, 2]]
