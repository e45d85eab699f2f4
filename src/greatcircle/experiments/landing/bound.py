"""How far the vehicle can stray from the plan, and on which inequalities that rests.

The composite error obeys m ṡ = −K s + ε, where ε is the sum of four forces. Each has a largest
size that is known before the landings: two are derived from the bounds of wind and noise, and two
are the largest seen in calibration landings with other seeds. A landing that keeps all of them
stays within the bound: that is a theorem (`docs/landing.md`). One that does not is counted.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from greatcircle.certificate import control
from greatcircle.datasets.ground_effect import VEHICLE
from greatcircle.experiments.landing import weather
from greatcircle.experiments.landing.controller import Gains
from greatcircle.experiments.landing.flight import Flight

Array = NDArray[np.float64]

SPEED = 1.0  # m/s, largest speed of the vehicle for which the gust bound is derived
BLOCKS = {"height": ("z",), "velocity": ("vx", "vy", "vz"), "attitude": ("qx", "qy", "qz", "qw")}
"""Inputs of the learned force that sensors measure, with noise of their own."""


@dataclass(frozen=True)
class Limits:
    """Largest size of each part of ε, in newtons."""

    gust: float
    noise: float
    model: float
    loop: float

    @property
    def total(self) -> float:
        """Of ε."""
        return self.gust + self.noise + self.model + self.loop


@dataclass(frozen=True)
class Bound:
    """Of the composite error s and the tracking error e, from the start on."""

    limits: Limits
    ultimate: control.UltimateBound
    stiffness: float

    def composite(self, time: Array) -> Array:
        """Largest ‖s‖ at some times from the start."""
        fading = np.exp(-self.ultimate.decay * time)
        return self._start()[1] * fading + self.ultimate.composite * (1 - fading)

    def error(self, time: Array) -> Array:
        """Largest ‖e‖ at some times from the start: ė = −Λe + s with the largest s."""
        (e, s), a, b = self._start(), self.ultimate.decay, self.stiffness
        slow = np.exp(-b * time)
        # ∫ exp(−b (t − r)) exp(−a r) dr, also where both decays are nearly the same.
        gap = (a - b) * time
        both = slow * time * np.where(gap == 0, 1.0, -np.expm1(-gap) / np.where(gap == 0, 1, gap))
        stays = self.ultimate.composite
        return e * slow + stays / b * (1 - slow) + (s - stays) * both

    def _start(self) -> tuple[float, float]:
        """Largest ‖e‖ and ‖s‖ at the start, by construction."""
        e = math.sqrt(2) * weather.START_OFFSET
        return e, math.sqrt(2) * weather.START_SPEED + self.stiffness * e


def gust_limit() -> float:
    """Largest change of the force of the air by the wind, in N, up to the speed `SPEED`."""
    drag = VEHICLE.rotor_drag + VEHICLE.fuselage_drag * (2 * SPEED + weather.WIND)
    return drag * weather.WIND


def noise_limit(gains: Gains, slopes: Mapping[str, float]) -> float:
    """Largest change by noise of the force that is asked of the rotors, in N.

    Parameters
    ----------
    gains
        Of the controller.
    slopes
        Lipschitz bound of the learned force for each of `BLOCKS`; none where it is not used.
    """
    position, velocity = (math.sqrt(2) * weather.NOISE[i] for i in (0, 3))
    feedback = (gains.damping + VEHICLE.mass * gains.stiffness) * velocity
    feedback += gains.damping * gains.stiffness * position
    # A unit quaternion moves by half the angle at most.
    sizes = {"height": weather.NOISE[1], "velocity": velocity, "attitude": weather.NOISE[2] / 2}
    return float(feedback + sum(slope * sizes[block] for block, slope in slopes.items()))


def calibrate(
    flight: Flight, gains: Gains, slopes: Mapping[str, float], in_control: float
) -> Bound:
    """The bound, with the largest forces that calibration landings have seen.

    Parameters
    ----------
    flight
        Landings with seeds of their own. If they and a new one are drawn alike, the new one passes
        the largest of n with a probability of at most 1/(n + 1), whatever the distribution.
    gains, slopes
        As for `noise_limit`.
    in_control
        Lipschitz bound of the learned force in the motor speeds.
    """
    limits = Limits(
        gust_limit(),
        noise_limit(gains, slopes),
        float(np.nanmax(flight.audit.model)),
        float(np.nanmax(flight.audit.loop)),
    )
    ultimate = control.ultimate_bound(
        bound=in_control,
        model_error=limits.total,
        damping=gains.damping,
        stiffness=gains.stiffness,
        mass=VEHICLE.mass,
    )
    return Bound(limits, ultimate, gains.stiffness)


def kept(flight: Flight, bound: Bound) -> dict[str, NDArray[np.bool_]]:
    """For each assumption, which of the landings kept it all the way."""
    audit, limits = flight.audit, bound.limits
    most = {
        "speed": (audit.speed, SPEED),
        "wind": (audit.wind, weather.WIND),
        "sensor noise": (audit.sensors, 1.0),
        "model error": (audit.model, limits.model),
        "loop error": (audit.loop, limits.loop),
    }
    return {name: np.nanmax(part, axis=0) <= limit for name, (part, limit) in most.items()}


def exceeded(flight: Flight, bound: Bound) -> NDArray[np.bool_]:
    """Which of the landings were beyond the bound of e or s at any control step."""
    beyond = flight.audit.error > bound.error(flight.time)[:, None]
    beyond |= flight.audit.composite > bound.composite(flight.time)[:, None]
    return np.asarray(beyond.any(axis=0))
