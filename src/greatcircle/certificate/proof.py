"""What a certificate says, and the check that trusts nothing else of this library.

A layer is z = A h, with A the transpose of a weight matrix, so that row k of A holds the weights of
unit k. Every unit's difference quotient lies between its slopes α and β, so for any two inputs
(δh − α δz)(δh − β δz) ≤ 0. Multiply each of these by a number λ ≥ 0, add ‖δx‖² − ‖δf‖²/L², and ask
whether the sum, a quadratic form in all differences, can be negative. If it cannot, L is a
Lipschitz bound. Completed by one more block for δf, the form has the matrix

    M = ⎡ I + A₁ᵀ(αβλ)A₁   −½A₁ᵀ(α+β)λ                         ⎤
        ⎢ −½(α+β)λA₁        λ₁ + A₂ᵀ(αβλ)A₂   …                ⎥
        ⎢                   …                  λ_{l−1}   A_lᵀ  ⎥
        ⎣                                      A_l       L² I  ⎦

(Fazlyab et al. 2019, LipSDP-Neuron; `docs/certificates.md` derives it). For slopes [0, 1] its
diagonal blocks are I, λ₁, …, λ_{l−1}, L²; for [−1, 1] it is block diagonal but for the last block.

Before M is formed, the network is made smaller and brought to ordinary size: units that no input
reaches or that reach no output are left out, many inputs or outputs are replaced by as many as the
neighbouring layer has units, and each layer is divided by a power of two (`_reduced`).
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from hashlib import sha256
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from greatcircle.certificate.box import FLOAT32, RULES, Box, slopes_in_box

UNIT = 2.0**-53
"""Largest relative error of one rounding."""

FLOAT32_RANGE = 2.0**-126, float(np.finfo(np.float32).max)
"""Smallest normal and largest number of float32."""

SMALLEST = 1e-280
"""Smallest diagonal entry of M for which underflow is negligible beside `8 * UNIT`."""


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
        `value * (1 + margin)`. Infinite where nothing is claimed.
    declared
        Whether the slopes are those a user declared for an activation of their own.
    holds
        Where the bound holds, in words: `scope` of the next three.
    box
        Box of inputs in which it holds; None for everywhere.
    inputs
        Names or numbers of the inputs that vary, the others being held fixed; None for all.
    at_least
        The least ‖x‖ for which it holds, for a model that divides inputs by their norm.
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
    at_least: float | None = None

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


def scope(
    box: Box | None = None,
    inputs: Sequence[str | int] | None = None,
    at_least: float | None = None,
) -> str:
    """Where a bound holds, in words."""
    words = "everywhere" if box is None else "in a box"
    if at_least is not None:  # which excludes a box
        words = f"for ‖x‖ ≥ {repr(float(at_least)).removesuffix('.0')}"
    if inputs is not None:
        words += f", other inputs than {', '.join(map(str, inputs))} fixed"
    return words


def digest(weights: Sequence[ArrayLike], biases: Sequence[ArrayLike] | None = None) -> str:
    """SHA-256 of the numbers as float64, and of their shapes."""
    state = sha256()
    for array in (*weights, *(() if biases is None else biases)):
        values = np.ascontiguousarray(array, "<f8")
        state.update(repr(values.shape).encode() + values.tobytes())
    return state.hexdigest()


def flaw(
    certificate: Certificate,
    weights: Sequence[ArrayLike],
    biases: Sequence[ArrayLike] | None = None,
) -> str:
    """Say why a certificate does not prove its bound for these weights; an empty text if it does.

    Scale, gain and slopes are taken as the certificate has them, but for the slopes in a box.

    Parameters
    ----------
    certificate
        What to check.
    weights
        Matrices (fan_in, fan_out).
    biases
        Biases of the layers, where the certificate was made with them.
    """
    if digest(weights, biases) != certificate.digest:
        return "the weights and biases are not those that the certificate was made for"
    layers = [np.asarray(w, np.float64).T for w in weights]
    if not _is_well_formed(certificate, layers):
        return "its fields do not have the shapes and ranges that a proof needs"
    if certificate.box is not None and certificate.at_least is not None:
        return "a box and a least ‖x‖ exclude each other"
    if certificate.holds != scope(certificate.box, certificate.inputs, certificate.at_least):
        return "its words (`holds`) do not say where it holds"
    if certificate.box is not None and not _slopes_hold(certificate, layers, biases):
        return "its slopes are not those of the units in its box"
    if not proves(certificate, layers):
        return f"its multipliers do not prove the bound {certificate.value:.6g}"
    if not certificate.margin >= rounding_margin(certificate, layers) * (1 - 1e-9):
        return "its margin is too small for weights rounded to float32"
    return ""


def _is_well_formed(certificate: Certificate, layers: Sequence[np.ndarray]) -> bool:
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


def rounding_margin(certificate: Certificate, layers: Sequence[np.ndarray]) -> float:
    """Relative increase of the bound that rounding the weights to float32 can cause.

    δf = A_l D_{l−1} ⋯ D_1 A_1 δx, with the difference quotients of the units in D, |D| ≤ 1. The
    certificate bounds the norm of that product for all such D; if each entry of each A changes by
    a part ε, the product changes by at most (1 + ε)^l − 1 times |A_l| ⋯ |A_1|, entry by entry.
    """
    if certificate.value == 0:
        return 0.0  # zeros stay zeros
    if any(np.any(np.abs(a) > FLOAT32_RANGE[1]) for a in layers):
        return np.inf
    # Below the normal numbers of float32 the rounding is that of the smallest one.
    sizes = [np.where(a == 0, 0.0, np.maximum(np.abs(a), FLOAT32_RANGE[0])) for a in layers]
    even, exponents = _evened(sizes, np.abs(certificate.scale), abs(certificate.gain))
    with np.errstate(divide="ignore", over="ignore"):
        size = np.sum(np.log([np.linalg.norm(a, 2) for a in even])) + np.log(2) * sum(exponents)
        times = np.exp(size - np.log(certificate.value))
    return float(np.expm1(len(layers) * np.log1p(FLOAT32)) * times)


def scaled(layers: Sequence[np.ndarray], scale: ArrayLike, gain: Any) -> list[np.ndarray]:
    """The layers with scale and gain in the first and the last of them."""
    first, *others = layers
    made = [first * np.asarray(scale), *others]
    made[-1] = made[-1] * gain
    return made


def _evened(
    layers: Sequence[np.ndarray], scale: ArrayLike, gain: float
) -> tuple[list[np.ndarray], list[int]]:
    """`scaled` layers divided by powers of two, which bring their largest entries near one.

    The powers are taken off before anything is multiplied: no product that matters underflows.
    """
    first, exponent_of_scale = _split(np.asarray(scale, np.float64))
    last, exponent_of_gain = _split(np.asarray(gain, np.float64))
    even, exponents = map(list, zip(*map(_split, layers), strict=True))
    again, more = map(list, zip(*map(_split, scaled(even, first, last)), strict=True))
    exponents = [a + b for a, b in zip(exponents, more, strict=True)]
    exponents[0] += exponent_of_scale
    exponents[-1] += exponent_of_gain
    return again, exponents


def _split(a: np.ndarray) -> tuple[np.ndarray, int]:
    """Divide by a power of two near the largest entry, exactly; return its exponent as well."""
    exponent = int(np.frexp(np.max(np.abs(a), initial=0.0))[1])
    return np.ldexp(a, -exponent), exponent


# --- the smaller network --------------------------------------------------------------------------


def live_units(layers: Sequence[np.ndarray], slopes: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Which inputs, hidden units and outputs lie on a path from an input to an output.

    A weight of zero is no path, and neither is a unit whose slopes are both zero. Where no output
    is left, the network is constant.
    """
    reached = [np.ones(layers[0].shape[1], bool)]
    for i, a in enumerate(layers):
        moves = np.any(slopes[i] != 0, axis=1) if i < len(slopes) else np.ones(len(a), bool)
        reached.append(np.any((a != 0) & reached[-1], axis=1) & moves)
    live = [reached.pop()]
    for a, here in zip(layers[::-1], reached[::-1], strict=True):
        live.insert(0, here & np.any((a != 0) & live[0][:, None], axis=0))
    return live


def restricted(layers: Sequence[np.ndarray], live: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The layers between live units."""
    return [a[np.ix_(to, of)] for a, (of, to) in zip(layers, pairwise(live), strict=True)]


class _Network(NamedTuple):
    layers: list[np.ndarray]
    multipliers: list[np.ndarray]
    slopes: list[np.ndarray]
    value: np.floating


def _reduced(certificate: Certificate, layers: Sequence[np.ndarray]) -> _Network | None:
    """A smaller network of ordinary size with the same proof, or None where its bound is zero."""
    scale, gain = np.asarray(certificate.scale), certificate.gain
    # A product that underflows is not zero: signs decide what is live.
    signs = scaled([np.sign(a) for a in layers], np.sign(scale), np.sign(gain))
    live = live_units(signs, certificate.slopes)
    if not np.any(live[-1]):
        return None
    kept, exponents = _evened(restricted(layers, live), scale[live[0]], gain)
    kept[0] = narrowed(kept[0])
    kept[-1] = narrowed(kept[-1].T).T
    # A layer divided by 2ᵉ divides the bound by 2ᵉ, and multiplies the multipliers of it and of the
    # later layers by 4ᵉ. No digit changes.
    so_far = np.cumsum(exponents)
    return _Network(
        kept,
        [
            np.ldexp(m[on], 2 * e)
            for m, on, e in zip(certificate.multipliers, live[1:], so_far, strict=False)
        ],
        [s[on] for s, on in zip(certificate.slopes, live[1:], strict=False)],
        np.ldexp(np.float64(certificate.value), -so_far[-1]),
    )


def narrowed(a: np.ndarray) -> np.ndarray:
    """A square R with R Rᵀ ⪰ A Aᵀ in exact arithmetic, where A has more columns than rows.

    Then A = R C with ‖C‖ ≤ 1 (Douglas 1966), so A δx = R u with ‖u‖ ≤ ‖δx‖ for u = C δx: a bound of
    the network with R in the place of A is a bound of the network.
    """
    rows, columns = a.shape
    if columns <= rows:
        return a
    exponents = np.frexp(np.max(np.abs(a), axis=1, keepdims=True))[1]
    even = np.ldexp(a, -exponents)
    gram = even @ even.T
    # Rounding of A itself and of its products (Higham 2002, Eq. 3.5), and of the factor (Theorem
    # 10.3), both at most this part of the trace; doubled.
    part = 2 * (_gamma(columns + 8) + _gamma(rows + 4))
    root = np.linalg.cholesky(gram + part * np.trace(gram) * np.eye(rows))
    return np.ldexp(root, exponents)


def _gamma(n: int) -> float:
    return n * UNIT / (1 - n * UNIT)


# --- the proof ------------------------------------------------------------------------------------


def proves(certificate: Certificate, layers: Sequence[np.ndarray]) -> bool:
    """Whether M is positive semidefinite, for layers A and the certificate's scale and gain."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        try:
            network = _reduced(certificate, layers)
            return network is None or _is_positive(*_proof_matrix(network))
        except np.linalg.LinAlgError:
            return False


def _proof_matrix(network: _Network) -> tuple[np.ndarray, np.ndarray]:
    """M, and a bound on the rounding of each entry."""
    layers = network.layers
    sizes = [layers[0].shape[1], *(len(a) for a in layers)]
    ends = np.cumsum([0, *sizes])
    block = [slice(a, b) for a, b in pairwise(ends)]
    n = int(ends[-1])
    M, error = np.zeros((n, n)), np.zeros((n, n))
    M[block[0], block[0]] = np.eye(sizes[0])
    M[block[-1], block[-1]] = np.eye(sizes[-1]) * (network.value**2 * (1 - 4 * UNIT))
    hidden = zip(layers[:-1], network.multipliers, network.slopes, strict=True)
    for i, (a, m, s) in enumerate(hidden):
        before, after = block[i], block[i + 1]
        M[after, after] = np.diag(m)
        M[after, before] = (-0.5 * (s[:, 0] + s[:, 1]) * m)[:, None] * a
        M[before, after] = M[after, before].T
        product = (s[:, 0] * s[:, 1] * m)[:, None]
        M[before, before] += a.T @ (product * a)
        error[before, before] = (len(a) + 8) * UNIT * (np.abs(a.T) @ (np.abs(product * a)))
    M[block[-1], block[-2]] = layers[-1]
    M[block[-2], block[-1]] = layers[-1].T
    return M, 1.01 * (error + 8 * UNIT * np.abs(M))


def _is_positive(M: np.ndarray, error: np.ndarray) -> bool:
    """Whether every matrix within `error` of M, entry by entry, is positive semidefinite.

    Rigorous in floating point. The Cholesky factor R of a matrix B that was computed in any order
    satisfies RᵀR = B + E with abs(E) ≤ γ/(1 − γ) d dᵀ, where d² is the diagonal of B and
    γ = (n + 2)u/(1 − (n + 2)u) (Higham 2002, Theorem 10.3; Rump 2006, Theorem 2.3). So if B = M − c
    has one, M is positive semidefinite as soon as c is at least γ/(1 − γ) times the trace, plus
    what was rounded while M was made.
    """
    diagonal = np.diagonal(M)
    if not np.all(np.isfinite(M)) or np.any(diagonal < SMALLEST):
        return False
    # Powers of two on both sides change neither the sign nor a digit, and even out the diagonal.
    root = np.ldexp(1.0, -(np.frexp(diagonal)[1] // 2))
    M, error = root[:, None] * M * root, root[:, None] * error * root
    n = len(M)
    gamma = _gamma(n + 2)
    lowered = 1.01 * (gamma / (1 - gamma) * np.trace(M) + np.linalg.norm(error)) + 8 * UNIT
    if not np.isfinite(lowered):
        return False
    factor = np.linalg.cholesky(M - lowered * np.eye(n))  # raises where there is none
    return bool(np.all(np.isfinite(factor)))


def _slopes_hold(
    certificate: Certificate, layers: Sequence[np.ndarray], biases: Sequence[ArrayLike] | None
) -> bool:
    """Whether the slopes contain those that the units have in the box."""
    box, scale = certificate.box, np.asarray(certificate.scale)
    shape = (layers[0].shape[1],)
    if box is None or box.activation not in RULES:
        return False
    if any(np.shape(a) != shape for a in (box.low, box.high, box.shift, box.scale)):
        return False
    if not np.all((scale == 0) | (scale == box.scale)) or not np.all(box.low <= box.high):
        return False
    found = slopes_in_box(box, layers, biases)
    return all(
        bool(np.all((s[:, 0] >= t[:, 0]) & (s[:, 1] <= t[:, 1])))
        for s, t in zip(found, certificate.slopes, strict=True)
    )
