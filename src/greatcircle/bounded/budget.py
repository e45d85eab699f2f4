"""Training within a Lipschitz budget, and using all of it.

The network consists of sandwich layers (`sandwich.py`), so its certificate is at most the budget at
every point of their spheres. The run starts from the weights of a free fit and takes many small
steps, each chosen by a random batch: near a bound, kinks of the activations make long steps
useless, and the noise of short ones does no harm. The direction is the mean gradient of each entry
divided by its root mean square (Kingma & Ba 2015). That ratio has no unit, and neither has a point
on a sphere, so the length of the first steps, `FIRST_STEP`, is a fraction of a unit vector and the
same for all data and units. It falls to zero along half a cosine.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greatcircle._runtime.precision import precision
from greatcircle.bounded import sandwich
from greatcircle.bounded.objective import SandwichObjective
from greatcircle.certificate.lipsdp import optimal_multipliers, tight
from greatcircle.geometry.sphere import Tree
from greatcircle.network.network import Network
from greatcircle.objective.problem import Problem
from greatcircle.optimise import stopping
from greatcircle.optimise.descent import Callback, Observer, Result, descend
from greatcircle.optimise.directions import Muon
from greatcircle.optimise.outcome import Outcome
from greatcircle.optimise.random_batches import RandomBatches
from greatcircle.optimise.steps import LinearDecay
from greatcircle.optimise.steps.linear_decay import DISTANCE

__all__ = [
    "MAX_ROUNDS",
    "certified_bound",
    "fit_within",
    "multipliers",
    "shrink_to",
]

MAX_ROUNDS, STEPS = 60, 100
"""Iterations of a complete run, and steps in each."""

BATCH = 256
"""Rows that choose a step."""

NEAREST = 0.1
"""Smallest part of the distance D of a run, where the budget does not bind."""

SLACK = 0.1
"""Fraction of the budget that the start leaves unused, so that its layers can turn anywhere."""

ROUNDING = 1e-6
"""Fraction of the budget that is reserved for the rounding of float32 weights."""


def certified_bound(network: Network, weights: Sequence[np.ndarray], scale: np.ndarray) -> float:
    """Return the certified bound of a network whose inputs are multiplied by `scale`."""
    first, *others = (np.asarray(w, np.float64) for w in network.linear(weights))
    matrices = [first * scale[:, None], *others]
    return tight(matrices, activation=network.activation, orientation="in-out").value


def fit_within(
    problem: Problem,
    weights: Sequence[np.ndarray],
    scale: np.ndarray,
    budget: float,
    *,
    rounds: int = MAX_ROUNDS,
    callback: Callback | None = None,
    observe: Observer | None = None,
) -> Result:
    """Minimise the loss of a network whose certified bound never exceeds the budget.

    Parameters
    ----------
    problem
        Network, loss and data.
    weights
        Where to start.
    scale
        Factor of each input before the first layer: it defines the units of the budget.
    budget
        The Lipschitz bound.
    rounds
        Number of iterations, of `STEPS` steps each. With fewer, the steps shrink faster.
    callback, observe
        As for `descend`; they see the weights of the network.

    Returns
    -------
    Result
        The loss may rise from one record to the next. The weights are the last ones.
    """
    network, dtype = problem.network, problem.dtype
    weights = tuple(np.asarray(w, dtype) for w in weights)
    proof, value = multipliers(network, weights, scale)
    # A start with a smaller bound keeps it: nothing is gained from a larger one.
    goal = (1 - ROUNDING) * min(budget, value)
    start = _last_layer_scaled(weights, min(1.0, (1 - SLACK) * goal / value))
    with precision(dtype):
        # The typical length of an input before it is multiplied by `scale`.
        length = math.sqrt(_mean_square(problem, jnp.asarray(scale, dtype))) or 1.0
        numbers = (jnp.asarray(number, dtype) for number in (scale, goal, length))
        objective = SandwichObjective(problem, *numbers)
        # The nearer the bound is to that of the start, the nearer are the trained weights.
        distance = DISTANCE * max(NEAREST, 1 - goal / value)
        schedule = LinearDecay(jnp.asarray(rounds * STEPS, dtype), jnp.asarray(distance, dtype))

    def of_network(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
        """Return a callback that receives the weights of the network."""
        return function and (lambda record, layers: function(record, _weights(objective, layers)))

    result = descend(
        objective,
        sandwich.layers_of(network, start, proof, scale, goal, length),
        direction=Muon(),
        step=schedule,
        stop=stopping.MaxIter(rounds),
        rows=RandomBatches(objective, BATCH, STEPS),
        callback=of_network(callback),
        observe=of_network(observe),
    )
    found = _weights(objective, result.weights)
    reached = certified_bound(network, found, scale)
    final = _last_layer_grown(problem, found, goal / reached) if reached else found
    outcome, reason = result.outcome, result.reason
    if outcome == Outcome.MAX_ITER and rounds >= MAX_ROUNDS:
        outcome, reason = Outcome.CONVERGED, "finished: step schedule completed"
    loss = float(problem.loss(final))
    return replace(result, weights=final, loss=loss, outcome=outcome, reason=reason)


def shrink_to(
    network: Network, weights: Sequence[np.ndarray], scale: np.ndarray, budget: float
) -> tuple[np.ndarray, ...]:
    """Return the weights with the last layer scaled down as far as the budget requires."""
    value = certified_bound(network, weights, scale)
    if value <= budget:
        return tuple(weights)
    return _last_layer_scaled(weights, (1 - ROUNDING) * budget / value)


def multipliers(
    network: Network, weights: Sequence[np.ndarray], scale: np.ndarray
) -> tuple[list[np.ndarray], float]:
    """Return multipliers for slopes in [0, 1] or [−1, 1], and the bound that they prove.

    It is the smallest such bound. Sandwich layers need one of these two intervals, whatever the
    slopes of the activation.
    """
    matrices = [np.asarray(w, np.float64).T for w in network.linear(weights)]
    matrices[0] = matrices[0] * scale
    least = -1.0 if network.activation.slopes[0] < 0 else 0.0
    return optimal_multipliers(
        matrices, [np.tile([least, 1.0], (len(a), 1)) for a in matrices[:-1]]
    )


def _weights(objective: SandwichObjective, layers: Tree) -> tuple[np.ndarray, ...]:
    """Return the weights of the network on the host."""
    with precision(objective.problem.dtype):
        return jax.device_get(_network_weights(objective, tuple(map(jnp.asarray, layers))))


@jax.jit
def _network_weights(objective: SandwichObjective, layers: Tree) -> Tree:
    return objective.weights(layers)


@jax.jit
def _mean_square(problem: Problem, scale: Array) -> Array:
    return problem.rows.sample_weight @ jnp.sum((problem.inputs / scale) ** 2, axis=1)


def _last_layer_scaled(weights: Sequence[np.ndarray], factor: float) -> tuple[np.ndarray, ...]:
    *others, last = weights
    return (*others, np.asarray(last * factor, last.dtype))


def _last_layer_grown(
    problem: Problem, weights: Sequence[np.ndarray], largest: float
) -> tuple[np.ndarray, ...]:
    """Scale the last layer up to the budget, as far as that lowers the loss."""
    factors = np.linspace(min(1.0, largest), largest, 5)
    candidates = [_last_layer_scaled(weights, factor) for factor in factors]
    return min(candidates, key=lambda w: float(problem.loss(w)))
