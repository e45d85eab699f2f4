"""A user's own loss as an objective: any JAX function of a pytree of matrices."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from greatcircle._runtime.precision import precision
from greatcircle.geometry.sphere import Tree
from greatcircle.objective.objective import quadratic_form

__all__ = ["FunctionObjective", "function_objective"]

Scalar = Float[Array, ""]


class _Identity:
    """A user's object, compared by the identity of this wrapper.

    The object's attributes become constants of the compiled program, and the user may change them
    between runs. So each run makes a new wrapper and compiles again.
    """

    def __init__(self, user: Any) -> None:
        self.user = user


class FunctionObjective(eqx.Module):
    """An objective differentiated automatically."""

    unit: Scalar
    wrapper: _Identity = eqx.field(static=True)

    @property
    def user(self) -> Any:
        """The user's function or object."""
        return self.wrapper.user

    def value(self, weights: Tree) -> Scalar:
        """Return the loss."""
        loss = getattr(self.user, "loss", self.user)
        try:
            value = loss(weights)
        except jax.errors.TracerArrayConversionError as error:
            raise TypeError(
                "loss(weights) converts the weights to NumPy arrays, which cannot be "
                "differentiated; expected functions of jax.numpy"
            ) from error
        if jnp.shape(value) != ():
            raise ValueError(
                f"loss(weights) has shape {jnp.shape(value)}; expected one number: take its sum or "
                "mean"
            )
        return value

    def forward(self, weights: Tree) -> tuple[Scalar, Callable[[Array], tuple[Tree]]]:
        """Return the loss and its vector-Jacobian product."""
        return jax.vjp(self.value, weights)

    def backward(self, weights: Tree, cache: Callable[[Array], tuple[Tree]]) -> tuple[Tree, None]:
        """Return the gradient."""
        return cache(jnp.ones((), self.unit.dtype))[0], None

    def second_order(self, weights: Tree, velocity: Tree, cache: Any) -> Scalar:
        """Return vᵀ ∇²L v, forward over forward."""
        return quadratic_form(self.value, weights, velocity)

    def gauss_newton(
        self, weights: Tree, cache: Any, fraction: float = 1.0, iteration: Any = 0
    ) -> tuple[Callable[[Tree], Tree], float | Array]:
        """Return v ↦ Jᵀ H J v from the user's `outputs` and `loss_of`, always on all rows."""
        outputs, jvp = jax.linearize(self.user.outputs, weights)
        vjp = jax.linear_transpose(jvp, weights)
        gradient = jax.grad(self.user.loss_of)

        def product(velocity: Tree) -> Tree:
            return vjp(jax.jvp(gradient, (outputs,), (jvp(velocity),))[1])[0]

        return product, 1.0


def function_objective(user: Any, dtype: np.dtype) -> FunctionObjective:
    """Wrap a function of the weights, or an object with `loss(weights)`, as an objective."""
    if isinstance(user, type) or not callable(getattr(user, "loss", user)):
        raise TypeError(
            f"problem is a {type(user).__name__} without a method loss(weights); expected a "
            "Problem, a function of the weights, or an object with such a method"
        )
    with precision(dtype):
        return FunctionObjective(jnp.ones((), dtype), _Identity(user))
