"""A primal-dual interior-point method for the semidefinite program of `program.py`.

The HKM direction (Helmberg et al. 1996) with Mehrotra's predictor and corrector. The equations of a
step are products of a few small matrices, entry by entry, and ten to forty iterations bring L²
within 1e-7 of the optimum. Every iterate has M ≻ 0: wherever the method ends, it has a bound.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from greatcircle.certificate.program import Program, symmetric_part

__all__ = ["solve_by_interior_point"]

GAP_TOLERANCE = 1e-7
"""Relative distance of L² to the optimum at which the method ends."""

MAX_ITER = 100


class _Point(NamedTuple):
    """A primal-dual iterate, or the step from one to the next."""

    multipliers: np.ndarray
    square: float
    M: np.ndarray
    X: np.ndarray
    """Dual variable of M ⪰ 0."""
    w: np.ndarray
    """Dual variable of λ ≥ 0."""

    def gap(self) -> float:
        """Return ⟨X, M⟩ + ⟨w, λ⟩, which bounds the distance to the optimum once X is feasible."""
        return float(np.sum(self.X * self.M) + self.w @ self.multipliers)


def solve_by_interior_point(
    program: Program, multipliers: np.ndarray, square: float
) -> tuple[np.ndarray, float]:
    """Return the best multipliers and L², starting from some with M ≻ 0."""
    M = program.matrix(multipliers, square)
    X = _inverse(M)
    centre = 1 / float(np.trace(X[program.outputs, program.outputs]))
    best = at = _Point(multipliers, square, M, centre * X, centre / multipliers)
    if not len(multipliers):
        return multipliers, program.smallest_square(multipliers)
    for _ in range(MAX_ITER):
        gap = at.gap()
        if gap < GAP_TOLERANCE * at.square:
            break
        try:
            system = _NewtonSystem(program, at)
        except np.linalg.LinAlgError:
            break  # the limit of double precision
        predictor = system.step(0.0)
        remaining = _advance(program, at, predictor).gap() / gap
        centre = max(min(remaining, 1.0), 0.03) ** 2 * gap / (len(M) + len(multipliers))
        following = _advance(program, at, system.step(centre, predictor))
        if not _is_positive_definite(following.M):
            break
        at = following
        if at.square < best.square:  # it may rise while X and w are not feasible yet
            best = at
    return best.multipliers, best.square


class _NewtonSystem:
    """The linear equations of a step: X M = centre, w λ = centre, and X and w feasible."""

    def __init__(self, program: Program, at: _Point) -> None:
        self.program, self.at, self.Z = program, at, _inverse(at.M)
        H = program.schur_matrix(at.X, self.Z)
        units = np.arange(len(at.multipliers))
        H[units, units] += at.w / at.multipliers
        self.size = 1 / np.sqrt(np.diagonal(H))
        H = H * self.size * self.size[:, None] + 1e-14 * np.eye(len(H))
        self.factor = cho_factor(H)
        self.barrier = program.adjoint(self.Z) + np.append(1 / at.multipliers, 0)

    def step(self, centre: float, predictor: _Point | None = None) -> _Point:
        """Return the step towards `centre`; a predictor adds its second-order terms."""
        program, at, Z = self.program, self.at, self.Z
        right = centre * self.barrier
        right[-1] -= 1
        X_correction, w_correction = 0.0 * Z, 0.0 * at.w
        if predictor is not None:
            X_correction = symmetric_part(predictor.X @ predictor.M @ Z)
            w_correction = predictor.multipliers * predictor.w / at.multipliers
            right -= program.adjoint(X_correction) + np.append(w_correction, 0)
        y = self.size * cho_solve(self.factor, self.size * right)
        M = program.linear_part(y[:-1], y[-1])
        X = centre * Z - at.X - symmetric_part(at.X @ M @ Z) - X_correction
        w = (centre - at.w * y[:-1]) / at.multipliers - at.w - w_correction
        return _Point(y[:-1], float(y[-1]), M, X, w)


def _advance(program: Program, at: _Point, step: _Point) -> _Point:
    """Take the step as far as the primal and the dual cone allow, each separately."""
    primal = _step_length(at.M, step.M, at.multipliers, step.multipliers)
    dual = _step_length(at.X, step.X, at.w, step.w)
    multipliers = at.multipliers + primal * step.multipliers
    square = at.square + primal * step.square
    return _Point(
        multipliers,
        square,
        program.matrix(multipliers, square),
        symmetric_part(at.X + dual * step.X),
        at.w + dual * step.w,
    )


def _step_length(
    matrix: np.ndarray, change: np.ndarray, positive: np.ndarray, move: np.ndarray
) -> float:
    """Return nearly the largest step, up to 1, that keeps matrix and vector positive."""
    falls = move < 0
    far = min(1.0, 0.98 * float(np.min(-positive[falls] / move[falls], initial=np.inf)))
    if _is_positive_definite(matrix + far * change):
        return far
    near = 0.0
    for _ in range(40):
        middle = (near + far) / 2
        inside = _is_positive_definite(matrix + middle * change)
        near, far = (middle, far) if inside else (near, middle)
        if far - near < 0.02 * near:
            break
    return 0.95 * near


def _is_positive_definite(matrix: np.ndarray) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """Return the inverse of a positive definite matrix."""
    factor = np.linalg.inv(np.linalg.cholesky(matrix))
    return factor.T @ factor
