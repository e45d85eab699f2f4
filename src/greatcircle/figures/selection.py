"""Held-out errors of the candidates of a selection as a Matplotlib figure."""

from typing import TYPE_CHECKING, Any

import numpy as np

from greatcircle.figures.candidates import CandidateErrors, Series, gain_text
from greatcircle.figures.style import empty_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["selection"]

MARKERS = "osD^vP"


def selection(errors: CandidateErrors) -> "Figure":
    """Draw errors by target gain with bars of one standard error, one line for each shape.

    The chosen candidate has a ring. Hollow markers were measured on fewer parts of the rows.
    """
    figure = empty_figure(6.4, 4.2)
    axes = figure.subplots()
    handles: list[Any] = [
        _draw(axes, series, MARKERS[number % len(MARKERS)], by_gain=errors.by_gain)
        for number, series in enumerate(errors.series)
    ]
    ring: dict[str, Any] = {"ms": 15, "mfc": "none", "mec": "0.35", "mew": 1.4, "label": "chosen"}
    for series in errors.series:
        chosen = series.where(series.chosen)
        if len(chosen.error):
            x = _positions(chosen, by_gain=errors.by_gain)
            handles += axes.plot(x, chosen.error, "o", **ring)
    if errors.by_gain:
        axes.set_xscale("log")
        _label_gains(axes, np.concatenate([series.gain for series in errors.series]))
    if errors.log:
        axes.set_yscale("log")
    axes.set_xlabel("target gain (no unit)" if errors.by_gain else "units of the hidden layers")
    axes.set_ylabel(errors.axis)
    axes.margins(x=0.08)
    axes.grid(True, which="major", alpha=0.25)
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize="small")
    return figure


def _positions(series: Series, *, by_gain: bool) -> Any:
    return series.gain if by_gain else [series.layers] * len(series.gain)


def _draw(axes: "Axes", series: Series, marker: str, *, by_gain: bool) -> Any:
    """Draw comparable candidates as a line, the others hollow; return the entry of the legend."""
    drawn = []
    for comparable in (True, False):
        part = series.where(series.comparable == comparable)
        if not len(part.error):
            continue
        bars = axes.errorbar(
            _positions(part, by_gain=by_gain),
            part.error,
            part.standard_error,
            marker=marker,
            ms=6,
            mfc=part.colour if comparable else "none",
            color=part.colour,
            alpha=1 if comparable else 0.55,
            lw=1.6,
            ls="-" if comparable else "none",
            elinewidth=1,
            capsize=3,
            label=series.layers,
        )
        drawn.append(bars)
    return drawn[0]


def _label_gains(axes: "Axes", gains: np.ndarray) -> None:
    """Label the target gains themselves where they are few and far apart."""
    from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

    ticks = np.unique(np.round(np.log10(gains), 6))
    close = len(ticks) > 1 and np.ptp(ticks) > 12 * np.min(np.diff(ticks))
    digits = (1, 3) if np.ptp(ticks) > 2 else (1, 2, 3, 5)
    locator = LogLocator(subs=digits) if close else FixedLocator((10**ticks).tolist())
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda gain, _: gain_text(gain))
