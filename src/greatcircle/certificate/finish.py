"""From multipliers and a value to a certificate that `verify` accepts.

Multipliers that are exactly good enough make a matrix M with an eigenvalue zero, which no
computation in floating point can tell from a negative one. So a little room is made. Where αβ ≤ 0,
multipliers λ_i / (1 + δ)^{2i} prove the value L (1 + δ)^l even for weights 1 + δ times as large.
For the weights as they are they prove it with room to spare, δ/(1 + δ) times the diagonal of M.
Else the value alone grows by 1 + δ, and the room is δ/(1 + δ) times M without its off-diagonal
block of the outputs.
"""

import math
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
    for room in (0.0, *np.logspace(-13, -2, 23)):
        found = _with_room(exact, float(room))
        made = proof_matrix(found, layers)
        if made is not None and is_positive(*made):
            return replace(found, margin=_margin(of, found))
    raise ArithmeticError(
        f"the multipliers do not prove the bound {value:.6g} in double precision: the weights may "
        "differ by too many orders of magnitude; try other units of the data"
    )


def _with_room(certificate: Certificate, room: float) -> Certificate:
    grow = 1 + room
    if any(np.any(s[:, 0] * s[:, 1] > 0) for s in certificate.slopes):
        return replace(certificate, value=certificate.value * grow)
    multipliers = tuple(m / grow ** (2 * i) for i, m in enumerate(certificate.multipliers, start=1))
    value = certificate.value * grow ** (len(multipliers) + 1)
    return replace(certificate, value=value, multipliers=multipliers)


def _margin(of: Stack, certificate: Certificate) -> float:
    """What weights that are rounded to float32 can add to the bound, as a part of it.

    δf = A_l D_{l−1} ⋯ D_1 A_1 δx, with the difference quotients of the units in D, |D| ≤ 1. The
    certificate bounds the norm of that product for all such D; if each entry of each A changes by a
    part ε, the product changes by at most (1 + ε)^l − 1 times |A_l| ⋯ |A_1|, entry by entry.
    """
    most = math.prod(float(np.linalg.norm(np.abs(a), 2)) for a in of.matrices)
    return math.expm1(len(of.matrices) * math.log1p(FLOAT32)) * most / certificate.value
