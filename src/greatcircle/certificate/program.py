"""The semidefinite program LipSDP-Neuron: minimise L² over λ ≥ 0 subject to M(λ, L²) ⪰ 0.

M is the matrix of `proof.py` for layers of operator norm one. It depends on each multiplier through
two vectors: ∂M/∂λ_k = ½(p qᵀ + q pᵀ) with p = v − αu and q = v − βu, where v is the unit vector of
unit k and u its row of the weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from greatcircle.certificate.box import UNIT_ROUNDOFF

__all__ = ["Program", "feasible_start", "symmetric_part"]

MIN_SQUARE = 1e-30
"""Smallest L² of normalised layers: solvers divide by it."""


@dataclass(frozen=True)
class Program:
    """M as a function of the multipliers and of L²."""

    constant: np.ndarray
    """M for λ = 0 and L² = 0."""
    P: np.ndarray
    Q: np.ndarray
    """Columns p and q with ∂M/∂λ_k = ½(p qᵀ + q pᵀ)."""
    outputs: slice
    """Block of the outputs, which L² multiplies."""
    has_multiplier: np.ndarray
    """Which hidden units have a multiplier; the others are linear."""

    @classmethod
    def build(
        cls,
        matrices: Sequence[np.ndarray],
        slopes: Sequence[np.ndarray],
        min_slope_width: float = -1.0,
    ) -> "Program":
        """Form the program of a network.

        A unit with β − α at most `min_slope_width` is linear, h = ½(α + β) z: it is substituted
        into the later layers and needs no multiplier.
        """
        low, high = np.vstack(slopes).T
        kept = high - low > min_slope_width
        first, last = matrices[0].shape[1], len(matrices[-1])
        n = first + int(np.sum(kept)) + last
        column = first + np.cumsum(kept) - 1
        h, z_rows, done = np.eye(first, n), [], 0
        for a in matrices[:-1]:
            layer = slice(done, done + len(a))
            z = a @ h
            h = ((low + high)[layer] / 2)[:, None] * z
            h[kept[layer]] = np.eye(n)[column[layer][kept[layer]]]
            z_rows.append(z[kept[layer]])
            done += len(a)
        U, V = np.vstack(z_rows).T, np.eye(n)[:, first : n - last]
        outputs = slice(n - last, n)
        constant = np.zeros((n, n))
        constant[:first, :first] = np.eye(first)
        constant[outputs] = matrices[-1] @ h
        constant[:, outputs] = constant[outputs].T
        return cls(constant, V - U * low[kept], V - U * high[kept], outputs, kept)

    def linear_part(self, multipliers: np.ndarray, square: float) -> np.ndarray:
        """Return M − `constant`, which is linear in the multipliers and L²."""
        change = symmetric_part((self.P * multipliers) @ self.Q.T)
        diagonal = range(self.outputs.start, self.outputs.stop)
        change[diagonal, diagonal] += square
        return change

    def matrix(self, multipliers: np.ndarray, square: float) -> np.ndarray:
        """Return M."""
        return self.constant + self.linear_part(multipliers, square)

    def smallest_square(self, multipliers: np.ndarray) -> float:
        """Return the smallest L² with M ⪰ 0 and slack for its check; infinity if there is none."""
        M = self.matrix(multipliers, 0.0)
        inner = slice(0, self.outputs.start)
        slack = 4 * (len(M) + 20) ** 2 * UNIT_ROUNDOFF
        try:
            factor = np.linalg.cholesky(M[inner, inner] - slack * np.diag(np.diagonal(M)[inner]))
        except np.linalg.LinAlgError:
            return np.inf
        half = solve_triangular(factor, M[inner, self.outputs], lower=True)
        return max(float(np.linalg.norm(half, 2)) ** 2 * (1 + slack), MIN_SQUARE)

    def adjoint(self, form: np.ndarray) -> np.ndarray:
        """Return ⟨form, ∂M/∂λ_k⟩ for each k, and ⟨form, ∂M/∂L²⟩ at the end."""
        trace = np.trace(form[self.outputs, self.outputs])
        return np.append(np.sum(self.P * (form @ self.Q), axis=0), trace)

    def schur_matrix(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """Return tr(∂M/∂y_j X ∂M/∂y_k Z), symmetrised, for y = (λ, L²)."""
        P, Q, outputs = self.P, self.Q, self.outputs
        XP, XQ, ZP, ZQ = X @ P, X @ Q, Z @ P, Z @ Q
        PXQ, PZQ = P.T @ XQ, P.T @ ZQ
        units = P.shape[1]
        H = np.empty((units + 1, units + 1))
        H[:units, :units] = symmetric_part(
            (PXQ.T * PZQ + (Q.T @ XQ) * (P.T @ ZP) + (P.T @ XP) * (Q.T @ ZQ) + PXQ * PZQ.T) / 4
        )
        H[units, :units] = np.sum(XP[outputs] * ZQ[outputs] + XQ[outputs] * ZP[outputs], axis=0) / 2
        H[:units, units] = H[units, :units]
        H[units, units] = np.sum(X[outputs, outputs] * Z[outputs, outputs])
        return H


def feasible_start(
    matrices: Sequence[np.ndarray], slopes: Sequence[np.ndarray]
) -> tuple[np.ndarray, float]:
    """Return multiples of the identity and L² with M ≻ 0, for any slopes.

    It generalises ECLipsE-Fast. With s = max |α + β|/2, q = max(−αβ, 0) and μ = λ_max(A Y⁻¹ Aᵀ),
    half of 1 / (μ(s² + q)) is halfway to where a block of M would become singular.
    """
    Y, multipliers = np.eye(matrices[0].shape[1]), []
    for a, bounds in zip(matrices[:-1], slopes, strict=True):
        low, high = bounds.T
        steepest = max(float(np.max(np.abs(low + high))) / 2, 1e-3) ** 2
        steepest += max(float(np.max(-low * high)), 0.0)
        largest = max(float(np.linalg.eigvalsh(a @ np.linalg.solve(Y, a.T))[-1]), MIN_SQUARE)
        c = 0.5 / (largest * steepest)
        X = Y + a.T @ ((low * high * c)[:, None] * a)
        B = ((low + high) * c)[:, None] * a
        Y = c * np.eye(len(a)) - 0.25 * B @ np.linalg.solve(X, B.T)
        multipliers.append(np.full(len(a), c))
    last = matrices[-1] @ np.linalg.solve(Y, matrices[-1].T)
    return np.concatenate(multipliers), 2 * max(float(np.linalg.eigvalsh(last)[-1]), MIN_SQUARE)


def symmetric_part(matrix: np.ndarray) -> np.ndarray:
    """Return ½(A + Aᵀ)."""
    return (matrix + matrix.T) / 2
