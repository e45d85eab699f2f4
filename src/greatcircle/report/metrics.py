"""Errors of predictions: RMS and R² of each target, or accuracy and confusion counts."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from greatcircle.figures.tables import Confusion, Predictions

__all__ = ["accuracy", "confusion", "errors"]


def errors(predictions: Predictions, targets: Sequence[str]) -> dict[str, Any]:
    """Return RMS and R² of each target and of all together."""
    rms = _rms(predictions.residuals)
    spread = _rms(predictions.measured - np.mean(predictions.measured, axis=0))
    # R² is undefined for a constant target.
    r2 = [1 - (e / s) ** 2 if s > 0 else None for e, s in zip(rms, spread, strict=True)]
    defined = [value for value in r2 if value is not None]
    return {
        "rows": len(predictions.rows),
        "rms": math.hypot(*rms),
        "r2": sum(defined) / len(defined) if defined else None,
        "targets": {
            name: {"rms": e, "r2": value} for name, e, value in zip(targets, rms, r2, strict=True)
        },
    }


def accuracy(predictions: Predictions) -> dict[str, Any]:
    """Return the share of correct labels, and that of the largest class for comparison."""
    counts = np.unique(predictions.measured, return_counts=True)[1]
    return {
        "rows": len(predictions.rows),
        "accuracy": float(np.mean(predictions.measured == predictions.predicted)),
        "largest_class": float(counts.max() / counts.sum()),
    }


def confusion(predictions: Predictions, classes: np.ndarray) -> Confusion:
    """Count rows by true and predicted class, including classes that the model does not know."""
    labels = np.unique(np.concatenate([classes, predictions.measured]))
    true = np.searchsorted(labels, predictions.measured)
    predicted = np.searchsorted(labels, predictions.predicted)
    counts = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(counts, (true, predicted), 1)
    return Confusion(labels.tolist(), counts)


def _rms(columns: np.ndarray) -> list[float]:
    """Return the root mean square of each column, where no square over- or underflows."""
    largest = np.max(np.abs(columns), axis=0)
    scaled = columns / np.where(largest > 0, largest, 1)
    return (largest * np.sqrt(np.mean(scaled**2, axis=0))).tolist()
