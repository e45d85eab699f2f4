"""Compare what a fitted regressor may clip, on random and on shifted splits.

    python benchmarks/saturation.py --data FOLDER

FOLDER is that of any_data.py. On a random split, a fifth of the rows is tested. On a shifted one,
the tested fifth has the largest values of one input, for each of the first three inputs with at
least twenty values; for the flight data also those of the speed. Training does not depend on what
is clipped: each network is trained once, and tested without clipping, with clipped outputs, with
clipped inputs, and with both. benchmarks/saturation.json has the ratios of test errors to those
without clipping: for each kind the geometric mean, the largest and the smallest.
"""

import argparse
import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from any_data import rms
from any_data_sets import SETS, DataSet, load
from greatcircle import LipschitzRegressor
from greatcircle.data.saturation import UNSATURATED

RESULTS = Path(__file__).with_suffix(".json")
ROWS, RANDOM, COLUMNS, VALUES = 5000, 3, 3, 20
LEFT_OUT = ("digits",)  # whose inputs have few values


def splits(name: str, data: DataSet) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the kind of a split and which rows are tested."""
    for test in data.tests[:RANDOM]:
        yield "random", test
    columns = [x for x in data.X.T if len(np.unique(x)) >= VALUES][:COLUMNS]
    if name in ("fly", "surrogate"):
        columns.append(np.linalg.norm(data.X[:, 1:4], axis=1))
    for column in columns:
        test = np.zeros(len(column), bool)
        test[np.argsort(column, kind="stable")[-(len(column) // 5) :]] = True
        yield "shifted", test


def errors(data: DataSet, test: np.ndarray, seed: int) -> dict[str, float]:
    """Return the test error for each kind of clipping."""
    train = np.flatnonzero(~test)
    if len(train) > ROWS:
        train = np.random.default_rng(seed).permutation(train)[:ROWS]
    fitted = LipschitzRegressor(
        (64, 64, 64), selection=False, saturation="both", random_state=seed
    ).fit(data.X[train], data.y[train])
    both = fitted.model_.saturation
    kinds = {
        "none": UNSATURATED,
        "outputs": replace(both, lower=None, upper=None),
        "inputs": replace(both, output_lower=None, output_upper=None),
        "both": both,
    }
    return {
        kind: rms(
            replace(fitted.model_, saturation=saturation).predict(data.X[test]) - data.y[test]
        )
        for kind, saturation in kinds.items()
    }


def summary(ratios: np.ndarray) -> dict[str, float]:
    mean = float(np.exp(np.mean(np.log(ratios))))
    return {"mean": mean, "worst": float(ratios.max()), "best": float(ratios.min())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    folder = parser.parse_args().data
    warnings.simplefilter("ignore")
    rows = []
    for name in SETS:
        if name in LEFT_OUT:
            continue
        data = load(name, folder)
        for seed, (kind, test) in enumerate(splits(name, data)):
            found = errors(data, test, seed)
            rows.append({"set": name, "split": kind, **found})
            print(
                name, kind, {k: round(v / found["none"], 4) for k, v in found.items()}, flush=True
            )
    table = {
        split: {
            kind: summary(np.array([r[kind] / r["none"] for r in rows if r["split"] == split]))
            for kind in ("outputs", "inputs", "both")
        }
        for split in ("random", "shifted")
    }
    counts = {split: sum(row["split"] == split for row in rows) for split in table}
    RESULTS.write_text(
        json.dumps({"splits": counts, "ratios": table, "rows": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
