"""`greatcircle fit` and `greatcircle predict`, as a user meets them."""

import gzip
import json

import numpy as np
import polars as pl
import pytest

from greatcircle import cli, descent, methods, scaling, storage
from greatcircle.cli import fit
from greatcircle.datasets import ground_effect
from greatcircle.datasets import split as splits
from greatcircle.estimators import regressor

ROWS = 150
SHORT = ["--max-iter", "3", "--hidden", "4"]
FIGURES = {"training", "lipschitz", "slices"}


@pytest.fixture(scope="module")
def flight() -> pl.DataFrame:
    table = ground_effect.generate(ROWS)
    return pl.DataFrame({name: table.columns[name] for name in (*table.inputs, *table.targets)})


@pytest.fixture
def csv(flight, tmp_path):
    path = tmp_path / "flight.csv"
    flight.with_columns(pl.lit("calm").alias("weather")).write_csv(path)
    return path


@pytest.fixture(scope="module")
def fitted(flight, tmp_path_factory):
    """A folder that `fit` has written, and the inputs it was given."""
    folder = tmp_path_factory.mktemp("fitted")
    flight.write_parquet(folder / "flight.parquet")
    command = ["fit", str(folder / "flight.parquet"), "--targets", "fx", "fz", *SHORT, "--quiet"]
    assert cli.main([*command, "--inputs", "z", "vx", "u1", "--out", str(folder / "out")]) == 0
    return folder / "out"


def test_fit_prints_a_table_and_writes_everything(csv, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["fit", str(csv), "--targets", "fx", "fy", "fz", "--out", str(out), *SHORT]
    assert cli.main(command) == 0
    printed, said = capsys.readouterr()
    assert "inputs           z, vx, vy, vz," in printed
    for word in ("fx", "fz", "all", "train RMS", "test R²", "Lipschitz bound", "3 iterations"):
        assert word in printed
    assert "left out, for they hold no numbers: weather" in said
    assert f"wrote {out / 'report.html'}" in said
    figures = {f"{n}.{s}" for n in FIGURES | {"predicted", "residuals"} for s in ("png", "pdf")}
    assert {p.name for p in out.iterdir()} == figures | {
        "model.safetensors",
        "results.json",
        "report.html",
    }
    page = (out / "report.html").read_text("utf-8")
    for heading in ("Errors", "Training", "Residuals", "Lipschitz bounds", "The learned function"):
        assert f">{heading}</h2>" in page
    assert "greatcircle fit" in page
    model = storage.load(out / "model.safetensors")
    results = json.loads((out / "results.json").read_text("utf-8"))
    assert results["lipschitz"]["certified"] == model.certificate_.value
    assert results["data"]["left_out"] == ["weather"]
    assert results["network"] == [12, 4, 3]


def test_two_rows_are_enough_for_every_file(flight, tmp_path):
    flight[:2].write_csv(tmp_path / "two.csv")
    command = ["fit", str(tmp_path / "two.csv"), "--targets", "fx", "fz", "--quiet", *SHORT]
    assert cli.main([*command, "--out", str(tmp_path / "out")]) == 0
    written = {path.suffix for path in (tmp_path / "out").iterdir()}
    assert written == {".safetensors", ".json", ".html", ".png", ".pdf"}


def test_nothing_is_written_before_the_first_iteration(csv, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    command = ["fit", str(csv), "--targets", "fz", "--out", str(out), *SHORT]
    assert cli.main(command) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(descent, "record_of", interrupt)
    assert cli.main(command) == 130
    assert "nothing is written" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_json_is_all_there_is_on_standard_output(csv, tmp_path, capsys):
    command = ["fit", str(csv), "--targets", "fz", "--inputs", "z", "vz", "--json", *SHORT]
    options = ["--split", "time", "--test-fraction", "0.3", "--lipschitz", "5", "--quiet"]
    assert cli.main([*command, *options, "--out", str(tmp_path / "o")]) == 0
    printed, said = capsys.readouterr()
    results = json.loads(printed)
    assert said == ""
    assert results == json.loads((tmp_path / "o" / "results.json").read_text("utf-8"))
    assert results["split"]["test_rows"] == 45
    assert results["data"]["inputs"] == ["z", "vz"]
    assert results["parameters"]["lipschitz"] == 5
    assert results["lipschitz"]["certified"] <= results["lipschitz"]["a_priori"] == 5
    assert (
        results["history"]["validation_loss"] == [None] * 6
    )  # three free, three within the budget
    assert results["versions"]["greatcircle"]


def test_time_split_tests_on_the_last_rows(flight, tmp_path, capsys):
    """Rows at the end that no network could guess must not touch the training error."""
    changed = flight.with_columns(
        pl.when(pl.int_range(pl.len()) >= 120).then(1000.0).otherwise(pl.col("fz")).alias("fz")
    )
    changed.write_csv(tmp_path / "step.csv")
    command = ["fit", str(tmp_path / "step.csv"), "--targets", "fz", "--json", "--quiet", *SHORT]
    assert cli.main([*command, "--split", "time", "--out", str(tmp_path / "o")]) == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    assert metrics["train"]["rms"] < 2
    assert metrics["test"]["rms"] > 990


def test_choices_are_those_of_the_library():
    """Written down twice, for `fit --help` should not wait for JAX."""
    assert tuple(methods.METHODS) == fit.METHODS
    assert scaling.SCALINGS == fit.SCALINGS
    assert ("auto", *regressor.LOSSES) == fit.LOSSES
    assert splits.SPLITS == fit.SPLITS


@pytest.fixture
def wrong(flight, tmp_path):
    """Files with one fault each."""
    flight = flight.with_columns(pl.lit("calm").alias("weather"), pl.lit(7).alias("one"))
    flight.write_csv(tmp_path / "good.csv")
    hole = pl.when(pl.int_range(pl.len()) == 4).then(None).otherwise(pl.col("vx"))
    flight.with_columns(hole.alias("vx")).write_csv(tmp_path / "hole.csv")
    flight.with_columns(hole.cast(pl.String).alias("weather")).write_csv(tmp_path / "label.csv")
    flight[:1].write_csv(tmp_path / "row.csv")
    flight.select("weather", "fx").write_csv(tmp_path / "words.csv")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("a,b\n")
    (tmp_path / "table.xlsx").write_text("")
    (tmp_path / "broken.parquet").write_text("no")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("missing.csv --targets fx", "there is nothing at"),
        ("good.csv --targets force", "expected also 'force'"),
        ("good.csv --targets fx --inputs z vq", "expected also 'vq'"),
        ("good.csv --targets weather", "weather; expected numbers: add --classify"),
        ("good.csv --targets fx --inputs weather", "column 'weather' has no number"),
        ("good.csv --targets fx --inputs z fx", "'fx' were named more than once"),
        ("hole.csv --targets fx", "column 'vx' has no number in the rows 5 (empty)"),
        ("empty.csv --targets fx", "has no rows"),
        ("header.csv --targets a", "has no rows"),
        ("row.csv --targets fx", "1 row cannot be split"),
        ("words.csv --targets fx", "expected at least one input"),
        ("table.xlsx --targets fx", "expected a file that ends in .csv, .csv.gz, .parquet"),
        ("broken.parquet --targets fx", "cannot be read as Parquet"),
        ("good.csv --targets one --classify", "has one class in the training rows, 7"),
        ("good.csv --targets fx --classify", "leave out --classify to predict numbers"),
        ("good.csv --targets fx fy --classify", "expected one column of labels"),
        ("good.csv --targets weather --classify --loss huber", "--loss is huber with --classify"),
        ("label.csv --targets weather --classify", "has no label in the rows 5"),
        ("good.csv --targets fx --out good.csv", "expected a folder that can be written"),
        ("good.csv --targets fx --test-fraction 1.5", "--test-fraction is 1.5"),
        ("good.csv --targets fx --lipschitz -2", "--lipschitz is -2; expected a positive number"),
        ("good.csv --targets fx --lipschitz 2 --method ad", "use --scaling standard"),
        ("good.csv --targets fx --hidden 4 0", "--hidden is 0"),
        ("good.csv --targets fx --max-iter 0", "--max-iter is 0"),
        ("good.csv --targets fx --seed -1", "--seed is -1"),
    ],
)
def test_mistakes_are_named(wrong, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(wrong)
    assert cli.main(["fit", *arguments.split()]) == 2
    printed, said = capsys.readouterr()
    assert printed == ""
    assert said.startswith("greatcircle: ")
    assert message in said
    assert "Traceback" not in said
    assert not (wrong / "runs").exists() or not list((wrong / "runs").glob("*/*"))


@pytest.mark.parametrize("arguments", [["fit"], ["fit", "a.csv"], ["fit", "a.csv", "--targets"]])
def test_wrong_use_is_refused_by_the_parser(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert "usage: greatcircle fit" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_help_shows_examples(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main([command, "--help"])
    assert f"examples:\n  greatcircle {command} " in capsys.readouterr().out


def test_interrupt_keeps_the_model_so_far(csv, tmp_path, monkeypatch, capsys):
    record, calls = descent.record_of, []

    def second_time_interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return record(*arguments)

    monkeypatch.setattr(descent, "record_of", second_time_interrupted)
    command = ["fit", str(csv), "--targets", "fz", "--inputs", "z", *SHORT, "--json", "--quiet"]
    assert cli.main([*command, "--out", str(tmp_path / "o")]) == 130
    printed, said = capsys.readouterr()
    assert json.loads(printed)["training"]["outcome"] == "interrupted"
    assert json.loads(printed)["training"]["iterations"] == 1
    assert "training ended after 1 iterations" in said
    assert (tmp_path / "o" / "model.safetensors").exists()


def test_predict_round_trip(fitted, flight, tmp_path, capsys):
    model = storage.load(fitted / "model.safetensors")
    inputs = flight.select("z", "vx", "u1")
    # Other columns and another order do not matter.
    flight.select("u1", "vy", "vx", "z").write_csv(tmp_path / "new.csv")
    command = ["predict", str(fitted / "model.safetensors"), str(tmp_path / "new.csv")]
    assert cli.main(command) == 0
    printed, said = capsys.readouterr()
    assert said == ""
    (tmp_path / "printed.csv").write_text(printed)
    for name in ("printed.csv", "out.csv", "out.csv.gz", "deep/out.parquet"):
        path = tmp_path / name
        if name != "printed.csv":
            assert cli.main([*command, "--out", str(path)]) == 0
            printed, said = capsys.readouterr()
            assert printed == ""
            assert f"wrote {path}" in said
        read = pl.read_parquet if name.endswith("parquet") else pl.read_csv
        predictions = read(gzip.decompress(path.read_bytes()) if name.endswith("gz") else path)
        assert predictions.columns == ["fx", "fz"]
        np.testing.assert_allclose(predictions.to_numpy(), model.predict(inputs), rtol=1e-6)
    assert cli.main([*command, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["rows"] == ROWS
    assert list(results["predictions"]) == ["fx", "fz"]


def test_predict_mistakes(fitted, flight, tmp_path, capsys):
    flight.select("z", "vx").write_csv(tmp_path / "short.csv")
    flight.write_csv(tmp_path / "new.csv")
    (tmp_path / "no.safetensors").write_text("no model")
    (tmp_path / "file").write_text("")
    model = str(fitted / "model.safetensors")
    for arguments, message in (
        ([model, "short.csv"], "expected also 'u1'"),
        ([model, "missing.csv"], "there is nothing at"),
        (["missing.safetensors", "new.csv"], "expected a model that `greatcircle fit` wrote"),
        (["no.safetensors", "new.csv"], "no.safetensors"),
        ([model, "new.csv", "--out", "p.xlsx"], "expected a file that ends in"),
        ([model, "new.csv", "--out", "file/p.csv"], "expected a folder that can be written"),
    ):
        paths = [a if a.startswith(("-", "/")) else str(tmp_path / a) for a in arguments]
        assert cli.main(["predict", *paths]) == 2
        printed, said = capsys.readouterr()
        assert printed == ""
        assert message in said


def test_classes_from_file_to_probabilities(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((90, 2))
    label = np.where(rows[:, 0] > 0.5, "a", np.where(rows[:, 1] > 0, "b", "c"))
    table = pl.DataFrame({"p": rows[:, 0], "q": rows[:, 1], "kind": label})
    table.write_csv(tmp_path / "kinds.csv")
    out = tmp_path / "out"
    command = ["fit", str(tmp_path / "kinds.csv"), "--targets", "kind", "--classify", *SHORT]
    assert cli.main([*command, "--quiet", "--out", str(out)]) == 0
    assert "accuracy" in capsys.readouterr().out
    figures = {f"{n}.png" for n in FIGURES | {"confusion"}}
    assert {p.name for p in out.glob("*.png")} == figures
    results = json.loads((out / "results.json").read_text("utf-8"))
    assert results["metrics"]["test"]["confusion"]["labels"] == ["a", "b", "c"]
    assert ">Confusion</h2>" in (out / "report.html").read_text("utf-8")
    assert cli.main(["predict", str(out / "model.safetensors"), str(tmp_path / "kinds.csv")]) == 0
    (tmp_path / "said.csv").write_text(capsys.readouterr().out)
    said = pl.read_csv(tmp_path / "said.csv")
    assert said.columns == ["kind", "probability_a", "probability_b", "probability_c"]
    np.testing.assert_allclose(said.select(pl.sum_horizontal(pl.all().exclude("kind"))), 1)
    likeliest = said.drop("kind").to_numpy().argmax(axis=1)
    assert said["kind"].to_list() == [["a", "b", "c"][i] for i in likeliest]


def test_a_class_only_in_the_test_rows_is_said(tmp_path, capsys):
    x = np.arange(40.0)
    label = np.where(x < 34, x.astype(int) % 2, 2)
    pl.DataFrame({"x": x, "kind": label}).write_csv(tmp_path / "late.csv")
    command = ["fit", str(tmp_path / "late.csv"), "--targets", "kind", "--classify", *SHORT]
    options = ["--split", "time", "--json", "--quiet", "--out", str(tmp_path / "o")]
    assert cli.main([*command, *options]) == 0
    printed, said = capsys.readouterr()
    assert "only in the test rows, so never predicted: 2" in said
    assert json.loads(printed)["metrics"]["test"]["confusion"]["labels"] == [0, 1, 2]
