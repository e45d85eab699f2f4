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


def test_tests_mirror_the_packages():
    """Every package with behaviour of its own has a folder of tests under its name."""
    packages = {m.split(".")[1] for m in MODULES if m.count(".") > 1}
    assert {p.parent.name for p in (ROOT / "tests").glob("*/test_*.py")} >= packages - {"figures"}
