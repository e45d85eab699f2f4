"""Learning curves of one run or of many seeds, as an interactive chart."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from greatcircle.figures.curves import ANGLE, TEST, TRAIN
from greatcircle.report.charts import LEGEND_BELOW

# More points than this show nothing more on a screen, and forty seeds of them make a heavy page.
_MEAN_POINTS, _SEED_POINTS = 3000, 300

# Colour, dash, width, axis and shade of the band.
_TRAINING = (TRAIN, "solid", 2.2, "y2", 0.22)
_TESTING = (TEST, "dash", 2.2, "y2", 0.22)
_TURNING = (ANGLE, "solid", 1.2, "y", 0.14)


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
    _layout(figure, title, axis)
    if several:
        every = _every(length - 1, _SEED_POINTS)
        figure.update_layout(updatemenus=[_seed_menu(seeds, owner, every)])
    return figure


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


def _layout(figure: go.Figure, title: str, axis: str) -> None:
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


def _thinned(iterations: np.ndarray, limit: int) -> np.ndarray:
    """Indices of the multiples of some number, at most about `limit`, and of the last iteration."""
    last = iterations.max(initial=0)
    return np.flatnonzero((iterations % _every(last, limit) == 0) | (iterations == last))


def _every(last: int, limit: int) -> int:
    return max(1, -(-last // limit))


def _compact(iterations: np.ndarray) -> np.ndarray:
    """Two bytes for each where they do: with every seed's curve they add up."""
    return iterations.astype(np.int16 if iterations.max(initial=0) < 2**15 else np.int32)


def _translucent(colour: str, alpha: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def _ordinal(number: int) -> str:
    ending = (
        "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"
