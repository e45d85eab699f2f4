"""Load the flight of Neural-Lander [1]_, or build its table from the raw recording.

A quadrotor (Intel Aero) flies close to the ground under motion capture. The quantity to learn is
the force on it besides gravity and the nominal thrust of its motors. The authors of the reproduced
paper published it as one table [2]_, which `load` downloads or reads. They computed it with the
preprocessing that the authors of Neural-Lander published with the raw flight [3]_; `build` does the
same.

**Preprocessing** [3]_, in the order of the steps:

1. Time is the stamp of each message, in seconds after the whole second of the first motor message.
2. Position, attitude, velocity and motor signals are interpolated linearly to 100 Hz. The
   interpolated quaternion is not brought back to unit norm.
3. The acceleration is the four-point derivative of the velocity,
   a_k = (v_{k−2} − 8 v_{k−1} + 8 v_{k+1} − v_{k+2}) / (12 h), h = 0.01 s. It is zero in the first
   two and the last two rows, where a neighbour is missing.
4. Motor speed from the motor signal p (pulse width in µs): n = −0.0026 p² + 17.0948 p − 14834.1065
   rpm. The inputs are u = n / 8000.
5. Thrust T = C_T ρ D⁴ Σ (nᵢ / 60)², with C_T = 0.08937873049125099, ρ = 1.225 kg/m³, D = 0.23 m,
   along the third column b₃ of the rotation matrix of the quaternion (x, y, z, w), body to world.
6. Residual force F = m a + m g e₃ − T b₃ with m = 1.47 kg, g = 9.81 m/s².

**What is not published**, and is an assumption here: the notebook [3]_ keeps the time from 35 s to
325 s, 29,001 rows; the paper's table has 28,001. `build` keeps 35 s to 315 s. It is unknown which
ten seconds the paper's table leaves out, so the two tables may differ. Messages with the same
stamp, on which the notebook would stop, count once.

**Raw files** are topics of a ROS recording (mavros) as CSV, of which the notebook uses columns by
their position: 4 and 5 are the seconds and nanoseconds of the stamp; in the pose 9 to 11 are the
position and 13 to 16 the quaternion x, y, z, w, in the velocity 9 to 11 are the velocity (counted
from 0), and in the motor file 7 is the text ``[p₁, p₂, p₃, p₄, …]``.

References
----------
.. [1] G. Shi et al., "Neural Lander: stable drone landing control using learned dynamics",
   ICRA 2019.
.. [2] https://github.com/nhcho91/ASGD, neural_lander_data.csv; its README says how it was made.
.. [3] https://github.com/GuanyaShi/neural_lander_sim_1d, realdata/learning_fa.ipynb and
   realdata/free_flying_low/.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from greatcircle.data.columns import numbers
from greatcircle.data.frames import is_number, read_frame
from greatcircle.data.table import Table
from greatcircle.datasets import download
from greatcircle.datasets.ground_effect import INPUTS, TARGETS, thrust_axis

if TYPE_CHECKING:
    import polars as pl

__all__ = ["COLUMNS", "MOTORS", "POSE", "TABLE", "VELOCITY", "Source", "build", "load", "load_raw"]

Array = NDArray[np.float64]

COLUMNS = ("t", *INPUTS, *TARGETS)

RATE = 100  # rows per second
START = 35.0  # s, first row
STOP = 315.0  # s, last row; see the assumption above
MAX_GAP = 1.0  # s, between neighbouring messages; [3]_ looks for neighbours within 0.5 s

MASS = 1.47  # kg
GRAVITY = 9.81  # m/s²
AIR_DENSITY = 1.225  # kg/m³
ROTOR_DIAMETER = 0.23  # m
THRUST_COEFFICIENT = 0.08937873049125099  # 1, C_T
MOTOR_SPEED = (-0.0026, 17.0948, -14834.1065)  # rpm, polynomial in the pulse width in µs
SPEED_SCALE = 8000.0  # rpm, motor speed at which u = 1


@dataclass(frozen=True)
class Source:
    """A file in a GitHub repository, known by its git blob id."""

    owner: str
    repository: str
    path: str
    git_blob: str

    @property
    def url(self) -> str:
        """Address of the contents."""
        return download.github(self.owner, self.repository, self.path)

    def fetch(self) -> Path:
        """Return its path in the cache, after downloading it if necessary."""
        return download.fetch(self.url, Path(self.path).name, self.git_blob)


TABLE = Source(
    "nhcho91",
    "ASGD",
    "neural_lander_data.csv",
    "3f26c8aee15c1f899c71cda27925851b1ec5d93c",
)


def _raw(topic: str, git_blob: str) -> Source:
    path = f"realdata/free_flying_low/_slash_mavros_slash_{topic}.csv"
    return Source("GuanyaShi", "neural_lander_sim_1d", path, git_blob)


POSE = _raw("local_position_slash_pose", "a8865b2d4863d9075e9d93d478875ddb27ccf4f0")
VELOCITY = _raw("local_position_slash_velocity", "67ac1fa3d13b93009827e1caeb2658868ea6b17f")
MOTORS = _raw("rc_slash_out", "0bdf5c16bc1d9f6b132839b8c220a4650f49cc96")


def load(path: str | PathLike[str] | None = None) -> Table:
    """Load the table of the paper's experiments.

    Parameters
    ----------
    path : path, optional
        A copy of the file, or any table with the same 16 columns. If not given, the authors' file
        is downloaded, checked by its git blob id and kept for the next time.

    Returns
    -------
    Table
        Columns t [s], z [m], vx vy vz [m/s], qx qy qz qw, u1..u4 [8000 rpm], fx fy fz [N]; 28,001
        rows in the authors' file. All but t and the forces are inputs, the forces are targets.

    Notes
    -----
    A first line that is not all numbers is a header. If it holds the names above, in any order, the
    columns are taken by name, otherwise in the order above.
    """
    source = TABLE.fetch() if path is None else Path(path)
    # Without a header: whether the first line is one is decided below.
    table = read_frame(source, header=False)
    if table.width != len(COLUMNS):
        raise ValueError(
            f"{source} has {table.width} columns; expected {len(COLUMNS)}, "
            f"{' '.join(COLUMNS)}: give the path of the authors' neural_lander_data.csv, or use "
            "greatcircle.datasets.read for your own table"
        )
    first = [(text or "").strip() for text in table.row(0)]
    names = COLUMNS
    if not all(is_number(text) for text in first):
        if set(first) == set(COLUMNS):
            names = tuple(first)
        table = table.slice(1)
    table = table.rename(dict(zip(table.columns, names, strict=True)))
    return Table(numbers(table, COLUMNS, source), INPUTS, TARGETS)


def load_raw() -> Table:
    """Download the three raw files of the flight and build the table from them.

    Returns
    -------
    Table
        Same as for `build`.
    """
    return build(POSE.fetch(), VELOCITY.fetch(), MOTORS.fetch())


def build(
    pose: str | PathLike[str],
    velocity: str | PathLike[str],
    motors: str | PathLike[str],
    *,
    start: float = START,
    stop: float = STOP,
) -> Table:
    """Build the table from the raw files of a flight, by the published preprocessing.

    Parameters
    ----------
    pose, velocity, motors : path
        The raw files, as described at the top of this module.
    start, stop : float
        Times of the first and the last row [s], after the whole second of the first motor message.

    Returns
    -------
    Table
        The columns of `load`, at 100 Hz.
    """
    if not (np.isfinite(start) and np.isfinite(stop) and stop - start >= 4 / RATE):
        raise ValueError(
            f"build was given start={start} and stop={stop}; expected times at least "
            f"{4 / RATE} s apart, because the derivative needs five rows"
        )
    poses, velocities, signals = _messages(pose, 17), _messages(velocity, 12), _messages(motors, 8)
    origin = _values(signals, (4,), motors)[0, 0]
    time = start + np.arange(round((stop - start) * RATE) + 1) / RATE

    pose_time = _stamps(poses, origin, pose)
    position = _resample(time, pose_time, _values(poses, range(9, 12), pose), pose)
    quaternion = _resample(time, pose_time, _values(poses, range(13, 17), pose), pose)
    v = _resample(
        time,
        _stamps(velocities, origin, velocity),
        _values(velocities, range(9, 12), velocity),
        velocity,
    )
    pulse = _resample(time, _stamps(signals, origin, motors), _channels(signals, motors), motors)

    speed = np.asarray(np.polyval(MOTOR_SPEED, pulse), np.float64)
    force = MASS * _derivative(v) - _thrust(speed)[:, None] * _axis(quaternion)
    force[:, 2] += MASS * GRAVITY

    values = (time, position[:, 2], *v.T, *quaternion.T, *(speed / SPEED_SCALE).T, *force.T)
    return Table(dict(zip(COLUMNS, values, strict=True)), INPUTS, TARGETS)


def _thrust(speed: Array) -> Array:
    """Return the nominal thrust of all motors [N] from their speeds [rpm]."""
    per_second = np.sum((speed / 60) ** 2, axis=1)
    return THRUST_COEFFICIENT * AIR_DENSITY * ROTOR_DIAMETER**4 * per_second


def _axis(quaternion: Array) -> Array:
    """Return the third column of the rotation matrix, by the formula of [3]_ for any norm."""
    axis = thrust_axis(quaternion)
    # w² − x² − y² + z² is 1 − 2 (x² + y²) only for a unit quaternion, which an interpolated one
    # is not quite.
    x, y, z, w = quaternion.T
    axis[:, 2] = w**2 - x**2 - y**2 + z**2
    return axis


def _derivative(values: Array) -> Array:
    """Return the four-point derivative along the rows; zero where a neighbour is missing [3]_."""
    derivative = np.zeros_like(values)
    inner = values[:-4] - 8 * values[1:-3] + 8 * values[3:-1] - values[4:]
    derivative[2:-2] = inner * (RATE / 12)
    return derivative


def _resample(time: Array, stamps: Array, values: Array, path: str | PathLike[str]) -> Array:
    """Interpolate linearly at the times, which must lie within those of the messages."""
    # Sorted and without repeated stamps, so that the neighbours of a time are the nearest messages
    # before and after it, in whatever order they were recorded.
    stamps, order = np.unique(stamps, return_index=True)
    values = values[order]
    if stamps[0] > time[0] or stamps[-1] < time[-1]:
        raise ValueError(
            f"{path} holds the time from {stamps[0]:.2f} s to {stamps[-1]:.2f} s; expected all of "
            f"{time[0]:.2f} s to {time[-1]:.2f} s: choose start and stop within the recording, or "
            "check that the three files are of one flight and complete"
        )
    within = (stamps[1:] > time[0]) & (stamps[:-1] < time[-1])
    gaps = np.where(within, np.diff(stamps), 0)
    if gaps.size and gaps.max() > MAX_GAP:
        row = int(gaps.argmax())
        raise ValueError(
            f"{path} has no messages from {stamps[row]:.2f} s to {stamps[row + 1]:.2f} s; expected "
            f"gaps of at most {MAX_GAP} s: choose start and stop on one side of the gap"
        )
    return np.stack([np.interp(time, stamps, column) for column in values.T], axis=1)


def _stamps(table: pl.DataFrame, origin: float, path: str | PathLike[str]) -> Array:
    """Return the times of the messages, in seconds after the origin."""
    seconds, nanoseconds = _values(table, (4, 5), path).T
    # The whole seconds first: as one number, time since 1970 in seconds has no nanoseconds left.
    return (seconds - origin) + nanoseconds / 1e9


def _values(table: pl.DataFrame, positions: Iterable[int], path: str | PathLike[str]) -> Array:
    """Return columns by their position, counted from 0, as numbers, (messages, columns)."""
    names = [table.columns[position] for position in positions]
    columns = numbers(table, names, path)
    return np.stack([columns[name] for name in names], axis=1)


def _channels(table: pl.DataFrame, path: str | PathLike[str]) -> Array:
    """Return the pulse widths of the motors, the first four numbers of the text in column 7."""
    parts = table.to_series(7).str.strip_chars("[] ").str.split(",")
    names = [f"motor {number}" for number in range(1, 5)]
    split = table.select(
        parts.list.get(number, null_on_oob=True).alias(name) for number, name in enumerate(names)
    )
    columns = numbers(split, names, path)
    return np.stack([columns[name] for name in names], axis=1)


def _messages(path: str | PathLike[str], width: int) -> pl.DataFrame:
    """Read a raw file as text, with columns named by their position and the header."""
    table = read_frame(path, header=False)
    if table.width < width or table.height < 2:
        raise ValueError(
            f"{path} has {table.width} columns and {table.height} lines; expected at least "
            f"{width} columns, a header and a message of a mavros topic: check that pose, velocity "
            "and motors are given in this order"
        )
    # The header alone is ambiguous: several columns are called x.
    header = {
        name: f"{position} {text}"
        for position, (name, text) in enumerate(zip(table.columns, table.row(0), strict=True))
    }
    return table.slice(1).rename(header)
