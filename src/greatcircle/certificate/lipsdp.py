"""The LipSDP-Neuron bound: the best bound that one multiplier per hidden unit can prove.

`tight` solves the semidefinite program of `program.py` by our interior-point method, `sdp` by
Clarabel, a general solver, as an independent check.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

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
from greatcircle.certificate.scaled_network import ScaledNetwork, as_scaled_network
from greatcircle.network.activations.builtin import Activation

__all__ = ["Solver", "candidates_in_box", "optimal_multipliers", "sdp", "tight"]

MIN_SLOPE_WIDTH = 1e-4
"""A unit whose slopes differ by less is treated as linear by the solvers."""

SINGLE_THREAD_SIZE = 400
"""Size of M up to which more than one thread costs more than it gains."""

JOINT_UNITS = 200
"""Number of hidden units up to which independent groups are solved together, within a second."""

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

    For a model that clips its inputs to a box it is the bound inside the box, which then holds
    everywhere.

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
    return _best(network, "tight", solve_by_interior_point)


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
    return _best(network, "sdp", solve_by_clarabel)


def _best(network: ScaledNetwork, method: str, solve: Solver) -> Certificate:
    """Return the bound for all inputs by a solver."""
    box = network.box_of_all()
    if box is not None:
        candidates = candidates_in_box(network, network.slopes_in(box), solve)
        return best_certificate(network, method, candidates, box)
    slopes = network.slopes()
    best = Candidate(*optimal_multipliers(network.matrices, slopes, solve), slopes)
    return best_certificate(network, method, [best, *closed_form_candidates(network)])


def candidates_in_box(
    network: ScaledNetwork, slopes: Sequence[np.ndarray], solve: Solver = solve_by_interior_point
) -> Iterator[Candidate]:
    """Compute multipliers for the slopes in a box, and for wider ones."""
    yield Candidate(*optimal_multipliers(network.matrices, slopes, solve), slopes)
    # A unit that is linear in the box needs a large multiplier; a wider slope interval avoids that.
    if any(np.any(s[:, 0] > 0) for s in slopes):
        wider = [np.stack([np.minimum(s[:, 0], 0.0), s[:, 1]], axis=1) for s in slopes]
        yield Candidate(*optimal_multipliers(network.matrices, wider, solve), wider)
    yield from closed_form_candidates(network)


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
    by_layer, square = _solved(layers, slopes, solve)
    with np.errstate(over="ignore"):  # the proof rejects infinity
        by_layer = [m / p / p for m, p in zip(by_layer, products[:-1], strict=True)]
    return fill_disconnected(by_layer, connected), float(products[-1] * np.sqrt(square))


def _solved(
    layers: Sequence[np.ndarray], slopes: Sequence[np.ndarray], solve: Solver
) -> tuple[list[np.ndarray], float]:
    """Return the multipliers of each hidden layer and L², for layers of operator norm one.

    A large network of independent groups of units, such as the mean of several networks, is solved
    group by group. If group m proves ℓ_m with multipliers λ_m, then λ_m ℓ_m / Σℓ together prove
    Σℓ, by the inequality of Cauchy and Schwarz (`docs/certificates.md`).
    """
    groups = independent_groups(layers)
    if len(groups) == 1 or sum(len(a) for a in layers[:-1]) <= JOINT_UNITS:
        return _solved_jointly(layers, slopes, solve)
    bounds, found = [], [np.zeros(len(a)) for a in layers[:-1]]
    for units in groups:
        everything = [np.ones(layers[0].shape[1], bool), *units, np.ones(len(layers[-1]), bool)]
        own = [s[which] for s, which in zip(slopes, units, strict=True)]
        parts, norms = normalise_layers(select_units(layers, everything))
        multipliers, square = _solved_jointly(parts, own, solve)
        bounds.append(float(norms[-1]) * np.sqrt(square))
        for values, which, m, norm in zip(found, units, multipliers, norms[:-1], strict=True):
            values[which] = m / norm**2 * bounds[-1]
    total = float(np.sum(bounds))
    return [values / total for values in found], total**2


def _solved_jointly(
    layers: Sequence[np.ndarray], slopes: Sequence[np.ndarray], solve: Solver
) -> tuple[list[np.ndarray], float]:
    """Return the multipliers of each hidden layer and L², by one semidefinite program."""
    start, square = feasible_start(layers, slopes)
    program = Program.build(layers, slopes, MIN_SLOPE_WIDTH)
    with one_thread() if len(program.P) <= SINGLE_THREAD_SIZE else nullcontext():
        multipliers, square = solve(program, start[program.has_multiplier], square)
        if not np.all(program.has_multiplier):
            multipliers, square = _with_linear_units(
                layers, slopes, program.has_multiplier, multipliers, start, square
            )
    return np.split(multipliers, np.cumsum([len(a) for a in layers[:-1]])[:-1]), square


def independent_groups(matrices: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """Return which units of each hidden layer belong to each group that no weight connects.

    Groups share inputs and outputs only. With one hidden layer there is one group: each unit alone
    would be one, and the sum of their bounds says little.
    """
    inner = matrices[1:-1]
    sizes = [len(a) for a in matrices[:-1]]
    if not inner:
        return [[np.ones(sizes[0], bool)]]
    starts = np.cumsum([0, *sizes])
    edges = [np.argwhere(a != 0) for a in inner]
    ends = np.concatenate([e[:, 0] + starts[i + 1] for i, e in enumerate(edges)])
    begins = np.concatenate([e[:, 1] + starts[i] for i, e in enumerate(edges)])
    graph = coo_array((np.ones(len(ends)), (begins, ends)), shape=(starts[-1], starts[-1]))
    count, label = connected_components(graph, directed=False)
    by_layer = np.split(label, starts[1:-1])
    return [[labels == group for labels in by_layer] for group in range(count)]


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
