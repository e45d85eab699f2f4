"""Many landings at once: sensors, controller, motors, air, until the legs touch the ground.

The controller runs at a fixed rate and its command is held in between, as on a real vehicle. Beside
the flight, everything on which the bound of the tracking error rests is measured at the beginning,
the middle and the end of each period (`Audit`), from the true state, which the controller never
sees.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from greatcircle.datasets.ground_effect import GRAVITY, VEHICLE
from greatcircle.experiments.landing import controller, vehicle
from greatcircle.experiments.landing.approach import Approach, Reference
from greatcircle.experiments.landing.controller import Force, Gains
from greatcircle.experiments.landing.weather import NOISE, Weather

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]

PERIOD = 0.005  # s, of the controller: 200 Hz
PATIENCE = 8.0  # s after the planned touchdown: who flies still has not landed
INTEGRAL_LIMIT = 3.0  # N, of the integral action: more would be wound up

Progress = Callable[[float], None]
"""Called now and then with the share of the way that is flown, by the plan; 1 at the end."""


@dataclass(frozen=True)
class Pilot:
    """A controller: gains, and the learned force that it compensates, if any."""

    gains: Gains
    force: Force | None = None
    iterations: int = 0


@dataclass(frozen=True, eq=False)
class Audit:
    """Sizes, at one time and for each landing, of all that the bound speaks of.

    With ε the force that keeps m ṡ = −K s + ε from being m ṡ = −K s, which is the sum of `gust`,
    `model`, `noise` and `loop` as vectors.
    """

    error: Array  # ‖e‖, m
    composite: Array  # ‖s‖, m/s
    speed: Array  # ‖v‖, m/s
    wind: Array  # m/s
    sensors: Array  # noise over its bound, of the worst sensor
    gust: Array  # N, what the wind adds to the force of the air
    model: Array  # N, force of still air − learned force
    noise: Array  # N, what sensor noise changes in the force that is asked of the rotors
    loop: Array  # N, what lag of motors and pitch, holding and iterating leave undone
    total: Array  # N, ‖ε‖


class Touchdown(NamedTuple):
    """State and time of each landing when the legs touch; NaN for one that has not."""

    state: Array  # (n, 8)
    time: Array  # s, (n,)


@dataclass(frozen=True, eq=False)
class Flight:
    """What n landings did."""

    time: Array
    """Of the control steps, (steps,)."""
    state: Array
    """At the control steps, (steps, n, 8); NaN after touchdown."""
    audit: Audit
    """Errors at the control steps, and the largest forces in the periods that they begin.

    (steps, n); NaN after touchdown.
    """
    touchdown: Touchdown


def fly(
    pilot: Pilot,
    weather: Weather,
    approach: Approach | None = None,
    progress: Progress | None = None,
) -> Flight:
    """Land once in each weather.

    Parameters
    ----------
    pilot
        The controller.
    weather
        Of the landings.
    approach
        The plan; by default `Approach()`.
    progress
        Called ten times a second of the flight.
    """
    approach = approach or Approach()
    n = len(weather)
    touchdown = Touchdown(np.full((n, 8), np.nan), np.full(n, np.nan))
    flying, wind = np.arange(n), weather
    state = _start(pilot, weather, approach)
    command, integral = state[:, vehicle.MOTORS], np.zeros((n, 2))
    states, audits = [], []
    steps = round((approach.duration + PATIENCE) / PERIOD)
    for step in range(steps):
        now = step * PERIOD
        states.append(_spread(state, flying, n))
        noise = weather.noise(step)[flying]
        order, command, integral = _command(
            pilot, state, noise, approach.at(now), command, integral
        )
        middle, end = vehicle.advance(state, command, wind.wind, now, PERIOD)
        audit = _audited(pilot, (state, middle, end), now, wind, approach, order)
        audits.append([_spread(part, flying, n) for part in audit])
        down = end[:, vehicle.Z] <= approach.standing_height
        if down.any():
            _note(touchdown, flying[down], state[down], end[down], now, approach)
            flying, wind = flying[~down], weather.only(flying[~down])
            end, command, integral = (part[~down] for part in (end, command, integral))
        state = end
        if progress is not None and step % 20 == 0:
            progress(min(now / approach.duration, 0.99))
        if not len(flying):
            break
    if progress is not None:
        progress(1.0)
    time = PERIOD * np.arange(len(states), dtype=np.float64)
    return Flight(time, np.stack(states), Audit(*np.stack(audits, axis=1)), touchdown)


class _Order(NamedTuple):
    """What the controller computed at the beginning of a period."""

    rotors: Array  # force asked of the rotors
    wish: Array  # the same, had the sensors no noise
    sensors: Array  # noise over its bound


def _start(pilot: Pilot, weather: Weather, approach: Approach) -> Array:
    """Level and near the start of the plan, with the motors as the pilot would hover there."""
    begin = approach.at(0.0)
    state = np.zeros((len(weather), 8))
    state[:, vehicle.POSITION] = begin.position + weather.start[:, :2]
    state[:, vehicle.VELOCITY] = begin.velocity + weather.start[:, 2:]
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
    """What is asked for, the motor commands, and the integral of s."""
    gains = pilot.gains
    measured = state.copy()
    measured[:, : vehicle.FRONT] += noise
    wanted = controller.demand(gains, measured, reference)
    wish = controller.demand(gains, state, reference)
    if gains.integral:
        s = controller.errors(gains, measured, reference)[1]
        limit = INTEGRAL_LIMIT / gains.integral
        integral = np.clip(integral + PERIOD * s, -limit, limit)
        wanted = wanted - gains.integral * integral
    if pilot.force is None:
        command = controller.motors(gains, measured, wanted)
    else:
        command, before = controller.compensated(
            gains, measured, wanted, pilot.force, last, pilot.iterations
        )
        wanted = wanted - controller.learned(pilot.force, measured, before)
        wish = wish - controller.learned(pilot.force, state, before)
    worst = np.max(np.abs(noise) / NOISE, axis=1)
    return _Order(wanted, wish, worst), command, integral


def _audited(
    pilot: Pilot,
    states: tuple[Array, Array, Array],
    now: float,
    weather: Weather,
    approach: Approach,
    order: _Order,
) -> list[Array]:
    """The parts of `Audit` over a period, from the states at its beginning, middle and end."""
    gains, state = pilot.gains, np.concatenate(states)
    times = [now + part * PERIOD for part in (0.0, 0.5, 1.0)]
    wind = np.concatenate([weather.wind(time) for time in times])
    n = len(states[0])
    # One reference for each of the three times, repeated for its landings.
    reference = Reference(*(np.repeat(part, n, axis=0) for part in _stacked(approach, times)))
    e, s = controller.errors(gains, state, reference)
    thrust, still = vehicle.nominal_force(state), vehicle.residual_force(state)
    gust = vehicle.residual_force(state, wind) - still
    learned = np.zeros_like(e)
    if pilot.force is not None:
        learned = controller.learned(pilot.force, state, state[:, vehicle.MOTORS])
    undone = thrust + learned - controller.demand(gains, state, reference)
    noise = np.tile(order.rotors - order.wish, (3, 1))
    vectors = (
        state[:, vehicle.VELOCITY],
        wind,
        np.tile(order.sensors[:, None], (3, 1)),
        gust,
        still - learned,
        noise,
        undone - noise,
        gust + still - learned + undone,
    )
    # A state below the ground is no part of the flight.
    flies = state[:, vehicle.Z] > approach.standing_height
    sizes = [np.where(flies, _length(part), 0.0).reshape(3, n).max(axis=0) for part in vectors]
    return [_length(e[:n]), _length(s[:n]), *sizes]


def _stacked(approach: Approach, times: list[float]) -> list[Array]:
    return [np.stack(part) for part in zip(*map(approach.at, times), strict=True)]


def _length(vectors: Array) -> Array:
    return np.sqrt(np.sum(vectors * vectors, axis=1))


def _spread(part: Array, flying: Numbers, n: int) -> Array:
    """Rows of those that fly to the rows of all."""
    spread = np.full((n, *part.shape[1:]), np.nan)
    spread[flying] = part
    return spread


def _note(
    touchdown: Touchdown, who: Numbers, before: Array, after: Array, now: float, approach: Approach
) -> None:
    """State and time at the ground; within a period the way is straight to micrometres."""
    fall = before[:, vehicle.Z] - after[:, vehicle.Z]
    part = (before[:, vehicle.Z] - approach.standing_height) / fall
    touchdown.state[who] = before + part[:, None] * (after - before)
    touchdown.time[who] = now + part * PERIOD
