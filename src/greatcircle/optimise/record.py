"""What is written down of each iteration."""

import math
from typing import NamedTuple


class Evaluations(NamedTuple):
    """Passes over the data, by kind; a pass over part of the rows counts as that part."""

    forward: float = 0
    """Losses."""
    backward: float = 0
    """Gradients, each on top of a forward pass."""
    second: float = 0
    """Second derivatives along an arc."""
    higher: float = 0
    """Taylor expansions beyond the second order."""
    products: float = 0
    """Gauss-Newton products."""

    def plus(self, other: "Evaluations") -> "Evaluations":
        """Kind by kind."""
        return Evaluations(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, factor: float) -> "Evaluations":
        """All kinds alike."""
        return Evaluations(*(factor * a for a in self))


class Record(NamedTuple):
    """One iteration. Loss and all that derives from it are in the units of the loss.

    In `history_` and in callbacks of an estimator, that is the unit of the targets, squared for the
    squared loss.
    """

    iteration: int
    """Counted from one."""
    loss: float
    """After the step."""
    angle: float
    """Taken, after any halvings."""
    slope: float
    """L̄'(0) along the arc that was taken."""
    curvature: float
    """L̄''(0), NaN for a step rule that does not look at it."""
    predicted: float
    """Decrease of the loss that the step rule's model predicted for its own angle."""
    actual: float
    """Decrease of the loss."""
    halvings: int
    """How often the rule's angle was halved before the loss fell."""
    forward: float
    backward: float
    second: float
    higher: float
    products: float
    seconds: float
    """Wall-clock time of the iteration; no decision looks at it."""
    validation_loss: float = math.nan
    """Of the part that an estimator's `early_stopping` holds out; NaN without one."""
    lipschitz: float = math.nan
    """∏‖W_i‖_op in the units of the data; NaN outside an estimator, where these are not known."""
