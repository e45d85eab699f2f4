"""The only loop: gradient, direction, arc, step, turn, record, and whether to stop.

One compiled program, `visit_point`, does a whole iteration: it turns the weights, looks whether the
loss fell, and if so works out all that the next turn needs. The accepted trial point is the next
starting point, so the loop evaluates nothing twice, and a refused trial costs a forward pass only.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greatcircle._runtime import allocator as memories
from greatcircle._runtime.precision import optimisation_level, precision
from greatcircle._runtime.threads import one_thread
from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Tree
from greatcircle.objective.objective import Custom, Objective
from greatcircle.objective.problem import Problem
from greatcircle.optimise import arc as arcs
from greatcircle.optimise import directions, steps, stopping
from greatcircle.optimise.arc import Arc, Here
from greatcircle.optimise.directions import Direction, Place
from greatcircle.optimise.record import Evaluations, Record
from greatcircle.optimise.steps import Step

log = logging.getLogger(__name__)

MAX_HALVINGS = 30
"""After so many halvings a float32 angle no longer moves float32 weights."""

FULL_TURN = 2 * math.pi

Visit = Callable[["Point", Array], tuple[Array, "Point"]]
Callback = Callable[[Record, Tree], bool | None]
Keep = Callable[[Any, Sequence[Record]], None]


class LostProcess(RuntimeError):
    """Another process of a run on several has ended, or cannot be reached."""


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    weights: Tree
    """The best weights seen, which are the last accepted ones."""
    loss: float
    initial_loss: float
    outcome: str
    """"converged", "max_iter", "no_descent", "non_finite", "stopped" or "interrupted"."""
    reason: str
    """The same in words."""
    records: list[Record]
    evaluations: Evaluations
    """Of the whole run, the starting point included."""
    setup_seconds: float
    """Compilation and the evaluation of the starting point."""
    state: Any
    """All that the loop knows at the end, to go on from: an argument of `descend`."""

    @property
    def memory(self) -> Any:
        """What the direction remembers, on the host: an argument of `descend`."""
        return jax.device_get(self.state[1].memory)

    @property
    def converged(self) -> bool:
        """Whether the run ended because there was nothing left to gain."""
        return self.outcome == "converged"

    @property
    def history(self) -> dict[str, np.ndarray]:
        """The records as columns."""
        return {name: np.array([getattr(r, name) for r in self.records]) for name in Record._fields}


class Point(NamedTuple):
    """An accepted point and what to do next there."""

    weights: sphere.Packed
    heading: sphere.Packed
    memory: Any
    loss: Array
    slope: Array
    angle: Array
    curvature: Array
    predicted: Array
    products: Array


def descend(
    problem: Problem | Any,
    weights: Tree,
    *,
    direction: Direction | None = None,
    step: Step | None = None,
    stop: stopping.Rule | None = None,
    callback: Callback | None = None,
    state: Any = None,
    memory: Any = None,
    records: Sequence[Record] = (),
    keep: Keep | None = None,
) -> Result:
    """Minimise a loss over weights of fixed norm.

    Parameters
    ----------
    problem
        A `Problem`, or any object with `loss(weights)`.
    weights
        Where to start: a tuple of matrices (for your own objects, any pytree of them). The norm
        of each is its radius, which never changes.
    direction
        By default the best that the objective allows, see `directions.automatic`. The paper's is
        `directions.Steepest()`.
    step
        By default `steps.Curvature()`, the paper's Method 1.
    stop
        Stopping rules joined with `|`; by default at most 200 iterations, and no more when ten of
        them gain less than a five-hundredth of the loss.
    callback
        Called after each iteration with its record and the weights; return True to stop.
    state
        `state` of an earlier result with the same problem, direction and step: go on where that
        ended, bit for bit as if it had not. `weights` then only give the shapes.
    memory
        `memory` of an earlier result with the same network and direction, whose problem may have
        had other rows: what the direction has learnt, to start with.
    records
        Of the run that this one continues: numbers, stopping rules and the result's records go on
        from them.
    keep
        Called after each iteration with the state and the records so far, from which
        `descend(..., state=state, records=records)` would go on.

    Returns
    -------
    Result
        Ctrl-C is a way to stop: the result then holds the best weights so far.

    Raises
    ------
    LostProcess
        When the rows are spread over several processes, and another one has ended.

    Examples
    --------
    >>> import numpy as np
    >>> from greatcircle import Network, Problem, descend, stopping
    >>> x = np.linspace(-1, 1, 50).reshape(-1, 1)
    >>> network = Network((1, 8, 1), "abs")
    >>> problem = Problem(network, x, 0.2 * np.abs(x))
    >>> result = descend(problem, network.initial_weights(seed=0), stop=stopping.MaxIter(50))
    >>> result.loss < result.initial_loss
    True
    """
    weights, sizes, dtype = _checked_start(problem, weights)
    objective: Objective = problem if isinstance(problem, Problem) else Custom(problem, dtype)
    direction = direction or directions.automatic(objective)
    step = step or steps.Curvature()
    stop = stop or stopping.MaxIter(200) | stopping.DecreaseBelow(2e-3)
    for name, given, method, example in (
        ("direction", direction, "choose", "directions.Steepest()"),
        ("step", step, "propose", "steps.Curvature()"),
        ("stop", stop, "fired", "stopping.MaxIter(200)"),
    ):
        if isinstance(given, type) or not callable(getattr(given, method, None)):
            raise TypeError(f"{name} is {given!r}; expected an object such as {example}")
    direction.check(objective)
    step.check(objective)
    trial_cost, accepted_cost = Evaluations(forward=1), Evaluations(backward=1).plus(step.cost)

    with precision(dtype), memories.kept(), one_thread():
        radii, point = state or (jnp.asarray(sizes), nowhere(weights, direction, memory))
        visit = partial(visit_point, objective, radii, direction=direction, step=step)
        evaluations, records, ending = Evaluations(), list(records), None
        initial_loss, setup_seconds, unit = math.inf, 0.0, float(objective.unit)
        try:
            started = time.perf_counter()
            if state is None:
                accepted, point = visit(point, point.angle)
                evaluations = evaluations.plus(trial_cost)
                if accepted:
                    evaluations = evaluations.plus(spent_on(accepted_cost, point))
                else:
                    ending = "non_finite", "the loss is not finite at the start"
            initial_loss = float(point.loss) * unit
            setup_seconds = time.perf_counter() - started
            while not ending and not (ending := _ending(point, records, stop)):
                started = time.perf_counter()
                moved, angle, halvings = _search(visit, point)
                spent = trial_cost.times(halvings + 1)
                if moved is None:
                    evaluations = evaluations.plus(spent)
                    ending = _stuck(point, initial_loss / unit, records, halvings)
                    break
                spent = spent.plus(spent_on(accepted_cost, moved))
                evaluations = evaluations.plus(spent)
                seconds = time.perf_counter() - started
                records.append(
                    record_of(len(records) + 1, unit, point, moved, angle, halvings, spent, seconds)
                )
                point = moved
                if callback and callback(records[-1], on_host(point.weights)):
                    ending = "stopped", "the callback asked to stop"
                if keep:
                    keep((radii, point), records)
        except KeyboardInterrupt:
            ending = "interrupted", "interrupted from the keyboard"
        except jax.errors.JaxRuntimeError as error:
            _check_others(len(records) + 1, error)
            raise
        outcome, reason = ending
        log.info("%s after %d iterations: %s", outcome, len(records), reason)
        result = result_at((radii, point), unit, ending, records)
        return replace(
            result,
            initial_loss=initial_loss,
            evaluations=evaluations,
            setup_seconds=setup_seconds,
        )


def _check_others(iteration: int, error: Exception) -> None:
    """Where there are other processes, an error of JAX's means that one of them is gone."""
    if jax.process_count() > 1:
        raise LostProcess(
            f"iteration {iteration} did not end, because another process of the run has ended or "
            "cannot be reached: look for its error, and start all of them again"
        ) from error


def result_at(
    state: Any, unit: float, ending: tuple[str, str], records: Sequence[Record]
) -> Result:
    """A run that ends in this state, of whose beginning nothing is known."""
    point = state[1]
    outcome, reason = ending
    return Result(
        weights=on_host(point.weights),
        loss=float(point.loss) * unit,
        initial_loss=math.nan,
        outcome=outcome,
        reason=reason,
        records=list(records),
        evaluations=Evaluations(),
        setup_seconds=0.0,
        state=state,
    )


# Higher levels take a second longer, and the program is no faster for it: its time is in matrix
# products, which come from a library.
@partial(jax.jit, static_argnames=("direction", "step"), compiler_options=optimisation_level(1))
def visit_point(
    objective: Objective,
    radii: Array,
    point: Point,
    angle: Array,
    *,
    direction: Direction,
    step: Step,
) -> tuple[Array, Point]:
    """Turn from `point` by `angle`; stand there if the loss is lower, else stay."""
    way = Arc(point.weights, point.heading, radii)
    weights = way.point(angle)
    matrices = sphere.unpack(weights)
    loss, left = objective.forward(matrices)
    # A full turn leads back to the start, where rounding may pretend a decrease.
    accepted = jnp.isfinite(loss) & (loss < point.loss) & (angle < FULL_TURN)

    def stand() -> Point:
        gradient, more = objective.backward(matrices, left)
        gradient = sphere.pack(gradient)
        place = Place(
            objective,
            weights,
            sphere.scale(sphere.project(weights, gradient, radii), radii),
            more,
            radii,
            way,
            angle,
            point.loss - loss,
        )
        chosen = direction.choose(place, point.memory)
        arc = Arc(weights, chosen.heading, radii)
        slope = arcs.slope(arc, gradient)
        proposal = step.propose(Here(objective, arc, gradient, more, loss, slope))
        products = jnp.asarray(chosen.products, loss.dtype)
        return Point(weights, chosen.heading, chosen.memory, loss, slope, *proposal, products)

    return accepted, jax.lax.cond(accepted, stand, lambda: point)


def _search(visit: Visit, point: Point) -> tuple[Point | None, float, int]:
    """The authors' safeguard: halve the angle until the loss falls, a bounded number of times."""
    angle = point.angle
    for halvings in range(MAX_HALVINGS + 1):
        accepted, moved = visit(point, angle)
        if accepted:
            return moved, float(angle), halvings
        angle = angle / 2
    return None, 0.0, MAX_HALVINGS


def _ending(point: Point, records: list[Record], stop: stopping.Rule) -> tuple[str, str] | None:
    """Outcome and reason, when this point is the last."""
    slope, angle = float(point.slope), float(point.angle)
    if not math.isfinite(slope):
        return "non_finite", "the gradient is not finite"
    if slope == 0:
        return "converged", "the gradient along the spheres is zero"
    if rule := stop.fired(records):
        return "converged" if rule.converged else "max_iter", f"{rule.meaning}, {rule!r}"
    if slope > 0:
        return "no_descent", "the direction does not lead downhill"
    if not math.isfinite(angle):
        return "non_finite", "the step rule's angle is not finite"
    if angle <= 0:
        return "no_descent", "the step rule finds no angle with a lower loss"
    return None


def _stuck(
    point: Point, initial_loss: float, records: list[Record], halvings: int
) -> tuple[str, str]:
    """No lower loss along the arc: arrived as far as the precision goes, or not."""
    digits = 4 * float(jnp.finfo(point.loss.dtype).eps)
    # Of a sum of squares that has come down to nothing, the residuals themselves are rounded.
    rounding = digits * abs(float(point.loss)) + digits**2 * abs(initial_loss)
    if abs(float(point.predicted)) > rounding:
        return "no_descent", f"no lower loss after {halvings} halvings of the angle"
    left = f"what is left to gain is below the rounding of {point.loss.dtype}"
    if records:
        return "converged", left
    wider = "float64, or " if point.loss.dtype == np.float32 else ""
    return "no_descent", f"{left}, at the start already: try {wider}other units of the data"


def record_of(
    iteration: int,
    unit: float,
    before: Point,
    after: Point,
    angle: float,
    halvings: int,
    spent: Evaluations,
    seconds: float,
) -> Record:
    loss = float(after.loss) * unit
    return Record(
        iteration=iteration,
        loss=loss,
        angle=angle,
        slope=float(before.slope) * unit,
        curvature=float(before.curvature) * unit,
        predicted=float(before.predicted) * unit,
        actual=float(before.loss) * unit - loss,
        halvings=halvings,
        **spent._asdict(),
        seconds=seconds,
    )


def start_of(problem: Problem, weights: Tree, direction: Direction | None) -> tuple[Array, Point]:
    """A state of the form that a run of this problem has, to read one from a file by."""
    weights, sizes, dtype = _checked_start(problem, weights)
    with precision(dtype):
        point = nowhere(weights, direction or directions.automatic(problem))
        return jnp.asarray(sizes), point


def nowhere(weights: Tree, direction: Direction, memory: Any = None) -> Point:
    """Before the first point: any finite loss is lower, and a turn by zero leads to `weights`."""
    packed = sphere.pack(weights)
    nan = jnp.full((), jnp.nan, packed.rows.dtype)
    return Point(
        weights=packed,
        heading=replace(packed, rows=np.zeros_like(packed.rows)),
        memory=direction.start(packed) if memory is None else memory,
        loss=jnp.full_like(nan, jnp.inf),
        slope=nan,
        angle=jnp.zeros_like(nan),
        curvature=nan,
        predicted=nan,
        products=jnp.zeros_like(nan),
    )


def spent_on(cost: Evaluations, point: Point) -> Evaluations:
    """What standing on a point has cost."""
    return cost.plus(Evaluations(products=float(point.products)))


def on_host(weights: sphere.Packed) -> Tree:
    """The matrices as NumPy arrays, cut on the host: cutting on the device would compile."""
    return sphere.unpack(jax.device_get(weights))


def _checked_start(problem: Any, weights: Tree) -> tuple[Tree, np.ndarray, np.dtype]:
    """Weights as arrays of the working precision, and their radii."""
    if isinstance(problem, Problem):
        weights, dtype = problem.network.check_weights(weights), problem.dtype
    else:
        weights = jax.tree.map(np.asarray, weights)
        wide = any(w.dtype == np.float64 for w in jax.tree.leaves(weights))
        dtype = np.dtype(np.float64 if wide else np.float32)
    try:
        sizes = [np.linalg.norm(np.asarray(w, np.float64)) for w in jax.tree.leaves(weights)]
    except (TypeError, ValueError):
        raise ValueError("weights has entries that are not numbers; expected matrices") from None
    if not sizes:
        raise ValueError("weights is empty; expected at least one matrix")
    for i, size in enumerate(sizes):
        if not (np.isfinite(size) and size > 0):
            raise ValueError(
                f"weights[{i}] has norm {size}; expected finite matrices that are not zero, "
                "since the norm of each is its radius"
            )
    return jax.tree.map(lambda w: np.asarray(w, dtype), weights), np.asarray(sizes, dtype), dtype
