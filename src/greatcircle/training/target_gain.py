"""How many times larger than the initial outputs the targets are: from the data and the network.

The larger, the lower the bound that training ends with, and the less the network follows noise
(`docs/scaling.md`).
"""

import math
from collections.abc import Sequence

import numpy as np

from greatcircle.data.checks import normalised_weights
from greatcircle.data.rows import sample_rows
from greatcircle.data.scaling import Scaling
from greatcircle.network.network import Network

FOUR_LAYERS = (1.0, 100.0)
"""The least and the most that the rule chooses for four layers."""

MOST = 100.0
"""For any number of layers: with more, deep networks begin to learn late (`docs/scaling.md`)."""

NEIGHBOURS, ASKED = 10_000, 2_000
"""Among how many rows neighbours are looked for, and for how many of them."""


def automatic_headroom(
    inputs: np.ndarray,
    targets: np.ndarray,
    network: Network,
    sample_weight: np.ndarray | None = None,
) -> float:
    """Headroom for the noise there may be: 140 × noise / signal × p / rows, for four layers.

    Here p is the mean number of parameters of a layer. Each layer has its share of the headroom: L
    of them have the L/4th power of this.

    The noise is what a linear fit leaves, or half the mean squared difference between neighbours,
    whichever is less: each of them holds all of the noise, and what the function does besides. The
    signal is the rest. Rows count by their weight, and of very many a sample is looked at. The
    factor 140 and the bounds are from the data sets of `docs/scaling.md`.
    """
    rows = float(len(inputs))
    if sample_weight is not None:
        most = float(np.max(sample_weight))
        rows = most * float(np.sum(sample_weight / most))  # infinity at worst, and no warning
    sample, share = sample_rows(normalised_weights(sample_weight, len(inputs)))
    inputs, targets = inputs[sample], targets[sample]
    scaling = Scaling.fit("standard", inputs, targets, centred=True, sample_weight=share)
    x, y = scaling.inputs(inputs), scaling.targets(targets)
    all_of_it = float(share @ np.sum(y**2, axis=1))
    if all_of_it <= (1e-12 * np.max(np.abs(targets))) ** 2:  # targets that do not vary
        return FOUR_LAYERS[0]
    noise = min(_left_by_a_line(x, y, share), _between_neighbours(x, y, share))
    signal = max(all_of_it - noise, np.finfo(float).tiny)
    parameters = sum(math.prod(shape) for shape in network.shapes) / network.depth
    of_four = np.clip(140 * noise / signal * parameters / rows, *FOUR_LAYERS)
    return min(float(of_four) ** (network.depth / 4), MOST)


def largest_headroom(network: Network, radii: Sequence[float], line: np.ndarray) -> float:
    """Half of the headroom at which matrices of these norms could just make a linear function.

    Matrices with the product B have norms whose product is at least the Schatten quasi-norm of
    order 2/L of B, with L the number of matrices. With more headroom than that, a network could not
    even be the best `line` (`docs/scaling.md`).
    """
    gains = np.linalg.svd(line, compute_uv=False)[: min(network.sizes)]
    needed = float(np.sum(gains ** (2 / network.depth)) ** (network.depth / 2))
    return 0.5 * float(np.prod(radii)) / needed if needed > 0 else np.inf


def best_line(x: np.ndarray, y: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Best linear function, with a ridge that keeps it from leaning on inputs next to zero."""
    root = np.sqrt(share)[:, None]
    A, b = root * x, root * y
    ridge = 0.01 * float(np.sum(A**2)) / A.shape[1] or 1.0
    if A.shape[1] <= len(A):
        return np.linalg.solve(A.T @ A + ridge * np.eye(A.shape[1]), A.T @ b)
    return A.T @ np.linalg.solve(A @ A.T + ridge * np.eye(len(A)), b)  # the same, for few rows


def _left_by_a_line(x: np.ndarray, y: np.ndarray, share: np.ndarray) -> float:
    """Mean square of what the best linear function leaves of centred targets."""
    root = np.sqrt(share)[:, None]
    left = root * (y - x @ np.linalg.lstsq(root * x, root * y, rcond=None)[0])
    return float(np.sum(left**2))


def _between_neighbours(x: np.ndarray, y: np.ndarray, share: np.ndarray) -> float:
    """Half the mean squared difference to the target of the nearest row, from some of the rows.

    A row that is there twice is no neighbour of itself: it counts once, with its weight.
    """
    rng = np.random.default_rng(0)
    counted = np.flatnonzero(share)
    some = rng.permutation(counted)[: 2 * NEIGHBOURS] if len(counted) > 2 * NEIGHBOURS else counted
    # Rows are the same where a random combination of their entries is.
    rows = np.hstack([x[some], y[some]])
    combined = np.sum(rows * rng.standard_normal(rows.shape[1]), axis=1)
    _, first, which = np.unique(combined, return_index=True, return_inverse=True)
    weight = np.bincount(which, share[some])
    if len(first) < 2:
        return np.inf
    chosen = rng.permutation(len(first))[:NEIGHBOURS]
    x, y, weight = x[some[first[chosen]]], y[some[first[chosen]]], weight[chosen]
    # As one product: squared distances, less what all of a row have in common. Which of two rows is
    # nearer by a millionth does not matter.
    x = x.astype(np.float32)
    ends = np.column_stack([-2 * x, np.sum(x**2, axis=1)]).T
    asked = np.arange(min(ASKED, len(x)))
    nearest = np.empty(len(asked), np.intp)
    for block in np.array_split(asked, -(-len(asked) // 200)):  # few enough for the cache
        distance = np.column_stack([x[block], np.ones(len(block), x.dtype)]) @ ends
        distance[np.arange(len(block)), block] = np.inf
        nearest[block] = np.argmin(distance, axis=1)
    apart = np.sum((y[asked] - y[nearest]) ** 2, axis=1)
    return 0.5 * float(np.average(apart, weights=weight[asked]))
