"""Lipschitz bounds for inputs in a box, where some units cannot switch.

In a box the input z of each unit stays in an interval, where its slopes span less: `relu` is linear
on an interval without zero, and `tanh` is never as steep as at zero unless the interval contains
zero. The multipliers are the best ones for these slopes, and `verify` computes the slopes anew.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from greatcircle.certificate.candidates import best_certificate
from greatcircle.certificate.lipsdp import candidates_in_box
from greatcircle.certificate.proof import Certificate
from greatcircle.certificate.scaled_network import ScaledNetwork, as_scaled_network
from greatcircle.network.activations.builtin import Activation

__all__ = ["Corner", "local"]

Corner = ArrayLike | Mapping[str, float]


def local(
    weights: Any,
    low: Corner,
    high: Corner,
    *,
    biases: Sequence[ArrayLike] | None = None,
    activation: str | Activation | None = None,
    inputs: Sequence[str | int] | None = None,
    orientation: str | None = None,
) -> Certificate:
    """Return the best bound that multipliers can prove for inputs between `low` and `high`.

    Parameters
    ----------
    weights
        A fitted model, or the matrices of a network. If the model clips its inputs, so does the
        bound: outside the box of the training rows it is that of the nearest inputs inside.
    low, high
        Corners of the box in the units of X: a number for each input or, for a model that was
        fitted with names, a dictionary. Inputs that it leaves out are unbounded.
    biases
        Biases of the layers, for matrices.
    activation
        Activation of the hidden layers, for matrices; "relu" by default. `abs`, `sin` and declared
        ones have the same slopes in a box as everywhere.
    inputs
        Names or numbers of the inputs that vary. The others are held fixed, anywhere in the box.
    orientation
        As for `tight`.

    Examples
    --------
    >>> from greatcircle import certificate
    >>> weights = [[[1.0, -1.0]], [[1.0], [-2.0]]]
    >>> [round(certificate.local(weights, [low], [1]).value, 3) for low in (-1, 0.5)]
    [3.0, 1.0]
    """
    network = as_scaled_network(weights, biases, activation, inputs, None, orientation)
    if network.normalises_inputs:
        raise ValueError(
            "local needs inputs that are scaled separately, and scaling='paper' divides them by "
            "‖x‖; use certificate.tight with min_input_norm, or fit with scaling='standard'"
        )
    low, high = _corner("low", low, network), _corner("high", high, network)
    _check_order(low, high, network)
    box = network.box(low, high)
    candidates = candidates_in_box(network, network.slopes_in(box))
    return best_certificate(network, "local", candidates, box)


def _check_order(low: np.ndarray, high: np.ndarray, network: ScaledNetwork) -> None:
    if not np.all(low <= high):
        i, names = int(np.argmax(low > high)), network.feature_names
        raise ValueError(
            f"low is above high for input {i if names is None else names[i]}: "
            f"{low[i]:g} > {high[i]:g}"
        )


def _corner(which: str, given: Corner, network: ScaledNetwork) -> np.ndarray:
    """Return a corner of the box as an array, or raise an error that names it."""
    count = len(network.scale)
    if isinstance(given, Mapping):
        known = network.feature_names or ()
        unknown = [name for name in given if name not in known]
        if unknown:
            there = ", ".join(known) or "the inputs have no names"
            raise ValueError(
                f"{which} has {unknown[0]!r}; expected names of inputs ({there}), or an array of "
                f"{count} numbers"
            )
        given = [given.get(name, np.inf if which == "high" else -np.inf) for name in known]
    try:
        corner = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        corner = np.array(np.nan)
    if corner.shape != (count,) or np.any(np.isnan(corner)):
        raise ValueError(
            f"{which} is {given!r}; expected {count} numbers, one for each input, without NaN"
        )
    return corner
