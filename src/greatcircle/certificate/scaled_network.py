"""The network that a bound is computed for: its matrices with the scaling of inputs and outputs.

It comes from a fitted model, or from matrices and biases of a network trained elsewhere. The
scaling becomes one factor per input and one for all outputs, so that every bound is in units of y
per unit of X. Inputs that are held fixed have the factor zero: the bound for a group of inputs is
that of the network without the other inputs. So does an input that is clipped to one number.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from numbers import Real
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from greatcircle.certificate.box import INTERVAL_RULES, Box, slopes_in_box
from greatcircle.certificate.proof import Certificate, apply_scale, describe_scope, digest
from greatcircle.data.saturation import UNSATURATED, Saturation
from greatcircle.data.scaling import Scaling
from greatcircle.network.activations.builtin import ACTIVATIONS, Activation, get

__all__ = ["FittedModel", "ScaledNetwork", "as_scaled_network", "checked_matrices", "find_model"]

ORIENTATIONS = ("in-out", "out-in")
"""Matrices (fan_in, fan_out), as in this library, or (fan_out, fan_in), as in PyTorch."""

SLOPE_ERROR = 1e-9
"""Slopes in a box are widened by this, so that another machine's rounding does not change whether
the certificate of a file is accepted."""


@dataclass(frozen=True)
class ScaledNetwork:
    """A network in units of y per unit of X.

    Parameters
    ----------
    weights
        Matrices (fan_in, fan_out).
    biases
        Biases of each layer, or None.
    activation
        Activation of the hidden layers.
    shift, scale
        The first layer sees (x − shift) · scale.
    gain
        Factor of the outputs of the last layer.
    varying
        Which inputs vary; the others are held fixed.
    inputs
        Names or numbers of the inputs that vary; None for all.
    min_input_norm
        Smallest ‖x‖ for which bounds hold, for a network that sees x/‖x‖; else None.
    feature_names
        Names of the inputs, or None.
    saturation
        Intervals to which inputs and outputs are clipped, in the units of the data.
    output_shift
        Added to the outputs before they are clipped.
    """

    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...] | None
    activation: Activation
    shift: np.ndarray
    scale: np.ndarray
    gain: float
    varying: np.ndarray
    inputs: tuple[str | int, ...] | None = None
    min_input_norm: float | None = None
    feature_names: tuple[str, ...] | None = None
    saturation: Saturation = UNSATURATED
    output_shift: np.ndarray = field(default_factory=lambda: np.zeros(1))

    @property
    def normalises_inputs(self) -> bool:
        """Whether the network sees x/‖x‖."""
        return self.min_input_norm is not None

    @property
    def input_factors(self) -> np.ndarray:
        """Factor of each input; zero for inputs that are held fixed.

        With x/‖x‖ one input moves all inputs of the network, and no further than ‖x‖.
        """
        if self.normalises_inputs:
            return self.scale
        return np.where(self.varying, self.scale, 0.0)

    @property
    def matrices(self) -> list[np.ndarray]:
        """Layers A, z = A h, with factors of inputs and outputs in the first and the last."""
        return apply_scale([w.T for w in self.weights], self.input_factors, self.gain)

    def slopes(self, relaxed: bool = False) -> tuple[np.ndarray, ...]:
        """Return (α, β) of each hidden unit; relaxed to [0, 1] or [−1, 1]."""
        low, high = self.activation.slopes
        if relaxed:
            low, high = (0.0, 1.0) if low >= 0 else (-1.0, 1.0)
        return tuple(np.tile([low, high], (w.shape[1], 1)) for w in self.weights[:-1])

    def box(self, low: np.ndarray, high: np.ndarray) -> Box | None:
        """Return a box of inputs; None if units have the same slopes in it as everywhere."""
        name, saturation = self.activation.name, self.saturation
        if name not in INTERVAL_RULES or self.activation is not ACTIVATIONS.get(name):
            return None
        if not saturation.clips_inputs:
            # An input of scale zero does not matter, but zero times infinity would be NaN.
            low, high = (np.where(self.scale == 0, self.shift, c) for c in (low, high))
        clipped = saturation.lower, saturation.upper
        return Box(low, high, self.shift, self.scale, name, *clipped)

    def box_of_all(self) -> Box | None:
        """Return the box of all inputs if they are clipped and slopes are less steep for that."""
        if not self.saturation.clips_inputs:
            return None
        return self.box(np.full(len(self.scale), -np.inf), np.full(len(self.scale), np.inf))

    def slopes_in(self, box: Box | None) -> tuple[np.ndarray, ...]:
        """Return (α, β) of each hidden unit for inputs in a box; None is everywhere."""
        if box is None:
            return self.slopes()
        slopes = slopes_in_box(box, [w.T for w in self.weights], self.biases)
        error = np.array([-SLOPE_ERROR, SLOPE_ERROR])
        return tuple(np.where((s > 0) & (s < 1), np.clip(s + error, 0.0, 1.0), s) for s in slopes)

    def certificate(
        self,
        value: float,
        method: str,
        multipliers: Sequence[np.ndarray],
        slopes: Sequence[np.ndarray],
        box: Box | None = None,
    ) -> Certificate:
        """Return a certificate of this network with these numbers, not checked yet."""
        return Certificate(
            value=float(value),
            method=method,
            multipliers=tuple(multipliers),
            slopes=tuple(slopes),
            scale=self.input_factors,
            gain=self.gain,
            digest=digest(self.weights, self.biases),
            declared=self.activation.declared,
            holds=describe_scope(box, self.inputs, self.min_input_norm),
            box=box,
            inputs=self.inputs,
            min_input_norm=self.min_input_norm,
        )


class FittedModel(Protocol):
    """The part of `greatcircle.model.Model` that certificates need."""

    matrices: Sequence[np.ndarray]
    biases: Sequence[np.ndarray] | None
    activation: Activation
    scaling: Scaling
    feature_names: tuple[str, ...] | None
    saturation: Saturation


def find_model(given: Any) -> FittedModel | None:
    """Return a model, or that of a fitted estimator; None for anything else."""
    model = getattr(given, "model_", given)
    return model if hasattr(model, "scaling") and hasattr(model, "matrices") else None


def as_scaled_network(
    weights: Any,
    biases: Sequence[ArrayLike] | None = None,
    activation: str | Activation | None = None,
    inputs: Sequence[str | int] | None = None,
    min_input_norm: float | None = None,
    orientation: str | None = None,
) -> ScaledNetwork:
    """Return the scaled network of a fitted model or of matrices; parameters as for `tight`."""
    model = find_model(weights)
    if model is None:
        if min_input_norm is not None:
            raise ValueError(
                "min_input_norm is only for a model with scaling='paper'; leave it out"
            )
        network = _of_matrices(checked_matrices(weights, orientation), biases, activation)
    elif biases is not None or activation is not None or orientation is not None:
        raise ValueError(
            "biases, activation and orientation are for weights given as matrices; a fitted model "
            "has its own: leave them out"
        )
    else:
        network = _of_model(model, min_input_norm)
    if inputs is None:
        return network
    if isinstance(inputs, Iterable) and not isinstance(inputs, str):
        inputs = tuple(inputs)
    varying = _selected(inputs, network.feature_names, len(network.scale))
    return replace(network, varying=network.varying & varying, inputs=tuple(inputs))


def _of_matrices(
    matrices: Sequence[np.ndarray],
    biases: Sequence[ArrayLike] | None,
    activation: str | Activation | None,
) -> ScaledNetwork:
    """Return the network of matrices (fan_in, fan_out), without scaling."""
    columns = len(matrices[0])
    return ScaledNetwork(
        weights=tuple(matrices),
        biases=_checked_biases(biases, matrices),
        activation=get("relu" if activation is None else activation),
        shift=np.zeros(columns),
        scale=np.ones(columns),
        gain=1.0,
        varying=np.ones(columns, bool),
    )


def _of_model(model: FittedModel, min_input_norm: float | None) -> ScaledNetwork:
    """Return the network of a model, which scales inputs and targets."""
    scaling, biases, saturation = model.scaling, model.biases, model.saturation
    scale = scaling.scale
    varying = np.ones(len(scale), bool)
    if saturation.lower is not None and saturation.upper is not None:
        varying = saturation.lower < saturation.upper
    if scaling.name == "paper":
        min_input_norm = 1.0 if min_input_norm is None else min_input_norm
        if not isinstance(min_input_norm, Real) or not 1e-300 <= float(min_input_norm) < np.inf:
            raise ValueError(
                f"min_input_norm is {min_input_norm!r}; expected a number of at least 1e-300"
            )
        # ‖x/‖x‖ − y/‖y‖‖ ≤ ‖x − y‖ / √(‖x‖‖y‖)
        min_input_norm = float(min_input_norm)
        scale = np.full(len(scale), 1 / min_input_norm)
    elif min_input_norm is not None:
        raise ValueError(
            f"min_input_norm is only for scaling='paper'; the bound of scaling={scaling.name!r} "
            "holds everywhere: leave it out"
        )
    return ScaledNetwork(
        weights=tuple(np.asarray(w, np.float64) for w in model.matrices),
        biases=None if biases is None else tuple(np.asarray(b, np.float64) for b in biases),
        activation=model.activation,
        shift=np.asarray(scaling.shift, np.float64),
        scale=scale,
        gain=float(1 / scaling.factor),
        varying=varying,
        min_input_norm=min_input_norm,
        feature_names=model.feature_names,
        saturation=saturation,
        output_shift=np.asarray(scaling.target_shift, np.float64),
    )


def _selected(inputs: Any, names: Sequence[str] | None, count: int) -> np.ndarray:
    """Return which inputs have these names or numbers."""
    if isinstance(inputs, str) or not isinstance(inputs, Sequence) or not inputs:
        raise ValueError(
            f"inputs is {inputs!r}; expected a list of one or more names or numbers of inputs"
        )
    known = [] if names is None else list(names)
    selected = np.zeros(count, bool)
    for entry in inputs:
        if isinstance(entry, str) and entry in known:
            selected[known.index(entry)] = True
        elif type(entry) is not bool and isinstance(entry, int | np.integer) and 0 <= entry < count:
            selected[entry] = True
        else:
            there = ", ".join(map(str, known)) or "the inputs have no names"
            raise ValueError(
                f"inputs has {entry!r}; expected numbers from 0 to {count - 1}, or names of "
                f"inputs ({there})"
            )
    return selected


def checked_matrices(
    weights: Sequence[ArrayLike], orientation: str | None = None
) -> list[np.ndarray]:
    """Return matrices (fan_in, fan_out) that fit one another, or raise an error.

    If all of them are square, shapes do not tell them from their transposes, which are another
    network with another bound: then `orientation` is required.
    """
    matrices = _finite_matrices(weights)
    if orientation is not None and orientation not in ORIENTATIONS:
        raise ValueError(
            f"orientation is {orientation!r}; expected one of {', '.join(ORIENTATIONS)}"
        )
    if orientation == "out-in":
        matrices = [w.T for w in matrices]
    square = all(w.shape[0] == w.shape[1] for w in matrices)
    ambiguous = square and len(matrices) > 1 and any(np.any(w != w.T) for w in matrices)
    if orientation is None and ambiguous:
        raise ValueError(
            "weights are all square, so their shapes do not tell rows from columns; expected "
            "orientation='in-out' for matrices (fan_in, fan_out), used as x @ W, or "
            "orientation='out-in' for (fan_out, fan_in), as PyTorch stores them"
        )
    for i, (before, w) in enumerate(pairwise(matrices), start=1):
        if before.shape[1] != w.shape[0]:
            raise ValueError(
                f"weights[{i}] has {w.shape[0]} inputs and weights[{i - 1}] {before.shape[1]} "
                "outputs; expected matrices (fan_in, fan_out) in order, or with "
                "orientation='out-in' their transposes"
            )
    return matrices


def _finite_matrices(weights: Sequence[ArrayLike]) -> list[np.ndarray]:
    """Return at least one finite matrix in float64, or raise an error."""
    if isinstance(weights, np.ndarray):
        raise ValueError("weights is one array; expected a list of matrices, [W] for one layer")
    if not isinstance(weights, Iterable):
        raise TypeError(
            f"weights is of type {type(weights).__name__}; expected a fitted model or a list of "
            "matrices"
        )
    matrices = [np.asarray(w, np.float64) for w in weights]
    if not matrices:
        raise ValueError("weights is empty; expected at least one matrix")
    for i, w in enumerate(matrices):
        if w.ndim != 2 or not np.all(np.isfinite(w)):
            raise ValueError(
                f"weights[{i}] is not a finite matrix; its shape is {w.shape}: expected two "
                "dimensions, (fan_in, fan_out), without NaN or infinity"
            )
    return matrices


def _checked_biases(
    biases: Sequence[ArrayLike] | None, matrices: Sequence[np.ndarray]
) -> tuple[np.ndarray, ...] | None:
    """Return one finite vector for each layer, or None, or raise an error."""
    if biases is None:
        return None
    vectors = tuple(np.asarray(b, np.float64) for b in biases)
    shapes, expected = [b.shape for b in vectors], [(w.shape[1],) for w in matrices]
    if shapes != expected or not all(np.all(np.isfinite(b)) for b in vectors):
        raise ValueError(
            f"biases has the shapes {shapes}; expected finite vectors of the shapes {expected}"
        )
    return vectors
