"""Evaluate a fitted model: train and test errors, Lipschitz bounds, slices through the inputs.

Numbers only. `report.model` draws them, and the command line prints them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from greatcircle import certificate

Model = Any

JACOBIANS, ENTRIES = 5000, 10**7
"""Largest number of rows at which the Jacobian is computed, and of its entries in all."""

POINTS, MOST_SLICES = 81, 50
"""Points of each slice, and the largest number of slices."""


class Part(NamedTuple):
    """Rows of one part, with what was measured and what the model says of them."""

    rows: np.ndarray
    """Their numbers in the table, from zero."""
    measured: np.ndarray
    """(rows, targets), or one label for each row."""
    predicted: np.ndarray

    @property
    def residuals(self) -> np.ndarray:
        """Measured − predicted."""
        return self.measured - self.predicted


class Bounds(NamedTuple):
    """What is known of the Lipschitz constant, in units of the outputs per `unit`."""

    a_priori: float
    """Known before training: the budget, or ∏μ_i."""
    operator_norms: float
    """∏‖W_i‖_op."""
    certified: float
    """The certificate, which the best multipliers prove."""
    lower: float
    """Largest operator norm of a Jacobian at the rows: no bound can be lower."""
    per_deviation: float | None
    """The certificate per standard deviation of the inputs, where these are standardised."""
    unit: str


class Slices(NamedTuple):
    """The learned function along each input, the others at their medians."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    grid: np.ndarray
    """(inputs, points), over the range of the training rows."""
    values: np.ndarray
    """(inputs, points, outputs)"""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A fitted model on its training and its test rows."""

    model: Model
    targets: tuple[str, ...]
    train: Part
    test: Part
    bounds: Bounds
    slices: Slices

    @property
    def classes(self) -> np.ndarray | None:
        """Labels of a classifier."""
        return getattr(self.model, "classes_", None)

    @property
    def parts(self) -> dict[str, Part]:
        """By name."""
        return {"train": self.train, "test": self.test}

    def metrics(self) -> dict[str, Any]:
        """For each part: RMS and R² for each target and in all, or the accuracy."""
        if self.classes is None:
            return {name: _errors(part, self.targets) for name, part in self.parts.items()}
        return {
            "train": _hits(self.train),
            "test": _hits(self.test) | {"confusion": confusion(self.test, self.classes)},
        }

    def curves(self) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Training loss and, with early stopping, validation loss, from the start; the angle."""
        history = self.model.history_
        loss, unseen = history["loss"], history["validation_loss"]
        first = loss[0] + history["actual"][0] if len(loss) else self.model.loss_
        validation = None if np.all(np.isnan(unseen)) else np.concatenate([[np.nan], unseen])
        return np.concatenate([[first], loss]), validation, history["angle"]


def evaluate(
    model: Model,
    inputs: pl.DataFrame,
    measured: np.ndarray,
    train: np.ndarray,
    test: np.ndarray,
    targets: Sequence[str],
) -> Evaluation:
    """Apply a fitted model to the rows it was trained on and to those it was not.

    Parameters
    ----------
    model
        Fitted on the training rows of `inputs`.
    inputs
        One column for each input.
    measured
        Targets (rows, targets), or labels (rows,).
    train, test
        Numbers of the rows of each part.
    targets
        Names of the targets.
    """
    predicted = model.predict(inputs).reshape(measured.shape)
    return Evaluation(
        model,
        tuple(targets),
        *(Part(rows, measured[rows], predicted[rows]) for rows in (train, test)),
        bounds=bounds(model, inputs),
        slices=slices(model, inputs[train], tuple(targets)),
    )


def bounds(model: Model, inputs: pl.DataFrame) -> Bounds:
    """Upper bounds, and the steepest slope seen at the rows."""
    scaling = model.scaling_
    if model.lipschitz is not None:
        a_priori = float(model.lipschitz)
    else:
        sizes = [np.linalg.norm(np.asarray(w, np.float64)) for w in model.weights_]
        a_priori = scaling.bound(float(np.prod(sizes)))
    most = ENTRIES // (inputs.width * model.network_.sizes[-1])
    picked = inputs[evenly(len(inputs), max(1, min(JACOBIANS, most)))]
    steepness = np.linalg.norm(model.jacobian(picked), 2, axis=(1, 2))
    unit = "unit of the inputs"
    if not scaling.is_global:
        # That bound is per unit of x/‖x‖, along which a step from x to x + d is d/‖x‖ long.
        steepness = steepness * np.linalg.norm(picked.to_numpy(), axis=1)
        unit = "unit of x/‖x‖"
    matrices, _ = model.layers()
    deviation = None
    if scaling.name == "standard":
        activation = model.network_.activation
        matrices[0] = matrices[0] * (scaling.scale > 0)[:, None]  # columns that do not vary
        own = certificate.tight(matrices, activation=activation, orientation="in-out").value
        deviation = scaling.standard_bound(own)
    return Bounds(
        a_priori,
        certificate.spectral(model).value,
        model.certificate_.value,
        float(steepness.max()),
        deviation,
        unit,
    )


def slices(model: Model, inputs: pl.DataFrame, targets: tuple[str, ...]) -> Slices:
    """Vary one input at a time; a classifier's outputs are its probabilities.

    Of very many inputs only those with the largest effect at the median of the data are varied.
    """
    rows = inputs.to_numpy()
    low, middle, high = rows.min(axis=0), np.median(rows, axis=0), rows.max(axis=0)
    slope = model.jacobian(pl.DataFrame(middle[None], schema=inputs.columns))[0]
    effect = np.linalg.norm(slope, axis=0) * (high - low)
    chosen = np.sort(np.argsort(-effect, kind="stable")[:MOST_SLICES])
    grid = np.linspace(low[chosen], high[chosen], POINTS).T
    varied = np.tile(middle, (len(chosen), POINTS, 1))
    for i, column in enumerate(chosen):
        varied[i, :, column] = grid[i]
    frame = pl.DataFrame(varied.reshape(-1, len(middle)), schema=inputs.columns)
    if hasattr(model, "classes_"):
        outputs = tuple(f"probability of {label}" for label in model.classes_)
        values = model.predict_proba(frame)
    else:
        outputs, values = targets, model.predict(frame)
    names = tuple(inputs.columns[i] for i in chosen)
    return Slices(names, outputs, grid, values.reshape(len(chosen), POINTS, len(outputs)))


def confusion(part: Part, classes: np.ndarray) -> dict[str, Any]:
    """How often rows of each class (down) were taken for each class (across)."""
    labels = np.unique(np.concatenate([classes, part.measured]))
    true, said = np.searchsorted(labels, part.measured), np.searchsorted(labels, part.predicted)
    counts = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(counts, (true, said), 1)
    return {"labels": labels.tolist(), "counts": counts.tolist()}


def residual_shares(
    parts: dict[str, Part], target: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Centres of common bins and the share of each part's rows in them, empty bins at the ends."""
    every = np.concatenate([part.residuals[:, target] for part in parts.values()])
    # A single outlier must not squeeze all others into one bin.
    low, high = np.quantile(every, [0.002, 0.998] if len(every) > 500 else [0, 1])
    if not high > low:
        low, high = low - 0.5, high + 0.5
    fewest = min(len(part.rows) for part in parts.values())
    count = int(np.clip(np.sqrt(fewest), 8, 50))
    edges = np.linspace(low, high, count + 1)
    width = edges[1] - edges[0]
    centres = np.concatenate([[low - width / 2], edges[:-1] + width / 2, [high + width / 2]])
    shares = {}
    for name, part in parts.items():
        inside = np.histogram(part.residuals[:, target], edges)[0]
        shares[name] = (centres, np.concatenate([[0], inside, [0]]) / len(part.rows))
    return shares


def evenly(count: int, most: int) -> np.ndarray:
    """At most so many of the row numbers, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.intp))


def _errors(part: Part, targets: Sequence[str]) -> dict[str, Any]:
    errors = _rms(part.residuals)
    spread = _rms(part.measured - np.mean(part.measured, axis=0))
    # A target that does not vary has no R².
    explained = [1 - (e / s) ** 2 if s > 0 else None for e, s in zip(errors, spread, strict=True)]
    known = [r2 for r2 in explained if r2 is not None]
    return {
        "rows": len(part.rows),
        "rms": math.hypot(*errors),
        "r2": sum(known) / len(known) if known else None,
        "targets": {
            name: {"rms": rms, "r2": r2}
            for name, rms, r2 in zip(targets, errors, explained, strict=True)
        },
    }


def _rms(columns: np.ndarray) -> list[float]:
    """Return the root mean square of each column, of any size: no square over- or underflows."""
    size = np.max(np.abs(columns), axis=0)
    unit = columns / np.where(size > 0, size, 1)
    return (size * np.sqrt(np.mean(unit**2, axis=0))).tolist()


def _hits(part: Part) -> dict[str, Any]:
    counts = np.unique(part.measured, return_counts=True)[1]
    return {
        "rows": len(part.rows),
        "accuracy": float(np.mean(part.measured == part.predicted)),
        "largest_class": float(counts.max() / counts.sum()),
    }
