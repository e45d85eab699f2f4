"""The only loop: rows, gradient, direction, arc, step, turn, record.

`iterate` is a generator of states; what varies is a row schedule, a direction, a step rule and a
stopping rule. `descend` consumes it: it collects the records, calls back, writes checkpoints and
returns a `Result`. The iterations are compiled, several in one program (`iterations.py`).
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from greatcircle._runtime.precision import precision
from greatcircle._runtime.threads import one_thread
from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Packed, Tree
from greatcircle.objective.function import function_objective
from greatcircle.objective.objective import Objective
from greatcircle.objective.problem import Problem
from greatcircle.optimise import directions, iterations, steps, stopping
from greatcircle.optimise.checkpoint import Checkpoint
from greatcircle.optimise.directions import Direction
from greatcircle.optimise.history import History
from greatcircle.optimise.iterations import Batch, Measured, Point
from greatcircle.optimise.outcome import Ending, Outcome, Status
from greatcircle.optimise.record import Evaluations, Record
from greatcircle.optimise.schedules import AllRows, RandomBatches, RowSchedule
from greatcircle.optimise.steps import Step
from greatcircle.optimise.stopping import Rule

__all__ = ["LostProcess", "Result", "State", "Update", "descend", "initial_state", "iterate"]

log = logging.getLogger(__name__)

NON_FINITE_START = Ending(Outcome.NON_FINITE, "the loss is not finite at the start")

Callback = Callable[[Record, Tree], bool | None]
"""Called after each iteration; True stops the run."""

Observer = Callable[[Record, Tree], Record]
"""Completes a record with what it measures of the weights after the iteration."""


class LostProcess(RuntimeError):
    """Another process of a run on several has ended, or cannot be reached."""


class State(eqx.Module):
    """Everything that decides how a run continues."""

    radii: Float[Array, " layers"]
    point: Point
    stop: Any
    """State of the stopping rules."""
    rows: Any
    """Position of the row schedule."""


class Update(NamedTuple):
    """A state that `iterate` reached, and the iterations that led there."""

    state: State
    records: tuple[Record, ...]
    weights: tuple[Packed, ...]
    """After each of these iterations, on the host."""
    evaluations: Evaluations
    """Passes of these iterations, and of trials that led nowhere."""
    ending: Ending | None
    """Why the run ended; None while it continues."""


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    weights: Tree
    """The best weights seen, which are the last accepted ones."""
    loss: float
    initial_loss: float
    """Where this run started; for a continued run, where the earlier one ended."""
    outcome: Outcome
    reason: str
    """Why the run ended, in words."""
    records: list[Record]
    evaluations: Evaluations
    """Of the whole run, including the starting point."""
    setup_seconds: float
    """Compilation and evaluation of the starting point."""
    state: State
    """An argument of `descend`, to continue the run."""

    @property
    def direction_state(self) -> Any:
        """State of the direction, on the host: an argument of `descend`."""
        return jax.device_get(self.state.point.direction_state)

    @property
    def converged(self) -> bool:
        """Whether the run ended because there was nothing left to gain."""
        return self.outcome == Outcome.CONVERGED

    @property
    def history(self) -> History:
        """The records as columns."""
        return History.of(self.records)


def descend(
    problem: Problem | Objective | Callable[[Tree], Array] | Any,
    weights: Tree,
    *,
    direction: Direction | None = None,
    step: Step | None = None,
    stop: Rule | None = None,
    rows: RowSchedule | RandomBatches | None = None,
    callback: Callback | None = None,
    observe: Observer | None = None,
    checkpoint: Checkpoint | None = None,
    state: State | None = None,
    direction_state: Any = None,
) -> Result:
    """Minimise a loss over weights of fixed norm.

    Parameters
    ----------
    problem
        A `Problem`, a function of the weights, or any object with `loss(weights)`.
    weights
        Where to start: a tuple of matrices (for your own loss, any pytree of them). The norm of
        each is its radius, which never changes.
    direction
        By default the best that the objective allows, see `directions.automatic`. The paper's is
        `directions.Steepest()`.
    step
        By default `steps.Curvature()`, the paper's Method 1.
    stop
        Stopping rules joined with `|`; by default at most 200 iterations, and until ten of them
        gain less than a five-hundredth of the loss.
    rows
        A row schedule; by default all rows at every iteration.
    callback
        Called after each iteration with its record and the weights; return True to stop.
    observe
        Called like `callback`; returns the record, completed. It cannot stop the run.
    checkpoint
        Where to keep the run, and where to resume it from. The file is written at most once per
        interval and at the end. In a run of several processes the first one writes it, and all
        must see the folder.
    state
        `state` of an earlier result with the same problem, direction and step: continue it, bit
        for bit as if it had not ended. `weights` then only gives the shapes.
    direction_state
        `direction_state` of an earlier result with the same network and direction, possibly on
        other rows: start with what the direction has learnt.

    Returns
    -------
    Result
        Ctrl-C stops the run, and the result holds the best weights so far.

    Raises
    ------
    LostProcess
        If the rows are sharded over several processes, and another one has ended.

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
    weights, sizes, dtype = _checked_weights(problem, weights)
    with precision(dtype):
        objective = _objective(problem, dtype)
    direction = direction or directions.automatic(objective)
    step = step or steps.Curvature()
    stop = stop or stopping.MaxIter(200) | stopping.DecreaseBelow(2e-3)
    _check_parts(objective, direction, step, stop)
    with precision(dtype), one_thread():
        schedule = rows if rows is not None else AllRows(objective)
        stop = stop if schedule.can_converge else stopping.limits(stop)
        begin = initial_state(weights, sizes, direction, stop, schedule, direction_state)
        records: list[Record] = []
        if checkpoint is not None:
            checkpoint = checkpoint.bound_to(objective, direction, step)
            if checkpoint.saved is not None:
                state, records = checkpoint.saved.state(_kept(begin)), [*checkpoint.saved.records]
        state = begin if state is None else _restarted(state, stop, records)
        unit = float(objective.unit)
        run = _Run(state, records, unit, initial_loss=float(state.point.loss) * unit)
        updates = iterate(
            schedule, state, direction, step, stop, len(records), callback is not None
        )
        return _consume(run, updates, callback, observe, checkpoint)


@dataclass
class _Run:
    """What a run has reached."""

    state: State
    records: list[Record]
    unit: float
    initial_loss: float
    """Infinite until the starting point has been evaluated."""
    evaluations: Evaluations = field(default_factory=Evaluations)
    setup_seconds: float = 0.0
    ending: Ending | None = None

    def result(self) -> Result:
        """Return the result."""
        outcome, reason = self.ending or Ending(Outcome.STOPPED, "")
        return Result(
            weights=_on_host(self.state.point.weights),
            loss=float(self.state.point.loss) * self.unit,
            initial_loss=self.initial_loss,
            outcome=outcome,
            reason=reason,
            records=self.records,
            evaluations=self.evaluations,
            setup_seconds=self.setup_seconds,
            state=self.state,
        )


def _consume(
    run: _Run,
    updates: Iterator[Update],
    callback: Callback | None,
    observe: Observer | None,
    checkpoint: Checkpoint | None,
) -> Result:
    """Follow a run to its end: collect records, call back, write checkpoints."""
    started = time.perf_counter()
    try:
        for update in updates:
            new = [
                observe(record, sphere.unpack(weights)) if observe else record
                for record, weights in zip(update.records, update.weights, strict=True)
            ]
            # In one statement: Ctrl-C must not separate state and records.
            run.state, run.records, run.evaluations, run.ending = (
                update.state,
                run.records + new,
                run.evaluations.plus(update.evaluations),
                update.ending,
            )
            if run.setup_seconds == 0:
                run.setup_seconds = time.perf_counter() - started
            if not np.isfinite(run.initial_loss):
                run.initial_loss = float(update.state.point.loss) * run.unit
            if callback is not None:
                for record, weights in zip(new, update.weights, strict=True):
                    if callback(record, sphere.unpack(weights)):
                        run.ending = Ending(Outcome.STOPPED, "the callback asked to stop")
            if checkpoint is not None:
                checkpoint.write_if_due(_kept(run.state), run.records)
            if run.ending is not None:
                break
    except KeyboardInterrupt:
        run.ending = Ending(Outcome.INTERRUPTED, "interrupted from the keyboard")
    except jax.errors.JaxRuntimeError as error:
        _raise_lost_process(run, checkpoint, error)
        raise
    result = run.result()
    log.info("%s after %d iterations: %s", result.outcome, len(run.records), result.reason)
    if checkpoint is not None:
        checkpoint.write(_kept(run.state), run.records)
    return result


def iterate(
    schedule: RowSchedule | RandomBatches,
    state: State,
    direction: Direction,
    step: Step,
    stop: Rule,
    recorded: int = 0,
    one_by_one: bool = False,
) -> Iterator[Update]:
    """Yield the states of a run, the first one when its point has been evaluated.

    Parameters
    ----------
    schedule
        Which rows each iteration sees.
    state
        Where to start.
    direction, step, stop
        The method, and when it ends.
    recorded
        Number of iterations before this run.
    one_by_one
        Whether to yield after each iteration, for callbacks that may stop the run.
    """
    advance = _Advance(direction, step, stop)
    if isinstance(schedule, RandomBatches):
        yield from _sampled(advance, schedule, state, recorded)
        return
    if not np.isfinite(state.point.loss):
        state, update = advance.evaluate(schedule, state)
        yield update
        if update.ending is not None:
            return
    else:
        schedule.seek(state.rows)
    while True:
        batch = schedule.next()
        if isinstance(batch, Ending):
            yield Update(state, (), (), Evaluations(), batch)
            return
        fraction, sees_all = schedule.fraction, schedule.uses_all_rows
        unit = float(batch.objective.unit)
        result, seconds = advance(batch, state, schedule.rows, one_by_one)
        records = advance.records(result, recorded, seconds, fraction, unit)
        recorded += len(records)
        rejected = Evaluations(forward=float(result.forward)).times(fraction)
        evaluations = _total(records).plus(rejected)
        rule = stopping.fired_rule(stop, result.stop_state)
        status, changed = Status(int(result.status)), False
        if sees_all:
            ending = _ending(status, result.point, rule, recorded)
        else:
            ending, changed = schedule.update(status, bool(records), rule)
        state = State(state.radii, result.point, result.stop_state, schedule.position)
        if changed:
            forgotten = replace(
                state,
                point=_unevaluated_again(state.point),
                stop=stopping.restart(stop, state.stop),
            )
            state, update = advance.evaluate(schedule, forgotten)
            evaluations, ending = evaluations.plus(update.evaluations), update.ending
        yield Update(state, records, _weights_of(result, len(records)), evaluations, ending)
        if ending is not None:
            return


@dataclass(frozen=True)
class _Advance:
    """Calls of the compiled program of a method."""

    direction: Direction
    step: Step
    stop: Rule

    def __call__(
        self, batch: Batch, state: State, rows: int, one_by_one: bool
    ) -> tuple[iterations.Result, float]:
        """Run one program; return its result on the host where it is small, and the seconds."""
        length = 1
        if batch.chooser is None:
            length = iterations.program_length(rows, state.point.weights)
        return self._run(batch, state, 1 if one_by_one else length, length)

    def evaluate(self, schedule: RowSchedule, state: State) -> tuple[State, Update]:
        """Evaluate the point of a state."""
        batch = schedule.start()
        fraction = schedule.fraction
        length = 1
        if batch.chooser is None:
            length = iterations.program_length(schedule.rows, state.point.weights)
        result, _ = self._run(batch, state, 0, length)
        evaluations, ending = Evaluations(forward=1), None
        if int(result.status) == Status.NON_FINITE_LOSS:
            ending = NON_FINITE_START
        else:
            evaluations = evaluations.plus(self._accepted(result.point.products))
        state = State(state.radii, result.point, result.stop_state, schedule.position)
        return state, Update(state, (), (), evaluations.times(fraction), ending)

    def records(
        self,
        result: iterations.Result,
        recorded: int,
        seconds: float,
        fraction: float,
        unit: float,
    ) -> tuple[Record, ...]:
        """Return the records of a program; its iterations share its time equally."""
        recorded_now = int(result.recorded)
        columns = [np.asarray(column)[:recorded_now].tolist() for column in result.measured]
        records = []
        for number, values in enumerate(zip(*columns, strict=True), start=recorded + 1):
            row = Measured(*values)
            spent = Evaluations(forward=float(row.forward)).plus(self._accepted(row.products))
            measured = {
                name: value * unit if name in Measured.IN_UNIT else value
                for name, value in row._asdict().items()
                if name not in Evaluations._fields
            }
            evaluations = spent.times(fraction)._asdict()
            share = seconds / recorded_now
            records.append(Record(iteration=number, **measured, **evaluations, seconds=share))
        return tuple(records)

    def _accepted(self, products: Any) -> Evaluations:
        """Return what an accepted point costs beyond its forward pass."""
        return Evaluations(backward=1, products=float(products)).plus(self.step.cost)

    def _run(
        self, batch: Batch, state: State, limit: int, length: int
    ) -> tuple[iterations.Result, float]:
        started = time.perf_counter()
        result = iterations.descending_iterations(
            batch,
            state.radii,
            state.point,
            self.stop,
            state.stop,
            np.asarray(limit, np.int32),
            direction=self.direction,
            step=self.step,
            length=length,
        )
        result.status.block_until_ready()
        return result, time.perf_counter() - started


def _sampled(
    advance: _Advance, schedule: RandomBatches, state: State, recorded: int
) -> Iterator[Update]:
    """Yield a state after each round of steps that random batches chose."""
    stop, unit = advance.stop, float(schedule.objective.unit)
    loss = float(schedule.loss(state.point.weights)) * unit
    state = eqx.tree_at(
        lambda s: s.point.loss, state, jnp.asarray(loss / unit, state.point.loss.dtype)
    )
    spent = Evaluations(forward=1)
    while True:
        rule = stopping.fired_rule(stop, state.stop)
        ending = None if rule is None else _rule_ending(rule)
        if not np.isfinite(loss):
            ending = NON_FINITE_START
        yield Update(state, (), (), spent, ending)
        if ending is not None:
            return
        started = time.perf_counter()
        weights = schedule.conditioned(state.point.weights)
        radii = sphere.norm(weights)
        point, angle = iterations.sampled_iterations(
            schedule,
            radii,
            eqx.tree_at(lambda p: p.weights, state.point, weights),
            direction=advance.direction,
            step=advance.step,
            length=schedule.steps,
        )
        before, loss = loss, float(point.loss) * unit
        spent = Evaluations(forward=schedule.passes + 1, backward=schedule.passes)
        if not np.isfinite(loss):
            ending = Ending(Outcome.NON_FINITE, "the loss is not finite after a step")
            yield Update(state, (), (), spent, ending)
            return
        recorded += 1
        nan = float("nan")
        seconds = time.perf_counter() - started
        record = Record(
            recorded, loss, float(angle), nan, nan, nan, before - loss, 0, *spent, seconds
        )
        state = State(radii, point, stop.update(state.stop, record), state.rows)
        yield Update(state, (record,), (_host(point.weights),), spent, None)
        spent = Evaluations()


def initial_state(
    weights: Tree,
    radii: np.ndarray,
    direction: Direction,
    stop: Rule,
    schedule: RowSchedule | RandomBatches,
    direction_state: Any = None,
) -> State:
    """Return the state before the first point has been evaluated."""
    point = iterations.unevaluated(sphere.pack(weights), direction, direction_state)
    position = () if isinstance(schedule, RandomBatches) else schedule.position
    return State(jnp.asarray(radii), point, stop.init(), position)


def _kept(state: State) -> State:
    """Return what a checkpoint keeps: stopping rules are repeated from the records."""
    return replace(state, stop=())


def _restarted(state: State, stop: Rule, records: Sequence[Record]) -> State:
    """Return the state with the stopping rules as they are after the records."""
    rules = stop.init()
    for record in records:
        rules = stop.update(rules, record)
    # A checkpoint has NumPy arrays.
    return replace(state, radii=jnp.asarray(state.radii), stop=rules)


def _unevaluated_again(point: Point) -> Point:
    """Return a point that is to be evaluated on other rows."""
    infinite, zero = jnp.full_like(point.loss, jnp.inf), jnp.zeros_like(point.angle)
    return eqx.tree_at(lambda p: (p.loss, p.angle), point, (infinite, zero))


def _ending(status: Status, point: Point, rule: Rule | None, recorded: int) -> Ending | None:
    """Return outcome and reason of a run on all rows, or None while it continues."""
    match status:
        case Status.RUNNING:
            return None
        case Status.RULE_FIRED if rule is not None:
            return _rule_ending(rule)
        case Status.ZERO_GRADIENT:
            return Ending(Outcome.CONVERGED, "the gradient along the spheres is zero")
        case Status.NON_FINITE_GRADIENT:
            return Ending(Outcome.NON_FINITE, "the gradient is not finite")
        case Status.NON_FINITE_ANGLE:
            return Ending(Outcome.NON_FINITE, "the angle of the step rule is not finite")
        case Status.UPHILL:
            return Ending(Outcome.NO_DESCENT, "the direction does not lead downhill")
        case Status.NO_ANGLE:
            return Ending(Outcome.NO_DESCENT, "the step rule finds no angle with a lower loss")
        case _:
            return _no_decrease(point, recorded)


def _rule_ending(rule: Rule) -> Ending:
    return Ending(Outcome.CONVERGED if rule.converged else Outcome.MAX_ITER, rule.reason)


def _no_decrease(point: Point, recorded: int) -> Ending:
    """Return how a run ends whose loss does not fall along the arc: at rounding, or not."""
    dtype = point.loss.dtype
    digits = 4 * float(jnp.finfo(dtype).eps)
    # Losses are in units of that of the zero function. When a sum of squares has fallen far below
    # one, the residuals themselves are rounded.
    rounding = digits * abs(float(point.loss)) + digits**2
    if abs(float(point.predicted)) > rounding:
        reason = f"no lower loss after {iterations.MAX_HALVINGS} halvings of the angle"
        return Ending(Outcome.NO_DESCENT, reason)
    reason = f"the decrease still possible is below the rounding of {dtype}"
    if recorded:
        return Ending(Outcome.CONVERGED, reason)
    wider = "float64, or " if dtype == np.float32 else ""
    return Ending(
        Outcome.NO_DESCENT, f"{reason} already at the start: try {wider}other units of the data"
    )


def _raise_lost_process(run: _Run, checkpoint: Checkpoint | None, error: Exception) -> None:
    """Raise LostProcess where an error of JAX means that another process has ended."""
    if jax.process_count() == 1:
        return
    lost = LostProcess(
        f"iteration {len(run.records) + 1} did not end, because another process of the run has "
        "ended or cannot be reached: look for its error, and start all of them again"
    )
    if checkpoint is not None:
        checkpoint.write(_kept(run.state), run.records)
        lost.add_note(f"the checkpoint is {checkpoint.path}; resume it with resume=True")
    raise lost from error


def _total(records: Sequence[Record]) -> Evaluations:
    total = Evaluations()
    for record in records:
        total = total.plus(Evaluations(*(getattr(record, name) for name in Evaluations._fields)))
    return total


def _weights_of(result: iterations.Result, count: int) -> tuple[Packed, ...]:
    """Return the weights after each iteration of a program, on the host."""
    if count == 0:
        return ()
    rows = np.asarray(result.weights)
    return tuple(replace(result.point.weights, rows=rows[i]) for i in range(count))


def _host(weights: Packed) -> Packed:
    return jax.device_get(weights)


def _on_host(weights: Packed) -> Tree:
    """Return the matrices as NumPy arrays, cut on the host: cutting on the device compiles."""
    return sphere.unpack(_host(weights))


def _objective(problem: Any, dtype: np.dtype) -> Objective:
    return problem if isinstance(problem, Objective) else function_objective(problem, dtype)


def _check_parts(objective: Objective, direction: Any, step: Any, stop: Any) -> None:
    for name, given, method, example in (
        ("direction", direction, "choose", "directions.Steepest()"),
        ("step", step, "propose", "steps.Curvature()"),
        ("stop", stop, "fired", "stopping.MaxIter(200)"),
    ):
        if isinstance(given, type) or not callable(getattr(given, method, None)):
            raise TypeError(f"{name} is {given!r}; expected an object such as {example}")
    direction.check(objective)
    step.check(objective)


def _checked_weights(problem: Any, weights: Tree) -> tuple[Tree, np.ndarray, np.dtype]:
    """Return the weights as arrays of the working precision, and their radii."""
    if isinstance(problem, Problem):
        weights, dtype = problem.network.check_weights(weights), problem.dtype
    else:
        weights = jax.tree.map(np.asarray, weights)
        wide = any(w.dtype == np.float64 for w in jax.tree.leaves(weights))
        dtype = np.dtype(np.float64 if wide else np.float32)
    leaves = jax.tree_util.tree_leaves_with_path(weights)
    if not leaves:
        raise ValueError("weights is empty; expected at least one matrix")
    radii = [_radius(f"weights{jax.tree_util.keystr(path)}", leaf) for path, leaf in leaves]
    return jax.tree.map(lambda w: np.asarray(w, dtype), weights), np.asarray(radii, dtype), dtype


def _radius(name: str, leaf: np.ndarray) -> float:
    """Return the norm of a leaf, or raise an error that says how to optimise without it."""
    try:
        radius = float(np.linalg.norm(np.asarray(leaf, np.float64)))
    except (TypeError, ValueError):
        raise ValueError(f"{name} has entries that are not numbers; expected a matrix") from None
    if leaf.ndim < 2:
        raise ValueError(
            f"{name} has shape {leaf.shape}; expected a matrix, whose norm is kept: reshape a "
            "vector to (n, 1) to keep its norm, or leave constants out of the weights and use them "
            "in the loss directly"
        )
    if not (np.isfinite(radius) and radius > 0):
        raise ValueError(
            f"{name} has norm {radius}; expected a finite matrix that is not zero, since its norm "
            "is its radius: leave a constant zero out of the weights"
        )
    return radius
