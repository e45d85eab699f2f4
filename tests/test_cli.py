import json
import subprocess
import sys

import pytest

from greatcircle import cli
from greatcircle.experiments import demo as demos
from greatcircle.experiments.run import paper_numbers


@pytest.fixture
def short(monkeypatch):
    """The demo with few iterations: its length is tried by `make demo`."""
    methods = {k: (title, step, 5) for k, (title, step, _) in demos.METHODS.items()}
    monkeypatch.setattr(demos, "METHODS", methods)


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
def test_demo_json_is_all_there_is_on_standard_output(tmp_path, capsys):
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
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert cli.main(["demo", "--out", str(blocked)]) == 2
    assert "greatcircle: " in capsys.readouterr().err


def test_interrupt_is_said_and_not_a_traceback(monkeypatch, capsys, tmp_path):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(demos, "train", interrupt)
    assert cli.main(["demo", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err.strip().endswith("interrupted")


def test_the_installed_command_answers():
    run = subprocess.run(
        [sys.executable, "-m", "greatcircle.cli", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "demo" in run.stdout
