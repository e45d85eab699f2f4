"""Learning curves as a Matplotlib figure: the paper's Figure 1."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from greatcircle.figures.style import ANGLE, TEST, TRAIN, empty_figure
from greatcircle.figures.tables import LearningCurves, summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["learning_curves"]


def learning_curves(panels: Sequence[LearningCurves]) -> "Figure":
    """Draw the losses on a log axis and the angle on a second axis, one panel per method.

    With several seeds, lines are means and bands are one standard deviation.
    """
    figure = empty_figure(5.6 * len(panels), 3.8)
    for axes, curves in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels, strict=True):
        _draw_panel(axes, curves)
    return figure


def _draw_panel(axes: "Axes", curves: LearningCurves) -> None:
    from matplotlib.ticker import MaxNLocator

    right = axes.twinx()
    iterations = np.arange(curves.train.shape[1])
    _draw_curve(right, iterations[1:], curves.angle, (ANGLE, "angle", "-", 0.7))
    _draw_curve(axes, iterations, curves.train, (TRAIN, curves.names[0], "-", 1.6))
    if curves.test is not None:
        _draw_curve(axes, iterations, curves.test, (TEST, curves.names[1], "--", 1.6))
    for each in (axes, right):
        # A network that fits exactly from the start has a loss of zero, which has no logarithm.
        if any(np.any(np.asarray(line.get_ydata()) > 0) for line in each.get_lines()):
            each.set_yscale("log")
            _label_between_powers_of_ten(each)
    # Draw the losses above the angle, whose axes would otherwise be on top.
    axes.set_zorder(right.get_zorder() + 1)
    axes.patch.set_visible(False)
    axes.set_title(curves.title)
    axes.set_xlabel("iteration")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(curves.axis)
    axes.margins(x=0.02)
    axes.grid(True, which="major", alpha=0.25)
    right.set_ylabel("angle [rad]", color=ANGLE)
    right.tick_params(axis="y", which="both", colors=ANGLE)
    lines = [*axes.get_lines(), *right.get_lines()]
    axes.legend(lines, [str(line.get_label()) for line in lines], loc="upper right")


def _label_between_powers_of_ten(axes: "Axes") -> None:
    """Label more ticks where the values stay within one decade."""
    from matplotlib.ticker import LogFormatterSciNotation, LogLocator

    low, high = axes.get_ylim()
    if high / low < 10:
        axes.yaxis.set_minor_locator(LogLocator(subs=(1.2, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)))
        axes.yaxis.set_minor_formatter(
            LogFormatterSciNotation(labelOnlyBase=False, minor_thresholds=(np.inf, np.inf))
        )


def _draw_curve(
    axes: "Axes", x: np.ndarray, rows: np.ndarray, style: tuple[str, str, str, float]
) -> None:
    """Draw the mean over seeds, and a band of one standard deviation."""
    colour, label, dash, width = style
    summary = summarise(rows)
    axes.plot(x, summary.mean, dash, color=colour, linewidth=width, label=label)
    if len(rows) > 1:
        axes.fill_between(x, *summary.band, color=colour, alpha=0.2, linewidth=0)
