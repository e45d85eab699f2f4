"""Operator norms of the layers, and products of them, in compiled and differentiable JAX.

Training uses these, in its own precision. Certificates, which must hold rigorously, are computed in
float64 by `greatcircle.certificate`.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Tree

__all__ = [
    "gains_after",
    "gram_matrices",
    "operator_norms",
    "product",
    "roots_of_largest_eigenvalues",
    "stacked_wide",
]

PerLayer = Float[Array, " layers"]
Stack = Float[Array, "layers short long"]
Grams = Float[Array, "grams short short"]


def operator_norms(weights: Tree) -> PerLayer:
    """Return ‖W_i‖_op of each layer, the largest singular value."""
    stack = stacked_wide(weights)
    return roots_of_largest_eigenvalues(gram_matrices(stack, stack))


def product(weights: Tree) -> Float[Array, ""]:
    """Return ∏ ‖W_i‖_op, the gain bound of Eq. (2)."""
    return jnp.prod(operator_norms(weights))


def gains_after(gain: PerLayer) -> PerLayer:
    """Return ∏_{j>i} gain_j for each layer i: a bound on the gain of all later layers."""
    return jnp.cumprod(jnp.append(gain[1:], 1)[::-1])[::-1]


def stacked_wide(weights: Tree) -> Stack:
    """Stack the layers, each transposed if it is tall, padded with zeros.

    Transposing and padding keep the singular values; a single call then handles all layers.
    """
    leaves = jax.tree.leaves(weights)
    return sphere.stacked([w if w.shape[0] <= w.shape[1] else w.T for w in leaves])


def gram_matrices(x: Stack, y: Stack) -> Float[Array, "layers short short"]:
    """Return X Yᵀ of each pair of two stacks."""
    return x @ y.swapaxes(1, 2)


def roots_of_largest_eigenvalues(grams: Grams) -> Float[Array, " grams"]:
    """Return √λ_max of each symmetric positive semidefinite matrix of a stack.

    One matrix at a time: for a stack of larger ones, jaxlib's LAPACK kernels wait for threads of a
    pool that they occupy themselves, and two such calls at once deadlock on a machine with two
    cores (jaxlib 0.10.2).
    """

    def largest(matrix: Array) -> Array:
        return jnp.linalg.eigvalsh(matrix, symmetrize_input=False)[-1]

    return jnp.sqrt(jnp.maximum(jax.lax.map(largest, grams), 0))
