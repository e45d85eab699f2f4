"""Grids of results beside the paper's, as Matplotlib heatmaps: the paper's Figure 2."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from greatcircle._runtime.extras import require
from greatcircle.figures.style import empty_figure
from greatcircle.figures.tables import GridComparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

__all__ = ["heatmaps", "write_cells"]


def heatmaps(grids: Sequence[GridComparison]) -> "Figure":
    """Draw one row of panels per quantity: ours, the paper's, and their difference."""
    figure = empty_figure(13, 3.4 * len(grids))
    for row, grid in zip(figure.subplots(len(grids), 3, squeeze=False), grids, strict=True):
        for axes, (title, cells) in zip(row, grid.panels.items(), strict=True):
            image = axes.imshow(cells, origin="lower", aspect="auto", **_colours(grid, title))
            axes.set_title(f"{title}, {grid.label} [{grid.unit}]")
            axes.set_xticks(range(len(grid.widths)), grid.widths)
            axes.set_yticks(range(len(grid.depths)), grid.depths)
            axes.set(xlabel="width", ylabel="depth")
            write_cells(axes, image, cells, grid.texts(title))
            figure.colorbar(image, ax=axes)
    return figure


def _colours(grid: GridComparison, title: str) -> dict[str, Any]:
    """Return the colour scale: one for ours and the paper's, another centred at zero."""
    if title == "ours − paper":
        limit = grid.largest_difference
        return {"vmin": -limit, "vmax": limit, "cmap": "RdBu_r"}
    colors = require("matplotlib.colors", "app", "drawing figures")
    norm = (colors.LogNorm if grid.log else colors.Normalize)(*grid.value_range)
    return {"norm": norm, "cmap": "cividis_r"}


def write_cells(
    axes: "Axes", image: "AxesImage", cells: np.ndarray, texts: Sequence[Sequence[str]]
) -> None:
    """Write a text into each cell, light on dark and dark on light."""
    for (i, j), value in np.ndenumerate(cells):
        red, green, blue, _ = image.cmap(image.norm(value))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        axes.text(j, i, texts[i][j], ha="center", va="center", color="white" if dark else "black")
