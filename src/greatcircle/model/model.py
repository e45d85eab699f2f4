"""A fitted model: a network with its scaling as plain NumPy arrays.

Prediction, certificates, storage, export, figures and reports start from this record, and none of
them needs JAX. An estimator makes one in `fit`; `storage.load` reads one from a file.

    x = x clipped to the input box          if the saturation has one
    z = (x − shift) / spread / divisor      or x/‖x‖ for the scaling "paper"
    h = ρ(h W + b)                          for each hidden layer
    y = (h W + b) / factor + target_shift   clipped, if the saturation has a range of outputs
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from greatcircle.certificate.lipsdp import tight
from greatcircle.certificate.proof import Certificate
from greatcircle.data.saturation import UNSATURATED, Saturation
from greatcircle.data.scaling import Scaling
from greatcircle.model.selection import SelectionTable
from greatcircle.network.activations.builtin import Activation
from greatcircle.optimise.history import History

__all__ = ["Model", "Training", "as_model"]

CHUNK_ENTRIES = 2**22
"""Largest number of entries of an array of intermediate results."""


@dataclass(frozen=True, eq=False)
class Training:
    """How a model was trained."""

    history: History
    loss: float
    """Final training loss, in the units of the targets where the loss has units."""
    outcome: str
    """How training ended, in one word."""
    reason: str
    """Why it ended, in a sentence."""
    selection: SelectionTable | None = None
    """The candidates among which held-out error chose, or None."""


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted network with its scaling, names and certificate.

    Parameters
    ----------
    weights
        Matrix of each layer, (fan_in, fan_out); with `bias` its last row is the bias.
    bias
        Whether the layers have biases.
    activation
        Activation of the hidden layers.
    scaling
        Scaling of inputs and targets.
    feature_names
        Names of the inputs, or None.
    target_names
        Names of the targets; empty where they have none.
    single_output
        Whether predictions are one-dimensional.
    classes
        Labels of a classifier, in order; None for a regressor. The outputs of a classifier are
        logits: one for two classes, otherwise one for each.
    lipschitz
        The Lipschitz budget that the model was trained within, or None.
    training
        How it was trained, or None; of several networks, how the first was.
    networks
        Number of networks of equal shape whose mean it is, side by side in its layers.
    known_certificate
        A certificate that was verified for this model; None computes one when it is first needed.
    saturation
        Intervals to which inputs and outputs are clipped. Inputs cannot be clipped with the scaling
        "paper", whose bound depends on ‖x‖.
    """

    weights: tuple[np.ndarray, ...]
    bias: bool
    activation: Activation
    scaling: Scaling
    feature_names: tuple[str, ...] | None = None
    target_names: tuple[str, ...] = ()
    single_output: bool = False
    classes: np.ndarray | None = None
    lipschitz: float | None = None
    training: Training | None = None
    networks: int = 1
    known_certificate: Certificate | None = None
    saturation: Saturation = UNSATURATED

    def __post_init__(self) -> None:
        if self.saturation.clips_inputs and not self.scaling.is_global:
            raise ValueError(
                "the saturation has an input box, and the scaling is 'paper', whose bound is per "
                "unit of x/‖x‖: clipping changes the direction of x; expected another scaling, or "
                "a saturation of the outputs alone"
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of inputs, of units of each hidden layer, and of outputs."""
        return (len(self.weights[0]) - self.bias, *(w.shape[1] for w in self.weights))

    @property
    def matrices(self) -> list[np.ndarray]:
        """Matrices (fan_in, fan_out) without biases."""
        return [w[:-1] if self.bias else w for w in self.weights]

    @property
    def biases(self) -> list[np.ndarray] | None:
        """Biases of each layer; None without any."""
        return [w[-1] for w in self.weights] if self.bias else None

    @cached_property
    def certificate(self) -> Certificate:
        """`certificate.tight` of the model, in units of y per unit of X.

        With the scaling "paper" it holds for ‖x‖ ≥ 1. For a classifier the outputs are logits. If
        inputs are clipped, it is the bound inside the box, which holds everywhere.
        """
        return tight(self) if self.known_certificate is None else self.known_certificate

    def outputs(self, X: ArrayLike) -> np.ndarray:
        """Return the outputs for rows X, (rows, outputs), in the units of the targets.

        Computed in float64 whatever the type of the weights: where inputs are large compared with
        their differences, float32 would move predictions by more than the Lipschitz bound allows.
        """
        rows = self._checked(X)
        matrices, biases = self._float64_layers
        outputs = np.empty((len(rows), self.sizes[-1]))
        for chunk in _chunks(len(rows), max(self.sizes)):
            h = self.scaling.inputs(self.saturation.inputs(rows[chunk]))
            for w, b in zip(matrices[:-1], biases[:-1], strict=True):
                h = self.activation(h @ w + b)
            last = self.scaling.outputs(h @ matrices[-1] + biases[-1])
            outputs[chunk] = self.saturation.outputs(last)
        return outputs

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return targets for rows X in the units of the training targets, or labels."""
        if self.classes is None:
            outputs = self.outputs(X)
            return outputs[:, 0] if self.single_output else outputs
        return self.classes[np.argmax(self.predict_proba(X), axis=1)]

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Return the probability of each class for rows X, (rows, classes)."""
        if self.classes is None:
            raise TypeError("the model is a regressor, which has no classes; use predict(X)")
        logits = self.outputs(X)
        if logits.shape[1] == 1:
            logits = np.hstack([np.zeros_like(logits), logits])
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    def jacobian(self, X: ArrayLike) -> np.ndarray:
        """Return the derivatives of the outputs at each row of X.

        Returns
        -------
        array, (rows, outputs, inputs)
            In units of y per unit of X; for a classifier, of the logits. Derivatives by a clipped
            input, and those of a clipped output, are zero.
        """
        rows = self._checked(X)
        matrices, biases = self._float64_layers
        jacobian = np.empty((len(rows), self.sizes[-1], self.sizes[0]))
        # From the outputs back to the inputs: products with as few rows as there are outputs.
        for chunk in _chunks(len(rows), self.sizes[-1] * max(self.sizes)):
            x, slopes = self.saturation.inputs(rows[chunk]), []
            h = self.scaling.inputs(x)
            for w, b in zip(matrices[:-1], biases[:-1], strict=True):
                z = h @ w + b
                slopes.append(self.activation.slope(z))
                h = self.activation(z)
            product = np.tile(matrices[-1].T, (len(h), 1, 1))
            for w, slope in zip(matrices[-2::-1], slopes[::-1], strict=True):
                product = (product * slope[:, None, :]) @ w.T
            last = self.scaling.outputs(h @ matrices[-1] + biases[-1])
            chained = self.scaling.chained(product, x)
            jacobian[chunk] = self.saturation.chained(chained, rows[chunk], last)
        return jacobian

    def unsaturated(self) -> "Model":
        """Return the model without clipping; its bound may be larger."""
        known = None if self.saturation.clips_inputs else self.known_certificate
        return replace(self, saturation=UNSATURATED, known_certificate=known)

    @cached_property
    def _float64_layers(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        matrices = [np.asarray(w, np.float64) for w in self.matrices]
        if self.biases is None:
            return matrices, [np.zeros(w.shape[1]) for w in matrices]
        return matrices, [np.asarray(b, np.float64) for b in self.biases]

    def _checked(self, X: ArrayLike) -> np.ndarray:
        rows = np.asarray(X, np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.sizes[0]:
            raise ValueError(
                f"X has shape {rows.shape}; expected rows of {self.sizes[0]} columns"
                + (f": {', '.join(self.feature_names)}" if self.feature_names else "")
            )
        return rows


def as_model(fitted: Any) -> Model:
    """Return a `Model`, or that of a fitted estimator."""
    model = fitted if isinstance(fitted, Model) else getattr(fitted, "model_", None)
    if not isinstance(model, Model):
        raise TypeError(
            f"model is a {type(fitted).__name__}; expected a fitted LipschitzRegressor or "
            "LipschitzClassifier: for a pipeline, pass its last step"
        )
    return model


def _chunks(rows: int, entries_per_row: int) -> Iterator[slice]:
    """Return slices of rows whose intermediate results fit into `CHUNK_ENTRIES`."""
    size = max(1, CHUNK_ENTRIES // entries_per_row)
    return (slice(first, first + size) for first in range(0, rows, size))
