"""Directions that need only gradients: steepest descent and conjugate gradients."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Tree
from greatcircle.network import gains
from greatcircle.objective.objective import Objective, layered
from greatcircle.optimise.directions.direction import Choice, Position, ratio, unit_max_speed

__all__ = [
    "Beta",
    "ConjugateGradient",
    "HagerZhang",
    "MajorantSteepest",
    "PolakRibiere",
    "RiemannianGradient",
    "Steepest",
]


@dataclass(frozen=True)
class Steepest:
    """Every layer at unit speed against its gradient, Eq. (6).

    A layer whose gradient is zero does not move.
    """

    def check(self, objective: Objective) -> None:
        """Accept every objective."""

    def init(self, weights: Tree) -> tuple[()]:
        """Return an empty state."""
        return ()

    def choose(self, position: Position, state: tuple[()]) -> Choice:
        """Return V_i = −∇_i / ‖∇_i‖."""
        return Choice(sphere.normalise(position.gradient, -1.0), state)


@dataclass(frozen=True)
class RiemannianGradient:
    """Steepest descent per radian: each layer's speed is proportional to its gradient."""

    def check(self, objective: Objective) -> None:
        """Accept every objective."""

    def init(self, weights: Tree) -> tuple[()]:
        """Return an empty state."""
        return ()

    def choose(self, position: Position, state: tuple[()]) -> Choice:
        """Return −∇, scaled by one factor for all layers."""
        return Choice(unit_max_speed(sphere.scale(position.gradient, -1.0)), state)


NORM_EXPONENT = 1.25
"""q of the norm of `MajorantSteepest`."""


@dataclass(frozen=True)
class MajorantSteepest:
    """Steepest descent in a norm like that of the majorants: (Σ (k_i s_i)^q)^{1/q}.

    k_i bounds the rate at which layer i at unit speed changes the outputs, as in `DataMajorant`.
    Layers with a large slope per change of the outputs move fastest. With q = 1, the norm of that
    majorant, one layer at a time would move; with q = 2 all would. A value in between works best
    (`docs/directions.md`).
    """

    def check(self, objective: Objective) -> None:
        """Raise TypeError if the objective has no layers."""
        layered(objective, "direction MajorantSteepest", "directions.RiemannianGradient()")

    def init(self, weights: Tree) -> tuple[()]:
        """Return an empty state."""
        return ()

    def choose(self, position: Position, state: tuple[()]) -> Choice:
        """Return −∇_i / ‖∇_i‖ at the speed s_i of each layer."""
        objective = layered(position.objective, "direction MajorantSteepest", "another one")
        heading = sphere.normalise(position.gradient, -1.0)
        units = sphere.unpack(sphere.scale(heading, position.radii))
        rate = jnp.sqrt(objective.moments(units, position.cache)[2])
        k = rate * gains.gains_after(gains.operator_norms(sphere.unpack(position.weights)))
        merit = ratio(sphere.norm(position.gradient), k)
        speeds = ratio(ratio(merit, jnp.max(merit)) ** (1 / (NORM_EXPONENT - 1)), k)
        speeds = ratio(speeds, jnp.max(speeds))
        return Choice(sphere.scale(heading, speeds), state, products=0.25)


class _Last(NamedTuple):
    """Gradient and direction of the last point, the latter before scaling."""

    gradient: Tree
    direction: Tree


@runtime_checkable
class Beta(Protocol):
    """A formula for the β of nonlinear conjugate gradients."""

    def __call__(self, gradient: Tree, last: _Last) -> Float[Array, ""]:
        """Return β from the gradient, and from the last gradient and direction, transported."""
        ...


@dataclass(frozen=True)
class PolakRibiere:
    """PR+ (Polak & Ribière 1969), never negative."""

    def __call__(self, gradient: Tree, last: _Last) -> Float[Array, ""]:
        """Return β."""
        change = sphere.add(gradient, last.gradient, -1.0)
        square = sphere.dot(last.gradient, last.gradient)
        return jnp.maximum(ratio(sphere.dot(gradient, change), square), 0)


@dataclass(frozen=True)
class HagerZhang:
    """Hager & Zhang (2005), Eq. (1.3), with their lower bound, Eqs. (1.5) and (1.6)."""

    def __call__(self, gradient: Tree, last: _Last) -> Float[Array, ""]:
        """Return β."""
        change = sphere.add(gradient, last.gradient, -1.0)
        along = sphere.dot(last.direction, change)
        beta = ratio(sphere.dot(gradient, change), along)
        square = sphere.dot(change, change)
        beta -= 2 * ratio(square * sphere.dot(gradient, last.direction), along**2)
        length = jnp.sqrt(sphere.dot(last.direction, last.direction))
        size = jnp.sqrt(sphere.dot(last.gradient, last.gradient))
        return jnp.maximum(beta, -ratio(1.0, length * jnp.minimum(0.01, size)))


@dataclass(frozen=True)
class ConjugateGradient:
    """Nonlinear conjugate gradients on the product of the spheres.

    Gradient and direction of the last point are transported in parallel; the new direction is −∇
    plus β times the last one. If that is not a descent direction, it restarts with −∇.

    Parameters
    ----------
    beta
        `PolakRibiere()` or `HagerZhang()`.
    """

    beta: Beta = PolakRibiere()

    def __post_init__(self) -> None:
        if isinstance(self.beta, type) or not callable(self.beta):
            raise ValueError(
                f"beta is {self.beta!r}; expected directions.PolakRibiere() or "
                "directions.HagerZhang()"
            )

    def check(self, objective: Objective) -> None:
        """Accept every objective."""

    def init(self, weights: Tree) -> _Last:
        """Return a state without a last direction."""
        zero = sphere.scale(weights, 0.0)
        return _Last(zero, zero)

    def choose(self, position: Position, state: _Last) -> Choice:
        """Return the conjugate direction, or the steepest."""
        gradient = position.gradient
        last = _Last(position.transport(state.gradient), position.transport(state.direction))
        steepest = sphere.scale(gradient, -1.0)
        conjugate = sphere.add(steepest, last.direction, self.beta(gradient, last))
        downhill = sphere.dot(conjugate, gradient) < 0
        chosen = jax.tree.map(lambda c, s: jnp.where(downhill, c, s), conjugate, steepest)
        return Choice(unit_max_speed(chosen), _Last(gradient, chosen))
