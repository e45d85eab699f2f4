"""Figures in the manner of the paper's, drawn with Matplotlib and saved as PNG and PDF."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import LogFormatterSciNotation, LogLocator, MaxNLocator

# Okabe and Ito's colours: told apart by everyone, and in grey.
TRAIN, TEST, ANGLE = "#0072B2", "#D55E00", "#009E73"

COLOURS = {"train": TRAIN, "test": TEST}

CONSTANT = "The network is constant: every bound is 0."


@dataclass(frozen=True)
class Panel:
    """One method's learning curves: a row for each seed."""

    title: str
    train: np.ndarray
    """Objective before the first iteration and after each."""
    test: np.ndarray | None
    """The same of the second curve; None draws none."""
    angle: np.ndarray
    """Of each iteration."""
    names: tuple[str, str] = field(default=("training objective", "test objective"), kw_only=True)
    axis: str = field(default="objective (scaled data)", kw_only=True)


def learning_curves(panels: Sequence[Panel]) -> Figure:
    """The paper's Figure 1: objectives on a log axis, the angle on the second axis.

    With several seeds, lines are means and bands are one standard deviation.
    """
    figure = Figure(figsize=(5.6 * len(panels), 3.8), layout="constrained")
    for axes, panel in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels, strict=True):
        other = axes.twinx()
        iterations = np.arange(panel.train.shape[1])
        _curve(other, iterations[1:], panel.angle, ANGLE, "angle", thin=True)
        _curve(axes, iterations, panel.train, TRAIN, panel.names[0])
        if panel.test is not None:
            _curve(axes, iterations, panel.test, TEST, panel.names[1], dashed=True)
        for a in (axes, other):
            # A network that fits from the start has zeros alone, which have no logarithm.
            if any(np.any(line.get_ydata() > 0) for line in a.get_lines()):
                a.set_yscale("log")
                _label_between_powers_of_ten(a)
        # The objectives belong on top of the angle, whose axis is drawn later.
        axes.set_zorder(other.get_zorder() + 1)
        axes.patch.set_visible(False)
        axes.set_title(panel.title)
        axes.set_xlabel("iteration")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylabel(panel.axis)
        axes.margins(x=0.02)
        axes.grid(True, which="major", alpha=0.25)
        other.set_ylabel("angle [rad]", color=ANGLE)
        other.tick_params(axis="y", which="both", colors=ANGLE)
        lines = [*axes.get_lines(), *other.get_lines()]
        axes.legend(lines, [str(line.get_label()) for line in lines], loc="upper right")
    return figure


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write the figure as PNG and PDF; the paths written."""
    paths = []
    for suffix, data in drawn(figure).items():
        paths.append(stem.with_suffix(suffix))
        paths[-1].write_bytes(data)
    return paths


def drawn(figure: Figure) -> dict[str, bytes]:
    """The figure as a PNG and a PDF file, by suffix."""
    files = {}
    for suffix in (".png", ".pdf"):
        file = io.BytesIO()
        # No date in the PDF: the same run gives the same file.
        metadata = {"CreationDate": None} if suffix == ".pdf" else {}
        figure.savefig(file, format=suffix[1:], dpi=150, metadata=metadata)
        figure.set_layout_engine("none")  # laid out once: it takes longer than drawing
        files[suffix] = file.getvalue()
    return files


def _label_between_powers_of_ten(axes: Axes) -> None:
    """Objectives often stay within one decade, where powers of ten alone would say nothing."""
    low, high = axes.get_ylim()
    if high / low < 10:
        axes.yaxis.set_minor_locator(LogLocator(subs=(1.2, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)))
        axes.yaxis.set_minor_formatter(
            LogFormatterSciNotation(labelOnlyBase=False, minor_thresholds=(np.inf, np.inf))
        )


def _curve(
    axes: Axes,
    x: np.ndarray,
    rows: np.ndarray,
    colour: str,
    label: str,
    *,
    dashed: bool = False,
    thin: bool = False,
) -> None:
    mean, spread = rows.mean(axis=0), rows.std(axis=0)
    style, width = "--" if dashed else "-", 0.7 if thin else 1.6
    axes.plot(x, mean, style, color=colour, linewidth=width, label=label)
    if len(rows) > 1:
        # On a log axis the band must stay positive.
        low = np.maximum(mean - spread, 0.1 * mean)
        axes.fill_between(x, low, mean + spread, color=colour, alpha=0.2, linewidth=0)


def heatmaps(
    ours: Mapping[str, Any], paper: Mapping[str, Any], quantities: Mapping[str, str]
) -> Figure:
    """The paper's Figure 2: a row for each quantity; ours, the paper's, and their difference.

    Both arguments have the layout of `experiment_2` in the paper's `reference.json`.
    """
    figure = Figure(figsize=(13, 3.4 * len(quantities)), layout="constrained")
    for row, (name, label) in zip(
        figure.subplots(len(quantities), 3, squeeze=False), quantities.items(), strict=True
    ):
        mine, theirs = (np.array(x[name], np.float64) for x in (ours, paper))
        together = np.concatenate([mine.ravel(), theirs.ravel()])
        scale = {"vmin": np.nanmin(together), "vmax": np.nanmax(together), "cmap": "cividis_r"}
        difference = mine - theirs
        reach = np.nanmax(np.abs(difference))
        centred = {"vmin": -reach, "vmax": reach, "cmap": "RdBu_r"}
        titles = (f"{label}, here", f"{label}, paper", "here − paper")
        values, styles = (mine, theirs, difference), (scale, scale, centred)
        for axes, title, cells, style in zip(row, titles, values, styles, strict=True):
            image = axes.imshow(cells, origin="lower", aspect="auto", **style)
            axes.set_title(title)
            axes.set_xticks(range(len(ours["widths"])), ours["widths"])
            axes.set_yticks(range(len(ours["depths"])), ours["depths"])
            axes.set_xlabel("width")
            axes.set_ylabel("depth")
            form = "{:.1f}" if name == "seconds" else "{:.3f}"
            write_cells(axes, image, cells, np.vectorize(form.format)(cells))
            figure.colorbar(image, ax=axes)
    return figure


def write_cells(axes: Axes, image: AxesImage, cells: np.ndarray, texts: np.ndarray) -> None:
    """Into each cell its text, light on dark and dark on light."""
    for (i, j), value in np.ndenumerate(cells):
        red, green, blue, _ = image.cmap(image.norm(value))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        colour = "white" if dark else "black"
        axes.text(j, i, str(texts[i, j]), ha="center", va="center", color=colour)
