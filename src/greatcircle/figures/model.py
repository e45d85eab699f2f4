"""Matplotlib figures of a fitted model: predictions, residuals, bounds, slices, confusion."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from greatcircle.figures.heatmaps import write_cells
from greatcircle.figures.style import ANGLE, COLOURS, CONSTANT_NETWORK, empty_figure
from greatcircle.figures.tables import (
    Bar,
    Confusion,
    Predictions,
    Slices,
    evenly_spaced,
    residual_histograms,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["bars", "confusion", "predicted", "residuals", "slices"]

MAX_DOTS = 4000
"""Largest number of training or test rows drawn as dots."""

COLUMNS = 3
"""Panels side by side."""


def predicted(predictions: Mapping[str, Predictions], targets: Sequence[str]) -> "Figure":
    """Draw predicted against measured values, one panel per target."""
    rows, columns = -(-len(targets) // COLUMNS), min(COLUMNS, len(targets))
    figure = empty_figure(max(3.6 * columns, 5), 3.4 * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels[len(targets) :]:
        axes.set_visible(False)
    for index, (axes, target) in enumerate(zip(panels, targets, strict=False)):
        for name, subset in predictions.items():
            _draw_dots(axes, name, subset.measured[:, index], subset.predicted[:, index])
        middle = float(predictions["train"].measured[0, index])
        axes.axline((middle, middle), slope=1, color="0.4", lw=1, ls=":")
        axes.set_aspect("equal", adjustable="datalim")
        axes.set(xlabel="measured", ylabel="predicted" if index % COLUMNS == 0 else "")
        axes.set_title(_escape(target))
        axes.grid(True, alpha=0.25)
    for handle in panels[0].legend(fontsize="small", markerscale=3).legend_handles:
        if handle is not None:
            handle.set_alpha(1)
    return figure


def residuals(
    predictions: Mapping[str, Predictions], targets: Sequence[str], *, by_row: bool
) -> "Figure":
    """Draw the histogram of the residuals of each target, and the residuals as dots below it.

    The dots are over the row numbers with `by_row`, otherwise over the predicted values.
    """
    count = len(targets)
    figure = empty_figure(max(3.6 * count, 5), 5.6)
    upper, lower = figure.subplots(2, count, squeeze=False)
    for index, target in enumerate(targets):
        for name, (centres, share) in residual_histograms(predictions, index).items():
            upper[index].step(
                centres, share, where="mid", color=COLOURS[name], label=f"{name} rows"
            )
        upper[index].set(title=_escape(target), xlabel="measured − predicted", ylim=(0, None))
        for name, subset in predictions.items():
            x = subset.rows + 1 if by_row else subset.predicted[:, index]
            _draw_dots(lower[index], name, x, subset.residuals[:, index])
        lower[index].axhline(0, color="0.4", lw=1, ls=":")
        lower[index].set(xlabel="row" if by_row else "predicted")
        for axes in (upper[index], lower[index]):
            axes.grid(True, alpha=0.25)
    upper[0].set_ylabel("share of the rows")
    lower[0].set_ylabel("measured − predicted")
    upper[0].legend(fontsize="small")
    return figure


def bars(bounds: Sequence[Bar], unit: str) -> "Figure":
    """Draw positive bounds as bars on a log axis."""
    figure = empty_figure(6.4, 0.9 + 0.42 * len(bounds))
    axes = figure.subplots()
    if not bounds:
        axes.set_axis_off()
        axes.text(0.5, 0.5, CONSTANT_NETWORK, ha="center", va="center")
        return figure
    names, values, colours = zip(*bounds, strict=True)
    drawn = axes.barh(names, values, color=colours)
    axes.bar_label(drawn, [f"{value:.4g}" for value in values], padding=4)
    axes.invert_yaxis()
    axes.set_xscale("log")
    # Leave room for the numbers behind the bars, and for the shortest bar.
    axes.set_xlim(min(values) / 3, max(values) * (max(values) / min(values) * 10) ** 0.2)
    axes.set_xlabel(f"units of the outputs per {unit}")
    return figure


def slices(table: Slices) -> "Figure":
    """Draw the learned function along each input, one block of panels per output."""
    columns = min(4, len(table.inputs))
    rows = -(-len(table.inputs) // columns)
    figure = empty_figure(2.6 * columns, 1.9 * rows * len(table.outputs) + 0.3)
    blocks = np.asarray(figure.subfigures(len(table.outputs), 1, squeeze=False))[:, 0]
    for output, block in enumerate(blocks):
        panels = block.subplots(rows, columns, sharey=True, squeeze=False).flat
        for index, axes in enumerate(panels):
            if index >= len(table.inputs):
                axes.set_visible(False)
                continue
            axes.plot(table.grid[index], table.values[index, :, output], color=ANGLE)
            axes.set_xlabel(_escape(table.inputs[index]))
            axes.locator_params(axis="x", nbins=4)
            axes.grid(True, alpha=0.25)
        block.supylabel(_escape(table.outputs[output]), fontsize="medium")
    return figure


def confusion(table: Confusion) -> "Figure":
    """Draw the number of test rows by true and predicted class."""
    names = [_escape(name) for name in table.names]
    side = float(np.clip(0.6 * len(names) + 1.6, 3.4, 12))
    figure = empty_figure(side + 0.8, side)
    axes = figure.subplots()
    image = axes.imshow(table.shares, vmin=0, vmax=1, cmap="cividis")
    axes.set_xticks(range(len(names)), names, rotation=90 if max(map(len, names)) > 4 else 0)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="predicted class", ylabel="true class")
    if len(names) <= 20:
        write_cells(axes, image, table.shares, table.counts.astype(str).tolist())
    figure.colorbar(image, ax=axes, label="share of the true class")
    return figure


def _draw_dots(axes: "Axes", name: str, x: np.ndarray, y: np.ndarray) -> None:
    picked = evenly_spaced(len(x), MAX_DOTS)
    axes.plot(
        x[picked],
        y[picked],
        ".",
        color=COLOURS[name],
        ms=3,
        alpha=0.35 if name == "train" else 0.7,
        mew=0,
        label=f"{name} rows",
        rasterized=True,  # thousands of dots would make a heavy PDF
    )


def _escape(name: str) -> str:
    """Return a column name that Matplotlib does not read as a formula."""
    return name.replace("$", r"\$")
