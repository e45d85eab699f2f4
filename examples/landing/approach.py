"""The reference trajectory: a straight glide slope to the landing pad, starting at rest."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Approach", "Reference"]

Array = NDArray[np.float64]


class Reference(NamedTuple):
    """Reference position, velocity and acceleration (x, z) at one time."""

    position: Array
    velocity: Array
    acceleration: Array


@dataclass(frozen=True)
class Approach:
    """A glide slope to the pad at x = 0. Heights are those of the legs above the ground.

    The distance along each axis is a polynomial of degree five in time: it starts at rest and ends
    at the pad with the sink speed and no acceleration. The reference then continues straight
    through the ground, so that a vehicle held up by the ground effect still descends.
    """

    height: float = 1.2  # m, at the start
    distance: float = 1.2  # m, from the pad at the start
    duration: float = 4.0  # s, until the planned touchdown
    sink_speed: float = 0.25  # m/s, at the pad
    standing_height: float = 0.12  # m, of the vehicle's centre when it stands

    def at(self, time: float) -> Reference:
        """Return the reference at a time in seconds from the start."""
        fraction, speed, acceleration = self._remaining(min(time, self.duration))
        fraction -= self.sink_speed / self.height * max(time - self.duration, 0.0)
        start = np.array([-self.distance, self.height])
        at_pad = np.array([0.0, self.standing_height])
        return Reference(at_pad + fraction * start, speed * start, acceleration * start)

    def _remaining(self, time: float) -> tuple[float, float, float]:
        """Return the remaining fraction of the path and its first two time derivatives."""
        t, end = time / self.duration, -self.sink_speed * self.duration / self.height
        # 1 + a t³ + b t⁴ + c t⁵ with value 0, slope `end` and no curvature at t = 1.
        a, b, c = np.linalg.solve([[1, 1, 1], [3, 4, 5], [6, 12, 20]], [-1, end, 0])
        return (
            1 + a * t**3 + b * t**4 + c * t**5,
            (3 * a * t**2 + 4 * b * t**3 + 5 * c * t**4) / self.duration,
            (6 * a * t + 12 * b * t**2 + 20 * c * t**3) / self.duration**2,
        )
