"""Data and colours shared by the figures and the charts of the report."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import vehicle
from flight import Flight
from study import Study

__all__ = [
    "BOUND",
    "COLOURS",
    "DASHES",
    "Errors",
    "errors",
    "planned_path",
    "shares",
    "trajectory",
    "typical_landing",
]

Array = NDArray[np.float64]

# Okabe and Ito's palette, distinguishable by colour-blind readers; in grey the dashes differ.
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
"""Plotly's names of the dashes."""
BOUND = "#6C6C6C"


class Errors(NamedTuple):
    """Percentiles of the tracking error over time, while at least half of the landings fly."""

    time: Array
    median: Array
    high: Array
    """99th percentile."""
    largest: Array


def errors(flight: Flight, every: int = 4) -> Errors:
    """Return percentiles over the landings, at one in `every` control steps."""
    error = flight.audit.error[::every]
    most = np.mean(np.isfinite(error), axis=1) >= 0.5
    error = error[most]
    middle, high = np.nanquantile(error, (0.5, 0.99), axis=1)
    return Errors(flight.time[::every][most], middle, high, np.nanmax(error, axis=1))


def shares(values: Array) -> tuple[Array, Array]:
    """Return the sorted values, and the fraction of the landings with at most each value."""
    values = np.sort(values[np.isfinite(values)])
    return values, np.arange(1, len(values) + 1) / len(values)


def trajectory(flight: Flight, landing: int, every: int = 4) -> Array:
    """Return time, x, z and pitch of a landing until touchdown, (points, 4)."""
    parts = [vehicle.X, vehicle.Z, vehicle.PITCH]
    path = np.column_stack([flight.time, flight.state[:, landing][:, parts]])[::every]
    path = path[np.isfinite(path[:, 1])]
    down = flight.touchdown
    if not np.isfinite(down.time[landing]):
        return path
    return np.vstack([path, [down.time[landing], *down.state[landing, parts]]])


def planned_path(study: Study, points: int = 80) -> Array:
    """Return reference positions (x, z) until the pad."""
    times = np.linspace(0, study.approach.duration, points)
    return np.array([study.approach.at(float(time)).position for time in times])


def typical_landing(study: Study) -> int:
    """Return the landing whose touchdown error is nearest to the baseline's median."""
    error = np.abs(study.flights["baseline"].touchdown.state[:, vehicle.X])
    return int(np.nanargmin(np.abs(error - np.nanmedian(error))))
