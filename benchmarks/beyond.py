"""Compare accuracy, time, depth and bound of `auto` with Method 1 and scikit-learn.

    python benchmarks/beyond.py PART --data FOLDER [--write]

FOLDER contains neural_lander_surrogate.csv.gz and neural_fly.csv.gz. Each part has an entry in
benchmarks/beyond.json:

    accuracy    test RMS of auto, Method 1 and MLPRegressor, 10 seeds, surrogate and fly
    time        seconds to Method 1's final train RMS, and train RMS at fractions of Method 1's time
    majorant    iterations of DataMajorant + Steepest to Method 1's final train RMS
    grid        the 25 networks of Experiment 2 with auto
    tradeoff    error against bound for depths 2 to 12
    depth       the bound at depth 12 over that at depth 4, for three tolerances
    headroom    test RMS and bound by target gain, automatic and given, for wide and deep networks
    tolerance   test RMS when stopped by `tol`, for several values
    luck        test RMS of auto for eight initial weights on the same rows, two splits
    figure      docs/images/tradeoff.png from the results of tradeoff

All methods have the same 80/20 splits; compilation is not counted.
"""

import argparse
import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler

from contenders.contest import split
from greatcircle import LipschitzRegressor, directions, steps
from greatcircle.data import files
from greatcircle.datasets import Table, ground_effect, neural_fly
from greatcircle.experiments import exp2
from greatcircle.experiments.run import PAPER_HIDDEN, TRAIN_FRACTION, Run, job_of, train
from greatcircle.optimise.record import Record
from greatcircle.optimise.stopping import DecreaseBelow
from greatcircle.training.methods import INITIALISATIONS, METHODS

SEEDS = 10
RATES = (3e-4, 1e-3, 3e-3, 1e-2)
RESULTS = Path(__file__).with_suffix(".json")
COLUMNS = {
    "inputs": ("z", "vx", "vy", "vz", "qx", "qy", "qz", "qw", "u1", "u2", "u3", "u4"),
    "targets": ("fx", "fy", "fz"),
}


def tables(folder: Path) -> dict[str, Table]:
    return {
        "surrogate": files.read(folder / "neural_lander_surrogate.csv.gz", **COLUMNS),
        "fly": neural_fly.load(folder / "neural_fly.csv.gz", conditions=["nowind"]),
    }


def auto(table: Table, seed: int, *, progress: Any = None, **options: Any) -> Run:
    """Train as `LipschitzRegressor(selection=False)` does."""
    return train(table, replace(job_of("auto", PAPER_HIDDEN, 200, seed), **options), progress)


def method_1(table: Table, seed: int, *, progress: Any = None, **options: Any) -> Run:
    return train(table, replace(job_of("ad", PAPER_HIDDEN, 200, seed), **options), progress)


def peer(table: Table, seed: int, rate: float) -> tuple[float, float]:
    """Return test RMS and product of operator norms of scikit-learn's network on the same split."""
    order = np.random.default_rng(seed).spawn(2)[0].permutation(len(table))
    first = int(TRAIN_FRACTION * len(table))
    learn, test = order[:first], order[first:]
    scaler = StandardScaler().fit(table.X[learn])
    model = MLPRegressor(
        hidden_layer_sizes=PAPER_HIDDEN, learning_rate_init=rate, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(scaler.transform(table.X[learn]), table.y[learn])
    error = model.predict(scaler.transform(table.X[test])) - table.y[test]
    bound = np.prod([np.linalg.norm(w, 2) for w in model.coefs_])
    return float(np.sqrt(np.mean(np.sum(error**2, axis=1)))), float(bound)


def mean(values: list[float]) -> float:
    return round(float(np.mean(values)), 4)


def accuracy(data: dict[str, Table]) -> dict[str, Any]:
    results = {}
    for name, table in data.items():
        ours = [auto(table, seed) for seed in range(SEEDS)]
        ours_on_paper = [auto(table, seed, scaling="paper") for seed in range(SEEDS)]
        paper = [method_1(table, seed) for seed in range(SEEDS)]
        peers = {rate: [peer(table, seed, rate) for seed in range(SEEDS)] for rate in RATES}
        tests = {rate: mean([p[0] for p in runs]) for rate, runs in peers.items()}
        best = min(tests, key=tests.__getitem__)
        test = mean([r.test_rms for r in ours])
        results[name] = {
            "auto_test_rms": test,
            "auto_test_rms_each": [round(r.test_rms, 4) for r in ours],
            "auto_train_rms": mean([r.train_rms for r in ours]),
            "auto_bound": mean([r.bound for r in ours]),
            "auto_seconds": mean([r.seconds for r in ours]),
            "auto_paper_scaling_test_rms": mean([r.test_rms for r in ours_on_paper]),
            "method_1_test_rms": mean([r.test_rms for r in paper]),
            "mlp_test_rms_by_rate": {str(rate): value for rate, value in tests.items()},
            "mlp_default_each": [round(p[0], 4) for p in peers[1e-3]],
            "mlp_default_bound": mean([p[1] for p in peers[1e-3]]),
            "auto / mlp default": round(test / tests[1e-3], 4),
            "auto / mlp best rate": round(test / tests[best], 4),
            "auto with the paper's scaling / method 1": round(
                mean([r.test_rms for r in ours_on_paper]) / mean([r.test_rms for r in paper]), 4
            ),
        }
        print(name, json.dumps(results[name], indent=2), flush=True)
    return results


class Clock:
    """Return the train RMS after each iteration, and the seconds until then."""

    def __init__(self, run: Callable[..., Run], table: Table, seed: int, **options: Any) -> None:
        seconds: list[float] = []
        self.run = run(table, seed, progress=lambda r: seconds.append(r.seconds), **options)
        self.seconds = np.cumsum(seconds)
        loss = self.run.train_objective[1:]
        self.rms = self.run.train_rms * np.sqrt(loss / loss[-1])

    def until(self, rms: float) -> float:
        """Return the seconds until the train RMS is that low, or infinity."""
        reached = np.flatnonzero(self.rms <= rms)
        return float(self.seconds[reached[0]]) if len(reached) else np.inf

    def at(self, seconds: float) -> float:
        """Return the train RMS reached by that time, at first the initial one."""
        done = np.searchsorted(self.seconds, seconds, side="right")
        return float(self.rms[done - 1]) if done else np.inf


def time(data: dict[str, Table]) -> dict[str, Any]:
    results = {}
    for name, table in {**data, "ground effect": ground_effect.generate()}.items():
        auto(table, 0), method_1(table, 0)  # compile
        ratios, worse = [], {part: [] for part in (0.25, 0.5, 1.0, 2.0)}
        for seed in range(SEEDS):
            ours = Clock(auto, table, seed)
            theirs = Clock(method_1, table, seed, iterations=400)
            whole = float(theirs.seconds[199])
            ratios.append(ours.until(float(theirs.rms[199])) / whole)
            for part, values in worse.items():
                values.append(ours.at(part * whole) / theirs.at(part * whole))
        results[name] = {
            "seconds to method 1's final train RMS / method 1's seconds": [
                round(r, 4) for r in ratios
            ],
            "median": round(float(np.median(ratios)), 4),
            "worst": round(max(ratios), 4),
            "train RMS over method 1's at parts of its time": {
                str(part): {"mean": mean(values), "worst": round(max(values), 4)}
                for part, values in worse.items()
            },
        }
        print(name, json.dumps(results[name], indent=2), flush=True)
    return results


def majorant(data: dict[str, Table]) -> dict[str, Any]:
    table = data["surrogate"]
    results: dict[str, Any] = {"iterations": [], "rises": 0, "halvings": 0}
    for seed in range(SEEDS):
        goal = method_1(table, seed).train_rms
        run = Clock(
            method_1,
            table,
            seed,
            step=steps.DataMajorant(),
            direction=directions.MajorantSteepest(),
            iterations=600,
        )
        reached = np.flatnonzero(run.rms <= goal)
        results["iterations"].append(int(reached[0]) + 1 if len(reached) else None)
        results["rises"] += int(np.sum(np.diff(run.run.train_objective) > 0))
        results["halvings"] += run.run.halvings
    never = [np.inf if i is None else i for i in results["iterations"]]
    results["median"], results["mean"] = float(np.median(never)), float(np.mean(never))
    print(results, flush=True)
    return results


def grid(data: dict[str, Table]) -> dict[str, Any]:
    table, seeds = data["surrogate"], SEEDS
    results: dict[str, Any] = {"seeds": seeds, "widths": exp2.WIDTHS, "depths": exp2.DEPTHS}
    for name in ("train_rms", "test_rms", "bound", "seconds"):
        results[name] = []
    for depth in exp2.DEPTHS:
        row = []
        for width in exp2.WIDTHS:
            hidden = (width,) * (depth - 1)
            row.append([auto(table, seed, hidden=hidden) for seed in range(seeds)])
            print(depth, width, mean([r.train_rms for r in row[-1]]), flush=True)
        for name in ("train_rms", "test_rms", "bound", "seconds"):
            results[name].append([mean([getattr(r, name) for r in runs]) for runs in row])
    results["worst_cell_train_rms"] = max(map(max, results["train_rms"]))
    return results


def tradeoff(data: dict[str, Table]) -> dict[str, Any]:
    """One seed per point: neighbouring points of a curve show the scatter."""
    results: dict[str, Any] = {}
    for name, depths in {"surrogate": (2, 4, 8, 12), "fly": (2, 4)}.items():
        table = data[name]
        for depth in depths:
            for scheme in ("uniform", "orthogonal", "identity"):
                for headroom in (1.0, 3.0, 10.0, 30.0, 100.0):
                    start = INITIALISATIONS["auto"]._replace(scheme=scheme, target_gain=headroom)
                    run = auto(table, 0, start=start, hidden=(25,) * (depth - 1))
                    entry = {"headroom": headroom, "test_rms": round(run.test_rms, 4)}
                    entry |= {"train_rms": round(run.train_rms, 4), "bound": round(run.bound, 3)}
                    curves = results.setdefault(name, {}).setdefault(str(depth), {})
                    curves.setdefault(scheme, []).append(entry)
                    print(name, depth, scheme, entry, flush=True)
    return results


def depth(data: dict[str, Table]) -> dict[str, Any]:
    """Compare the bounds of depth 4 and 12 at width 25: they keep growing during training."""
    results: dict[str, Any] = {}
    for tol in (1e-1, 3e-2, METHODS["auto"].tol):
        for layers in (4, 12):
            hidden = (25,) * (layers - 1)
            runs = [auto(data["surrogate"], seed, hidden=hidden, tol=tol) for seed in range(SEEDS)]
            results.setdefault(str(tol), {})[str(layers)] = {
                name: mean([getattr(r, name) for r in runs])
                for name in ("train_rms", "test_rms", "bound")
            }
        shallow, deep = results[str(tol)].values()
        results[str(tol)]["bound 12 / bound 4"] = round(deep["bound"] / shallow["bound"], 2)
        results[str(tol)]["test 12 / test 4"] = round(deep["test_rms"] / shallow["test_rms"], 4)
        print(tol, results[str(tol)], flush=True)
    return results


def other_sets(data: dict[str, Table]) -> dict[str, Table]:
    X, y = datasets.make_friedman1(2500, noise=1.0, random_state=1)
    sets = {"Friedman 1": (X, y[:, None])}
    X, y = datasets.load_diabetes(return_X_y=True)
    sets["diabetes"] = X, y[:, None]
    X, y = datasets.load_digits(return_X_y=True)
    sets["digits"] = X, np.eye(10)[y]
    return data | {name: named(X, y) for name, (X, y) in sets.items()}


def named(X: np.ndarray, y: np.ndarray) -> Table:
    inputs = tuple(f"x{i}" for i in range(X.shape[1]))
    targets = tuple(f"y{i}" for i in range(y.shape[1]))
    columns = dict(zip((*inputs, *targets), np.hstack([X, y]).T, strict=True))
    return Table(columns, inputs, targets)


WIDE, DEEP, DEEPER = (64, 64), (25,) * 7, (25,) * 11


def headroom(data: dict[str, Table]) -> dict[str, Any]:
    """Run the automatic target gain first, then given ones; two seeds."""
    results: dict[str, Any] = {}
    sets = other_sets(data)
    for name in ("surrogate", "Friedman 1", "diabetes"):
        for hidden in (WIDE, DEEP):
            entry = results.setdefault(name, {})[str(hidden)] = {}
            for value in (None, 1.0, 10.0, 30.0, 100.0, 300.0, 1000.0):
                start = INITIALISATIONS["auto"]._replace(target_gain=value)
                runs = [auto(sets[name], seed, hidden=hidden, start=start) for seed in range(2)]
                entry[str(value or "rule")] = {
                    "test_rms": mean([r.test_rms for r in runs]),
                    "bound": mean([r.bound for r in runs]),
                }
            print(name, hidden, entry, flush=True)
    return results


def tolerance(data: dict[str, Table]) -> dict[str, Any]:
    """Where several tolerances would have stopped a run of 200 iterations; three seeds."""
    results: dict[str, Any] = {}
    sets = other_sets(data)
    cases = [(name, PAPER_HIDDEN) for name in sets]
    for name, hidden in [*cases, *(("surrogate", h) for h in (WIDE, DEEP, DEEPER))]:
        ends: dict[float, list[Any]] = {tol: [] for tol in (1e-2, 5e-3, 2e-3, 1e-3, 0.0)}
        for seed in range(3):
            records: list[Record] = []
            run = auto(sets[name], seed, hidden=hidden, tol=0.0, progress=records.append)
            rms = run.test_rms * np.sqrt(run.test_objective / run.test_objective[-1])
            for tol, found in ends.items():
                fired = DecreaseBelow(tol).fired
                counts = range(1, len(records) + 1)
                count = next((n for n in counts if fired(records[:n])), len(records))
                found.append((rms[count], count))
        results[f"{name} {hidden}"] = {
            str(tol): {
                "test_rms": mean([e for e, _ in found]),
                "iterations": mean([n for _, n in found]),
            }
            for tol, found in ends.items()
        }
        print(name, hidden, results[f"{name} {hidden}"], flush=True)
    return results


def luck(data: dict[str, Table]) -> dict[str, Any]:
    """Scatter of the test RMS over initial weights, on the splits of peers.py's seeds 0 and 4."""
    results: dict[str, Any] = {}
    for name, table in data.items():
        for seed in (0, 4):
            case = split(table.X, table.y, PAPER_HIDDEN, seed)
            errors = []
            for start in range(8):
                model = LipschitzRegressor(PAPER_HIDDEN, selection=False, random_state=start)
                model.fit(case.X, case.y)
                error = (model.predict(case.test_X) - case.test_y) * case.unit
                errors.append(float(np.sqrt(np.mean(np.sum(error**2, axis=1)))))
            results.setdefault(name, {})[str(seed)] = {
                "test_rms_each": [round(e, 5) for e in errors],
                "standard_deviation": round(float(np.std(errors, ddof=1)), 5),
            }
            print(name, seed, results[name][str(seed)], flush=True)
    return results


def figure() -> None:
    """Draw a panel per data set and depth, with a curve per kind of initial weights."""
    results = json.loads(RESULTS.read_text("utf-8"))["tradeoff"]
    panels = [(name, depth) for name, depths in results.items() for depth in depths]
    drawing, axes = plt.subplots(2, 3, figsize=(11, 6.5), layout="constrained")
    for axis, (name, depth) in zip(axes.flat, panels, strict=True):
        for (scheme, points), marker in zip(results[name][depth].items(), "sod", strict=True):
            bounds, errors = ([p[k] for p in points] for k in ("bound", "test_rms"))
            axis.plot(bounds, errors, marker=marker, label=scheme, linewidth=1.2)
        axis.set(xscale="log", title=f"{name}, depth {depth}")
        axis.grid(alpha=0.3)
    drawing.supxlabel("Lipschitz bound ∏‖W‖op, N per standard deviation of the inputs")
    drawing.supylabel("test RMS [N]")
    axes[0, 0].legend(title="initial weights")
    drawing.savefig(RESULTS.parent.parent / "docs" / "images" / "tradeoff.png", dpi=110)


PARTS = {
    f.__name__: f
    for f in (accuracy, time, majorant, grid, tradeoff, depth, headroom, tolerance, luck)
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=[*PARTS, "figure"])
    parser.add_argument("--data", type=Path, default=Path("."))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.part == "figure":
        return figure()
    results = PARTS[options.part](tables(options.data))
    if options.write:
        known = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
        known[options.part] = results
        RESULTS.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
