"""Bounds with a formula: two products of norms, and one that sees neighbouring layers together.

All three come with multipliers that prove them. A multiple c of the identity for each layer does:
with X_0 = I and X_i = λ_i − ¼ λ_i A_i X_{i−1}⁻¹ A_iᵀ λ_i for slopes [0, 1], the choice
c = 2 / λ_max(A_i X_{i−1}⁻¹ A_iᵀ) makes the smallest eigenvalue of X_i as large as it can be
(Xu & Sivaranjani 2024, ECLipsE-Fast). For slopes [−1, 1] the multipliers 1 / ∏‖A_j‖² prove the
product, and no multiple of the identity proves less.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from greatcircle.activations import Activation
from greatcircle.certificate.finish import finished
from greatcircle.certificate.proof import Certificate
from greatcircle.certificate.stack import Stack, stack
from greatcircle.threads import one_thread

NOTHING = 1e-30
"""Stands for the norm of a matrix of zeros, so that a proof needs no division by zero."""


def frobenius(
    weights: Any,
    *,
    biases: Sequence[ArrayLike] | None = None,
    activation: str | Activation | None = None,
    inputs: Sequence[str | int] | None = None,
    at_least: float | None = None,
) -> Certificate:
    """∏ ‖W_i‖: training on spheres never changes it. Parameters as for `tight`."""
    of = stack(weights, biases, activation, inputs, at_least)
    product = math.prod(float(np.linalg.norm(a)) for a in of.matrices)
    value = product or math.prod(operator_norms(of.matrices))
    return finished(of, "frobenius", _of_products(of), value)


def spectral(
    weights: Any,
    *,
    biases: Sequence[ArrayLike] | None = None,
    activation: str | Activation | None = None,
    inputs: Sequence[str | int] | None = None,
    at_least: float | None = None,
) -> Certificate:
    """∏ ‖W_i‖_op, Eq. (2). Parameters as for `tight`."""
    of = stack(weights, biases, activation, inputs, at_least)
    return finished(of, "spectral", _of_products(of), math.prod(operator_norms(of.matrices)))


def fast(
    weights: Any,
    *,
    biases: Sequence[ArrayLike] | None = None,
    activation: str | Activation | None = None,
    inputs: Sequence[str | int] | None = None,
    at_least: float | None = None,
) -> Certificate:
    """The closed form of ECLipsE-Fast; for slopes in [−1, 1] the spectral product.

    Never above the spectral product. Parameters as for `tight`.
    """
    of = stack(weights, biases, activation, inputs, at_least)
    if of.activation.slopes[0] < 0:
        value = math.prod(operator_norms(of.matrices))
        return finished(of, "fast", _of_products(of), value)
    multipliers, value = recursion(of.matrices)
    return finished(of, "fast", multipliers, value)


def operator_norms(matrices: Sequence[np.ndarray]) -> list[float]:
    """Largest singular value of each; the first matrix of zeros has `NOTHING`, others one."""
    with one_thread():
        norms = [float(np.linalg.norm(a, 2)) for a in matrices]
    zeros = [i for i, norm in enumerate(norms) if norm == 0]
    return [norm or (NOTHING if i == zeros[0] else 1.0) for i, norm in enumerate(norms)]


def recursion(matrices: Sequence[np.ndarray]) -> tuple[list[np.ndarray], float]:
    """Multipliers c·1 of each hidden layer for slopes [0, 1], and the bound that they prove."""
    norms = operator_norms(matrices)
    units = [a / norm for a, norm in zip(matrices, norms, strict=True)]
    inverse, before, multipliers = np.eye(matrices[0].shape[1]), 1.0, []
    for a, norm in zip(units[:-1], norms[:-1], strict=True):
        seen = a @ inverse @ a.T
        c = 2 / max(float(np.linalg.eigvalsh(seen)[-1]), NOTHING)
        inverse = np.linalg.inv(c * np.eye(len(a)) - 0.25 * c**2 * seen)
        before *= norm
        multipliers.append(np.full(len(a), c / before**2))
    last = units[-1] @ inverse @ units[-1].T
    largest = max(float(np.linalg.eigvalsh(last)[-1]), NOTHING**2)
    return multipliers, before * norms[-1] * math.sqrt(largest)


def _of_products(of: Stack) -> list[np.ndarray]:
    """Multipliers that prove ∏‖A_i‖_op."""
    norms = operator_norms(of.matrices)[:-1]
    # For slopes [0, 1], X_i = ½λ_i at least if λ_i = 2X_{i−1}/‖A_i‖².
    factor = 1.0 if of.activation.slopes[0] < 0 else 2.0
    sizes = [len(a) for a in of.matrices[:-1]]
    squares = np.cumprod(np.square(norms))
    return [np.full(n, factor / s) for n, s in zip(sizes, squares, strict=True)]
