"""What the documentation shows is run: README code, docstring examples, links."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import greatcircle

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = [m.name for m in pkgutil.walk_packages(greatcircle.__path__, "greatcircle.")]


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_in_the_pages_runs(page, capsys):
    """The blocks of a page one after the other, as a reader would type them."""
    names = {"__name__": "example"}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_module_has_tests_or_is_shown_in_others():
    """The layout promises tests/test_<module>.py for each module with behaviour of its own."""
    tested = {p.stem.removeprefix("test_") for p in (ROOT / "tests").glob("test_*.py")}
    elsewhere = {
        "frames": "budget",
        "cli": "cli",
        "datasets": "datasets",
        "experiments": "paper",
        "gains": "network",
        "initialisation": "scaling",
        "lasting": "scale",
        "methods": "estimators",
        "objective": "problem",
        "parts": "scale",
        "precision": "network",
        "provenance": "cli",
        "record": "descent",
        "sealed": "storage",
        "sharding": "scale",
        "summary": "estimators",
        "threads": "network",
        "watch": "estimators",
    }
    for name in {m.split(".")[1] for m in MODULES}:
        assert name in tested or elsewhere.get(name) in tested, name
