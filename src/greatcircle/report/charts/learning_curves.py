"""Learning curves of one run or of several seeds as an interactive chart: the paper's Figure 1."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from greatcircle.figures.style import ANGLE
from greatcircle.figures.tables import Curve, LearningCurves
from greatcircle.report.charts.layout import LEGEND_BELOW, add_menu, axis_title, empty_chart

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["learning_curves"]

# More points cannot be seen on a screen, and those of forty seeds would make a heavy page.
_MEAN_POINTS, _SEED_POINTS = 3000, 300


def learning_curves(curves: LearningCurves) -> "Figure":
    """Draw the losses on a log axis and the angle on a second axis.

    With several seeds, lines are means and bands are one standard deviation; a menu shows all seeds
    or a single one instead.
    """
    several = len(curves.seeds) > 1
    figure = empty_chart()
    owners: list[int | None] = []
    """Row of the seed of each trace; None for means and bands."""
    for curve in curves.curves if several else ():
        _add_mean_and_band(figure, curve)
        owners += [None, None]
    for row, seed in enumerate(curves.seeds):
        for curve in curves.curves:
            picked = _thinned(curve.iterations, _SEED_POINTS) if several else slice(None)
            figure.add_scatter(
                x=_compact(curve.iterations[picked]),
                y=curve.rows[row][picked].astype(np.float32),
                name=curve.name,
                legendgroup=curve.name,
                meta=f"seed {seed}",
                mode="lines",
                line=_line(curve),
                yaxis=_axis(curve),
                visible=not several,
                hovertemplate="%{y:.4g}<extra>%{fullData.name}, %{meta}</extra>",
            )
            owners.append(row)
    _lay_out(figure, curves.title, curves.axis)
    if several:
        step = _step(curves.angle.shape[1], _SEED_POINTS)
        _add_seed_menu(figure, curves.seeds, owners, step)
    return figure


def _line(curve: Curve) -> dict[str, Any]:
    dash, width = "dash" if curve.dashed else "solid", 1.2 if curve.right else 2.2
    return {"color": curve.colour, "dash": dash, "width": width}


def _axis(curve: Curve) -> str:
    return "y" if curve.right else "y2"


def _add_mean_and_band(figure: "Figure", curve: Curve) -> None:
    mean, deviation, low, high = curve.summary()
    kept = _thinned(curve.iterations, _MEAN_POINTS)
    kept = kept[np.isfinite(mean[kept])]
    x = _compact(curve.iterations[kept])
    common = {"mode": "lines", "legendgroup": curve.name, "yaxis": _axis(curve)}
    figure.add_scatter(
        x=np.concatenate([x, x[::-1]]),
        y=np.concatenate([high[kept], low[kept][::-1]]).astype(np.float32),
        name=f"{curve.name}, one standard deviation",
        showlegend=False,
        line={"width": 0, "color": curve.colour},
        fill="toself",
        fillcolor=_translucent(curve.colour, 0.14 if curve.right else 0.22),
        hoverinfo="skip",
        **common,
    )
    figure.add_scatter(
        x=x,
        y=mean[kept].astype(np.float32),
        customdata=deviation[kept].astype(np.float32),
        name=curve.name,
        line=_line(curve),
        hovertemplate="%{y:.4g} ± %{customdata:.2g}<extra>%{fullData.name}</extra>",
        **common,
    )


def _add_seed_menu(
    figure: "Figure", seeds: Sequence[int], owners: Sequence[int | None], step: int
) -> None:
    """Add a menu with one entry for the means, one for all seeds and one for each seed."""

    def update(shown: Sequence[bool], legend: Sequence[bool], opacity: float = 1.0) -> list[Any]:
        traces = {"visible": list(shown), "showlegend": list(legend), "opacity": opacity}
        # With all seeds, a box with the values of every curve would cover the chart.
        return [traces, {"hovermode": "x unified" if opacity == 1 else "closest"}]

    # Each mean follows its band, and only the mean is in the legend.
    means = [row is None for row in owners]
    mean_lines = [row is None and index % 2 == 1 for index, row in enumerate(owners)]
    single = [[row == chosen for row in owners] for chosen in range(len(seeds))]
    note = f" (every {_ordinal(step)} iteration)" if step > 1 else ""
    add_menu(
        figure,
        [f"mean of {len(seeds)} seeds", f"all seeds{note}", *(f"seed {s}{note}" for s in seeds)],
        [
            update(means, mean_lines),
            update([not mean for mean in means], single[0], 0.3),
            *(update(shown, shown) for shown in single),
        ],
    )


def _lay_out(figure: "Figure", title: str, loss_title: str) -> None:
    # Tick labels within one decade are long: the margin adapts to them.
    log_axis = {"type": "log", "exponentformat": "power", "nticks": 9, "automargin": True}
    coloured = {"font": {"color": ANGLE, "size": 13}}
    figure.update_layout(
        title={"text": title, "x": 0, "xref": "paper", "font": {"size": 16}},
        height=460,
        margin={"l": 64, "r": 64, "t": 48, "b": 84},
        hovermode="x unified",
        xaxis={
            "title": axis_title("iteration", 8),
            "zeroline": False,
            "hoverformat": "d",
            "unifiedhovertitle": {"text": "iteration %{x}"},
            "spikecolor": "#8A919B",
            "spikethickness": 1,
            "spikedash": "dot",
            "exponentformat": "none",  # no SI prefixes
        },
        # The losses are drawn above the angle: an overlaying axis is drawn last.
        yaxis=log_axis
        | {
            "title": axis_title("angle [rad]", 8) | coloured,
            "tickfont": {"color": ANGLE},
            "side": "right",
            "showgrid": False,
            "nticks": 5,
        },
        yaxis2=log_axis
        | {
            "title": axis_title(loss_title, 8),
            "side": "left",
            "overlaying": "y",
            # By default an overlaying axis has its ticks where the other axis has them.
            "tickmode": "auto",
        },
        legend=LEGEND_BELOW,
        meta={
            "narrow": {
                "height": 420,
                "margin.l": 52,
                "margin.r": 52,
                "margin.b": 112,
                "dragmode": False,
            }
        },
    )


def _thinned(iterations: np.ndarray, limit: int) -> np.ndarray:
    """Return the indices of about `limit` evenly spaced iterations, including the last."""
    last = iterations.max(initial=0)
    return np.flatnonzero((iterations % _step(last, limit) == 0) | (iterations == last))


def _step(last: int, limit: int) -> int:
    return max(1, -(-last // limit))


def _compact(iterations: np.ndarray) -> np.ndarray:
    """Return the iterations in two bytes each if they fit: the curves of all seeds add up."""
    return iterations.astype(np.int16 if iterations.max(initial=0) < 2**15 else np.int32)


def _translucent(colour: str, alpha: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    teens = 10 <= number % 100 <= 20
    return f"{number}{'th' if teens else endings.get(number % 10, 'th')}"
