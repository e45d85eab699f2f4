"""The tightest bound once more, by a general solver for semidefinite programs.

Minimise L² over λ ≥ 0 subject to M(λ, L²) ⪰ 0, the program of `interior.py`, by Clarabel. M is
sparse: only neighbouring layers share entries, and Clarabel decomposes it along the chordal graph
of its entries, one block for each pair of layers (Vandenberghe & Andersen 2015). What it returns is
feasible up to a tolerance only. So nothing but its multipliers is used, moved inwards by as little
as a proof needs.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from greatcircle.certificate.closed_form import closed_forms
from greatcircle.certificate.finish import Candidate, finished
from greatcircle.certificate.interior import Program, optimum
from greatcircle.certificate.proof import Certificate
from greatcircle.certificate.stack import stack
from greatcircle.network.activations.builtin import Activation


def exact(
    weights: Any,
    *,
    biases: Sequence[ArrayLike] | None = None,
    activation: str | Activation | None = None,
    inputs: Sequence[str | int] | None = None,
    at_least: float | None = None,
    orientation: str | None = None,
) -> Certificate:
    """The bound of `tight` by Clarabel, an independent solver: `pip install 'greatcircle[sdp]'`.

    It is the optimum over all multipliers (LipSDP-Neuron), not the true Lipschitz constant. Where
    weights differ by many orders of magnitude, Clarabel may end far above `tight`.
    Parameters as for `tight`.
    """
    of = stack(weights, biases, activation, inputs, at_least, orientation)
    best = Candidate(*optimum(of.matrices, of.slopes(), _by_clarabel), of.slopes())
    return finished(of, "exact", [best, *closed_forms(of)])


def _by_clarabel(program: Program, inside: np.ndarray, square: float) -> tuple[np.ndarray, float]:
    return _inwards(program, _solved(program), inside)


def _inwards(program: Program, found: np.ndarray, inside: np.ndarray) -> tuple[np.ndarray, float]:
    """The least bound on the way from the solver's multipliers to some that surely prove one."""
    shares = np.append(np.logspace(-12, -1, 23), 1.0)
    mixed = [(1 - share) * np.maximum(found, 0.0) + share * inside for share in shares]
    squares = [program.least(m) for m in mixed]
    best = int(np.argmin(squares))
    return mixed[best], squares[best]


def _solved(program: Program) -> np.ndarray:
    """The multipliers that Clarabel finds."""
    try:
        clarabel: Any = import_module("clarabel")
    except ImportError:
        raise ImportError(
            "certificate.exact needs the package clarabel: pip install 'greatcircle[sdp]', or use "
            "certificate.tight, which finds the same bound"
        ) from None
    n, count = program.P.shape
    # M ⪰ 0 as its upper triangle, column by column, entries beside the diagonal times √2.
    rows, columns = np.triu_indices(n)
    order = np.lexsort((rows, columns))
    rows, columns = rows[order], columns[order]
    weight = np.where(rows == columns, 1.0, np.sqrt(2.0))
    parts = [
        sparse.csc_matrix(weight * (p[rows] * q[columns] + q[rows] * p[columns]) / 2).T
        for p, q in zip(program.P.T, program.Q.T, strict=True)
    ]
    last = ((rows == columns) & (rows >= program.out.start)).astype(float)
    derivative = sparse.hstack([*parts, sparse.csc_matrix(last).T])
    positive = sparse.eye(count, count + 1)
    A = sparse.csc_matrix(sparse.vstack([-derivative, -positive]))
    b = np.concatenate([weight * program.constant[rows, columns], np.zeros(count)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.chordal_decomposition_enable = True
    cones = [clarabel.PSDTriangleConeT(n), clarabel.NonnegativeConeT(count)]
    nothing = sparse.csc_matrix((count + 1, count + 1))
    objective = np.append(np.zeros(count), 1.0)
    solver = clarabel.DefaultSolver(nothing, objective, A, b, cones, settings)
    return np.asarray(solver.solve().x)[:count]
