"""A grid of numbers beside the paper's, as interactive heatmaps."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from greatcircle.report.charts import panel_title

# Okabe and Ito's lighter blue and orange: dark figures stay readable on both.
_DIVERGING = [[0.0, "#56B4E9"], [0.5, "#F7F7F7"], [1.0, "#E69F00"]]
_DARK_TEXT = "#1B1F24"


def heatmaps(
    depths: Sequence[int],
    widths: Sequence[int],
    ours: np.ndarray,
    paper: np.ndarray,
    label: str,
    unit: str,
    *,
    log: bool = False,
) -> go.Figure:
    """Ours, the paper's and their difference, side by side; one above the other on a phone.

    Ours and the paper's share one colour scale; the difference has its own, centred at zero.

    Parameters
    ----------
    depths, widths : sequence of int
        Names of the rows and the columns.
    ours, paper : array (depths, widths)
        NaN leaves a cell empty, as in a sweep that is not finished.
    label, unit : str
        What is shown, as in ``"train RMS"`` and ``"N"``.
    log : bool
        Colour the first two by their logarithm, for positive values over several decades.

    Returns
    -------
    plotly.graph_objects.Figure
    """
    ours, paper = np.asarray(ours, dtype=float), np.asarray(paper, dtype=float)
    expected = (len(depths), len(widths))
    if ours.shape != expected or paper.shape != expected:
        raise ValueError(
            f"ours {ours.shape} and paper {paper.shape} for {expected[0]} depths and "
            f"{expected[1]} widths: expected {expected} for both"
        )
    both = np.concatenate([ours.ravel(), paper.ravel()])
    both = both[np.isfinite(both)]
    if log and (both <= 0).any():
        raise ValueError(f"{label}: a value of {both.min():g} has no logarithm; use log=False")
    difference = ours - paper
    finite = difference[np.isfinite(difference)]
    limit = float(np.abs(finite).max(initial=0.0)) or 1.0

    figure = go.Figure()
    columns, rows = [str(width) for width in widths], [str(depth) for depth in depths]
    parts = (
        ("ours", ours, np.log10(ours) if log else ours, ""),
        ("paper", paper, np.log10(paper) if log else paper, ""),
        ("ours − paper", difference, difference, "+"),
    )
    for index, (name, values, colours, sign) in enumerate(parts, start=1):
        number = "" if index == 1 else str(index)
        figure.add_trace(
            go.Heatmap(
                x=columns,
                y=rows,
                z=colours,
                text=[[_digits(value, both, sign) for value in line] for line in values],
                texttemplate="%{text}",
                textfont={"color": _DARK_TEXT} if index == 3 else None,
                name=name,
                coloraxis="coloraxis2" if index == 3 else "coloraxis",
                xaxis=f"x{number}",
                yaxis=f"y{number}",
                xgap=2,
                ygap=2,
                hoverongaps=False,
                hovertemplate=f"depth %{{y}}, width %{{x}}<br>{label} %{{text}} {unit}"
                f"<extra>{name}</extra>",
            )
        )
        panel_title(figure, name, number)
    _layout(figure, label, unit, both, limit, log)
    return figure


def _layout(
    figure: go.Figure, label: str, unit: str, both: np.ndarray, limit: float, log: bool
) -> None:
    low, high = (float(both.min()), float(both.max())) if both.size else (1.0, 1.0)
    bar = {
        "orientation": "h",
        "thickness": 10,
        "outlinewidth": 0,
        "xanchor": "left",
        "yanchor": "top",
        "ypad": 0,
        "xpad": 0,
        "tickangle": 0,
    }
    below: dict[str, Any] = {"side": "bottom", "font": {"size": 13}}
    scale = {"cmin": low, "cmax": high}
    ticks: dict[str, Any] = {}
    if log:
        scale = {"cmin": np.log10(low), "cmax": np.log10(high)}
        marks = [m * 10.0**p for p in range(-9, 10) for m in (1, 3) if low <= m * 10.0**p <= high]
        ticks = {"tickvals": np.log10(marks), "ticktext": [f"{mark:g}" for mark in marks]}
    wide = {"x": (0.0, 0.3), "x2": (0.35, 0.65), "x3": (0.7, 1.0)}
    tall = {"y": (0.75, 1.0), "y2": (0.41, 0.66), "y3": (0.0, 0.25)}
    depth_axis = {
        "type": "category",
        "autorange": "reversed",
        "title": {"text": "depth", "font": {"size": 13}, "standoff": 6},
        "fixedrange": True,
        "showgrid": False,
        "ticks": "",
    }
    width_axis = depth_axis | {
        "autorange": True,
        "title": {"text": "width", "font": {"size": 13}, "standoff": 6},
    }
    figure.update_layout(
        template=go.layout.Template(),
        title={"text": f"{label} [{unit}]", "x": 0, "xref": "paper", "font": {"size": 16}},
        height=440,
        margin={"l": 48, "r": 12, "t": 76, "b": 108},
        dragmode=False,
        coloraxis={
            "colorscale": "Cividis",
            **scale,
            "colorbar": bar
            | ticks
            | {"x": 0, "len": 0.65, "y": -0.24, "nticks": 8}
            | {"title": {"text": f"ours and paper [{unit}]"} | below},
        },
        coloraxis2={
            "colorscale": _DIVERGING,
            "cmin": -limit,
            "cmax": limit,
            "cmid": 0,
            "colorbar": bar
            | {"x": 0.7, "len": 0.3, "y": -0.24, "nticks": 5}
            | {"title": {"text": f"ours − paper [{unit}]"} | below},
        },
        meta={
            "narrow": {
                "height": 1120,
                "margin.l": 40,
                "margin.r": 4,
                **{f"{a[0]}axis{a[1:]}.domain": [0.0, 1.0] for a in wide},
                **{f"{a[0]}axis{a[1:]}.domain": list(span) for a, span in tall.items()},
                "coloraxis.colorbar.len": 1,
                "coloraxis.colorbar.nticks": 4,
                "coloraxis.colorbar.y": 0.355,
                "coloraxis2.colorbar.len": 1,
                "coloraxis2.colorbar.x": 0,
                "coloraxis2.colorbar.y": -0.055,
            }
        },
    )
    for index, (axis, span) in enumerate(wide.items(), start=1):
        number = axis[1:]
        figure.update_layout(
            {
                f"xaxis{number}": width_axis | {"domain": span, "anchor": f"y{number}"},
                f"yaxis{number}": depth_axis
                | {"domain": (0.0, 1.0), "anchor": f"x{number}"}
                | ({} if index == 1 else {"title": {"text": ""}}),
            }
        )


def _digits(value: float, scale: np.ndarray, sign: str) -> str:
    """Three decimals for errors near one, fewer for seconds in the hundreds."""
    if not np.isfinite(value):
        return ""
    largest = float(np.abs(scale).max(initial=1.0))
    decimals = int(np.clip(3 - np.floor(np.log10(max(largest, 1.0))), 0, 3))
    rounded = round(value, decimals) + 0.0  # no negative zero
    return f"{rounded:{sign if rounded else ''}.{decimals}f}".replace("-", "−")
