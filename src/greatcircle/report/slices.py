"""Slices through a fitted model: vary one input over its range, the others at their medians."""

import numpy as np

from greatcircle.figures.tables import Slices
from greatcircle.model import Model

__all__ = ["slices"]

POINTS = 81
"""Points of each slice."""

MAX_SLICES = 50


def slices(model: Model, inputs: np.ndarray) -> Slices:
    """Return a slice along each input; a classifier's outputs are its probabilities.

    If there are more than `MAX_SLICES` inputs, only those with the largest effect at the median of
    the data are varied.
    """
    low, median, high = inputs.min(axis=0), np.median(inputs, axis=0), inputs.max(axis=0)
    effect = np.linalg.norm(model.jacobian(median[None])[0], axis=0) * (high - low)
    chosen = np.sort(np.argsort(-effect, kind="stable")[:MAX_SLICES])
    grid = np.linspace(low[chosen], high[chosen], POINTS).T
    varied = np.tile(median, (len(chosen), POINTS, 1))
    for index, column in enumerate(chosen):
        varied[index, :, column] = grid[index]
    rows = varied.reshape(-1, len(median))
    names = model.feature_names or tuple(f"input {i}" for i in range(len(median)))
    if model.classes is None:
        outputs, values = model.target_names, model.outputs(rows)
    else:
        outputs = tuple(f"probability of {label}" for label in model.classes)
        values = model.predict_proba(rows)
    shape = (len(chosen), POINTS, len(outputs))
    return Slices(tuple(names[i] for i in chosen), outputs, grid, values.reshape(shape))
