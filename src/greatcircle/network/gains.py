"""Gain bounds that training may use: differentiable, compiled, as exact as the working precision.

Certificates, which others re-check, are computed elsewhere in float64 (`certificate.py`).
"""

import jax
import jax.numpy as jnp
from jax import Array

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Tree


def aligned(weights: Tree) -> Array:
    """The layers as one stack of matrices, short side first, filled up with zeros.

    Neither transposing nor zeros change a singular value, and one stack means one call for the
    singular values of all layers.
    """
    leaves = jax.tree.leaves(weights)
    return sphere.stacked([w if w.shape[0] <= w.shape[1] else w.T for w in leaves])


def grams(x: Array, y: Array) -> Array:
    """X Yᵀ of each pair of two stacks."""
    return x @ y.swapaxes(1, 2)


def gains(symmetric: Array) -> Array:
    """Square root of the largest eigenvalue of each positive semidefinite matrix of a stack.

    One matrix at a time. For a stack of larger ones jaxlib's LAPACK kernels hand out work to the
    threads that they themselves are waiting on: two such calls at once stand still for ever on a
    machine with two cores (jaxlib 0.10.2).
    """

    def largest(matrix: Array) -> Array:
        return jnp.linalg.eigvalsh(matrix, symmetrize_input=False)[-1]

    return jnp.sqrt(jnp.maximum(jax.lax.map(largest, symmetric), 0))


def operator_norms(weights: Tree) -> Array:
    """‖W_i‖_op of each layer, the largest singular value."""
    stack = aligned(weights)
    return gains(grams(stack, stack))


def after(gain: Array) -> Array:
    """∏_{j>i} gain_j for each layer i: how much of its change the later layers can let through."""
    return jnp.cumprod(jnp.append(gain[1:], 1)[::-1])[::-1]


def product(weights: Tree) -> Array:
    """∏ ‖W_i‖_op, the gain bound of Eq. (2)."""
    return jnp.prod(operator_norms(weights))
