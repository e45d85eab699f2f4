"""Compare the default classifier with scikit-learn's, by accuracy and log-loss.

    python benchmarks/any_classes.py

Five stratified folds of digits, breast cancer, wine and iris, and 12,000 rows of a set like
covertype: seven classes of very different size, 54 inputs of which 44 are binary.
`LipschitzClassifier`, `MLPClassifier` and `LogisticRegression` have default arguments; the latter
two get standardised inputs, and also run on the inputs as they are. Each row is appended to
any_classes_rows.jsonl, and is not measured again; benchmarks/any_classes.json has the means and
the standard errors of the differences.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from greatcircle import LipschitzClassifier

ROWS = Path(__file__).with_name("any_classes_rows.jsonl")
RESULTS = Path(__file__).with_suffix(".json")
OURS = "LipschitzClassifier"


def cover() -> tuple[np.ndarray, np.ndarray]:
    """Return terrain in ten numbers and 44 bits, and the kind of forest that grows there."""
    rng = np.random.default_rng(0)
    terrain = rng.standard_normal((12_000, 10))
    terrain[:, 3:6] += 0.5 * terrain[:, :3]
    area, soil = rng.integers(0, 4, 12_000), rng.integers(0, 40, 12_000)
    bits = np.hstack([np.eye(4)[area], np.eye(40)[soil]])
    direction, bend = rng.standard_normal((10, 7)), rng.standard_normal((10, 7))
    scores = 2 * np.tanh(terrain @ direction / 2) + np.sin(terrain @ bend / 2)
    scores += rng.standard_normal((4, 7))[area] + rng.standard_normal((40, 7))[soil]
    scores += np.log([0.36, 0.48, 0.06, 0.01, 0.02, 0.03, 0.04]) + rng.gumbel(size=(12_000, 7))
    return np.hstack([terrain, bits]), np.argmax(scores, axis=1)


SETS: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "digits": lambda: datasets.load_digits(return_X_y=True),
    "breast cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "iris": lambda: datasets.load_iris(return_X_y=True),
    "cover": cover,
}
MODELS: dict[str, Callable[[int], Any]] = {
    OURS: lambda seed: LipschitzClassifier(random_state=seed),
    "MLPClassifier": lambda seed: make_pipeline(StandardScaler(), MLPClassifier(random_state=seed)),
    "LogisticRegression": lambda seed: make_pipeline(StandardScaler(), LogisticRegression()),
    "MLPClassifier, raw inputs": lambda seed: MLPClassifier(random_state=seed),
    "LogisticRegression, raw inputs": lambda seed: LogisticRegression(),
}


def stored() -> list[dict[str, Any]]:
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def run() -> None:
    done = {(row["set"], row["model"], row["fold"]) for row in stored()}
    for name, make_set in SETS.items():
        X, y = make_set()
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
        for fold, (train, test) in enumerate(folds.split(X, y)):
            for label, make in MODELS.items():
                if (name, label, fold) in done:
                    continue
                started = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = make(fold).fit(X[train], y[train])
                row = {
                    "set": name,
                    "model": label,
                    "fold": fold,
                    "seconds": round(time.perf_counter() - started, 2),
                    "accuracy": float(model.score(X[test], y[test])),
                    "log-loss": float(log_loss(y[test], model.predict_proba(X[test]))),
                }
                with ROWS.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)


def summarise() -> None:
    """Write means, and differences to ours with their standard errors over the folds."""
    table: dict[str, Any] = {}
    for name in SETS:
        for measure in ("accuracy", "log-loss"):
            values = {
                label: np.array(
                    [r[measure] for r in stored() if (r["set"], r["model"]) == (name, label)]
                )
                for label in MODELS
            }
            table.setdefault(name, {})[measure] = {
                label: {
                    "mean": round(float(v.mean()), 4),
                    "ours minus it": round(float(np.mean(values[OURS] - v)), 4),
                    "standard error": round(
                        float(np.std(values[OURS] - v, ddof=1) / np.sqrt(len(v))), 4
                    ),
                }
                for label, v in values.items()
            }
    RESULTS.write_text(json.dumps(table, indent=1) + "\n")


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    run()
    summarise()


if __name__ == "__main__":
    main()
