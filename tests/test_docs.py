"""Test the documentation: its code runs, its links are valid and its lists are complete."""

import doctest
import importlib
import inspect
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest

import greatcircle
import sample_sentences

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN_BY_TEST_RECIPES = "CONTRIBUTING.md"
MODULES = [m.name for m in pkgutil.walk_packages(greatcircle.__path__, "greatcircle.")]


def page_text(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub and as docutils make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    github = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
    return github | {re.sub(r"[^a-z0-9]+", "-", h.lower()).strip("-") for h in headings}


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.name != RUN_BY_TEST_RECIPES], ids=lambda p: p.name
)
def test_code_blocks_run(page, capsys):
    """The blocks of a page run one after the other, as a reader would type them."""
    names = {"__name__": "example"}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text("utf-8")):
        if "://" in target:
            continue
        file = page.parent / target if target else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name} links to {target}#{anchor}"


def test_every_page_is_in_the_table_of_contents():
    listed = re.search(r"```{toctree}\n:hidden:\n\n(.*?)\n```", page_text("docs/index.md"), re.S)
    assert listed
    pages = {p.stem for p in (ROOT / "docs").glob("*.md")}
    assert set(listed[1].split()) == pages - {"index"}


def test_tests_mirror_the_packages():
    """Every package has a folder of tests under its name."""
    packages = {m.split(".")[1] for m in MODULES if m.count(".") > 1}
    assert {p.parent.name for p in (ROOT / "tests").glob("*/test_*.py")} >= packages - {"figures"}


@pytest.mark.parametrize("page", ["docs/layout.md", "CONTRIBUTING.md"])
def test_packages_are_listed_in_import_order(page):
    """The tables of packages and the import contract of pyproject.toml agree."""
    settings = tomllib.loads(page_text("pyproject.toml"))["tool"]["importlinter"]
    (layers,) = (c["layers"] for c in settings["contracts"] if c["type"] == "layers")
    rows = re.findall(r"^\| `(\w+)` \|", page_text(page), re.MULTILINE)
    listed = [name for name in rows if f"greatcircle.{name}" in MODULES]
    assert listed == layers[::-1]
    assert set(listed) == {m.split(".")[1] for m in MODULES if m.count(".") == 1}


def test_the_reference_names_every_public_name():
    """Classes and functions by themselves, modules by their members."""
    text = page_text("docs/api.md")
    for name in greatcircle.__all__:
        target = getattr(greatcircle, name)
        shown = target.__name__ if inspect.ismodule(target) else f"greatcircle.{name}"
        assert re.search(rf":: {re.escape(shown)}\b", text), name


def test_the_reference_names_what_exists():
    directives = re.findall(
        r"^\.\. auto(?:class|function):: (\S+)$", page_text("docs/api.md"), re.M
    )
    assert directives
    for path in directives:
        found, name = greatcircle, "greatcircle"
        *packages, last = path.split(".")[1:]
        for part in packages:  # a module may have the name of a function in its package
            name += f".{part}"
            found = importlib.import_module(name) if name in MODULES else getattr(found, part)
        assert hasattr(found, last), path


def test_the_sample_of_sentences_is_reproducible():
    first = sample_sentences.sample(seed=1, count=120)
    assert first == sample_sentences.sample(seed=1, count=120)
    assert first != sample_sentences.sample(seed=2, count=120)
    assert len(set(first)) == len(first) == 120


def test_sentences_come_from_all_sources(tmp_path):
    (tmp_path / "module.py").write_text(
        '"""First line of a docstring. Second sentence\n\nof it is elsewhere."""\n'
        "# A comment on two\n# lines of text.\n"
        "raise ValueError(f'x is {x!r}; expected a number')\n"
        "parser.add_argument('--out', help='where to write results')\n"
    )
    (tmp_path / "page.md").write_text(
        "# A heading of words\n\n```\nnot a sentence here\n```\n\n"
        "Text that is\nwrapped. More text here.\n"
    )
    found = [(s.file, s.line, s.kind, s.text) for s in sample_sentences.sentences(tmp_path)]
    assert sorted(found) == [
        ("module.py", 1, "docstring", "First line of a docstring."),
        ("module.py", 3, "docstring", "of it is elsewhere."),
        ("module.py", 4, "comment", "A comment on two lines of text."),
        ("module.py", 6, "error", "x is {x}; expected a number"),
        ("module.py", 7, "help", "where to write results"),
        ("page.md", 1, "page", "A heading of words"),
        ("page.md", 7, "page", "Text that is wrapped."),
        ("page.md", 8, "page", "More text here."),
    ]
