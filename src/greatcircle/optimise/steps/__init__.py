"""Step rules: an angle for the arc, computed and not tuned.

| step | uses | in the paper |
|---|---|---|
| `Curvature()` | two derivatives along the arc | Method 1, Algorithm 2 |
| `ComparedCurvature()` | also the true loss at {0, ε, t*} | Section 3.2.1 |
| `Taylor(r)` | r derivatives along the arc | Eq. (7), any order |
| `Majorant()` | gradient and operator norms | Method 2, Algorithm 3 |
| `DataMajorant()` | also the inputs of the layers | tighter |
| `SmoothMajorant()` | also the activation's second derivative | proved, smooth activations only |
| `ClosedForm()` | slope and radii | the authors' program |
| `LinearDecay(total)` | the number of the step | for small batches |

Any of them goes with any direction of `directions/`. A step proposes an angle; on all rows the loop
accepts it only if the loss falls, and halves it otherwise.

`Brent()` and `GoldenSection()` are not steps, but searches for `Majorant(search)`.
"""

from greatcircle.optimise.steps.curvature import ComparedCurvature, Curvature
from greatcircle.optimise.steps.linear_decay import LinearDecay
from greatcircle.optimise.steps.majorised import (
    ClosedForm,
    DataMajorant,
    Majorant,
    SmoothMajorant,
)
from greatcircle.optimise.steps.search import Brent, GoldenSection
from greatcircle.optimise.steps.step import Proposal, Step
from greatcircle.optimise.steps.taylor import Taylor

__all__ = [
    "Brent",
    "ClosedForm",
    "ComparedCurvature",
    "Curvature",
    "DataMajorant",
    "GoldenSection",
    "LinearDecay",
    "Majorant",
    "Proposal",
    "SmoothMajorant",
    "Step",
    "Taylor",
]


def __dir__() -> list[str]:
    return sorted(__all__)
