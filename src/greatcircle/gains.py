"""Gain bounds that training may use: differentiable, compiled, as exact as the working precision.

Certificates, which others re-check, are computed elsewhere in float64 (`certificate.py`).
"""

import jax
import jax.numpy as jnp
from jax import Array

from greatcircle.sphere import Tree


def grams(x: Tree, y: Tree) -> Array:
    """X Yᵀ of each layer, or Xᵀ Y where that is smaller, filled up with zeros to one stack.

    X Xᵀ and Xᵀ X share their non-zero eigenvalues, and zeros add none above them. One stack means
    one call for the eigenvalues of all layers.
    """
    small = [
        a @ b.T if a.shape[0] <= a.shape[1] else a.T @ b
        for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True)
    ]
    widest = max(len(g) for g in small)
    return jnp.stack([jnp.pad(g, (0, widest - len(g))) for g in small])


def gains(symmetric: Array) -> Array:
    """Square root of the largest eigenvalue of each positive semidefinite matrix of a stack."""
    largest = jnp.linalg.eigvalsh(symmetric, symmetrize_input=False)[..., -1]
    return jnp.sqrt(jnp.maximum(largest, 0))


def operator_norms(weights: Tree) -> Array:
    """‖W_i‖_op of each layer, the largest singular value."""
    return gains(grams(weights, weights))


def product(weights: Tree) -> Array:
    """∏ ‖W_i‖_op, the gain bound of Eq. (2)."""
    return jnp.prod(operator_norms(weights))
