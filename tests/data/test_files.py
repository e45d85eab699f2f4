"""Read tables and the inputs of models from CSV and Parquet files."""

import gzip
import os
import subprocess
import sys
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

import greatcircle
from greatcircle import LipschitzClassifier, LipschitzRegressor
from greatcircle.data.columns import labels, numbers
from greatcircle.data.files import read_inputs
from greatcircle.data.frames import find_columns, read_frame
from greatcircle.datasets import ground_effect, read

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


# `read`


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
    table = read(path, targets="y")
    assert (table.inputs, table.ignored) == (("t", "a", "b"), ("label",))
    table = read(str(path), targets="y", time="t")
    assert (table.inputs, table.ignored) == (("a", "b"), ("label",))
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
        (CSV, {"targets": "a,y"}, "'a,y' not found; separate names by spaces"),
        (CSV, {"targets": "y", "time": "time"}, "column 'time' not found"),
        (CSV, {"targets": "y", "inputs": ["a", " a "]}, "column ' a ' not found"),
        (CSV, {"targets": "label"}, r"target 'label' holds no numbers.*use classify=True"),
        (CSV, {"targets": ["label", "y"]}, r"target 'label' holds no numbers.*--classify"),
        (
            CSV,
            {"targets": "y", "inputs": "label"},
            r"'label' has no number in the rows 1 \('up'\), 2 \('down'\).*leave these columns",
        ),
        (CSV, {"targets": "y", "inputs": ["a", "y"]}, "'y' were named more than once"),
        (CSV, {"targets": "y", "inputs": ["a", "a"]}, "'a' were named more than once"),
        (CSV, {"targets": ()}, r"targets=\(\)"),
        (CSV, {"targets": ["label", "y"], "classify": True}, "expected one column of labels"),
        ("a,y\n1e101,2\n", {"targets": "y"}, "magnitude in column 'a' of .* is 1e\\+101"),
        ("a,y\n1,1e-101\n", {"targets": "y"}, "magnitude in column 'y' of .* is 1e-101"),
        ("y\n1\n", {"targets": "y"}, "has no numeric column to use as input.*at least one"),
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
        ("a,a,y\n1,2,3\n", "more than one column named 'a'"),
        ("a, a ,y\n1,2,3\n", "more than one column named 'a'"),
        ("a,b,y\r1,2,3\r", "end in a carriage return alone"),
        ("1,2,2\n3,4,5\n", "has numbers in its first line, '1', '2', '2'"),
    ],
)
def test_first_lines_without_names_of_columns(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(write(tmp_path / "table.csv", text), targets="y")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
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


def test_dates_are_not_numbers(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    frame = pl.DataFrame({"day": ["2024-01-01"], "a": [1], "y": [1]})
    frame.with_columns(pl.col("day").str.to_date()).write_parquet(path)
    assert read(path, targets="y").inputs == ("a",)
    with pytest.raises(ValueError, match="'day' holds Date"):
        read(path, targets="y", inputs="day")


# Names


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
        assert read_frame(path).columns == columns
        assert read(path, targets="y").inputs == inputs
        table = read(path, targets="y", inputs=columns[0])  # also one that has no name
        np.testing.assert_array_equal(table.X, [[1], [5]])


def test_row_numbers_of_pandas_are_not_inputs(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    table = pd.DataFrame({"a": [1.5, 2.5], "y": [3.0, 4.0]})
    for _ in range(4):
        table.to_csv(path)
        assert read(path, targets="y").inputs == ("a",)
        table = pd.read_csv(path)
        assert read_frame(path).columns == list(table.columns)  # pandas names them likewise


def test_names_in_parquet_are_treated_like_those_in_csv(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    columns = {"": [0, 1], "__index_level_0__": [0, 1], " a ": [1, 2], "y": [3, 4]}
    pl.DataFrame(columns).write_parquet(path)
    assert read_frame(path).columns == ["Unnamed: 0", "__index_level_0__", "a", "y"]
    assert read(path, targets=" y").inputs == ("a",)
    pl.DataFrame({"a": [1], "a ": [2], "y": [3]}).write_parquet(path)
    with pytest.raises(ValueError, match="more than one column named 'a'"):
        read(path, targets="y")


@given(st.lists(words.map(str.strip), unique=True, min_size=1))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_name_is_read_as_it_was_written(tmp_path: Path, names: list[str]) -> None:
    names = ["first", *(name for name in names if name != "first")]
    table = pl.DataFrame({name: [place] for place, name in enumerate(names)})
    table.write_csv(tmp_path / "table.csv")
    table.write_parquet(tmp_path / "table.parquet")
    for name in ("table.csv", "table.parquet"):
        found = read_frame(tmp_path / name)
        assert found.columns == names
        assert find_columns(found.columns, [f" {name} " for name in names], "table") == tuple(names)
        row = numbers(found, names, "table")
        assert [value.tolist() for value in row.values()] == [[i] for i in range(len(names))]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("text", ["größe,y\n1,2\n", "a,y,t\n1,2,größe\n", "a,ÿ,y\n1,2,3\n"])
def test_other_encodings_are_named(tmp_path: Path, encoding: str, text: str) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode(encoding))
    with pytest.raises(ValueError, match=r"not encoded in UTF-8.*iconv -f"):
        read(path, targets="y")


def test_a_path_is_not_a_pattern(tmp_path: Path) -> None:
    write(tmp_path / "flight1.csv", "a,y\n1,2\n")
    write(tmp_path / "flight[1].csv", "a,y\n3,4\n")
    assert read(tmp_path / "flight[1].csv", targets="y").y.tolist() == [[4]]
    pl.DataFrame({"a": [5], "y": [6]}).write_parquet(tmp_path / "flight[1].parquet")
    assert read(tmp_path / "flight[1].parquet", targets="y").y.tolist() == [[6]]


# Labels


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
    found = read(path, targets="label", classify=True).labels
    assert found.tolist() == (spelled if expected is None else expected)


numbers_as_text = st.integers(-(2**70), 2**70).map(str)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
@given(
    spelled=st.lists(words | numbers_as_text, min_size=1) | st.lists(numbers_as_text, min_size=1)
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_different_labels_stay_different(tmp_path: Path, ending: str, spelled: list[str]) -> None:
    path = tmp_path / f"labels{ending}"
    table = pl.DataFrame({"label": spelled, "x": 1})
    if ending == ".parquet":
        table.write_parquet(path)
    elif ending == ".csv":
        table.write_csv(path)
    else:
        write(path, table.write_csv())
    found = read(path, targets="label", classify=True).labels
    assert [str(label) for label in found.tolist()] == [label.strip() for label in spelled]


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
            labels(table, "label", "table.parquet")
    else:
        assert labels(table, "label", "table.parquet").tolist() == expected


def test_a_table_of_labels(tmp_path: Path) -> None:
    table = read(write(tmp_path / "table.csv", CSV), targets="label", classify=True)
    assert (table.inputs, table.targets, table.ignored) == (("t", "a", "b", "y"), ("label",), ())
    assert table.labels.tolist() == ["up", "down"]
    assert all(table.columns[name].dtype == np.float64 for name in table.inputs)
    X, y = table.frames()
    model = LipschitzClassifier((3,), selection=False, max_iter=2, random_state=0).fit(X, y)
    assert model.classes_.tolist() == ["down", "up"]
    assert model.model_.feature_names == table.inputs
    assert model.model_.target_names == ("label",)


# Inputs of a fitted model


def test_inputs_are_read_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "table.csv", CSV)
    np.testing.assert_array_equal(read_inputs(path, ["b", "a"], 2), [[2.5, 1], [5.5, 4]])
    with pytest.raises(ValueError, match=r"column 'A' not found; did you mean 'a'\?"):
        read_inputs(path, ["A"], 1)
    with pytest.raises(ValueError, match=r"'label' has no number in the rows 1 \('up'\)"):
        read_inputs(path, ["label"], 1)


def test_inputs_without_names_are_read_by_position(tmp_path: Path) -> None:
    path = write(tmp_path / "table.csv", ",a,b\n0,1,2\n1,3,4\n")
    np.testing.assert_array_equal(read_inputs(path, None, 2), [[1, 2], [3, 4]])
    with pytest.raises(ValueError, match=r"has 2 named columns.*expected its 3 columns"):
        read_inputs(path, None, 3)


def test_a_model_predicts_for_a_file_as_for_its_table(tmp_path: Path) -> None:
    path = tmp_path / "flight.csv"
    flight = ground_effect.generate(50)
    pl.DataFrame(dict(flight.columns)).write_csv(path)
    table = read(path, targets=flight.targets, inputs=flight.inputs)
    for name, column in table.columns.items():
        np.testing.assert_array_equal(column, flight.columns[name])
    assert table.ignored == ("t",)
    estimator = LipschitzRegressor((3,), selection=False, max_iter=2, random_state=0)
    model = estimator.fit(*table.frames()).model_
    assert (model.feature_names, model.target_names) == (table.inputs, table.targets)
    rows = read_inputs(path, model.feature_names, model.sizes[0])
    np.testing.assert_array_equal(model.predict(rows), model.predict(table.X))


# Without polars


def test_a_missing_polars_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = write(tmp_path / "table.csv", CSV)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match=r"table\.csv needs the package polars.*\[app\]"):
        read(path, targets="y")
    with pytest.raises(ImportError, match=r"needs the package polars.*greatcircle\[app\]"):
        ground_effect.generate(2).frames()


def test_data_and_datasets_are_imported_without_optional_packages() -> None:
    code = (
        "import sys\n"
        "for name in ('polars', 'pooch', 'filelock', 'pandas', 'jax', 'equinox'):\n"
        "    sys.modules[name] = None\n"
        "from greatcircle import datasets\n"
        "from greatcircle.data import checks, columns, files, rows, scaling, sources, split\n"
        "assert len(datasets.ground_effect.generate(5).X) == 5\n"
    )
    source = str(Path(greatcircle.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
