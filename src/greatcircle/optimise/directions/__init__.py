"""Directions: a heading on each sphere, from the gradient and from earlier iterations.

| direction | cost per iteration beyond the gradient | known as |
|---|---|---|
| `Steepest()` | none | the paper's Eq. (6) |
| `RiemannianGradient()` | none | Riemannian gradient descent |
| `MajorantSteepest()` | one product with each layer's input | steepest in a majorant's norm |
| `ConjugateGradient()` | none | Riemannian conjugate gradients |
| `GaussNewton()` | products with JᵀHJ | truncated, damped Gauss-Newton |
| `Kronecker()` | four forward passes and second moments, of a sample | K-FAC with momentum |
| `Soap()` | four products of a layer's size | SOAP, for small batches |
| `Muon()` | products of a layer with itself | Muon, for small batches |
| `KroneckerMomentum()` | two products of a layer's size | K-FAC, for small batches |

A direction is a pair of pure functions: `init` makes its state, `choose` returns the heading at a
point and the state for the next one. Headings are tangent, and scaled so that the fastest layer has
angular speed one, so no layer turns by more than the angle.

Distances on the spheres are in radians: the gradient of layer i in that metric is μ_i times the
tangent part of its Euclidean gradient, and inner products of headings are sums over the layers. So
no direction depends on how the radii are distributed over the layers of a network with homogeneous
activations (`docs/directions.md`).
"""

from greatcircle.objective.objective import LayeredObjective, Objective
from greatcircle.optimise.directions.direction import Choice, Direction, Position
from greatcircle.optimise.directions.first_order import (
    ConjugateGradient,
    HagerZhang,
    MajorantSteepest,
    PolakRibiere,
    RiemannianGradient,
    Steepest,
)
from greatcircle.optimise.directions.gauss_newton import GaussNewton
from greatcircle.optimise.directions.kronecker import Kronecker
from greatcircle.optimise.directions.kronecker_momentum import KroneckerMomentum
from greatcircle.optimise.directions.muon import Muon
from greatcircle.optimise.directions.soap import Soap

__all__ = [
    "Choice",
    "ConjugateGradient",
    "Direction",
    "GaussNewton",
    "HagerZhang",
    "Kronecker",
    "KroneckerMomentum",
    "MajorantSteepest",
    "Muon",
    "PolakRibiere",
    "Position",
    "RiemannianGradient",
    "Soap",
    "Steepest",
    "automatic",
]


def __dir__() -> list[str]:
    return sorted(__all__)


NEGLIGIBLE = 1e8
"""Floating-point operations: about ten milliseconds."""


def automatic(objective: Objective) -> Direction:
    """Return the direction with the most progress per evaluation that the objective supports.

    The layers of a network allow `Kronecker`, which is worthwhile if inverting its factors costs
    less than a pass over the data, or a negligible time. Outputs with a loss of them allow
    `GaussNewton`. Everything else gets `ConjugateGradient`.
    """
    if isinstance(objective, LayeredObjective):
        shapes = objective.network.shapes
        inversions = sum(a**3 + b**3 + a * b * (a + b) for a, b in shapes)
        passes = 6 * objective.count * sum(a * b for a, b in shapes)
        return Kronecker() if inversions <= max(passes, NEGLIGIBLE) else GaussNewton()
    try:
        GaussNewton().check(objective)
    except TypeError:
        return ConjugateGradient()
    return GaussNewton()
