"""The examples run as they are, and say what they promise."""

import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from greatcircle.experiments.landing.compiled import COMPILERS

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def printed(monkeypatch, capsys, tmp_path):
    """What an example prints; it runs in an empty folder and leaves nothing there."""

    def run(name: str) -> str:
        script = EXAMPLES / f"{name}.py"
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [str(script)])
        runpy.run_path(str(script), run_name="__main__")
        assert not list(tmp_path.iterdir())
        return capsys.readouterr().out

    return run


def numbers(pattern: str, text: str) -> list[float]:
    found = re.search(pattern, text)
    assert found, text
    return [float(group) for group in found.groups()]


def test_ground_effect_stays_within_its_budget(printed):
    text = printed("ground_effect")
    (budget,) = numbers(r"budget +([\d.]+)", text)
    (certified,) = numbers(r"certificate +([\d.]+), verified", text)
    (steepest,) = numbers(r"steepest pair +([\d.]+)", text)
    assert steepest < certified <= budget
    assert numbers(r"test RMS +([\d.]+)", text) < numbers(r"without a model ([\d.]+)", text)


def test_no_digit_changes_within_its_radius(printed):
    text = printed("certain_digits")
    assert numbers(r"accuracy +([\d.]+)", text) > [0.95]
    assert numbers(r"classes changed .*: (\d+)", text) == [0]


@pytest.mark.slow  # most of a minute: fifteen fits within a budget
def test_the_search_prints_error_against_bound(printed):
    text = printed("choose_budget")
    rows = re.findall(r"^ +([\d.]+) +([\d.]+) +([\d.]+)$", text, re.MULTILINE)
    budgets, bounds, errors = zip(*(map(float, row) for row in rows), strict=True)
    assert len(rows) == 5
    assert all(bound <= budget for bound, budget in zip(bounds, budgets, strict=True))
    assert errors[0] > min(errors)
    (chosen,) = numbers(r"chosen budget ([\d.]+)", text)
    assert chosen in budgets


def test_a_fit_from_a_file_resumes_and_is_kept(printed):
    text = printed("out_of_memory")
    assert "same as without a stop: True" in text
    assert "same bound: True" in text


def test_conjugate_gradients_need_fewer_passes(printed):
    text = printed("own_loss")
    passes = {
        name: numbers(rf"{name} +\d+ +(\d+)", text)[0]
        for name in ("steepest, curvature", "conjugate gradient, curvature")
    }
    assert passes["conjugate gradient, curvature"] < passes["steepest, curvature"]
    assert text.count("(converged)") == 3


def test_the_landing_is_nearer_with_the_force(printed):
    if not any(map(shutil.which, COMPILERS)):
        pytest.skip("no C compiler is on this machine")
    text = printed("landing/landing")
    assert "motor speed, verified" in text
    assert numbers(r"contraction +([\d.]+)", text) < [1.0]
    row = r"{} +([\d.]+) +[\d.]+ +([\d.]+)"
    baseline, ours = (numbers(row.format(name), text) for name in ("baseline", "compensated"))
    assert ours[0] < baseline[0] / 2
    assert ours[1] < baseline[1] / 2


def test_every_example_is_listed_and_tested():
    names = {str(path.relative_to(EXAMPLES).with_suffix("")) for path in EXAMPLES.rglob("*.py")}
    listed = set(re.findall(r"\(([\w/]+)\.py\)", (EXAMPLES / "README.md").read_text("utf-8")))
    tested = set(re.findall(r'printed\("([\w/]+)"\)', Path(__file__).read_text("utf-8")))
    assert names == listed == tested
