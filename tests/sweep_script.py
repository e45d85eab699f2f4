"""A small sweep that `test_sweep.py` runs as its own process, to kill it."""

import sys
from pathlib import Path

from greatcircle.datasets import ground_effect
from greatcircle.experiments.run import Job
from greatcircle.experiments.sweep import Store, sweep

JOBS = [
    Job("steepest", step, "paper", "paper", (width,), 4, seed)
    for step in ("curvature", "closed-form")
    for width in (3, 5)
    for seed in range(3)
]


def table():
    return ground_effect.generate(400)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    sweep(table(), JOBS, Store(folder / "runs.jsonl"), workers=2, cache=folder.parent / "compiled")
