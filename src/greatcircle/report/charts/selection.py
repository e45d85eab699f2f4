"""Interactive chart of a selection: held-out errors of the candidates by target gain."""

from typing import TYPE_CHECKING, Any

import numpy as np

from greatcircle.figures.candidates import CandidateErrors, Series
from greatcircle.report.charts.layout import LEGEND_BELOW, axis_title, empty_chart

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["selection"]

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross")


def selection(errors: CandidateErrors) -> "Figure":
    """Draw errors by target gain with bars of one standard error, one line for each shape.

    The chosen candidate has a ring. Hollow markers were measured on fewer parts of the rows.
    """
    figure = empty_chart()
    for number, series in enumerate(errors.series):
        symbol, labelled = SYMBOLS[number % len(SYMBOLS)], False
        for comparable in (True, False):
            part = series.where(series.comparable == comparable)
            if len(part.error):
                _add(figure, part, symbol, by_gain=errors.by_gain, in_legend=not labelled)
                labelled = True
    for series in errors.series:
        chosen = series.where(series.chosen)
        if len(chosen.error):
            figure.add_scatter(
                x=_positions(chosen, by_gain=errors.by_gain),
                y=chosen.error,
                mode="markers",
                name="chosen",
                marker={
                    "symbol": "circle-open",
                    "size": 20,
                    "color": "#8A919B",
                    "line": {"width": 2},
                },
                hoverinfo="skip",
            )
    _lay_out(figure, errors)
    return figure


def _positions(series: Series, *, by_gain: bool) -> Any:
    return series.gain if by_gain else [series.layers] * len(series.gain)


def _add(figure: "Figure", part: Series, symbol: str, *, by_gain: bool, in_legend: bool) -> None:
    """Add candidates of one shape that are all comparable, or all not."""
    comparable = bool(part.comparable[0])
    gain = "target gain %{x:.3g}: " if by_gain else ""
    figure.add_scatter(
        x=_positions(part, by_gain=by_gain),
        y=part.error,
        customdata=np.stack([part.standard_error, part.iterations], axis=1),
        error_y={"type": "data", "array": part.standard_error, "thickness": 1.2, "width": 4},
        mode="lines+markers" if comparable else "markers",
        name=part.layers if comparable else f"{part.layers}, fewer parts",
        legendgroup=part.layers,
        showlegend=in_legend,
        opacity=1 if comparable else 0.7,
        line={"color": part.colour, "width": 2},
        marker={"symbol": symbol if comparable else f"{symbol}-open", "size": 9},
        hovertemplate=gain + "%{y:.4g} ± %{customdata[0]:.2g}, %{customdata[1]} iterations"
        "<extra>%{fullData.name}</extra>",
    )


def _lay_out(figure: "Figure", errors: CandidateErrors) -> None:
    x_axis: dict[str, Any] = {"title": axis_title("units of the hidden layers", 8)}
    # On a phone the names would overlap; the legend has them, too.
    narrow: dict[str, Any] = {"xaxis.showticklabels": False}
    if errors.by_gain:
        narrow = {"xaxis.nticks": 5}
        gains = np.unique(np.concatenate([series.gain for series in errors.series]))
        x_axis = {
            "title": axis_title("target gain (no unit)", 8),
            "type": "log",
            "range": [float(np.log10(gains[0])) - 0.15, float(np.log10(gains[-1])) + 0.15],
            "exponentformat": "none",
            "nticks": 8,
        }
    figure.update_layout(
        height=420,
        margin={"l": 64, "r": 16, "t": 24, "b": 100},
        hovermode="closest",
        xaxis=x_axis | {"zeroline": False},
        yaxis={
            "title": axis_title(errors.axis, 8),
            "type": "log" if errors.log else "linear",
            "exponentformat": "power",
            "automargin": True,
            "zeroline": False,
        },
        legend=LEGEND_BELOW,
        meta={
            "narrow": {
                "height": 440,
                "margin.l": 52,
                "margin.r": 8,
                "margin.b": 150,
                "dragmode": False,
                **narrow,
            }
        },
    )
