"""Experiment 2 of the paper: one method for a grid of widths and depths."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from greatcircle.experiments.run import Job
from greatcircle.experiments.sweep import Row
from greatcircle.figures.tables import GridComparison
from greatcircle.training.methods import METHODS

__all__ = ["DEPTHS", "ITERATIONS", "QUANTITIES", "SEEDS", "WIDTHS", "grids", "jobs", "summary"]

WIDTHS = (15, 20, 25, 30, 35)
DEPTHS = (4, 6, 8, 10, 12)
ITERATIONS = 200
SEEDS = 40
QUANTITIES = {
    "train_rms": ("train RMS", "N"),
    "test_rms": ("test RMS", "N"),
    "seconds": ("time", "s"),
}
"""Label and unit of each quantity."""


def jobs(settings: Job, seeds: int) -> list[Job]:
    """Return the runs of all shapes with each seed; depth counts weight matrices."""
    return [
        replace(settings, hidden=(width,) * (depth - 1), seed=seed)
        for depth in DEPTHS
        for width in WIDTHS
        for seed in range(seeds)
    ]


def summary(rows: Mapping[Job, Row]) -> dict[str, Any]:
    """Return means over the seeds with the keys of `reference.json`; null without a result."""
    cells: dict[tuple[int, int], list[Row]] = {}
    for job, row in rows.items():
        if "result" in row:
            cells.setdefault((len(job.hidden) + 1, job.hidden[0]), []).append(row["result"])

    def mean(name: str, depth: int, width: int) -> float | None:
        results = cells.get((depth, width))
        return float(np.mean([r[name] for r in results])) if results else None

    first = next(iter(rows))
    parts = {name: getattr(first, name) for name in ("direction", "step", "start")}
    methods = (name for name, m in METHODS.items() if m[:3] == tuple(parts.values()))
    return {
        "method": next(methods, " + ".join(parts.values())),
        **parts,
        "scaling": first.scaling,
        "iterations": first.iterations,
        "seeds": max(map(len, cells.values()), default=0),
        "widths": list(WIDTHS),
        "depths": list(DEPTHS),
        "comment": "rows follow depths, columns follow widths; depth counts weight matrices",
        **{
            name: [[mean(name, depth, width) for width in WIDTHS] for depth in DEPTHS]
            for name in QUANTITIES
        },
    }


def grids(ours: Mapping[str, Any], paper: Mapping[str, Any]) -> dict[str, GridComparison]:
    """Return each quantity for all shapes beside the paper's, as in Figure 2."""
    return {
        name: GridComparison(
            label,
            unit,
            DEPTHS,
            WIDTHS,
            np.array(ours[name], np.float64),
            np.array(paper[name], np.float64),
            log=name == "seconds",
        )
        for name, (label, unit) in QUANTITIES.items()
    }
