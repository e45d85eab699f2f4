"""Data of the figure of a selection: held-out errors by target gain, in series.

A series has the same hidden layers and, where candidates differ in it, the same training on small
batches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from greatcircle.figures.style import ANGLE, TEST, TRAIN
from greatcircle.model import SelectionTable
from greatcircle.model.selection import batches_text

__all__ = ["CandidateErrors", "Series", "gain_text", "held_out_error", "layers_text"]

SHAPE_COLOURS = (TRAIN, TEST, ANGLE, "#B0578D", "#8A6D00", "#3C8DBC")
"""One for each shape of hidden layers, as in `style`."""

DECADE = 10.0
"""Errors that differ by more than this factor are drawn on a log axis."""


class Series(NamedTuple):
    """Candidates that differ in the target gain only."""

    layers: str
    """Units of the hidden layers, as in "64-64-64", or in "64-64-64, soap 1024"."""
    colour: str
    gain: np.ndarray
    """Target gains; NaN where they were automatic."""
    error: np.ndarray
    standard_error: np.ndarray
    iterations: np.ndarray
    comparable: np.ndarray
    """Whether the error was measured on as many parts as that of the chosen candidate."""
    chosen: np.ndarray

    def where(self, kept: np.ndarray) -> "Series":
        """Return some of the candidates."""
        columns = (column[kept] for column in self[2:])
        return Series(self.layers, self.colour, *columns)


@dataclass(frozen=True, eq=False)
class CandidateErrors:
    """Held-out errors of the candidates that were tried; those that are not finite are left out.

    Parameters
    ----------
    series
        In the order in which they were tried.
    axis
        Title of the axis of the errors.
    """

    series: Sequence[Series]
    axis: str

    @classmethod
    def of(cls, table: SelectionTable, axis: str, *, squared: bool) -> Self:
        """Return the errors of a selection; of the squared loss, their root mean squares."""
        layers = np.array([layers_text(sizes) for sizes in table["hidden_layer_sizes"]])
        batches = np.array([batches_text(row) for row in table.rows()])
        if len({*batches.tolist()}) > 1:
            layers = np.char.add(np.char.add(layers, ", "), batches)
        error, standard_error = held_out_error(table, squared=squared)
        parts, chosen = table["parts"], table["chosen"]
        comparable = parts >= np.max(parts[chosen], initial=0)
        columns = (
            *(table["target_gain"], error, standard_error),
            *(table["iterations"], comparable, chosen),
        )
        series = []
        for number, name in enumerate(dict.fromkeys(layers.tolist())):
            own = np.flatnonzero((layers == name) & np.isfinite(error))
            own = own[np.argsort(table["target_gain"][own], kind="stable")]
            colour = SHAPE_COLOURS[number % len(SHAPE_COLOURS)]
            series.append(Series(name, colour, *(column[own] for column in columns)))
        return cls([each for each in series if len(each.error)], axis)

    @property
    def by_gain(self) -> bool:
        """Whether the target gains are known; otherwise the layers are on the horizontal axis."""
        return all(bool(np.all(np.isfinite(each.gain))) for each in self.series)

    @property
    def log(self) -> bool:
        """Whether the errors differ so much that they need a log axis."""
        errors = np.concatenate([each.error for each in self.series])
        return bool(errors.min() > 0 and errors.max() > DECADE * errors.min())


def held_out_error(table: SelectionTable, *, squared: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the held-out error of each candidate, and its standard error.

    The squared loss L is ½ mean ‖error‖². Its root mean square is √(2L), with the standard error
    s/√(2L) by the chain rule. Of other losses it is the loss itself.
    """
    loss, standard_error = table["held_out_loss"], table["standard_error"]
    if not squared:
        return loss, standard_error
    error = np.sqrt(2 * loss)
    return error, np.divide(standard_error, error, out=np.zeros_like(error), where=error > 0)


def layers_text(sizes: Sequence[int]) -> str:
    """Return the units of some layers, as in "64-64-64"."""
    return "-".join(map(str, sizes))


def gain_text(gain: float) -> str:
    """Return a target gain with three digits."""
    return "automatic" if np.isnan(gain) else f"{gain:.0f}" if gain >= 1000 else f"{gain:.3g}"
