"""Method 1: the angle from slope and second derivative along the arc (Algorithm 2)."""

from dataclasses import dataclass

import jax.numpy as jnp

from greatcircle.geometry import sphere
from greatcircle.objective.objective import Objective, second_order
from greatcircle.optimise import arc as arcs
from greatcircle.optimise.arc import ArcStart
from greatcircle.optimise.record import Evaluations
from greatcircle.optimise.steps.step import TRUST_REGION, Proposal, check_max_angle

__all__ = ["ComparedCurvature", "Curvature"]


@dataclass(frozen=True)
class Curvature:
    """Method 1: minimise the second-order expansion along the arc (Algorithm 2).

    Parameters
    ----------
    max_angle
        The trust region ε.
    """

    max_angle: float = TRUST_REGION

    def __post_init__(self) -> None:
        check_max_angle(self.max_angle)

    @property
    def cost(self) -> Evaluations:
        """One second-order pass."""
        return Evaluations(second=1)

    def check(self, objective: Objective) -> None:
        """Raise TypeError if the objective has no second derivatives."""
        second_order(objective, f"step {type(self).__name__}")

    def propose(self, start: ArcStart) -> Proposal:
        """Return the angle of Algorithm 2, which this follows line by line."""
        slope = start.slope
        curvature = arcs.second_derivative(start.objective, start.arc, start.gradient, start.cache)
        epsilon = jnp.asarray(self.max_angle, slope.dtype)
        flat = curvature == 0
        extreme = -slope / jnp.where(flat, 1, curvature)  # t*
        inside = ~flat & (extreme >= 0) & (extreme <= epsilon)
        angle = jnp.where(inside, extreme, epsilon)
        angle = jnp.where(flat & (slope == 0), 0, angle)
        angle = jnp.where(jnp.isfinite(curvature), angle, jnp.nan)  # undefined
        return Proposal(angle, curvature, -(slope + 0.5 * curvature * angle) * angle)


@dataclass(frozen=True)
class ComparedCurvature:
    """Method 1 with the true loss compared at {0, ε, t*}, as in Section 3.2.1.

    The paper describes this before it simplifies to Algorithm 2, which trusts the expansion. It
    takes two more forward passes. If 0 has the lowest loss, half of t* is proposed, and the loop
    halves it further.

    Parameters
    ----------
    max_angle
        The trust region ε.
    """

    max_angle: float = TRUST_REGION

    def __post_init__(self) -> None:
        check_max_angle(self.max_angle)

    @property
    def cost(self) -> Evaluations:
        """One second-order pass and two forward passes."""
        return Evaluations(second=1, forward=2)

    def check(self, objective: Objective) -> None:
        """Raise TypeError if the objective has no second derivatives."""
        second_order(objective, f"step {type(self).__name__}")

    def propose(self, start: ArcStart) -> Proposal:
        """Return the angle of {0, ε, t*} with the lowest loss, the first among equals."""
        angle, curvature, _ = Curvature(self.max_angle).propose(start)
        epsilon = jnp.full_like(angle, self.max_angle)
        points = [sphere.unpack(start.arc.point(t)) for t in (epsilon, angle)]
        values = jnp.stack([start.objective.value(point) for point in points])
        lowest = jnp.nanargmin(jnp.append(values, jnp.inf))
        falls = values[lowest] < start.loss
        half = angle / 2
        expansion = -(start.slope + 0.5 * curvature * half) * half
        return Proposal(
            jnp.where(falls, jnp.stack([epsilon, angle])[lowest], half),
            curvature,
            jnp.where(falls, start.loss - values[lowest], expansion),
        )
