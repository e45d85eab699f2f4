"""Bound of the tracking error, the assumptions it rests on, and checks of both in flown landings.

The composite error obeys m ṡ = −K s + ε, where ε is the sum of four forces. Each has a limit that
is fixed before the landings: two follow from the bounds of wind and noise, and two are the largest
values in calibration landings with other seeds. A landing within all limits stays within the bound;
`docs/landing.md` has the proof. Landings that break a limit are counted.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import weather
from controller import Gains
from flight import Flight
from greatcircle import control
from greatcircle.datasets.ground_effect import VEHICLE

__all__ = ["GROUPS", "Bound", "Limits", "assumptions_kept", "calibrate", "exceeded"]

Array = NDArray[np.float64]

SPEED = 1.0  # m/s, largest speed of the vehicle for which the gust limit is derived
GROUPS = {"height": ("z",), "velocity": ("vx", "vy", "vz"), "attitude": ("qx", "qy", "qz", "qw")}
"""Groups of inputs of the learned force that are measured by noisy sensors."""


@dataclass(frozen=True)
class Limits:
    """Largest norm of each part of ε, in newtons."""

    gust: float
    noise: float
    model: float
    loop: float

    @property
    def total(self) -> float:
        """Largest norm of ε."""
        return self.gust + self.noise + self.model + self.loop


@dataclass(frozen=True)
class Bound:
    """Bound of the composite error s and of the tracking error e over time."""

    limits: Limits
    ultimate: control.UltimateBound
    stiffness: float

    def composite(self, time: Array) -> Array:
        """Return the largest ‖s‖ at times from the start."""
        fading = np.exp(-self.ultimate.decay * time)
        return self._start()[1] * fading + self.ultimate.composite * (1 - fading)

    def error(self, time: Array) -> Array:
        """Return the largest ‖e‖ at times from the start: ė = −Λe + s with the largest s."""
        (e, s), a, b = self._start(), self.ultimate.decay, self.stiffness
        slow = np.exp(-b * time)
        # ∫ exp(−b (t − r)) exp(−a r) dr, also where both decay rates are nearly equal.
        gap = (a - b) * time
        both = slow * time * np.where(gap == 0, 1.0, -np.expm1(-gap) / np.where(gap == 0, 1, gap))
        limit = self.ultimate.composite
        return e * slow + limit / b * (1 - slow) + (s - limit) * both

    def _start(self) -> tuple[float, float]:
        """Return the largest ‖e‖ and ‖s‖ at the start."""
        e = math.sqrt(2) * weather.START_OFFSET
        return e, math.sqrt(2) * weather.START_SPEED + self.stiffness * e


def gust_limit() -> float:
    """Return the largest change in N of the air's force due to wind, for speeds up to `SPEED`."""
    drag = VEHICLE.rotor_drag + VEHICLE.fuselage_drag * (2 * SPEED + weather.WIND)
    return drag * weather.WIND


def noise_limit(gains: Gains, slopes: Mapping[str, float]) -> float:
    """Return the largest change in N of the demanded force due to sensor noise.

    Parameters
    ----------
    gains
        Gains of the controller.
    slopes
        Lipschitz bound of the learned force for each of `GROUPS`; empty without a learned force.
    """
    position, velocity = (math.sqrt(2) * weather.NOISE[i] for i in (0, 3))
    feedback = (gains.damping + VEHICLE.mass * gains.stiffness) * velocity
    feedback += gains.damping * gains.stiffness * position
    # A unit quaternion moves by at most half the angle.
    sizes = {"height": weather.NOISE[1], "velocity": velocity, "attitude": weather.NOISE[2] / 2}
    return float(feedback + sum(slope * sizes[group] for group, slope in slopes.items()))


def calibrate(
    flight: Flight, gains: Gains, slopes: Mapping[str, float], in_control: float
) -> Bound:
    """Return the bound, with two of the limits taken from calibration landings.

    Parameters
    ----------
    flight
        Landings with different seeds. If they and a new one are exchangeable, the new one exceeds
        the largest of n with a probability of at most 1/(n + 1), whatever the distribution.
    gains, slopes
        As for `noise_limit`.
    in_control
        Lipschitz bound of the learned force with respect to the motor speeds.
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


def assumptions_kept(flight: Flight, bound: Bound) -> dict[str, NDArray[np.bool_]]:
    """Return for each assumption which landings kept it throughout."""
    audit, limits = flight.audit, bound.limits
    largest = {
        "speed": (audit.speed, SPEED),
        "wind": (audit.wind, weather.WIND),
        "sensor noise": (audit.sensors, 1.0),
        "model error": (audit.model, limits.model),
        "loop error": (audit.loop, limits.loop),
    }
    return {name: np.nanmax(part, axis=0) <= limit for name, (part, limit) in largest.items()}


def exceeded(flight: Flight, bound: Bound) -> NDArray[np.bool_]:
    """Return which landings exceeded the bound of e or s at any control step."""
    beyond = flight.audit.error > bound.error(flight.time)[:, None]
    beyond |= flight.audit.composite > bound.composite(flight.time)[:, None]
    return np.asarray(beyond.any(axis=0))
