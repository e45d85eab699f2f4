"""The angle from a Taylor expansion of any order along the arc, Eq. (7)."""

import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from greatcircle.objective.objective import Objective
from greatcircle.optimise import arc as arcs
from greatcircle.optimise.arc import ArcStart
from greatcircle.optimise.record import Evaluations
from greatcircle.optimise.steps import search
from greatcircle.optimise.steps.step import TRUST_REGION, Proposal, check_max_angle

__all__ = ["Taylor"]


@dataclass(frozen=True)
class Taylor:
    """Minimise the expansion of order r, Eq. (7), over [0, max_angle].

    All stationary points and both ends are compared. `Taylor(2)` is Algorithm 2 wherever that
    takes the minimum of its model. With `max_angle=2π` the far end is the starting point again,
    which the loop never accepts.
    """

    order: int = 3
    max_angle: float = TRUST_REGION

    def __post_init__(self) -> None:
        if not isinstance(self.order, int | np.integer) or self.order < 1:
            raise ValueError(f"order is {self.order!r}; expected a whole number of at least 1")
        check_max_angle(self.max_angle)

    @property
    def cost(self) -> Evaluations:
        """One pass of second or higher order."""
        return Evaluations(second=int(self.order == 2), higher=int(self.order > 2))

    def check(self, objective: Objective) -> None:
        """Accept every objective."""

    def propose(self, start: ArcStart) -> Proposal:
        """Return the global minimiser of the polynomial."""
        derivatives = [start.loss, start.slope]
        if self.order == 2:
            derivatives.append(
                arcs.second_derivative(start.objective, start.arc, start.gradient, start.cache)
            )
        elif self.order > 2:
            derivatives += list(arcs.taylor(start.objective, start.arc, self.order)[2:])
        coefficients = jnp.stack([d / math.factorial(k) for k, d in enumerate(derivatives)])
        angle = search.polynomial_minimiser(coefficients, self.max_angle)
        angle = jnp.where(jnp.all(jnp.isfinite(coefficients)), angle, jnp.nan)  # undefined
        predicted = -jnp.polyval(coefficients.at[0].set(0)[::-1], angle)
        curvature = derivatives[2] if self.order > 1 else jnp.full_like(angle, jnp.nan)
        return Proposal(angle, curvature, predicted)
