"""Bounds on the Lipschitz constant of a network, in float64 NumPy with exact singular values.

Cheap to less cheap: `frobenius`, the product of the radii, known before training; `spectral`, the
product of the largest singular values, Eq. (2).
"""

from collections.abc import Iterable, Sequence
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
    norms = [np.linalg.norm(w, order) for w in _checked(weights)]
    return Certificate(float(np.prod(norms)), method)


def _checked(weights: Sequence[ArrayLike]) -> list[np.ndarray]:
    """Matrices that make a network, or an error: a wrong shape must not become a wrong bound."""
    if isinstance(weights, np.ndarray):
        raise ValueError("weights is one array; expected a list of matrices, [W] for one layer")
    if not isinstance(weights, Iterable):
        raise TypeError(
            f"weights is a {type(weights).__name__}; expected a list of matrices: a fitted model "
            "has its bound in certificate_"
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
