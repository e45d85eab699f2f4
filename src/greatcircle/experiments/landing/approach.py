"""Where the vehicle should be: a straight glide slope to the pad, from rest to a walking pace."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Reference(NamedTuple):
    """Position, velocity and acceleration (x, z) that are asked for at one time."""

    position: Array
    velocity: Array
    acceleration: Array


@dataclass(frozen=True)
class Approach:
    """The plan. Heights are of the legs above the ground; the pad is at x = 0.

    The distance along each axis is a polynomial of degree five in time: it starts at rest, and ends
    at the pad with the sink speed and no acceleration. Then the plan goes on straight through the
    ground: a vehicle that the air holds up is still asked to come down.
    """

    height: float = 1.2  # m, at the start
    distance: float = 1.2  # m, from the pad at the start
    duration: float = 4.0  # s, until the legs should touch
    sink_speed: float = 0.25  # m/s, at the pad
    standing_height: float = 0.12  # m, of the vehicle's centre when it stands

    def at(self, time: float) -> Reference:
        """What is asked for at a time in seconds from the start."""
        left, speed, rate = self._left(min(time, self.duration))
        # Beyond the pad, straight on.
        left -= self.sink_speed / self.height * max(time - self.duration, 0.0)
        start = np.array([-self.distance, self.height])
        at_pad = np.array([0.0, self.standing_height])
        return Reference(at_pad + left * start, speed * start, rate * start)

    def _left(self, time: float) -> tuple[float, float, float]:
        """The part of the way that is left, and its derivatives."""
        t, end = time / self.duration, -self.sink_speed * self.duration / self.height
        # 1 + a t³ + b t⁴ + c t⁵ with value 0, slope `end` and no curvature at t = 1.
        a, b, c = np.linalg.solve([[1, 1, 1], [3, 4, 5], [6, 12, 20]], [-1, end, 0])
        return (
            1 + a * t**3 + b * t**4 + c * t**5,
            (3 * a * t**2 + 4 * b * t**3 + 5 * c * t**4) / self.duration,
            (6 * a * t + 12 * b * t**2 + 20 * c * t**3) / self.duration**2,
        )
