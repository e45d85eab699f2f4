"""Compare the default regressor with others, on data sets that it was not made on.

    python benchmarks/any_data.py --data FOLDER [--methods …] [--sets …] [--splits N] [--all-splits]

Appends a row for each method, set and split to any_data_rows.jsonl. Rows that are there are not
measured again, so it can be interrupted and rerun. any_data_page.py makes the page and the
figure.

    auto         LipschitzRegressor() with default arguments
    before       the same before it chose anything by held-out error: 25-30-15, one fit
    mlp          MLPRegressor with default arguments
    mlp-tuned    the same with the rate and layers of a grid that are best on test rows of split 0
                 up to `GRID_ROWS` rows
    trees        HistGradientBoostingRegressor with default arguments
    gp           Gaussian process with one length for each input, up to `GP_ROWS` rows
                 and `GP_INPUTS` inputs
    grid         LipschitzRegressor for each target gain and width of a grid, one fit each
    auto-5000    auto on 5,000 of the training rows, for comparison with the grid

The other methods get standardised inputs and targets. Sets above `GRID_ROWS` training rows are
compared with the grid on that many of them and three splits. Errors are √mean‖f(x) − y‖² of the
test rows, in the units of y; bounds are products of operator norms, in units of y per standard
deviation of the inputs. Seconds include compilation. See any_data_sets.py for the sets.
"""

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from any_data_sets import SETS, DataSet, load
from greatcircle import LipschitzRegressor

ROWS = Path(__file__).with_name("any_data_rows.jsonl")
GAINS = (0.3, 1.0, 3.0, 10.0, 30.0)
WIDTHS = ((25, 30, 15), (64, 64, 64))
GRID_ROWS, GRID_SPLITS = 5000, 3
RATES = (3e-4, 1e-3, 3e-3, 1e-2)
MLP_LAYERS = ((100,), (64, 64), (25, 30, 15))
GP_ROWS, GP_INPUTS = 1600, 20

Row = dict[str, Any]
Make = Callable[[int], RegressorMixin]


def standardised(model: Any) -> Any:
    """Return the model on standardised inputs and targets."""
    return TransformedTargetRegressor(
        make_pipeline(StandardScaler(), model), transformer=StandardScaler()
    )


def mlp(seed: int, **options: Any) -> Any:
    return standardised(MLPRegressor(random_state=seed, **options))


def gp(inputs: int, seed: int) -> Any:
    kernel = ConstantKernel(1.0) * RBF(np.ones(inputs)) + WhiteKernel(0.1)
    return standardised(GaussianProcessRegressor(kernel, random_state=seed))


def ours(seed: int, **options: Any) -> Any:
    return LipschitzRegressor(random_state=seed, **options)


def one_fit(seed: int, **options: Any) -> Any:
    return ours(seed, selection=False, **options)


def trees(outputs: int, seed: int) -> Any:
    model = HistGradientBoostingRegressor(random_state=seed)
    return model if outputs == 1 else MultiOutputRegressor(model)


def grid_of(method: str) -> Iterator[tuple[str, Make]]:
    """Return the names and models of a method that is a grid."""
    if method == "grid":
        for hidden in WIDTHS:
            for gain in GAINS:
                name = f"grid {'-'.join(map(str, hidden))} {gain:g}"
                yield name, partial(one_fit, hidden_layer_sizes=hidden, target_gain=gain)
    else:
        for hidden in MLP_LAYERS:
            for rate in RATES:
                name = f"mlp-tuned {'-'.join(map(str, hidden))} {rate:g}"
                yield name, partial(mlp, hidden_layer_sizes=hidden, learning_rate_init=rate)


def models(method: str, data: DataSet) -> list[tuple[str, Make]]:
    """Return the names and models of a method; empty if it is not for this set."""
    inputs, outputs = data.X.shape[1], 1 if data.y.ndim == 1 else data.y.shape[1]
    rows = max(int(np.sum(~test)) for test in data.tests)
    if method == "gp":
        small = rows <= GP_ROWS and inputs <= GP_INPUTS
        return [("gp", partial(gp, inputs))] if small else []
    if method == "auto-5000":
        return [("auto-5000", ours)] if rows > GRID_ROWS else []
    if method == "mlp-tuned" and rows > GRID_ROWS:
        return []
    if method in ("grid", "mlp-tuned"):
        return list(grid_of(method))
    others = {
        "auto": ours,
        "before": partial(one_fit, hidden_layer_sizes=(25, 30, 15), saturation=False),
        "mlp": mlp,
        "trees": partial(trees, outputs),
    }
    return [(method, others[method])]


def rms(error: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.sum(error.reshape(len(error), -1) ** 2, axis=1))))


def bound(model: LipschitzRegressor) -> float:
    """Return the product of operator norms, per standard deviation of the inputs."""
    norms = [np.linalg.norm(w, 2) for w in model.model_.matrices]
    return model.scaling_.standard_bound(math.prod(map(float, norms)))


def measured(make: Make, data: DataSet, split: int, most: int | None) -> Row:
    """Train on a split, on at most `most` of its rows, and return the row of results."""
    test = data.tests[split]
    train = np.flatnonzero(~test)
    if most is not None and len(train) > most:
        train = np.random.default_rng(split).permutation(train)[:most]
    model = make(split)
    started, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data.X[train], data.y[train])
    row: Row = {
        "rows": len(train),
        "seconds": round(time.perf_counter() - started, 2),
        "cpu": round(time.process_time() - cpu, 2),
        "test": rms(model.predict(data.X[test]) - data.y[test]),
        "train": rms(model.predict(data.X[train]) - data.y[train]),
        "spread": rms(data.y[train] - data.y[train].mean(axis=0)),
    }
    if isinstance(model, LipschitzRegressor):
        row |= {"layers": model.model_.sizes, "iterations": model.n_iter_, "bound": bound(model)}
        row["networks"] = model.model_.networks
        if model.selection_ is not None:
            chosen = next(row for row in model.selection_.rows() if row.chosen)
            row |= {
                "chosen": [chosen.hidden_layer_sizes, chosen.target_gain, chosen.iterations],
                "candidates": len(model.selection_.rows()),
                "passes": round(float(np.sum(model.selection_["evaluations"]))),
            }
    return row


def stored(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def run(arguments: argparse.Namespace) -> None:
    """Measure what is missing."""
    done = {(row["set"], row["method"], row["split"]) for row in stored(arguments.rows)}
    for name in arguments.sets:
        data = load(name, arguments.data, all_splits=arguments.all_splits)
        for method in arguments.methods:
            on_few = method in ("grid", "auto-5000")
            large = min(int(np.sum(~test)) for test in data.tests) > GRID_ROWS
            splits = GRID_SPLITS if on_few and large else len(data.tests)
            for split in range(min(splits, arguments.splits or splits)):
                for label, make in chosen_of(
                    arguments.rows, method, models(method, data), name, split
                ):
                    if (name, label, split) in done:
                        continue
                    row = measured(make, data, split, GRID_ROWS if on_few else None)
                    row = {"set": name, "method": label, "split": split, **row}
                    with arguments.rows.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                    error = row["test"] / row["spread"]
                    print(
                        f"{name:16} {label:24} {split} {error:.4f} {row['seconds']:7.1f} s",
                        flush=True,
                    )


def chosen_of(
    file: Path, method: str, all_models: list[tuple[str, Make]], name: str, split: int
) -> list[tuple[str, Make]]:
    """Return what to run: of the tuned network the whole grid on split 0, then its best."""
    if method != "mlp-tuned" or split == 0 or not all_models:
        return all_models
    tried = [r for r in stored(file) if r["set"] == name and r["split"] == 0]
    tried = [row for row in tried if row["method"].startswith("mlp-tuned")]
    best = min(tried, key=lambda row: row["test"])["method"]
    return [(label, make) for label, make in all_models if label == best]


METHODS = ("auto", "before", "mlp", "mlp-tuned", "trees", "gp", "grid", "auto-5000")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="has uci/ and the two flights")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), metavar="SET")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, metavar="METHOD")
    parser.add_argument("--splits", type=int)
    parser.add_argument(
        "--all-splits", action="store_true", help="those of the file, for published test errors"
    )
    parser.add_argument("--rows", type=Path, default=ROWS, help="the file of rows")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
