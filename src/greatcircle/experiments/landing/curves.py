"""What the figures on paper and the charts on the page both draw."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from greatcircle.experiments.landing import vehicle
from greatcircle.experiments.landing.flight import Flight
from greatcircle.experiments.landing.study import Study

Array = NDArray[np.float64]

# Okabe and Ito's colours: told apart by everyone, and in grey with the dashes below.
COLOURS = {
    "baseline": "#D55E00",
    "integral": "#B8860B",
    "compensated": "#0072B2",
    "compensated_integral": "#009E73",
}
DASHES = {
    "baseline": "dash",
    "integral": "dot",
    "compensated": "solid",
    "compensated_integral": "dashdot",
}
"""As Plotly calls them."""
BOUND = "#6C6C6C"


class Errors(NamedTuple):
    """Tracking error over time, as long as half of the landings fly."""

    time: Array
    median: Array
    high: Array
    """99th percentile."""
    largest: Array


def errors(flight: Flight, every: int = 4) -> Errors:
    """Percentiles over the landings, at one of `every` control steps."""
    error = flight.audit.error[::every]
    most = np.mean(np.isfinite(error), axis=1) >= 0.5
    error = error[most]
    middle, high = np.nanquantile(error, (0.5, 0.99), axis=1)
    return Errors(flight.time[::every][most], middle, high, np.nanmax(error, axis=1))


def shares(values: Array) -> tuple[Array, Array]:
    """Values in order, and the share of the landings that have at most each."""
    values = np.sort(values[np.isfinite(values)])
    return values, np.arange(1, len(values) + 1) / len(values)


def way(flight: Flight, landing: int, every: int = 4) -> Array:
    """Time, x, z and pitch of a landing until it touches, (points, 4)."""
    parts = [vehicle.X, vehicle.Z, vehicle.PITCH]
    path = np.column_stack([flight.time, flight.state[:, landing][:, parts]])[::every]
    path = path[np.isfinite(path[:, 1])]
    down = flight.touchdown
    if not np.isfinite(down.time[landing]):
        return path
    return np.vstack([path, [down.time[landing], *down.state[landing, parts]]])


def plan(done: Study, points: int = 80) -> Array:
    """Positions (x, z) that are asked for until the pad."""
    times = np.linspace(0, done.approach.duration, points)
    return np.array([done.approach.at(float(time)).position for time in times])


def usual(done: Study) -> int:
    """The landing whose touchdown error is nearest to the baseline's median: a usual one."""
    error = np.abs(done.flights["baseline"].touchdown.state[:, vehicle.X])
    return int(np.nanargmin(np.abs(error - np.nanmedian(error))))
