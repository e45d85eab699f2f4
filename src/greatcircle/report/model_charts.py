"""Charts of one fitted model, as Plotly figures, in the manner of `charts`.

Several targets or inputs are panels side by side; on a phone they stand one above the other.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from greatcircle.figures.curves import ANGLE, COLOURS, CONSTANT, TRAIN
from greatcircle.report.charts import LEGEND_BELOW, panel_title
from greatcircle.report.evaluation import Bounds, Part, Slices, evenly, residual_shares

DOTS = 800
"""Rows of each part that a chart shows, at the most."""


# Heights in pixels.
_PANEL, _GAP, _TOP, _BOTTOM, _BUTTONS = 230, 84, 60, 96, 30


def predicted(parts: dict[str, Part], targets: Sequence[str]) -> go.Figure:
    """Predicted against measured, a panel for each target."""
    figure = go.Figure()
    for index, _ in enumerate(targets):
        both = np.concatenate([part.measured[:, index] for part in parts.values()])
        ends = [float(both.min()), float(both.max())]
        figure.add_trace(
            go.Scatter(
                x=ends,
                y=ends,
                mode="lines",
                name="equal",
                legendgroup="equal",
                showlegend=index == 0,
                line={"color": "#8A919B", "width": 1.2, "dash": "dot"},
                hoverinfo="skip",
                **_on(index),
            )
        )
        for name, part in parts.items():
            figure.add_trace(_dots(name, part.measured, part.predicted, index))
    _panels(figure, targets, "measured", "predicted")
    return figure


def histograms(parts: dict[str, Part], targets: Sequence[str]) -> go.Figure:
    """How the residuals are spread, a panel for each target; the same bins for both parts."""
    figure = go.Figure()
    for index, _ in enumerate(targets):
        for name, (centres, share) in residual_shares(parts, index).items():
            figure.add_trace(
                go.Scatter(
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
                    **_on(index),
                )
            )
    _panels(figure, targets, "measured − predicted", "share of the rows")
    _every_axis(figure, "y", tickformat=".0%", rangemode="tozero")
    return figure


def residuals(parts: dict[str, Part], targets: Sequence[str]) -> go.Figure:
    """Residuals in the order of the rows or against the prediction, as a menu chooses."""
    figure = go.Figure()
    views: list[int] = []
    for index, _ in enumerate(targets):
        for name, part in parts.items():
            row_numbers = np.repeat(part.rows[:, None] + 1, len(targets), axis=1)
            for view, x in enumerate((row_numbers, part.predicted)):
                figure.add_trace(_dots(name, x, part.residuals, index, shown=view == 0))
                views.append(view)
    _panels(figure, targets, "row", "measured − predicted")
    titles = _axis_names(len(targets), "x")
    buttons = []
    for view, words in enumerate(("row", "predicted")):
        visible = [v == view for v in views]
        legend = [v == view and i < 2 * len(parts) for i, v in enumerate(views)]
        layout = {f"{axis}.title.text": words for axis in titles}
        arguments = [{"visible": visible, "showlegend": legend}, layout]
        label = "in the order of the rows" if view == 0 else "against the prediction"
        buttons.append({"label": label, "method": "update", "args": arguments})
    figure.update_layout(updatemenus=[{"type": "dropdown", "buttons": buttons}])
    return figure


def bars(named: Sequence[tuple[str, float, str]], unit: str) -> go.Figure:
    """Bounds by name, value and colour, per `unit`, on a log axis, which has no place for zeros."""
    if not named:
        figure = go.Figure(layout={"height": 130, "template": go.layout.Template()})
        figure.update_xaxes(visible=False).update_yaxes(visible=False)
        return figure.add_annotation(text=CONSTANT, showarrow=False, font={"size": 14})
    figure = go.Figure(
        go.Bar(
            y=[name for name, _, _ in named],
            x=[value for _, value, _ in named],
            orientation="h",
            marker={"color": [colour for _, _, colour in named]},
            text=[f"{value:.4g}" for _, value, _ in named],
            textposition="inside",
            insidetextanchor="end",
            textfont={"color": "#FFFFFF"},
            hovertemplate="%{y}: %{x:.5g}<extra></extra>",
            name="bound",
        )
    )
    figure.update_layout(
        template=go.layout.Template(),
        height=130 + 40 * len(named),
        margin={"l": 12, "r": 16, "t": 36, "b": 52},
        bargap=0.35,
        dragmode=False,
        xaxis={
            "type": "log",
            "title": _title(f"units of the outputs per {unit}"),
            "exponentformat": "power",
            "nticks": 6,
            "range": _log_range([value for _, value, _ in named]),
        },
        yaxis={"autorange": "reversed", "automargin": True, "fixedrange": True},
        meta={
            "narrow": {
                "height": 100 + 40 * len(named),
                "margin.t": 8,
                "xaxis.title.text": f"per {unit}",
                "xaxis.nticks": 3,
            }
        },
    )
    return figure


def slices(cut: Slices) -> go.Figure:
    """The learned function along each input; a menu chooses the output."""
    figure = go.Figure()
    for output, name in enumerate(cut.outputs):
        for index, _ in enumerate(cut.inputs):
            figure.add_trace(
                go.Scatter(
                    x=cut.grid[index].astype(np.float32),
                    y=cut.values[index, :, output].astype(np.float32),
                    mode="lines",
                    name=name,
                    showlegend=False,
                    visible=output == 0,
                    line={"color": ANGLE, "width": 2},
                    hovertemplate="%{x:.4g}: %{y:.4g}<extra></extra>",
                    **_on(index),
                )
            )
    _panels(figure, cut.inputs, "", cut.outputs[0], wide=4, narrow=2, panel=140, gap=62)
    # One scale for all panels: which inputs matter is then seen at a glance.
    _every_axis(figure, "y", matches="y")
    if len(cut.outputs) > 1:
        count = len(cut.inputs)
        titles = _axis_names(count, "y")
        buttons = [
            {
                "label": name,
                "method": "update",
                "args": [
                    {"visible": [i // count == output for i in range(count * len(cut.outputs))]},
                    {f"{axis}.title.text": name for axis in titles[::4]},
                ],
            }
            for output, name in enumerate(cut.outputs)
        ]
        figure.update_layout(updatemenus=[{"type": "dropdown", "buttons": buttons}])
    return figure


def confusion(labels: Sequence[Any], counts: np.ndarray) -> go.Figure:
    """Test rows by their class and by the class they were taken for."""
    names = [str(label) for label in labels]
    counts = np.asarray(counts)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    figure = go.Figure(
        go.Heatmap(
            x=names,
            y=names,
            z=share,
            text=counts.astype(str),
            texttemplate="%{text}" if len(names) <= 20 else None,
            name="test rows",
            colorscale="Cividis",
            zmin=0,
            zmax=1,
            xgap=2,
            ygap=2,
            colorbar={
                "title": {"text": "share of the class", "side": "right", "font": {"size": 13}},
                "tickformat": ".0%",
                "outlinewidth": 0,
                "thickness": 12,
            },
            hovertemplate="class %{y} taken for %{x}: %{text} rows, %{z:.1%}<extra></extra>",
        )
    )
    category = {"type": "category", "fixedrange": True, "showgrid": False, "automargin": True}
    figure.update_layout(
        template=go.layout.Template(),
        height=min(max(300, 120 + 44 * len(names)), 900),
        margin={"l": 12, "r": 12, "t": 16, "b": 48},
        dragmode=False,
        xaxis=category | {"title": _title("predicted class")},
        yaxis=category | {"title": _title("class"), "autorange": "reversed"},
    )
    return figure


def bound_bars(bounds: Bounds) -> list[tuple[str, float, str]]:
    """Name, value and colour of each bound, the loosest first."""
    named = [
        ("before training", bounds.a_priori, "#8A6D00"),
        ("operator norms, ∏‖W‖op", bounds.operator_norms, "#6C6C6C"),
        ("certified", bounds.certified, TRAIN),
        ("steepest slope seen", bounds.lower, "#B34700"),
    ]
    return [(name, value, colour) for name, value, colour in named if value > 0]


def _dots(name: str, x: np.ndarray, y: np.ndarray, index: int, *, shown: bool = True) -> go.Scatter:
    picked = evenly(len(x), DOTS)
    return go.Scatter(
        x=x[picked, index].astype(np.float32),
        y=y[picked, index].astype(np.float32),
        mode="markers",
        name=f"{name} rows",
        legendgroup=name,
        showlegend=index == 0 and shown,
        visible=shown,
        marker={"color": COLOURS[name], "size": 4, "opacity": 0.4 if name == "train" else 0.65},
        hovertemplate="%{x:.4g}, %{y:.4g}<extra>%{fullData.name}</extra>",
        **_on(index),
    )


def _on(index: int) -> dict[str, str]:
    number = "" if index == 0 else str(index + 1)
    return {"xaxis": f"x{number}", "yaxis": f"y{number}"}


def _axis_names(count: int, letter: str) -> list[str]:
    return [f"{letter}axis{'' if index == 0 else index + 1}" for index in range(count)]


def _every_axis(figure: go.Figure, letter: str, **changes: Any) -> None:
    update: Callable[..., Any] = figure.update_xaxes if letter == "x" else figure.update_yaxes
    update(**changes)
    if "matches" in changes:
        figure.update_layout({f"{letter}axis": {"matches": None}})  # not with itself


def _title(text: str) -> dict[str, Any]:
    return {"text": text, "font": {"size": 13}, "standoff": 6}


def _log_range(values: Iterable[float]) -> list[float]:
    """From below the least to the largest, so that the shortest bar has room for its number."""
    exponents = np.log10(list(values))
    reach = max(float(exponents.max() - exponents.min()), 1.0)
    return [float(exponents.min()) - 0.6 * reach, float(exponents.max()) + 0.03 * reach]


def _panels(
    figure: go.Figure,
    titles: Sequence[str],
    x_title: str,
    y_title: str,
    *,
    wide: int = 3,
    narrow: int = 1,
    panel: int = _PANEL,
    gap: int = _GAP,
) -> None:
    """Lay out one panel for each title: `wide` of them side by side, `narrow` on a phone."""
    count = len(titles)
    # Below the panels there are ticks, the axis title and the legend, as far as there are any.
    bottom = _BOTTOM if x_title else 36
    changes: dict[str, Any] = {}
    places = _places(count, min(wide, count), panel, gap, 0.07)
    phone = _places(count, min(narrow, count), panel, gap, 0.16)
    for index, title in enumerate(titles):
        number = "" if index == 0 else str(index + 1)
        figure.update_layout(
            {
                f"xaxis{number}": {
                    "domain": places[index][0],
                    "anchor": f"y{number}",
                    "title": _title(x_title),
                    "zeroline": False,
                    "nticks": 5,
                    "exponentformat": "none",
                },
                f"yaxis{number}": {
                    "domain": places[index][1],
                    "anchor": f"x{number}",
                    "title": _title(y_title if index % min(wide, count) == 0 else ""),
                    "zeroline": False,
                    "nticks": 5,
                },
            }
        )
        changes[f"xaxis{number}.domain"] = list(phone[index][0])
        changes[f"yaxis{number}.domain"] = list(phone[index][1])
        panel_title(figure, title, number)
    figure.update_layout(
        template=go.layout.Template(),
        height=_height(count, wide, panel, gap) + bottom,
        margin={"l": 64, "r": 12, "t": _TOP, "b": bottom},
        hovermode="closest",
        legend=LEGEND_BELOW | {"itemsizing": "constant"},
        meta={
            "narrow": {
                # No buttons above the panels of a phone.
                "height": _height(count, narrow, panel, gap) + bottom - _BUTTONS,
                "margin.t": _TOP - _BUTTONS,
                "margin.l": 56,
                "margin.r": 8,
                "dragmode": False,
                **changes,
            }
        },
    )


def _height(count: int, columns: int, panel: int, gap: int) -> int:
    rows = -(-count // columns)
    return rows * panel + (rows - 1) * gap + _TOP


def _places(
    count: int, columns: int, panel: int, gap: int, between: float
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Domains of the panels, row by row from the top; `between` is a share of the width."""
    rows = -(-count // columns)
    width = (1 - between * (columns - 1)) / columns
    whole = rows * panel + (rows - 1) * gap
    places = []
    for index in range(count):
        row, column = divmod(index, columns)
        left = column * (width + between)
        top = 1 - row * (panel + gap) / whole
        places.append(((left, min(left + width, 1.0)), (max(top - panel / whole, 0.0), top)))
    return places
