"""Neural-Lander: the table of the paper, and the preprocessing of the raw flight.

The preprocessing is tested on a flight whose force is known.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from greatcircle.datasets import ground_effect, neural_lander

Array = NDArray[np.float64]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# Neural-Lander: the paper's table


def lander_rows() -> Array:
    return np.random.default_rng(0).normal(size=(4, 16)).round(3)


def as_csv(rows: Array, header: tuple[str, ...] | None) -> str:
    lines = [header] if header is not None else []
    return "\n".join(",".join(map(str, line)) for line in [*lines, *rows.tolist()]) + "\n"


@pytest.mark.parametrize(
    "header",
    [None, neural_lander.COLUMNS, tuple(f"Column{i}" for i in range(16))],
    ids=["no header", "our names", "other names"],
)
def test_lander_with_and_without_header(tmp_path: Path, header: tuple[str, ...] | None) -> None:
    rows = lander_rows()
    table = neural_lander.load(write(tmp_path / "data.csv", as_csv(rows, header)))
    assert (table.inputs, table.targets) == (ground_effect.INPUTS, ground_effect.TARGETS)
    np.testing.assert_array_equal(table.columns["t"], rows[:, 0])
    np.testing.assert_array_equal(table.X, rows[:, 1:13])
    np.testing.assert_array_equal(table.y, rows[:, 13:])


def test_lander_columns_in_another_order_go_by_name(tmp_path: Path) -> None:
    rows = lander_rows()
    text = as_csv(rows[:, ::-1], neural_lander.COLUMNS[::-1])
    np.testing.assert_array_equal(
        neural_lander.load(write(tmp_path / "data.csv", text)).y, rows[:, 13:]
    )


def test_lander_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has 2 columns; expected 16, t z vx.*neural_lander_data"):
        neural_lander.load(write(tmp_path / "two.csv", "a,b\n1,2\n"))
    text = as_csv(lander_rows(), neural_lander.COLUMNS).replace("\n", "\n,", 1)
    with pytest.raises(ValueError, match="more fields than its first line"):
        neural_lander.load(write(tmp_path / "wide.csv", text))
    rows = lander_rows()
    rows[2, 5] = np.nan
    with pytest.raises(ValueError, match=r"'qx' has no number in the rows 3 \('nan'\)"):
        neural_lander.load(write(tmp_path / "nan.csv", as_csv(rows, neural_lander.COLUMNS)))


def test_lander_reads_the_surrogate(data_folder: Path) -> None:
    table = neural_lander.load(data_folder / "neural_lander_surrogate.csv.gz")
    assert len(table) == 28_001
    assert table.columns["t"][0] == neural_lander.START
    assert table.columns["t"][-1] == neural_lander.STOP


# Neural-Lander: the preprocessing of the raw flight, on one whose force is known


def velocity_at(time: Array) -> Array:
    return np.stack([np.sin(time), 0.5 * np.cos(1.3 * time), 0.3 * np.sin(0.7 * time)], axis=1)


def acceleration_at(time: Array) -> Array:
    return np.stack([np.cos(time), -0.65 * np.sin(1.3 * time), 0.21 * np.cos(0.7 * time)], axis=1)


def quaternion_at(time: Array) -> Array:
    """Tilt about an axis that turns in the ground plane, then a yaw: unit norm at every time."""
    tilt, yaw = 0.1 * np.sin(0.9 * time), 0.2 * np.sin(0.4 * time)
    s, c = np.sin(tilt), np.cos(tilt)
    return np.stack([s * np.cos(yaw), s * np.sin(yaw), c * np.sin(yaw), c * np.cos(yaw)], axis=1)


def rotated_vertical(quaternion: Array) -> Array:
    """q e₃ q*, by the quaternion product itself."""

    def product(p: Array, q: Array) -> Array:
        vector = p[:, 3:] * q[:, :3] + q[:, 3:] * p[:, :3] + np.cross(p[:, :3], q[:, :3])
        scalar = p[:, 3] * q[:, 3] - np.sum(p[:, :3] * q[:, :3], axis=1)
        return np.column_stack([vector, scalar])

    vertical = np.tile([0.0, 0.0, 1.0, 0.0], (len(quaternion), 1))
    conjugate = quaternion * [-1, -1, -1, 1]
    return product(product(quaternion, vertical), conjugate)[:, :3]


def height_at(time: Array) -> Array:
    return 1 + 0.3 * np.sin(0.7 * time)


def pulses_at(time: Array) -> Array:
    """Whole microseconds, as recorded, and constant, so that interpolation does not change them."""
    return np.tile([1500, 1510, 1490, 1505], (len(time), 1))


def force_at(time: Array) -> Array:
    """m a + m g e₃ − T b₃ with the published constants, written down once more."""
    speed = -0.0026 * pulses_at(time) ** 2 + 17.0948 * pulses_at(time) - 14834.1065
    thrust = 0.08937873049125099 * 1.225 * 0.23**4 * np.sum(speed**2, axis=1) / 3600
    weight = 1.47 * np.array([0, 0, 9.81])
    return (
        1.47 * acceleration_at(time)
        + weight
        - thrust[:, None] * rotated_vertical(quaternion_at(time))
    )


ORIGIN = 1_536_033_093
STAMP = "rosbagTimestamp,header,seq,stamp,secs,nsecs,frame_id"


def stamp(row: int, nanoseconds: int) -> str:
    seconds, rest = ORIGIN + nanoseconds // 10**9, nanoseconds % 10**9
    return f"{ORIGIN * 10**9 + nanoseconds},,{row},,{seconds},{rest},'map'"


def record(folder: Path, stamps: Callable[[], NDArray[np.int64]]) -> tuple[Path, Path, Path]:
    """The three raw files, each with its own stamps in nanoseconds after the origin."""
    pose, velocity, motors = stamps(), stamps(), stamps()

    def number(value: float) -> str:
        return repr(float(value))

    lines = [f"{STAMP},pose,position,x,y,z,orientation,x,y,z,w"]
    time = pose / 1e9
    for row, (at, z, q) in enumerate(zip(pose, height_at(time), quaternion_at(time), strict=True)):
        lines.append(f"{stamp(row, int(at))},,,0.5,0.1,{number(z)},,{','.join(map(number, q))}")
    paths = [write(folder / "pose.csv", "\n".join(lines) + "\n")]

    lines = [f"{STAMP},twist,linear,x,y,z,angular,x,y,z"]
    for row, (at, v) in enumerate(zip(velocity, velocity_at(velocity / 1e9), strict=True)):
        lines.append(f"{stamp(row, int(at))},,,{','.join(map(number, v))},,0,0,0")
    paths.append(write(folder / "velocity.csv", "\n".join(lines) + "\n"))

    lines = [f"{STAMP},channels"]
    for row, (at, p) in enumerate(zip(motors, pulses_at(motors / 1e9), strict=True)):
        channels = ", ".join(map(str, [*p, 0, 0, 0, 0]))
        lines.append(f'{stamp(row, int(at))},"[{channels}]"')
    paths.append(write(folder / "motors.csv", "\n".join(lines) + "\n"))
    return paths[0], paths[1], paths[2]


def on_the_grid() -> NDArray[np.int64]:
    return np.arange(0, 8 * 10**9 + 1, 10**7)


def test_build_recovers_the_force_of_a_known_flight(tmp_path: Path) -> None:
    """With messages on the time grid, only the derivative is approximate (fourth order, 0.01 s)."""
    table = neural_lander.build(*record(tmp_path, on_the_grid), start=1.0, stop=7.0)
    time = table.columns["t"]
    np.testing.assert_allclose(time, 1 + np.arange(601) / 100)
    np.testing.assert_allclose(table.columns["z"], height_at(time), atol=1e-10)
    np.testing.assert_allclose(table.X[:, 1:4], velocity_at(time), atol=1e-10)
    np.testing.assert_allclose(table.X[:, 4:8], quaternion_at(time), atol=1e-10)
    speed = -0.0026 * 1510**2 + 17.0948 * 1510 - 14834.1065
    np.testing.assert_allclose(table.columns["u2"], speed / 8000)
    np.testing.assert_allclose(table.y[2:-2], force_at(time)[2:-2], atol=1e-7)  # N


def test_build_has_no_acceleration_at_the_ends(tmp_path: Path) -> None:
    """As published: the derivative lacks neighbours there, and is zero."""
    table = neural_lander.build(*record(tmp_path, on_the_grid), start=1.0, stop=2.0)
    ends = [0, 1, -2, -1]
    time = table.columns["t"][ends]
    expected = force_at(time) - 1.47 * acceleration_at(time)
    np.testing.assert_allclose(table.y[ends], expected, atol=1e-9)


def test_build_interpolates_messages_at_uneven_times(tmp_path: Path) -> None:
    """Stamps off the grid, out of order and twice: linear interpolation errs by h² / 8 · v″."""
    rng = np.random.default_rng(1)

    def uneven() -> NDArray[np.int64]:
        stamps = on_the_grid() + rng.integers(-4_000_000, 4_000_000, on_the_grid().size)
        stamps = np.maximum(stamps, 0)
        stamps[200:202] = stamps[201:199:-1]
        stamps[300] = stamps[301]
        return stamps

    table = neural_lander.build(*record(tmp_path, uneven), start=1.0, stop=7.0)
    time = table.columns["t"]
    np.testing.assert_allclose(table.X[:, 1:4], velocity_at(time), atol=1e-4)  # m/s
    np.testing.assert_allclose(table.X[:, 4:8], quaternion_at(time), atol=1e-5)
    np.testing.assert_allclose(table.y[2:-2], force_at(time)[2:-2], atol=0.02)  # N


def test_build_makes_as_many_rows_as_the_paper_has(tmp_path: Path) -> None:
    def sparse() -> NDArray[np.int64]:
        return np.arange(0, 316 * 10**9, 10**8)

    table = neural_lander.build(*record(tmp_path, sparse))
    assert len(table) == 28_001
    assert tuple(table.columns) == neural_lander.COLUMNS


def test_build_errors(tmp_path: Path) -> None:
    paths = pose, velocity, motors = record(tmp_path, on_the_grid)
    with pytest.raises(ValueError, match=r"pose.csv holds the time from 0.00 s to 8.00 s.*35.00 s"):
        neural_lander.build(*paths)
    with pytest.raises(ValueError, match=r"start=2.*stop=1.*five rows"):
        neural_lander.build(*paths, start=2, stop=1)
    with pytest.raises(ValueError, match=r"motors.csv has 8 columns.*in this order"):
        neural_lander.build(motors, velocity, pose, start=1, stop=2)
    with pytest.raises(FileNotFoundError, match=r"none\.csv"):
        neural_lander.build(tmp_path / "none.csv", velocity, motors)

    lines = velocity.read_text().splitlines()
    gap = write(tmp_path / "gap.csv", "\n".join(lines[:300] + lines[450:]))
    with pytest.raises(ValueError, match=r"gap.csv has no messages from 2.98 s to 4.49 s"):
        neural_lander.build(pose, gap, motors, start=1, stop=7)
    assert len(neural_lander.build(pose, gap, motors, start=1, stop=2)) == 101

    text = motors.read_text().replace("[1500, 1510,", "[1500, off,", 1)
    with pytest.raises(ValueError, match=r"'motor 2' has no number in the rows 1 \(' off'\)"):
        neural_lander.build(pose, velocity, write(tmp_path / "off.csv", text), start=1, stop=2)
