"""From multipliers and a value to a certificate that `verify` accepts.

Multipliers that are exactly good enough make a matrix M with an eigenvalue zero, which no
computation in floating point can tell from a negative one. So a little room is made. Where αβ ≤ 0,
multipliers λ_i / (1 + δ)^{2i} prove the value L (1 + δ)^l even for weights 1 + δ times as large.
For the weights as they are they prove it with room to spare, δ/(1 + δ) times the diagonal of M.
Else the value alone grows by 1 + δ, and the room is δ/(1 + δ) times M without its off-diagonal
block of the outputs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from greatcircle.certificate.box import Box
from greatcircle.certificate.proof import Certificate, proves, rounding_margin
from greatcircle.certificate.stack import Stack


class Candidate(NamedTuple):
    """Multipliers, the bound that they should prove, and the slopes they were found for."""

    multipliers: Sequence[np.ndarray]
    value: float
    slopes: Sequence[np.ndarray]


def finished(
    of: Stack, method: str, candidates: Iterable[Candidate], box: Box | None = None
) -> Certificate:
    """The lowest bound that any of the candidates proves, as a certificate."""
    layers = [w.T for w in of.weights]
    proved = [
        found
        for c in candidates
        if (found := _proved(of.certificate(c.value, method, c.multipliers, c.slopes, box), layers))
    ]
    if not proved:
        raise ArithmeticError(
            f"no multipliers prove a bound for {method!r} in double precision: the weights may "
            "differ by too many orders of magnitude; try other units of the data"
        )
    least = min(proved, key=lambda found: found.value)
    return replace(least, margin=rounding_margin(least, layers))


def _proved(certificate: Certificate, layers: Sequence[np.ndarray]) -> Certificate | None:
    """The certificate with as little room as its check needs, or None where none suffices."""
    if not np.isfinite(certificate.value):
        return None
    for room in (0.0, *np.logspace(-13, -2, 23)):
        found = _with_room(certificate, float(room))
        if proves(found, layers):
            return found
    return None


def _with_room(certificate: Certificate, room: float) -> Certificate:
    grow = 1 + room
    if any(np.any(s[:, 0] * s[:, 1] > 0) for s in certificate.slopes):
        return replace(certificate, value=certificate.value * grow)
    multipliers = tuple(m / grow ** (2 * i) for i, m in enumerate(certificate.multipliers, start=1))
    value = certificate.value * grow ** (len(multipliers) + 1)
    return replace(certificate, value=value, multipliers=multipliers)
