"""Matplotlib figures: paths, tracking error with its bound, touchdown errors."""

from pathlib import Path

from matplotlib.figure import Figure

import plot_data
from greatcircle.figures.files import save
from study import TITLES, Study, metrics

__all__ = ["write"]

STYLES = {"dash": "--", "dot": ":", "solid": "-", "dashdot": "-."}
SHOWN = ("baseline", "compensated")
PATHS = 40
"""Number of landings whose paths are drawn."""


def write(folder: Path, study: Study) -> list[Path]:
    """Write all figures as PNG and PDF; return their paths."""
    drawn = {"paths": paths(study), "tracking": tracking(study), "touchdown": touchdown(study)}
    return [path for name, figure in drawn.items() for path in save(figure, folder / name)]


def paths(study: Study) -> Figure:
    """Draw a side view of the approach and of its last centimetres."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    whole, last = figure.subplots(1, 2)
    planned = plot_data.planned_path(study)
    for axes in (whole, last):
        for name in SHOWN:
            flight = study.flights[name]
            for index in range(min(PATHS, len(flight.touchdown.time))):
                _, x, z, _ = plot_data.trajectory(flight, index).T
                label = TITLES[name] if index == 0 else None
                axes.plot(
                    x, z, color=plot_data.COLOURS[name], linewidth=0.6, alpha=0.6, label=label
                )
        axes.plot(*planned.T, "--", color="black", linewidth=1.2, label="reference")
        axes.axhline(study.approach.standing_height, color=plot_data.BOUND, linewidth=1)
        axes.set_xlabel("x [m]")
        axes.set_ylabel("height of the centre [m]")
        axes.grid(True, alpha=0.25)
    last.set_xlim(-0.25, 0.25)
    last.set_ylim(0.1, 0.4)
    whole.set_title("approach")
    last.set_title("above the pad")
    legend = whole.legend()
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1)
    return figure


def tracking(study: Study) -> Figure:
    """Draw the tracking error over time, and the bound for the compensated controller."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for name in SHOWN:
        e, colour = plot_data.errors(study.flights[name]), plot_data.COLOURS[name]
        title, style = TITLES[name], STYLES[plot_data.DASHES[name]]
        axes.plot(e.time, e.median, style, color=colour, label=f"{title}, median")
        axes.fill_between(
            e.time,
            e.median,
            e.largest,
            color=colour,
            alpha=0.15,
            label=f"{title}, up to the largest",
        )
    e = plot_data.errors(study.flights["compensated"])
    bound = study.bounds["compensated"].error(e.time)
    axes.plot(e.time, bound, color="black", linewidth=2, label="bound, compensated")
    axes.set_yscale("log")
    axes.set_ylim(3e-3, 1)
    axes.set_xlabel("time [s]")
    axes.set_ylabel("tracking error ‖e‖ [m]")
    axes.grid(True, which="both", alpha=0.2)
    axes.legend(fontsize="small", ncols=2, loc="lower left")
    return figure


def touchdown(study: Study) -> Figure:
    """Draw the cumulative distribution of the touchdown error."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, flight in study.flights.items():
        error = metrics(flight, study.approach)["touchdown_error"]
        x, share = plot_data.shares(error)
        style = STYLES[plot_data.DASHES[name]]
        axes.plot(100 * x, share, style, color=plot_data.COLOURS[name], label=TITLES[name])
    axes.set_xlabel("touchdown error [cm]")
    axes.set_ylabel("share of the landings")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.02)
    axes.grid(True, alpha=0.25)
    axes.legend()
    return figure
