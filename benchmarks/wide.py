"""Compare training on small batches with other optimisers, on wide networks and many rows.

    python benchmarks/wide.py tune --data FOLDER [--cases …] [--competitors …]
    python benchmarks/wide.py choose --data FOLDER [--cases …]
    python benchmarks/wide.py run --data FOLDER [--cases …] [--competitors …] [--seeds N]

`tune` trains Adam with each rate and batch size of a grid, and appends a row for each to
wide_tuned.jsonl. `choose` fits our estimators with the layers of each case, and appends what they
chose, the seconds of the whole fit and its test error to wide_chosen.jsonl. `run` trains all
competitors side by side in one process, a part of each in turn, and appends a row for each to
wide_rows.jsonl: CPU and wall seconds, and the test error after each part. Adam gets the settings
with the lowest test error, AdamW the same ones, and ours what held-out error chose. A competitor
ends once it has used five times the seconds of Adam. Rows that are there are not
measured again, so all can be interrupted and rerun. `wide_page.py` makes the page and the figure.
See `wide_cases.py` for the cases and `wide_peers.py` for the competitors, which need the extra
`[peers]` and torch==2.13.0.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contenders.contest import Layers
from contenders.ours import unscaled
from greatcircle import LipschitzClassifier, LipschitzRegressor
from greatcircle._runtime.threads import one_thread
from wide_cases import CASES, Case, load
from wide_peers import COMPETITORS, OURS, TUNED, Training

TUNED_ROWS = Path(__file__).with_name("wide_tuned.jsonl")
CHOSEN = Path(__file__).with_name("wide_chosen.jsonl")
ROWS = Path(__file__).with_name("wide_rows.jsonl")

MOST_SECONDS = 5
"""A competitor ends after this many times the seconds of Adam."""

RATES = tuple(float(f"{10 ** (k / 4):.2g}") for k in range(-15, -3))
"""Twelve learning rates, from 1.8e-4 to 0.1."""
BATCHES = (64, 256, 1024)

Row = dict[str, Any]


def outputs(layers: Layers, h: np.ndarray) -> np.ndarray:
    """Return the outputs of a ReLU network."""
    for w, b in layers[:-1]:
        h = np.maximum(h @ w + b, 0)
    return h @ layers[-1][0] + layers[-1][1]


def error(case: Case, layers: Layers) -> float:
    return case.error(outputs(layers, case.test_X))


class Part(NamedTuple):
    """A part of a training that was run."""

    fraction: float
    cpu: float
    wall: float
    layers: Callable[[], Layers]


def parts(training: Training) -> Iterator[Part]:
    """Yield the parts of a training with the seconds each took; the first is the set-up."""
    while True:
        cpu, wall = time.process_time(), time.perf_counter()
        found = next(training, None)
        if found is None:
            return
        yield Part(found[0], time.process_time() - cpu, time.perf_counter() - wall, found[1])


def read(path: Path) -> list[Row]:
    return list(map(json.loads, path.read_text().splitlines())) if path.exists() else []


def append(path: Path, row: Row) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def tune(names: Iterable[str], folder: Path) -> None:
    """Train with each rate and batch size that has no row yet."""
    done = {(r["case"], r["competitor"], r["rate"], r["batch"]) for r in read(TUNED_ROWS)}
    grid = [("Adam", rate, batch) for batch in BATCHES for rate in RATES]
    for name in names:
        todo = [point for point in grid if (name, *point) not in done]
        case = load(name, folder) if todo else None
        for competitor, rate, batch in todo:
            training = COMPETITORS[competitor](case, {"rate": rate, "batch": batch}, 0, case.passes)
            found = [error(case, part.layers()) for part in parts(training)]
            best = min(filter(np.isfinite, found), default=float("nan"))
            row = {"case": name, "competitor": competitor, "rate": rate, "batch": batch}
            append(TUNED_ROWS, row | {"best": best, "final": found[-1]})
            print(json.dumps(row), f"{best:.4f}", flush=True)


def best_settings(name: str) -> Row:
    """Return the rate and batch size with the lowest test error."""
    rows = [row for row in read(TUNED_ROWS) if row["case"] == name]
    if len(rows) < len(RATES) * len(BATCHES):
        raise SystemExit(f"Adam is not tuned for {name} yet: run wide.py tune")
    best = min(rows, key=lambda row: np.nan_to_num(row["best"], nan=np.inf))
    return {"rate": best["rate"], "batch": best["batch"]}


def choose(names: Iterable[str], folder: Path) -> None:
    """Fit our estimators, and append what they chose by held-out error."""
    done = {r["case"] for r in read(CHOSEN)}
    for name in names:
        if name in done:
            continue
        case = load(name, folder)
        kind = LipschitzRegressor if case.classes is None else LipschitzClassifier
        model = kind(case.hidden, ensemble=1, random_state=0)
        cpu, wall = time.process_time(), time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(case.X, case.y if case.classes or case.y.shape[1] > 1 else case.y[:, 0])
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        fitted, trained = model.model_, model.history_
        row = next(row for row in model.selection_.rows() if row.chosen)
        steps = sum(np.isnan(trained["slope"]))
        found = {
            "case": name,
            "gain": row.target_gain,
            "direction": row.direction,
            "steps": row.steps,
            "iterations": int(len(trained["loss"]) - steps),
            "cpu": round(cpu, 2),
            "wall": round(wall, 2),
            "error": error(case, unscaled(fitted.weights, fitted.scaling)),
        }
        append(CHOSEN, found)
        print(json.dumps(found), flush=True)


def chosen_settings(name: str) -> Row:
    """Return what `choose` has found."""
    rows = [row for row in read(CHOSEN) if row["case"] == name]
    if not rows:
        raise SystemExit(f"nothing was chosen for {name} yet: run wide.py choose")
    return {key: rows[0][key] for key in ("gain", "direction", "steps", "iterations")}


def compile_seconds(training: Training) -> tuple[float, float]:
    """Return CPU and wall seconds of the first part, beyond those of the second."""
    _, first, second = (next(parts(training), None) for _ in range(3))
    after = (second.cpu, second.wall) if second else (0.0, 0.0)
    return max(first.cpu - after[0], 0.0), max(first.wall - after[1], 0.0)


def race(name: str, case: Case, competitors: list[str], seed: int) -> None:
    """Train all competitors in turn, whichever is behind first, and append their rows."""
    settings: dict[str, Row] = {c: best_settings(name) for c in competitors if c in TUNED}
    settings = {c: {} for c in competitors} | settings
    settings |= {c: chosen_settings(name) for c in competitors if c in OURS}

    def training(competitor: str) -> Training:
        return COMPETITORS[competitor](case, settings[competitor], seed, case.passes)

    compiled = {c: compile_seconds(training(c)) for c in competitors}
    running = {c: parts(training(c)) for c in competitors}
    curves: dict[str, list[tuple[float, float, float, float]]] = {c: [] for c in competitors}
    while running:
        behind = min(running, key=lambda c: curves[c][-1][0] if curves[c] else -1.0)
        part = next(running[behind], None)
        if part is None:
            del running[behind]
            continue
        curve = curves[behind]
        cpu, wall = curve[-1][1:3] if curve else (0.0, 0.0)
        found = error(case, part.layers())
        curve.append((part.fraction, cpu + part.cpu, wall + part.wall, found))
        adam = np.inf if "Adam" in running or not curves.get("Adam") else curves["Adam"][-1][1]
        if curve[-1][1] > MOST_SECONDS * max(adam, 1.0):
            del running[behind]
    for competitor, curve in curves.items():
        row = {
            "case": name,
            "competitor": competitor,
            "seed": seed,
            **settings[competitor],
            "compile_cpu": round(compiled[competitor][0], 3),
            "compile_wall": round(compiled[competitor][1], 3),
            "curve": [[float(f"{value:.5g}") for value in point] for point in curve],
        }
        append(ROWS, row)
        last = curve[-1]
        print(f"{name}, {competitor}, seed {seed}: {last[3]:.4f} in {last[1]:.2f} s", flush=True)


def run(names: Iterable[str], competitors: list[str], folder: Path, seeds: int) -> None:
    for seed in range(seeds):
        for name in names:
            done = {(r["case"], r["competitor"], r["seed"]) for r in read(ROWS)}
            todo = [c for c in competitors if (name, c, seed) not in done]
            if todo:
                race(name, load(name, folder), todo, seed)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["tune", "choose", "run"])
    parser.add_argument("--data", type=Path, default=os.environ.get("GREATCIRCLE_DATA"))
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--competitors", nargs="+", choices=list(COMPETITORS))
    parser.add_argument("--seeds", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    with one_thread():
        if given.task == "tune":
            tune(given.cases, given.data)
        elif given.task == "choose":
            choose(given.cases, given.data)
        else:
            run(given.cases, given.competitors or list(COMPETITORS), given.data, given.seeds)


if __name__ == "__main__":
    main()
