"""A loss of one's own on spheres: how to place 24 points on a globe, far from each other.

Each point is a matrix of norm one, so each is a sphere of its own (Thomson's problem). Directions
and steps are compared by the passes that the loop counts, not by the clock.
"""

import jax.numpy as jnp
import numpy as np

from greatcircle import descend, directions, steps, stopping

POINTS = 24
KNOWN = 223.347074052  # lowest energy in the tables


class Repulsion:
    """Electrostatic energy of the points over the lowest known."""

    def loss(self, points):
        places = jnp.concatenate(points)
        first, second = np.triu_indices(POINTS, 1)
        way = places[first] - places[second]
        return jnp.sum(1 / jnp.sqrt(jnp.sum(way**2, axis=1))) / KNOWN


start = np.random.default_rng(0).standard_normal((POINTS, 1, 3))
start = tuple(point / np.linalg.norm(point) for point in start)
ways = {
    "steepest, curvature": (directions.RiemannianGradient(), steps.Curvature()),
    "steepest, fourth order": (directions.RiemannianGradient(), steps.Taylor(4)),
    "conjugate gradient, curvature": (directions.ConjugateGradient(), steps.Curvature()),
}
print("way                              turns   passes   energy over the lowest known")
for name, (direction, step) in ways.items():
    stop = stopping.MaxIter(300) | stopping.DecreaseBelow(1e-6)
    result = descend(Repulsion(), start, direction=direction, step=step, stop=stop)
    passes = sum(result.evaluations)
    print(f"{name:30} {len(result.records):7} {passes:8.0f}   {result.loss:.6f} ({result.outcome})")
