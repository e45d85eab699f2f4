"""A network as plain NumPy: the code that a NumPy export consists of, after its numbers.

It uses nothing of this library, so that the file can be copied anywhere. The C exporter takes the
vectors of its self-test from it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Parameters(NamedTuple):
    """What the network computes with; the first layer's may be more precise than the others."""

    shift: np.ndarray
    rest: np.ndarray
    """What rounding took from `shift`; zero in double precision."""
    scale: np.ndarray
    normalise: bool
    """Whether rows are divided by their norms instead."""
    matrices: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    gain: np.ndarray
    target_shift: np.ndarray
    activation: str


Rule = tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]

ACTIVATIONS: dict[str, Rule] = {
    "relu": (lambda z: np.where(z < 0, 0, z), lambda z: np.where(z < 0, 0, np.ones_like(z))),
    "leaky_relu": (
        lambda z: np.where(z < 0, 0.01 * z, z),
        lambda z: np.where(z < 0, 0.01, np.ones_like(z)),
    ),
    "abs": (np.abs, lambda z: np.where(z < 0, -1, np.ones_like(z))),
    "tanh": (np.tanh, lambda z: 1 - np.tanh(z) ** 2),
    "softsign": (lambda z: z / (1 + np.abs(z)), lambda z: 1 / (1 + np.abs(z)) ** 2),
    "sin": (np.sin, np.cos),
    "arctan": (np.arctan, lambda z: 1 / (1 + z * z)),
    "elu": (
        lambda z: np.where(z < 0, np.expm1(np.minimum(z, 0)), z),
        lambda z: np.exp(np.minimum(z, 0)),
    ),
    "identity": (lambda z: z, np.ones_like),
}
"""Each with its derivative; at a kink that of the branch z ≥ 0."""


def values(p: Parameters, x: np.ndarray) -> np.ndarray:
    """Outputs (rows, outputs) for rows x. A row with NaN or infinity gives NaN."""
    with np.errstate(all="ignore"):
        h, _ = _scaled(p, x)
        for w, b in zip(p.matrices[:-1], p.biases[:-1], strict=True):
            h = ACTIVATIONS[p.activation][0](h @ w + b).astype(x.dtype)
        y = (h @ p.matrices[-1] + p.biases[-1]) * p.gain + p.target_shift
        return np.where(np.all(np.isfinite(x), axis=1, keepdims=True), y, np.nan)


def jacobians(p: Parameters, x: np.ndarray) -> np.ndarray:
    """Derivatives (rows, outputs, inputs)."""
    value, slope = ACTIVATIONS[p.activation]
    with np.errstate(all="ignore"):
        h, (largest, norm) = _scaled(p, x)
        inputs, product = h, np.eye(x.shape[1], dtype=x.dtype)[None]
        for w, b in zip(p.matrices[:-1], p.biases[:-1], strict=True):
            z = h @ w + b
            h, product = value(z).astype(x.dtype), (product @ w) * slope(z)[:, None, :]
        found = np.swapaxes(product @ p.matrices[-1], 1, 2) * p.gain
        if p.normalise:
            along = np.sum(found * inputs[:, None, :], axis=2, keepdims=True)
            across = (found - along * inputs[:, None, :]) / norm / largest
            found = np.where(largest > 0, across, 0)
        else:
            found = found * p.scale
        finite = np.all(np.isfinite(x), axis=1, keepdims=True)
        return np.where(finite[:, :, None], found, np.nan).astype(x.dtype)


def _scaled(p: Parameters, x: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """What the first layer sees, and the norm of each row as two factors, (rows, 1, 1).

    Their product may overflow, or lose digits below the smallest normal number.
    """
    if not p.normalise:
        ones = np.ones((len(x), 1, 1), x.dtype)
        return ((x - p.shift) - p.rest) * p.scale, (ones, ones)
    largest = np.max(np.abs(x), axis=1, keepdims=True)
    unit = x / np.where(largest > 0, largest, 1)  # no square overflows or vanishes
    norm = np.sqrt(np.maximum(np.sum(unit * unit, axis=1, keepdims=True), 1))  # 1: zeros stay
    return unit / norm, (largest[:, :, None], norm[:, :, None])
