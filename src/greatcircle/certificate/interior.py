"""The tightest bound that multipliers can prove, by an interior-point method made for it.

Minimise L² over λ ≥ 0 subject to M(λ, L²) ⪰ 0 (`proof.py`): a semidefinite program, LipSDP-Neuron.
M depends on each multiplier through two vectors only: ∂M/∂λ_k = ½(p qᵀ + q pᵀ), where p = v − αu
and q = v − βu, with v the unit vector of unit k and u its row of the weights. So the equations for
the step of a primal-dual method (Helmberg et al. 1996; Mehrotra's corrector) are products of a few
small matrices, entry by entry, and twenty to thirty iterations reach the optimum to eight digits.

Every iterate has M ≻ 0, so wherever the method ends, what it has is a bound.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve

from greatcircle.activations import Activation
from greatcircle.certificate.closed_form import NOTHING, operator_norms
from greatcircle.certificate.finish import finished
from greatcircle.certificate.proof import Certificate
from greatcircle.certificate.stack import stack
from greatcircle.threads import one_thread

GAP = 1e-7
"""Relative distance of L² to the optimum at which the method ends."""

MAX_ITER = 100

SMALL = 400
"""Up to this size of M more than one thread costs more than it gives."""


def tight(
    weights: Any,
    *,
    biases: Sequence[ArrayLike] | None = None,
    activation: str | Activation | None = None,
    inputs: Sequence[str | int] | None = None,
    at_least: float | None = None,
) -> Certificate:
    """The least bound that one multiplier for each hidden unit can prove.

    Parameters
    ----------
    weights
        A fitted model, or the matrices (fan_in, fan_out) of a network.
    biases
        Biases of the layers, where matrices are given. They do not change a global bound; the
        certificate then speaks for them too.
    activation
        Activation of the hidden layers, where matrices are given; "relu" unless said.
    inputs
        Names or numbers of the inputs that vary, the others being held fixed; None for all.
    at_least
        For a model with `scaling="paper"`, whose bound falls with ‖x‖: the least ‖x‖ for which the
        bound is to hold; 1 unless said.

    Examples
    --------
    >>> from greatcircle import certificate
    >>> weights = [[[1.0, -1.0]], [[1.0], [1.0]]]
    >>> round(certificate.spectral(weights).value, 6), round(certificate.tight(weights).value, 6)
    (2.0, 1.0)
    """
    of = stack(weights, biases, activation, inputs, at_least)
    multipliers, value = optimum(of.matrices, of.slopes())
    return finished(of, "tight", multipliers, value, of.slopes())


def optimum(
    matrices: Sequence[np.ndarray], slopes: Sequence[np.ndarray]
) -> tuple[list[np.ndarray], float]:
    """Multipliers of each hidden layer, and the bound that they prove."""
    norms = operator_norms(matrices)
    units = [a / norm for a, norm in zip(matrices, norms, strict=True)]
    # Only A₁A₁ᵀ and A_lᵀA_l matter: wide inputs and outputs are turned into fewer.
    if units[0].shape[1] > units[0].shape[0]:
        units[0] = np.linalg.qr(units[0].T).R.T
    if units[-1].shape[0] > units[-1].shape[1]:
        units[-1] = np.linalg.qr(units[-1]).R
    before = np.cumprod(norms)
    if len(units) == 1:
        return [], float(before[-1])
    program = _Program.of(units, slopes)
    with one_thread() if len(program.P) <= SMALL else nullcontext():
        multipliers, square = _solve(program, *_start(units, slopes))
    cuts = np.cumsum([len(a) for a in units[:-1]])[:-1]
    layers = np.split(multipliers, cuts)
    return (
        [m / b**2 for m, b in zip(layers, before[:-1], strict=True)],
        float(before[-1] * np.sqrt(square)),
    )


@dataclass(frozen=True)
class _Program:
    """M as a function of the multipliers and of L²."""

    constant: np.ndarray
    P: np.ndarray
    Q: np.ndarray
    """∂M/∂λ_k = ½(p qᵀ + q pᵀ) for the columns p and q."""
    out: slice
    """Block of the outputs, which L² multiplies."""

    @classmethod
    def of(cls, matrices: Sequence[np.ndarray], slopes: Sequence[np.ndarray]) -> "_Program":
        sizes = [matrices[0].shape[1], *(len(a) for a in matrices)]
        ends = np.cumsum([0, *sizes])
        block = [slice(a, b) for a, b in pairwise(ends)]
        n, units = int(ends[-1]), int(ends[-2] - ends[1])
        U, V, first = np.zeros((n, units)), np.zeros((n, units)), int(ends[1])
        for i, a in enumerate(matrices[:-1]):
            columns = slice(int(ends[i + 1]) - first, int(ends[i + 2]) - first)
            U[block[i], columns] = a.T
            V[block[i + 1], columns] = np.eye(len(a))
        constant = np.zeros((n, n))
        constant[block[0], block[0]] = np.eye(sizes[0])
        constant[block[-1], block[-2]] = matrices[-1]
        constant[block[-2], block[-1]] = matrices[-1].T
        low, high = np.vstack(slopes).T
        return cls(constant, V - U * low, V - U * high, block[-1])

    def change(self, multipliers: np.ndarray, square: float) -> np.ndarray:
        """The part of M that is linear in them."""
        made = _symmetric((self.P * multipliers) @ self.Q.T)
        rows = range(self.out.start, self.out.stop)
        made[rows, rows] += square
        return made

    def matrix(self, multipliers: np.ndarray, square: float) -> np.ndarray:
        return self.constant + self.change(multipliers, square)

    def slopes_of(self, form: np.ndarray) -> np.ndarray:
        """⟨form, ∂M/∂λ_k⟩ for each k, and ⟨form, ∂M/∂L²⟩ at the end."""
        return np.append(
            np.sum(self.P * (form @ self.Q), axis=0), np.trace(form[self.out, self.out])
        )

    def step_matrix(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """tr(∂M/∂y_j X ∂M/∂y_k Z), symmetrised, for y = (λ, L²)."""
        P, Q, out = self.P, self.Q, self.out
        XP, XQ, ZP, ZQ = X @ P, X @ Q, Z @ P, Z @ Q
        PXQ, PZQ = P.T @ XQ, P.T @ ZQ
        units = P.shape[1]
        H = np.empty((units + 1, units + 1))
        H[:units, :units] = _symmetric(
            (PXQ.T * PZQ + (Q.T @ XQ) * (P.T @ ZP) + (P.T @ XP) * (Q.T @ ZQ) + PXQ * PZQ.T) / 4
        )
        H[units, :units] = np.sum(XP[out] * ZQ[out] + XQ[out] * ZP[out], axis=0) / 2
        H[:units, units] = H[units, :units]
        H[units, units] = np.sum(X[out, out] * Z[out, out])
        return H


def _start(
    matrices: Sequence[np.ndarray], slopes: Sequence[np.ndarray]
) -> tuple[np.ndarray, float]:
    """Multiples of the identity with M ≻ 0, for any slopes: `closed_form.recursion` made general.

    With s = max |α + β|/2, q = max(−αβ, 0) and μ = λ_max(A Y⁻¹ Aᵀ), half of 1 / (μ(s² + q)) is
    halfway to where a block of M would become singular.
    """
    Y, multipliers = np.eye(matrices[0].shape[1]), []
    for a, bounds in zip(matrices[:-1], slopes, strict=True):
        low, high = bounds.T
        steepest = max(float(np.max(np.abs(low + high))) / 2, 1e-3) ** 2
        steepest += max(float(np.max(-low * high)), 0.0)
        seen = max(float(np.linalg.eigvalsh(a @ np.linalg.solve(Y, a.T))[-1]), NOTHING)
        c = 0.5 / (seen * steepest)
        X = Y + a.T @ ((low * high * c)[:, None] * a)
        B = ((low + high) * c)[:, None] * a
        Y = c * np.eye(len(a)) - 0.25 * B @ np.linalg.solve(X, B.T)
        multipliers.append(np.full(len(a), c))
    last = matrices[-1] @ np.linalg.solve(Y, matrices[-1].T)
    return np.concatenate(multipliers), 2 * max(float(np.linalg.eigvalsh(last)[-1]), NOTHING)


class _Iterate(NamedTuple):
    """Where the method is, or how it moves from there."""

    multipliers: np.ndarray
    square: float
    M: np.ndarray
    X: np.ndarray
    """Dual of M ⪰ 0."""
    w: np.ndarray
    """Dual of λ ≥ 0."""


class _Equations:
    """For steps from one iterate: X M = centre, w λ = centre, and X and w feasible for the dual."""

    def __init__(self, program: _Program, at: _Iterate) -> None:
        self.program, self.at, self.Z = program, at, _inverse(at.M)
        H = program.step_matrix(at.X, self.Z)
        units = np.arange(len(at.multipliers))
        H[units, units] += at.w / at.multipliers
        self.size = 1 / np.sqrt(np.diagonal(H))
        H = H * self.size * self.size[:, None] + 1e-14 * np.eye(len(H))
        self.factor = cho_factor(H)
        self.inwards = program.slopes_of(self.Z) + np.append(1 / at.multipliers, 0)

    def step(self, centre: float, before: _Iterate | None = None) -> _Iterate:
        """The step towards `centre`; an earlier one lets it bend with the path."""
        program, at, Z = self.program, self.at, self.Z
        right = centre * self.inwards
        right[-1] -= 1
        bend, curl = 0.0 * Z, 0.0 * at.w
        if before is not None:
            bend = _symmetric(before.X @ before.M @ Z)
            curl = before.multipliers * before.w / at.multipliers
            right -= program.slopes_of(bend) + np.append(curl, 0)
        y = self.size * cho_solve(self.factor, self.size * right)
        M = program.change(y[:-1], y[-1])
        X = centre * Z - at.X - _symmetric(at.X @ M @ Z) - bend
        w = (centre - at.w * y[:-1]) / at.multipliers - at.w - curl
        return _Iterate(y[:-1], float(y[-1]), M, X, w)


def _solve(program: _Program, multipliers: np.ndarray, square: float) -> tuple[np.ndarray, float]:
    """From M ≻ 0 down to the optimum, a step to look ahead and one to take at a time."""
    M = program.matrix(multipliers, square)
    X = _inverse(M)
    centre = 1 / float(np.trace(X[program.out, program.out]))
    at = best = _Iterate(multipliers, square, M, centre * X, centre / multipliers)
    for _ in range(MAX_ITER):
        gap = _gap(at)
        if gap < GAP * at.square:
            break
        try:
            equations = _Equations(program, at)
        except np.linalg.LinAlgError:
            break  # as far as double precision goes
        ahead = equations.step(0.0)
        left = _gap(_moved(program, at, ahead)) / gap
        centre = max(min(left, 1.0), 0.03) ** 2 * gap / (len(M) + len(multipliers))
        moved = _moved(program, at, equations.step(centre, ahead))
        if not _is_inside(moved.M):
            break
        at = moved
        best = min(best, at, key=lambda iterate: iterate.square)
    return best.multipliers, best.square


def _gap(at: _Iterate) -> float:
    """⟨X, M⟩ + ⟨w, λ⟩, once X and w are feasible the distance of L² to the optimum at most."""
    return float(np.sum(at.X * at.M) + at.w @ at.multipliers)


def _moved(program: _Program, at: _Iterate, step: _Iterate) -> _Iterate:
    """As far along the step as both cones allow, each for itself."""
    far = _reach(at.M, step.M, at.multipliers, step.multipliers)
    wide = _reach(at.X, step.X, at.w, step.w)
    multipliers, square = at.multipliers + far * step.multipliers, at.square + far * step.square
    return _Iterate(
        multipliers,
        square,
        program.matrix(multipliers, square),
        _symmetric(at.X + wide * step.X),
        at.w + wide * step.w,
    )


def _reach(matrix: np.ndarray, change: np.ndarray, positive: np.ndarray, move: np.ndarray) -> float:
    """Nearly the longest part of a step, up to all of it, that leaves nothing negative."""
    falls = move < 0
    part = min(1.0, 0.98 * float(np.min(-positive[falls] / move[falls], initial=np.inf)))
    whole = part == 1.0
    while part > 1e-12 and not _is_inside(matrix + part * change):
        part, whole = 0.8 * part, False
    return part if whole else 0.95 * part


def _is_inside(matrix: np.ndarray) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def _inverse(matrix: np.ndarray) -> np.ndarray:
    factor = np.linalg.inv(np.linalg.cholesky(matrix))
    return factor.T @ factor


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    return (matrix + matrix.T) / 2
