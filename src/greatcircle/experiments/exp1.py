"""Experiment 1 of the paper: learning curves of both methods for one network."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from greatcircle.experiments.run import PAPER_HIDDEN
from greatcircle.experiments.sweep import Job, Row
from greatcircle.figures.tables import LearningCurves
from greatcircle.training.methods import METHODS

ITERATIONS = {"ad": 200, "mm": 3000}
SEEDS = 40
TITLES = {"ad": "Method 1 (AD)", "mm": "Method 2 (MM)"}


def jobs(
    methods: Sequence[str], seeds: int, iterations: Mapping[str, int] = ITERATIONS
) -> list[Job]:
    """All runs: each method with that many seeds."""
    return [
        Job(
            direction=METHODS[method].direction,
            step=METHODS[method].step,
            start=METHODS[method].start,
            scaling=METHODS[method].scaling,
            hidden=PAPER_HIDDEN,
            iterations=iterations[method],
            seed=seed,
        )
        for method in methods
        for seed in range(seeds)
    ]


def by_method(rows: Mapping[Job, Row]) -> dict[str, list[Row]]:
    """Results that ended well, for each method."""
    names = {METHODS[name].step: name for name in ITERATIONS}
    grouped: dict[str, list[Row]] = {}
    for job, row in rows.items():
        if "result" in row:
            grouped.setdefault(names[job.step], []).append(row["result"])
    return grouped


def summary(rows: Mapping[Job, Row], layers: Sequence[int]) -> dict[str, Any]:
    """Table 1, in the layout of the paper's `reference.json`."""
    methods = by_method(rows)
    return {
        "layers": list(layers),
        "seeds": max(map(len, methods.values()), default=0),
        **{method: method_summary(results) for method, results in methods.items()},
    }


def method_summary(results: Sequence[Row]) -> dict[str, Any]:
    """One row of Table 1: mean and standard deviation over the seeds."""

    def spread(name: str) -> list[float]:
        values = np.array([r[name] for r in results])
        return [float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0]

    return {
        "iterations": max(r["iterations"] for r in results),
        "seeds": len(results),
        "train_rms": spread("train_rms"),
        "test_rms": spread("test_rms"),
        "seconds": spread("seconds"),
        "lipschitz_a_priori": spread("bound_a_priori"),
        "lipschitz": spread("bound"),
        "halvings": sum(r["halvings"] for r in results),
        "rises": sum(int(np.sum(np.diff(r["train_objective"]) > 0)) for r in results),
    }


def panels(rows: Mapping[Job, Row]) -> dict[str, LearningCurves]:
    """Figure 1: a panel for each method, a row for each seed.

    A run that ended early stands still at its last value.
    """

    def stacked(results: Sequence[Row], name: str) -> np.ndarray:
        longest = max(len(r[name]) for r in results)
        return np.array([np.pad(r[name], (0, longest - len(r[name])), "edge") for r in results])

    return {
        method: LearningCurves(
            TITLES[method],
            *(stacked(results, n) for n in ("train_objective", "test_objective", "angle")),
            seeds=range(len(results)),
        )
        for method, results in by_method(rows).items()
    }
