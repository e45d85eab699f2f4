"""The protocol of a step rule: an angle for the arc, computed from the loss."""

import math
from numbers import Real
from typing import NamedTuple, Protocol, runtime_checkable

from jax import Array
from jaxtyping import Float

from greatcircle.objective.objective import Objective
from greatcircle.optimise.arc import ArcStart
from greatcircle.optimise.record import Evaluations

__all__ = ["TRUST_REGION", "Proposal", "Step", "check_max_angle"]

TRUST_REGION = math.pi / 6
"""ε of the paper: up to here the second-order expansions of sine and cosine are accurate."""


class Proposal(NamedTuple):
    """The angle that a step rule proposes."""

    angle: Float[Array, ""]
    curvature: Float[Array, ""]
    """L̄''(0), or NaN."""
    predicted: Float[Array, ""]
    """Decrease of the loss that the rule's model predicts."""


@runtime_checkable
class Step(Protocol):
    """A step rule."""

    @property
    def cost(self) -> Evaluations:
        """Passes over the data for one proposal."""
        ...

    def check(self, objective: Objective) -> None:
        """Raise TypeError if the rule cannot work with the objective."""
        ...

    def propose(self, start: ArcStart) -> Proposal:
        """Return the angle, the second derivative and the predicted decrease."""
        ...


def check_max_angle(max_angle: float) -> None:
    """Raise ValueError for an angle outside (0, 2π]."""
    if not isinstance(max_angle, Real) or not 0 < float(max_angle) <= 2 * math.pi:
        raise ValueError(f"max_angle is {max_angle!r}; expected an angle in radians, in (0, 2π]")
