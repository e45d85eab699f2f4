"""Results of a fit: the content of `results.json`, and its tables as text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from greatcircle._runtime import versions
from greatcircle.model import Model
from greatcircle.report.evaluation import Evaluation
from greatcircle.report.selection import selection_results

__all__ = [
    "CLASS_HEADINGS",
    "ERROR_HEADINGS",
    "FitDescription",
    "class_rows",
    "error_rows",
    "format_number",
    "results",
]

ERROR_HEADINGS = ("target", "train RMS", "test RMS", "train R²", "test R²")
CLASS_HEADINGS = ("data", "rows", "accuracy", "largest class")


@dataclass(frozen=True, kw_only=True)
class FitDescription:
    """Data, split and parameters of a fit."""

    file: str
    rows: int
    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    ignored: tuple[str, ...]
    """Columns that are neither inputs nor targets."""
    split: str
    test_fraction: float
    seed: int
    estimator: str
    """Name of the estimator's class."""
    parameters: Mapping[str, Any]
    """Parameters of the estimator."""

    @property
    def loss(self) -> str:
        """Name of the loss: "squared", "huber", or "cross-entropy" of a classifier."""
        if self.estimator == "LipschitzClassifier":
            return "cross-entropy"
        loss = self.parameters.get("loss", "auto")
        return "squared" if loss == "auto" else str(loss)


def results(evaluation: Evaluation, description: FitDescription) -> dict[str, Any]:
    """Return the content of `results.json`."""
    bounds, training = evaluation.bounds, evaluation.training
    packages = versions.versions()
    return {
        "source": f"greatcircle {packages['greatcircle']}, fit",
        "machine": versions.machine(),
        "versions": packages,
        "data": {
            "file": description.file,
            "rows": description.rows,
            "inputs": list(description.inputs),
            "targets": list(description.targets),
            "ignored": list(description.ignored),
        },
        "split": {
            "kind": description.split,
            "test_fraction": description.test_fraction,
            "seed": description.seed,
            "train_rows": len(evaluation.train.rows),
            "test_rows": len(evaluation.test.rows),
        },
        "estimator": description.estimator,
        "parameters": dict(description.parameters),
        "network": list(evaluation.model.sizes),
        "networks": evaluation.model.networks,
        "metrics": evaluation.metrics(),
        "lipschitz": {
            "a_priori": bounds.a_priori,
            "operator_norms": bounds.operator_norms,
            "certified": bounds.certified,
            "lower": bounds.lower,
            "per_standard_deviation": bounds.per_deviation,
            "unit": f"units of the outputs per {bounds.unit}",
        },
        "saturation": _ranges(evaluation.model, description),
        "training": {
            "iterations": len(training.history["iteration"]),
            "seconds": float(training.history["seconds"].sum()),
            "loss": training.loss,
            "outcome": training.outcome,
            "reason": training.reason,
        },
        "selection": selection_results(evaluation.model, description.parameters),
        "history": {
            name: [value if np.isfinite(value) else None for value in column.tolist()]
            for name, column in training.history.items()
        },
    }


def _ranges(model: Model, description: FitDescription) -> dict[str, Any]:
    """Return what is clipped, and the range of each input and output by name."""
    saturation = model.saturation

    def by_name(names: Sequence[str], lower: Any, upper: Any) -> dict[str, list[float]] | None:
        if lower is None:
            return None
        ends = zip(names, lower, upper, strict=True)
        return {name: [float(low), float(high)] for name, low, high in ends}

    return {
        "kind": saturation.kind or "none",
        "inputs": by_name(description.inputs, saturation.lower, saturation.upper),
        "outputs": by_name(description.targets, saturation.output_lower, saturation.output_upper),
    }


def error_rows(metrics: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row of text for each target of a regression, and for all targets together."""
    train, test = metrics["train"], metrics["test"]
    rows = [(name, train["targets"][name], test["targets"][name]) for name in train["targets"]]
    if len(rows) > 1:
        rows.append(("all", train, test))
    return [
        (
            name,
            *(format_number(m["rms"], ".4g") for m in both),
            *(format_number(m["r2"], ".4f") for m in both),
        )
        for name, *both in rows
    ]


def class_rows(metrics: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row of text for the training rows of a classification, and one for the test rows."""
    return [
        (name, str(m["rows"]), f"{m['accuracy']:.4f}", f"{m['largest_class']:.4f}")
        for name, m in metrics.items()
    ]


def format_number(value: float | None, form: str) -> str:
    """Return the number as text; a dash for None."""
    return "–" if value is None else f"{value:{form}}"
