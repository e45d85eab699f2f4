"""Slopes of the hidden units when the inputs stay in a box, by interval arithmetic.

Part of the check of a certificate: it uses NumPy and nothing else of this library. Every interval
is widened by its own rounding error, and by that of weights and scaled inputs in float32.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["FLOAT32_ERROR", "INTERVAL_RULES", "UNIT_ROUNDOFF", "Box", "slopes_in_box"]

UNIT_ROUNDOFF = 2.0**-53
"""Largest relative error of one rounding in float64."""

FUNCTION_ERROR = 1e-12
"""Much larger than the relative error of an elementary function."""

UNDERFLOW_ERROR = 1e-290
"""Much larger than the absolute error of products that underflow."""

FLOAT32_ERROR = 2.0**-22
"""Four times the largest relative error of rounding to float32: weights may be rounded so."""


@dataclass(frozen=True)
class Box:
    """A box of inputs, with the scaling and the activation that decide the slopes in it.

    Parameters
    ----------
    low, high
        Corners of the box, in the units of the inputs.
    shift, scale
        The first layer sees (x − shift) · scale.
    activation
        Name of the activation.
    lower, upper
        Intervals to which the network's inputs are clipped first; None if they are not. Then slopes
        in a box that contains all inputs are those between `lower` and `upper`.
    """

    low: np.ndarray
    high: np.ndarray
    shift: np.ndarray
    scale: np.ndarray
    activation: str
    lower: np.ndarray | None = None
    upper: np.ndarray | None = None

    @property
    def is_everything(self) -> bool:
        """Whether every input is in the box."""
        return bool(np.all(self.low == -np.inf) and np.all(self.high == np.inf))

    @property
    def corners(self) -> tuple[np.ndarray, np.ndarray]:
        """Corners of the inputs that the first layer sees."""
        if self.lower is None or self.upper is None:
            return self.low, self.high
        low, high = np.clip([self.low, self.high], self.lower, self.upper)
        return low, high


class _IntervalRule(NamedTuple):
    """A nondecreasing activation and its derivative.

    The derivative is either nondecreasing or, if `bell`, even and nonincreasing in |z|.
    """

    value: Callable[[np.ndarray], np.ndarray]
    derivative: Callable[[np.ndarray], np.ndarray]
    bell: bool = False
    exact: bool = False
    """Whether both are computed without rounding error."""


def _softsign(z: np.ndarray) -> np.ndarray:
    z = np.clip(z, -1e300, 1e300)
    return z / (1 + np.abs(z))


INTERVAL_RULES: dict[str, _IntervalRule] = {
    "relu": _IntervalRule(
        lambda z: np.maximum(z, 0.0), lambda z: np.where(z < 0, 0.0, 1.0), exact=True
    ),
    "leaky_relu": _IntervalRule(
        lambda z: np.where(z < 0, 0.01 * z, z), lambda z: np.where(z < 0, 0.01, 1.0)
    ),
    "elu": _IntervalRule(
        lambda z: np.expm1(np.minimum(z, 0)) + np.maximum(z, 0),
        lambda z: np.exp(np.minimum(z, 0)),
    ),
    "identity": _IntervalRule(lambda z: z, np.ones_like, exact=True),
    "tanh": _IntervalRule(
        np.tanh, lambda z: 1 / np.cosh(np.minimum(np.abs(z), 350)) ** 2, bell=True
    ),
    "softsign": _IntervalRule(_softsign, lambda z: (1 + np.abs(z)) ** -2.0, bell=True),
    "arctan": _IntervalRule(np.arctan, lambda z: 1 / (1 + z**2), bell=True),
}
"""The nondecreasing activations. All others have the same slopes in a box as everywhere."""


def slopes_in_box(
    box: Box,
    matrices: Sequence[np.ndarray],
    biases: Sequence[ArrayLike] | None,
    error: float = FLOAT32_ERROR,
) -> list[np.ndarray]:
    """Return an interval (α, β) of slopes for each hidden unit, for layers z = A h + b.

    They hold for weights, and for scaled corners of the box, with this relative error.
    """
    rule = INTERVAL_RULES[box.activation]
    slopes = []
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = np.sort([(corner - box.shift) * box.scale for corner in box.corners], 0)
        middle, radius = _middle_and_radius(low, high, error)
        radius += error * np.abs(box.scale * box.shift) + UNDERFLOW_ERROR
        middle, radius = _replace_invalid(middle, radius)
        for i, a in enumerate(matrices[:-1]):
            bias = np.zeros(len(a)) if biases is None else np.asarray(biases[i], np.float64)
            size = np.abs(a) @ np.abs(middle) + np.abs(bias)
            wide = np.abs(a) @ radius
            rounding = (2 * (a.shape[1] + 8) * UNIT_ROUNDOFF + error) * (size + wide)
            middle, radius = a @ middle + bias, wide + rounding + UNDERFLOW_ERROR
            middle, radius = _replace_invalid(middle, radius)
            low, high = middle - radius, middle + radius
            slopes.append(_slopes_between(rule, low, high))
            middle, radius = _middle_and_radius(rule.value(low), rule.value(high), FUNCTION_ERROR)
    return slopes


def _replace_invalid(middle: np.ndarray, radius: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Replace intervals that overflowed, or are zero times infinity, by all real numbers."""
    invalid = ~np.isfinite(middle) | np.isnan(radius)
    return np.where(invalid, 0.0, middle), np.where(invalid, np.inf, radius)


def _middle_and_radius(
    low: np.ndarray, high: np.ndarray, error: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return middle and radius of intervals, widened by a relative error."""
    bounded = np.isfinite(low) & np.isfinite(high)
    radius = (high - low) / 2 + error * (np.abs(low) + np.abs(high))
    return np.where(bounded, (low + high) / 2, 0.0), np.where(bounded, radius, np.inf)


def _slopes_between(rule: _IntervalRule, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return (α, β) of each unit whose z lies between `low` and `high`."""
    if rule.bell:
        far = np.maximum(np.abs(low), np.abs(high))
        near = np.where((low < 0) & (high > 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
        smallest, largest = rule.derivative(far), rule.derivative(near)
    else:
        smallest, largest = rule.derivative(low), rule.derivative(high)
    if not rule.exact:
        smallest = np.maximum(smallest - FUNCTION_ERROR, 0)
        largest = np.minimum(largest + FUNCTION_ERROR, 1)
    return np.stack([smallest, largest], axis=1)
