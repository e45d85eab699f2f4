"""Muon on spheres: the mean gradient, with all its singular values made nearly equal.

Jordan et al. (2024), kellerjordan.github.io/posts/muon. What differs on spheres: every batch counts
alike, because its gradient is divided by its norm on each sphere, and every layer turns by the same
angle.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Packed
from greatcircle.objective.objective import Objective
from greatcircle.optimise.directions.direction import Choice, Position, unit_speeds

__all__ = ["Muon"]

MEAN_DECAY = 0.9
"""Decay of the mean gradient per step."""

NEWTON_SCHULZ = (3.4445, -4.775, 2.0315)
"""Coefficients of x, x xᵀ x and (x xᵀ)² x in an iteration: Muon's, for fast growth near zero."""

ITERATIONS = 5

TINY = 1e-30
"""Keeps zero gradients zero."""


@dataclass(frozen=True)
class Muon:
    """The mean gradient, with all its singular values made nearly equal (Muon).

    For small batches (`RandomBatches`): it needs gradients only, and its products no bases.
    """

    def check(self, objective: Objective) -> None:
        """Accept every objective."""

    def init(self, weights: Packed) -> Packed:
        """Return a mean of zero."""
        return sphere.zeros_like(weights)

    def choose(self, position: Position, state: Packed) -> Choice:
        """Return the heading, the same speed on every sphere."""
        weights, radii = position.weights, position.radii
        mean = sphere.scale(sphere.project(weights, state, radii), MEAN_DECAY)
        mean = sphere.add(mean, sphere.normalise(position.gradient), 1 - MEAN_DECAY)
        matrices = [-_orthogonalised(m) for m in jax.tree.leaves(sphere.unpack(mean))]
        tree = sphere.pack(jax.tree.unflatten(weights.structure, matrices))
        return Choice(unit_speeds(sphere.project(weights, tree, radii)), mean)


def _orthogonalised(matrix: Float[Array, "a b"]) -> Float[Array, "a b"]:
    """Return a matrix with the same singular vectors and singular values near one."""
    a, b, c = NEWTON_SCHULZ
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (jnp.linalg.norm(x) + TINY)

    def iterate(_: Any, x: Array) -> Array:
        square = x @ x.T
        return a * x + (b * square + c * square @ square) @ x

    x = jax.lax.fori_loop(0, ITERATIONS, iterate, x)
    return x.T if tall else x
