"""Failures of the command line: no traceback, an exit code, and a trained model is kept."""

import importlib
import json
import os
import re
import resource
import subprocess
import sys
from contextlib import contextmanager

import polars as pl
import pytest
from polars.exceptions import ComputeError
from safetensors.numpy import load_file
from sklearn.exceptions import ConvergenceWarning

from greatcircle import cli, storage
from greatcircle._runtime import atomic, versions
from greatcircle.cli import fit_files, output
from greatcircle.datasets import ground_effect
from greatcircle.model import model as model_module
from greatcircle.report import evaluation
from greatcircle.report import fit as report

ERRORS = [
    ArithmeticError("no bound"),
    OverflowError(34, "Numerical result out of range"),
    ZeroDivisionError(),
    MemoryError(),
    RecursionError("maximum recursion depth exceeded"),
    KeyError("column"),
    AssertionError(),
    ComputeError("first line\nsecond line"),
    ConvergenceWarning("a warning made an error"),
]


@pytest.mark.parametrize("command", cli.COMMANDS)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_unexpected_error_is_printed_in_one_line(command, error, monkeypatch, capsys):
    def fail(*_):
        raise error

    module = importlib.import_module(f"greatcircle.cli.{command}")
    monkeypatch.setattr(module, "run", fail)
    monkeypatch.setattr(module, "add_arguments", lambda parser: None)
    assert cli.main([command]) == 1
    printed, said = capsys.readouterr()
    assert printed == ""
    start = f"greatcircle: unexpected error: {type(error).__name__}"
    assert re.fullmatch(rf"{start}.*; rerun with --debug for the traceback\n", said)
    for arguments in (["--debug", command], [command, "--debug"]):
        assert cli.main(arguments) == 1
        said = capsys.readouterr().err
        assert said.startswith("Traceback")
        assert said.splitlines()[-1].startswith(start)


@pytest.fixture(scope="module")
def model(table, tmp_path_factory):
    out = tmp_path_factory.mktemp("model")
    assert fit(table, out) == 0
    return out / "model.safetensors"


@pytest.mark.parametrize(
    ("where", "code", "words"),
    [("a closed pipe", 141, ""), ("/dev/full", 2, "No space left on device")],
)
def test_standard_output_that_cannot_be_written(model, table, where, code, words):
    """A short table stays in Python's buffer until the end."""
    command = [sys.executable, "-m", "greatcircle.cli", "predict", str(model), str(table)]
    reader, pipe = os.pipe()
    os.close(reader)
    with open("/dev/full", "w") as full, open(pipe, "w") as closed:
        out = full if where == "/dev/full" else closed
        run = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True)
    assert run.returncode == code
    assert words in run.stderr
    assert run.stderr.count("\n") == bool(words)


def test_debug_shows_the_traceback_of_an_expected_error_too(tmp_path, capsys):
    command = ["fit", str(tmp_path / "missing.csv"), "--targets", "y"]
    assert cli.main(command) == 2
    assert "Traceback" not in capsys.readouterr().err
    for arguments in (["--debug", *command], [*command, "--debug"]):
        assert cli.main(arguments) == 2
        assert "Traceback" in capsys.readouterr().err


def test_a_module_that_cannot_be_imported_is_a_message(monkeypatch, capsys):
    def fail(*_):
        raise ImportError("libopenblas.so: cannot open shared object file")

    monkeypatch.setattr(cli, "import_module", fail)
    assert cli.main(["demo"]) == 2
    assert capsys.readouterr().err == (
        "greatcircle: libopenblas.so: cannot open shared object file\n"
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rows = ground_effect.generate(60).columns
    path = tmp_path_factory.mktemp("table") / "flight.csv"
    pl.DataFrame({name: rows[name] for name in ("z", "vz", "fz")}).write_csv(path)
    return path


def fit(table, out, *more):
    options = ["--targets", "fz", "--hidden", "3", "--max-iter", "2", "--no-selection", "--quiet"]
    return cli.main(["fit", str(table), *options, "--out", str(out), *more])


@pytest.fixture(scope="module")
def result(table, tmp_path_factory):
    """Return the files of a fit without failures."""
    out = tmp_path_factory.mktemp("whole") / "out"
    assert fit(table, out) == 0
    return contents(out)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def fill(folder, files):
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


FIGURES = {f"{name}.{s}" for name in report.FIGURES for s in ("png", "pdf")}
STAGES = {
    "evaluation": ((evaluation, "slices"), {"results.json", "report.html"} | FIGURES),
    "figures": ((report, "figures"), FIGURES),
    "report.html": ((report, "page"), {"report.html"}),
    "results.json": ((output, "json_bytes"), {"results.json"}),
}
"""A function that fails, and the files that are then missing."""


@pytest.mark.parametrize("error", [OverflowError("too large"), MemoryError(), ValueError("nan")])
@pytest.mark.parametrize("stage", [*STAGES, "versions"])
def test_a_failing_stage_leaves_the_model(
    table, result, tmp_path, capsys, monkeypatch, stage, error
):
    def fail(*_, **__):
        raise error

    (module, name), missing = STAGES.get(stage, ((versions, "machine"), STAGES["evaluation"][1]))
    monkeypatch.setattr(module, name, fail)
    out = tmp_path / "out"
    fill(out, result)
    assert fit(table, out) == 1
    said = capsys.readouterr().err
    stage = stage if stage in STAGES else "evaluation"
    assert f"greatcircle: {stage} failed: " in said
    assert "Traceback" not in said
    assert f"written: {out / 'model.safetensors'}" in said
    assert {path.name for path in out.iterdir()} == set(result) - missing
    assert storage.load(out / "model.safetensors").training.history["loss"].size == 2
    monkeypatch.undo()
    assert fit(table, out) == 0
    assert set(contents(out)) == set(result)


def test_weights_without_a_certificate_are_kept(table, result, tmp_path, capsys, monkeypatch):
    def fail(*_, **__):
        raise ArithmeticError("the bound overflows")

    out = tmp_path / "out"
    fill(out, result)
    monkeypatch.setattr(model_module, "tight", fail)
    assert fit(table, out) == 1
    said = capsys.readouterr().err
    assert "model.safetensors failed: ArithmeticError: the bound overflows" in said
    assert "without a certificate" in said
    path = out / "uncertified.safetensors"
    assert {"weights.0", "weights.1", "scaling.spread", "history.loss"} <= set(load_file(path))
    with pytest.raises(ValueError, match="it has no certificate"):
        storage.load(path)
    after = contents(out)
    del after[path.name]
    assert after == result  # the older result is whole
    monkeypatch.undo()
    assert fit(table, out) == 0
    assert set(contents(out)) == set(result)


@contextmanager
def largest_file(size):
    """Let writing fail beyond a size, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("older", [True, False])
def test_a_report_that_does_not_fit_on_the_disk(table, result, tmp_path, capsys, older):
    out = tmp_path / "out"
    fill(out, result if older else {})
    with largest_file(500_000):
        assert fit(table, out) == 1
    said = capsys.readouterr().err
    assert f"writing failed: {out / 'report.html'}: File too large" in said
    assert f"written: {out / 'model.safetensors'}\n" in said
    assert list(contents(out)) == ["model.safetensors"]
    assert storage.load(out / "model.safetensors").training.history["loss"].size == 2


@pytest.mark.parametrize("older", [True, False])
def test_a_model_that_does_not_fit_on_the_disk(table, result, tmp_path, capsys, older):
    out = tmp_path / "out"
    fill(out, result if older else {})
    with largest_file(500):
        assert fit(table, out) == 1
    printed, said = capsys.readouterr()
    assert f"{out / 'model.safetensors'}: File too large" in said
    assert "greatcircle: nothing was written" in said
    assert "Lipschitz bound" in printed  # the results are printed at least
    assert contents(out) == (result if older else {})


def test_a_full_disk(table, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(out)]
    if os.getuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no permission to mount a small disk")
    try:
        assert fit(table, out) == 1
        said = capsys.readouterr().err
        assert f"writing failed: {out}/report.html: No space left on device" in said
        assert storage.load(out / "model.safetensors").training.history["loss"].size == 2
        assert list(contents(out)) == ["model.safetensors"]
    finally:
        subprocess.run(["umount", str(out)], check=True)


def test_files_of_an_older_result_are_removed_and_other_files_stay(table, result, tmp_path):
    out = tmp_path / "out"
    older = json.dumps({"files": ["confusion.png", "results.json", "../table.csv", "notes.txt"]})
    fill(out, {"confusion.png": b"", "notes.txt": b"", "results.json": older.encode()})
    (tmp_path / "table.csv").write_text("")
    assert fit(table, out) == 0
    assert set(contents(out)) == {*result, "notes.txt"}
    assert (tmp_path / "table.csv").exists()
    fill(out, {"confusion.png": b""})  # which the last result does not list
    assert fit(table, out) == 0
    assert set(contents(out)) == {*result, "notes.txt", "confusion.png"}


@pytest.mark.parametrize("name", ["report.html", "model.safetensors", "slices.pdf"])
def test_a_folder_with_the_name_of_a_file_is_rejected_before_training(
    table, tmp_path, capsys, name, monkeypatch
):
    (tmp_path / name).mkdir()
    (tmp_path / name / "mine.txt").write_text("mine")
    monkeypatch.setattr(fit_files, "make", None)
    assert fit(table, tmp_path) == 2
    assert f"{tmp_path / name} is a folder" in capsys.readouterr().err
    assert (tmp_path / name / "mine.txt").exists()


@pytest.mark.skipif(not os.getuid(), reason="root may write everywhere")
def test_a_read_only_file_is_rejected_before_training(table, tmp_path, capsys):
    (tmp_path / "report.html").touch(mode=0o400)
    assert fit(table, tmp_path) == 2
    assert "report.html is read-only" in capsys.readouterr().err


@pytest.mark.parametrize("call", range(1, 8))
def test_files_are_replaced_together_or_not_at_all(tmp_path, monkeypatch, call):
    """After an error or Ctrl-C at any rename the folder is as before."""
    before = {"a": b"old a", "b": b"old b", "gone": b"old", "other": b"other"}
    new = {"a": b"new a", "b": b"new b", "c": b"new c"}
    fill(tmp_path, before)
    (tmp_path / "a").chmod(0o640)
    rename, calls = os.rename, []

    def fails_once(source, target):
        calls.append(target)
        if len(calls) == call:
            raise OSError(1, "Operation not permitted") if call % 2 else KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "rename", fails_once)
    if call == 7:  # renames: a and b are replaced (2 each), c is added, gone is removed
        atomic.atomic_write_all(tmp_path, new, ["gone", "missing"])
        assert contents(tmp_path) == {**new, "other": b"other"}
    else:
        with pytest.raises((OSError, KeyboardInterrupt)):
            atomic.atomic_write_all(tmp_path, new, ["gone", "missing"])
        assert contents(tmp_path) == before
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
