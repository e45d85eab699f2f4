"""The certificate of a Lipschitz bound, and the rigorous check of its proof.

This file and `box.py` are all that has to be trusted: they use NumPy and nothing else of this
library. `docs/certificates.md` derives every formula.

**The proof.** A layer is z = A h, with A the transpose of a weight matrix: row k of A holds the
weights of unit k. The slope of every unit lies between α and β, so any two inputs have differences
with (δh − α δz)(δh − β δz) ≤ 0 for each unit. Multiply each of these by a multiplier λ ≥ 0 and add
‖δx‖² − ‖δf‖²/L². If the sum, a quadratic form in all differences, is never negative, then
‖δf‖ ≤ L ‖δx‖. By a Schur complement, with one more block for δf, that is M ⪰ 0 for

    M = ⎡ I + A₁ᵀ(αβλ)A₁   −½A₁ᵀ(α+β)λ                         ⎤
        ⎢ −½(α+β)λA₁        λ₁ + A₂ᵀ(αβλ)A₂   …                ⎥
        ⎢                   …                  λ_{l−1}   A_lᵀ  ⎥
        ⎣                                      A_l       L² I  ⎦

(LipSDP-Neuron, Fazlyab et al. 2019).

**The check**, in the order of this file:

1. `find_flaw` compares the hash of the weights and the shapes and ranges of all fields.
2. `_reduce` makes the network smaller and brings its numbers near one, which keeps the proof valid.
3. `_proof_matrix` forms M with a bound on the rounding error of each entry.
4. `_is_positive_semidefinite` proves M ⪰ 0 in spite of rounding, by one Cholesky factorisation.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from hashlib import sha256
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from greatcircle.certificate.box import (
    FLOAT32_ERROR,
    INTERVAL_RULES,
    UNIT_ROUNDOFF,
    Box,
    slopes_in_box,
)

__all__ = [
    "Certificate",
    "apply_scale",
    "connected_units",
    "describe_scope",
    "digest",
    "find_flaw",
    "gram_factor",
    "proves",
    "rounding_margin",
    "select_units",
]

FLOAT32_RANGE = 2.0**-126, float(np.finfo(np.float32).max)
"""Smallest normal and largest number of float32."""

SMALLEST_DIAGONAL = 1e-280
"""Smallest diagonal entry of M for which underflow is negligible beside 8 roundings."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """A Lipschitz bound with its proof.

    Parameters
    ----------
    value
        The bound, for the Euclidean norms of inputs and outputs.
    method
        Name of the function that found it.
    multipliers
        λ of each hidden unit, layer by layer.
    slopes
        (α, β) of each hidden unit, layer by layer: arrays of shape (units, 2).
    scale
        Factor of each input before the first layer; zero for inputs that are held fixed. With
        `gain` it makes the units of the bound.
    gain
        Factor of the outputs of the last layer.
    digest
        SHA-256 of weights and biases.
    margin
        Relative allowance for weights rounded to float32: with them the bound is at most
        `value * (1 + margin)`. Infinite if the certificate makes no claim for float32.
    declared
        Whether a user declared the slopes of the activation.
    holds
        Where the bound holds, in words, as `describe_scope` puts the next three fields.
    box
        Box of inputs in which the bound holds; None for everywhere.
    inputs
        Names or numbers of the inputs that vary while the others are fixed; None for all.
    min_input_norm
        Smallest ‖x‖ for which the bound holds, for a model that divides inputs by their norm.
    """

    value: float
    method: str
    multipliers: tuple[np.ndarray, ...]
    slopes: tuple[np.ndarray, ...]
    scale: np.ndarray
    gain: float
    digest: str
    margin: float = np.inf
    declared: bool = False
    holds: str = "everywhere"
    box: Box | None = None
    inputs: tuple[str | int, ...] | None = None
    min_input_norm: float | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Certificate):
            return NotImplemented
        return all(map(_equal, astuple(self), astuple(other)))

    def __hash__(self) -> int:
        return hash((self.digest, self.value, self.method))

    def __str__(self) -> str:
        declared = ", for slopes as declared" if self.declared else ""
        return f"{self.value:.6g} ({self.method}, {self.holds}{declared})"


def _equal(a: Any, b: Any) -> bool:
    """Compare two fields of certificates to the last digit."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(np.array_equal(a, b))


def describe_scope(
    box: Box | None = None,
    inputs: Sequence[str | int] | None = None,
    min_input_norm: float | None = None,
) -> str:
    """Say in words where a bound holds."""
    words = "everywhere" if box is None else "in a box"
    if box is not None and box.is_everything and box.lower is not None:
        words = "everywhere, as inputs are clipped to a box"
    if min_input_norm is not None:  # excludes a box
        words = f"for ‖x‖ ≥ {repr(float(min_input_norm)).removesuffix('.0')}"
    if inputs is not None:
        words += f", other inputs than {', '.join(map(str, inputs))} fixed"
    return words


def digest(weights: Sequence[ArrayLike], biases: Sequence[ArrayLike] | None = None) -> str:
    """Return the SHA-256 of weights and biases as float64, with their shapes."""
    state = sha256()
    for array in (*weights, *(() if biases is None else biases)):
        values = np.ascontiguousarray(array, "<f8")
        state.update(repr(values.shape).encode() + values.tobytes())
    return state.hexdigest()


# --- 1. The fields of a certificate ---------------------------------------------------------------


def find_flaw(
    certificate: Certificate,
    weights: Sequence[ArrayLike],
    biases: Sequence[ArrayLike] | None = None,
) -> str:
    """Return why a certificate does not prove its bound for these weights, or an empty string.

    Scale, gain and slopes are taken from the certificate; only slopes in a box are computed anew.

    Parameters
    ----------
    certificate
        The certificate to check.
    weights
        Matrices (fan_in, fan_out).
    biases
        Biases of the layers, if the certificate was made with them.
    """
    if digest(weights, biases) != certificate.digest:
        return "the weights and biases are not those that the certificate was made for"
    layers = [np.asarray(w, np.float64).T for w in weights]
    if not _is_well_formed(certificate, layers):
        return "its fields do not have the shapes and ranges that a proof needs"
    if certificate.box is not None and certificate.min_input_norm is not None:
        return "it has both a box and a smallest ‖x‖, which exclude each other"
    scope = describe_scope(certificate.box, certificate.inputs, certificate.min_input_norm)
    if certificate.holds != scope:
        return "its field `holds` does not say where it holds"
    if certificate.box is not None and not _slopes_hold_in_box(certificate, layers, biases):
        return "its slopes are not those of the units in its box"
    if not proves(certificate, layers):
        return f"its multipliers do not prove the bound {certificate.value:.6g}"
    if not certificate.margin >= rounding_margin(certificate, layers) * (1 - 1e-9):
        return "its margin is too small for weights rounded to float32"
    return ""


def _is_well_formed(certificate: Certificate, layers: Sequence[np.ndarray]) -> bool:
    """Check the shapes and ranges of all numbers."""
    sizes = [layers[0].shape[1], *(len(a) for a in layers)]
    multipliers, slopes, scale = certificate.multipliers, certificate.slopes, certificate.scale
    return bool(
        0 <= certificate.value < np.inf
        and certificate.margin >= 0
        and np.isfinite(certificate.gain)
        and np.shape(scale) == (sizes[0],)
        and [np.shape(m) for m in multipliers] == [(n,) for n in sizes[1:-1]]
        and [np.shape(s) for s in slopes] == [(n, 2) for n in sizes[1:-1]]
        and all(np.all(np.isfinite(a)) for a in (*layers, *multipliers, *slopes, scale))
        and all(np.all(m >= 0) for m in multipliers)
        and all(np.all((s >= -1) & (s <= 1)) and np.all(s[:, 0] <= s[:, 1]) for s in slopes)
    )


def _slopes_hold_in_box(
    certificate: Certificate, layers: Sequence[np.ndarray], biases: Sequence[ArrayLike] | None
) -> bool:
    """Check that the certificate's slopes contain the slopes of the units in the box."""
    box, scale = certificate.box, np.asarray(certificate.scale)
    shape = (layers[0].shape[1],)
    if box is None or box.activation not in INTERVAL_RULES:
        return False
    if any(np.shape(a) != shape for a in (box.low, box.high, box.shift, box.scale)):
        return False
    if not np.all((scale == 0) | (scale == box.scale)) or not np.all(box.low <= box.high):
        return False
    if (box.lower is None) != (box.upper is None):
        return False
    if box.lower is not None and box.upper is not None:
        clipped = np.shape(box.lower) == shape and np.shape(box.upper) == shape
        if not clipped or not np.all(box.lower <= box.upper):
            return False
    # Without a claim for float32 weights, only the constants of the activation may be rounded so.
    error = FLOAT32_ERROR if certificate.margin < np.inf else FLOAT32_ERROR / 4
    found = slopes_in_box(box, layers, biases, error)
    return all(
        bool(np.all((s[:, 0] >= t[:, 0]) & (s[:, 1] <= t[:, 1])))
        for s, t in zip(found, certificate.slopes, strict=True)
    )


def rounding_margin(certificate: Certificate, layers: Sequence[np.ndarray]) -> float:
    """Return how much rounding the weights to float32 can raise the bound, relatively.

    δf = A_l D_{l−1} ⋯ D_1 A_1 δx, with the slopes of the units in D, |D| ≤ 1. The certificate
    bounds the norm of that product for all such D. If each entry of each A changes by a part ε, the
    product changes by at most (1 + ε)^l − 1 times |A_l| ⋯ |A_1|, entry by entry.
    """
    if certificate.value == 0:
        return 0.0  # zeros stay zeros
    if any(np.any(np.abs(a) > FLOAT32_RANGE[1]) for a in layers):
        return np.inf
    # Below the normal numbers of float32 the rounding error is that of the smallest one.
    sizes = [np.where(a == 0, 0.0, np.maximum(np.abs(a), FLOAT32_RANGE[0])) for a in layers]
    balanced, exponents = _equilibrate(sizes, np.abs(certificate.scale), abs(certificate.gain))
    with np.errstate(divide="ignore", over="ignore"):
        norms = np.log([np.linalg.norm(a, 2) for a in balanced])
        log_product = np.sum(norms) + np.log(2) * sum(exponents)
        ratio = np.exp(log_product - np.log(certificate.value))
    return float(np.expm1(len(layers) * np.log1p(FLOAT32_ERROR)) * ratio)


# --- 2. The smaller network -----------------------------------------------------------------------


class _Network(NamedTuple):
    """Layers A with scale and gain in them, and the numbers that prove a bound of theirs."""

    layers: list[np.ndarray]
    multipliers: list[np.ndarray]
    slopes: list[np.ndarray]
    value: np.floating


def _reduce(certificate: Certificate, layers: Sequence[np.ndarray]) -> _Network | None:
    """Return a smaller network with numbers near one and the same proof; None for a constant one.

    - Units that no input reaches, or that reach no output, are left out.
    - Each layer is divided by a power of two 2ᵉ. That divides the bound by 2ᵉ and multiplies the
      multipliers of this and all later layers by 4ᵉ, without rounding.
    - Many inputs or outputs are replaced by as many as the neighbouring layer has units.
    """
    scale, gain = np.asarray(certificate.scale), certificate.gain
    # A product that underflows is not zero: only signs decide which units are connected.
    signs = apply_scale([np.sign(a) for a in layers], np.sign(scale), np.sign(gain))
    connected = connected_units(signs, certificate.slopes)
    if not np.any(connected[-1]):
        return None
    reduced, exponents = _equilibrate(select_units(layers, connected), scale[connected[0]], gain)
    reduced[0] = gram_factor(reduced[0])
    reduced[-1] = gram_factor(reduced[-1].T).T
    total = np.cumsum(exponents)
    hidden = connected[1:]
    return _Network(
        reduced,
        [
            np.ldexp(m[units], 2 * e)
            for m, units, e in zip(certificate.multipliers, hidden, total, strict=False)
        ],
        [s[units] for s, units in zip(certificate.slopes, hidden, strict=False)],
        np.ldexp(np.float64(certificate.value), -total[-1]),
    )


def connected_units(layers: Sequence[np.ndarray], slopes: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return which inputs, hidden units and outputs lie on a path from an input to an output.

    A path uses no weight of zero and no unit whose slopes are both zero. If no output is left, the
    network is constant.
    """
    reached = [np.ones(layers[0].shape[1], bool)]
    for i, a in enumerate(layers):
        moves = np.any(slopes[i] != 0, axis=1) if i < len(slopes) else np.ones(len(a), bool)
        reached.append(np.any((a != 0) & reached[-1], axis=1) & moves)
    connected = [reached.pop()]
    for a, here in zip(layers[::-1], reached[::-1], strict=True):
        connected.insert(0, here & np.any((a != 0) & connected[0][:, None], axis=0))
    return connected


def select_units(layers: Sequence[np.ndarray], units: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the layers between the selected inputs, hidden units and outputs."""
    pairs = zip(layers, pairwise(units), strict=True)
    return [a[np.ix_(outputs, inputs)] for a, (inputs, outputs) in pairs]


def apply_scale(layers: Sequence[np.ndarray], scale: ArrayLike, gain: Any) -> list[np.ndarray]:
    """Return the layers with `scale` in the first and `gain` in the last of them."""
    first, *others = layers
    scaled = [first * np.asarray(scale), *others]
    scaled[-1] = scaled[-1] * gain
    return scaled


def _equilibrate(
    layers: Sequence[np.ndarray], scale: ArrayLike, gain: float
) -> tuple[list[np.ndarray], list[int]]:
    """Divide the layers, with scale and gain, by powers of two that bring entries near one.

    The powers are split off before anything is multiplied: no product that matters underflows.
    """
    first, exponent_of_scale = _split_exponent(np.asarray(scale, np.float64))
    last, exponent_of_gain = _split_exponent(np.asarray(gain, np.float64))
    parts, before = map(list, zip(*map(_split_exponent, layers), strict=True))
    scaled = apply_scale(parts, first, last)
    balanced, after = map(list, zip(*map(_split_exponent, scaled), strict=True))
    exponents = [a + b for a, b in zip(before, after, strict=True)]
    exponents[0] += exponent_of_scale
    exponents[-1] += exponent_of_gain
    return balanced, exponents


def _split_exponent(a: np.ndarray) -> tuple[np.ndarray, int]:
    """Divide by a power of two near the largest entry, exactly; return its exponent as well."""
    exponent = int(np.frexp(np.max(np.abs(a), initial=0.0))[1])
    return np.ldexp(a, -exponent), exponent


def gram_factor(a: np.ndarray) -> np.ndarray:
    """Return a square R with R Rᵀ ⪰ A Aᵀ in exact arithmetic if A has more columns than rows.

    Then A = R C with ‖C‖ ≤ 1 (Douglas 1966), so A δx = R u with ‖u‖ ≤ ‖δx‖ for u = C δx: a bound of
    the network with R in place of A is a bound of the network.
    """
    rows, columns = a.shape
    if columns <= rows:
        return a
    exponents = np.frexp(np.max(np.abs(a), axis=1, keepdims=True))[1]
    balanced = np.ldexp(a, -exponents)
    gram = balanced @ balanced.T
    # Rounding errors of the Gram matrix (Higham 2002, Eq. 3.5) and of its factor (Theorem 10.3) are
    # each at most half of this part of the trace.
    part = 2 * (_gamma(columns + 8) + _gamma(rows + 4))
    root = np.linalg.cholesky(gram + part * np.trace(gram) * np.eye(rows))
    return np.ldexp(root, exponents)


def _gamma(n: int) -> float:
    """Return γ_n = nu/(1 − nu), which bounds the relative error of n roundings."""
    return n * UNIT_ROUNDOFF / (1 - n * UNIT_ROUNDOFF)


# --- 3. and 4. M and its sign ---------------------------------------------------------------------


def proves(certificate: Certificate, layers: Sequence[np.ndarray]) -> bool:
    """Check M ⪰ 0 for layers A and the certificate's scale, gain, slopes and multipliers."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        try:
            network = _reduce(certificate, layers)
            return network is None or _is_positive_semidefinite(*_proof_matrix(network))
        except np.linalg.LinAlgError:
            return False


def _proof_matrix(network: _Network) -> tuple[np.ndarray, np.ndarray]:
    """Return M, and a bound on the rounding error of each entry."""
    layers = network.layers
    sizes = [layers[0].shape[1], *(len(a) for a in layers)]
    ends = np.cumsum([0, *sizes])
    block = [slice(a, b) for a, b in pairwise(ends)]
    n = int(ends[-1])
    M, error = np.zeros((n, n)), np.zeros((n, n))
    M[block[0], block[0]] = np.eye(sizes[0])
    M[block[-1], block[-1]] = np.eye(sizes[-1]) * (network.value**2 * (1 - 4 * UNIT_ROUNDOFF))
    hidden = zip(layers[:-1], network.multipliers, network.slopes, strict=True)
    for i, (a, multipliers, slopes) in enumerate(hidden):
        before, after = block[i], block[i + 1]
        alpha, beta = slopes.T
        M[after, after] = np.diag(multipliers)
        M[after, before] = (-0.5 * (alpha + beta) * multipliers)[:, None] * a
        M[before, after] = M[after, before].T
        product = (alpha * beta * multipliers)[:, None]
        M[before, before] += a.T @ (product * a)
        terms = np.abs(a.T) @ np.abs(product * a)
        error[before, before] = (len(a) + 8) * UNIT_ROUNDOFF * terms
    M[block[-1], block[-2]] = layers[-1]
    M[block[-2], block[-1]] = layers[-1].T
    return M, 1.01 * (error + 8 * UNIT_ROUNDOFF * np.abs(M))


def _is_positive_semidefinite(M: np.ndarray, error: np.ndarray) -> bool:
    """Prove that every matrix within `error` of M, entry by entry, is positive semidefinite.

    The Cholesky factor R of a matrix B, computed in floating point in any order, satisfies
    RᵀR = B + E with |E| ≤ γ/(1 − γ) d dᵀ, where d² is the diagonal of B and γ = γ_{n+2}
    (Higham 2002, Theorem 10.3; Rump 2006, Theorem 2.3). The norm of d dᵀ is the trace of B. So if
    B = M − c I has a factor, M is positive semidefinite as soon as c is at least γ/(1 − γ) times
    the trace, plus the norm of `error`.
    """
    diagonal = np.diagonal(M)
    if not np.all(np.isfinite(M)) or np.any(diagonal < SMALLEST_DIAGONAL):
        return False
    # Powers of two on both sides change neither the sign nor a digit, and even out the diagonal.
    root = np.ldexp(1.0, -(np.frexp(diagonal)[1] // 2))
    M, error = root[:, None] * M * root, root[:, None] * error * root
    n = len(M)
    gamma = _gamma(n + 2)
    shift = 1.01 * (gamma / (1 - gamma) * np.trace(M) + np.linalg.norm(error)) + 8 * UNIT_ROUNDOFF
    if not np.isfinite(shift):
        return False
    factor = np.linalg.cholesky(M - shift * np.eye(n))  # raises LinAlgError if B has no factor
    return bool(np.all(np.isfinite(factor)))
