"""The loss of a network as a function of sandwich layers: every point has the same bound."""

from itertools import pairwise
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from greatcircle.bounded import sandwich
from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Packed, Tree
from greatcircle.network.network import Weights
from greatcircle.objective.chunks import DeviceRows
from greatcircle.objective.problem import Problem

__all__ = ["SandwichObjective"]

Scalar = Float[Array, ""]


class SandwichObjective(eqx.Module):
    """A problem whose weights are computed from sandwich layers (`sandwich.py`).

    Parameters
    ----------
    problem
        Network, loss and data.
    scale
        Factor of each input before the first layer.
    bound
        Lipschitz bound with respect to the inputs before they are multiplied by `scale`.
    length
        Typical norm of those inputs: the unit of the biases.
    """

    problem: Problem
    scale: Float[Array, " inputs"]
    bound: Scalar
    length: Scalar

    @property
    def unit(self) -> Scalar:
        """Multiplied by this, values are in the units of the loss."""
        return self.problem.unit

    @property
    def rows(self) -> DeviceRows:
        """Rows of data."""
        return self.problem.rows

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.problem.count

    def with_rows(self, rows: DeviceRows) -> Self:
        """Return the same objective, in the same unit, with other rows."""
        return eqx.tree_at(lambda o: o.problem, self, self.problem.with_rows(rows))

    def weights(self, layers: Tree) -> Weights:
        """Return the weights of the network that sandwich layers represent."""
        return sandwich.network_weights(
            self.problem.network, layers, self.scale, self.bound, self.length
        )

    def value(self, layers: Tree) -> Scalar:
        """Return the loss."""
        return self.problem.value(self.weights(layers))

    def forward(self, layers: Tree) -> tuple[Scalar, Any]:
        """Return the loss and its vector-Jacobian product."""
        return jax.vjp(self.value, layers)

    def backward(self, layers: Tree, cache: Any) -> tuple[Tree, None]:
        """Return the gradient."""
        return cache(jnp.ones((), self.unit.dtype))[0], None

    def conditioned(self, layers: Packed) -> Packed:
        """Return layers of the same network whose G are orthonormal.

        In float32, a Cholesky factor loses digits if the columns of G are nearly dependent.
        """
        return _conditioned(self, layers)


@jax.jit
def _conditioned(objective: SandwichObjective, layers: Packed) -> Packed:
    sizes = pairwise(objective.problem.network.sizes)
    unpacked = zip(sphere.unpack(layers), sizes, strict=True)
    return sphere.pack(
        tuple(sandwich.orthonormal(layer, fan_in + out) for layer, (fan_in, out) in unpacked)
    )
