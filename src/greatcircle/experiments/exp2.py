"""Experiment 2 of the paper: one method over a grid of widths and depths."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from greatcircle.experiments.sweep import Job, Row
from greatcircle.figures.tables import GridComparison
from greatcircle.training.methods import METHODS

WIDTHS = (15, 20, 25, 30, 35)
DEPTHS = (4, 6, 8, 10, 12)
ITERATIONS = 200
SEEDS = 40
QUANTITIES = {"train_rms": "train RMS [N]", "test_rms": "test RMS [N]", "seconds": "time [s]"}


def jobs(
    seeds: int,
    *,
    direction: str = "steepest",
    step: str = "curvature",
    start: str = "paper",
    scaling: str = "paper",
    iterations: int = ITERATIONS,
    tol: float = 0.0,
) -> list[Job]:
    """All runs, one shape after the other; depth counts weight matrices."""
    return [
        Job(direction, step, start, scaling, (width,) * (depth - 1), iterations, seed, tol)
        for depth in DEPTHS
        for width in WIDTHS
        for seed in range(seeds)
    ]


def summary(rows: Mapping[Job, Row]) -> dict[str, Any]:
    """Means over the seeds, in the layout of the paper's `reference.json`.

    A cell without a finished run is null.
    """
    cells: dict[tuple[int, int], list[Row]] = {}
    for job, row in rows.items():
        if "result" in row:
            cells.setdefault((len(job.hidden) + 1, job.hidden[0]), []).append(row["result"])

    def grid(name: str) -> list[list[float | None]]:
        return [
            [
                float(np.mean([r[name] for r in cells[depth, width]]))
                if (depth, width) in cells
                else None
                for width in WIDTHS
            ]
            for depth in DEPTHS
        ]

    first = next(iter(rows))
    parts = {name: getattr(first, name) for name in ("direction", "step", "start")}
    named = (name for name, m in METHODS.items() if m[:3] == tuple(parts.values()))
    return {
        "method": next(named, " + ".join(parts.values())),
        **parts,
        "scaling": first.scaling,
        "iterations": first.iterations,
        "seeds": max(map(len, cells.values()), default=0),
        "widths": list(WIDTHS),
        "depths": list(DEPTHS),
        "comment": "rows follow depths, columns follow widths; depth counts weight matrices",
        **{name: grid(name) for name in QUANTITIES},
    }


def grids(ours: Mapping[str, Any], paper: Mapping[str, Any]) -> list[GridComparison]:
    """Return ours and the paper's values of each quantity; both from `summary` or the paper."""
    tables = []
    for name, title in QUANTITIES.items():
        label, _, unit = title.rstrip("]").partition(" [")
        values = (np.array(numbers[name], np.float64) for numbers in (ours, paper))
        log = name == "seconds"
        tables.append(GridComparison(label, unit, ours["depths"], ours["widths"], *values, log=log))
    return tables
