"""One self-contained HTML page from a run: text, tables and interactive charts, no network.

`page` describes a page and writes it, whatever was run; `curves` and `grids` build the charts of
the experiments, and `animation` a moving picture. Any Plotly figure can stand beside them.
"""

from greatcircle.report.animation import Animation, Track
from greatcircle.report.curves import learning_curves
from greatcircle.report.grids import heatmaps
from greatcircle.report.page import Chart, Highlight, Report, Section, TableBlock, render, write

__all__ = [
    "Animation",
    "Chart",
    "Highlight",
    "Report",
    "Section",
    "TableBlock",
    "Track",
    "heatmaps",
    "learning_curves",
    "render",
    "write",
]
