"""`greatcircle fit` and `greatcircle predict`: results, mistakes, names and classes."""

import argparse
import contextlib
import errno
import gzip
import json
import os

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greatcircle import LipschitzRegressor, cli, storage
from greatcircle.cli import fit, fit_selection, predict
from greatcircle.data import saturation, scaling
from greatcircle.data import split as splits
from greatcircle.datasets import ground_effect
from greatcircle.estimators import regressor
from greatcircle.optimise import iterations, loop
from greatcircle.training import methods

ROWS = 150
SHORT = ["--max-iter", "3", "--hidden", "4", "--no-selection"]
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
    """A folder written by `fit`."""
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
    assert "ignored non-numeric columns: weather\n" in said
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
    assert results["lipschitz"]["certified"] == model.certificate.value
    assert results["data"]["ignored"] == ["weather"]
    assert results["network"] == [12, 4, 3]


def test_two_rows_suffice_for_every_file(flight, tmp_path):
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

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "Record", interrupt)
    assert cli.main(command) == 130
    assert "interrupted before the first iteration; nothing is written" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_fit_prints_only_json_on_standard_output(csv, tmp_path, capsys):
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
    """Unpredictable rows at the end do not change the training error."""
    changed = flight.with_columns(
        pl.when(pl.int_range(pl.len()) >= 120).then(1000.0).otherwise(pl.col("fz")).alias("fz")
    )
    changed.write_csv(tmp_path / "step.csv")
    command = ["fit", str(tmp_path / "step.csv"), "--targets", "fz", "--json", "--quiet", *SHORT]
    assert cli.main([*command, "--split", "time", "--out", str(tmp_path / "o")]) == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    assert metrics["train"]["rms"] < 2
    assert metrics["test"]["rms"] > 990


@pytest.mark.parametrize("kind", ["none", "outputs", "inputs", "both"])
def test_what_is_clipped_is_stated_everywhere(kind, csv, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["fit", str(csv), "--targets", "fx", "fz", "--inputs", "z", "vx", *SHORT]
    assert cli.main([*command, "--saturation", kind, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    found = json.loads((out / "results.json").read_text("utf-8"))["saturation"]
    model = storage.load(out / "model.safetensors")
    page = (out / "report.html").read_text("utf-8")
    assert found["kind"] == (model.saturation.kind or "none") == kind
    assert ("clipped   " in printed) == ("are clipped to" in page) == (kind != "none")
    for names, which, ends in (
        (["z", "vx"], "inputs", (model.saturation.lower, model.saturation.upper)),
        (["fx", "fz"], "outputs", (model.saturation.output_lower, model.saturation.output_upper)),
    ):
        if kind not in (which, "both"):
            assert found[which] is None
            continue
        assert list(found[which]) == names
        assert np.array_equal(list(found[which].values()), np.stack(ends, axis=1))
        for name, (low, high) in found[which].items():
            assert f"{name} to {low:.4g} … {high:.4g}" in printed.replace("\n", " ")


def test_export_without_clipping(fitted, tmp_path, capsys):
    model = str(fitted / "model.safetensors")
    for options, clips in (([], True), (["--no-saturation"], False)):
        path = tmp_path / f"net{clips}.c"
        assert cli.main(["export", model, "--out", str(path), *options]) == 0
        assert (", clipped to " in path.read_text()) == clips


def test_what_was_chosen_is_stated_everywhere(csv, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["fit", str(csv), "--targets", "fz", "--inputs", "z", "vx", "--max-iter", "10"]
    options = ["--hidden", "3", "--cv", "2", "--ensemble", "2", "--out", str(out)]
    assert cli.main([*command, *options]) == 0
    printed, said = capsys.readouterr()
    results = json.loads((out / "results.json").read_text("utf-8"))
    selection, model = results["selection"], storage.load(out / "model.safetensors")
    count = len(selection["candidates"])
    assert count == len(model.training.selection["chosen"]) > 1
    assert f"network          2-3-1, chosen among {count} by held-out error (2 folds)" in printed
    assert "average of 2 such networks, stored as 2-6-1" in printed
    assert ", the first network\n" in printed
    assert f"wrote {out / 'selection.pdf'}" in said
    assert selection["networks"] == results["networks"] == model.networks == 2
    assert selection["held_out"] == {"kind": "folds", "parts": 2}
    page = (out / "report.html").read_text("utf-8")
    assert ">Choice of the network</h2>" in page
    assert "(the average of 2 networks)" in page
    bounds = results["lipschitz"]
    assert bounds["operator_norms"] <= bounds["a_priori"]


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ("", {}),
        ("--hidden auto", {}),
        ("--hidden 4 5", {"hidden_layer_sizes": (4, 5)}),
        ("--split time", {"cv": "time"}),
        ("--split time --cv 3", {"cv": 3}),
        ("--cv time", {"cv": "time"}),
        ("--no-selection --ensemble 3", {"selection": False, "ensemble": 3}),
        ("--target-gain 2.5", {"target_gain": 2.5}),
    ],
)
def test_options_of_the_selection_are_parameters_of_the_estimator(given, changed):
    parser = argparse.ArgumentParser()
    fit.add_arguments(parser)
    options = parser.parse_args(["data.csv", "--targets", "y", *given.split()])
    fit_selection.check(options)
    found = fit_selection.parameters(options)
    default = LipschitzRegressor().get_params()
    assert found == {name: default[name] for name in found} | changed
    assert options.max_iter is None
    assert fit_selection.chooses(options) == ("--no-selection" not in given)


def test_too_few_rows_for_a_choice_are_stated(flight, tmp_path, capsys):
    flight[:8].write_csv(tmp_path / "few.csv")
    command = ["fit", str(tmp_path / "few.csv"), "--targets", "fz", "--quiet", "--max-iter", "2"]
    assert cli.main([*command, "--hidden", "3", "--out", str(tmp_path / "o")]) == 0
    printed = capsys.readouterr().out
    assert "-3-1, not chosen by held-out error: too few rows" in printed
    assert json.loads((tmp_path / "o/results.json").read_text("utf-8"))["selection"] is None
    assert not (tmp_path / "o/selection.png").exists()


def test_choices_are_those_of_the_library():
    """The choices are repeated in `fit`, so that `fit --help` does not import JAX."""
    assert {"auto", "none", *saturation.KINDS} == set(fit.SATURATIONS)
    assert tuple(methods.METHODS) == fit.METHODS
    assert scaling.SCALINGS == fit.SCALINGS
    assert ("auto", *regressor.LOSSES) == fit.LOSSES
    assert splits.SPLITS == fit.SPLITS


@pytest.fixture
def wrong(flight, tmp_path):
    """Return a folder of files with one defect each."""
    flight = flight.with_columns(pl.lit("calm").alias("weather"), pl.lit(7).alias("one"))
    flight.write_csv(tmp_path / "good.csv")
    hole = pl.when(pl.int_range(pl.len()) == 4).then(None).otherwise(pl.col("vx"))
    flight.with_columns(hole.alias("vx")).write_csv(tmp_path / "hole.csv")
    flight.with_columns(hole.cast(pl.String).alias("weather")).write_csv(tmp_path / "label.csv")
    flight[:1].write_csv(tmp_path / "row.csv")
    flight.select("weather", "fx").write_csv(tmp_path / "words.csv")
    last = pl.when(pl.int_range(pl.len()) == ROWS - 1).then(1e150).otherwise(pl.col("vx"))
    flight.with_columns(last.alias("vx")).write_csv(tmp_path / "huge.csv")
    (tmp_path / "latin.csv").write_bytes("größe,fx\n1,2\n".encode("latin-1"))
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("a,b\n")
    (tmp_path / "table.xlsx").write_text("")
    (tmp_path / "broken.parquet").write_text("no")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("missing.csv --targets fx", "file not found: missing.csv"),
        ("good.csv --targets fxx", "column 'fxx' not found; did you mean 'fx'?"),
        ("good.csv --targets fx --inputs z vq", "column 'vq' not found"),
        ("good.csv --targets weather", "(command line: --classify)"),
        ("good.csv --targets fx --inputs weather", "column 'weather' has no number"),
        ("good.csv --targets fx --inputs z fx", "'fx' were named more than once"),
        ("hole.csv --targets fx", "column 'vx' has no number in the rows 5 (empty)"),
        ("empty.csv --targets fx", "has no rows"),
        ("header.csv --targets a", "has no rows"),
        ("row.csv --targets fx", "1 row cannot be split"),
        ("words.csv --targets fx", "no numeric column to use as input"),
        ("table.xlsx --targets fx", "expected a file that ends in .csv, .csv.gz, .parquet"),
        ("broken.parquet --targets fx", "cannot be read as Parquet"),
        ("good.csv --targets one --classify", "has one class in the training rows, 7"),
        ("good.csv --targets fx --classify", "omit --classify to predict numbers"),
        ("good.csv --targets fx fy --classify", "expected one column of labels"),
        ("good.csv --targets weather --classify --loss huber", "--loss is huber with --classify"),
        ("label.csv --targets weather --classify", "has no label in the rows 5"),
        ("good.csv --targets fx --out good.csv", "expected a writable folder"),
        ("good.csv --targets fx --test-fraction 1.5", "--test-fraction is 1.5"),
        ("good.csv --targets fx --lipschitz -2", "--lipschitz is -2; expected a positive number"),
        ("good.csv --targets fx --lipschitz 2 --method ad", "use --scaling standard"),
        ("good.csv --targets fx --hidden 4 0", "--hidden is 0"),
        ("good.csv --targets fx --hidden 4 auto", "--hidden is 4 auto; expected the units of each"),
        ("good.csv --targets fx --target-gain 0", "--target-gain is 0; expected a positive number"),
        ("good.csv --targets fx --target-gain nan", "--target-gain is nan"),
        ("good.csv --targets fx --ensemble 0", "--ensemble is 0"),
        ("good.csv --targets fx --cv 1", "--cv is 1; expected a whole number of at least 2"),
        ("good.csv --targets fx --cv 5 --no-selection", "--cv is 5 with --no-selection, which"),
        ("good.csv --targets fx --cv time --method ad", "--cv is time with --method ad, which"),
        ("good.csv --targets fx --cv 5 --early-stopping", "omit one of them"),
        ("good.csv --targets fx --max-iter 0", "--max-iter is 0"),
        ("good.csv --targets fx --seed -1", "--seed is -1"),
        ("good.csv --targets fx --seed 4294967296", "a whole number from 0 to 4294967295"),
        ("good.csv --targets fx --seed 99999999999999999999", "--seed is 99999999999999999999"),
        ("good.csv --targets fx --hidden 99999999999999", "--hidden is 99999999999999"),
        ("good.csv --targets fx --max-iter 99999999999999", "from 1 to 2147483647"),
        ("good.csv --targets fx --lipschitz nan", "--lipschitz is nan"),
        ("good.csv --targets fx --lipschitz 1e999", "--lipschitz is inf"),
        ("good.csv --targets fx --test-fraction nan", "--test-fraction is nan"),
        ("huge.csv --targets fx --split time", "column 'vx' of huge.csv is 1e+150"),
        ("latin.csv --targets fx", "latin.csv is not encoded in UTF-8"),
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


OPTIONS_WITH_NUMBERS = (
    *("hidden", "max-iter", "seed", "lipschitz", "test-fraction"),
    *("cv", "target-gain", "ensemble"),
)


@pytest.mark.parametrize("option", OPTIONS_WITH_NUMBERS)
@pytest.mark.parametrize("value", ["²", "1,5", "", "x", "0x10"])
def test_options_that_are_not_numbers_are_rejected_by_the_parser(option, value, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["fit", "good.csv", "--targets", "fx", f"--{option}", value])
    assert f"argument --{option}: invalid" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["fit"], ["fit", "a.csv"], ["fit", "a.csv", "--targets"]])
def test_missing_arguments_are_rejected_by_the_parser(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert "usage: greatcircle fit" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_help_shows_examples(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main([command, "--help"])
    assert f"examples:\n  greatcircle {command} " in capsys.readouterr().out


def test_an_interrupt_keeps_the_model_so_far(csv, tmp_path, monkeypatch, capsys):
    record, calls = loop.Record, []

    def second_time_interrupted(**fields):
        calls.append(fields)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return record(**fields)

    monkeypatch.setattr(loop, "Record", second_time_interrupted)
    monkeypatch.setattr(iterations, "MAX_LENGTH", 1)  # Ctrl-C loses a whole program
    command = ["fit", str(csv), "--targets", "fz", "--inputs", "z", *SHORT, "--json", "--quiet"]
    assert cli.main([*command, "--out", str(tmp_path / "o")]) == 130
    printed, said = capsys.readouterr()
    assert json.loads(printed)["training"]["outcome"] == "interrupted"
    assert json.loads(printed)["training"]["iterations"] == 1
    assert "training ended after 1 iteration:" in said
    assert (tmp_path / "o" / "model.safetensors").exists()


def test_predict_round_trip(fitted, flight, tmp_path, capsys):
    model = storage.load(fitted / "model.safetensors")
    inputs = flight.select("z", "vx", "u1").to_numpy()
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
        ([model, "short.csv"], "column 'u1' not found"),
        ([model, "missing.csv"], "file not found: "),
        (["missing.safetensors", "new.csv"], "expected a model file written by `greatcircle fit`"),
        (["no.safetensors", "new.csv"], "no.safetensors"),
        ([model, "new.csv", "--out", "p.xlsx"], "expected a file that ends in"),
        ([model, "new.csv", "--out", "file/p.csv"], "expected a writable folder"),
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
    assert ">Confusion matrix</h2>" in (out / "report.html").read_text("utf-8")
    assert cli.main(["predict", str(out / "model.safetensors"), str(tmp_path / "kinds.csv")]) == 0
    (tmp_path / "said.csv").write_text(capsys.readouterr().out)
    said = pl.read_csv(tmp_path / "said.csv")
    assert said.columns == ["kind", "probability_a", "probability_b", "probability_c"]
    np.testing.assert_allclose(said.select(pl.sum_horizontal(pl.all().exclude("kind"))), 1)
    likeliest = said.drop("kind").to_numpy().argmax(axis=1)
    assert said["kind"].to_list() == [["a", "b", "c"][i] for i in likeliest]


def test_a_class_without_training_rows_is_named(tmp_path, capsys):
    x = np.arange(40.0)
    label = np.where(x < 34, x.astype(int) % 2, 2)
    pl.DataFrame({"x": x, "kind": label}).write_csv(tmp_path / "late.csv")
    command = ["fit", str(tmp_path / "late.csv"), "--targets", "kind", "--classify", *SHORT]
    options = ["--split", "time", "--json", "--quiet", "--out", str(tmp_path / "o")]
    assert cli.main([*command, *options]) == 0
    printed, said = capsys.readouterr()
    assert "classes without training rows, never predicted: 2" in said
    assert json.loads(printed)["metrics"]["test"]["confusion"]["labels"] == [0, 1, 2]


def saved_by_pandas(table, path):
    pd.DataFrame(table.to_dict(as_series=False)).to_csv(path)


def saved_twice(table, path):
    saved_by_pandas(table, path)
    pd.read_csv(path).to_csv(path)


def saved_again(table, path):
    saved_by_pandas(table, path)
    pd.read_csv(path).to_csv(path, index=False)


def with_commas_at_the_end(table, path):
    path.write_text(table.write_csv().replace("\n", ",\n"))


def with_an_index_level(table, path):
    table.with_row_index("__index_level_0__").write_parquet(path)


@pytest.mark.parametrize(
    ("save", "ending", "ignored"),
    [
        (saved_by_pandas, "csv", "'Unnamed: 0'"),
        (saved_twice, "csv", "'Unnamed: 0.1', 'Unnamed: 0'"),
        (saved_again, "csv", "'Unnamed: 0'"),
        (with_commas_at_the_end, "csv", "'Unnamed: 4'"),
        (with_an_index_level, "parquet", "'__index_level_0__'"),
    ],
)
def test_row_numbers_are_not_inputs(flight, tmp_path, capsys, save, ending, ignored):
    table = flight.select("z", "vx", "u1", "fz")
    save(table, path := tmp_path / f"flight.{ending}")
    table.write_csv(tmp_path / "plain.csv")
    printed = []
    for data in (path, tmp_path / "plain.csv"):
        out = tmp_path / data.stem
        command = ["fit", str(data), "--targets", "fz", "--quiet", *SHORT, "--out", str(out)]
        assert cli.main(command) == 0
        said = capsys.readouterr().err
        assert said == (
            f"greatcircle: ignored unnamed columns: {ignored} (--inputs to use them)\n"
            if data == path
            else ""
        )
        results = json.loads((out / "results.json").read_text("utf-8"))
        assert results["data"]["inputs"] == ["z", "vx", "u1"]
        assert cli.main(["predict", str(out / "model.safetensors"), str(path)]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def test_row_numbers_are_inputs_if_they_are_named(flight, tmp_path, capsys):
    saved_by_pandas(flight, path := tmp_path / "flight.csv")
    command = ["fit", str(path), "--targets", "fz", "--inputs", "Unnamed: 0", "z", *SHORT]
    assert cli.main([*command, "--quiet", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""
    assert cli.main(["predict", str(tmp_path / "model.safetensors"), str(path)]) == 0


def test_a_model_without_names_takes_named_columns_in_order(flight, tmp_path, capsys):
    inputs = flight.select("z", "vx")
    model = LipschitzRegressor((3,), selection=False, max_iter=1, random_state=0)
    model.fit(inputs.to_numpy(), flight["fz"])
    model.save(tmp_path / "m.safetensors")
    saved_by_pandas(inputs, tmp_path / "new.csv")
    command = ["predict", str(tmp_path / "m.safetensors"), str(tmp_path / "new.csv"), "--json"]
    assert cli.main(command) == 0
    predictions = json.loads(capsys.readouterr().out)["predictions"]["fz"]
    np.testing.assert_allclose(predictions, model.predict(inputs.to_numpy()))
    saved_by_pandas(flight.select("z"), tmp_path / "new.csv")
    assert cli.main(command) == 2
    assert "has 1 named column" in capsys.readouterr().err


NAMES = ["y [/s]", "[bold]y", "[/]", ":smile:", "$y^$", "{0} %s \\", 'a,"b"', "<b>&amp;", "größe"]


def test_names_are_printed_as_they_are(flight, tmp_path, capsys):
    out = tmp_path / "[bold]out :smile:"
    out.mkdir()
    path, inputs = out / "[1].csv", [f"{name} in" for name in NAMES]
    columns = {name: flight["fz"] * (i + 1) for i, name in enumerate(NAMES)}
    columns |= dict(zip(inputs, flight.iter_columns(), strict=False))
    pl.DataFrame(columns).with_columns(pl.lit("calm").alias("[/] words")).write_csv(path)
    command = ["fit", str(path), "--targets", *NAMES, *SHORT, "--out", str(out)]
    assert cli.main(command) == 0
    printed, said = capsys.readouterr()
    for name in NAMES:
        assert f"\n {name} " in printed
    assert f"inputs           {', '.join(inputs)}\n" in printed
    assert "ignored non-numeric columns: [/] words\n" in said
    assert f"wrote {out / 'report.html'}\n" in said
    model = str(out / "model.safetensors")
    groups = [f"{name}={name} in" for name in NAMES if "," not in name]
    assert cli.main(["certify", model, "--gain", "[/]=1", "--groups", *groups]) == 0
    printed = capsys.readouterr().out
    for group in groups:
        assert f"\n {group.partition('=')[0]} " in printed
    assert "fixed-point iteration over [/]:" in printed
    assert cli.main(["predict", model, str(path), "--out", str(out / "p.csv")]) == 0
    written = pl.read_csv((out / "p.csv").read_bytes(), has_header=False)
    assert written.row(0) == tuple(NAMES)


@pytest.mark.parametrize(
    "labels",
    [
        ("9007199254740992", "9007199254740993"),
        ("12345678901234567890", "1e300"),
        ("7", "007"),
        ("[bold]u", "[/x]"),
    ],
)
def test_labels_keep_their_spelling(tmp_path, capsys, labels):
    x = np.linspace(-1, 1, 30)
    spelled = np.where(x > 0, *labels)
    path = tmp_path / "kinds.csv"
    pl.DataFrame({"x": x, "kind": spelled}).write_csv(path)
    command = ["fit", str(path), "--targets", "kind", "--classify", "--quiet", "--out"]
    assert cli.main([*command, str(tmp_path), "--max-iter", "30", "--hidden", "4"]) == 0
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    found = results["metrics"]["test"]["confusion"]["labels"]
    assert sorted(map(str, found)) == sorted(labels)
    out = tmp_path / "p.csv"
    command = ["predict", str(tmp_path / "model.safetensors"), str(path), "--out", str(out)]
    assert cli.main(command) == 0
    predicted = pl.read_csv(out, infer_schema=False)
    assert set(predicted.columns) == {"kind", *(f"probability_{label}" for label in labels)}
    right = predicted["kind"].to_numpy() == spelled
    assert right.sum() >= 28  # except for rows next to the boundary


@pytest.mark.parametrize(
    ("target", "labels", "columns"),
    [
        ("kind", "uvw", ["kind", "probability_u", "probability_v", "probability_w"]),
        ("probability_u", "uv", ["probability_u", "probability_u_2", "probability_v"]),
        ("probability_v", "uv", ["probability_v", "probability_u", "probability_v_2"]),
    ],
)
def test_columns_of_predictions_do_not_collide(tmp_path, capsys, target, labels, columns):
    rows = np.random.default_rng(0).standard_normal((60, 2))
    kinds = [labels[int(a > 0) + int(len(labels) > 2 and b > 0)] for a, b in rows]
    pl.DataFrame({"p": rows[:, 0], "q": rows[:, 1], target: kinds}).write_csv(tmp_path / "k.csv")
    command = ["fit", str(tmp_path / "k.csv"), "--targets", target, "--classify", "--quiet"]
    assert cli.main([*command, *SHORT, "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    command = ["predict", str(tmp_path / "model.safetensors"), str(tmp_path / "k.csv"), "--json"]
    assert cli.main(command) == 0
    said = json.loads(capsys.readouterr().out)["predictions"]
    assert list(said) == columns
    likeliest = np.array(list(said.values())[1:]).argmax(axis=0)
    assert said[target] == [labels[i] for i in likeliest]


@given(st.lists(st.sampled_from(["y", "y_2", "y_2_2", "y_3", "probability_u", "u"])))
def test_distinct_names_keep_what_was_distinct(names):
    distinct = predict._distinct(names)
    assert len(distinct) == len(set(distinct)) == len(names)
    for place, (new, old) in enumerate(zip(distinct, names, strict=True)):
        assert (new == old) == (old not in names[:place])


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet"])
def test_predictions_are_written_completely_or_not_at_all(
    fitted, flight, tmp_path, monkeypatch, capsys, name
):
    flight.write_csv(tmp_path / "new.csv")
    out = tmp_path / "out" / name
    command = ["predict", str(fitted / "model.safetensors"), str(tmp_path / "new.csv")]
    assert cli.main([*command, "--out", str(out)]) == 0
    before = out.read_bytes()
    flight[:10].write_csv(tmp_path / "new.csv")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    capsys.readouterr()
    assert cli.main([*command, "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert os.strerror(errno.ENOSPC) in said
    assert str(out) in said
    assert out.read_bytes() == before
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_full_standard_output_is_an_error(fitted, flight, tmp_path, capsys, more):
    flight.write_csv(tmp_path / "new.csv")
    full = open("/dev/full", "w")  # noqa: SIM115
    with contextlib.redirect_stdout(full):
        assert (
            cli.main(
                ["predict", str(fitted / "model.safetensors"), str(tmp_path / "new.csv"), *more]
            )
            == 2
        )
    assert "standard output" in capsys.readouterr().err
    with contextlib.suppress(OSError):
        full.close()


def test_long_lists_of_inputs_are_shortened(tmp_path, capsys):
    rows = np.random.default_rng(0).standard_normal((20, 300))
    path = tmp_path / "wide.csv"
    pl.DataFrame(rows, schema=[f"c{i}" for i in range(300)]).write_csv(path)
    command = ["fit", str(path), "--targets", "c0", *SHORT, "--quiet", "--out", str(tmp_path)]
    assert cli.main(command) == 0
    assert "c39, c40 and 259 more\n" in capsys.readouterr().out
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert len(results["data"]["inputs"]) == 299
