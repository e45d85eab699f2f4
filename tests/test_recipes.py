"""The recipes of CONTRIBUTING.md, each applied to a copy of the library and checked there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import greatcircle

ROOT = Path(__file__).parent.parent
PACKAGE = Path(greatcircle.__file__).parent

CODE = r"\n\n```python\n(?P<{}>.*?)```"
STEP = re.compile(
    r"^New file `(?P<new>[^`]+)`:" + CODE.format("content") + "|"
    r"^In `(?P<file>[^`]+)`, (?P<place>before|after) `(?P<anchor>[^`]+)`:"
    + CODE.format("lines")
    + "|"
    r"^In `(?P<changed>[^`]+)`, change `(?P<old>[^`]+)` to `(?P<replacement>[^`]+)`\.$|"
    r"^Check:" + CODE.format("check"),
    re.DOTALL | re.MULTILINE,
)
MAX_FILES = 3


class Recipe(NamedTuple):
    """The title of a recipe and its steps, as matches of `STEP`."""

    title: str
    steps: list[re.Match[str]]


def recipes() -> list[Recipe]:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    sections = re.findall(r"^### (A new .*?)\n(.*?)(?=^##)", text, re.DOTALL | re.MULTILINE)
    return [Recipe(title, list(STEP.finditer(body))) for title, body in sections]


def applied(step: re.Match[str], root: Path) -> str:
    """Apply a step to the copy, and return the name of the file that it changes."""
    name = step["new"] or step["file"] or step["changed"]
    file = root / name
    if step["new"]:
        assert not file.exists(), f"{name} exists already"
        assert step["content"].startswith('"""'), f"{name} does not say what it contains"
        assert "__all__ = [" in step["content"], f"{name} does not list its public names"
        file.write_text(step["content"], "utf-8")
        return name
    text = file.read_text("utf-8")
    if step["changed"]:
        old, new = step["old"], step["replacement"]
    else:
        line, lines = step["anchor"] + "\n", step["lines"]
        old, new = line, lines + line if step["place"] == "before" else line + lines
    assert text.count(old) == 1, f"{name} contains {old!r} {text.count(old)} times, not once"
    file.write_text(text.replace(old, new), "utf-8")
    return name


def test_there_is_a_recipe_for_each_extension_point():
    subjects = [recipe.title.removeprefix("A new ") for recipe in recipes()]
    assert subjects == ["activation", "direction", "step", "loss", "exporter", "certificate"]


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.title)
def test_the_recipe_works(recipe, tmp_path):
    """Nothing but the steps of the recipe is needed, and they change few files."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "src" / "greatcircle", ignore=ignored)
    *steps, check = recipe.steps
    assert check["check"], "a recipe ends with its check"
    changed = {applied(step, tmp_path) for step in steps}
    assert 1 <= len(changed) <= MAX_FILES
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", check["check"]],
        env=os.environ | {"PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def test_all_code_in_the_recipes_is_run():
    """No block of a recipe is left out because it is introduced in other words."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    blocks = len(re.findall(r"^```python$", text, re.MULTILINE))
    groups = ("content", "lines", "check")
    assert blocks == sum(any(s[g] for g in groups) for r in recipes() for s in r.steps)
