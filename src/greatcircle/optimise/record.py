"""The record of an iteration, and counts of passes over the data."""

import math
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Evaluations", "Record", "total_evaluations"]


class Evaluations(NamedTuple):
    """Passes over the data, by kind; a pass over part of the rows counts as that fraction."""

    forward: float = 0
    """Forward passes."""
    backward: float = 0
    """Gradients, not counting their forward passes."""
    second: float = 0
    """Second derivatives along an arc."""
    higher: float = 0
    """Taylor expansions beyond the second order."""
    products: float = 0
    """Gauss-Newton products."""

    def plus(self, other: "Evaluations") -> "Evaluations":
        """Return the sum of each count."""
        return Evaluations(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, factor: float) -> "Evaluations":
        """Return all counts multiplied by a factor."""
        return Evaluations(*(factor * a for a in self))


class Record(NamedTuple):
    """One iteration. The loss and its derivatives are in the units of the loss.

    In `history_` and in callbacks of an estimator, that is the unit of the targets, squared for the
    squared loss.
    """

    iteration: int
    """Counted from one."""
    loss: float
    """After the step."""
    angle: float
    """The angle of the step, after any halvings."""
    slope: float
    """L̄'(0) along the arc of the step."""
    curvature: float
    """L̄''(0); NaN for a step rule that does not compute it."""
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
    """Wall-clock time, shared equally by the iterations of one compiled program.

    No decision depends on it.
    """
    validation_loss: float = math.nan
    """Loss on the rows that `early_stopping` holds out; NaN without it."""
    spectral_bound: float = math.nan
    """∏‖W_i‖_op in the units of the data; NaN outside an estimator."""


def total_evaluations(records: Iterable[Record]) -> Evaluations:
    """Return the evaluations of all records together."""
    total = Evaluations()
    for record in records:
        total = total.plus(Evaluations(*(getattr(record, name) for name in Evaluations._fields)))
    return total
