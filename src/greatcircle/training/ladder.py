"""The networks that a selection tries, and what training them costs.

| rows | hidden layers of | other depths | first candidates are trained for |
|---|---|---|---|
| few | 32, 64, 128 units | 1, 3, 5 | 50 iterations on all rows |
| many | 64, 128, 256, 512 units | 2, 3, 4, 6 | 1024 steps on small batches |
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from greatcircle.data.rows import Rows
from greatcircle.optimise.random_batches import batch_size
from greatcircle.training.methods import BATCH_DIRECTIONS
from greatcircle.training.search import BatchPhase, Candidate, Ladder
from greatcircle.training.settings import FitSettings

__all__ = [
    "ITERATIONS",
    "MOST_OPERATIONS",
    "OPERATIONS_ON_BATCHES",
    "PASSES",
    "Costs",
    "ladder",
    "weights_of",
]

WIDTHS = (32, 64, 128)
"""Units of each hidden layer, from narrow to wide; a wider network costs four times as much."""

DEPTHS = (1, 3, 5)
"""Numbers of hidden layers; the first candidates have as many as the estimator's default."""

ITERATIONS = 50
"""Iterations of every candidate: with 25, a quarter of the choices differ, with 200 hardly any."""

WIDTHS_ON_BATCHES, DEPTHS_ON_BATCHES = (64, 128, 256, 512), (2, 3, 4, 6)
"""The same for training on small batches, where a wide network costs less."""

STEPS = 1024
"""Steps of the first candidates on small batches.

The angle of their first step is 0.7/√1024, about a degree (`docs/small_batches.md`).
"""

MOST_OPERATIONS = 1e12
"""Passes times rows times weights of the longest runs: about twenty seconds on one core."""

OPERATIONS_ON_BATCHES = 1.5e12
"""The same for all candidates on small batches together."""

PASSES = 7
"""Passes of an iteration: gradient, second-order angle, and Kronecker factors with their model."""

PASSES_OF_STEP = 4
"""Passes of a step on a small batch: gradient, and a direction that costs as much."""


@dataclass(frozen=True)
class Costs:
    """Counts the operations of a candidate that is trained on small batches.

    Parameters
    ----------
    training_rows
        Number of rows that a candidate is trained on.
    rows
        Rows with the inputs and outputs of the network.
    most_passes
        Largest number of passes over the rows.
    """

    training_rows: int
    rows: Rows
    most_passes: float

    def affords(self, candidate: Candidate) -> bool:
        """Return whether training on small batches costs little enough."""
        visited = self._visited(candidate)
        within = visited <= self.most_passes * self.training_rows
        return within and self.on_batches(candidate) <= MOST_OPERATIONS

    def on_batches(self, candidate: Candidate) -> float:
        """Return the operations of training on small batches."""
        return float(PASSES_OF_STEP * self._visited(candidate) * self._weights(candidate))

    @property
    def first_steps(self) -> int:
        """Number of steps of the first candidates."""
        most = self.most_passes * self.training_rows / batch_size(self.training_rows)
        return int(max(min(STEPS, most), 1))

    def on_all_rows(self, candidate: Candidate, iterations: int) -> float:
        """Return the operations of iterations on all rows."""
        return float(PASSES * iterations * self.training_rows * self._weights(candidate))

    def _visited(self, candidate: Candidate) -> int:
        """Return the number of rows in all batches."""
        steps = 0 if candidate.batches is None else candidate.batches.steps
        return steps * batch_size(self.training_rows)

    def _weights(self, candidate: Candidate) -> int:
        inputs, outputs = self.rows.inputs.shape[1], self.rows.targets.shape[1]
        return weights_of((inputs, *candidate.hidden_layer_sizes, outputs))


def weights_of(sizes: Sequence[int]) -> int:
    """Return the number of weights of a network with biases."""
    return sum((a + 1) * b for a, b in pairwise(sizes))


def ladder(
    settings: FitSettings,
    first_steps: int | None = None,
    affords: Callable[[Candidate], bool] = lambda _: True,
) -> Ladder:
    """Return the networks to try.

    Parameters
    ----------
    settings
        Of the fit.
    first_steps
        Number of steps on small batches of the first candidates; None for iterations on all rows.
    affords
        Whether a candidate costs little enough.
    """
    gain, walks = settings.initialisation.target_gain, settings.chooses_gain
    batches, directions = None, ()
    widths, depths = WIDTHS, DEPTHS
    if first_steps is not None:
        first, *directions = BATCH_DIRECTIONS
        batches = BatchPhase(first, first_steps)
        widths, depths = WIDTHS_ON_BATCHES, DEPTHS_ON_BATCHES
    depth, radius = len(settings.hidden_layer_sizes), settings.initialisation.radius
    if isinstance(radius, Sequence | np.ndarray):  # one for each layer
        depth, depths = len(radius) - 1, ()

    def others(sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [sizes[:1] * other for other in depths if other != depth]

    if settings.chooses_sizes:
        return Ladder(
            [(width,) * depth for width in widths],
            others,
            walks,
            gain,
            batches,
            directions,
            affords,
        )
    given = settings.hidden_layer_sizes
    return Ladder([given], lambda _: (), walks, gain, batches, directions, affords)
