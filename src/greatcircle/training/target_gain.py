"""Choose the target gain from the data: the scaled targets relative to the initial outputs.

The larger it is, the lower the bound that training ends with, and the less the network follows
noise (`docs/scaling.md`).
"""

import math
from collections.abc import Sequence

import numpy as np

from greatcircle.data.checks import normalised_weights
from greatcircle.data.rows import sample_rows
from greatcircle.data.scaling import Scaling
from greatcircle.network.network import Network

__all__ = ["automatic_target_gain", "best_line", "largest_target_gain"]

FOUR_LAYERS = (1.0, 100.0)
"""Smallest and largest target gain that the rule chooses for four layers."""

LARGEST = 100.0
"""For any depth: with a larger one, deep networks start to learn late (`docs/scaling.md`)."""

CANDIDATES, QUERIES = 10_000, 2_000
"""Number of rows among which nearest neighbours are searched, and for which."""


def automatic_target_gain(
    inputs: np.ndarray,
    targets: np.ndarray,
    network: Network,
    sample_weight: np.ndarray | None = None,
) -> float:
    """Return 140 × noise / signal × p / rows for four layers, the L/4th power of it for L layers.

    Here p is the mean number of parameters of a layer. The noise is estimated by the residual of a
    linear fit, or by half the mean squared difference between nearest neighbours, whichever is
    smaller: each contains all of the noise, and part of the signal. The rest of the variance is
    signal. Rows count by their weight; if there are many, a sample is used. The factor 140 and the
    limits come from the data sets of `docs/scaling.md`.
    """
    rows = float(len(inputs))
    if sample_weight is not None:
        largest = float(np.max(sample_weight))
        # The product may be infinite; the sum itself would warn of it.
        rows = largest * float(np.sum(sample_weight / largest))
    sample, weight = sample_rows(normalised_weights(sample_weight, len(inputs)))
    inputs, targets = inputs[sample], targets[sample]
    scaling = Scaling.fit("standard", inputs, targets, centred=True, sample_weight=weight)
    x, y = scaling.inputs(inputs), scaling.targets(targets)
    variance = float(weight @ np.sum(y**2, axis=1))
    if variance <= (1e-12 * np.max(np.abs(targets))) ** 2:  # targets that do not vary
        return FOUR_LAYERS[0]
    noise = min(_residual_of_line(x, y, weight), _neighbour_difference(x, y, weight))
    signal = max(variance - noise, np.finfo(float).tiny)
    parameters = sum(math.prod(shape) for shape in network.shapes) / network.depth
    of_four = np.clip(140 * noise / signal * parameters / rows, *FOUR_LAYERS)
    return min(float(of_four) ** (network.depth / 4), LARGEST)


def largest_target_gain(network: Network, radii: Sequence[float], line: np.ndarray) -> float:
    """Return half of the largest target gain at which these radii allow the linear function `line`.

    If L matrices have the product B, the product of their norms is at least the Schatten quasi-norm
    of order 2/L of B. With a larger target gain, the network could not even represent the best
    linear fit (`docs/scaling.md`).
    """
    gains = np.linalg.svd(line, compute_uv=False)[: min(network.sizes)]
    needed = float(np.sum(gains ** (2 / network.depth)) ** (network.depth / 2))
    return 0.5 * float(np.prod(radii)) / needed if needed > 0 else np.inf


def best_line(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the best linear function, with a small ridge penalty."""
    root = np.sqrt(weight)[:, None]
    A, b = root * x, root * y
    ridge = 0.01 * float(np.sum(A**2)) / A.shape[1] or 1.0
    if A.shape[1] <= len(A):
        return np.linalg.solve(A.T @ A + ridge * np.eye(A.shape[1]), A.T @ b)
    return A.T @ np.linalg.solve(A @ A.T + ridge * np.eye(len(A)), b)  # the same, for few rows


def _residual_of_line(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    """Return the mean squared residual of the best linear function of centred targets."""
    root = np.sqrt(weight)[:, None]
    residuals = root * (y - x @ np.linalg.lstsq(root * x, root * y, rcond=None)[0])
    return float(np.sum(residuals**2))


def _neighbour_difference(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    """Return half the mean squared difference between the targets of nearest neighbours.

    Duplicate rows are merged, with the sum of their weights.
    """
    rng = np.random.default_rng(0)
    counted = np.flatnonzero(weight)
    some = rng.permutation(counted)[: 2 * CANDIDATES] if len(counted) > 2 * CANDIDATES else counted
    # Rows are equal where a random combination of their entries is.
    rows = np.hstack([x[some], y[some]])
    combined = np.sum(rows * rng.standard_normal(rows.shape[1]), axis=1)
    _, first, which = np.unique(combined, return_index=True, return_inverse=True)
    merged_weight = np.bincount(which, weight[some])
    if len(first) < 2:
        return np.inf
    chosen = rng.permutation(len(first))[:CANDIDATES]
    x, y, merged_weight = x[some[first[chosen]]], y[some[first[chosen]]], merged_weight[chosen]
    # Squared distances up to a constant per row, as one product. float32 is enough to find them.
    x = x.astype(np.float32)
    ends = np.column_stack([-2 * x, np.sum(x**2, axis=1)]).T
    queries = np.arange(min(QUERIES, len(x)))
    nearest = np.empty(len(queries), np.intp)
    for block in np.array_split(queries, -(-len(queries) // 200)):  # fits into the cache
        distance = np.column_stack([x[block], np.ones(len(block), x.dtype)]) @ ends
        distance[np.arange(len(block)), block] = np.inf
        nearest[block] = np.argmin(distance, axis=1)
    apart = np.sum((y[queries] - y[nearest]) ** 2, axis=1)
    return 0.5 * float(np.average(apart, weights=merged_weight[queries]))
