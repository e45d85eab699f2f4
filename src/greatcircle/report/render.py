"""Render a report to one self-contained HTML file that loads nothing from the network."""

import base64
import hashlib
import json
import re
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greatcircle._runtime.extras import require
from greatcircle.report.animation import svg
from greatcircle.report.page import Chart, Report, TableBlock

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["render", "write"]

# A cell that starts like a number: "0.837 ± 0.007", "−3", "1 000"; or a dash for no value.
_NUMERIC = re.compile(r"[-+−±≤≥<>≈~]?\s*[\d.]|[–—-]?$")


def render(report: Report) -> str:
    """Return the page as HTML that contains its style, scripts and data."""
    require("jinja2", "app", "a report")
    from markupsafe import Markup

    plotly, script = _plotly_script(), _asset("page.js")
    has_charts = any(section.charts for section in report.sections)
    # Only these two scripts may run and nothing may be loaded. The browser enforces it, whatever
    # the title or a data file contains.
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; "
        f"script-src '{_fingerprint(script)}' '{_fingerprint(plotly)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    template = _environment().get_template("page.html.j2")
    return template.render(
        report=report,
        plotly=Markup(plotly) if has_charts else None,
        script=Markup(script),
        style=Markup(_asset("page.css")),
        policy=policy,
    )


def write(report: Report, path: Path) -> Path:
    """Write the page to a file, make its folder if needed, and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # As bytes: some systems would translate line ends, which breaks the scripts' fingerprints.
    path.write_bytes(render(report).encode("utf-8"))
    return path


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("greatcircle.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["inline"] = lambda text: Markup(_inline(text))
    environment.filters["plot"] = lambda chart: Markup(_plot(chart))
    environment.filters["svg"] = lambda animation, number: Markup(svg(animation, number))
    environment.filters["paragraphs"] = _paragraphs
    environment.filters["menu"] = _menu
    environment.filters["numeric_columns"] = _numeric_columns
    return environment


@cache
def _asset(name: str) -> str:
    return (resources.files("greatcircle.report") / name).read_text("utf-8")


@cache
def _plotly_script() -> str:
    require("plotly", "app", "a report")
    from plotly.offline import get_plotlyjs

    # HTML parsers turn every line end into \n before they compute the fingerprint.
    return get_plotlyjs().replace("\r\n", "\n").replace("\r", "\n")


@cache
def _fingerprint(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _inline(text: str) -> str:
    """Return text as HTML: `code` between backticks, web addresses as links, the rest escaped."""
    from jinja2.utils import urlize

    parts = text.split("`")
    if len(parts) % 2 == 0:  # the last backtick has no partner
        parts[-2:] = ["`".join(parts[-2:])]
    return "".join(
        f"<code>{escape(part)}</code>" if index % 2 else urlize(part, rel="noopener noreferrer")
        for index, part in enumerate(parts)
    )


def _paragraphs(text: str) -> list[str]:
    return [" ".join(block.split()) for block in re.split(r"\n\s*\n", text) if block.strip()]


def _numeric_columns(table: TableBlock) -> list[bool]:
    """Return for each column whether it holds numbers and is aligned on the right."""
    return [
        index > 0 and all(_NUMERIC.match(row[index].strip()) for row in table.rows)
        for index in range(len(table.headings))
    ]


def _figure_json(chart: Chart) -> dict[str, Any]:
    return json.loads(str(chart.figure.to_json(engine="json")))


def _menu(chart: Chart) -> list[str]:
    """Return the labels of the figure's menu, for the browser's drop-down list."""
    menus = _figure_json(chart)["layout"].get("updatemenus", [])
    return [str(button.get("label", "")) for button in menus[0]["buttons"]] if menus else []


def _plot(chart: Chart) -> str:
    """Return the figure as JSON that is safe inside a script element."""
    figure = _figure_json(chart)
    layout = figure["layout"]
    menus = layout.pop("updatemenus", [])
    payload = {
        "data": figure["data"],
        "layout": layout,
        "choices": [button["args"] for button in menus[0]["buttons"]] if menus else [],
    }
    text = json.dumps(payload, separators=(",", ":"), sort_keys=True)
    # Without these three characters no string can close the element or open another one.
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
