"""What a certificate says, and the check that trusts nothing else of this library.

A layer is z = A h, with A the transpose of a weight matrix here, so that a unit's row of A is what
it sees. Every unit's difference quotient lies between its slopes α and β, which for the difference
of any two inputs says (δh − α δz)(δh − β δz) ≤ 0. Multiply each of these by a number λ ≥ 0, add
‖δx‖² − ‖δf‖²/L², and ask whether the sum, a quadratic form in all differences, can be negative. If
it cannot, L is a Lipschitz bound. Completed by one more block for δf, the form has the matrix

    M = ⎡ I + A₁ᵀ(αβλ)A₁   −½A₁ᵀ(α+β)λ                         ⎤
        ⎢ −½(α+β)λA₁        λ₁ + A₂ᵀ(αβλ)A₂   …                ⎥
        ⎢                   …                  λ_{l−1}   A_lᵀ  ⎥
        ⎣                                      A_l       L² I  ⎦

(Fazlyab et al. 2019, LipSDP-Neuron; `docs/certificates.md` derives it). For slopes [0, 1] its
diagonal blocks are I, λ₁, …, λ_{l−1}, L²; for [−1, 1] it is block diagonal but for the last block.

M is positive semidefinite if the Cholesky factorisation of a slightly smaller matrix ends without
the root of a negative number: see `verify`.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from hashlib import sha256
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from greatcircle.certificate.box import RULES, Box, slopes_in_box

UNIT = 2.0**-53
"""Largest relative error of one rounding."""


SMALLEST = 1e-280
"""Least entry on the diagonal of M for which underflow is nothing beside `8 * UNIT`."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """A Lipschitz bound and what proves it.

    Parameters
    ----------
    value
        The bound, for the Euclidean norms of inputs and outputs.
    method
        How it was found.
    multipliers
        λ of each hidden unit, layer by layer.
    slopes
        (α, β) of each hidden unit, layer by layer: arrays of shape (units, 2).
    scale
        What each input is multiplied by before the first layer; zero for inputs that are held
        fixed. With `gain` it makes the units of the bound.
    gain
        What the outputs of the last layer are multiplied by.
    digest
        SHA-256 of weights and biases.
    margin
        Relative allowance for weights rounded to float32: with them the bound is at most
        `value * (1 + margin)`.
    declared
        Whether the slopes are a user's word.
    holds
        Where the bound holds, in words.
    box
        Where it holds, in numbers; None for everywhere.
    """

    value: float
    method: str
    multipliers: tuple[np.ndarray, ...]
    slopes: tuple[np.ndarray, ...]
    scale: np.ndarray
    gain: float
    digest: str
    margin: float = 0.0
    declared: bool = False
    holds: str = "everywhere"
    box: Box | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Certificate):
            return NotImplemented
        return all(map(_same, astuple(self), astuple(other)))

    def __hash__(self) -> int:
        return hash((self.digest, self.value, self.method))

    def __str__(self) -> str:
        declared = ", for slopes as declared" if self.declared else ""
        return f"{self.value:.6g} ({self.method}, {self.holds}{declared})"


def _same(a: Any, b: Any) -> bool:
    """Whether two fields of certificates are equal, to the last digit."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(np.array_equal(a, b))


def verify(
    certificate: Certificate, weights: Any, biases: Sequence[ArrayLike] | None = None
) -> bool:
    """Whether the certificate's numbers prove its value for these weights.

    Rigorous in floating point. The Cholesky factor R of a matrix B that was computed in any order
    satisfies RᵀR = B + E with abs(E) ≤ γ/(1 − γ) d dᵀ, where d² is the diagonal of B and
    γ = (n + 2)u/(1 − (n + 2)u) (Higham 2002, Theorem 10.3; Rump 2006, Theorem 2.3). So if B = M − c
    has one, M is positive semidefinite as soon as c is at least γ/(1 − γ) times the trace, plus
    what was rounded while M was made.

    Parameters
    ----------
    certificate
        What to check.
    weights
        Matrices (fan_in, fan_out), or a fitted model.
    biases
        Biases of the layers, where the certificate was made with them.
    """
    if hasattr(weights, "layers"):
        weights, biases = weights.layers()
    if digest(weights, biases) != certificate.digest:
        return False
    matrices = [np.asarray(w, np.float64).T for w in weights]
    if certificate.box is not None and not _slopes_hold(certificate, matrices, biases):
        return False
    made = proof_matrix(certificate, matrices)
    return made is not None and is_positive(*made)


def digest(weights: Sequence[ArrayLike], biases: Sequence[ArrayLike] | None = None) -> str:
    """SHA-256 of the numbers as float64, and of their shapes."""
    state = sha256()
    for array in (*weights, *(() if biases is None else biases)):
        values = np.ascontiguousarray(array, "<f8")
        state.update(repr(values.shape).encode() + values.tobytes())
    return state.hexdigest()


def proof_matrix(
    certificate: Certificate, matrices: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray] | None:
    """M, and a bound on the rounding of each entry; None where the numbers make no proof at all."""
    first, last = matrices[0], matrices[-1]
    sizes = [first.shape[1], *(len(a) for a in matrices)]
    multipliers, slopes = certificate.multipliers, certificate.slopes
    proper = (
        0 < certificate.value < np.inf
        and np.shape(certificate.scale) == (sizes[0],)
        and [np.shape(m) for m in multipliers] == [(n,) for n in sizes[1:-1]]
        and [np.shape(s) for s in slopes] == [(n, 2) for n in sizes[1:-1]]
        and all(np.all(np.isfinite(a)) for a in (*matrices, *multipliers, *slopes))
        and all(np.all(m >= 0) for m in multipliers)
    )
    if not proper:
        return None
    ends = np.cumsum([0, *sizes])
    block = [slice(a, b) for a, b in pairwise(ends)]
    n = int(ends[-1])
    M, error = np.zeros((n, n)), np.zeros((n, n))
    M[block[0], block[0]] = np.eye(sizes[0])
    with np.errstate(over="ignore", invalid="ignore"):
        M[block[-1], block[-1]] = np.eye(sizes[-1]) * (certificate.value**2 * (1 - 4 * UNIT))
        for i, (a, m, s) in enumerate(zip(matrices[:-1], multipliers, slopes, strict=True)):
            a = a * certificate.scale if i == 0 else a
            before, after = block[i], block[i + 1]
            M[after, after] = np.diag(m)
            M[after, before] = (-0.5 * (s[:, 0] + s[:, 1]) * m)[:, None] * a
            M[before, after] = M[after, before].T
            product = (s[:, 0] * s[:, 1] * m)[:, None]
            M[before, before] += a.T @ (product * a)
            error[before, before] = (len(a) + 8) * UNIT * (np.abs(a.T) @ (np.abs(product * a)))
        M[block[-1], block[-2]] = (
            last * certificate.gain * (certificate.scale if len(matrices) == 1 else 1.0)
        )
        M[block[-2], block[-1]] = M[block[-1], block[-2]].T
        return M, 1.01 * (error + 8 * UNIT * np.abs(M))


def is_positive(M: np.ndarray, error: np.ndarray) -> bool:
    """Whether every matrix within `error` of M, entry by entry, is positive semidefinite."""
    diagonal = np.diagonal(M)
    if not np.all(np.isfinite(M)) or np.any(diagonal < SMALLEST):
        return False
    # Powers of two on both sides change neither the sign nor a digit, and even out the diagonal.
    root = np.exp2(-np.round(np.log2(diagonal) / 2))
    M, error = root[:, None] * M * root, root[:, None] * error * root
    n = len(M)
    gamma = (n + 2) * UNIT / (1 - (n + 2) * UNIT)
    with np.errstate(over="ignore"):
        size = np.linalg.norm(error)
    lowered = 1.01 * (gamma / (1 - gamma) * np.trace(M) + size) + 8 * UNIT
    if not np.isfinite(lowered):
        return False
    try:
        factor = np.linalg.cholesky(M - lowered * np.eye(n))
    except np.linalg.LinAlgError:
        return False
    return bool(np.all(np.isfinite(factor)))


def _slopes_hold(
    certificate: Certificate, matrices: Sequence[np.ndarray], biases: Sequence[ArrayLike] | None
) -> bool:
    box, scale = certificate.box, np.asarray(certificate.scale)
    assert box is not None
    shape = (matrices[0].shape[1],)
    if box.activation not in RULES or any(
        np.shape(a) != shape for a in (box.low, box.high, box.shift, box.scale, scale)
    ):
        return False
    if not np.all((scale == 0) | (scale == box.scale)) or not np.all(box.low <= box.high):
        return False
    found = slopes_in_box(box, matrices, biases)
    return len(found) == len(certificate.slopes) and all(
        s.shape == np.shape(t) and bool(np.all((s[:, 0] >= t[:, 0]) & (s[:, 1] <= t[:, 1])))
        for s, t in zip(found, certificate.slopes, strict=True)
    )
