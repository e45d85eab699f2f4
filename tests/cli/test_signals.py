"""Ctrl-C and SIGTERM at any moment: `fit` leaves complete results or none, with a message."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from greatcircle import storage
from greatcircle.datasets import ground_effect
from small import thinned

SIGINT, SIGTERM = signal.SIGINT, signal.SIGTERM
CODES = {SIGINT: 130, SIGTERM: 143}

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="looks into /proc whether signals are caught"
)


STARTED: list[subprocess.Popen] = []


@pytest.fixture(autouse=True)
def end_all():
    """End the processes of a failed test."""
    yield
    while STARTED:
        with STARTED.pop() as process:
            process.kill()


def python(arguments, **streams) -> subprocess.Popen:
    STARTED.append(subprocess.Popen([sys.executable, *arguments], **streams))
    return STARTED[-1]


def started(arguments, **streams) -> subprocess.Popen:
    """Start a command, and wait until its handler receives signals instead of Python's."""
    process = python(["-m", "greatcircle.cli", *arguments], **streams)
    while process.poll() is None and not catches_signals(process.pid):
        time.sleep(0.002)
    return process


def catches_signals(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(re.search(r"^SigCgt:\s*(\w+)$", status, re.MULTILINE)[1], 16)
    return all(caught >> (number - 1) & 1 for number in CODES)


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    return written_table(tmp_path_factory.mktemp("table"))


def written_table(folder: Path) -> Path:
    rows = ground_effect.generate(80).columns
    path = folder / "flight.csv"
    pl.DataFrame({name: rows[name] for name in ("z", "vz", "fz")}).write_csv(path)
    return path


def fit(table: Path, iterations: int) -> list[str]:
    # A method with steps so short that it does not converge before the interrupt.
    options = ["--method", "mm", "--hidden", "3", "--max-iter", str(iterations)]
    return ["fit", str(table), "--targets", "fz", *options]


@pytest.fixture(scope="module")
def undisturbed(table, tmp_path_factory) -> tuple[float, set[str]]:
    return run_undisturbed(table, tmp_path_factory.mktemp("undisturbed") / "out")


def run_undisturbed(table, out) -> tuple[float, set[str]]:
    """Return the duration of an uninterrupted run and the names of its files."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = started([*fit(table, 1500), "--out", str(out)], **quiet)
    begun = time.monotonic()
    assert process.wait() == 0
    names = {path.name for path in out.iterdir()}
    assert {"model.safetensors", "results.json", "report.html", "slices.png"} <= names
    return time.monotonic() - begun, names


def moments() -> list[tuple[float, tuple[int, ...], float, bool]]:
    """Return cases: time as a fraction of the run, signals, seconds between them, older result."""
    rng = np.random.default_rng(0)
    kinds = ((SIGINT,), (SIGINT, SIGINT), (SIGTERM,), (SIGTERM, SIGINT))
    return [
        ((i + rng.random()) / 20, kinds[i % 4], 0.3 * rng.random(), bool(rng.integers(2)))
        for i in range(20)
    ]


@pytest.mark.parametrize(("share", "numbers", "gap", "older"), thinned(moments(), 3))
def test_results_are_complete_or_absent(undisturbed, table, tmp_path, share, numbers, gap, older):
    interrupt(undisturbed, table, tmp_path, share, numbers, gap, older)


def interrupt(undisturbed, table, tmp_path, share, numbers, gap, older):
    """Send signals to a fit, and check the files it leaves."""
    seconds, names = undisturbed
    out = tmp_path / "out"
    out.mkdir()
    if older:
        for name in names:
            (out / name).write_text("older")
        (out / "results.json").write_text(json.dumps({"files": sorted(names)}))
    before = contents(out)
    with (tmp_path / "said").open("w+") as said:
        process = started(
            [*fit(table, 1500), "--out", str(out)], stdout=subprocess.DEVNULL, stderr=said
        )
        time.sleep(share * seconds)
        for number in numbers:
            process.send_signal(number)
            time.sleep(gap)
        code = process.wait(60)
    words = (tmp_path / "said").read_text()
    assert code in {0, *(CODES[number] for number in numbers)}
    assert "Traceback" not in words
    assert "Exception ignored" not in words
    assert code == 0 or "greatcircle: interrupted" in words
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "said"]
    if code == 0 or contents(out) != before:
        assert {path.name for path in out.iterdir()} == names
        assert not set(contents(out).values()) & set(before.values())
        check_complete(out)
    if "nothing was written" in words:
        assert contents(out) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def check_complete(out: Path) -> dict:
    """Check that all files are complete and of one run; return the training results."""
    model = storage.load(out / "model.safetensors")  # verifies the certificate
    results = json.loads((out / "results.json").read_text("utf-8"))
    training = results["training"]
    assert (
        training["iterations"]
        == len(model.training.history["loss"])
        == len(results["history"]["loss"])
    )
    assert training["outcome"] == model.training.outcome
    assert results["lipschitz"]["certified"] == model.certificate.value
    assert results["files"] == sorted(path.name for path in out.iterdir())
    for path in out.iterdir():
        ending = {".html": b"</html>", ".png": b"IEND\xaeB`\x82", ".pdf": b"%%EOF"}
        assert path.read_bytes().strip().endswith(ending.get(path.suffix, b""))
    return training


class Terminal:
    """A command in a terminal, which shows its progress bar."""

    def __init__(self, arguments) -> None:
        self.ours, theirs = pty.openpty()
        self.process = started(arguments, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        self.shown = ""

    def read_until(self, words: str) -> None:
        """Read until this text is printed or the command has ended."""
        end = time.monotonic() + 60
        while words not in self.shown and time.monotonic() < end:
            if select.select([self.ours], [], [], 0.1)[0]:
                try:
                    self.shown += os.read(self.ours, 4096).decode(errors="replace")
                except OSError:  # the command has ended
                    return


FOREVER = 10**8


@pytest.mark.parametrize("number", CODES)
def test_a_signal_during_training_keeps_what_was_learnt(table, tmp_path, number):
    terminal = Terminal([*fit(table, FOREVER), "--out", str(tmp_path)])
    terminal.read_until("loss")
    terminal.process.send_signal(number)
    terminal.read_until("never shown")
    assert terminal.process.wait(10) == CODES[number]
    # Which line depends on whether the iteration ends before the line is written.
    assert re.search(r"interrupted: (training ends|results are being written)", terminal.shown)
    assert "Lipschitz bound" in terminal.shown
    training = check_complete(tmp_path)
    assert training["outcome"] == "interrupted"
    assert 0 < training["iterations"] < FOREVER
    assert training["reason"] == f"interrupted by {signal.Signals(number).name}"


@pytest.mark.parametrize("number", CODES)
def test_a_signal_during_the_choice_keeps_the_best_candidate(table, tmp_path, number):
    terminal = Terminal(["fit", str(table), "--targets", "fz", "--out", str(tmp_path)])
    terminal.read_until("64-64-64")  # whose compilation takes longer than a refresh of the bar
    terminal.process.send_signal(number)
    terminal.read_until("never shown")
    assert terminal.process.wait(10) == CODES[number]
    assert "interrupted: the best candidate so far is written" in terminal.shown
    training = check_complete(tmp_path)
    assert training["outcome"] == "interrupted"
    selection = json.loads((tmp_path / "results.json").read_text("utf-8"))["selection"]
    assert sum(candidate["chosen"] for candidate in selection["candidates"]) == 1
    assert selection["networks"] == 1


def test_a_signal_before_the_first_candidate_leaves_nothing(table, tmp_path):
    terminal = Terminal(["fit", str(table), "--targets", "fz", "--out", str(tmp_path)])
    terminal.read_until("candidate 1")
    terminal.process.send_signal(SIGINT)
    terminal.read_until("never shown")
    assert terminal.process.wait(10) == 130
    assert "Traceback" not in terminal.shown
    assert list(tmp_path.iterdir()) == []


def test_a_second_signal_during_training_quits_at_once(table, tmp_path):
    terminal = Terminal([*fit(table, FOREVER), "--out", str(tmp_path)])
    terminal.read_until("loss")
    terminal.process.send_signal(SIGINT)
    terminal.read_until("quit at once")
    terminal.process.send_signal(SIGINT)
    sent = time.monotonic()
    terminal.read_until("never shown")
    assert terminal.process.wait(10) == 130
    assert time.monotonic() - sent < 1
    assert "interrupted; nothing was written" in terminal.shown
    hidden, visible = (terminal.shown.rfind(f"\x1b[?25{c}") for c in "lh")
    assert visible > hidden  # the cursor
    assert list(tmp_path.iterdir()) == []


SWALLOWING = {
    "a callback of garbage collection": """
    def wait_once(phase, info):
        gc.callbacks.remove(wait_once)
        ready()
    gc.callbacks.append(wait_once)
    gc.collect()
    time.sleep(60)""",
    "a finaliser": """
    class Final:
        def __del__(self):
            ready()
    Final()
    time.sleep(60)""",
    "another exception": """
    try:
        ready()
    except KeyboardInterrupt as error:
        raise RuntimeError("compilation failed") from error""",
    "a bare except": """
    try:
        ready()
    except:
        pass
    return 0""",
    "nothing": """
    ready()""",
}
"""Code that loses a KeyboardInterrupt."""


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("lost_in", SWALLOWING)
def test_no_interrupt_is_lost(lost_in, number):
    code = f"""
import gc, sys, time, types
from greatcircle import cli
def ready():
    print("ready", flush=True)
    time.sleep(60)
def run(options):{SWALLOWING[lost_in]}
module = types.ModuleType("greatcircle.cli.predict")
module.add_arguments, module.run = lambda parser: None, run
sys.modules[module.__name__] = module
cli.command()
"""
    pipe = subprocess.PIPE
    process = python(["-c", code, "predict"], stdout=pipe, stderr=pipe, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    sent = time.monotonic()
    _, said = process.communicate(timeout=30)
    assert process.returncode == CODES[number]
    assert time.monotonic() - sent < 10
    assert said in ("greatcircle: interrupted\n", "")
    assert said or lost_in == "a bare except"


@pytest.mark.slow
@pytest.mark.parametrize("number", CODES)
def test_reproduce_keeps_its_rows(tmp_path, number):
    command = ["reproduce", "exp1", "--seeds", "50", "--iterations", "3", "--jobs", "1"]
    with (tmp_path / "said").open("w+") as said:
        process = started([*command, "--out", str(tmp_path)], stderr=said)
        rows = tmp_path / "runs.jsonl"
        while not (rows.exists() and b"\n" in rows.read_bytes()):
            assert process.poll() is None
            time.sleep(0.05)
        workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(number)
        assert process.wait(30) == CODES[number]
    words = (tmp_path / "said").read_text()
    assert "runs are kept" in words
    assert words.endswith("greatcircle: interrupted\n")
    assert "Traceback" not in words
    assert all(json.loads(line)["result"] for line in rows.read_text().splitlines())
    assert workers
    end = time.monotonic() + 30
    while any(map(runs, workers)):
        assert time.monotonic() < end
        time.sleep(0.05)


def runs(pid: str) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
