"""The LipSDP-Neuron bound: the best bound that one multiplier per hidden unit can prove.

`tight` solves the semidefinite program of `program.py` by our interior-point method, `sdp` by
Clarabel, a general solver, as an independent check.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from greatcircle._runtime.threads import one_thread
from greatcircle.certificate.candidates import Candidate, best_certificate
from greatcircle.certificate.clarabel_solver import solve_by_clarabel
from greatcircle.certificate.closed_form import (
    closed_form_candidates,
    fill_disconnected,
    normalise_layers,
)
from greatcircle.certificate.interior_point import solve_by_interior_point
from greatcircle.certificate.program import Program, feasible_start
from greatcircle.certificate.proof import Certificate, connected_units, select_units
from greatcircle.certificate.scaled_network import as_scaled_network
from greatcircle.network.activations.builtin import Activation

__all__ = ["Solver", "optimal_multipliers", "sdp", "tight"]

MIN_SLOPE_WIDTH = 1e-4
"""A unit whose slopes differ by less is treated as linear by the solvers."""

SINGLE_THREAD_SIZE = 400
"""Size of M up to which more than one thread costs more than it gains."""

Solver = Callable[[Program, np.ndarray, float], tuple[np.ndarray, float]]
"""Minimises L² of a program, from multipliers and L² with M ≻ 0."""


def tight(
    weights: Any,
    *,
    biases: Sequence[ArrayLike] | None = None,
    activation: str | Activation | None = None,
    inputs: Sequence[str | int] | None = None,
    min_input_norm: float | None = None,
    orientation: str | None = None,
) -> Certificate:
    """Return the LipSDP-Neuron bound, the best that one multiplier per hidden unit can prove.

    Parameters
    ----------
    weights
        A fitted model, or the matrices of a network.
    biases
        Biases of the layers, for matrices. They do not change a global bound, but the certificate
        then includes them.
    activation
        Activation of the hidden layers, for matrices; "relu" by default.
    inputs
        Names or numbers of the inputs that vary while the others are held fixed; None for all.
    min_input_norm
        For a model with `scaling="paper"`, whose bound falls with ‖x‖: the smallest ‖x‖ for which
        the bound should hold; 1 by default.
    orientation
        How matrices are stored: "in-out" for (fan_in, fan_out), the default unless all of them are
        square, or "out-in" for (fan_out, fan_in), as in PyTorch.

    Examples
    --------
    >>> from greatcircle import certificate
    >>> weights = [[[1.0, -1.0]], [[1.0], [1.0]]]
    >>> round(certificate.spectral(weights).value, 6), round(certificate.tight(weights).value, 6)
    (2.0, 1.0)
    """
    network = as_scaled_network(weights, biases, activation, inputs, min_input_norm, orientation)
    slopes = network.slopes()
    best = Candidate(*optimal_multipliers(network.matrices, slopes), slopes)
    return best_certificate(network, "tight", [best, *closed_form_candidates(network)])


def sdp(
    weights: Any,
    *,
    biases: Sequence[ArrayLike] | None = None,
    activation: str | Activation | None = None,
    inputs: Sequence[str | int] | None = None,
    min_input_norm: float | None = None,
    orientation: str | None = None,
) -> Certificate:
    """Return the bound of `tight` by Clarabel, an independent solver.

    It is the optimum of the semidefinite program LipSDP-Neuron, not the true Lipschitz constant.
    If weights differ by many orders of magnitude, Clarabel may end far above `tight`. It needs
    `pip install 'greatcircle[sdp]'`. Parameters as for `tight`.
    """
    network = as_scaled_network(weights, biases, activation, inputs, min_input_norm, orientation)
    slopes = network.slopes()
    best = Candidate(*optimal_multipliers(network.matrices, slopes, solve_by_clarabel), slopes)
    return best_certificate(network, "sdp", [best, *closed_form_candidates(network)])


def optimal_multipliers(
    matrices: Sequence[np.ndarray],
    slopes: Sequence[np.ndarray],
    solve: Solver = solve_by_interior_point,
) -> tuple[list[np.ndarray], float]:
    """Return multipliers of each hidden layer, and the bound that they prove.

    Parameters
    ----------
    matrices
        Layers A, with scale and gain.
    slopes
        (α, β) of each hidden unit.
    solve
        Solver of the semidefinite program.
    """
    connected = connected_units(matrices, slopes)
    if not np.any(connected[-1]):
        return [np.zeros(len(a)) for a in matrices[:-1]], 0.0
    layers, products = normalise_layers(select_units(matrices, connected))
    if len(layers) == 1:
        return [], float(products[-1])
    slopes = [s[units] for s, units in zip(slopes, connected[1:-1], strict=True)]
    start, square = feasible_start(layers, slopes)
    program = Program.build(layers, slopes, MIN_SLOPE_WIDTH)
    with one_thread() if len(program.P) <= SINGLE_THREAD_SIZE else nullcontext():
        multipliers, square = solve(program, start[program.has_multiplier], square)
        if not np.all(program.has_multiplier):
            multipliers, square = _with_linear_units(
                layers, slopes, program.has_multiplier, multipliers, start, square
            )
    by_layer = np.split(multipliers, np.cumsum([len(a) for a in layers[:-1]])[:-1])
    with np.errstate(over="ignore"):  # the proof rejects infinity
        by_layer = [m / p / p for m, p in zip(by_layer, products[:-1], strict=True)]
    return fill_disconnected(by_layer, connected), float(products[-1] * np.sqrt(square))


def _with_linear_units(
    layers: Sequence[np.ndarray],
    slopes: Sequence[np.ndarray],
    kept: np.ndarray,
    found: np.ndarray,
    start: np.ndarray,
    square: float,
) -> tuple[np.ndarray, float]:
    """Add multipliers of the linear units, which are not `kept`; return them and L².

    An error e of unit k reaches the outputs as g_k e. So λ_k ≫ ‖g_k‖²/L² makes up for it, if the
    other multipliers have some slack: they get it from a small share of the feasible start.
    """
    reach, sizes = layers[-1], []
    for a, bounds in zip(layers[-2::-1], slopes[::-1], strict=True):
        sizes.append(np.sum(reach**2, axis=0))
        reach = (reach * np.max(np.abs(bounds), axis=1)) @ a
    size = np.concatenate(sizes[::-1]) / square
    size = np.maximum(size, 1e-6 * np.max(size))
    whole = Program.build(layers, slopes)
    best, smallest = start, np.inf
    for factor, share in product(np.logspace(1, 9, 9), (0.0, *np.logspace(-10, -1, 10))):
        multipliers = factor * size
        multipliers[kept] = (1 - share) * found + share * start[kept]
        square = whole.smallest_square(multipliers)
        if square < smallest:
            best, smallest = multipliers, square
    return best, smallest
