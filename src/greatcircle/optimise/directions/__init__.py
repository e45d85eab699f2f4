"""Where to go: a heading on each sphere, from the gradient and from what is remembered.

| direction | beyond the gradient, per iteration | known as |
|---|---|---|
| `Steepest()` | nothing | the paper's Eq. (6) |
| `Steepest("gradient")` | nothing | Riemannian gradient descent |
| `Steepest("trust")` | what each layer sees | steepest in a majorant's norm |
| `ConjugateGradient()` | nothing | Riemannian conjugate gradients |
| `GaussNewton()` | products with JᵀHJ | truncated, damped Gauss-Newton |
| `Kronecker()` | four forward passes, and second moments, of some rows | K-FAC with momentum |

A direction is a pair of pure functions: `start` makes its memory, `choose` gives the heading at a
point and the memory for the next one. Headings are tangent, and scaled so that the fastest layer
has angular speed one: then an angle bounds the turn of every layer.

The spheres are measured in radians: the gradient of layer i in that metric is μ_i times the
tangent part of its Euclidean gradient, and inner products of headings are plain sums over the
layers. So no direction here depends on how the radii are shared out among the layers of a network
with homogeneous activations (`docs/directions.md`).
"""

from greatcircle.objective.objective import Objective
from greatcircle.objective.problem import Problem
from greatcircle.optimise.directions.direction import Chosen, Direction, Place
from greatcircle.optimise.directions.first_order import ConjugateGradient, Steepest
from greatcircle.optimise.directions.gauss_newton import GaussNewton
from greatcircle.optimise.directions.kronecker import Kronecker

__all__ = [
    "Chosen",
    "ConjugateGradient",
    "Direction",
    "GaussNewton",
    "Kronecker",
    "Place",
    "Steepest",
    "automatic",
]

NEXT_TO_NOTHING = 1e8
"""Operations: about ten milliseconds."""


def automatic(objective: Objective) -> Direction:
    """The direction that gains most per evaluation, of those that the objective allows.

    A network's layers allow `Kronecker`; it pays as long as inverting its factors costs less than
    a pass over the data does, or next to nothing. Outputs with a loss of them allow `GaussNewton`.
    Everything else gets `ConjugateGradient`.
    """
    if isinstance(objective, Problem):
        sizes, rows = objective.network.shapes, len(objective.inputs)
        inversions = sum(a**3 + b**3 + a * b * (a + b) for a, b in sizes)
        passes = 6 * rows * sum(a * b for a, b in sizes)
        return Kronecker() if inversions <= max(passes, NEXT_TO_NOTHING) else GaussNewton()
    try:
        GaussNewton().check(objective)
    except TypeError:
        return ConjugateGradient()
    return GaussNewton()
