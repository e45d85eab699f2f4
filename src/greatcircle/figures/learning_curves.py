"""Learning curves as a Matplotlib figure: the paper's Figure 1."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from greatcircle.figures.style import ANGLE, empty_figure
from greatcircle.figures.tables import LearningCurves

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
    for curve in curves.curves:
        each, width = (right, 0.7) if curve.right else (axes, 1.6)
        mean, _, low, high = curve.summary()
        dash = "--" if curve.dashed else "-"
        x, colour = curve.iterations, curve.colour
        each.plot(x, mean, dash, color=colour, linewidth=width, label=curve.name)
        if len(curve.rows) > 1:
            each.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
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
