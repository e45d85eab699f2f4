"""What the loop asks of the thing that is minimised, and that for any object with `loss(weights)`.

The loop asks an objective for three passes, each using the one before:

- `forward(weights)` gives the loss and whatever the pass left behind;
- `backward(weights, left)` gives the gradient and whatever that pass left behind;
- `second_order(weights, velocity, left)` gives vᵀ ∇²L v, without a Hessian.

Gauss-Newton asks for one more: `linearised(weights, left)` gives v ↦ Jᵀ H J v, where J is the
derivative of the outputs and H the Hessian of the loss in them, and how much of a pass over the
data each product is.

`Problem` (`problem.py`) does them by hand for a `Network`. `Custom` does them by automatic
differentiation for everything else.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greatcircle.geometry.sphere import Tree


class Objective(Protocol):
    """What the loop asks of the thing that is minimised. All values are in units of `unit`."""

    unit: Any

    def value(self, weights: Tree) -> Array:
        """The loss."""
        ...

    def forward(self, weights: Tree) -> tuple[Array, Any]:
        """The loss, and what `backward` needs."""
        ...

    def backward(self, weights: Tree, left: Any) -> tuple[Tree, Any]:
        """The gradient, and what `second_order` needs."""
        ...

    def second_order(self, weights: Tree, velocity: Tree, left: Any) -> Array:
        """vᵀ ∇²L v."""
        ...

    def linearised(
        self, weights: Tree, left: Any, share: float = 1.0, turn: Any = 0
    ) -> tuple[Callable[[Tree], Tree], float | Array]:
        """The map v ↦ Jᵀ H J v on a share of the rows, other ones each turn; and that share."""
        ...


class Custom:
    """Any object with `loss(weights)`, where `weights` is a pytree of matrices.

    What the object holds becomes part of the compiled program, so each run compiles anew: a user
    may have changed the object in between.
    """

    def __init__(self, user: Any, dtype: np.dtype) -> None:
        if not callable(getattr(user, "loss", None)):
            raise TypeError(
                f"problem is a {type(user).__name__} without a method loss(weights); "
                "expected a Problem or any object that has one"
            )
        self.user = user
        self.identity = object()
        self.unit = np.ones((), dtype)

    def value(self, weights: Tree) -> Array:
        """The loss."""
        try:
            value = self.user.loss(weights)
        except jax.errors.TracerArrayConversionError as error:
            raise TypeError(
                "loss(weights) makes NumPy arrays of the weights, which cannot be differentiated; "
                "expected functions of jax.numpy"
            ) from error
        if jnp.shape(value) != ():
            raise ValueError(
                f"loss(weights) has shape {jnp.shape(value)}; expected one number: take its sum or "
                "mean"
            )
        return value

    def forward(self, weights: Tree) -> tuple[Array, Callable[[Array], tuple[Tree]]]:
        """The loss and its pull-back."""
        return jax.vjp(self.value, weights)

    def backward(self, weights: Tree, left: Callable[[Array], tuple[Tree]]) -> tuple[Tree, None]:
        """The gradient."""
        return left(jnp.ones((), self.unit.dtype))[0], None

    def second_order(self, weights: Tree, velocity: Tree, left: None) -> Array:
        """vᵀ ∇²L v, forward over forward."""
        return quadratic_form(self.value, weights, velocity)

    def linearised(
        self, weights: Tree, left: None, share: float = 1.0, turn: Any = 0
    ) -> tuple[Callable[[Tree], Tree], float | Array]:
        """The map v ↦ Jᵀ H J v from the user's `outputs` and `loss_of`; always from all rows."""
        outputs, push = jax.linearize(self.user.outputs, weights)
        pull = jax.linear_transpose(push, weights)
        slope = jax.grad(self.user.loss_of)

        def product(velocity: Tree) -> Tree:
            return pull(jax.jvp(slope, (outputs,), (push(velocity),))[1])[0]

        return product, 1.0


def _rebuilt(structure: tuple[Any, object], leaves: Sequence[Any]) -> Custom:
    custom = object.__new__(Custom)
    custom.user, custom.identity = structure
    (custom.unit,) = leaves
    return custom


class _Structure(tuple[Any, object]):
    """User's object and the identity of its wrapper; only the latter counts."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Structure) and self[1] is other[1]

    def __hash__(self) -> int:
        return hash(self[1])


jax.tree_util.register_pytree_node(
    Custom, lambda custom: ((custom.unit,), _Structure((custom.user, custom.identity))), _rebuilt
)


def quadratic_form(function: Callable[[Tree], Array], point: Tree, velocity: Tree) -> Array:
    """vᵀ ∇²f v by forward over forward differentiation."""

    def along(p: Tree) -> Array:
        return jax.jvp(function, (p,), (velocity,))[1]

    return jax.jvp(along, (point,), (velocity,))[1]


@jax.jit
def value_of(objective: Objective, weights: Tree) -> Array:
    """The loss in units of `unit`, compiled."""
    return objective.value(weights)
