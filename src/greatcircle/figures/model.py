"""Figures of one fitted model for papers and slides, drawn with Matplotlib as `figures` does."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from greatcircle.figures.curves import ANGLE, COLOURS, CONSTANT, write_cells
from greatcircle.report.evaluation import Part, Slices, evenly, residual_shares

DOTS = 4000
"""Rows of each part that a figure shows, at the most."""


def predicted(parts: dict[str, Part], targets: Sequence[str]) -> Figure:
    """Predicted against measured, a panel for each target."""
    figure, panels = _grid(targets, columns=3)
    for index, axes in enumerate(panels):
        for name, part in parts.items():
            _dots(axes, name, part.measured[:, index], part.predicted[:, index])
        middle = float(parts["train"].measured[0, index])
        axes.axline((middle, middle), slope=1, color="0.4", lw=1, ls=":")
        axes.set_aspect("equal", adjustable="datalim")
        axes.set(xlabel="measured", ylabel="predicted" if index % 3 == 0 else "")
    _legend(panels[0])
    return figure


def residuals(parts: dict[str, Part], targets: Sequence[str], *, against_row: bool) -> Figure:
    """For each target the residuals' histogram, and below it the residuals one by one."""
    count = len(targets)
    figure = Figure(figsize=(max(3.6 * count, 5), 5.6), layout="constrained")
    upper, lower = figure.subplots(2, count, squeeze=False)
    for index, target in enumerate(targets):
        for name, (centres, share) in residual_shares(parts, index).items():
            upper[index].step(
                centres, share, where="mid", color=COLOURS[name], label=f"{name} rows"
            )
        upper[index].set(title=_shown(target), xlabel="measured − predicted", ylim=(0, None))
        for name, part in parts.items():
            x = part.rows + 1 if against_row else part.predicted[:, index]
            _dots(lower[index], name, x, part.residuals[:, index])
        lower[index].axhline(0, color="0.4", lw=1, ls=":")
        lower[index].set(xlabel="row" if against_row else "predicted")
        for axes in (upper[index], lower[index]):
            axes.grid(True, alpha=0.25)
    upper[0].set_ylabel("share of the rows")
    lower[0].set_ylabel("measured − predicted")
    upper[0].legend(fontsize="small")
    return figure


def bars(named: Sequence[tuple[str, float, str]], unit: str) -> Figure:
    """Bounds by name, value and colour, per `unit`, on a log axis, which has no place for zeros."""
    figure = Figure(figsize=(6.4, 0.9 + 0.42 * len(named)), layout="constrained")
    axes = figure.subplots()
    if not named:
        axes.set_axis_off()
        axes.text(0.5, 0.5, CONSTANT, ha="center", va="center")
        return figure
    names, values, colours = zip(*named, strict=True)
    drawn = axes.barh(names, values, color=colours)
    axes.bar_label(drawn, [f"{value:.4g}" for value in values], padding=4)
    axes.invert_yaxis()
    axes.set_xscale("log")
    # Room for the numbers behind the bars, and for the shortest bar itself.
    axes.set_xlim(min(values) / 3, max(values) * (max(values) / min(values) * 10) ** 0.2)
    axes.set_xlabel(f"units of the outputs per {unit}")
    return figure


def slices(cut: Slices) -> Figure:
    """The learned function along each input: a block of panels for each output."""
    columns = min(4, len(cut.inputs))
    rows = -(-len(cut.inputs) // columns)
    size = (2.6 * columns, 1.9 * rows * len(cut.outputs) + 0.3)
    whole = Figure(figsize=size, layout="constrained")
    blocks = np.asarray(whole.subfigures(len(cut.outputs), 1, squeeze=False))[:, 0]
    for output, block in enumerate(blocks):
        panels = block.subplots(rows, columns, sharey=True, squeeze=False).flat
        for index, axes in enumerate(panels):
            if index >= len(cut.inputs):
                axes.set_visible(False)
                continue
            axes.plot(cut.grid[index], cut.values[index, :, output], color=ANGLE)
            axes.set_xlabel(_shown(cut.inputs[index]))
            axes.grid(True, alpha=0.25)
        block.supylabel(_shown(cut.outputs[output]))
    return whole


def confusion(labels: Sequence[Any], counts: np.ndarray) -> Figure:
    """Test rows by their class and by the class they were taken for."""
    counts = np.asarray(counts)
    side = float(np.clip(0.6 * len(labels) + 1.6, 3.4, 12))
    figure = Figure(figsize=(side + 0.8, side), layout="constrained")
    axes = figure.subplots()
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(share, vmin=0, vmax=1, cmap="cividis")
    names = [_shown(str(label)) for label in labels]
    axes.set_xticks(range(len(names)), names, rotation=90 if max(map(len, names)) > 4 else 0)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="predicted class", ylabel="class")
    if len(names) <= 20:
        write_cells(axes, image, share, counts.astype(str))
    figure.colorbar(image, ax=axes, label="share of the class")
    return figure


def _grid(titles: Sequence[str], columns: int) -> tuple[Figure, list[Axes]]:
    rows, columns = -(-len(titles) // columns), min(columns, len(titles))
    figure = Figure(figsize=(max(3.6 * columns, 5), 3.4 * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels[len(titles) :]:
        axes.set_visible(False)
    for axes, title in zip(panels, titles, strict=False):
        axes.set_title(_shown(title))
        axes.grid(True, alpha=0.25)
    return figure, panels[: len(titles)]


def _dots(axes: Axes, name: str, x: np.ndarray, y: np.ndarray) -> None:
    picked = evenly(len(x), DOTS)
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


def _legend(axes: Axes) -> None:
    for handle in axes.legend(fontsize="small", markerscale=3).legend_handles:
        if handle is not None:
            handle.set_alpha(1)


def _shown(name: str) -> str:
    """A column's name as it is: a dollar would start a formula."""
    return name.replace("$", r"\$")
