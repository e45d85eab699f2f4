"""Tables from files: what `read` checks, the loaders of the two public sets, and the preprocessing
of the raw Neural-Lander flight on a flight whose force is known.
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from greatcircle.datasets import files, ground_effect, neural_fly, neural_lander, read

Array = NDArray[np.float64]

CSV = "t,a,b,label,y\n0,1,2.5,up,3\n1,4,5.5,down,6\n"


def write(path: Path, text: str) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


# read


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz", "TABLE.CSV", "table.parquet"])
def test_read_takes_every_format(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith(".parquet"):
        pl.read_csv(CSV.encode()).write_parquet(path)
    else:
        write(path, CSV)
    table = read(path, inputs=["b", "a"], targets=["y"])
    assert (table.inputs, table.targets) == (("b", "a"), ("y",))
    np.testing.assert_array_equal(table.X, [[2.5, 1], [5.5, 4]])
    np.testing.assert_array_equal(table.y, [[3], [6]])
    assert all(column.dtype == np.float64 for column in table.columns.values())


def test_inputs_default_to_the_other_columns_of_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "table.csv", CSV)
    assert read(path, targets="y").inputs == ("t", "a", "b")
    table = read(str(path), targets="y", time="t")
    assert table.inputs == ("a", "b")
    np.testing.assert_array_equal(table.columns["t"], [0, 1])


def test_numbers_as_text_in_parquet_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    pl.DataFrame({"a": [" 1", "2.5 "], "y": [1, 2]}).write_parquet(path)
    np.testing.assert_array_equal(read(path, targets="y").X, [[1], [2.5]])


def test_a_long_file_is_read_to_its_end(tmp_path: Path) -> None:
    lines = "\n".join(f"{row},{row}" for row in range(20_000))
    path = write(tmp_path / "table.csv", f"a,y\n{lines}\n0.5,7\n")
    table = read(path, targets="y")
    assert len(table) == 20_001
    assert table.X[-1, 0] == 0.5


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (CSV, {"targets": "z"}, r"'t', 'a', 'b', 'label', 'y'; expected also 'z'.*correct"),
        (CSV, {"targets": "y", "inputs": ["a", "A"]}, "expected also 'A'.*capitals"),
        (CSV, {"targets": "y", "time": "time"}, "expected also 'time'"),
        (CSV, {"targets": "label"}, r"'label' has no number in the rows 1 \('up'\), 2 \('down'\)"),
        (CSV, {"targets": "y", "inputs": "label"}, "'label' has no number.*leave these columns"),
        (CSV, {"targets": "y", "inputs": ["a", "y"]}, "'y' were named more than once"),
        (CSV, {"targets": "y", "inputs": ["a", "a"]}, "'a' were named more than once"),
        (CSV, {"targets": ()}, r"targets=\(\)"),
        ("y\n1\n", {"targets": "y"}, "none of which holds numbers.*at least one input"),
        ("a,y\n1,2\n,3\n4,5\n,6\n", {"targets": "y"}, r"'a'.*rows 2 \(empty\), 4 \(empty\)"),
        ("a,y\n1,2\nNaN,3\ninf,4\n", {"targets": "y"}, r"'a'.*rows 2 \('NaN'\), 3 \('inf'\)"),
        ("a,y\n1,2\n3,?\n", {"targets": "y"}, r"'y'.*rows 2 \('\?'\).*without the header"),
        # One typing error must not turn an input into a column that is quietly left out.
        ("a,b,y\n1,1,2\n2,1O,3\n", {"targets": "y"}, r"'b'.*rows 2 \('1O'\)"),
        ("a,y\n" + ",1\n" * 9, {"targets": "y", "inputs": "a"}, "'a'.*and 4 more"),
        ("a,y\n", {"targets": "y"}, "has no rows"),
        ("", {"targets": "y"}, "has no rows"),
    ],
)
def test_errors_name_columns_and_rows(
    tmp_path: Path, text: str, options: dict[str, str], message: str
) -> None:
    path = write(tmp_path / "table.csv", text)
    with pytest.raises(ValueError, match=message):
        read(path, **options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a;b;y\n1;2;3\n", "has one column, 'a;b;y'.* with ',' in place of ';'"),
        ("a\tb\ty\n1\t2\t3\n", r"in place of '\\t'"),
        ("a;b;y\n1,5;2,5;3,5\n", "a row with more fields than its first line has names"),
        ("a,b,y\n1,2,3\n1,2,3,4\n", "a row with more fields than its first line has names"),
        ("a,a,y\n1,2,3\n", "more than one column of the name 'a'"),
        ("1,2,2\n3,4,5\n", "has numbers in its first line, '1', '2', '2'"),
    ],
)
def test_first_lines_that_name_no_columns(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(write(tmp_path / "table.csv", text), targets="y")


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing at .*none\.csv.*check the path"):
        read(tmp_path / "none.csv", targets="y")
    with pytest.raises(FileNotFoundError, match="a folder"):
        read(tmp_path, targets="y")
    with pytest.raises(ValueError, match=r"table\.xlsx.*ends in \.csv.*convert"):
        read(write(tmp_path / "table.xlsx", ""), targets="y")
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        read(write(tmp_path / "table.parquet", CSV), targets="y")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(CSV.encode() * 1000)[:-20])
    with pytest.raises(ValueError, match="cannot be read as CSV"):
        read(tmp_path / "cut.csv.gz", targets="y")


def test_dates_are_no_numbers(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    frame = pl.DataFrame({"day": ["2024-01-01"], "a": [1], "y": [1]})
    frame.with_columns(pl.col("day").str.to_date()).write_parquet(path)
    assert read(path, targets="y").inputs == ("a",)
    with pytest.raises(ValueError, match="'day' holds Date"):
        read(path, targets="y", inputs="day")


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
    """Messages on the grid: only the derivative is approximate, of fourth order in 0.01 s."""
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


# Neural-Fly


def test_fly_without_a_path_says_where_the_data_are() -> None:
    with pytest.raises(ValueError, match=r"educational.*github.com/aerorobotics/neural-fly.*pass"):
        neural_fly.load()


@pytest.fixture(scope="module")
def all_flights(data_folder: Path) -> Path:
    return data_folder / "neural_fly.csv.gz"


def test_fly_conditions(all_flights: Path) -> None:
    calm = neural_fly.load(all_flights)
    assert len(calm) == 15_062
    assert (calm.inputs, calm.targets) == (ground_effect.INPUTS, ground_effect.TARGETS)
    assert set(calm.columns["condition"]) == {"nowind"}
    np.testing.assert_array_equal(calm.columns["wind_speed"], 0)
    assert np.all(np.isfinite(calm.X))
    np.testing.assert_allclose(np.linalg.norm(calm.X[:, 4:8], axis=1), 1, atol=1e-4)

    everything = neural_fly.load(all_flights, conditions=None)
    assert len(everything) == 75_326
    speeds = {
        str(condition): float(speed)
        for condition, speed in zip(
            everything.columns["condition"], everything.columns["wind_speed"], strict=True
        )
    }
    assert speeds == {name: neural_fly.WIND_SPEEDS[name] for name in speeds}
    assert len(neural_fly.load(all_flights, conditions="35wind")) < len(
        neural_fly.load(all_flights, conditions=["nowind", "35wind"])
    )


def test_fly_unknown_conditions(all_flights: Path) -> None:
    message = r"\['storm'\].*'100wind', '35wind', '70p20sint', '70wind', 'nowind'.*None"
    with pytest.raises(ValueError, match=message):
        neural_fly.load(all_flights, conditions=["nowind", "storm"])
    with pytest.raises(ValueError, match="no conditions"):
        neural_fly.load(all_flights, conditions=())


def test_fly_needs_its_columns(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected also 'z'.*'condition'"):
        neural_fly.load(write(tmp_path / "table.csv", CSV))


def published_flight(rows: Array) -> str:
    """A flight in the form of the authors' repository; rows hold p, v, q, pwm and fa."""
    lines = [",t,p,v,q,pwm,fa"]
    for number, row in enumerate(rows):
        cells = [row[:3], row[3:6], row[6:10], row[10:14], row[14:]]
        text = ",".join(f'"{json.dumps(cell.tolist())}"' for cell in cells)
        lines.append(f"{number},{0.02 * number},{text}")
    return "\n".join(lines) + "\n"


def test_fly_reads_the_published_folder(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    calm, windy = rng.normal(size=(3, 17)), rng.normal(size=(2, 17))
    write(tmp_path / "custom_figure8_NF-T_nowind.csv", published_flight(calm))
    write(tmp_path / "custom_figure8_L1_70p20sint.csv", published_flight(windy))
    write(tmp_path / "notes.csv", "a\n1\n")

    table = neural_fly.load(tmp_path)
    np.testing.assert_allclose(table.columns["t"], [0, 0.02, 0.04])
    np.testing.assert_array_equal(table.columns["z"], calm[:, 2])
    np.testing.assert_array_equal(table.X[:, 1:8], calm[:, 3:10])
    np.testing.assert_allclose(table.X[:, 8:], calm[:, 10:14] / 1000)
    np.testing.assert_array_equal(table.y, calm[:, 14:])
    assert set(table.columns["controller"]) == {"NF-T"}

    both = neural_fly.load(tmp_path, conditions=None)
    assert tuple(both.columns) == neural_fly.COLUMNS
    assert both.columns["condition"].tolist() == ["70p20sint"] * 2 + ["nowind"] * 3
    assert both.columns["wind_speed"].tolist() == [8.5] * 2 + [0.0] * 3

    with pytest.raises(ValueError, match=r"\['35wind'\].*\['70p20sint', 'nowind'\]"):
        neural_fly.load(tmp_path, conditions="35wind")


def test_fly_folder_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no flights; expected files named like.*data/experiment"):
        neural_fly.load(tmp_path)
    text = published_flight(np.ones((2, 17)))
    path = tmp_path / "custom_figure8_NF_nowind.csv"
    write(path, text.replace('"[1.0, 1.0, 1.0]"', '"[1.0, 1.0"', 1))
    with pytest.raises(ValueError, match=r"column 'p' cannot be read.*lists of 3 numbers"):
        neural_fly.load(tmp_path)
    write(path, text.replace("[1.0, 1.0, 1.0, 1.0]", "[1.0, 1.0]"))
    with pytest.raises(ValueError, match=r"column 'q' has the shape \(2, 2\).*expected \(2, 4\)"):
        neural_fly.load(tmp_path)


def test_labels_are_whole_numbers_or_text(tmp_path: Path) -> None:
    text = "a,b,c,d\n1, x ,0.5,1\n2.0,y,1,\n"
    path = write(tmp_path / "labels.csv", text)
    table = files.frame(path)
    assert files.labels(table, "a", path).tolist() == [1, 2]
    assert files.labels(table, "b", path).tolist() == ["x", "y"]
    assert files.labels(table, "c", path).tolist() == ["0.5", "1"]
    with pytest.raises(ValueError, match="column 'd' has no label in the rows 2"):
        files.labels(table, "d", path)
