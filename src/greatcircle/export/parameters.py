"""The numbers of an exported file: those of a model, rounded to the precision of the file.

    x = x clipped to saturation.lower, saturation.upper         if inputs are clipped
    z = ((x − input_shift) − shift_remainder) · input_scale     or x/‖x‖ for the scaling "paper"
    h = ρ(h W + b)                                              for each hidden layer
    y = (h W + b) · output_scale + output_shift                 clipped likewise

The shift is not folded into the first bias: where an input is large compared with its spread, the
difference would be lost to rounding. In float32 `shift_remainder` is the rounding error of the
shift.

Far from the data the first layer sums large numbers, and their rounding errors are large too. An
activation that grows keeps them small compared with its values; a bounded one does not. In float32
files the first layer before a bounded activation therefore is stored, and computed, in float64.
Inputs are clipped before that, in the precision of the file.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from greatcircle.data.saturation import Saturation
from greatcircle.data.scaling import Scaling
from greatcircle.export.formula import NUMPY
from greatcircle.export.trace import derivative_of
from greatcircle.model import Model
from greatcircle.network.activations.builtin import Activation

__all__ = ["Parameters", "Rounding", "rounded_parameters"]


@dataclass(frozen=True, eq=False)
class Parameters:
    """Scaling, layers and activation of a network, as a file stores them.

    Parameters
    ----------
    dtype
        float32 or float64: the precision of the file, except for a first layer in float64.
    normalise
        Whether rows are divided by their norms instead of shifted and scaled.
    input_shift, shift_remainder, input_scale
        Shift and scale of each input, in the precision of the first layer.
    matrices
        Weights of each layer, (fan_in, fan_out).
    biases
        Biases of each layer; None if the network has no biases.
    output_scale, output_shift
        One factor, and a shift of each output.
    activation
        Activation of the hidden layers.
    saturation
        Intervals of inputs and outputs, in the precision of the file.
    """

    dtype: np.dtype
    normalise: bool
    input_shift: np.ndarray
    shift_remainder: np.ndarray
    input_scale: np.ndarray
    matrices: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...] | None
    output_scale: np.ndarray
    output_shift: np.ndarray
    activation: Activation
    saturation: Saturation

    @property
    def first_dtype(self) -> np.dtype:
        """Type in which the first layer is stored and computed."""
        return self.matrices[0].dtype

    @property
    def has_double_first_layer(self) -> bool:
        """Whether the first layer is computed in float64 and all others in float32."""
        return self.first_dtype != self.dtype

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of inputs, of units of each hidden layer, and of outputs."""
        return (len(self.input_shift), *(w.shape[1] for w in self.matrices))

    @property
    def slopes(self) -> tuple[float, float]:
        """Interval of the slopes of the activation, whose constants are rounded too.

        Rounding changes slopes by millionths, so only those near an end of the interval can leave
        it. They are evaluated on a grid, like those of a declared activation.
        """
        low, high = self.activation.slopes
        derivative = derivative_of(self.activation)
        constants = np.array(derivative.constants)
        if np.array_equal(constants, constants.astype(self.dtype), equal_nan=True):
            return low, high
        z = np.unique(np.concatenate([[0.0], *(s * np.logspace(-6, 3, 4000) for s in (-1, 1))]))
        variables = {"z": z, "a": self.activation(z)}
        with np.errstate(all="ignore"):
            exact = derivative.evaluate(NUMPY, variables)
            rounded = derivative.evaluate(NUMPY, variables, lambda v: float(self.dtype.type(v)))
        change, near = rounded - exact, 1e-3
        return (
            low + min(0.0, float(np.min(change, where=exact < low + near, initial=0))),
            high + max(0.0, float(np.max(change, where=exact > high - near, initial=0))),
        )

    @property
    def model(self) -> Model:
        """These numbers as a model in float64."""
        with np.errstate(divide="ignore"):
            spread = 1 / self.input_scale.astype(np.float64)
        shift = self.input_shift.astype(np.float64) + self.shift_remainder
        # The name of a scaling matters only for "paper", which normalises rows.
        scaling = Scaling(
            "paper" if self.normalise else "standard",
            np.zeros_like(shift) if self.normalise else shift,
            np.ones_like(spread) if self.normalise else spread,
            1.0,
            self.output_shift.astype(np.float64),
            1 / float(self.output_scale),
        )
        layers = [w.astype(np.float64) for w in self.matrices]
        if self.biases is not None:
            pairs = zip(layers, self.biases, strict=True)
            layers = [np.vstack([w, b.astype(np.float64)]) for w, b in pairs]
        return Model(
            tuple(layers),
            self.biases is not None,
            self.activation,
            scaling,
            saturation=self.saturation.converted(lambda _, end: end.astype(np.float64)),
        )


class Rounding:
    """Round to a precision, or raise an error if it cannot hold a number."""

    def __init__(self, dtype: np.dtype) -> None:
        self._dtype = dtype

    def __call__(self, what: str, values: Any, *, factor: bool = False) -> np.ndarray:
        """Return the rounded values; of a factor, subnormal numbers have too few digits."""
        values = np.asarray(values, np.float64)
        with np.errstate(over="ignore", under="ignore"):
            rounded = np.asarray(values, self._dtype)
        lost = ~np.isfinite(rounded)
        if factor:
            lost |= (values != 0) & (np.abs(rounded) < np.finfo(self._dtype).tiny)
        if np.any(lost):
            double = "dtype='float64', or " if self._dtype == np.float32 else ""
            raise ValueError(
                f"{self._dtype.name} cannot hold {what}, {values[lost].flat[0]:.6g}; try {double}"
                "other units of the data"
            )
        return rounded


def rounded_parameters(model: Model, dtype: np.dtype) -> Parameters:
    """Return the numbers of a model in the precision of a file."""
    scaling, matrices, biases = model.scaling, model.matrices, model.biases
    normalise = scaling.name == "paper"
    scale = np.ones(model.sizes[0]) if normalise else scaling.scale
    # The shift of an input that does not vary could overflow.
    shift = np.where(scale > 0, scaling.shift, 0.0)
    in_double = model.activation.bounded and len(matrices) > 1 and not normalise
    rounding = Rounding(dtype)
    first = Rounding(np.dtype(np.float64)) if in_double else rounding
    layers = [first, *[rounding] * (len(matrices) - 1)]
    rounded_shift = first("the shift of an input", shift)
    return Parameters(
        dtype=dtype,
        normalise=normalise,
        input_shift=rounded_shift,
        shift_remainder=first("the shift of an input", shift - rounded_shift.astype(np.float64)),
        input_scale=first("the scale of an input", scale, factor=True),
        matrices=tuple(r("a weight", w) for r, w in zip(layers, matrices, strict=True)),
        biases=None
        if biases is None
        else tuple(r("a bias", b) for r, b in zip(layers, biases, strict=True)),
        output_scale=rounding("the scale of the targets", 1 / scaling.factor, factor=True),
        output_shift=rounding("the shift of a target", scaling.target_shift),
        activation=model.activation,
        # Rounding to nearest keeps the order of two ends.
        saturation=model.saturation.converted(rounding),
    )
