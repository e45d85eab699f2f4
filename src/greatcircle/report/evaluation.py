"""Evaluate a fitted model: train and test errors, Lipschitz bounds, slices through the inputs.

Numbers only: `report.fit` draws them, and the command line prints them.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from greatcircle.figures.tables import Confusion, LearningCurves, Predictions, Slices
from greatcircle.model import Model, Training
from greatcircle.report.lipschitz import LipschitzBounds, lipschitz_bounds
from greatcircle.report.metrics import accuracy, confusion, errors
from greatcircle.report.slices import slices

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Results of a fitted model on its training and its test rows."""

    model: Model
    training: Training
    train: Predictions
    test: Predictions
    bounds: LipschitzBounds
    slices: Slices

    @property
    def predictions(self) -> dict[str, Predictions]:
        """Predictions by name."""
        return {"train": self.train, "test": self.test}

    @property
    def network(self) -> str:
        """Sizes of the layers, as in "12-25-30-15-3"."""
        return "-".join(map(str, self.model.sizes))

    @property
    def trained_network(self) -> str:
        """What the training history is about: the network, or the first of several."""
        networks = self.model.networks
        if networks == 1:
            return f"network {self.network}"
        inputs, *hidden, outputs = self.model.sizes
        sizes = (inputs, *(units // networks for units in hidden), outputs)
        return f"first of {networks} networks {'-'.join(map(str, sizes))}"

    @cached_property
    def confusion(self) -> Confusion | None:
        """Test rows by true and predicted class; None for a regressor."""
        classes = self.model.classes
        return None if classes is None else confusion(self.test, classes)

    def metrics(self) -> dict[str, Any]:
        """Return RMS and R² of training and test rows or, for a classifier, the accuracy."""
        if self.confusion is None:
            targets = self.model.target_names
            return {name: errors(rows, targets) for name, rows in self.predictions.items()}
        labels, counts = self.confusion
        return {
            "train": accuracy(self.train),
            "test": accuracy(self.test)
            | {"confusion": {"labels": labels, "counts": counts.tolist()}},
        }

    def learning_curves(self, axis: str = "loss") -> LearningCurves:
        """Return the curves of training loss, angle and, with early stopping, validation loss."""
        history = self.training.history
        loss, validation = history["loss"], history["validation_loss"]
        start = loss[0] + history["actual"][0] if len(loss) else self.training.loss
        has_validation = not np.all(np.isnan(validation))
        return LearningCurves(
            self.trained_network,
            np.concatenate([[start], loss])[None],
            np.concatenate([[np.nan], validation])[None] if has_validation else None,
            history["angle"][None],
            names=("training loss", "validation loss"),
            axis=axis,
        )


def evaluate(
    model: Model, inputs: np.ndarray, measured: np.ndarray, train: np.ndarray, test: np.ndarray
) -> Evaluation:
    """Evaluate a model on its training rows and on its test rows.

    Parameters
    ----------
    model
        Fitted on the training rows, with its training history.
    inputs
        (rows, inputs)
    measured
        Targets (rows, targets), or labels (rows,).
    train, test
        Row numbers of the training and of the test rows.
    """
    if model.training is None:
        raise ValueError("model has no training history; expected a model that was just fitted")
    predicted = model.predict(inputs).reshape(measured.shape)
    return Evaluation(
        model,
        model.training,
        *(Predictions(rows, measured[rows], predicted[rows]) for rows in (train, test)),
        bounds=lipschitz_bounds(model, inputs),
        slices=slices(model, inputs[train]),
    )
