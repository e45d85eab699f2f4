"""Directions from gradients alone: steepest descent and conjugate gradients."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Tree
from greatcircle.network import gains
from greatcircle.objective.objective import Objective
from greatcircle.objective.problem import Problem
from greatcircle.optimise.directions.direction import Chosen, Place, ratio, scaled


@dataclass(frozen=True)
class Steepest:
    """Against the gradient.

    Parameters
    ----------
    speed
        "unit": every layer at unit speed, the paper's Eq. (6). "gradient": each layer as fast as
        its gradient is large, which is the steepest descent of the loss per radian. "trust": layers
        that change the outputs little for what they gain go first, which suits the majorants. A
        layer whose gradient is zero stays where it is.
    """

    speed: str = "unit"

    def __post_init__(self) -> None:
        if self.speed not in ("unit", "gradient", "trust"):
            raise ValueError(f"speed is {self.speed!r}; expected 'unit', 'gradient' or 'trust'")

    def check(self, objective: Objective) -> None:
        """Works with every objective, except for "trust"."""
        if self.speed == "trust" and not isinstance(objective, Problem):
            raise TypeError(
                "direction Steepest('trust') needs a Problem with a Network, because it uses the "
                "norms of its layers; for any other objective use directions.Steepest('gradient')"
            )

    def start(self, weights: Tree) -> tuple[()]:
        """Nothing to remember."""
        return ()

    def choose(self, place: Place, memory: tuple[()]) -> Chosen:
        """V_i = −∇_i / ‖∇_i‖, or −∇_i at one scale for all."""
        if self.speed == "gradient":
            return Chosen(scaled(sphere.scale(place.gradient, -1.0)), memory)
        heading = sphere.normalise(place.gradient, -1.0)
        if self.speed == "unit":
            return Chosen(heading, memory)
        return Chosen(sphere.scale(heading, _trusted_speeds(place, heading)), memory, 0.25)


TRUST = 1.25


def _trusted_speeds(place: Place, heading: Tree) -> Array:
    """Speeds of the steepest descent in the norm (Σ (k_i s_i)^q)^{1/q}.

    k_i bounds the rate at which layer i at unit speed changes the outputs, as in `DataMajorant`.
    With q = 1, which is that majorant's own norm, one layer at a time would turn; with q = 2 all
    would. In between is best (`docs/directions.md`).
    """
    problem = place.objective
    assert isinstance(problem, Problem)  # `check` has made sure
    units = sphere.unpack(sphere.scale(heading, place.radii))
    rate = jnp.sqrt(problem.moments(units, place.left)[2])
    gain = gains.operator_norms(sphere.unpack(place.weights))
    k = rate * gains.after(gain)
    worth = ratio(sphere.norm(place.gradient), k)
    speeds = ratio(ratio(worth, jnp.max(worth)) ** (1 / (TRUST - 1)), k)
    return ratio(speeds, jnp.max(speeds))


class _Last(NamedTuple):
    gradient: Tree
    way: Tree
    """The direction, before it was scaled."""


@dataclass(frozen=True)
class ConjugateGradient:
    """Nonlinear conjugate gradients on the product of the spheres.

    Gradient and direction of the last point come along by parallel transport; the new direction is
    −∇ plus β times the last one. Where that does not lead downhill it restarts with −∇.

    Parameters
    ----------
    beta
        "polak-ribiere" (PR+: never negative) or "hager-zhang" (2005).
    """

    beta: str = "polak-ribiere"

    def __post_init__(self) -> None:
        if self.beta not in ("polak-ribiere", "hager-zhang"):
            raise ValueError(f"beta is {self.beta!r}; expected 'polak-ribiere' or 'hager-zhang'")

    def check(self, objective: Objective) -> None:
        """Works with every objective."""

    def start(self, weights: Tree) -> _Last:
        """No last direction."""
        zero = sphere.scale(weights, 0.0)
        return _Last(zero, zero)

    def choose(self, place: Place, memory: _Last) -> Chosen:
        """The conjugate direction, or the steepest."""
        gradient = place.gradient
        last, way = place.bring(memory.gradient), place.bring(memory.way)
        change = sphere.add(gradient, last, -1.0)
        if self.beta == "polak-ribiere":
            beta = jnp.maximum(ratio(sphere.dot(gradient, change), sphere.dot(last, last)), 0)
        else:
            beta = _hager_zhang(gradient, last, change, way)
        steepest = sphere.scale(gradient, -1.0)
        conjugate = sphere.add(steepest, way, beta)
        downhill = sphere.dot(conjugate, gradient) < 0
        chosen = jax.tree.map(lambda c, s: jnp.where(downhill, c, s), conjugate, steepest)
        return Chosen(scaled(chosen), _Last(gradient, chosen))


def _hager_zhang(gradient: Tree, last: Tree, change: Tree, way: Tree) -> Array:
    """β of Hager & Zhang (2005), Eq. (1.3), with their lower bound, Eq. (1.5) and (1.6)."""
    along = sphere.dot(way, change)
    beta = ratio(sphere.dot(gradient, change), along)
    beta -= 2 * ratio(sphere.dot(change, change) * sphere.dot(gradient, way), along**2)
    size = jnp.sqrt(sphere.dot(way, way))
    lowest = -ratio(1.0, size * jnp.minimum(0.01, jnp.sqrt(sphere.dot(last, last))))
    return jnp.maximum(beta, lowest)
