"""The landing on paper: paths, tracking error against its bound, where they touch."""

from pathlib import Path

from matplotlib.figure import Figure

from greatcircle.experiments.landing import curves, study
from greatcircle.experiments.landing.study import Study
from greatcircle.figures.files import save

STYLES = {"dash": "--", "dot": ":", "solid": "-", "dashdot": "-."}
SHOWN = ("baseline", "compensated")
PATHS = 40
"""Landings whose paths are drawn."""


def write(folder: Path, done: Study) -> list[Path]:
    """All figures as PNG and PDF; the files written."""
    drawn = {"paths": paths(done), "tracking": tracking(done), "touchdown": touchdown(done)}
    return [path for name, figure in drawn.items() for path in save(figure, folder / name)]


def paths(done: Study) -> Figure:
    """Side view: the whole approach, and the last centimetres."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    whole, last = figure.subplots(1, 2)
    planned = curves.plan(done)
    for axes in (whole, last):
        for name in SHOWN:
            flight = done.flights[name]
            for index in range(min(PATHS, len(flight.touchdown.time))):
                _, x, z, _ = curves.way(flight, index).T
                label = study.TITLES[name] if index == 0 else None
                axes.plot(x, z, color=curves.COLOURS[name], linewidth=0.6, alpha=0.6, label=label)
        axes.plot(*planned.T, "--", color="black", linewidth=1.2, label="plan")
        axes.axhline(done.approach.standing_height, color=curves.BOUND, linewidth=1)
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


def tracking(done: Study) -> Figure:
    """Tracking error over time on a log axis, and the bound of the compensated controller."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for name in SHOWN:
        e, colour = curves.errors(done.flights[name]), curves.COLOURS[name]
        title, style = study.TITLES[name], STYLES[curves.DASHES[name]]
        axes.plot(e.time, e.median, style, color=colour, label=f"{title}, median")
        axes.fill_between(
            e.time,
            e.median,
            e.largest,
            color=colour,
            alpha=0.15,
            label=f"{title}, up to the largest",
        )
    e = curves.errors(done.flights["compensated"])
    bound = done.bounds["compensated"].error(e.time)
    axes.plot(e.time, bound, color="black", linewidth=2, label="bound, compensated")
    axes.set_yscale("log")
    axes.set_ylim(3e-3, 1)
    axes.set_xlabel("time [s]")
    axes.set_ylabel("tracking error ‖e‖ [m]")
    axes.grid(True, which="both", alpha=0.2)
    axes.legend(fontsize="small", ncols=2, loc="lower left")
    return figure


def touchdown(done: Study) -> Figure:
    """Which share of the landings touches how near to the pad."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, flight in done.flights.items():
        error = study.measured(flight, done.approach)["touchdown_error"]
        x, share = curves.shares(error)
        style = STYLES[curves.DASHES[name]]
        axes.plot(100 * x, share, style, color=curves.COLOURS[name], label=study.TITLES[name])
    axes.set_xlabel("touchdown error [cm]")
    axes.set_ylabel("share of the landings with at most that")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.02)
    axes.grid(True, alpha=0.25)
    axes.legend()
    return figure
