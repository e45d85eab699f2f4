"""Simulate many landings at once: sensors, controller, motors and air, until touchdown.

The controller runs at a fixed rate and its command is held in between, as on a real vehicle. All
quantities that the bound of the tracking error rests on are measured at the beginning, middle and
end of each period (`Audit`), from the true state, which the controller does not know.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import controller
import vehicle
from approach import Approach, Reference
from controller import Force, Gains
from greatcircle.datasets.ground_effect import GRAVITY, VEHICLE
from weather import NOISE, Weather

__all__ = ["PERIOD", "Audit", "Flight", "Pilot", "Touchdown", "fly"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

PERIOD = 0.005  # s, of the controller: 200 Hz
TIMEOUT = 8.0  # s after the planned touchdown; a vehicle still in the air has not landed
INTEGRAL_LIMIT = 3.0  # N, of the integral action: anti-windup


@dataclass(frozen=True)
class Pilot:
    """A controller: its gains, and the learned force that it compensates, if any."""

    gains: Gains
    force: Force | None = None
    iterations: int = 0


@dataclass(frozen=True, eq=False)
class Audit:
    """Quantities in the bound of the tracking error, for each time and landing.

    ε is defined by m ṡ = −K s + ε. It is the sum of the vectors `gust`, `model`, `noise` and
    `loop`, whose norms are recorded here.
    """

    error: Array  # ‖e‖, m
    composite: Array  # ‖s‖, m/s
    speed: Array  # ‖v‖, m/s
    wind: Array  # m/s
    sensors: Array  # noise divided by its bound, of the worst sensor
    gust: Array  # N, change of the air's force due to wind
    model: Array  # N, force of still air − learned force
    noise: Array  # N, change of the demanded rotor force due to sensor noise
    loop: Array  # N, due to lag of motors and pitch, sampling, and unfinished iterations
    total: Array  # N, ‖ε‖


class Touchdown(NamedTuple):
    """State and time of each landing at touchdown; NaN for one that has not landed."""

    state: Array  # (n, 8)
    time: Array  # s, (n,)


@dataclass(frozen=True, eq=False)
class Flight:
    """Record of n landings."""

    time: Array
    """Times of the control steps, (steps,)."""
    state: Array
    """States at the control steps, (steps, n, 8); NaN after touchdown."""
    audit: Audit
    """Errors at the control steps, and the largest forces in the period after each.

    (steps, n); NaN after touchdown.
    """
    touchdown: Touchdown


def fly(pilot: Pilot, weather: Weather, approach: Approach | None = None) -> Flight:
    """Land once in each weather."""
    approach = approach or Approach()
    n = len(weather)
    touchdown = Touchdown(np.full((n, 8), np.nan), np.full(n, np.nan))
    flying, wind = np.arange(n), weather
    state = _start(pilot, weather, approach)
    command, integral = state[:, vehicle.MOTORS], np.zeros((n, 2))
    states, audits = [], []
    for step in range(round((approach.duration + TIMEOUT) / PERIOD)):
        now = step * PERIOD
        states.append(_scatter(state, flying, n))
        noise = weather.noise(step)[flying]
        order, command, integral = _command(
            pilot, state, noise, approach.at(now), command, integral
        )
        middle, end = vehicle.advance(state, command, wind.wind, now, PERIOD)
        audit = _audit(pilot, (state, middle, end), now, wind, approach, order)
        audits.append([_scatter(part, flying, n) for part in audit])
        down = end[:, vehicle.Z] <= approach.standing_height
        if down.any():
            _record_touchdown(touchdown, flying[down], state[down], end[down], now, approach)
            flying, wind = flying[~down], weather.only(flying[~down])
            end, command, integral = (part[~down] for part in (end, command, integral))
        state = end
        if not len(flying):
            break
    time = PERIOD * np.arange(len(states), dtype=np.float64)
    return Flight(time, np.stack(states), Audit(*np.stack(audits, axis=1)), touchdown)


class _Order(NamedTuple):
    """Output of the controller at the beginning of a period."""

    rotors: Array  # force demanded of the rotors
    noiseless: Array  # the same with exact sensors
    sensors: Array  # noise divided by its bound


def _start(pilot: Pilot, weather: Weather, approach: Approach) -> Array:
    """Return states near the start of the reference: level, with the motors at hover."""
    reference = approach.at(0.0)
    state = np.zeros((len(weather), 8))
    state[:, vehicle.POSITION] = reference.position + weather.start[:, :2]
    state[:, vehicle.VELOCITY] = reference.velocity + weather.start[:, 2:]
    weight = np.tile([0.0, VEHICLE.mass * GRAVITY], (len(weather), 1))
    state[:, vehicle.MOTORS] = controller.motors(pilot.gains, state, weight)
    if pilot.force is not None:
        state[:, vehicle.MOTORS], _ = controller.compensated(
            pilot.gains, state, weight, pilot.force, state[:, vehicle.MOTORS], pilot.iterations
        )
    return state


def _command(
    pilot: Pilot, state: Array, noise: Array, reference: Reference, last: Array, integral: Array
) -> tuple[_Order, Array, Array]:
    """Return the demanded forces, the motor commands, and the integral of s."""
    gains = pilot.gains
    measured = state.copy()
    measured[:, : vehicle.FRONT] += noise
    demanded = controller.demand(gains, measured, reference)
    noiseless = controller.demand(gains, state, reference)
    if gains.integral:
        s = controller.errors(gains, measured, reference)[1]
        limit = INTEGRAL_LIMIT / gains.integral
        integral = np.clip(integral + PERIOD * s, -limit, limit)
        demanded = demanded - gains.integral * integral
    if pilot.force is None:
        command = controller.motors(gains, measured, demanded)
    else:
        command, before = controller.compensated(
            gains, measured, demanded, pilot.force, last, pilot.iterations
        )
        demanded = demanded - controller.learned(pilot.force, measured, before)
        noiseless = noiseless - controller.learned(pilot.force, state, before)
    worst = np.max(np.abs(noise) / NOISE, axis=1)
    return _Order(demanded, noiseless, worst), command, integral


def _audit(
    pilot: Pilot,
    states: tuple[Array, Array, Array],
    now: float,
    weather: Weather,
    approach: Approach,
    order: _Order,
) -> list[Array]:
    """Return the fields of `Audit` from the states at beginning, middle and end of a period."""
    gains, state = pilot.gains, np.concatenate(states)
    times = [now + part * PERIOD for part in (0.0, 0.5, 1.0)]
    wind = np.concatenate([weather.wind(time) for time in times])
    n = len(states[0])
    references = zip(*map(approach.at, times), strict=True)
    reference = Reference(*(np.repeat(np.stack(part), n, axis=0) for part in references))
    e, s = controller.errors(gains, state, reference)
    thrust, still = vehicle.nominal_force(state), vehicle.residual_force(state)
    gust = vehicle.residual_force(state, wind) - still
    learned = np.zeros_like(e)
    if pilot.force is not None:
        learned = controller.learned(pilot.force, state, state[:, vehicle.MOTORS])
    remainder = thrust + learned - controller.demand(gains, state, reference)
    noise = np.tile(order.rotors - order.noiseless, (3, 1))
    vectors = (
        state[:, vehicle.VELOCITY],
        wind,
        np.tile(order.sensors[:, None], (3, 1)),
        gust,
        still - learned,
        noise,
        remainder - noise,
        gust + still - learned + remainder,
    )
    # States below the ground are not part of the flight.
    above = state[:, vehicle.Z] > approach.standing_height
    norms = [np.where(above, _norms(part), 0.0).reshape(3, n).max(axis=0) for part in vectors]
    return [_norms(e[:n]), _norms(s[:n]), *norms]


def _norms(vectors: Array) -> Array:
    return np.sqrt(np.sum(vectors * vectors, axis=1))


def _scatter(rows: Array, flying: Indices, n: int) -> Array:
    """Return rows for all n landings, NaN for those that have landed."""
    scattered = np.full((n, *rows.shape[1:]), np.nan)
    scattered[flying] = rows
    return scattered


def _record_touchdown(
    touchdown: Touchdown,
    landed: Indices,
    before: Array,
    after: Array,
    now: float,
    approach: Approach,
) -> None:
    """Record state and time at the ground; linear interpolation is exact to micrometres."""
    fall = before[:, vehicle.Z] - after[:, vehicle.Z]
    part = (before[:, vehicle.Z] - approach.standing_height) / fall
    touchdown.state[landed] = before + part[:, None] * (after - before)
    touchdown.time[landed] = now + part * PERIOD
