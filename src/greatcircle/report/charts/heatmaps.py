"""Grids of results beside the paper's, as interactive heatmaps: the paper's Figure 2."""

from typing import TYPE_CHECKING, Any

import numpy as np

from greatcircle.figures.tables import GridComparison
from greatcircle.report.charts.layout import empty_chart, lay_out_panels, on_panel

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["heatmaps"]

# Okabe and Ito's lighter blue and orange: dark numbers are readable on both.
_DIVERGING = [[0.0, "#56B4E9"], [0.5, "#F7F7F7"], [1.0, "#E69F00"]]
_DARK_TEXT = "#1B1F24"


def heatmaps(grid: GridComparison) -> "Figure":
    """Draw ours, the paper's and their difference side by side; on a phone, below one another.

    Ours and the paper's share one colour scale; the difference has another, centred at zero.
    """
    figure = empty_chart()
    for index, (title, cells) in enumerate(grid.panels.items()):
        is_difference = index == 2
        figure.add_heatmap(
            x=[str(width) for width in grid.widths],
            y=[str(depth) for depth in grid.depths],
            z=np.log10(cells) if grid.log and not is_difference else cells,
            text=grid.texts(title),
            texttemplate="%{text}",
            textfont={"color": _DARK_TEXT} if is_difference else None,
            name=title,
            coloraxis="coloraxis2" if is_difference else "coloraxis",
            xgap=2,
            ygap=2,
            hoverongaps=False,
            hovertemplate=f"depth %{{y}}, width %{{x}}<br>{grid.label} %{{text}} {grid.unit}"
            f"<extra>{title}</extra>",
            **on_panel(index),
        )
    lay_out_panels(figure, list(grid.panels), ("width", "depth"), panel=256)
    cells = {"type": "category", "fixedrange": True, "showgrid": False, "ticks": ""}
    figure.update_xaxes(**cells).update_yaxes(**cells, autorange="reversed")
    _lay_out(figure, grid)
    return figure


def _lay_out(figure: "Figure", grid: GridComparison) -> None:
    """Add the title and two colour bars below the panels; on a phone they are below one another."""
    limit, values = grid.largest_difference, np.array(grid.value_range)
    low, high = (np.log10(values) if grid.log else values).tolist()
    unit = f"[{grid.unit}]"
    narrow = figure.layout["meta"]["narrow"]
    figure.update_layout(
        title={"text": f"{grid.label} {unit}", "x": 0, "xref": "paper", "font": {"size": 16}},
        height=440,
        margin={"l": 48, "r": 12, "t": 76, "b": 108},
        dragmode=False,
        coloraxis={
            "colorscale": "Cividis",
            "cmin": low,
            "cmax": high,
            "colorbar": _colour_bar(f"ours and paper {unit}", 0, 0.643, 8) | _log_ticks(grid),
        },
        coloraxis2={
            "colorscale": _DIVERGING,
            "cmin": -limit,
            "cmax": limit,
            "cmid": 0,
            "colorbar": _colour_bar(f"ours − paper {unit}", 0.713, 0.287, 5),
        },
        meta={
            "narrow": narrow
            | {
                "height": narrow["height"] + 110,
                "margin.t": 76,
                "margin.l": 40,
                "margin.r": 4,
                "margin.b": 190,
                "coloraxis.colorbar.len": 1,
                "coloraxis.colorbar.nticks": 4,
                "coloraxis.colorbar.y": -0.06,
                "coloraxis2.colorbar.len": 1,
                "coloraxis2.colorbar.x": 0,
                "coloraxis2.colorbar.y": -0.135,
            }
        },
    )


def _colour_bar(title: str, x: float, length: float, ticks: int) -> dict[str, Any]:
    """Return a horizontal colour bar below the panels."""
    return {
        "title": {"text": title, "side": "bottom", "font": {"size": 13}},
        "orientation": "h",
        "thickness": 10,
        "outlinewidth": 0,
        "x": x,
        "y": -0.24,
        "len": length,
        "nticks": ticks,
        "xanchor": "left",
        "yanchor": "top",
        "ypad": 0,
        "xpad": 0,
        "tickangle": 0,
    }


def _log_ticks(grid: GridComparison) -> dict[str, Any]:
    """Return ticks at 1 and 3 times the powers of ten, where colours are logarithms."""
    if not grid.log:
        return {}
    low, high = grid.value_range
    marks = [m * 10.0**p for p in range(-9, 10) for m in (1, 3) if low <= m * 10.0**p <= high]
    return {"tickvals": np.log10(marks), "ticktext": [f"{mark:g}" for mark in marks]}
