"""Turn candidate multipliers into a certificate that `verify` accepts.

The best multipliers make M singular (`proof.py`), and floating point cannot tell an eigenvalue of
zero from a negative one. So the proof needs a little slack δ, the smallest of a grid that passes:

- If αβ ≤ 0, multipliers λ_i / (1 + δ)^{2i} prove the value L (1 + δ)^l even for weights 1 + δ times
  as large. For the given weights the slack is δ/(1 + δ) times the diagonal of M.
- Otherwise the value grows by 1 + δ, and the slack is δ/(1 + δ) times M without the off-diagonal
  blocks of the outputs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from greatcircle.certificate.box import Box
from greatcircle.certificate.proof import Certificate, proves, rounding_margin
from greatcircle.certificate.scaled_network import ScaledNetwork

__all__ = ["Candidate", "best_certificate"]

SLACKS = (0.0, *np.logspace(-13, -2, 23).tolist())
"""Values of δ, in the order in which they are tried."""


class Candidate(NamedTuple):
    """Multipliers, the bound that they should prove, and the slopes that they are for."""

    multipliers: Sequence[np.ndarray]
    value: float
    slopes: Sequence[np.ndarray]


def best_certificate(
    network: ScaledNetwork, method: str, candidates: Iterable[Candidate], box: Box | None = None
) -> Certificate:
    """Return the lowest bound that any of the candidates proves, as a certificate."""
    layers = [w.T for w in network.weights]
    unchecked = (
        network.certificate(c.value, method, c.multipliers, c.slopes, box) for c in candidates
    )
    proved = [found for c in unchecked if (found := _with_smallest_slack(c, layers))]
    if not proved:
        raise ArithmeticError(
            f"no multipliers prove a bound for {method!r} in double precision: the weights may "
            "differ by too many orders of magnitude; try other units of the data"
        )
    best = min(proved, key=lambda found: found.value)
    return replace(best, margin=rounding_margin(best, layers))


def _with_smallest_slack(
    certificate: Certificate, layers: Sequence[np.ndarray]
) -> Certificate | None:
    """Return the certificate with the smallest slack that its check accepts; None without any."""
    if not np.isfinite(certificate.value):
        return None
    with_slack = (_with_slack(certificate, slack) for slack in SLACKS)
    return next((found for found in with_slack if proves(found, layers)), None)


def _with_slack(certificate: Certificate, slack: float) -> Certificate:
    """Return the certificate with a slack δ, as described above."""
    growth = 1 + slack
    if any(np.any(s[:, 0] * s[:, 1] > 0) for s in certificate.slopes):
        return replace(certificate, value=certificate.value * growth)
    multipliers = tuple(
        m / growth ** (2 * i) for i, m in enumerate(certificate.multipliers, start=1)
    )
    value = certificate.value * growth ** (len(multipliers) + 1)
    return replace(certificate, value=value, multipliers=multipliers)
