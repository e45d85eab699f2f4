"""Random conditions of the landings: wind, sensor noise and start errors, all bounded.

The bounds hold by construction and are constants of this module. The first landings of a longer
series are the same as those of a shorter one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["NOISE", "START_OFFSET", "START_SPEED", "WIND", "Weather", "draw"]

Array = NDArray[np.float64]

STEADY_WIND = 0.8  # m/s, largest mean wind along x
GUSTS = (1.2, 0.5)  # m/s, largest gust along x and z in addition
GUST_HERTZ = np.geomspace(0.1, 2.0, 6)
WIND = float(np.hypot(STEADY_WIND + GUSTS[0], GUSTS[1]))
"""Largest wind speed in m/s."""

DEVIATIONS = np.array([0.003, 0.003, 0.0035, 0.01, 0.01, 0.02])
"""Standard deviations of the noise on x, z [m], pitch [rad], vx, vz [m/s], pitch rate [rad/s]."""
NOISE = 3 * DEVIATIONS
"""Largest noise: the normal distribution is truncated at this value."""

START_OFFSET, START_SPEED = 0.03, 0.03  # m and m/s, largest start error along each axis


@dataclass(frozen=True, eq=False)
class Weather:
    """Wind, sensor noise and start errors of n landings."""

    seed: int
    steady: Array  # m/s, (n,)
    amplitudes: Array  # m/s, (n, 2, waves)
    frequencies: Array  # rad/s, the same shape
    phases: Array
    start: Array  # (n, 4): errors of x, z, vx, vz

    def __len__(self) -> int:
        """Return the number of landings."""
        return len(self.steady)

    def wind(self, time: float) -> Array:
        """Return the velocity (x, z) of the air in m/s at a time, (n, 2)."""
        gusts = np.sum(self.amplitudes * np.sin(self.frequencies * time + self.phases), axis=2)
        gusts[:, 0] += self.steady
        return gusts

    def noise(self, step: int) -> Array:
        """Return the sensor noise at a control step: x, z, pitch, vx, vz, pitch rate, (n, 6)."""
        drawn = np.random.default_rng([self.seed, 1, step]).standard_normal((len(self), 6))
        return np.clip(drawn * DEVIATIONS, -NOISE, NOISE)

    def only(self, chosen: NDArray[np.intp]) -> "Weather":
        """Return the wind of selected landings. Use `noise` of the complete weather."""
        parts = (self.steady, self.amplitudes, self.frequencies, self.phases, self.start)
        return Weather(self.seed, *(part[chosen] for part in parts))


def draw(landings: int, seed: int) -> Weather:
    """Draw the weather of some landings."""
    rng, waves = np.random.default_rng([seed, 0]), GUST_HERTZ.size
    drawn = rng.uniform(-1, 1, (landings, 5 + 6 * waves))
    start, steady = drawn[:, :4], drawn[:, 4]
    shares, pitches, phases = drawn[:, 5:].reshape(landings, 3, 2, waves).transpose(1, 0, 2, 3)
    # Amplitudes of the waves add up to the largest gust in every landing, and never exceed it.
    shares = (1.5 + shares) / np.sum(1.5 + shares, axis=2, keepdims=True)
    return Weather(
        seed,
        STEADY_WIND * steady,
        shares * np.array(GUSTS)[:, None],
        2 * np.pi * GUST_HERTZ * (1 + 0.15 * pitches),
        np.pi * phases,
        start * np.array([START_OFFSET, START_OFFSET, START_SPEED, START_SPEED]),
    )
