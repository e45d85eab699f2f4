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

from greatcircle._runtime.threads import one_thread
from greatcircle.certificate.finish import Candidate, finished
from greatcircle.certificate.proof import Certificate, live_units, restricted
from greatcircle.certificate.stack import Stack, stack
from greatcircle.network.activations.builtin import Activation


def frobenius(
    weights: Any,
    *,
    biases: Sequence[ArrayLike] | None = None,
    activation: str | Activation | None = None,
    inputs: Sequence[str | int] | None = None,
    at_least: float | None = None,
    orientation: str | None = None,
) -> Certificate:
    """∏ ‖W_i‖: training on spheres never changes it. Parameters as for `tight`."""
    of = stack(weights, biases, activation, inputs, at_least, orientation)
    value = math.prod(map(_frobenius_norm, of.matrices))
    return finished(of, "frobenius", [products(of)._replace(value=value)])


def spectral(
    weights: Any,
    *,
    biases: Sequence[ArrayLike] | None = None,
    activation: str | Activation | None = None,
    inputs: Sequence[str | int] | None = None,
    at_least: float | None = None,
    orientation: str | None = None,
) -> Certificate:
    """∏ ‖W_i‖_op, Eq. (2). Parameters as for `tight`."""
    of = stack(weights, biases, activation, inputs, at_least, orientation)
    return finished(of, "spectral", [products(of)])


def fast(
    weights: Any,
    *,
    biases: Sequence[ArrayLike] | None = None,
    activation: str | Activation | None = None,
    inputs: Sequence[str | int] | None = None,
    at_least: float | None = None,
    orientation: str | None = None,
) -> Certificate:
    """The closed form of ECLipsE-Fast; for slopes in [−1, 1] the spectral product.

    Never above the spectral product. Parameters as for `tight`.
    """
    of = stack(weights, biases, activation, inputs, at_least, orientation)
    return finished(of, "fast", closed_forms(of))


def closed_forms(of: Stack) -> list[Candidate]:
    """The product of operator norms, and the recursion where it is valid."""
    if of.activation.slopes[0] < 0:
        return [products(of)]
    return [Candidate(*recursion(of.matrices), of.slopes(relaxed=True)), products(of)]


def products(of: Stack) -> Candidate:
    """Multipliers that prove ∏‖A_i‖_op."""
    norms = operator_norms(of.matrices)
    # For slopes [0, 1], X_i = ½λ_i at least if λ_i = 2X_{i−1}/‖A_i‖².
    factor = 1.0 if of.activation.slopes[0] < 0 else 2.0
    multipliers, product = [], np.float64(1.0)
    for a, norm in zip(of.matrices[:-1], norms[:-1], strict=True):
        # A layer of zeros makes the network constant, and then no multiplier matters.
        with np.errstate(over="ignore"):  # the proof rejects infinity
            product *= norm
            multiplier = factor / product / product if product else 0.0
        multipliers.append(np.full(len(a), multiplier))
    return Candidate(multipliers, math.prod(norms), of.slopes(relaxed=True))


def _frobenius_norm(a: np.ndarray) -> float:
    """‖A‖, without overflow or underflow of the squares."""
    largest = float(np.max(np.abs(a), initial=0.0)) or 1.0
    return largest * float(np.linalg.norm(a / largest))


def operator_norms(matrices: Sequence[np.ndarray]) -> list[float]:
    """Largest singular value of each."""
    with one_thread():
        return [float(np.linalg.norm(a, 2)) for a in matrices]


def recursion(matrices: Sequence[np.ndarray]) -> tuple[list[np.ndarray], float]:
    """Multipliers c·1 of each hidden layer for slopes [0, 1], and the bound that they prove."""
    slopes = [np.tile([0.0, 1.0], (len(a), 1)) for a in matrices[:-1]]
    live = live_units(matrices, slopes)
    if not np.any(live[-1]):
        return [np.zeros(len(a)) for a in matrices[:-1]], 0.0
    units, before = normalised(restricted(matrices, live))
    inverse, multipliers = np.eye(units[0].shape[1]), []
    for a, norm in zip(units[:-1], before[:-1], strict=True):
        gram = a @ inverse @ a.T
        c = 2 / float(np.linalg.eigvalsh(gram)[-1])
        inverse = np.linalg.inv(c * np.eye(len(a)) - 0.25 * c**2 * gram)
        with np.errstate(over="ignore"):  # the proof rejects infinity
            multipliers.append(np.full(len(a), c / norm / norm))
    last = units[-1] @ inverse @ units[-1].T
    value = float(before[-1]) * math.sqrt(float(np.linalg.eigvalsh(last)[-1]))
    return everywhere(multipliers, live), value


def normalised(matrices: Sequence[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """Divide each layer by its operator norm; return also the cumulative products of the norms.

    Only A₁A₁ᵀ and A_lᵀA_l matter for bounds: many inputs or outputs are replaced by fewer.
    """
    norms = operator_norms(matrices)
    units = [a / norm for a, norm in zip(matrices, norms, strict=True)]
    if units[0].shape[1] > units[0].shape[0]:
        units[0] = np.linalg.qr(units[0].T).R.T
    if units[-1].shape[0] > units[-1].shape[1]:
        units[-1] = np.linalg.qr(units[-1]).R
    with np.errstate(over="ignore"):
        return units, np.cumprod(norms)


def everywhere(multipliers: Sequence[np.ndarray], live: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Multipliers of live units, with zeros for all others."""
    found = []
    for m, on in zip(multipliers, live[1:-1], strict=True):
        found.append(np.zeros(len(on)))
        found[-1][on] = m
    return found
