"""The main job: the paper's network on generated flight data, by its methods and by ours."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from greatcircle._runtime import versions as provenance
from greatcircle.datasets import Table
from greatcircle.experiments.run import PAPER_HIDDEN, Run, train
from greatcircle.figures import files
from greatcircle.figures.learning_curves import learning_curves
from greatcircle.figures.tables import LearningCurves
from greatcircle.optimise.record import Record
from greatcircle.training import methods

METHODS: dict[str, tuple[str, int]] = {
    "ad": ("Method 1 (AD)", 200),
    "mm": ("Method 2 (MM)", 1000),
    "auto": ("auto", 200),
}
"""Title and most iterations of each method."""

Progress = Callable[[str, Record], None]


def demo(table: Table, *, seed: int, progress: Progress) -> dict[str, Run]:
    """Train by each method; `progress` is called with the method and the record."""
    runs = {}
    for name, (_, iterations) in METHODS.items():
        method = methods.METHODS[name]
        runs[name] = train(
            table,
            direction=methods.DIRECTIONS[method.direction],
            step=methods.STEPS[method.step],
            start=methods.STARTS[method.start],
            scaling=method.scaling,
            tol=method.tol,
            iterations=iterations,
            seed=seed,
            progress=lambda record, name=name: progress(name, record),
        )
    return runs


def results(runs: dict[str, Run], *, data: str, seed: int, version: str) -> dict[str, Any]:
    """What happened, in the layout of the paper's `reference.json`."""
    outcome = {
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
        "source": f"greatcircle {version}, demo",
        "machine": provenance.machine(f"on {jax.default_backend()}", "float32"),
        "data": data,
        "units": "RMS in N; Lipschitz bounds in N per unit of x/|x|; for auto, per standard "
        "deviation of the inputs",
        "experiment_1": {"layers": [12, *PAPER_HIDDEN, 3], "seeds": 1, "seed": seed, **outcome},
    }


def write(folder: Path, runs: dict[str, Run], summary: dict[str, Any]) -> list[Path]:
    """`results.json` and the figure as PNG and PDF; the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.json"
    path.write_text(json.dumps(summary, indent=2) + "\n", "utf-8")
    panels = [
        LearningCurves(
            METHODS[method][0],
            run.train_objective[np.newaxis],
            run.test_objective[np.newaxis],
            run.angle[np.newaxis],
        )
        for method, run in runs.items()
    ]
    return [path, *files.save(learning_curves(panels), folder / "learning_curves")]
