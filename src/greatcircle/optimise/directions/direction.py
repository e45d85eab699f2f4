"""What the loop and a direction tell one another."""

from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
from jax import Array

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Tree
from greatcircle.objective.objective import Objective
from greatcircle.optimise.arc import Arc


class Place(NamedTuple):
    """A point that the loop has reached, and the way it came."""

    objective: Objective
    weights: Tree
    gradient: Tree
    """In radians: μ_i times the tangent part of the Euclidean gradient."""
    left: Any
    """What the backward pass left."""
    radii: Array
    way: Arc
    """The arc that led here. At the start its headings are zero."""
    angle: Array
    """How far along it."""
    decrease: Array
    """Of the loss on that way; infinite at the start."""

    def bring(self, vectors: Tree) -> Tree:
        """Tangent vectors of the last point, transported to this one."""
        return sphere.transport(self.way.weights, self.way.heading, self.angle, vectors, self.radii)


class Chosen(NamedTuple):
    """What a direction says."""

    heading: Tree
    memory: Any
    products: Array | float = 0.0
    """Gauss-Newton products spent, in passes over all the data."""


class Direction(Protocol):
    """What the loop asks of a direction."""

    def check(self, objective: Objective) -> None:
        """Raise TypeError where the direction cannot work with the objective."""
        ...

    def start(self, weights: Tree) -> Any:
        """Memory before the first point."""
        ...

    def choose(self, place: Place, memory: Any) -> Chosen:
        """Heading at this point, and the memory to take along."""
        ...


def scaled(v: Tree) -> Tree:
    """Scaled so that the fastest layer has speed one; zero stays zero."""
    return sphere.scale(v, ratio(1.0, fastest_speed(v)))


def fastest_speed(v: Tree) -> Array:
    return jnp.max(sphere.norm(v))


def ratio(a: Array | float, b: Array) -> Array:
    """The quotient, and zero where b is."""
    return jnp.where(b != 0, a / jnp.where(b != 0, b, 1), 0)
