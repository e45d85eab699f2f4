"""Training under a Lipschitz bound: a network divided by its own certificate.

The outputs are f(x) = L N(x; W) / c(W, m), where c is a certificate of N: whatever the weights are,
the Lipschitz bound of f is L. No layer's length matters to f, so spheres are its natural domain,
and the multipliers m, which decide how good a certificate c is, live on spheres beside the weights.

c is smooth (`gains.log_certificate`), and its curvature is part of the model that a direction is
chosen by: without it second-order steps do not see the bound bend away, and stall
(`docs/bounded.md`).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greatcircle import gains
from greatcircle.network import Adjoints, Trace, Weights
from greatcircle.problem import Problem, quadratic_form


class _Forward(NamedTuple):
    outputs: Array
    """Of the network, before they are scaled."""
    trace: Trace
    scale: Array
    """L / c."""
    slope: Weights
    """Gradient of log(L / c)."""


class _Backward(NamedTuple):
    outputs: Array
    trace: Trace
    scale: Array
    slope: Weights
    pull: Array
    """Gradient of the loss in the scaled outputs."""
    adjoints: Adjoints
    along: Array
    """Derivative of the loss in log(L / c): what a larger bound would gain is its negative."""


@jax.tree_util.register_pytree_node_class
class Bounded:
    """A problem whose outputs are divided by the network's own certificate.

    Its weights are the network's matrices, then the roots of the multipliers of each hidden layer,
    matrices of one row.

    Parameters
    ----------
    problem
        Network, loss and data.
    budget
        The Lipschitz bound L of the outputs in the inputs, both divided by their scales.
    scale
        What each input is multiplied by before the first layer.
    shares
        s_i of each hidden layer.
    """

    def __init__(self, problem: Problem, budget: Any, scale: Any, shares: Any) -> None:
        self.problem, self.budget, self.scale, self.shares = problem, budget, scale, shares

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        return (self.problem, self.budget, self.scale, self.shares), None

    @classmethod
    def tree_unflatten(cls, structure: None, leaves: Sequence[Any]) -> Self:
        bounded = object.__new__(cls)
        bounded.problem, bounded.budget, bounded.scale, bounded.shares = leaves
        return bounded

    @property
    def unit(self) -> Array:
        """That of the problem."""
        return self.problem.unit

    @property
    def dtype(self) -> np.dtype:
        """That of the problem."""
        return self.problem.dtype

    def outputs(self, weights: Weights) -> Array:
        """L N(x; W) / c of every row."""
        matrices, _ = self._split(weights)
        outputs = self.problem.network.apply(matrices, self.problem.inputs)
        return jnp.exp(self.log_scale(weights)) * outputs

    def loss_of(self, outputs: Array) -> Array:
        """Mean loss of given outputs."""
        return self.problem.loss_of(outputs)

    def log_scale(self, weights: Weights) -> Array:
        """The logarithm of L / c."""
        matrices, roots = self._split(weights)
        network = self.problem.network
        linear = network.linear(matrices)
        if network.activation.slopes[0] < 0:
            log = gains.log_signed_certificate(linear, self.scale, roots)
        else:
            log = gains.log_certificate(linear, self.scale, roots, self.shares)
        return jnp.log(self.budget) - log

    def value(self, weights: Weights) -> Array:
        """The loss in units of `unit`."""
        return self.problem.scaled_loss_of(self.outputs(weights))

    def forward(self, weights: Weights) -> tuple[Array, _Forward]:
        """The loss, what each layer saw, and how the scale depends on the weights."""
        matrices, _ = self._split(weights)
        outputs, trace = self.problem.network.forward(matrices, self.problem.inputs)
        log, slope = jax.value_and_grad(self.log_scale)(tuple(weights))
        left = _Forward(outputs, trace, jnp.exp(log), slope)
        return self.problem.scaled_loss_of(left.scale * outputs), left

    def backward(self, weights: Weights, left: _Forward) -> tuple[Weights, _Backward]:
        """The gradient: that of the network, and what changes with the scale."""
        matrices, _ = self._split(weights)
        f = left.scale * left.outputs
        pull = jax.grad(self.problem.scaled_loss_of)(f)
        gradient, adjoints = self.problem.network.backward(matrices, left.trace, left.scale * pull)
        along = jnp.vdot(pull, f)
        return _plus(gradient, along, left.slope), _Backward(*left, pull, adjoints, along)

    def second_order(self, weights: Weights, velocity: Weights, left: _Backward) -> Array:
        """vᵀ ∇²L v, where f'' = s (N'' + 2 u N' + (u² + u') N) with u the slope of log s."""
        matrices, _ = self._split(weights)
        turning, _ = self._split(velocity)
        push, bend = self.problem.network.second_order(matrices, turning, left.trace, left.adjoints)
        u, faster = self._along(weights, velocity)
        push = left.scale * push
        f = left.scale * left.outputs
        return (
            quadratic_form(self.problem.scaled_loss_of, f, push + u * f)
            + bend
            + 2 * u * jnp.vdot(left.pull, push)
            + (u**2 + faster) * left.along
        )

    def linearised(
        self, weights: Weights, left: _Backward, share: float = 1.0, turn: Any = 0
    ) -> tuple[Callable[[Weights], Weights], float]:
        """The map v ↦ Jᵀ H J v of the scaled outputs, and the curvature of the certificate.

        Without the latter the model does not see the bound bend away, and its steps fail. Where a
        larger bound would gain nothing it is left out.
        """
        matrices, _ = self._split(weights)
        rows = self.problem.block(share, turn)
        pull, trace = rows.pull, jax.tree.map(rows.some, left.trace)
        f = left.scale * rows.some(left.outputs)
        price = jnp.minimum(left.along, 0)

        def product(velocity: Weights) -> Weights:
            turning, _ = self._split(velocity)
            u = sum(jnp.vdot(a, b) for a, b in zip(left.slope, velocity, strict=True))
            push = left.scale * self.problem.network.push(matrices, turning, trace) + u * f
            curved = jax.jvp(pull, (f,), (push,))[1]
            image, _ = self.problem.network.backward(matrices, trace, left.scale * curved)
            bend = jax.jvp(jax.grad(self.log_scale), (tuple(weights),), (tuple(velocity),))[1]
            return _plus(_plus(image, jnp.vdot(curved, f), left.slope), price, bend)

        return product, rows.share

    def _split(self, weights: Weights) -> tuple[Weights, Weights]:
        depth = self.problem.network.depth
        return tuple(weights[:depth]), tuple(weights[depth:])

    def _along(self, weights: Weights, velocity: Weights) -> tuple[Array, Array]:
        """First and second derivative of log(L / c) along w + t · velocity."""

        def first(w: Weights) -> Array:
            return jax.jvp(self.log_scale, (w,), (tuple(velocity),))[1]

        return jax.jvp(first, (tuple(weights),), (tuple(velocity),))


def _plus(matrices: Weights, factor: Array, slope: Weights) -> Weights:
    """Matrices, then no change of the multipliers, plus a multiple of `slope`."""
    missing = [jnp.zeros_like(s) for s in slope[len(matrices) :]]
    return tuple(m + factor * s for m, s in zip((*matrices, *missing), slope, strict=True))
