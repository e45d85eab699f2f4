"""Time of the default regressor relative to one fit of the network that it chooses.

    python benchmarks/selection_time.py --data FOLDER [--parts fresh folds "one part"]

FOLDER is that of any_data.py. For each set: wall seconds of the default, of its second run in the
process, which compiles nothing, and of the second run of one fit of a network of the chosen layers
and target gain (`selection=False`, otherwise default: at most 200 iterations). Then wall seconds of
a first run in a new process for 500 rows and for 50,000. benchmarks/selection_time.json has the
results; parts that are not measured keep theirs. Run it on an idle machine.
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from any_data_sets import load
from greatcircle import LipschitzRegressor

RESULTS = Path(__file__).with_suffix(".json")
FOLDED = ("yacht", "stock", "concrete", "wine", "airfoil")
ONE_PART = ("power", "elevators", "surrogate")
PARTS = ("fresh", "folds", "one part")
FRESH = """
import sys, time
started = time.time()
from greatcircle import LipschitzRegressor
from greatcircle.datasets import ground_effect
table = ground_effect.generate(int(sys.argv[1]))
print(LipschitzRegressor(random_state=0).fit(table.X, table.y).model_.sizes)
print(time.time() - started)
"""


def seconds_of(model: LipschitzRegressor, X: np.ndarray, y: np.ndarray) -> float:
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    return time.perf_counter() - started


def multiple(name: str, folder: Path) -> dict[str, Any]:
    """Return the seconds of the default and of one fit, and their ratio."""
    data = load(name, folder)
    train = ~data.tests[0]
    X, y = data.X[train], data.y[train]
    model = LipschitzRegressor(random_state=0)
    first, second = (seconds_of(model, X, y) for _ in range(2))
    chosen = next(row for row in model.selection_.rows() if row.chosen)
    one = LipschitzRegressor(
        chosen.hidden_layer_sizes,
        target_gain=chosen.target_gain,
        selection=False,
        random_state=0,
    )
    single = [seconds_of(one, X, y) for _ in range(3)][1:]
    return {
        "rows": len(X),
        "chosen": [chosen.hidden_layer_sizes, chosen.target_gain, chosen.iterations],
        "networks": model.model_.networks,
        "first": round(first, 2),
        "compiled": round(second, 2),
        "one fit, compiled": round(min(single), 3),
        "iterations of one fit": one.n_iter_,
        "ratio": round(second / min(single), 1),
    }


def fresh(rows: int) -> dict[str, Any]:
    """Return the seconds of a new process from its first import to the fitted model."""
    command = [sys.executable, "-W", "ignore", "-c", FRESH, str(rows)]
    sizes, seconds = subprocess.run(
        command, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return {"network": sizes, "seconds": round(float(seconds), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    given = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if "fresh" in given.parts:
        results["fresh process"] = {str(n): fresh(n) for n in (500, 50_000)}
        print(results["fresh process"], flush=True)
    for kind, names in (("folds", FOLDED), ("one part", ONE_PART)):
        if kind not in given.parts:
            continue
        found = results[kind] = {name: multiple(name, given.data) for name in names}
        ratios = [entry["ratio"] for entry in found.values()]
        results[f"{kind}: median and largest ratio"] = [float(np.median(ratios)), max(ratios)]
        print(json.dumps(found, indent=1), flush=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
