"""Content of a report page: sections with text, tables, animations and charts.

All text is plain text, never HTML: blank lines separate paragraphs, `backticks` mark code, and web
addresses become links.

A chart is any Plotly figure. The page treats two of its parts specially:

- the first entry of `updatemenus` becomes a drop-down list of the browser, because Plotly's own
  menus cannot be used with the keyboard; in a notebook the figure behaves the same;
- `layout.meta["narrow"]` may hold layout changes (`{"height": 900, "xaxis.domain": [0, 1]}`) for
  the narrow screen of a phone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from greatcircle.report.animation import Animation

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["Chart", "Highlight", "Report", "Section", "TableBlock"]


@dataclass(frozen=True)
class TableBlock:
    """A table; its first column names the rows."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    """Cells as text, with units and rounded."""
    caption: str

    def __post_init__(self) -> None:
        for index, row in enumerate(self.rows):
            if len(row) != len(self.headings):
                raise ValueError(
                    f"row {index} of the table {self.caption!r} has {len(row)} cells; expected "
                    f"{len(self.headings)}, one per heading"
                )


@dataclass(frozen=True)
class Chart:
    """A Plotly figure with its caption."""

    figure: "Figure"
    caption: str
    description: str
    """What the chart shows, for screen readers: the trend and the most important numbers."""


@dataclass(frozen=True)
class Section:
    """A heading with text, then tables, animations and charts."""

    title: str
    text: str = ""
    tables: Sequence[TableBlock] = ()
    charts: Sequence[Chart] = ()
    animations: Sequence[Animation] = ()


@dataclass(frozen=True)
class Highlight:
    """A key number for the top of the page."""

    label: str
    value: str
    note: str = ""
    """What to compare it with."""


@dataclass(frozen=True)
class Report:
    """The whole page. The same report renders to the same bytes."""

    title: str
    lead: str
    """Summary in one or two sentences."""
    sections: Sequence[Section]
    command: str = ""
    """The command that produces this report."""
    facts: Sequence[tuple[str, str]] = ()
    """Names and values for the foot of the page: data, parameters, versions, machine."""
    highlights: Sequence[Highlight] = ()
