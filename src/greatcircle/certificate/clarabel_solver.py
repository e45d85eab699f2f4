"""Clarabel, a general solver, for the semidefinite program of `program.py`.

M is sparse: only neighbouring layers share entries, and Clarabel decomposes it along the chordal
graph of its entries, one block for each pair of layers (Vandenberghe & Andersen 2015). Its solution
is feasible up to a tolerance only. So only its multipliers are used, moved towards feasible ones by
as little as a proof needs.
"""

import numpy as np
from scipy import sparse

from greatcircle._runtime.extras import require
from greatcircle.certificate.program import Program

__all__ = ["solve_by_clarabel"]


def solve_by_clarabel(
    program: Program, start: np.ndarray, square: float
) -> tuple[np.ndarray, float]:
    """Return the best multipliers and L²; those of the start have M ≻ 0."""
    found = np.maximum(_clarabel_solution(program), 0.0)
    shares = np.append(np.logspace(-12, -1, 23), 1.0)
    mixtures = [(1 - share) * found + share * start for share in shares]
    squares = [program.smallest_square(m) for m in mixtures]
    best = int(np.argmin(squares))
    return mixtures[best], squares[best]


def _clarabel_solution(program: Program) -> np.ndarray:
    """Return the multipliers that Clarabel finds."""
    clarabel = require("clarabel", "sdp", "certificate.sdp")
    n, count = program.P.shape
    # M ⪰ 0 as its upper triangle, column by column, off-diagonal entries times √2.
    rows, columns = np.triu_indices(n)
    order = np.lexsort((rows, columns))
    rows, columns = rows[order], columns[order]
    weight = np.where(rows == columns, 1.0, np.sqrt(2.0))
    derivatives = [
        sparse.csc_matrix(weight * (p[rows] * q[columns] + q[rows] * p[columns]) / 2).T
        for p, q in zip(program.P.T, program.Q.T, strict=True)
    ]
    by_square = ((rows == columns) & (rows >= program.outputs.start)).astype(float)
    jacobian = sparse.hstack([*derivatives, sparse.csc_matrix(by_square).T])
    nonnegative = sparse.eye(count, count + 1)
    A = sparse.csc_matrix(sparse.vstack([-jacobian, -nonnegative]))
    b = np.concatenate([weight * program.constant[rows, columns], np.zeros(count)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.chordal_decomposition_enable = True
    cones = [clarabel.PSDTriangleConeT(n), clarabel.NonnegativeConeT(count)]
    quadratic = sparse.csc_matrix((count + 1, count + 1))
    objective = np.append(np.zeros(count), 1.0)
    solver = clarabel.DefaultSolver(quadratic, objective, A, b, cones, settings)
    return np.asarray(solver.solve().x)[:count]
