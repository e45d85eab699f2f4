"""Tables from files: what `read` checks, the loaders of the two public sets, and the preprocessing
of the raw Neural-Lander flight on a flight whose force is known.
"""

import gzip
import json
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from greatcircle.data import files
from greatcircle.datasets import ground_effect, neural_fly, neural_lander, read

Array = NDArray[np.float64]

characters = st.characters(codec="utf-8", exclude_categories=["Cc"], include_characters="\n")
words = st.text(characters, min_size=1).filter(lambda word: word.strip() != "")

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
        (CSV, {"targets": "z"}, r"'z' not found \(columns: 't', 'a', 'b', 'label', 'y'\)"),
        (CSV, {"targets": "y", "inputs": ["a", "A"]}, r"'A' not found; did you mean 'a'\?"),
        (CSV, {"targets": "lable"}, r"column 'lable' not found; did you mean 'label'\?"),
        (CSV, {"targets": "a,y"}, "'a,y' not found; give names one by one"),
        (CSV, {"targets": "y", "time": "time"}, "column 'time' not found"),
        (CSV, {"targets": "y", "inputs": ["a", " a "]}, "column ' a ' not found"),
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
        ("a, a ,y\n1,2,3\n", "more than one column of the name 'a'"),
        ("a,b,y\r1,2,3\r", "end in a carriage return alone"),
        ("1,2,2\n3,4,5\n", "has numbers in its first line, '1', '2', '2'"),
    ],
)
def test_first_lines_that_name_no_columns(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(write(tmp_path / "table.csv", text), targets="y")


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"file not found: .*none\.csv"):
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


# names


@pytest.mark.parametrize(
    ("header", "columns", "inputs"),
    [
        (",a,b,y", ["Unnamed: 0", "a", "b", "y"], ("a", "b")),
        ('"","a","b","y"', ["Unnamed: 0", "a", "b", "y"], ("a", "b")),
        ("a,,b,y", ["a", "Unnamed: 1", "b", "y"], ("a", "b")),
        (",a,,y", ["Unnamed: 0", "a", "Unnamed: 2", "y"], ("a",)),
        ("a,b,y,", ["a", "b", "y", "Unnamed: 3"], ("a", "b")),
        ("a,  ,b,y", ["a", "Unnamed: 1", "b", "y"], ("a", "b")),
        ("Unnamed: 0,a,b,y", ["Unnamed: 0", "a", "b", "y"], ("a", "b")),
        (",Unnamed: 0,a,y", ["Unnamed: 0.1", "Unnamed: 0", "a", "y"], ("a",)),
        ("Unnamed: 0.1,Unnamed: 0,a,y", ["Unnamed: 0.1", "Unnamed: 0", "a", "y"], ("a",)),
        ("__index_level_0__,a,b,y", ["__index_level_0__", "a", "b", "y"], ("a", "b")),
        (" a,b , c d,y ", ["a", "b", "c d", "y"], ("a", "b", "c d")),
        ("\ufeffa,b,c,y", ["a", "b", "c", "y"], ("a", "b", "c")),
        ('\ufeff"a",b,c,y', ["a", "b", "c", "y"], ("a", "b", "c")),
        ('"a ""b""","c,d","e\nf",y', ['a "b"', "c,d", "e\nf", "y"], ('a "b"', "c,d", "e\nf")),
        ("a,A,_duplicated_0,y", ["a", "A", "_duplicated_0", "y"], ("a", "A", "_duplicated_0")),
        ("0,1,2,y", ["0", "1", "2", "y"], ("0", "1", "2")),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n", "\r\n\r\n"])
def test_names_of_columns(
    tmp_path: Path, header: str, columns: list[str], inputs: tuple[str, ...], end: str
) -> None:
    line = end[: len(end) // 2] if len(end) > 2 or end == "\n\n" else end
    for name in ("table.csv", "table.csv.gz"):
        path = write(tmp_path / name, f"{header}{line}1,2,3,4{line}5,6,7,8{end}")
        assert files.frame(path).columns == columns
        assert read(path, targets="y").inputs == inputs
        table = read(path, targets="y", inputs=columns[0])  # also one that has no name
        np.testing.assert_array_equal(table.X, [[1], [5]])


def test_row_numbers_that_pandas_saved_are_no_inputs(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    table = pd.DataFrame({"a": [1.5, 2.5], "y": [3.0, 4.0]})
    for _ in range(4):
        table.to_csv(path)
        assert read(path, targets="y").inputs == ("a",)
        table = pd.read_csv(path)
        assert files.frame(path).columns == list(table.columns)  # pandas names them likewise


def test_names_in_parquet_are_treated_like_those_in_csv(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    columns = {"": [0, 1], "__index_level_0__": [0, 1], " a ": [1, 2], "y": [3, 4]}
    pl.DataFrame(columns).write_parquet(path)
    assert files.frame(path).columns == ["Unnamed: 0", "__index_level_0__", "a", "y"]
    assert read(path, targets=" y").inputs == ("a",)
    pl.DataFrame({"a": [1], "a ": [2], "y": [3]}).write_parquet(path)
    with pytest.raises(ValueError, match="more than one column of the name 'a'"):
        read(path, targets="y")


@given(st.lists(words.map(str.strip), unique=True, min_size=1))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_name_comes_back(tmp_path: Path, names: list[str]) -> None:
    names = ["first", *(name for name in names if name != "first")]
    table = pl.DataFrame({name: [place] for place, name in enumerate(names)})
    table.write_csv(tmp_path / "table.csv")
    table.write_parquet(tmp_path / "table.parquet")
    for name in ("table.csv", "table.parquet"):
        found = files.frame(tmp_path / name)
        assert found.columns == names
        assert files.find(found, [f" {name} " for name in names], "table") == tuple(names)
        row = files.numbers(found, names, "table")
        assert [value.tolist() for value in row.values()] == [[i] for i in range(len(names))]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("text", ["größe,y\n1,2\n", "a,y,t\n1,2,größe\n", "a,ÿ,y\n1,2,3\n"])
def test_other_encodings_are_named(tmp_path: Path, encoding: str, text: str) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode(encoding))
    with pytest.raises(ValueError, match=r"not encoded in UTF-8.*iconv -f"):
        read(path, targets="y")


def test_a_path_is_no_pattern(tmp_path: Path) -> None:
    write(tmp_path / "flight1.csv", "a,y\n1,2\n")
    write(tmp_path / "flight[1].csv", "a,y\n3,4\n")
    assert read(tmp_path / "flight[1].csv", targets="y").y.tolist() == [[4]]
    pl.DataFrame({"a": [5], "y": [6]}).write_parquet(tmp_path / "flight[1].parquet")
    assert read(tmp_path / "flight[1].parquet", targets="y").y.tolist() == [[6]]


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
    with pytest.raises(ValueError, match=r"columns 'z'.*'condition' not found"):
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


# labels


@pytest.mark.parametrize(
    ("spelled", "expected"),
    [
        (["1", " 2 "], [1, 2]),
        (["-3", "0", "9223372036854775807"], [-3, 0, 2**63 - 1]),
        (["9007199254740992", "9007199254740993"], [2**53, 2**53 + 1]),
        (["9223372036854775808", "1"], None),
        (["12345678901234567890", "12345678901234567891"], None),
        (["1e300", "1e301"], None),
        (["7", "007", "+7", "7.0"], None),
        (["0", "-0"], None),
        (["x", "y", "inf", "NaN"], None),
        (["٣", "²"], None),
    ],
)
def test_labels_are_whole_numbers_in_their_usual_spelling_or_text(
    tmp_path: Path, spelled: list[str], expected: list[int] | None
) -> None:
    path = tmp_path / "labels.csv"
    pl.DataFrame({"label": spelled, "x": 1}).write_csv(path)
    found = files.labels(files.frame(path), "label", path)
    assert found.tolist() == (spelled if expected is None else expected)


numbers_as_text = st.integers(-(2**70), 2**70).map(str)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
@given(labels=st.lists(words | numbers_as_text, min_size=1) | st.lists(numbers_as_text, min_size=1))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_different_labels_stay_different(tmp_path: Path, ending: str, labels: list[str]) -> None:
    path = tmp_path / f"labels{ending}"
    table = pl.DataFrame({"label": labels, "x": 1})
    if ending == ".parquet":
        table.write_parquet(path)
    elif ending == ".csv":
        table.write_csv(path)
    else:
        write(path, table.write_csv())
    found = files.labels(files.frame(path), "label", path)
    assert [str(label) for label in found.tolist()] == [label.strip() for label in labels]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pl.Series([2**63, 2**63 + 1], dtype=pl.UInt64), [str(2**63), str(2**63 + 1)]),
        (pl.Series([2**53, 2**53 + 1]), [2**53, 2**53 + 1]),
        (pl.Series([1.0, 1e300]), ["1.0", "1e+300"]),
        (pl.Series([True, False]), ["true", "false"]),
        (pl.Series(["a", "b"], dtype=pl.Categorical), ["a", "b"]),
        (pl.Series(["a", "b"], dtype=pl.Enum(["a", "b"])), ["a", "b"]),
        (pl.Series([date(2024, 1, 1), date(2024, 1, 2)]), ["2024-01-01", "2024-01-02"]),
        (pl.Series([Decimal("1.10"), Decimal("1.20")]), ["1.10", "1.20"]),
        (pl.Series([1.0, float("nan")]), "has no label in the rows 2"),
        (pl.Series([None, None]), "has no label in the rows 1, 2"),
        (pl.Series(["a", "a\0"]), "has a NUL character in the rows 2"),
        (pl.Series([[1], [2]]), r"holds List\(Int64\); expected labels"),
        (pl.Series([{"a": 1}, {"a": 2}]), "holds Struct.*expected labels"),
        (pl.Series([timedelta(1), timedelta(2)]), "holds Duration.*expected labels"),
        (pl.Series([b"a", b"\xff"]), "holds Binary; expected labels"),
    ],
)
def test_labels_of_every_type(column: pl.Series, expected: list[object] | str) -> None:
    table = pl.DataFrame({"label": column})
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            files.labels(table, "label", "table.parquet")
    else:
        assert files.labels(table, "label", "table.parquet").tolist() == expected
