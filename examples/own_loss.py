"""Minimise your own loss on spheres: 24 points on a globe, far from each other.

Each point is a matrix of norm one, that is, a point on its own sphere (Thomson's problem).
Directions and steps are compared by counted passes, not by time.
"""

import jax.numpy as jnp
import numpy as np

from greatcircle import descend, directions, steps, stopping

POINTS = 24
KNOWN = 223.347074052  # lowest energy in the tables


class Repulsion:
    """Electrostatic energy of the points divided by the lowest known."""

    def loss(self, points):
        positions = jnp.concatenate(points)
        first, second = np.triu_indices(POINTS, 1)
        difference = positions[first] - positions[second]
        return jnp.sum(1 / jnp.sqrt(jnp.sum(difference**2, axis=1))) / KNOWN


start = np.random.default_rng(0).standard_normal((POINTS, 1, 3))
start = tuple(point / np.linalg.norm(point) for point in start)
pairs = {
    "steepest, curvature": (directions.RiemannianGradient(), steps.Curvature()),
    "steepest, fourth order": (directions.RiemannianGradient(), steps.Taylor(4)),
    "conjugate gradient, curvature": (directions.ConjugateGradient(), steps.Curvature()),
}
print("direction, step             iterations   passes   energy / lowest known")
for name, (direction, step) in pairs.items():
    stop = stopping.MaxIter(300) | stopping.DecreaseBelow(1e-6)
    result = descend(Repulsion(), start, direction=direction, step=step, stop=stop)
    passes = sum(result.evaluations)
    print(f"{name:30} {len(result.records):7} {passes:8.0f}   {result.loss:.6f} ({result.outcome})")
