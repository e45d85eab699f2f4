"""Compare the estimators with scikit-learn's: batches, classification, and a new process.

    python benchmarks/estimators.py PART --data FOLDER [--write]

FOLDER contains neural_lander_surrogate.csv.gz and neural_fly.csv.gz. Each part has an entry in
benchmarks/estimators.json:

    batches   test RMS and seconds with batch_size=256 and with all rows, 10 splits
    many      the same with batch_size="auto" for many generated rows
    classes   accuracy in 5-fold cross-validation compared with MLPClassifier, default parameters
    cold      seconds of a new process, from its start to a fitted model, and MLPRegressor
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from beyond import tables
from greatcircle import LipschitzClassifier, LipschitzRegressor
from greatcircle.datasets import Table, ground_effect

SEEDS = 10
ROUNDS = 5
MANY_ROUNDS = 3
RESULTS = Path(__file__).with_suffix(".json")


def split(table: Table, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the splits of beyond.py."""
    order = np.random.default_rng(seed).spawn(2)[0].permutation(len(table))
    first = int(0.8 * len(table))
    return order[:first], order[first:]


def test_rms(model: Any, table: Table, rows: np.ndarray) -> float:
    error = model.predict(table.X[rows]) - table.y[rows]
    return float(np.sqrt(np.mean(np.sum(error**2, axis=1))))


def batches(folder: Path) -> dict[str, Any]:
    results = {}
    for name, table in tables(folder).items():
        rms: dict[str, list[float]] = {"all rows": [], "batch_size=256": []}
        seconds: dict[str, list[float]] = {"all rows": [], "batch_size=256": []}
        for seed in range(SEEDS):
            train, test = split(table, seed)
            for kind, size in (("all rows", None), ("batch_size=256", 256)):
                started = time.perf_counter()
                model = LipschitzRegressor(
                    selection=False, saturation=False, batch_size=size, random_state=seed
                )
                model.fit(table.X[train], table.y[train])
                seconds[kind].append(time.perf_counter() - started)
                rms[kind].append(test_rms(model, table, test))
        means = {kind: float(np.mean(values)) for kind, values in rms.items()}
        results[name] = {
            "test_rms": {kind: round(value, 4) for kind, value in means.items()},
            "batches / all rows": round(means["batch_size=256"] / means["all rows"], 5),
            "first fit, compilation included, seconds": {
                kind: round(values[0], 2) for kind, values in seconds.items()
            },
            "later fits, seconds, worst": {
                kind: round(max(values[1:]), 2) for kind, values in seconds.items()
            },
        }
        print(name, json.dumps(results[name], indent=2), flush=True)
    return results


def many(_: Path) -> dict[str, Any]:
    """Time the functions alternately; the first round, which compiles, is reported separately."""
    results = {}
    for rows in (100_000, 300_000, 1_000_000):
        table = ground_effect.generate(rows)
        train, test = split(table, 0)
        seconds: dict[str, list[float]] = {"auto": [], "None": []}
        rms = {}
        for _ in range(1 + MANY_ROUNDS):
            for kind, size in (("auto", "auto"), ("None", None)):
                model = LipschitzRegressor(
                    (25, 30, 15), selection=False, batch_size=size, random_state=0
                )
                started = time.perf_counter()
                model.fit(table.X[train], table.y[train])
                seconds[kind].append(time.perf_counter() - started)
                rms[kind] = round(test_rms(model, table, test[:50_000]), 4)
        results[str(rows)] = {
            "test_rms": rms,
            "first fit, compilation included, seconds": {
                kind: round(times[0], 2) for kind, times in seconds.items()
            },
            "later fits, seconds, median": {
                kind: round(float(np.median(times[1:])), 2) for kind, times in seconds.items()
            },
        }
        print(rows, json.dumps(results[str(rows)], indent=2), flush=True)
    return results


def classes(_: Path) -> dict[str, Any]:
    results = {}
    sets = {"digits": load_digits, "breast cancer": load_breast_cancer, "wine": load_wine}
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    for name, load in sets.items():
        X, y = load(return_X_y=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            models = {
                "LipschitzClassifier": LipschitzClassifier(selection=False, random_state=0),
                "MLPClassifier": MLPClassifier(random_state=0),
                "MLPClassifier, standardised inputs": make_pipeline(
                    StandardScaler(), MLPClassifier(random_state=0)
                ),
            }
            results[name] = {
                kind: round(float(cross_val_score(model, X, y, cv=folds).mean()), 4)
                for kind, model in models.items()
            }
        print(name, results[name], flush=True)
    return results


COLD = """
import sys, time
import numpy as np
data = np.load(sys.argv[1])
if sys.argv[2] == "LipschitzRegressor":
    from greatcircle import LipschitzRegressor
    model = LipschitzRegressor((25, 30, 15), selection=False, random_state=0)
    X, rest = data["X"], data["rest_X"]
else:
    from sklearn.neural_network import MLPRegressor
    from sklearn.preprocessing import StandardScaler
    scaler = StandardScaler().fit(data["X"])
    model = MLPRegressor(hidden_layer_sizes=(25, 30, 15), random_state=0)
    X, rest = scaler.transform(data["X"]), scaler.transform(data["rest_X"])
model.fit(X, data["y"])
print(time.time())
error = model.predict(rest) - data["rest_y"]
print(float(np.sqrt(np.mean(np.sum(error**2, axis=1)))))
"""


def cold(folder: Path) -> dict[str, Any]:
    table = tables(folder)["surrogate"]
    train, test = split(table, 0)
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data.npz"
        np.savez(
            data, X=table.X[train], y=table.y[train], rest_X=table.X[test], rest_y=table.y[test]
        )
        cache = {
            "JAX_COMPILATION_CACHE_DIR": name,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        plain = ("LipschitzRegressor", "MLPRegressor")
        runs = [(kind, {}) for _ in range(ROUNDS) for kind in plain]
        runs += [("LipschitzRegressor, compilation cached", cache)] * (ROUNDS + 1)
        seconds: dict[str, list[float]] = {}
        rms: dict[str, float] = {}
        for kind, variables in runs:
            started = time.time()
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", COLD, str(data), kind.split(",")[0]],
                env={**os.environ, **variables},
                check=True,
                capture_output=True,
                text=True,
            )
            fitted, rms[kind] = map(float, done.stdout.split())
            seconds.setdefault(kind, []).append(round(fitted - started, 2))
            print(kind, seconds[kind][-1], flush=True)
        seconds["LipschitzRegressor, compilation cached"].pop(0)  # it filled the cache
    return {
        kind: {
            "seconds": times,
            "median": float(np.median(times)),
            "test_rms": round(rms[kind], 4),
        }
        for kind, times in seconds.items()
    }


PARTS = {"batches": batches, "many": many, "classes": classes, "cold": cold}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    results = PARTS[options.part](options.data)
    if options.write:
        known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps({**known, options.part: results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
