"""Gain bounds that training may use: differentiable, compiled, as exact as the working precision.

Certificates, which others re-check, are computed elsewhere in float64 (`certificate.py`).
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from greatcircle import sphere
from greatcircle.sphere import Tree

DOUBLINGS = 5
"""The exponent p that stands for infinity is 2 to this power."""

LEAST = 1e-4
"""Of the mean multiplier is added to each, so that none can vanish."""


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


def log_certificate(
    linear: Sequence[Array], scale: Array, roots: Sequence[Array], shares: Array
) -> Array:
    """The logarithm of a smooth Lipschitz bound, for activations with slopes in [0, 1].

    The recursion of ECLipsE-Fast with a shape m² for the multipliers instead of the identity. With
    X_0 = I and Λ_i = 4 s_i m_i² / μ_i,

        X_i = Λ_i − ¼ Λ_i A_i X_{i−1}⁻¹ A_iᵀ Λ_i,    μ_i ≥ λ_max(m_i A_i X_{i−1}⁻¹ A_iᵀ m_i),

    is positive definite for every share s_i < 1, and c² ≥ λ_max(A_l X_{l−1}⁻¹ A_lᵀ). Where
    eigenvalues meet, the largest one has a kink. So every λ_max is replaced by (Σ λᵖ)^{1/p}, which
    is smooth and never smaller: c is a bound all the same.

    Parameters
    ----------
    linear
        Matrices (fan_in, fan_out), without biases.
    scale
        What each input is multiplied by before the first of them.
    roots
        m_i of each hidden layer, a matrix of one row; only its direction counts.
    shares
        s_i of each hidden layer.
    """
    a, inverse = linear[0] * scale[:, None], None
    for i, root in enumerate(roots):
        seen = _seen(a, inverse)
        shape = root[0] ** 2 + LEAST * jnp.mean(root[0] ** 2)
        size = jnp.sqrt(shape)
        multipliers = 4 * shares[i] * shape / _largest(size[:, None] * seen * size)
        X = jnp.diag(multipliers) - 0.25 * multipliers[:, None] * seen * multipliers
        inverse = jnp.linalg.inv(X)
        a = linear[i + 1]
    return 0.5 * jnp.log(_largest(_seen(a, inverse)))


def log_signed_certificate(linear: Sequence[Array], scale: Array, roots: Sequence[Array]) -> Array:
    """The same for activations with slopes in [−1, 1], which a row of the weights may turn around.

    There ∏ ‖D_i A_i D_{i−1}⁻¹‖ is a bound for every choice of diagonal D_i = m_i, the first and the
    last being the identity: |ρ| does not see a scaling of its units.
    """
    log, before = jnp.zeros((), scale.dtype), 1 / scale
    ones = jnp.ones((1, linear[-1].shape[1]), scale.dtype)
    for a, root in zip(linear, (*roots, ones), strict=True):
        size = jnp.sqrt(root[0] ** 2 + LEAST * jnp.mean(root[0] ** 2))
        size = root[0] if root is ones else size
        scaled = a / before[:, None] * size
        log = log + 0.5 * jnp.log(_largest(scaled.T @ scaled))
        before = size
    return log


def _seen(a: Array, inverse: Array | None) -> Array:
    return a.T @ a if inverse is None else a.T @ inverse @ a


def _largest(positive: Array) -> Array:
    """(tr Gᵖ)^{1/p}, at least the largest eigenvalue, by squaring and rescaling."""
    size = jnp.trace(positive)
    power, log = positive / size, jnp.log(size)
    for k in range(1, DOUBLINGS + 1):
        power = power @ power
        size = jnp.trace(power)
        power, log = power / size, log + jnp.log(size) / 2**k
    return jnp.exp(log)
