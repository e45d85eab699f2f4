"""The protocol of a direction, its input `Position` and its result `Choice`."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from greatcircle.geometry import sphere
from greatcircle.geometry.great_circle import Arc
from greatcircle.geometry.sphere import Tree
from greatcircle.objective.objective import Objective

__all__ = ["Choice", "Direction", "Position", "max_speed", "ratio", "unit_max_speed", "unit_speeds"]

Scalar = Float[Array, ""]


class Position(eqx.Module):
    """A point that the loop has accepted, and the arc along which it was reached."""

    objective: Objective
    weights: Tree
    gradient: Tree
    """In radians: μ_i times the tangent part of the Euclidean gradient."""
    cache: Any
    """Cache of the backward pass."""
    radii: Float[Array, " layers"]
    arc: Arc
    """The arc from the last point; at the start its headings are zero."""
    angle: Scalar
    """The angle taken along the arc."""
    decrease: Scalar
    """Decrease of the loss along the arc; infinite at the start."""

    def transport(self, vectors: Tree) -> Tree:
        """Transport tangent vectors from the last point to this one."""
        return self.arc.transport(vectors, self.angle)


class Choice(NamedTuple):
    """The heading, and the direction's state for the next point."""

    heading: Tree
    state: Any
    products: Array | float = 0.0
    """Gauss-Newton products used, in passes over all the data."""


@runtime_checkable
class Direction(Protocol):
    """A pair of pure functions, `init` and `choose`."""

    def check(self, objective: Objective) -> None:
        """Raise TypeError if the direction cannot work with the objective."""
        ...

    def init(self, weights: Tree) -> Any:
        """Return the state before the first point."""
        ...

    def choose(self, position: Position, state: Any) -> Choice:
        """Return the heading at this point and the state for the next one."""
        ...


def unit_max_speed(v: Tree) -> Tree:
    """Scale a heading so that the fastest layer has speed one; zero stays zero."""
    return sphere.scale(v, ratio(1.0, max_speed(v)))


def unit_speeds(v: Tree) -> Tree:
    """Scale a heading so that every layer has speed one; zero stays zero."""
    return sphere.normalise(v)


def max_speed(v: Tree) -> Scalar:
    """Return the angular speed of the fastest layer."""
    return jnp.max(sphere.norm(v))


def ratio(a: Float[Array, "*#n"] | float, b: Float[Array, "*#n"]) -> Float[Array, "*#n"]:
    """Return a / b, and zero where b is zero."""
    return jnp.where(b != 0, a / jnp.where(b != 0, b, 1), 0)
