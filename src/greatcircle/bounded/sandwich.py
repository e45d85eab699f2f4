"""Sandwich layers: every network with a given Lipschitz bound L, as points on spheres.

Wang & Manchester (2023) write a network whose certificate is L as a chain of sandwich layers: for
slopes in [0, 1], with h₀ = √L x,

    h_i = √2 A_iᵀ Ψ_i ρ(√2 Ψ_i⁻¹ (B_i h_{i−1} + b_i)),    f = √L (B_l h_{l−1} + b_l),

where A_i A_iᵀ + B_i B_iᵀ = I and Ψ_i is diagonal. It is an ordinary network with the matrices
√2 Ψ_i⁻¹ B_i · √2 A_{i−1}ᵀ Ψ_{i−1}, and λ_i = 2Ψ_i²/L are the multipliers that prove its bound. For
slopes in [−1, 1] the layers are Ψ_i ρ(Ψ_i⁻¹ (B_i h_{i−1} + b_i)) with B_i B_iᵀ ⪯ I.

Here Aᵀ above Bᵀ is the orthonormal factor Q of a matrix G of that shape, G = QR. Q does not depend
on the norm of G, and b and log Ψ are measured in units of that norm, so the G, b and log Ψ of a
layer are one matrix on a sphere (`docs/bounded.md`).
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular

from greatcircle.network.network import Network, Weights

__all__ = ["layers_of", "network_weights", "orthonormal", "orthonormal_factor"]

ROOT_TWO = float(np.sqrt(2))

LEAST_EIGENVALUE = 1e-6
"""Smallest eigenvalue of A Aᵀ in a converted network: the next layer is divided by A."""

LEAST_PSI = 1e-3
"""Smallest Ψ in a converted network, relative to the root mean square of its layer.

The multipliers of dead units are zero.
"""


def network_weights(
    network: Network, layers: Sequence[Array], scale: Array, bound: Array, size: Array
) -> Weights:
    """Return the weights of the network that sandwich layers represent.

    Parameters
    ----------
    network
        Sizes, activation, and whether there are biases.
    layers
        For each layer Aᵀ (fan_out rows), Bᵀ (fan_in rows), then the bias if the network has them,
        then log Ψ if the layer is hidden.
    scale
        Factor of each input before the first layer, none of them zero.
    bound
        L, with respect to the inputs before they are multiplied by `scale`.
    size
        Typical norm of those inputs: the unit of the biases.
    """
    signed, weights = network.activation.slopes[0] < 0, []
    root = jnp.sqrt(bound)
    before = root / scale[:, None] * jnp.eye(len(scale), dtype=scale.dtype)
    for i, layer in enumerate(layers):
        fan_in, out = network.sizes[i : i + 2]
        layer = orthonormal(layer, fan_in + out)
        Q, rest = layer[: fan_in + out], layer[fan_in + out :]
        hidden = i < network.depth - 1
        psi = jnp.exp(rest[-1]) if hidden else 1 / root
        factor = 1.0 if signed or not hidden else ROOT_TWO
        linear = before @ Q[out:] * (factor / psi)
        bias = root * size * rest[: int(network.bias)] * (factor / psi)
        weights.append(jnp.vstack([linear, bias]))
        if hidden:
            before = jnp.diag(psi) if signed else factor * psi[:, None] * Q[:out].T
    return tuple(weights)


def orthonormal(layer: Array, rows: int) -> Array:
    """Return an equivalent layer whose G, its first `rows` rows, is orthonormal."""
    G, rest = layer[:rows], layer[rows:]
    size = jnp.sqrt(G.shape[1] / jnp.sum(G**2))
    return jnp.vstack([orthonormal_factor(G), rest * size])


@jax.custom_vjp
def orthonormal_factor(G: Array) -> Array:
    """Return Q of G = QR, by the Cholesky factor of GᵀG, with a derivative in closed form."""
    return _factor(G)[0]


def _factor(G: Array) -> tuple[Array, tuple[Array, Array]]:
    lower = jnp.linalg.cholesky(G.T @ G)
    Q = solve_triangular(lower, G.T, lower=True).T
    return Q, (Q, lower)


def _factor_vjp(cache: tuple[Array, Array], cotangent: Array) -> tuple[Array]:
    """Return (P − Q S) R⁻ᵀ with S symmetric and its lower half that of PᵀQ.

    P is the cotangent (Walter & Lehmann 2018).
    """
    Q, lower = cache
    half = jnp.tril(cotangent.T @ Q)
    symmetric = half + jnp.tril(half, -1).T
    return (solve_triangular(lower, (cotangent - Q @ symmetric).T, lower=True, trans=1).T,)


orthonormal_factor.defvjp(_factor, _factor_vjp)


def layers_of(
    network: Network,
    weights: Sequence[Any],
    multipliers: Sequence[np.ndarray],
    scale: np.ndarray,
    bound: float,
    size: float,
) -> tuple[np.ndarray, ...]:
    """Return sandwich layers that represent a network whose bound L the multipliers prove.

    If they do not prove it, or if A is nearly singular, so that the next layer cannot be divided by
    it, the layers represent a nearby network, which has the bound.
    """
    signed, layers = network.activation.slopes[0] < 0, []
    root = np.sqrt(bound)
    undo = np.diag(scale) / root
    for i, (w, out) in enumerate(zip(weights, network.sizes[1:], strict=True)):
        w = np.asarray(w, np.float64)
        linear, bias = w[: network.sizes[i]], w[network.sizes[i] :]
        hidden = i < network.depth - 1
        factor = 1.0 if signed or not hidden else ROOT_TWO
        psi = _psi(multipliers[i], bound, signed) if hidden else np.full(out, 1 / root)
        B = (undo @ linear * (psi / factor)).T
        values, vectors = np.linalg.eigh(np.eye(out) - B @ B.T)
        roots = np.sqrt(np.maximum(values, LEAST_EIGENVALUE))
        A = (vectors * roots) @ vectors.T
        left, _, right = np.linalg.svd(np.vstack([A.T, B.T]), full_matrices=False)
        layer = [left @ right, bias * (psi / factor) / (root * size)]
        if hidden:
            # With relu and other homogeneous activations Ψ cancels.
            layer.append(np.log(psi)[None] if network.activation.curved else np.zeros((1, out)))
            undo = np.diag(1 / psi) if signed else (vectors / roots) @ vectors.T / (factor * psi)
        layers.append(np.vstack(layer).astype(np.asarray(weights[i]).dtype))
    return tuple(layers)


def _psi(multipliers: np.ndarray, bound: float, signed: bool) -> np.ndarray:
    """Return Ψ from λ = 2Ψ²/L, or λ = Ψ²/L for slopes in [−1, 1]."""
    psi = np.sqrt(bound * multipliers / (1 if signed else 2))
    return np.maximum(psi, LEAST_PSI * np.sqrt(np.mean(psi**2)))
