"""Every example runs unchanged and prints the output that it states."""

import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from c_code import COMPILERS

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def printed(monkeypatch, capsys, tmp_path):
    """Return the output of an example, run in an empty folder, where it leaves no files."""

    def run(name: str) -> str:
        script = EXAMPLES / f"{name}.py"
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [str(script)])
        monkeypatch.syspath_prepend(script.parent)  # as Python does for a script
        runpy.run_path(str(script), run_name="__main__")
        assert not list(tmp_path.iterdir())
        return capsys.readouterr().out

    return run


def numbers(pattern: str, text: str) -> list[float]:
    found = re.search(pattern, text)
    assert found, text
    return [float(group) for group in found.groups()]


def test_the_ground_effect_model_stays_within_its_budget(printed):
    text = printed("ground_effect")
    (budget,) = numbers(r"budget +([\d.]+)", text)
    (certified,) = numbers(r"certificate +([\d.]+), verified", text)
    (slope,) = numbers(r"largest slope +([\d.]+)", text)
    assert slope < certified <= budget
    assert numbers(r"test RMS +([\d.]+)", text) < numbers(r"without a model ([\d.]+)", text)


def test_no_digit_changes_within_its_certified_radius(printed):
    text = printed("certain_digits")
    assert numbers(r"accuracy +([\d.]+)", text) > [0.95]
    assert numbers(r"classes changed .*: (\d+)", text) == [0]


@pytest.mark.slow  # most of a minute: fifteen fits with a budget
def test_the_search_prints_error_against_bound(printed):
    text = printed("choose_budget")
    rows = re.findall(r"^ +([\d.]+) +([\d.]+) +([\d.]+)$", text, re.MULTILINE)
    budgets, bounds, errors = zip(*(map(float, row) for row in rows), strict=True)
    assert len(rows) == 5
    assert all(bound <= budget for bound, budget in zip(bounds, budgets, strict=True))
    assert errors[0] > min(errors)
    (chosen,) = numbers(r"chosen budget ([\d.]+)", text)
    assert chosen in budgets


def test_a_fit_from_a_file_resumes_and_is_saved(printed):
    text = printed("out_of_memory")
    assert "same as an uninterrupted fit: True" in text
    assert "same bound: True" in text


def test_conjugate_gradients_need_fewer_passes(printed):
    text = printed("own_loss")
    passes = {
        name: numbers(rf"{name} +\d+ +(\d+)", text)[0]
        for name in ("steepest, curvature", "conjugate gradient, curvature")
    }
    assert passes["conjugate gradient, curvature"] < passes["steepest, curvature"]
    assert text.count("(converged)") == 3


def test_landings_with_the_learned_force_are_nearer_to_the_pad(printed):
    if not any(map(shutil.which, COMPILERS)):
        pytest.skip("no C compiler found")
    text = printed("landing/minimal")
    assert "motor speed, verified" in text
    assert numbers(r"contraction +([\d.]+)", text) < [1.0]
    row = r"{} +([\d.]+) +[\d.]+ +([\d.]+)"
    baseline, ours = (numbers(row.format(name), text) for name in ("baseline", "compensated"))
    assert ours[0] < baseline[0] / 2
    assert ours[1] < baseline[1] / 2


def test_every_example_is_listed_and_tested():
    names = {path.stem for path in EXAMPLES.glob("*.py")} | {"landing/minimal"}
    listed = set(re.findall(r"\(([\w/]+)\.py\)", (EXAMPLES / "README.md").read_text("utf-8")))
    tested = set(re.findall(r'printed\("([\w/]+)"\)', Path(__file__).read_text("utf-8")))
    assert names == listed == tested
