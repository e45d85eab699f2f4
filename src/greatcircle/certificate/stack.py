"""The network to be certified as one stack of matrices in the units of its data.

It comes from a fitted model, or from the matrices and biases of a network that was trained
elsewhere. The scaling of inputs and targets becomes a factor of each input and one of all outputs,
so that every bound is in units of y per unit of X. Inputs that are held fixed have the factor zero:
a bound for a block of inputs is a bound for the network that sees no other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Real
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from greatcircle.certificate.box import Box
from greatcircle.certificate.proof import Certificate, digest, scaled, scope
from greatcircle.data.scaling import Scaling
from greatcircle.network.activations import builtin as activations
from greatcircle.network.activations.builtin import Activation

ORIENTATIONS = ("in-out", "out-in")
"""Matrices (fan_in, fan_out), as here, or (fan_out, fan_in), as PyTorch stores them."""


@dataclass(frozen=True)
class Stack:
    """Matrices, slopes and units."""

    weights: tuple[np.ndarray, ...]
    """(fan_in, fan_out) each."""
    biases: tuple[np.ndarray, ...] | None
    activation: Activation
    shift: np.ndarray
    scale: np.ndarray
    gain: float
    active: np.ndarray
    """Which inputs vary."""
    inputs: tuple[str | int, ...] | None = None
    """Names or numbers of the inputs that vary; None for all."""
    at_least: float | None = None
    """The least ‖x‖ for which bounds hold; None for all inputs."""

    @property
    def matrices(self) -> list[np.ndarray]:
        """The layers A, z = A h, with scale and gain in the first and the last of them."""
        return scaled(
            [w.T for w in self.weights], np.where(self.active, self.scale, 0.0), self.gain
        )

    def slopes(self, relaxed: bool = False) -> tuple[np.ndarray, ...]:
        """(α, β) of each hidden unit; relaxed to [0, 1] or [−1, 1]."""
        low, high = self.activation.slopes
        if relaxed:
            low, high = (0.0, 1.0) if low >= 0 else (-1.0, 1.0)
        return tuple(np.tile([low, high], (w.shape[1], 1)) for w in self.weights[:-1])

    def certificate(
        self,
        value: float,
        method: str,
        multipliers: Sequence[np.ndarray],
        slopes: Sequence[np.ndarray],
        box: Box | None = None,
    ) -> Certificate:
        """These numbers as a certificate of this stack, which nothing has checked yet."""
        return Certificate(
            value=float(value),
            method=method,
            multipliers=tuple(multipliers),
            slopes=tuple(slopes),
            scale=np.where(self.active, self.scale, 0.0),
            gain=self.gain,
            digest=digest(self.weights, self.biases),
            declared=self.activation.declared,
            holds=scope(box, self.inputs, self.at_least),
            box=box,
            inputs=self.inputs,
            at_least=self.at_least,
        )


def stack(
    weights: Any,
    biases: Sequence[ArrayLike] | None = None,
    activation: str | Activation | None = None,
    inputs: Sequence[str | int] | None = None,
    at_least: float | None = None,
    orientation: str | None = None,
) -> Stack:
    """The stack of a fitted model, or of matrices; parameters as for `tight`."""
    model = fitted_model(weights)
    if model is not None:
        if biases is not None or activation is not None or orientation is not None:
            raise ValueError(
                "biases, activation and orientation are part of a fitted model; leave them out, or "
                "give matrices as weights"
            )
        made = of_model(model, at_least)
    else:
        if at_least is not None:
            raise ValueError("at_least belongs to a model with scaling='paper'; leave it out")
        matrices = in_out(weights, orientation)
        made = Stack(
            weights=tuple(matrices),
            biases=_checked_biases(biases, matrices),
            activation=activations.get("relu" if activation is None else activation),
            shift=np.zeros(len(matrices[0])),
            scale=np.ones(len(matrices[0])),
            gain=1.0,
            active=np.ones(len(matrices[0]), bool),
        )
    if inputs is None:
        return made
    if isinstance(inputs, Iterable) and not isinstance(inputs, str):
        inputs = tuple(inputs)
    names = None if model is None else model.feature_names
    chosen = chosen_inputs(inputs, names, len(made.scale))
    if made.at_least is not None:  # one input moves all of x/‖x‖, and no further than ‖x‖
        chosen = made.active
    return replace(made, active=chosen, inputs=tuple(inputs))


class FittedModel(Protocol):
    """A fitted model, as certificates need it: `greatcircle.model.Model`."""

    @property
    def matrices(self) -> Sequence[np.ndarray]:
        """Matrices (fan_in, fan_out)."""
        ...

    @property
    def biases(self) -> Sequence[np.ndarray] | None:
        """Biases of each layer; None without any."""
        ...

    @property
    def activation(self) -> Activation:
        """Activation of the hidden layers."""
        ...

    @property
    def scaling(self) -> Scaling:
        """Scaling of inputs and targets."""
        ...

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the inputs, or None."""
        ...


def fitted_model(given: Any) -> FittedModel | None:
    """Return a model, or that of a fitted estimator; None for anything else."""
    model = getattr(given, "model_", given)
    return model if hasattr(model, "scaling") and hasattr(model, "matrices") else None


def of_model(model: FittedModel, at_least: float | None = None) -> Stack:
    """Return the stack of a model, which scales inputs and targets."""
    scaling = model.scaling
    scale = scaling.scale
    if scaling.name == "paper":
        at_least = 1.0 if at_least is None else at_least
        if not isinstance(at_least, Real) or not 1e-300 <= float(at_least) < np.inf:
            raise ValueError(f"at_least is {at_least!r}; expected a number of at least 1e-300")
        # ‖x/‖x‖ − y/‖y‖‖ ≤ ‖x − y‖ / √(‖x‖‖y‖)
        at_least = float(at_least)
        scale = np.full(len(scale), 1 / at_least)
    elif at_least is not None:
        raise ValueError(
            f"at_least belongs to scaling='paper'; the bound of scaling={scaling.name!r} holds "
            "everywhere: leave it out"
        )
    return Stack(
        weights=tuple(np.asarray(w, np.float64) for w in model.matrices),
        biases=model.biases and tuple(np.asarray(b, np.float64) for b in model.biases),
        activation=model.activation,
        shift=np.asarray(scaling.shift, np.float64),
        scale=scale,
        gain=float(1 / scaling.factor),
        active=np.ones(len(scale), bool),
        at_least=at_least,
    )


def chosen_inputs(inputs: Sequence[str | int], names: Sequence[str] | None, count: int) -> np.ndarray:
    """Which inputs are meant, by their names or numbers."""
    if isinstance(inputs, str) or not isinstance(inputs, Iterable) or not len(inputs):
        raise ValueError(f"inputs is {inputs!r}; expected a list of names or numbers of inputs")
    known = [] if names is None else list(names)
    chosen = np.zeros(count, bool)
    for entry in inputs:
        if isinstance(entry, str) and entry in known:
            chosen[known.index(entry)] = True
        elif type(entry) is not bool and isinstance(entry, int | np.integer) and 0 <= entry < count:
            chosen[entry] = True
        else:
            there = ", ".join(map(str, known)) or "none: the model was fitted without names"
            raise ValueError(
                f"inputs has {entry!r}; expected numbers from 0 to {count - 1}, or names of "
                f"inputs ({there})"
            )
    return chosen


def in_out(weights: Sequence[ArrayLike], orientation: str | None = None) -> list[np.ndarray]:
    """Matrices (fan_in, fan_out) that make a network, or an error.

    The transposes of square matrices make another network with another bound, and nothing in their
    shapes tells which of the two is meant.
    """
    matrices = _finite_matrices(weights)
    if orientation is not None and orientation not in ORIENTATIONS:
        raise ValueError(
            f"orientation is {orientation!r}; expected one of {', '.join(ORIENTATIONS)}"
        )
    if orientation == "out-in":
        matrices = [w.T for w in matrices]
    square = all(w.shape[0] == w.shape[1] for w in matrices)
    if (
        orientation is None
        and len(matrices) > 1
        and square
        and any(np.any(w != w.T) for w in matrices)
    ):
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
    if isinstance(weights, np.ndarray):
        raise ValueError("weights is one array; expected a list of matrices, [W] for one layer")
    if not isinstance(weights, Iterable):
        raise TypeError(
            f"weights is a {type(weights).__name__}; expected a fitted model or a list of matrices"
        )
    matrices = [np.asarray(w, np.float64) for w in weights]
    if not matrices:
        raise ValueError("weights is empty; expected at least one matrix")
    for i, w in enumerate(matrices):
        if w.ndim != 2 or not np.all(np.isfinite(w)):
            raise ValueError(
                f"weights[{i}] is not a finite matrix; its shape is {w.shape}: expected two "
                "dimensions, (fan_in, fan_out), and neither NaN nor infinity"
            )
    return matrices


def _checked_biases(
    biases: Sequence[ArrayLike] | None, matrices: Sequence[np.ndarray]
) -> tuple[np.ndarray, ...] | None:
    if biases is None:
        return None
    vectors = tuple(np.asarray(b, np.float64) for b in biases)
    shapes, expected = [b.shape for b in vectors], [(w.shape[1],) for w in matrices]
    if shapes != expected or not all(np.all(np.isfinite(b)) for b in vectors):
        raise ValueError(
            f"biases has the shapes {shapes}; expected finite vectors of the shapes {expected}"
        )
    return vectors
