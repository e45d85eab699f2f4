"""The tightest bound that multipliers can prove, by an interior-point method made for it.

Minimise L² over λ ≥ 0 subject to M(λ, L²) ⪰ 0 (`proof.py`): a semidefinite program, LipSDP-Neuron.
M depends on each multiplier through two vectors only: ∂M/∂λ_k = ½(p qᵀ + q pᵀ), where p = v − αu
and q = v − βu, with v the unit vector of unit k and u its row of the weights. So the equations for
the step of a primal-dual method (Helmberg et al. 1996; Mehrotra's corrector) are products of a few
small matrices, entry by entry, and ten to forty iterations bring L² within 1e-7 of the optimum.

Every iterate has M ≻ 0, so wherever the method ends, what it has is a bound.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from greatcircle._runtime.threads import one_thread
from greatcircle.certificate.closed_form import closed_forms, everywhere, normalised
from greatcircle.certificate.finish import Candidate, finished
from greatcircle.certificate.proof import UNIT, Certificate, live_units, restricted
from greatcircle.certificate.stack import stack
from greatcircle.network.activations.builtin import Activation

NOTHING = 1e-30
"""Least square of a bound of normalised layers: the search divides by it."""

GAP = 1e-7
"""Relative distance of L² to the optimum at which the method ends."""

MAX_ITER = 100

WIDTH = 1e-4
"""A unit whose slopes differ by less is linear, as far as the search is concerned."""

SMALL = 400
"""Up to this size of M more than one thread costs more than it gives."""


Solver = Callable[["Program", np.ndarray, float], tuple[np.ndarray, float]]


def tight(
    weights: Any,
    *,
    biases: Sequence[ArrayLike] | None = None,
    activation: str | Activation | None = None,
    inputs: Sequence[str | int] | None = None,
    at_least: float | None = None,
    orientation: str | None = None,
) -> Certificate:
    """The LipSDP-Neuron bound: the least that one multiplier per hidden unit can prove.

    Parameters
    ----------
    weights
        A fitted model, or the matrices of a network.
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
    orientation
        How matrices are stored: "in-out" for (fan_in, fan_out), which is assumed unless all of them
        are square, or "out-in" for (fan_out, fan_in), as in PyTorch.

    Examples
    --------
    >>> from greatcircle import certificate
    >>> weights = [[[1.0, -1.0]], [[1.0], [1.0]]]
    >>> round(certificate.spectral(weights).value, 6), round(certificate.tight(weights).value, 6)
    (2.0, 1.0)
    """
    of = stack(weights, biases, activation, inputs, at_least, orientation)
    best = Candidate(*optimum(of.matrices, of.slopes()), of.slopes())
    return finished(of, "tight", [best, *closed_forms(of)])


def optimum(
    matrices: Sequence[np.ndarray],
    slopes: Sequence[np.ndarray],
    solve: "Solver | None" = None,
) -> tuple[list[np.ndarray], float]:
    """Multipliers of each hidden layer, and the bound that they prove.

    Parameters
    ----------
    matrices
        Layers A, with scale and gain.
    slopes
        (α, β) of each hidden unit.
    solve
        Minimises L² from given multipliers with M ≻ 0; the interior-point method unless said.
    """
    solve = solve or _solve
    live = live_units(matrices, slopes)
    if not np.any(live[-1]):
        return [np.zeros(len(a)) for a in matrices[:-1]], 0.0
    units, before = normalised(restricted(matrices, live))
    if len(units) == 1:
        return [], float(before[-1])
    slopes = [s[on] for s, on in zip(slopes, live[1:-1], strict=True)]
    first, square = start(units, slopes)
    program = Program.of(units, slopes, WIDTH)
    with one_thread() if len(program.P) <= SMALL else nullcontext():
        kept, square = solve(program, first[program.kept], square)
        multipliers, square = with_linear_units(units, slopes, program.kept, kept, first, square)
    found = everywhere(layered(units, before, multipliers), live)
    return found, float(before[-1] * np.sqrt(square))


def layered(
    units: Sequence[np.ndarray], before: np.ndarray, multipliers: np.ndarray
) -> list[np.ndarray]:
    """Multipliers of normalised layers as those of the layers themselves."""
    layers = np.split(multipliers, np.cumsum([len(a) for a in units[:-1]])[:-1])
    with np.errstate(over="ignore"):  # what is no number proves nothing, and `finished` says so
        return [m / b / b for m, b in zip(layers, before[:-1], strict=True)]


def with_linear_units(
    units: Sequence[np.ndarray],
    slopes: Sequence[np.ndarray],
    kept: np.ndarray,
    found: np.ndarray,
    inside: np.ndarray,
    square: float,
) -> tuple[np.ndarray, float]:
    """Large multipliers for the units that the program left out, and the bound with them.

    An error e of unit k reaches the outputs as g_k e, so λ_k ≫ ‖g_k‖²/L² leaves no room for one,
    if the others are a little inside of what they prove: a share of `inside` moves them there.
    """
    if np.all(kept):
        return found, square
    reach, sizes = units[-1], []
    for a, bounds in zip(units[-2::-1], slopes[::-1], strict=True):
        sizes.append(np.sum(reach**2, axis=0))
        reach = (reach * np.max(np.abs(bounds), axis=1)) @ a
    size = np.concatenate(sizes[::-1]) / square
    size = np.maximum(size, 1e-6 * np.max(size))
    whole = Program.of(units, slopes, -1.0)
    best, least = inside, np.inf
    for large, share in product(np.logspace(1, 9, 9), (0.0, *np.logspace(-10, -1, 10))):
        multipliers = large * size
        multipliers[kept] = (1 - share) * found + share * inside[kept]
        square = whole.least(multipliers)
        if square < least:
            best, least = multipliers, square
    return best, least


@dataclass(frozen=True)
class Program:
    """M as a function of the multipliers and of L²."""

    constant: np.ndarray
    P: np.ndarray
    Q: np.ndarray
    """∂M/∂λ_k = ½(p qᵀ + q pᵀ) for the columns p and q."""
    out: slice
    """Block of the outputs, which L² multiplies."""
    kept: np.ndarray
    """Which hidden units have a multiplier."""

    @classmethod
    def of(
        cls, matrices: Sequence[np.ndarray], slopes: Sequence[np.ndarray], width: float
    ) -> "Program":
        """Units whose slopes are no wider than `width` are linear: h = ½(α + β) z needs no λ."""
        low, high = np.vstack(slopes).T
        kept = high - low > width
        first, last = matrices[0].shape[1], len(matrices[-1])
        n = first + int(np.sum(kept)) + last
        place = first + np.cumsum(kept) - 1
        rows, seen, done = np.eye(first, n), [], 0
        for a in matrices[:-1]:
            here = slice(done, done + len(a))
            z = a @ rows
            rows = ((low + high)[here] / 2)[:, None] * z
            rows[kept[here]] = np.eye(n)[place[here][kept[here]]]
            seen.append(z[kept[here]])
            done += len(a)
        U, V = np.vstack(seen).T, np.eye(n)[:, first : n - last]
        out = slice(n - last, n)
        constant = np.zeros((n, n))
        constant[:first, :first] = np.eye(first)
        constant[out] = matrices[-1] @ rows
        constant[:, out] = constant[out].T
        return cls(constant, V - U * low[kept], V - U * high[kept], out, kept)

    def least(self, multipliers: np.ndarray) -> float:
        """The least L² with M ⪰ 0 and room for its check; infinity where there is none."""
        M = self.matrix(multipliers, 0.0)
        inner = slice(0, self.out.start)
        room = 4 * (len(M) + 20) ** 2 * UNIT
        try:
            factor = np.linalg.cholesky(M[inner, inner] - room * np.diag(np.diagonal(M)[inner]))
        except np.linalg.LinAlgError:
            return np.inf
        half = solve_triangular(factor, M[inner, self.out], lower=True)
        return max(float(np.linalg.norm(half, 2)) ** 2 * (1 + room), NOTHING)

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


def start(matrices: Sequence[np.ndarray], slopes: Sequence[np.ndarray]) -> tuple[np.ndarray, float]:
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

    def __init__(self, program: Program, at: _Iterate) -> None:
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


def _solve(program: Program, multipliers: np.ndarray, square: float) -> tuple[np.ndarray, float]:
    """From M ≻ 0 down to the optimum, a step to look ahead and one to take at a time."""
    M = program.matrix(multipliers, square)
    X = _inverse(M)
    centre = 1 / float(np.trace(X[program.out, program.out]))
    best = at = _Iterate(multipliers, square, M, centre * X, centre / multipliers)
    if not len(multipliers):
        return multipliers, program.least(multipliers)
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
        if at.square < best.square:  # it may rise while X and w are not feasible yet
            best = at
    return best.multipliers, best.square


def _gap(at: _Iterate) -> float:
    """⟨X, M⟩ + ⟨w, λ⟩, once X and w are feasible the distance of L² to the optimum at most."""
    return float(np.sum(at.X * at.M) + at.w @ at.multipliers)


def _moved(program: Program, at: _Iterate, step: _Iterate) -> _Iterate:
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
    far = min(1.0, 0.98 * float(np.min(-positive[falls] / move[falls], initial=np.inf)))
    if _is_inside(matrix + far * change):
        return far
    near = 0.0
    for _ in range(40):
        part = (near + far) / 2
        near, far = (part, far) if _is_inside(matrix + part * change) else (near, part)
        if far - near < 0.02 * near:
            break
    return 0.95 * near


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
