"""Reports: evaluate a fitted model, and describe a run on one self-contained HTML page.

| module | contents |
|---|---|
| `evaluation`, `metrics`, `lipschitz`, `slices`, `results` | numbers of a fit |
| `fit`, `fit_sections` | figures and page of a fit |
| `bounds`, `bounds_page` | bounds for groups of inputs: numbers; figures and page |
| `page`, `animation`, `render` | content of any page, and its HTML |
| `charts` | interactive charts |
"""

from greatcircle.report.animation import Animation, Track
from greatcircle.report.page import Chart, Highlight, Report, Section, TableBlock
from greatcircle.report.render import render, write

__all__ = [
    "Animation",
    "Chart",
    "Highlight",
    "Report",
    "Section",
    "TableBlock",
    "Track",
    "render",
    "write",
]
