"""Protocols of the objectives that the loop minimises, from `Objective` to `LayeredObjective`.

The loop calls three passes over the data, each reusing the one before through a cache:

- `forward(weights)` returns the loss and a cache;
- `backward(weights, cache)` returns the gradient and a larger cache;
- `second_order(weights, velocity, cache)` returns vᵀ ∇²L v, without a Hessian.

Gauss-Newton needs one more: `gauss_newton(weights, cache, fraction, iteration)` returns the product
v ↦ Jᵀ H J v, where J is the Jacobian of the outputs and H the Hessian of the loss in them.

`Problem` (`problem.py`) is a `LayeredObjective`: its passes are written by hand for a `Network`,
and directions and steps may ask about its layers. `FunctionObjective` (`function.py`) wraps any
other function of the weights and differentiates it automatically.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
from jax import Array
from jaxtyping import Float

from greatcircle.geometry.sphere import Tree
from greatcircle.network.network import Network
from greatcircle.objective.losses import Loss

__all__ = [
    "LayeredObjective",
    "Objective",
    "SecondOrderObjective",
    "layered",
    "quadratic_form",
    "second_order",
    "value_of",
]

Scalar = Float[Array, ""]
PerLayer = Float[Array, " layers"]


@runtime_checkable
class Objective(Protocol):
    """A differentiable loss. All values are in units of `unit`."""

    @property
    def unit(self) -> Any:
        """Multiplied by this, values are in the units of the loss."""
        ...

    def value(self, weights: Tree) -> Scalar:
        """Return the loss."""
        ...

    def forward(self, weights: Tree) -> tuple[Scalar, Any]:
        """Return the loss and the cache for `backward`."""
        ...

    def backward(self, weights: Tree, cache: Any) -> tuple[Tree, Any]:
        """Return the gradient and the cache for `second_order`."""
        ...


@runtime_checkable
class SecondOrderObjective(Objective, Protocol):
    """An objective with second derivatives."""

    def second_order(self, weights: Tree, velocity: Tree, cache: Any) -> Scalar:
        """Return vᵀ ∇²L v."""
        ...

    def gauss_newton(
        self, weights: Tree, cache: Any, fraction: float = 1.0, iteration: Any = 0
    ) -> tuple[Callable[[Tree], Tree], float | Array]:
        """Return v ↦ Jᵀ H J v on a fraction of the rows, and the fraction used."""
        ...


@runtime_checkable
class LayeredObjective(SecondOrderObjective, Protocol):
    """The loss of a network, with statistics of its layers over the data."""

    @property
    def network(self) -> Network:
        """The network."""
        ...

    @property
    def criterion(self) -> Loss:
        """The loss of one row."""
        ...

    @property
    def count(self) -> int:
        """Number of rows."""
        ...

    @property
    def mean_square_input(self) -> Scalar:
        """Q of Eq. (23), the mean of ‖x‖²."""
        ...

    def largest_input(self) -> Scalar:
        """Return the largest ‖x‖ of a row with positive weight."""
        ...

    def output_gradient(self, cache: Any) -> Scalar:
        """Return the root mean square of the loss's gradient with respect to the outputs."""
        ...

    def moments(self, headings: Tree, cache: Any) -> tuple[PerLayer, PerLayer, PerLayer]:
        """Return the means over the rows of ‖hW‖², ⟨hW, hU⟩ and ‖hU‖² for each layer."""
        ...

    def sampled(self, every: int, iteration: Any) -> tuple["LayeredObjective", float | Array]:
        """Return the objective of every n-th row, and the fraction of the rows it has."""
        ...

    def cache_at(self, weights: Tree) -> Any:
        """Return the cache of a backward pass."""
        ...

    def kronecker(self, cache: Any) -> tuple[Array, Array]:
        """Return the Kronecker factors of the Gauss-Newton matrix, stacked over the layers."""
        ...

    def gram(self, weights: Tree, velocities: Tree, cache: Any) -> Float[Array, "n n"]:
        """Return ⟨J a, H J b⟩ for each pair of a stack of velocities."""
        ...


def layered(objective: Objective, user: str, instead: str) -> LayeredObjective:
    """Return the objective as a `LayeredObjective`, or raise TypeError.

    Parameters
    ----------
    objective
        Any objective.
    user
        The direction or step that needs layers, for the error.
    instead
        What to use for other objectives, for the error.
    """
    if not isinstance(objective, LayeredObjective):
        raise TypeError(
            f"{user} needs a Problem with a Network, because it uses its layers; for any other "
            f"objective use {instead}"
        )
    return objective


def second_order(objective: Objective, user: str) -> SecondOrderObjective:
    """Return the objective as a `SecondOrderObjective`, or raise TypeError.

    `user` is the direction or step that needs second derivatives, for the error.
    """
    if not isinstance(objective, SecondOrderObjective):
        raise TypeError(
            f"{user} needs second derivatives, which a {type(objective).__name__} does not have; "
            "add a method second_order(weights, velocity, cache), or pass a function of the "
            "weights, which is differentiated automatically"
        )
    return objective


def quadratic_form(function: Callable[[Tree], Array], point: Tree, velocity: Tree) -> Scalar:
    """Return vᵀ ∇²f v by forward-over-forward differentiation."""

    def along(p: Tree) -> Array:
        return jax.jvp(function, (p,), (velocity,))[1]

    return jax.jvp(along, (point,), (velocity,))[1]


@jax.jit
def value_of(objective: Objective, weights: Tree) -> Scalar:
    """Return the loss in units of `unit`, compiled."""
    return objective.value(weights)
