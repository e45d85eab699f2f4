"""Bounds on the Lipschitz constant of a network, in float64 NumPy with exact singular values.

Cheap to less cheap: `frobenius`, the product of the radii, known before training; `spectral`, the
product of the largest singular values, Eq. (2).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Certificate:
    """A bound, and how it was found."""

    value: float
    method: str


def frobenius(weights: Sequence[ArrayLike]) -> Certificate:
    """∏ ‖W_i‖: training on spheres never changes it."""
    return _product(weights, "fro", "frobenius")


def spectral(weights: Sequence[ArrayLike]) -> Certificate:
    """∏ ‖W_i‖_op, Eq. (2)."""
    return _product(weights, 2, "spectral")


def _product(weights: Sequence[ArrayLike], order: Literal["fro", 2], method: str) -> Certificate:
    norms = [np.linalg.norm(np.asarray(w, np.float64), order) for w in weights]
    return Certificate(float(np.prod(norms)), method)
