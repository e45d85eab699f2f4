"""Anything that can be certified, as one stack of matrices in the units of its data.

A fitted model, or the matrices and biases of a network that was trained elsewhere. The scaling of
inputs and targets becomes a factor of each input and one of all outputs, so that every bound is in
units of y per unit of X. Inputs that are held fixed have the factor zero: a bound for a block of
inputs is a bound for the network that sees no other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from greatcircle import activations
from greatcircle.activations import Activation
from greatcircle.certificate.proof import Certificate, digest


@dataclass(frozen=True)
class Stack:
    """Matrices, slopes and units."""

    weights: tuple[np.ndarray, ...]
    """(fan_in, fan_out) each, as they were given."""
    biases: tuple[np.ndarray, ...] | None
    activation: Activation
    shift: np.ndarray
    scale: np.ndarray
    gain: float
    active: np.ndarray
    """Which inputs vary."""
    holds: str

    @property
    def matrices(self) -> list[np.ndarray]:
        """The layers A, z = A h, with scale and gain in the first and the last of them."""
        layers = [w.T for w in self.weights]
        layers[0] = layers[0] * np.where(self.active, self.scale, 0.0)
        layers[-1] = layers[-1] * self.gain
        return layers

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
    ) -> Certificate:
        """These numbers, for this stack; whether they prove anything is for `verify` to say."""
        return Certificate(
            value=float(value),
            method=method,
            multipliers=tuple(multipliers),
            slopes=tuple(slopes),
            scale=np.where(self.active, self.scale, 0.0),
            gain=self.gain,
            digest=digest(self.weights, self.biases),
            declared=self.activation.declared,
            holds=self.holds,
        )


def stack(
    weights: Any,
    biases: Sequence[ArrayLike] | None = None,
    activation: str | Activation | None = None,
    inputs: Sequence[str | int] | None = None,
    at_least: float | None = None,
) -> Stack:
    """The stack of a fitted model, or of matrices.

    Parameters
    ----------
    weights
        A fitted model, or matrices (fan_in, fan_out).
    biases
        Of each layer; only for matrices.
    activation
        Of the hidden layers; only for matrices, "relu" unless said.
    inputs
        Names or numbers of the inputs that vary; None for all.
    at_least
        For `scaling="paper"`, whose bound falls with ‖x‖: the least ‖x‖ it is to hold for.
    """
    if hasattr(weights, "weights_"):
        if biases is not None or activation is not None:
            raise ValueError(
                "biases and activation are part of a fitted model; leave them out, or give "
                "matrices as weights"
            )
        made = _of_model(weights, at_least)
    else:
        if at_least is not None:
            raise ValueError("at_least belongs to a model with scaling='paper'; leave it out")
        matrices = checked(weights)
        made = Stack(
            weights=tuple(matrices),
            biases=_checked_biases(biases, matrices),
            activation=activations.get("relu" if activation is None else activation),
            shift=np.zeros(len(matrices[0])),
            scale=np.ones(len(matrices[0])),
            gain=1.0,
            active=np.ones(len(matrices[0]), bool),
            holds="everywhere",
        )
    if inputs is None:
        return made
    names = getattr(weights, "feature_names_in_", None)
    chosen, label = chosen_inputs(inputs, names, len(made.scale))
    holds = f"{made.holds}, other inputs than {label} fixed"
    if getattr(getattr(weights, "scaling_", None), "name", "") == "paper":
        return replace(made, holds=holds)  # one input moves all of x/‖x‖, and no further than ‖x‖
    return replace(made, active=chosen, holds=holds)


def _of_model(model: Any, at_least: float | None) -> Stack:
    scaling = model.scaling_
    matrices, biases = model.layers()
    holds, gain = "everywhere", 1 / scaling.factor
    if scaling.name == "paper":
        at_least = 1.0 if at_least is None else at_least
        if not isinstance(at_least, Real) or not 0 < float(at_least) < np.inf:
            raise ValueError(f"at_least is {at_least!r}; expected a positive number")
        # ‖x/‖x‖ − y/‖y‖‖ ≤ ‖x − y‖ / √(‖x‖‖y‖)
        scale = np.full(len(matrices[0]), 1 / float(at_least))
        holds = f"for ‖x‖ ≥ {float(at_least):g}"
    elif at_least is not None:
        raise ValueError(
            f"at_least belongs to scaling='paper'; the bound of scaling={scaling.name!r} holds "
            "everywhere: leave it out"
        )
    else:
        scale = scaling.scale
    return Stack(
        weights=tuple(np.asarray(w, np.float64) for w in matrices),
        biases=None if biases is None else tuple(np.asarray(b, np.float64) for b in biases),
        activation=model.network_.activation,
        shift=np.asarray(scaling.shift, np.float64),
        scale=scale,
        gain=float(gain),
        active=np.ones(len(scale), bool),
        holds=holds,
    )


def chosen_inputs(
    inputs: Sequence[str | int], names: np.ndarray | None, count: int
) -> tuple[np.ndarray, str]:
    """Which inputs are meant, and their names for a sentence."""
    if isinstance(inputs, str) or not isinstance(inputs, Iterable) or not len(inputs):
        raise ValueError(f"inputs is {inputs!r}; expected a list of names or numbers of inputs")
    known = [] if names is None else list(names)
    chosen = np.zeros(count, bool)
    for entry in inputs:
        if isinstance(entry, str) and entry in known:
            chosen[known.index(entry)] = True
        elif isinstance(entry, int | np.integer) and 0 <= entry < count:
            chosen[entry] = True
        else:
            there = ", ".join(map(str, known)) or "none: the model was fitted without names"
            raise ValueError(
                f"inputs has {entry!r}; expected numbers from 0 to {count - 1}, or names of "
                f"inputs ({there})"
            )
    return chosen, ", ".join(map(str, inputs))


def checked(weights: Sequence[ArrayLike]) -> list[np.ndarray]:
    """Matrices that make a network, or an error: a wrong shape must not become a wrong bound."""
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
        if i and matrices[i - 1].shape[1] != w.shape[0]:
            raise ValueError(
                f"weights[{i}] has {w.shape[0]} rows and weights[{i - 1}] "
                f"{matrices[i - 1].shape[1]} columns; expected (fan_in, fan_out) in order"
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
