"""From multipliers and a value to a certificate that `verify` accepts.

Multipliers that are exactly good enough make a matrix M with an eigenvalue zero, which no
computation in floating point can tell from a negative one. So a little room is made: for weights
1 + δ times as large the multipliers λ_i / (1 + δ)^{2i} prove the value L (1 + δ)^l, and for the
weights as they are they prove it with room to spare, M ⪰ δ/(1 + δ) times its diagonal.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from greatcircle.certificate.box import Box
from greatcircle.certificate.proof import Certificate, is_positive, proof_matrix
from greatcircle.certificate.stack import Stack

FLOAT32 = 2.0**-22
"""Four times the largest relative error of rounding to float32: scale and weight may each be."""


def finished(
    of: Stack,
    method: str,
    multipliers: Sequence[np.ndarray],
    value: float,
    slopes: Sequence[np.ndarray] | None = None,
    box: Box | None = None,
) -> Certificate:
    """A certificate with as little room as its check needs; slopes relaxed unless given."""
    layers = [w.T for w in of.weights]
    exact = of.certificate(
        value, method, multipliers, of.slopes(relaxed=True) if slopes is None else slopes
    )
    exact = replace(exact, box=box)
    for room in (0.0, *np.logspace(-13, -6, 15)):
        found = _with_room(exact, float(room))
        made = proof_matrix(found, layers)
        if made is not None and is_positive(*made):
            return replace(found, margin=_margin(made[0], len(layers)))
    raise ArithmeticError(
        f"the multipliers do not prove the bound {value:.6g} in double precision: the weights may "
        "differ by too many orders of magnitude; try other units of the data"
    )


def _with_room(certificate: Certificate, room: float) -> Certificate:
    grow = 1 + room
    multipliers = tuple(m / grow ** (2 * i) for i, m in enumerate(certificate.multipliers, start=1))
    value = certificate.value * grow ** (len(multipliers) + 1)
    return replace(certificate, value=value, multipliers=multipliers)


def _margin(M: np.ndarray, depth: int) -> float:
    """Room for each weight to differ by a part `FLOAT32` of itself.

    Such a change of M is at most FLOAT32 · ‖|M_off|‖ once the diagonal is one, and room δ covers δ.
    """
    root = 1 / np.sqrt(np.diagonal(M))
    off = np.abs(root[:, None] * M * root) - np.eye(len(M))
    room = FLOAT32 * float(np.max(np.sum(np.abs(off), axis=1)))
    return (1 + room) ** depth - 1
