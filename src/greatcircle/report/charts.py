"""Figures the experiments share, as Plotly figures: learning curves and compared heatmaps.

They carry no background, font or grid colour: the page sets these for light and dark.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from greatcircle.experiments.figures import ANGLE, TEST, TRAIN

# More points than this show nothing more on a screen, and forty seeds of them make a heavy page.
_MEAN_POINTS, _SEED_POINTS = 3000, 300

# Colour, dash, width, axis and shade of the band.
_TRAINING = (TRAIN, "solid", 2.2, "y2", 0.22)
_TESTING = (TEST, "dash", 2.2, "y2", 0.22)
_TURNING = (ANGLE, "solid", 1.2, "y", 0.14)


# Okabe and Ito's lighter blue and orange: dark figures stay readable on both.
_DIVERGING = [[0.0, "#56B4E9"], [0.5, "#F7F7F7"], [1.0, "#E69F00"]]
_DARK_TEXT = "#1B1F24"


LEGEND_BELOW = {
    "orientation": "h",
    "x": 0,
    "y": 0,
    "yref": "container",
    "yanchor": "bottom",
    "groupclick": "togglegroup",
    "tracegroupgap": 0,
}


def learning_curves(
    title: str,
    seeds: Sequence[int],
    train: np.ndarray,
    test: np.ndarray | None,
    angle: np.ndarray,
    *,
    names: tuple[str, str] = ("training objective", "test objective"),
    axis: str = "objective (scaled data)",
) -> go.Figure:
    """The paper's Figure 1: objectives on a log axis, the angle on the second axis.

    With several seeds, lines are means and bands are one standard deviation, and a menu shows
    every seed or one of them instead.

    Parameters
    ----------
    title : str
        Usually the method's name.
    seeds : sequence of int
        One for each row of the arrays.
    train, test : array (seeds, iterations + 1)
        Objective before the first iteration and after each. A run that ended early is filled up
        with NaN; the means are then over the runs that got so far. Without `test`, none is drawn.
    angle : array (seeds, iterations)
        Of each iteration.
    names : tuple of str
        What `train` and `test` are.
    axis : str
        Title of their axis.

    Returns
    -------
    plotly.graph_objects.Figure
    """
    train, angle = np.asarray(train, dtype=float), np.asarray(angle, dtype=float)
    test = None if test is None else np.asarray(test, dtype=float)
    count, length = len(seeds), train.shape[-1]
    other = train.shape if test is None else test.shape
    if count == 0 or train.shape != (count, length) or other != train.shape:
        raise ValueError(
            f"{count} seeds with train {train.shape} and test {other}: both must have one "
            "row for each seed and equal length"
        )
    if angle.shape != (count, length - 1):
        raise ValueError(
            f"angle {angle.shape} for train {train.shape}: expected {(count, length - 1)}, one "
            "angle for each iteration; the objectives also have the start"
        )

    iterations = np.arange(length)
    curves = [
        (iterations, train, names[0], *_TRAINING),
        *([] if test is None else [(iterations, test, names[1], *_TESTING)]),
        (iterations[1:], angle, "angle", *_TURNING),
    ]
    several = count > 1
    figure = go.Figure()
    owner: list[int | None] = []  # of each trace: the row of its seed, None for means and bands
    if several:
        for curve in curves:
            for trace in _mean_and_band(*curve):
                figure.add_trace(trace)
                owner.append(None)
    for row, seed in enumerate(seeds):
        for x, rows, name, colour, dash, width, side, _ in curves:
            picked = _thinned(x, _SEED_POINTS) if several else slice(None)
            figure.add_trace(
                go.Scatter(
                    x=_compact(x[picked]),
                    y=rows[row][picked].astype(np.float32),
                    name=name,
                    legendgroup=name,
                    meta=f"seed {seed}",
                    mode="lines",
                    line={"color": colour, "dash": dash, "width": width},
                    yaxis=side,
                    visible=not several,
                    hovertemplate="%{y:.4g}<extra>%{fullData.name}, %{meta}</extra>",
                )
            )
            owner.append(row)
    _curve_layout(figure, title, axis)
    if several:
        every = _every(length - 1, _SEED_POINTS)
        figure.update_layout(updatemenus=[_seed_menu(seeds, owner, every)])
    return figure


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
    _heatmap_layout(figure, label, unit, both, limit, log)
    return figure


def panel_title(figure: go.Figure, name: str, number: str) -> None:
    """A name over the panel of the axes x and y with that number."""
    # Plotly reads some HTML in annotations: the name of a column is none.
    plain = name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    figure.add_annotation(
        text=f"<b>{plain}</b>",
        xref=f"x{number} domain",
        yref=f"y{number} domain",
        x=0,
        y=1,
        xanchor="left",
        yanchor="bottom",
        showarrow=False,
    )


def _mean_and_band(
    x: np.ndarray,
    rows: np.ndarray,
    name: str,
    colour: str,
    dash: str,
    width: float,
    axis: str,
    shade: float,
) -> list[go.Scatter]:
    masked = np.ma.masked_invalid(rows)
    mean = np.ma.filled(masked.mean(axis=0), np.nan)
    spread = np.ma.filled(masked.std(axis=0), np.nan)
    kept = _thinned(x, _MEAN_POINTS)
    kept = kept[np.isfinite(mean[kept])]
    x, mean, spread = _compact(x[kept]), mean[kept], spread[kept]
    # On a log axis the band must stay positive.
    low = np.maximum(mean - spread, 0.1 * mean)
    band = go.Scatter(
        x=np.concatenate([x, x[::-1]]),
        y=np.concatenate([mean + spread, low[::-1]]).astype(np.float32),
        name=f"{name}, one standard deviation",
        legendgroup=name,
        showlegend=False,
        mode="lines",
        line={"width": 0, "color": colour},
        fill="toself",
        fillcolor=_translucent(colour, shade),
        hoverinfo="skip",
        yaxis=axis,
    )
    line = go.Scatter(
        x=x,
        y=mean.astype(np.float32),
        customdata=spread.astype(np.float32),
        name=name,
        legendgroup=name,
        mode="lines",
        line={"color": colour, "dash": dash, "width": width},
        yaxis=axis,
        hovertemplate="%{y:.4g} ± %{customdata:.2g}<extra>%{fullData.name}</extra>",
    )
    return [band, line]


def _seed_menu(seeds: Sequence[int], owner: Sequence[int | None], every: int) -> dict[str, Any]:
    """One button for the means, one for every seed at once and one for each seed."""

    def button(label: str, shown: Sequence[bool], legend: Sequence[bool], opacity: float) -> dict:
        update = {"visible": list(shown), "showlegend": list(legend), "opacity": opacity}
        # A box with three values for every seed would cover the chart: there, only the nearest.
        hover = {"hovermode": "x unified" if opacity == 1 else "closest"}
        return {"label": label, "method": "update", "args": [update, hover]}

    # The mean's line follows its band: the line alone stands in the legend.
    means = [row is None for row in owner]
    mean_lines = [row is None and index % 2 == 1 for index, row in enumerate(owner)]
    single = [[row == chosen for row in owner] for chosen in range(len(seeds))]
    note = f" (every {_ordinal(every)} iteration)" if every > 1 else ""
    return {
        "type": "dropdown",
        "x": 1,
        "xanchor": "right",
        "y": 1.02,
        "yanchor": "bottom",
        "buttons": [
            button(f"mean of {len(seeds)} seeds", means, mean_lines, 1.0),
            button(f"every seed{note}", [not mean for mean in means], single[0], 0.3),
            *(
                button(f"seed {seed}{note}", shown, shown, 1.0)
                for seed, shown in zip(seeds, single, strict=True)
            ),
        ],
    }


def _curve_layout(figure: go.Figure, title: str, axis: str) -> None:
    # Labels within one decade are long: the margin follows them.
    log_axis = {"type": "log", "exponentformat": "power", "nticks": 9, "automargin": True}
    figure.update_layout(
        template=go.layout.Template(),
        title={"text": title, "x": 0, "xref": "paper", "font": {"size": 16}},
        height=460,
        margin={"l": 64, "r": 64, "t": 48, "b": 84},
        hovermode="x unified",
        xaxis={
            "title": {"text": "iteration", "font": {"size": 13}, "standoff": 8},
            "zeroline": False,
            "hoverformat": "d",
            "unifiedhovertitle": {"text": "iteration %{x}"},
            "spikecolor": "#8A919B",
            "spikethickness": 1,
            "spikedash": "dot",
            # An iteration is a whole number, also for a reader who knows no SI prefixes.
            "exponentformat": "none",
        },
        # The objectives belong on top of the angle, and an overlaying axis is drawn last.
        yaxis=log_axis
        | {
            "title": {"text": "angle [rad]", "font": {"color": ANGLE, "size": 13}, "standoff": 8},
            "tickfont": {"color": ANGLE},
            "side": "right",
            "showgrid": False,
            "nticks": 5,
        },
        yaxis2=log_axis
        | {
            "title": {"text": axis, "font": {"size": 13}, "standoff": 8},
            "side": "left",
            "overlaying": "y",
            # An overlaying axis would else take the other's ticks, at odd values.
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


def _heatmap_layout(
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


def _thinned(iterations: np.ndarray, limit: int) -> np.ndarray:
    """Indices of the multiples of some number, at most about `limit`, and of the last iteration."""
    last = iterations.max(initial=0)
    return np.flatnonzero((iterations % _every(last, limit) == 0) | (iterations == last))


def _every(last: int, limit: int) -> int:
    return max(1, -(-last // limit))


def _compact(iterations: np.ndarray) -> np.ndarray:
    """Two bytes for each where they do: with every seed's curve they add up."""
    return iterations.astype(np.int16 if iterations.max(initial=0) < 2**15 else np.int32)


def _digits(value: float, scale: np.ndarray, sign: str) -> str:
    """Three decimals for errors near one, fewer for seconds in the hundreds."""
    if not np.isfinite(value):
        return ""
    largest = float(np.abs(scale).max(initial=1.0))
    decimals = int(np.clip(3 - np.floor(np.log10(max(largest, 1.0))), 0, 3))
    rounded = round(value, decimals) + 0.0  # no negative zero
    return f"{rounded:{sign if rounded else ''}.{decimals}f}".replace("-", "−")


def _translucent(colour: str, alpha: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def _ordinal(number: int) -> str:
    ending = (
        "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"
