"""The demo: the paper's network on generated flight data, trained by its methods and by `auto`."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from greatcircle._runtime import versions
from greatcircle.data.table import Table
from greatcircle.experiments.run import PAPER_HIDDEN, Run, job_of, train
from greatcircle.figures import files as figure_files
from greatcircle.figures.learning_curves import learning_curves
from greatcircle.figures.tables import LearningCurves
from greatcircle.optimise.record import Record

__all__ = ["HEADINGS", "METHODS", "demo", "files", "results", "table_rows"]

METHODS: dict[str, tuple[str, int]] = {
    "ad": ("Method 1 (AD)", 200),
    "mm": ("Method 2 (MM)", 1000),
    "auto": ("auto", 200),
}
"""Title and maximum number of iterations of each method."""

HEADINGS = ("", "train RMS", "test RMS", "steps", "seconds", "∏μ", "∏‖W‖₂")


def demo(table: Table, *, seed: int, progress: Callable[[str, Record], None]) -> dict[str, Run]:
    """Train by each method; `progress` is called with the method and the record."""
    return {
        name: train(
            table,
            job_of(name, PAPER_HIDDEN, iterations, seed),
            lambda record, name=name: progress(name, record),
        )
        for name, (_, iterations) in METHODS.items()
    }


def results(runs: Mapping[str, Run], *, data: str, seed: int) -> dict[str, Any]:
    """Return the content of `results.json`, with the keys of `reference.json`."""
    methods = {
        method: {
            "iterations": run.iterations,
            "train_rms": [run.train_rms, 0.0],
            "test_rms": [run.test_rms, 0.0],
            "seconds": [run.seconds, 0.0],
            "setup_seconds": run.setup_seconds,
            "lipschitz_a_priori": run.bound_a_priori,
            "lipschitz": run.bound,
            "outcome": run.outcome,
        }
        for method, run in runs.items()
    }
    return {
        "source": f"greatcircle {versions.versions()['greatcircle']}, demo",
        "machine": versions.machine(f"on {jax.default_backend()}", "float32"),
        "data": data,
        "units": "RMS in N; Lipschitz bounds in N per unit of x/|x|; for auto, per standard "
        "deviation of the inputs",
        "experiment_1": {"layers": [12, *PAPER_HIDDEN, 3], "seeds": 1, "seed": seed, **methods},
    }


def table_rows(runs: Mapping[str, Run], paper: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row of text for each run, followed by the paper's numbers."""
    rows = []
    for method, run in runs.items():
        errors, bounds = (run.train_rms, run.test_rms), (run.bound_a_priori, run.bound)
        rows.append(
            (
                METHODS[method][0],
                *(f"{error:.3f}" for error in errors),
                str(run.iterations),
                f"{run.seconds:.1f}",
                *(f"{bound:.1f}" for bound in bounds),
            )
        )
        if method in paper:
            theirs = paper[method]
            spreads = (theirs["train_rms"], theirs["test_rms"])
            errors = (f"{mean:.3f} ± {deviation:.3f}" for mean, deviation in spreads)
            seconds = f"{theirs['seconds'][0]:.1f}"
            rows.append(("  paper", *errors, str(theirs["iterations"]), seconds, "–", "–"))
    return rows


def files(runs: Mapping[str, Run], summary: dict[str, Any]) -> dict[str, bytes]:
    """Return `results.json` and the figure as PNG and PDF."""
    curves = [
        LearningCurves(
            METHODS[method][0],
            run.train_objective[np.newaxis],
            run.test_objective[np.newaxis],
            run.angle[np.newaxis],
        )
        for method, run in runs.items()
    ]
    figure = figure_files.encode(learning_curves(curves))
    return {
        "results.json": (json.dumps(summary, indent=2) + "\n").encode("utf-8"),
        **{f"learning_curves{suffix}": data for suffix, data in figure.items()},
    }
