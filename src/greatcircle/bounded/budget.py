"""Training within a Lipschitz budget, and using all of it.

The network is made of frames (`frames.py`), so that its certificate is the budget wherever on their
spheres they are. The descent starts from the weights of a free fit and takes many small turns, each
chosen by a batch: near a bound the kinks of the activations keep long turns from paying, and the
noise of short ones does no harm. An entry's turn is its gradient's running mean over the root of
its running mean square (Kingma and Ba 2015). That ratio has no unit and neither has a frame, so the
one size there is, `FIRST`, is a part of a unit vector's length, and not a learning rate: it is the
same whatever the data and the units. It falls to zero along half a cosine.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greatcircle._runtime.precision import precision
from greatcircle.bounded import sandwich as frames
from greatcircle.certificate.lipsdp import optimal_multipliers, tight
from greatcircle.geometry import sphere
from greatcircle.network.network import Network, Weights
from greatcircle.objective import losses
from greatcircle.objective.objective import value_of
from greatcircle.objective.problem import Problem
from greatcircle.optimise.loop import Callback, Result
from greatcircle.optimise.record import Evaluations, Record

ROUNDS, TURNS = 60, 100
"""A round of so many turns is one iteration."""

BATCH = 256
"""Rows that choose a turn."""

FIRST = 0.01
"""How far an entry of a unit vector moves in the first turns of a descent that has far to go."""

SHORT = 0.1
"""Part of it for a descent that has next to nowhere to go."""

FADING = 0.9, 0.999
"""What the running means of gradients and of their squares keep of themselves each turn."""

FAINT, TINY = 1e-3, 1e-30
"""Root mean square of an entry's gradient, beside its layer's, below which it moves less."""

SLACK = 0.1
"""Part of the budget that the start leaves, for frames that can be turned to all sides."""

ROUNDING = 1e-6
"""Part of the budget that is left for the rounding of float32 weights."""


def certified(network: Network, weights: Sequence[np.ndarray], scale: np.ndarray) -> float:
    """The certified bound of a network whose inputs are multiplied by `scale`."""
    first, *others = (np.asarray(w, np.float64) for w in network.linear(weights))
    matrices = [first * scale[:, None], *others]
    return tight(matrices, activation=network.activation, orientation="in-out").value


def descend_within(
    problem: Problem,
    weights: Sequence[np.ndarray],
    scale: np.ndarray,
    budget: float,
    *,
    rounds: int = ROUNDS,
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
    rounds
        Iterations, each of `TURNS` turns. With fewer, the turns become smaller sooner.
    callback
        As for `descend`.

    Returns
    -------
    Result
        The loss may rise from one record to the next. The weights are the last ones.
    """
    network, dtype, unit = problem.network, problem.dtype, float(problem.unit)
    multipliers, value = best_multipliers(network, weights, scale)
    # A start with a smaller bound keeps it: there is nothing to be gained from a larger one.
    goal = (1 - ROUNDING) * min(budget, value)
    start = _scaled(weights, min(1.0, (1 - SLACK) * goal / value))
    first = FIRST * max(SHORT, 1 - goal / value)
    with precision(dtype):
        # The usual length of a row, before it is multiplied by `scale`.
        length = math.sqrt(_mean_square(problem, jnp.asarray(scale, dtype))) or 1.0
    begun = frames.frames_of(network, start, multipliers, scale, goal, length)
    records: list[Record] = []
    ending = "converged", "the angle has come down to zero"
    if rounds < ROUNDS:
        ending = "max_iter", f"the most iterations allowed, {rounds}"
    spent = Evaluations(forward=1)
    once = TURNS * min(1.0, BATCH / problem.count)
    cost = Evaluations(forward=once + 1, backward=once)
    with precision(dtype):
        within = Within(
            problem, *(jnp.asarray(v, dtype) for v in (scale, goal, length, first, rounds))
        )
        state = start_of(tuple(map(jnp.asarray, begun)))
        last = within.matrices(sphere.unpack(state.frames))
        loss = initial = float(value_of(problem, last)) * unit
        setup_seconds = 0.0
        try:
            for iteration in range(1, rounds + 1):
                started = time.perf_counter()
                new, made, angle = turned(within, state)
                before, loss_there = loss, float(value_of(problem, made)) * unit
                spent = spent.plus(cost)
                if not math.isfinite(loss_there):
                    ending = "non_finite", "the loss is not finite after a turn"
                    break
                state, last, loss = new, made, loss_there
                record = Record(
                    iteration=iteration,
                    loss=loss,
                    angle=float(angle),
                    slope=math.nan,
                    curvature=math.nan,
                    predicted=math.nan,
                    actual=before - loss,
                    halvings=0,
                    **cost._asdict(),
                    seconds=time.perf_counter() - started,
                )
                records.append(record)
                if iteration == 1:
                    setup_seconds = record.seconds
                if callback and callback(record, jax.device_get(last)):
                    ending = "stopped", "the callback asked to stop"
                    break
        except KeyboardInterrupt:
            ending = "interrupted", "interrupted from the keyboard"
        found = jax.device_get(last)
    reached = certified(network, found, scale)
    final = _grown(problem, found, goal / reached) if reached else found
    return Result(
        weights=final,
        loss=float(problem.loss(final)),
        initial_loss=initial,
        outcome=ending[0],
        reason=ending[1],
        records=records,
        evaluations=spent,
        setup_seconds=setup_seconds,
        state=None,
    )


class Within(NamedTuple):
    """What does not change during a descent."""

    problem: Problem
    scale: Array
    bound: Array
    length: Array
    first: Array
    rounds: Array

    def matrices(self, layers: Sequence[Array]) -> Weights:
        """The network that frames stand for."""
        network = self.problem.network
        return frames.matrices(network, layers, self.scale, self.bound, self.length)

    def loss(self, packed: sphere.Packed, rows: Array) -> Array:
        """Mean loss of some rows, in the problem's unit."""
        problem, weights = self.problem, self.matrices(sphere.unpack(packed))

        def some(values: Array) -> Array:
            return problem.columns(jnp.take(values, rows, axis=int(problem.turned)))

        outputs, _ = problem.network.forward(weights, some(problem.seen))
        lost = losses.of_columns(problem.criterion, outputs, some(problem.wanted))
        return jnp.mean(problem.count * problem.share[rows] * lost) / problem.unit


class State(NamedTuple):
    """What changes from turn to turn, with one row of an array for each layer."""

    frames: sphere.Packed
    mean: Array
    """Running mean of the gradients."""
    square: Array
    """Running mean of their squares, entry by entry."""
    turn: Array


@jax.jit
def turned(within: Within, state: State) -> tuple[State, Weights, Array]:
    """The state a round later, its network, and the largest angle of the last turn."""
    problem = within.problem
    rows = problem.count
    radii = sphere.norm(state.frames)
    entries = jnp.array([[math.prod(shape)] for shape in state.frames.shapes])

    def turn(state: State, _: None) -> tuple[State, Array]:
        key = jax.random.fold_in(jax.random.key(0), state.turn)
        batch = jax.random.randint(key, (min(BATCH, rows),), 0, rows)
        gradient = jax.grad(within.loss)(state.frames, batch).rows
        mean = FADING[0] * state.mean + (1 - FADING[0]) * gradient
        square = FADING[1] * state.square + (1 - FADING[1]) * gradient**2
        count = state.turn + 1
        # The means began at nothing, which still is a part of them.
        mean_now, square_now = mean / (1 - FADING[0] ** count), square / (1 - FADING[1] ** count)
        usual = jnp.sqrt(jnp.sum(square_now, axis=1, keepdims=True) / entries)
        steady = mean_now / (jnp.sqrt(square_now) + FAINT * usual + TINY)
        done = state.turn / (TURNS * within.rounds)
        length = within.first * 0.5 * (1 + jnp.cos(jnp.pi * done))
        way = sphere.project(state.frames, replace(state.frames, rows=-length * steady), radii)
        heading = sphere.scale(way, 1 / radii)
        there = sphere.turn(state.frames, heading, 1.0, radii)
        return State(there, mean, square, count), jnp.max(sphere.norm(heading))

    state, angles = jax.lax.scan(turn, state, None, length=TURNS)
    # Frames that lean are no other networks, but a Cholesky factor of float32 sees less of them.
    upright = tuple(
        frames.orthonormal(frame, fan_in + out)
        for frame, (fan_in, out) in zip(
            sphere.unpack(state.frames), pairwise(problem.network.sizes), strict=True
        )
    )
    packed = sphere.pack(upright)
    return state._replace(frames=packed), within.matrices(upright), angles[-1]


def start_of(layers: Weights) -> State:
    """Before the first turn: nothing is known of the gradients."""
    packed = sphere.pack(layers)
    nothing = jnp.zeros_like(packed.rows)
    return State(packed, nothing, nothing, jnp.zeros((), jnp.int32))


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
) -> tuple[list[np.ndarray], float]:
    """Multipliers that prove the least bound for slopes in [0, 1] or [−1, 1], and the bound.

    Frames need one of these intervals, whatever slopes the activation has.
    """
    matrices = [np.asarray(w, np.float64).T for w in network.linear(weights)]
    matrices[0] = matrices[0] * scale
    least = -1.0 if network.activation.slopes[0] < 0 else 0.0
    return optimal_multipliers(
        matrices, [np.tile([least, 1.0], (len(a), 1)) for a in matrices[:-1]]
    )


@jax.jit
def _mean_square(problem: Problem, scale: Array) -> Array:
    return problem.share @ jnp.sum((problem.inputs / scale) ** 2, axis=1)


def _scaled(weights: Sequence[np.ndarray], factor: float) -> tuple[np.ndarray, ...]:
    *others, last = weights
    return (*others, np.asarray(last * factor, last.dtype))


def _grown(problem: Problem, weights: Sequence[np.ndarray], most: float) -> tuple[np.ndarray, ...]:
    """With what the certificate has left of the budget, as far as it lowers the loss."""
    candidates = [_scaled(weights, factor) for factor in np.linspace(min(1.0, most), most, 5)]
    return min(candidates, key=lambda w: float(problem.loss(w)))
