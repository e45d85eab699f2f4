"""Interactive charts of a fitted model: predictions, residuals, bounds, slices, confusion.

Each target or input has its own panel; on a phone the panels are below one another.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from greatcircle.figures.style import ANGLE, COLOURS, CONSTANT_NETWORK
from greatcircle.figures.tables import (
    Bar,
    Confusion,
    Predictions,
    Slices,
    evenly_spaced,
    residual_histograms,
)
from greatcircle.report.charts.layout import (
    add_menu,
    axis_names,
    axis_title,
    empty_chart,
    lay_out_panels,
    on_panel,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["MAX_DOTS", "bars", "confusion", "histograms", "predicted", "residuals", "slices"]

MAX_DOTS = 800
"""Largest number of training or test rows drawn as dots."""

SLICE_COLUMNS = 4
"""Slices side by side."""


def predicted(predictions: Mapping[str, Predictions], targets: Sequence[str]) -> "Figure":
    """Draw predicted against measured values, one panel per target."""
    figure = empty_chart()
    for index in range(len(targets)):
        measured = np.concatenate([subset.measured[:, index] for subset in predictions.values()])
        ends = [float(measured.min()), float(measured.max())]
        figure.add_scatter(
            x=ends,
            y=ends,
            mode="lines",
            name="equal",
            legendgroup="equal",
            showlegend=index == 0,
            line={"color": "#8A919B", "width": 1.2, "dash": "dot"},
            hoverinfo="skip",
            **on_panel(index),
        )
        for name, subset in predictions.items():
            _add_dots(figure, name, subset.measured, subset.predicted, index)
    lay_out_panels(figure, targets, ("measured", "predicted"))
    return figure


def histograms(predictions: Mapping[str, Predictions], targets: Sequence[str]) -> "Figure":
    """Draw the histogram of the residuals of each target, with the same bins for all rows."""
    figure = empty_chart()
    for index in range(len(targets)):
        for name, (centres, share) in residual_histograms(predictions, index).items():
            figure.add_scatter(
                x=centres,
                y=share,
                mode="lines",
                name=f"{name} rows",
                legendgroup=name,
                showlegend=index == 0,
                line={"color": COLOURS[name], "width": 1.8, "shape": "hvh"},
                fill="tozeroy" if name == "test" else "none",
                fillcolor="rgba(213,94,0,0.18)",
                hovertemplate="%{x:.4g}: %{y:.1%}<extra>%{fullData.name}</extra>",
                **on_panel(index),
            )
    lay_out_panels(figure, targets, ("measured − predicted", "share of the rows"))
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    return figure


def residuals(predictions: Mapping[str, Predictions], targets: Sequence[str]) -> "Figure":
    """Draw the residuals over the row numbers or over the predictions; a menu switches."""
    figure = empty_chart()
    views: list[int] = []
    """View to which each trace belongs."""
    for index in range(len(targets)):
        for name, subset in predictions.items():
            row_numbers = np.repeat(subset.rows[:, None] + 1, len(targets), axis=1)
            for view, x in enumerate((row_numbers, subset.predicted)):
                _add_dots(figure, name, x, subset.residuals, index, shown=view == 0)
                views.append(view)
    lay_out_panels(figure, targets, ("row", "measured − predicted"))
    updates = []
    for view, title in enumerate(("row", "predicted")):
        visible = [v == view for v in views]
        legend = [v == view and i < 2 * len(predictions) for i, v in enumerate(views)]
        layout = {f"{axis}.title.text": title for axis in axis_names("x", len(targets))}
        updates.append([{"visible": visible, "showlegend": legend}, layout])
    add_menu(figure, ("by row", "by prediction"), updates)
    return figure


def bars(bounds: Sequence[Bar], unit: str) -> "Figure":
    """Draw positive bounds as bars on a log axis."""
    figure = empty_chart()
    if not bounds:
        figure.update_layout(height=130).update_xaxes(visible=False).update_yaxes(visible=False)
        return figure.add_annotation(text=CONSTANT_NETWORK, showarrow=False, font={"size": 14})
    figure.add_bar(
        y=[bar.name for bar in bounds],
        x=[bar.value for bar in bounds],
        orientation="h",
        marker={"color": [bar.colour for bar in bounds]},
        text=[f"{bar.value:.4g}" for bar in bounds],
        textposition="inside",
        insidetextanchor="end",
        textfont={"color": "#FFFFFF"},
        hovertemplate="%{y}: %{x:.5g}<extra></extra>",
        name="bound",
    )
    return figure.update_layout(
        height=130 + 40 * len(bounds),
        margin={"l": 12, "r": 16, "t": 36, "b": 52},
        bargap=0.35,
        dragmode=False,
        xaxis={
            "type": "log",
            "title": axis_title(f"units of the outputs per {unit}"),
            "exponentformat": "power",
            "nticks": 6,
            "range": _log_range([bar.value for bar in bounds]),
        },
        yaxis={"autorange": "reversed", "automargin": True, "fixedrange": True},
        meta={
            "narrow": {
                "height": 100 + 40 * len(bounds),
                "margin.t": 8,
                "xaxis.title.text": f"per {unit}",
                "xaxis.nticks": 3,
            }
        },
    )


def slices(table: Slices) -> "Figure":
    """Draw the learned function along each input; a menu chooses the output."""
    figure, count = empty_chart(), len(table.inputs)
    for output, name in enumerate(table.outputs):
        for index in range(count):
            figure.add_scatter(
                x=table.grid[index].astype(np.float32),
                y=table.values[index, :, output].astype(np.float32),
                mode="lines",
                name=name,
                showlegend=False,
                visible=output == 0,
                line={"color": ANGLE, "width": 2},
                hovertemplate="%{x:.4g}: %{y:.4g}<extra></extra>",
                **on_panel(index),
            )
    lay_out_panels(
        figure,
        table.inputs,
        ("", table.outputs[0]),
        columns=SLICE_COLUMNS,
        narrow_columns=2,
        panel=140,
        gap=62,
    )
    # With one scale for all panels a glance shows which inputs matter.
    figure.update_yaxes(matches="y")
    figure.update_layout({"yaxis": {"matches": None}})  # an axis must not match itself
    if len(table.outputs) > 1:
        first_in_row = axis_names("y", count)[::SLICE_COLUMNS]
        owners = np.repeat(np.arange(len(table.outputs)), count)
        updates = [
            [
                {"visible": (owners == output).tolist()},
                {f"{axis}.title.text": name for axis in first_in_row},
            ]
            for output, name in enumerate(table.outputs)
        ]
        add_menu(figure, table.outputs, updates)
    return figure


def confusion(table: Confusion) -> "Figure":
    """Draw the number of test rows by true and predicted class."""
    names = table.names
    figure = empty_chart()
    figure.add_heatmap(
        x=names,
        y=names,
        z=table.shares,
        text=table.counts.astype(str),
        texttemplate="%{text}" if len(names) <= 20 else None,
        name="test rows",
        colorscale="Cividis",
        zmin=0,
        zmax=1,
        xgap=2,
        ygap=2,
        colorbar={
            "title": {"text": "share of the true class", "side": "right", "font": {"size": 13}},
            "tickformat": ".0%",
            "outlinewidth": 0,
            "thickness": 12,
        },
        hovertemplate="%{y} predicted as %{x}: %{text} rows, %{z:.1%}<extra></extra>",
    )
    axis: dict[str, Any] = {
        "type": "category",
        "fixedrange": True,
        "showgrid": False,
        "automargin": True,
    }
    return figure.update_layout(
        height=min(max(300, 120 + 44 * len(names)), 900),
        margin={"l": 12, "r": 12, "t": 16, "b": 48},
        dragmode=False,
        xaxis=axis | {"title": axis_title("predicted class")},
        yaxis=axis | {"title": axis_title("true class"), "autorange": "reversed"},
    )


def _add_dots(
    figure: "Figure", name: str, x: np.ndarray, y: np.ndarray, index: int, *, shown: bool = True
) -> None:
    picked = evenly_spaced(len(x), MAX_DOTS)
    figure.add_scatter(
        x=x[picked, index].astype(np.float32),
        y=y[picked, index].astype(np.float32),
        mode="markers",
        name=f"{name} rows",
        legendgroup=name,
        showlegend=index == 0 and shown,
        visible=shown,
        marker={"color": COLOURS[name], "size": 4, "opacity": 0.4 if name == "train" else 0.65},
        hovertemplate="%{x:.4g}, %{y:.4g}<extra>%{fullData.name}</extra>",
        **on_panel(index),
    )


def _log_range(values: Sequence[float]) -> list[float]:
    """Return the range of a log axis on which the shortest bar has room for its number."""
    exponents = np.log10(values)
    reach = max(float(np.ptp(exponents)), 1.0)
    return [float(exponents.min()) - 0.6 * reach, float(exponents.max()) + 0.03 * reach]
