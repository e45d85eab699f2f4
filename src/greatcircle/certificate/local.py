"""A bound for a box of inputs: where they cannot go, units cannot switch.

In a box each unit sees an interval, and on it its slopes span less: a unit of `relu` whose interval
does not contain zero is linear there, and one of `tanh` is never as steep as at zero unless it can
get there. The multipliers are the best ones for these slopes, and `verify` finds the slopes anew.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from greatcircle.certificate.box import RULES, Box, slopes_in_box
from greatcircle.certificate.closed_form import closed_forms
from greatcircle.certificate.finish import Candidate, finished
from greatcircle.certificate.interior import optimum
from greatcircle.certificate.proof import Certificate
from greatcircle.certificate.stack import Stack, stack
from greatcircle.network.activations.builtin import ACTIVATIONS, Activation

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
    """The least bound that multipliers can prove for inputs between `low` and `high`.

    Parameters
    ----------
    weights
        A fitted model, or the matrices of a network.
    low, high
        Corners of the box in the units of X: a number for each input, or for a model that was
        fitted with names a dictionary; inputs that it leaves out are not bounded.
    biases
        Biases of the layers, where matrices are given.
    activation
        Activation of the hidden layers, where matrices are given; "relu" unless said. `abs`, `sin`
        and declared ones have the slopes in a box that they have everywhere.
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
    if getattr(getattr(weights, "scaling_", None), "name", "") == "paper":
        raise ValueError(
            "local needs inputs that are scaled one by one, and scaling='paper' divides them by "
            "‖x‖; use certificate.tight with at_least, or fit with scaling='standard'"
        )
    of = stack(weights, biases, activation, inputs, None, orientation)
    names = getattr(weights, "feature_names_in_", None)
    corners = [_corner(name, c, names, of) for name, c in (("low", low), ("high", high))]
    if not np.all(corners[0] <= corners[1]):
        where = int(np.argmax(corners[0] > corners[1]))
        raise ValueError(
            f"low is above high for input {where if names is None else names[where]}: "
            f"{corners[0][where]:g} > {corners[1][where]:g}"
        )
    name = of.activation.name
    slopes, box = of.slopes(), None
    if name in RULES and of.activation is ACTIVATIONS.get(name):
        # An input of scale zero does not matter, and zero times infinity is no number.
        ends = [np.where(of.scale == 0, of.shift, c) for c in corners]
        box = Box(ends[0], ends[1], of.shift, of.scale, name)
        slopes = tuple(slopes_in_box(box, [w.T for w in of.weights], of.biases))
    return finished(of, "local", _candidates(of, slopes), box)


def _candidates(of: Stack, slopes: Sequence[np.ndarray]) -> Iterator[Candidate]:
    yield Candidate(*optimum(of.matrices, slopes), slopes)
    # Units that are linear in the box ask for large multipliers; with wider slopes they do not.
    if any(np.any(s[:, 0] > 0) for s in slopes):
        wider = [np.stack([np.minimum(s[:, 0], 0.0), s[:, 1]], axis=1) for s in slopes]
        yield Candidate(*optimum(of.matrices, wider), wider)
    yield from closed_forms(of)


def _corner(which: str, given: Corner, names: np.ndarray | None, of: Stack) -> np.ndarray:
    count = len(of.scale)
    if isinstance(given, Mapping):
        known = [] if names is None else list(names)
        unknown = [n for n in given if n not in known]
        if unknown:
            there = ", ".join(known) or "none: the model was fitted without names"
            raise ValueError(
                f"{which} has {unknown[0]!r}; expected names of inputs ({there}), or an array of "
                f"{count} numbers"
            )
        given = [given.get(n, np.inf if which == "high" else -np.inf) for n in known]
    try:
        corner = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        corner = np.array(np.nan)
    if corner.shape != (count,) or np.any(np.isnan(corner)):
        raise ValueError(
            f"{which} is {given!r}; expected {count} numbers, one for each input, and no NaN"
        )
    return corner
