"""The progress bar: candidates without a total, then iterations of each network."""

from typing import Any

from greatcircle.optimise.progress import ProgressBar
from greatcircle.optimise.record import Record


def fields(bar: ProgressBar) -> tuple[Any, ...]:
    task = bar._progress.tasks[0]
    return task.description, task.total, task.fields["count"], task.fields["state"]


def record(**changes: Any) -> Record:
    empty: dict[str, Any] = dict.fromkeys(Record._fields, float("nan"))
    return Record(**(empty | {"loss": 0.5, "spectral_bound": 2.0} | changes))


def test_candidates_are_numbered_and_have_no_total() -> None:
    bar = ProgressBar("title", 100)
    assert fields(bar) == ("title", 100, "0/100", "compiling")
    bar.candidate("8-8, target gain 3")
    assert fields(bar) == ("candidate 1", None, "", "8-8, target gain 3")
    bar.candidate("8-8, target gain 10")
    assert fields(bar)[0] == "candidate 2"
    bar.candidate("8-8, target gain 3")  # trained for longer: no new candidate
    assert fields(bar) == ("candidate 1", None, "", "8-8, target gain 3, more iterations")


def test_iterations_are_counted_for_each_network(capsys) -> None:
    with ProgressBar("title", 100) as bar:
        bar.candidate("8")
        bar.network(1, 2, 50)
        assert fields(bar) == ("network 1 of 2", 50, "0/50", "compiling")
        bar.show(record())
        bar.show(record(validation_loss=0.25))
        state = "loss 0.5  validation 0.25  spectral bound 2"
        assert fields(bar) == ("network 1 of 2", 50, "2/50", state)
        bar.network(2, 2, 50)
        bar.show(record())
    assert fields(bar)[:3] == ("network 2 of 2", 1, "1/1")  # a run that converges is complete
    bar = ProgressBar("title", 100)
    bar.network(1, 1, 100)
    assert fields(bar)[0] == "title"


def test_a_narrow_terminal_cuts_off_the_end_of_one_line(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    with ProgressBar("title", 100) as bar:
        bar.candidate("128-128-128-128-128-128, target gain 31.6")
    shown = capsys.readouterr().err.rstrip("\n")
    assert "\n" not in shown
    assert "candidate 1" in shown
    assert "…" in shown
