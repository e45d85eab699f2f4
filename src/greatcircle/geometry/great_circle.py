"""The arc of Eq. (5): a great circle on each sphere, all with the same parameter.

γ(t) starts at the weights, along a heading. Layer i turns by t·s_i, where s_i = ‖V_i‖ is its
angular speed (s_i = 1 in the paper). Each layer moves on a circle, so its derivatives at t = 0 are
known without differentiation: γ' = μ V, γ'' = −s² W, γ''' = −s² μ V, and so on.
"""

import equinox as eqx
from jax import Array
from jaxtyping import Float

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Tree

__all__ = ["Arc"]


class Arc(eqx.Module):
    """A great circle on each sphere."""

    weights: Tree
    heading: Tree
    radii: Float[Array, " layers"]
    """μ_i of each layer."""

    def point(self, angle: Array | float) -> Tree:
        """Return γ(angle), Eq. (5)."""
        return sphere.turn(self.weights, self.heading, angle, self.radii)

    def transport(self, vectors: Tree, angle: Array | float) -> Tree:
        """Transport tangent vectors from the start of the arc to γ(angle)."""
        return sphere.transport(self.weights, self.heading, angle, vectors, self.radii)

    @property
    def velocity(self) -> Tree:
        """γ'(0) = μ_i V_i."""
        return sphere.scale(self.heading, self.radii)

    @property
    def speeds(self) -> Float[Array, " layers"]:
        """s_i = ‖V_i‖, the angular speed of each layer."""
        return sphere.norm(self.heading)

    def derivatives(self, order: int) -> list[Tree]:
        """Return γ^(k)(0) for k = 1 to `order`, where γ^(k+2) = −s² γ^(k)."""
        moments = [self.weights, self.velocity]
        for _ in range(order - 1):
            moments.append(sphere.scale(moments[-2], -(self.speeds**2)))
        return [sphere.unpack(m) for m in moments[1 : order + 1]]
