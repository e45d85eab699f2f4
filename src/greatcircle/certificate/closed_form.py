"""Lipschitz bounds in closed form: products of norms, and ECLipsE-Fast.

Each comes with multipliers that prove it, a multiple c of the identity for each layer:

- Slopes in [0, 1] (ECLipsE-Fast, Xu & Sivaranjani 2024): with X_0 = I and
  X_i = c_i − ¼ c_i² A_i X_{i−1}⁻¹ A_iᵀ, the choice c_i = 2 / λ_max(A_i X_{i−1}⁻¹ A_iᵀ) makes the
  smallest eigenvalue of X_i as large as possible.
- Slopes in [−1, 1]: 1 / ∏‖A_j‖² proves the product of norms, and no multiples of the identity
  prove less.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from greatcircle._runtime.threads import one_thread
from greatcircle.certificate.candidates import Candidate, best_certificate
from greatcircle.certificate.proof import Certificate, connected_units, select_units
from greatcircle.certificate.scaled_network import ScaledNetwork, as_scaled_network
from greatcircle.network.activations.builtin import Activation

__all__ = [
    "closed_form_candidates",
    "eclipse_fast",
    "fast",
    "fill_disconnected",
    "frobenius",
    "normalise_layers",
    "operator_norms",
    "spectral",
]


def frobenius(
    weights: Any,
    *,
    biases: Sequence[ArrayLike] | None = None,
    activation: str | Activation | None = None,
    inputs: Sequence[str | int] | None = None,
    min_input_norm: float | None = None,
    orientation: str | None = None,
) -> Certificate:
    """Return ∏ ‖W_i‖, which training on spheres never changes. Parameters as for `tight`."""
    network = as_scaled_network(weights, biases, activation, inputs, min_input_norm, orientation)
    value = math.prod(map(_frobenius_norm, network.matrices))
    candidate = _product_candidate(network)._replace(value=value)
    return best_certificate(network, "frobenius", [candidate])


def spectral(
    weights: Any,
    *,
    biases: Sequence[ArrayLike] | None = None,
    activation: str | Activation | None = None,
    inputs: Sequence[str | int] | None = None,
    min_input_norm: float | None = None,
    orientation: str | None = None,
) -> Certificate:
    """Return ∏ ‖W_i‖_op, Eq. (2). Parameters as for `tight`."""
    network = as_scaled_network(weights, biases, activation, inputs, min_input_norm, orientation)
    return best_certificate(network, "spectral", [_product_candidate(network)])


def fast(
    weights: Any,
    *,
    biases: Sequence[ArrayLike] | None = None,
    activation: str | Activation | None = None,
    inputs: Sequence[str | int] | None = None,
    min_input_norm: float | None = None,
    orientation: str | None = None,
) -> Certificate:
    """Return the ECLipsE-Fast bound, or the spectral product if slopes are in [−1, 1].

    It is never above the spectral product. Parameters as for `tight`.
    """
    network = as_scaled_network(weights, biases, activation, inputs, min_input_norm, orientation)
    return best_certificate(network, "fast", closed_form_candidates(network))


def closed_form_candidates(network: ScaledNetwork) -> list[Candidate]:
    """Return the product of operator norms and, for slopes in [0, 1], ECLipsE-Fast."""
    if network.activation.slopes[0] < 0:
        return [_product_candidate(network)]
    best = Candidate(*eclipse_fast(network.matrices), network.slopes(relaxed=True))
    return [best, _product_candidate(network)]


def _product_candidate(network: ScaledNetwork) -> Candidate:
    """Return multipliers that prove ∏ ‖A_i‖_op."""
    norms = operator_norms(network.matrices)
    # For slopes [0, 1], X_i is at least ½λ_i if λ_i = 2X_{i−1}/‖A_i‖².
    factor = 1.0 if network.activation.slopes[0] < 0 else 2.0
    multipliers, product = [], np.float64(1.0)
    for a, norm in zip(network.matrices[:-1], norms[:-1], strict=True):
        # A layer of zeros makes the network constant, and then no multiplier matters.
        with np.errstate(over="ignore"):  # the proof rejects infinity
            product *= norm
            multiplier = factor / product / product if product else 0.0
        multipliers.append(np.full(len(a), multiplier))
    return Candidate(multipliers, math.prod(norms), network.slopes(relaxed=True))


def _frobenius_norm(a: np.ndarray) -> float:
    """Return ‖A‖, without overflow or underflow of the squares."""
    largest = float(np.max(np.abs(a), initial=0.0)) or 1.0
    return largest * float(np.linalg.norm(a / largest))


def operator_norms(matrices: Sequence[np.ndarray]) -> list[float]:
    """Return the largest singular value of each matrix."""
    with one_thread():
        return [float(np.linalg.norm(a, 2)) for a in matrices]


def eclipse_fast(matrices: Sequence[np.ndarray]) -> tuple[list[np.ndarray], float]:
    """Return multipliers c·1 of each hidden layer for slopes [0, 1], and the bound they prove."""
    slopes = [np.tile([0.0, 1.0], (len(a), 1)) for a in matrices[:-1]]
    connected = connected_units(matrices, slopes)
    if not np.any(connected[-1]):
        return [np.zeros(len(a)) for a in matrices[:-1]], 0.0
    layers, products = normalise_layers(select_units(matrices, connected))
    inverse, multipliers = np.eye(layers[0].shape[1]), []
    for a, product in zip(layers[:-1], products[:-1], strict=True):
        gram = a @ inverse @ a.T
        c = 2 / float(np.linalg.eigvalsh(gram)[-1])
        inverse = np.linalg.inv(c * np.eye(len(a)) - 0.25 * c**2 * gram)
        with np.errstate(over="ignore"):  # the proof rejects infinity
            multipliers.append(np.full(len(a), c / product / product))
    square = layers[-1] @ inverse @ layers[-1].T
    value = float(products[-1]) * math.sqrt(float(np.linalg.eigvalsh(square)[-1]))
    return fill_disconnected(multipliers, connected), value


def normalise_layers(matrices: Sequence[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """Divide each layer by its operator norm; return also the cumulative products of the norms.

    Many inputs or outputs are replaced by fewer: bounds depend only on A₁A₁ᵀ and A_lᵀA_l.
    """
    norms = operator_norms(matrices)
    layers = [a / norm for a, norm in zip(matrices, norms, strict=True)]
    if layers[0].shape[1] > layers[0].shape[0]:
        layers[0] = np.linalg.qr(layers[0].T).R.T
    if layers[-1].shape[0] > layers[-1].shape[1]:
        layers[-1] = np.linalg.qr(layers[-1]).R
    with np.errstate(over="ignore"):
        return layers, np.cumprod(norms)


def fill_disconnected(
    multipliers: Sequence[np.ndarray], connected: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Return multipliers of all hidden units: zero for those that are not connected."""
    filled = [np.zeros(len(units)) for units in connected[1:-1]]
    for all_units, units, values in zip(filled, connected[1:-1], multipliers, strict=True):
        all_units[units] = values
    return filled
