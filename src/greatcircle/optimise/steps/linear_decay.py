"""The angle for small batches: a known distance over √steps, falling linearly to zero."""

import math
from numbers import Real
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from greatcircle.objective.objective import Objective
from greatcircle.optimise.arc import ArcStart
from greatcircle.optimise.record import Evaluations
from greatcircle.optimise.steps.step import Proposal

__all__ = ["LinearDecay"]

DISTANCE = 0.7
"""Typical angle between initial and trained weights on each sphere, in radians."""


class LinearDecay(eqx.Module):
    """Turn by D/√N · (1 − t/N) in step t of N.

    The step length of the subgradient method is D/√N for headings of unit length, where D is the
    distance to the solution, and the linear decay makes the last point as good as the mean of all.
    On a sphere D is known: it is of the order of a radian, for all data (`docs/small_batches.md`).

    Parameters
    ----------
    total
        N, the number of steps.
    distance
        D, in radians.
    """

    total: int | Float[Array, ""]
    distance: float | Float[Array, ""] = DISTANCE

    def __check_init__(self) -> None:
        if _is_given(self.distance) and not 0 < _real(self.distance) <= math.pi:
            raise ValueError(
                f"distance is {self.distance!r}; expected an angle in radians, in (0, π]"
            )
        if _is_given(self.total) and not (_real(self.total) >= 1 and _real(self.total) % 1 == 0):
            raise ValueError(f"total is {self.total!r}; expected a whole number of at least 1")

    @property
    def cost(self) -> Evaluations:
        """No evaluations beyond the gradient."""
        return Evaluations()

    def check(self, objective: Objective) -> None:
        """Accept every objective."""

    def propose(self, start: ArcStart) -> Proposal:
        """Return the angle of this step."""
        dtype = start.loss.dtype
        total = jnp.asarray(self.total, dtype)
        left = jnp.maximum(1 - jnp.asarray(start.iteration, dtype) / total, 0)
        angle = jnp.asarray(self.distance, dtype) / jnp.sqrt(total) * left
        nan = jnp.full_like(angle, np.nan)
        return Proposal(angle, nan, nan)


def _is_given(value: Any) -> bool:
    """Return whether a user gave a value; compiled programs replace it by arrays and tracers."""
    return isinstance(value, Real | str | None)


def _real(value: Any) -> float:
    """Return a number as a float; NaN for anything else, and for True and False."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    return float(value) if is_number else math.nan
