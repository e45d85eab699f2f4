"""Training within a Lipschitz budget, and using all of it.

A free fit comes first: where its certified bound is within the budget there is nothing to do. Else
its weights are the start of a descent of `Bounded`, the network divided by its own certificate,
whose bound is the budget at every iteration. From round to round the best multipliers there are
(`certificate.interior`) replace those that the descent has come by, so that the certificate stays
tight. In the end the divisor becomes part of the last layer.
"""

from collections.abc import Sequence

import numpy as np

from greatcircle.certificate.interior import optimum
from greatcircle.network import Network

SHARES = (0.1, 0.95)
"""Shares that `gains.log_certificate` gets: it needs them below one."""


def best_multipliers(
    network: Network, weights: Sequence[np.ndarray], scale: np.ndarray
) -> tuple[tuple[np.ndarray, ...], np.ndarray, float]:
    """Roots m_i and shares s_i of the best certificate there is, and its value."""
    matrices = [np.asarray(w, np.float64).T for w in network.linear(weights)]
    matrices[0] = matrices[0] * scale
    slopes = [np.tile([0.0, 1.0], (len(a), 1)) for a in matrices[:-1]]
    multipliers, value = optimum(matrices, slopes)
    roots, shares, X = [], [], np.eye(len(scale))
    for a, m in zip(matrices[:-1], multipliers, strict=True):
        seen, size = a @ np.linalg.solve(X, a.T), np.sqrt(m)
        shares.append(np.linalg.eigvalsh(size[:, None] * seen * size)[-1] / 4)
        roots.append((size / np.sqrt(np.mean(m)))[None].astype(weights[0].dtype))
        X = np.diag(m) - 0.25 * m[:, None] * seen * m
    return tuple(roots), np.clip(shares, *SHARES).astype(weights[0].dtype), value
