"""Experiment 1 of the paper: learning curves of both methods for one network."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from greatcircle.experiments.run import PAPER_HIDDEN, Job, job_of
from greatcircle.experiments.sweep import Row
from greatcircle.figures.tables import LearningCurves
from greatcircle.training.methods import METHODS

__all__ = ["HEADINGS", "ITERATIONS", "SEEDS", "TITLES", "curves", "jobs", "summary", "table_rows"]

ITERATIONS = {"ad": 200, "mm": 3000}
SEEDS = 40
TITLES = {"ad": "Method 1 (AD)", "mm": "Method 2 (MM)"}
HEADINGS = ("", "train RMS", "test RMS", "seconds", "steps", "seeds")


def jobs(
    methods: Sequence[str], seeds: int, iterations: Mapping[str, int] = ITERATIONS
) -> list[Job]:
    """Return all runs: each method with each seed."""
    return [
        job_of(method, PAPER_HIDDEN, iterations[method], seed)
        for method in methods
        for seed in range(seeds)
    ]


def summary(rows: Mapping[Job, Row], layers: Sequence[int]) -> dict[str, Any]:
    """Return Table 1 with the keys of `reference.json`."""
    methods = _by_method(rows)
    return {
        "layers": list(layers),
        "seeds": max(map(len, methods.values()), default=0),
        **{method: _summary_of(results) for method, results in methods.items()},
    }


def table_rows(ours: Mapping[str, Any], paper: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows of Table 1 as text: each method, followed by the paper's numbers."""
    return [
        (title, *_text(numbers[method], numbers["seeds"]))
        for method in TITLES
        if method in ours
        for title, numbers in ((TITLES[method], ours), ("  paper", paper))
    ]


def curves(rows: Mapping[Job, Row]) -> dict[str, LearningCurves]:
    """Return the learning curves of each method, one row per seed, as in Figure 1.

    A run that ended early keeps its last value.
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
        for method, results in _by_method(rows).items()
    }


def _by_method(rows: Mapping[Job, Row]) -> dict[str, list[Row]]:
    """Return the results of each method, without failed runs."""
    names: dict[Any, str] = {METHODS[name].step: name for name in ITERATIONS}
    grouped: dict[str, list[Row]] = {}
    for job, row in rows.items():
        if "result" in row:
            grouped.setdefault(names[job.step], []).append(row["result"])
    return grouped


def _summary_of(results: Sequence[Row]) -> dict[str, Any]:
    """Return one row of Table 1: mean and standard deviation over the seeds."""

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


def _text(method: Mapping[str, Any], seeds: int) -> tuple[str, ...]:
    errors = [f"{method[k][0]:.4f} ± {method[k][1]:.4f}" for k in ("train_rms", "test_rms")]
    seconds = f"{method['seconds'][0]:.1f} ± {method['seconds'][1]:.1f}"
    return *errors, seconds, str(method["iterations"]), str(method.get("seeds", seeds))
