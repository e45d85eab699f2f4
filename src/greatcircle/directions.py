"""Where to go: a heading on each sphere, from the gradient.

A direction is a pair of pure functions: `start` makes its memory, `choose` gives the heading at a
point and the memory for the next one. Headings are tangent, and scaled so that the fastest layer
has angular speed one: then an angle bounds the turn of every layer.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from jax import Array

from greatcircle import sphere
from greatcircle.sphere import Tree


class Direction(Protocol):
    """What the loop asks of a direction."""

    def start(self, weights: Tree) -> Any:
        """Memory before the first point."""
        ...

    def choose(self, weights: Tree, gradient: Tree, radii: Array, memory: Any) -> tuple[Tree, Any]:
        """Heading at this point, and the memory to take along."""
        ...


@dataclass(frozen=True)
class Steepest:
    """The paper's direction, Eq. (6): each layer against its own gradient, at unit speed.

    A layer whose projected gradient is zero has no such direction and stays where it is.
    """

    def start(self, weights: Tree) -> tuple[()]:
        """Nothing to remember."""
        return ()

    def choose(
        self, weights: Tree, gradient: Tree, radii: Array, memory: tuple[()]
    ) -> tuple[Tree, tuple[()]]:
        """V_i = −Proj(∇_i) / ‖Proj(∇_i)‖."""
        tangent = sphere.project(weights, gradient, radii)
        return sphere.normalise(tangent, -1.0), memory
