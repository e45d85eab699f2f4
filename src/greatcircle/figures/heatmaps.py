"""Grids of results beside the paper's, as Matplotlib heatmaps: the paper's Figure 2."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

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
    from matplotlib.colors import LogNorm, Normalize

    norm = (LogNorm if grid.log else Normalize)(*grid.value_range)
    return {"norm": norm, "cmap": "cividis_r"}


def write_cells(
    axes: "Axes", image: "AxesImage", cells: np.ndarray, texts: Sequence[Sequence[str]]
) -> None:
    """Write a text into each cell, light on dark and dark on light."""
    brightness = image.to_rgba(cells)[..., :3] @ [0.299, 0.587, 0.114]
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            colour = "white" if brightness[i, j] < 0.5 else "black"
            axes.text(j, i, text, ha="center", va="center", color=colour)
