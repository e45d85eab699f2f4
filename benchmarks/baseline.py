"""Regression test for refactorings: losses and certificates of twelve fits.

    python benchmarks/baseline.py --write    before the change: write benchmarks/baseline.json
    python benchmarks/baseline.py            after it: compare, and fail if results differ

A refactoring must not change the losses of every iteration and the final certificate, up to
rounding. The tolerance depends on the fit (`LIMITS`): in float64 rounding errors stay small, in
float32 they grow with the iterations, and with random batches only the error of the fitted model
can be compared.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from greatcircle import LipschitzClassifier, LipschitzRegressor
from greatcircle.datasets import ground_effect

RESULTS = Path(__file__).with_suffix(".json")


class Limit(NamedTuple):
    """Largest allowed relative differences; None for a quantity that is not compared."""

    first: float | None
    """Difference of the losses of the first iterations."""
    iterations: int
    """Number of these iterations."""
    error: float
    """Differences of the final error and of the final certificate."""


LIMITS = {
    "float64": Limit(1e-9, 50, 1e-6),
    "float32": Limit(1e-4, 3, 1e-3),
    "random": Limit(None, 0, 1e-2),
}


@dataclass(frozen=True)
class PseudoHuber:
    """A custom loss."""

    name = "pseudo-huber"
    curvature = 1.0

    def of_row(self, outputs: Any, targets: Any) -> Any:
        return jnp.sum(jnp.sqrt(1 + (outputs - targets) ** 2) - 1)

    def check(self, targets: np.ndarray) -> None:
        pass


def table(rows: int) -> tuple[np.ndarray, np.ndarray]:
    made = ground_effect.generate(rows)
    return made.X, made.y


def regression(rows: int = 4000, **parameters: Any) -> Any:
    X, y = table(rows)
    return (
        LipschitzRegressor(
            **{"random_state": 0, "selection": False, "saturation": False, **parameters}
        ).fit(X, y),
        X,
        y,
    )


def stream() -> Any:
    """Batches with more rows than the sample for the start, so that memory never holds them all."""
    X, y = table(120_000)
    batches = [(X[i : i + 5000], y[i : i + 5000]) for i in range(0, len(X), 5000)]
    return (
        LipschitzRegressor(selection=False, max_iter=60, random_state=0).fit(batches),
        X[:4000],
        y[:4000],
    )


def classifier() -> Any:
    X, y = table(4000)
    labels = np.digitize(y[:, 2], np.quantile(y[:, 2], [0.3, 0.7]))
    model = LipschitzClassifier(selection=False, max_iter=60, random_state=0).fit(X, labels)
    return model, X, labels


FITS: dict[str, tuple[str, Callable[[], Any]]] = {
    "Method 1": ("float32", lambda: regression(method="ad", max_iter=200)),
    "Method 2": ("float32", lambda: regression(method="mm", max_iter=200)),
    "auto": ("float32", lambda: regression()),
    "batches": ("random", lambda: regression(batch_size=256)),
    "stream": ("random", stream),
    "budget": ("random", lambda: regression(lipschitz=2.0)),
    "classifier": ("float32", classifier),
    "float64": ("float64", lambda: regression(dtype="float64")),
    "deep": ("float64", lambda: regression(1500, hidden_layer_sizes=(15,) * 8, dtype="float64")),
    "wide": ("float32", lambda: regression(hidden_layer_sizes=(256, 256), max_iter=20)),
    "early stopping": ("float64", lambda: regression(1500, early_stopping=True, dtype="float64")),
    "own loss": ("float64", lambda: regression(1500, loss=PseudoHuber(), dtype="float64")),
}
"""Name, kind of limit and function of each fit."""


def measured(name: str) -> dict[str, Any]:
    """Return losses, final error and certificate of a fit."""
    started = time.perf_counter()
    model, X, y = FITS[name][1]()
    if isinstance(model, LipschitzClassifier):
        error = float(-np.mean(np.log(model.predict_proba(X)[np.arange(len(y)), y])))
    else:
        error = float(np.sqrt(np.mean(np.sum((model.predict(X) - y) ** 2, axis=1))))
    return {
        "losses": model.history_["loss"].tolist(),
        "error": error,
        "certificate": model.certificate_.value,
        "seconds": round(time.perf_counter() - started, 1),
    }


def differences(name: str, old: dict[str, Any], new: dict[str, Any]) -> tuple[list[float], bool]:
    """Return relative differences of first losses, error and certificate, and whether they pass."""
    limit = LIMITS[FITS[name][0]]
    few = min(limit.iterations, len(old["losses"]), len(new["losses"]))
    a, b = np.array(old["losses"][:few]), np.array(new["losses"][:few])
    first = float(np.max(np.abs(b / a - 1), initial=0.0))
    error, bound = (abs(new[key] / old[key] - 1) for key in ("error", "certificate"))
    # With random batches the bound is random too.
    within = error <= limit.error and (limit.first is None or bound <= limit.error)
    return [first, error, bound], within and (limit.first is None or first <= limit.first)


def main() -> int:
    """Write the results, or compare with the committed ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write benchmarks/baseline.json")
    parser.add_argument("--only", nargs="+", choices=list(FITS), help="default: all fits")
    options = parser.parse_args()
    old = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    failed = False
    print(f"{'fit':<16}{'iterations':>11}{'error':>10}{'bound':>10}{'seconds':>9}", end="")
    print("" if options.write else f"   {'first losses':>13}{'error':>9}{'bound':>9}")
    for name in options.only or FITS:
        new = measured(name)
        count = len(new["losses"])
        print(f"{name:<16}{count:>11}{new['error']:>10.5g}{new['certificate']:>10.5g}", end="")
        print(f"{new['seconds']:>9}", end="", flush=True)
        if options.write:
            old[name] = new
            print()
            continue
        apart, within = differences(name, old[name], new)
        failed |= not within
        print(
            f"   {apart[0]:>13.1e}{apart[1]:>9.1e}{apart[2]:>9.1e}{'' if within else '  DIFFERS'}"
        )
    if options.write:
        RESULTS.write_text(json.dumps(old, indent=1) + "\n", "utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
