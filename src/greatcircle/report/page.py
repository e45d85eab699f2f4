"""A page described by plain values, rendered to one HTML file that needs nothing else.

Text in a description is plain text: blank lines part paragraphs, `backticks` mark code, and an
address becomes a link. Nothing in it is ever read as HTML.

A chart is any Plotly figure. Two of its parts get a meaning here:

- its first `updatemenus` entry is shown as the browser's own drop-down list, because Plotly's is
  out of reach for the keyboard; the figure behaves the same in a notebook;
- `layout.meta["narrow"]` may hold layout changes (`{"height": 900, "xaxis.domain": [0, 1]}`) for
  screens as narrow as a phone's.
"""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import urlize
from markupsafe import Markup
from plotly.graph_objects import Figure
from plotly.offline import get_plotlyjs

from greatcircle.report.animation import Animation, svg

# A cell that reads as a figure: "0.837 ± 0.007", "−3", "1 000", "–" for none.
_NUMERIC = re.compile(r"[-+−±≤≥<>≈~]?\s*[\d.]|[–—-]?$")


@dataclass(frozen=True)
class TableBlock:
    """A table; its first column names the rows."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    """Cells as they are to be read: the caller rounds and adds units."""
    caption: str

    def __post_init__(self) -> None:
        for index, row in enumerate(self.rows):
            if len(row) != len(self.headings):
                raise ValueError(
                    f"row {index} of the table {self.caption!r} has {len(row)} cells for "
                    f"{len(self.headings)} headings: give one cell for each heading"
                )


@dataclass(frozen=True)
class Chart:
    """A Plotly figure with its caption."""

    figure: Figure
    caption: str
    description: str
    """What the chart shows, for those who do not see it: the trend and the numbers that matter."""


@dataclass(frozen=True)
class Section:
    """A heading with text, then tables, then moving pictures, then charts."""

    title: str
    text: str = ""
    tables: Sequence[TableBlock] = ()
    charts: Sequence[Chart] = ()
    animations: Sequence[Animation] = ()


@dataclass(frozen=True)
class Highlight:
    """One number worth reading first."""

    label: str
    value: str
    note: str = ""
    """What to compare it with."""


@dataclass(frozen=True)
class Report:
    """Everything on the page. The same report renders to the same bytes."""

    title: str
    lead: str
    """What was done and what came of it, in a sentence or two."""
    sections: Sequence[Section]
    command: str = ""
    """The exact command that gives this report again."""
    facts: Sequence[tuple[str, str]] = ()
    """What was run, on which data, versions, machine: name and value, at the foot of the page."""
    highlights: Sequence[Highlight] = ()


def render(report: Report) -> str:
    """The page as HTML, complete: style, scripts and data are all inside."""
    bundle, script = _bundle(), _asset("page.js")
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            report=report,
            bundle=Markup(bundle) if any(section.charts for section in report.sections) else None,
            script=Markup(script),
            style=Markup(_asset("page.css")),
            # Only these two scripts may run, and nothing may be fetched: the browser sees to it,
            # whatever a title or a data file may hold.
            policy="default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; "
            f"script-src '{_fingerprint(script)}' '{_fingerprint(bundle)}'; "
            "base-uri 'none'; form-action 'none'",
        )
    )


def write(report: Report, path: Path) -> Path:
    """Render to the file, whose folder is made if missing; the path written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Bytes: line ends would be translated on some systems, and break the scripts' fingerprints.
    path.write_bytes(render(report).encode("utf-8"))
    return path


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("greatcircle.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["inline"] = _inline
    environment.filters["paragraphs"] = _paragraphs
    environment.filters["plot"] = _plot
    environment.filters["menu"] = _menu
    environment.filters["svg"] = svg
    environment.filters["numeric_columns"] = _numeric_columns
    return environment


@cache
def _asset(name: str) -> str:
    return (resources.files("greatcircle.report") / name).read_text("utf-8")


@cache
def _bundle() -> str:
    # A parser turns every line end into \n before the fingerprint is taken.
    return get_plotlyjs().replace("\r\n", "\n").replace("\r", "\n")


@cache
def _fingerprint(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _inline(text: str) -> Markup:
    """`code` between backticks, addresses as links, everything else escaped."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an odd backtick is a backtick
        parts[-2:] = ["`".join(parts[-2:])]
    return Markup("").join(
        Markup("<code>{}</code>").format(part)
        if index % 2
        else Markup(urlize(part, rel="noopener noreferrer"))  # escapes what it is given
        for index, part in enumerate(parts)
    )


def _paragraphs(text: str) -> list[str]:
    return [" ".join(block.split()) for block in re.split(r"\n\s*\n", text) if block.strip()]


def _numeric_columns(table: TableBlock) -> list[bool]:
    """Which columns hold figures, and so line up on the right."""
    return [
        index > 0 and all(_NUMERIC.match(row[index].strip()) for row in table.rows)
        for index in range(len(table.headings))
    ]


def _description(chart: Chart) -> dict[str, Any]:
    return json.loads(str(chart.figure.to_json(engine="json")))


def _menu(chart: Chart) -> list[str]:
    """Labels of the figure's own menu, to be chosen from in the browser's list."""
    menus = _description(chart)["layout"].get("updatemenus", [])
    return [str(button.get("label", "")) for button in menus[0]["buttons"]] if menus else []


def _plot(chart: Chart) -> Markup:
    """The figure as JSON that is safe inside a script element."""
    described = _description(chart)
    layout = described["layout"]
    menus = layout.pop("updatemenus", [])
    payload = {
        "data": described["data"],
        "layout": layout,
        "choices": [button["args"] for button in menus[0]["buttons"]] if menus else [],
    }
    text = json.dumps(payload, separators=(",", ":"), sort_keys=True)
    # Without these three characters no string can end the element or open another.
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
