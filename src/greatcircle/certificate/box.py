"""Slopes that the units of a network can have when its inputs stay in a box.

Plain interval arithmetic in NumPy, with its own rounding added to every interval, and that of
weights and scaled inputs in float32: part of what a certificate is checked with, so it uses nothing
else of this library.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

UNIT = 2.0**-53
"""Largest relative error of one rounding."""

WIDER = 1e-12
"""Far more than the rounding of an elementary function."""

TINY = 1e-290
"""Much larger than the error of products that underflow."""

FLOAT32 = 2.0**-22
"""Four times the largest relative error of rounding to float32: weights may be rounded so."""


@dataclass(frozen=True)
class Box:
    """Where a local bound holds, and what decides there which units can switch.

    Parameters
    ----------
    low, high
        Its corners, in the units of the inputs.
    shift, scale
        What the inputs are shifted and multiplied by before the first layer.
    activation
        Name of the activation.
    """

    low: np.ndarray
    high: np.ndarray
    shift: np.ndarray
    scale: np.ndarray
    activation: str


class _Rule(NamedTuple):
    """A function whose derivative either never falls, or is even and falls with |z|."""

    value: Callable[[np.ndarray], np.ndarray]
    derivative: Callable[[np.ndarray], np.ndarray]
    bell: bool = False
    exact: bool = False
    """Whether both are computed without error."""


def _softsign(z: np.ndarray) -> np.ndarray:
    z = np.clip(z, -1e300, 1e300)
    return z / (1 + np.abs(z))


RULES: dict[str, _Rule] = {
    "relu": _Rule(lambda z: np.maximum(z, 0.0), lambda z: np.where(z < 0, 0.0, 1.0), exact=True),
    "leaky_relu": _Rule(
        lambda z: np.where(z < 0, 0.01 * z, z), lambda z: np.where(z < 0, 0.01, 1.0)
    ),
    "elu": _Rule(
        lambda z: np.expm1(np.minimum(z, 0)) + np.maximum(z, 0),
        lambda z: np.exp(np.minimum(z, 0)),
    ),
    "identity": _Rule(lambda z: z, np.ones_like, exact=True),
    "tanh": _Rule(np.tanh, lambda z: 1 / np.cosh(np.minimum(np.abs(z), 350)) ** 2, bell=True),
    "softsign": _Rule(_softsign, lambda z: (1 + np.abs(z)) ** -2.0, bell=True),
    "arctan": _Rule(np.arctan, lambda z: 1 / (1 + z**2), bell=True),
}
"""The activations that never fall; every other one keeps its slopes."""


def slopes_in_box(
    box: Box, matrices: Sequence[np.ndarray], biases: Sequence[ArrayLike] | None
) -> list[np.ndarray]:
    """(α, β) of each hidden unit, for layers z = A h + b."""
    rule = RULES[box.activation]
    slopes = []
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = np.sort([(corner - box.shift) * box.scale for corner in (box.low, box.high)], 0)
        middle, radius = _middle(low, high, FLOAT32)
        radius += FLOAT32 * np.abs(box.scale * box.shift) + TINY
        middle, radius = _unbounded_where_unknown(middle, radius)
        for i, a in enumerate(matrices[:-1]):
            bias = np.zeros(len(a)) if biases is None else np.asarray(biases[i], np.float64)
            size = np.abs(a) @ np.abs(middle) + np.abs(bias)
            wide = np.abs(a) @ radius
            rounding = (2 * (a.shape[1] + 8) * UNIT + FLOAT32) * (size + wide)
            middle, radius = a @ middle + bias, wide + rounding + TINY
            middle, radius = _unbounded_where_unknown(middle, radius)
            low, high = middle - radius, middle + radius
            slopes.append(_slopes_between(rule, low, high))
            middle, radius = _middle(rule.value(low), rule.value(high), WIDER)
    return slopes


def _unbounded_where_unknown(
    middle: np.ndarray, radius: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Replace intervals that overflowed, or are zero times infinity, by all real numbers."""
    unknown = ~np.isfinite(middle) | np.isnan(radius)
    return np.where(unknown, 0.0, middle), np.where(unknown, np.inf, radius)


def _middle(low: np.ndarray, high: np.ndarray, wider: float) -> tuple[np.ndarray, np.ndarray]:
    """Middle and radius of intervals, a little wider than they are; infinite ones about zero."""
    bounded = np.isfinite(low) & np.isfinite(high)
    middle = np.where(bounded, (low + high) / 2, 0.0)
    return middle, np.where(
        bounded, (high - low) / 2 + wider * (np.abs(low) + np.abs(high)), np.inf
    )


def _slopes_between(rule: _Rule, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    if rule.bell:
        far = np.maximum(np.abs(low), np.abs(high))
        near = np.where((low < 0) & (high > 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
        least, most = rule.derivative(far), rule.derivative(near)
    else:
        least, most = rule.derivative(low), rule.derivative(high)
    if not rule.exact:
        least, most = np.maximum(least - WIDER, 0), np.minimum(most + WIDER, 1)
    return np.stack([least, most], axis=1)
