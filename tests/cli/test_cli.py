"""The command line: answers, mistakes, the demo and the rerun experiments."""

import json
import subprocess
import sys

import numpy as np
import pytest

import greatcircle
from greatcircle import LipschitzRegressor, cli
from greatcircle.experiments import demo as experiment
from greatcircle.experiments import exp2
from greatcircle.experiments.run import paper_numbers
from greatcircle.optimise import loop


@pytest.fixture
def short(monkeypatch):
    """Run the demo with few iterations; `make demo` runs all."""
    methods = {k: (title, 5) for k, (title, _) in experiment.METHODS.items()}
    monkeypatch.setattr(experiment, "METHODS", methods)


@pytest.mark.usefixtures("short")
def test_demo_prints_a_table_and_writes_everything(tmp_path, capsys):
    assert cli.main(["demo", "--out", str(tmp_path / "out")]) == 0
    out, err = capsys.readouterr()
    for word in ("Method 1", "Method 2", "paper", "0.837", "0.848", "train RMS"):
        assert word in out
    assert "results.json" in err
    files = {p.name for p in (tmp_path / "out").iterdir()}
    assert files == {"results.json", "learning_curves.png", "learning_curves.pdf"}
    assert (tmp_path / "out" / "learning_curves.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "learning_curves.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.usefixtures("short")
def test_demo_prints_only_json_on_standard_output(tmp_path, capsys):
    assert cli.main(["demo", "--json", "--seed", "1", "--out", str(tmp_path)]) == 0
    out, _ = capsys.readouterr()
    results = json.loads(out)
    assert results == json.loads((tmp_path / "results.json").read_text("utf-8"))
    ours, paper = results["experiment_1"], paper_numbers()["experiment_1"]
    assert ours["layers"] == paper["layers"]
    for method in ("ad", "mm"):
        assert set(paper[method]) <= set(ours[method])
        assert ours[method]["iterations"] == 5
        assert 0.8 < ours[method]["train_rms"][0] < 2
        assert ours[method]["lipschitz"] < ours[method]["lipschitz_a_priori"]


def test_mistakes_get_a_message_and_an_exit_code(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main([])
    with pytest.raises(SystemExit, match="2"):
        cli.main(["dmo"])
    assert "invalid choice: 'dmo'" in capsys.readouterr().err
    assert cli.main(["demo", "--seed", "-1", "--out", str(tmp_path)]) == 2
    assert "--seed is -1" in capsys.readouterr().err
    assert cli.main(["demo", "--seed", str(2**32), "--out", str(tmp_path)]) == 2
    assert "expected a whole number from 0 to 4294967295" in capsys.readouterr().err
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert cli.main(["demo", "--out", str(blocked)]) == 2
    assert "greatcircle: --out is" in capsys.readouterr().err


def test_an_interrupt_is_a_message_without_a_traceback(monkeypatch, capsys, tmp_path):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    # In the middle of a run, as Ctrl-C would.
    monkeypatch.setattr(loop, "Record", interrupt)
    assert cli.main(["demo", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err.strip().endswith("interrupted")
    assert list(tmp_path.iterdir()) == []


def test_the_installed_command_answers():
    run = subprocess.run(
        [sys.executable, "-m", "greatcircle.cli", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "demo" in run.stdout


@pytest.mark.parametrize("argument", ["--version", "--help", "fit --help", "predict --help"])
def test_quick_answers_do_not_import_jax(argument):
    code = (
        "import sys; from greatcircle import cli\n"
        f"try: cli.main({argument.split()!r})\n"
        "except SystemExit as end: assert end.code == 0\n"
        "assert 'jax' not in sys.modules and 'sklearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


MISSING = [
    ("rich", "demo", "app"),
    ("matplotlib", "demo", "app"),
    ("plotly", "reproduce exp1", "app"),
    ("jinja2", "fit missing.csv --targets y", "app"),
    ("polars", "predict missing.safetensors missing.csv", "app"),
    ("filelock", "reproduce exp1 --seeds 1", "sweep"),
    ("distributed", "reproduce exp1 --seeds 1 --cluster localhost:1", "sweep"),
]


@pytest.mark.parametrize(("package", "arguments", "extra"), MISSING)
def test_a_missing_package_is_an_error_that_names_its_extra(tmp_path, package, arguments, extra):
    code = (
        f"import sys; sys.modules[{package!r}] = None; from greatcircle import cli\n"
        f"sys.exit(cli.main({arguments.split()!r}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 2
    assert f"needs the package {package}: pip install 'greatcircle[{extra}]'" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.fixture
def model(tmp_path):
    """Return the file of a small model."""
    X = np.random.default_rng(0).standard_normal((40, 2))
    path = tmp_path / "model.safetensors"
    estimator = LipschitzRegressor((3,), selection=False, max_iter=2, random_state=0)
    estimator.fit(X, X[:, 0]).save(path)
    return path


@pytest.mark.parametrize("command", ["predict {} new.csv", "export {} --to c", "certify {}"])
def test_model_files_are_used_without_jax(model, tmp_path, command):
    (tmp_path / "new.csv").write_text("a,b\n0.5,1\n2,-1\n")
    code = (
        "import sys; from greatcircle import cli\n"
        f"assert cli.main({command.format(model).split()!r}) == 0\n"
        "found = {'jax', 'equinox', 'greatcircle.estimators'} & set(sys.modules)\n"
        "assert not found, found"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr


def test_public_names_exist_and_no_others():
    for name in greatcircle.__all__:
        assert getattr(greatcircle, name).__name__.split(".")[-1] == name
        assert name in dir(greatcircle)
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        _ = greatcircle.missing


def test_reproduce_a_small_experiment_and_resume(tmp_path, capsys):
    command = ["reproduce", "exp1", "--seeds", "2", "--iterations", "3", "--jobs", "2"]
    for _ in range(2):  # the second time all runs are stored
        assert cli.main([*command, "--out", str(tmp_path)]) == 0
        out, _ = capsys.readouterr()
        assert "Method 1" in out
        assert "paper" in out
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 4
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    paper = paper_numbers()
    assert results["experiment_1"]["layers"] == paper["experiment_1"]["layers"]
    for method in ("ad", "mm"):
        assert set(paper["experiment_1"][method]) <= set(results["experiment_1"][method])
        assert results["experiment_1"][method]["rises"] == 0
    written = {p.name for p in tmp_path.iterdir()}
    assert {"report.html", "learning_curves.png", "learning_curves.pdf"} <= written


def test_reproduce_part_of_the_grid(tmp_path, capsys, monkeypatch):
    """Run two cells of Experiment 2; tables, figures and report leave the others empty."""
    jobs = exp2.jobs
    monkeypatch.setattr(
        exp2,
        "jobs",
        lambda *a, **k: [j for j in jobs(*a, **k) if j.hidden in ((15,) * 3, (20,) * 3)],
    )
    command = ["reproduce", "exp2", "--seeds", "1", "--iterations", "2", "--jobs", "2"]
    chosen = ["--method", "mm", "--step", "closed-form", "--scaling", "paper"]
    assert cli.main([*command, *chosen, "--out", str(tmp_path)]) == 0
    out, _ = capsys.readouterr()
    assert "train RMS" in out
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))["experiment_2"]
    paper = paper_numbers()["experiment_2"]
    assert set(paper) <= set(results)
    assert results["method"] == "steepest + closed-form + paper"
    for name in exp2.QUANTITIES:
        grid = results[name]
        assert [len(row) for row in grid] == [len(row) for row in paper[name]]
        assert [cell is not None for row in grid for cell in row] == [True] * 2 + [False] * 23
    written = {p.name for p in tmp_path.iterdir()}
    assert {"report.html", "heatmaps.png", "heatmaps.pdf"} <= written


def test_reproduce_mistakes(tmp_path, capsys):
    for arguments, message in (
        (["--seeds", "0"], "--seeds is 0"),
        (["--seeds", "99999999999"], "--seeds is 99999999999; expected a whole number from 1 to"),
        (["--iterations", "99999999999"], "--iterations is 99999999999"),
        (["--jobs", "99999999999"], "--jobs is 99999999999"),
        (["--data", "nothing.csv"], "--targets is missing"),
        (["--data", "nothing.csv", "--targets", "y"], "nothing.csv"),
    ):
        assert cli.main(["reproduce", "exp1", "--out", str(tmp_path), *arguments]) == 2
        assert message in capsys.readouterr().err
