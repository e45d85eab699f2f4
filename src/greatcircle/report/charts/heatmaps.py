"""Grids of results beside the paper's, as interactive heatmaps: the paper's Figure 2."""

from typing import TYPE_CHECKING, Any

import numpy as np

from greatcircle.figures.tables import GridComparison
from greatcircle.report.charts.layout import (
    axis_names,
    axis_title,
    empty_chart,
    on_panel,
    panel_title,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["heatmaps"]

# Okabe and Ito's lighter blue and orange: dark numbers are readable on both.
_DIVERGING = [[0.0, "#56B4E9"], [0.5, "#F7F7F7"], [1.0, "#E69F00"]]
_DARK_TEXT = "#1B1F24"

# Domains of the panels: side by side, and one above the other on a phone.
_WIDE = ((0.0, 0.3), (0.35, 0.65), (0.7, 1.0))
_TALL = ((0.75, 1.0), (0.41, 0.66), (0.0, 0.25))


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
        panel_title(figure, title, index)
    _lay_out_axes(figure)
    _lay_out(figure, grid)
    return figure


def _lay_out_axes(figure: "Figure") -> None:
    axis = {"type": "category", "fixedrange": True, "showgrid": False, "ticks": ""}
    axes = zip(axis_names("x", 3), axis_names("y", 3), _WIDE, strict=True)
    for index, (x, y, domain) in enumerate(axes):
        anchors = on_panel(index)
        figure.update_layout(
            {
                x: axis
                | {"domain": domain, "anchor": anchors["yaxis"], "title": axis_title("width")},
                y: axis
                | {
                    "domain": (0.0, 1.0),
                    "anchor": anchors["xaxis"],
                    "autorange": "reversed",
                    "title": axis_title("depth" if index == 0 else ""),
                },
            }
        )


def _lay_out(figure: "Figure", grid: GridComparison) -> None:
    limit = grid.largest_difference
    figure.update_layout(
        title={
            "text": f"{grid.label} [{grid.unit}]",
            "x": 0,
            "xref": "paper",
            "font": {"size": 16},
        },
        height=440,
        margin={"l": 48, "r": 12, "t": 76, "b": 108},
        dragmode=False,
        coloraxis={
            "colorscale": "Cividis",
            **_value_range(grid),
            "colorbar": _colour_bar(f"ours and paper [{grid.unit}]", 0, 0.65, 8) | _log_ticks(grid),
        },
        coloraxis2={
            "colorscale": _DIVERGING,
            "cmin": -limit,
            "cmax": limit,
            "cmid": 0,
            "colorbar": _colour_bar(f"ours − paper [{grid.unit}]", 0.7, 0.3, 5),
        },
        meta={
            "narrow": {
                "height": 1120,
                "margin.l": 40,
                "margin.r": 4,
                **{f"xaxis{n}.domain": [0.0, 1.0] for n in ("", 2, 3)},
                **{
                    f"yaxis{n}.domain": list(span)
                    for n, span in zip(("", 2, 3), _TALL, strict=True)
                },
                "coloraxis.colorbar.len": 1,
                "coloraxis.colorbar.nticks": 4,
                "coloraxis.colorbar.y": 0.355,
                "coloraxis2.colorbar.len": 1,
                "coloraxis2.colorbar.x": 0,
                "coloraxis2.colorbar.y": -0.055,
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


def _value_range(grid: GridComparison) -> dict[str, float]:
    low, high = np.log10(grid.value_range) if grid.log else grid.value_range
    return {"cmin": float(low), "cmax": float(high)}


def _log_ticks(grid: GridComparison) -> dict[str, Any]:
    """Return ticks at 1 and 3 times the powers of ten, where colours are logarithms."""
    if not grid.log:
        return {}
    low, high = grid.value_range
    marks = [m * 10.0**p for p in range(-9, 10) for m in (1, 3) if low <= m * 10.0**p <= high]
    return {"tickvals": np.log10(marks), "ticktext": [f"{mark:g}" for mark in marks]}
