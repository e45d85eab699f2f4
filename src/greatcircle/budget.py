"""Training within a Lipschitz budget, and using all of it.

The descent is that of `Bounded`, a network divided by its own certificate, whose bound is the
budget at every iteration. It starts from the weights of a free fit. From round to round the best
multipliers there are (`certificate.interior`) replace those that the descent has come by, so that
the certificate stays tight. In the end the divisor becomes part of the last layer.
"""

from collections.abc import Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from greatcircle import stopping
from greatcircle.bounded import Bounded
from greatcircle.certificate.interior import optimum
from greatcircle.descent import Callback, Result, descend
from greatcircle.directions import GaussNewton
from greatcircle.network import Network
from greatcircle.precision import precision
from greatcircle.problem import Problem
from greatcircle.record import Record

ROUND = 10
"""Iterations with the same multipliers to start from."""

ROWS = 2000
"""So many rows are enough for the products of Gauss-Newton."""

SHARES = (0.1, 0.95)
"""Shares that `gains.log_certificate` gets: it needs them below one."""

ROUNDING = 1e-6
"""Part of the budget that is left for the rounding of float32 weights."""


def certified(network: Network, weights: Sequence[np.ndarray], scale: np.ndarray) -> float:
    """The least bound that multipliers prove, for inputs that are multiplied by `scale`."""
    return best_multipliers(network, weights, scale)[2]


def descend_within(
    problem: Problem,
    weights: Sequence[np.ndarray],
    scale: np.ndarray,
    budget: float,
    *,
    stop: stopping.Rule,
    callback: Callback | None = None,
) -> Result:
    """Minimise the loss of a network whose certified bound never exceeds the budget.

    Parameters
    ----------
    problem
        Network, loss and data.
    weights
        Where to start.
    scale
        What each input is multiplied by before the first layer: it makes the units of the budget.
    budget
        The Lipschitz bound.
    stop, callback
        As for `descend`; the callback gets weights with the divisor in the last layer.
    """
    network, depth = problem.network, problem.network.depth
    direction = GaussNewton(share=min(1.0, ROWS / len(problem.inputs)))
    goal = (1 - ROUNDING) * budget
    records: list[Record] = []
    parts: list[Result] = []
    while True:
        roots, shares, _ = best_multipliers(network, weights, scale)
        bounded = Bounded(
            problem,
            np.asarray(goal, problem.dtype),
            np.asarray(scale, problem.dtype),
            shares,
        )

        def told(record: Record, w: Sequence[np.ndarray], bounded: Bounded = bounded) -> bool:
            return bool(callback and callback(record, _divided(bounded, w)))

        part = descend(
            bounded,
            (*weights, *roots),
            direction=direction,
            stop=stopping.MaxIter(len(records) + ROUND) | stop,
            callback=told,
            records=records,
        )
        parts.append(part)
        gained = len(part.records) - len(records)
        records, weights = part.records, part.weights[:depth]
        over = part.outcome != "max_iter" or stop.fired(records) is not None or not gained
        if over:
            break
    divided = _divided(bounded, part.weights)
    final = _grown(problem, divided, goal / certified(network, divided, scale))
    evaluations = parts[0].evaluations
    for other in parts[1:]:
        evaluations = evaluations.plus(other.evaluations)
    return replace(
        part,
        weights=final,
        loss=float(problem.loss(final)),
        initial_loss=parts[0].initial_loss,
        evaluations=evaluations,
        setup_seconds=sum(p.setup_seconds for p in parts),
    )


def shrunk(
    network: Network, weights: Sequence[np.ndarray], scale: np.ndarray, budget: float
) -> tuple[np.ndarray, ...]:
    """Weights with the last layer as much smaller as the budget asks for, or as they are."""
    value = certified(network, weights, scale)
    if value <= budget:
        return tuple(weights)
    return _scaled(weights, (1 - ROUNDING) * budget / value)


def best_multipliers(
    network: Network, weights: Sequence[np.ndarray], scale: np.ndarray
) -> tuple[tuple[np.ndarray, ...], np.ndarray, float]:
    """Roots m_i and shares s_i of the best certificate there is, and its value."""
    matrices = [np.asarray(w, np.float64).T for w in network.linear(weights)]
    matrices[0] = matrices[0] * scale
    least = -1.0 if network.activation.slopes[0] < 0 else 0.0
    slopes = [np.tile([least, 1.0], (len(a), 1)) for a in matrices[:-1]]
    multipliers, value = optimum(matrices, slopes)
    roots, shares, X = [], [], np.eye(len(scale))
    for a, m in zip(matrices[:-1], multipliers, strict=True):
        size = np.sqrt(m)
        roots.append((size / np.sqrt(np.mean(m)))[None].astype(weights[0].dtype))
        if least == 0:
            seen = a @ np.linalg.solve(X, a.T)
            shares.append(np.linalg.eigvalsh(size[:, None] * seen * size)[-1] / 4)
            X = np.diag(m) - 0.25 * m[:, None] * seen * m
    return tuple(roots), np.clip(shares, *SHARES).astype(weights[0].dtype), value


def _divided(bounded: Bounded, weights: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The matrices of a `Bounded`, with its divisor in the last one."""
    with precision(bounded.dtype):
        factor = float(jnp.exp(bounded.log_scale(tuple(map(jnp.asarray, weights)))))
    return _scaled(weights[: bounded.problem.network.depth], factor)


def _scaled(weights: Sequence[np.ndarray], factor: float) -> tuple[np.ndarray, ...]:
    *others, last = weights
    return (*others, np.asarray(last * factor, last.dtype))


def _grown(problem: Problem, weights: Sequence[np.ndarray], most: float) -> tuple[np.ndarray, ...]:
    """With what the smooth certificate has left of the budget, as far as it lowers the loss."""
    candidates = [_scaled(weights, factor) for factor in np.linspace(min(1.0, most), most, 5)]
    return min(candidates, key=lambda w: float(problem.loss(w)))
