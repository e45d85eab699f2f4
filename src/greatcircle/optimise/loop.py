"""The only loop: rows, gradient, direction, arc, step, turn, record.

`iterate` is a generator of states. What varies between runs is data: a row schedule, a direction, a
step rule and a stopping rule. What watches a run is outside: `descend` (`descent.py`) consumes the
states, collects the records, calls back and writes checkpoints. The iterations themselves are
compiled, several in one program (`iterations.py`).
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Packed, Tree
from greatcircle.optimise import iterations, stopping
from greatcircle.optimise.directions import Direction
from greatcircle.optimise.iterations import Batch, Measured, Point, ProgramResult
from greatcircle.optimise.outcome import Ending, Outcome, Status
from greatcircle.optimise.random_batches import SmallBatches, loss_of_all
from greatcircle.optimise.record import Evaluations, Record, total_evaluations
from greatcircle.optimise.schedules import RowSchedule
from greatcircle.optimise.steps import Step
from greatcircle.optimise.stopping import Rule

__all__ = ["State", "Update", "initial_state", "iterate"]

AnyArray = Array | np.ndarray


class State(eqx.Module):
    """Everything that determines how a run continues."""

    radii: Float[AnyArray, " layers"]
    point: Point
    stop: Any
    """State of the stopping rules."""
    rows: Any
    """Position of the row schedule."""
    restarted: Int[AnyArray, ""]
    """Number of iterations before the rules that mean convergence were last restarted."""


class Update(NamedTuple):
    """A state that `iterate` reached, and the iterations that led to it."""

    state: State
    records: tuple[Record, ...]
    weights: tuple[Packed, ...]
    """After each of these iterations, on the host."""
    evaluations: Evaluations
    """Passes of these iterations, and of rejected trials after them."""
    ending: Ending | None
    """Why the run ended; None while it continues."""
    state_after: Callable[[int], State] | None = None
    """Repeats the first of several iterations, and returns the state after them."""


def initial_state(
    weights: Tree,
    radii: np.ndarray,
    direction: Direction,
    stop: Rule,
    schedule: RowSchedule | SmallBatches,
    direction_state: Any = None,
) -> State:
    """Return the state before the first point has been evaluated."""
    point = iterations.unevaluated(sphere.pack(weights), direction, direction_state)
    zero = np.zeros((), np.int32)
    return State(jnp.asarray(radii), point, stop.init(), schedule.position, zero)


def iterate(
    schedule: RowSchedule | SmallBatches,
    state: State,
    direction: Direction,
    step: Step,
    stop: Rule,
    recorded: int = 0,
) -> Iterator[Update]:
    """Yield the states of a run, the first one after its starting point has been evaluated.

    Parameters
    ----------
    schedule
        Which rows each iteration sees.
    state
        Where to start.
    direction, step, stop
        Descent direction, step rule and stopping rule.
    recorded
        Number of iterations before this run.
    """
    method = _Method(direction, step, stop)
    if isinstance(schedule, SmallBatches):
        yield from _iterate_on_small_batches(method, schedule, state, recorded)
        return
    if np.isfinite(state.point.loss):
        schedule.seek(state.rows)
    else:
        update = method.evaluate(schedule, state)
        yield update
        if update.ending is not None:
            return
        state = update.state
    while True:
        batch = schedule.next()
        if isinstance(batch, Ending):
            yield Update(state, (), (), Evaluations(), batch)
            return
        update = method.advance(schedule, batch, state, recorded)
        yield update
        if update.ending is not None:
            return
        state, recorded = update.state, recorded + len(update.records)


@dataclass(frozen=True)
class _Method:
    """Calls of the compiled program of a method."""

    direction: Direction
    step: Step
    stop: Rule

    def steps_left(self, done: int) -> int:
        """Return the number of steps on small batches until the angle is zero."""
        return max(int(getattr(self.step, "total", 2**31 - 1)) - done, 0)

    def evaluate(self, schedule: RowSchedule, state: State, when: str = "at the start") -> Update:
        """Evaluate the point of a state on the next rows."""
        result, _ = self._run(schedule.start(), state, schedule.rows, limit=0)
        evaluations, ending = Evaluations(forward=1), None
        if int(result.status) == Status.NON_FINITE_LOSS:
            ending = _not_finite(when)
        else:
            evaluations = evaluations.plus(self._cost_of_acceptance(result.point.products))
        return Update(
            _after(state, result, schedule), (), (), evaluations.times(schedule.fraction), ending
        )

    def advance(self, schedule: RowSchedule, batch: Batch, state: State, recorded: int) -> Update:
        """Run one program, and evaluate its last point again if the rows change."""
        fraction, on_all_rows = schedule.fraction, schedule.uses_all_rows
        result, seconds = self._run(batch, state, schedule.rows)
        state_after = partial(self._state_after, batch, state, schedule.rows)
        unit = float(batch.objective.unit)
        records = self._records(result, recorded, seconds, fraction, unit)
        recorded += len(records)
        rejected = Evaluations(forward=float(result.forward)).times(fraction)
        evaluations = total_evaluations(records).plus(rejected)
        status, rows_changed = Status(int(result.status)), False
        rule = None
        if status != Status.RUNNING:
            rule = stopping.fired_rule(self.stop, result.stop_state)
        if on_all_rows:
            ending = _ending(status, result.point, rule, recorded)
        else:
            ending, rows_changed = schedule.update(status, bool(records), rule)
        state = _after(state, result, schedule)
        if rows_changed:
            restarted = self._restarted(state, recorded)
            update = self.evaluate(schedule, restarted, "on the next rows")
            state, ending = update.state, update.ending
            evaluations = evaluations.plus(update.evaluations)
        weights = _weights_of(result, len(records))
        return Update(state, records, weights, evaluations, ending, state_after)

    def _state_after(self, batch: Batch, before: State, rows: int | None, count: int) -> State:
        """Repeat the first `count` iterations of a program, and return the state after them."""
        result, _ = self._run(batch, before, rows, limit=count)
        return replace(before, point=result.point, stop=result.stop_state)

    def _run(
        self, batch: Batch, state: State, rows: int | None, limit: int | None = None
    ) -> tuple[ProgramResult, float]:
        """Run one program of at most `limit` iterations; return its result and the seconds."""
        started = time.perf_counter()
        # On batches, every iteration has other rows.
        weights, on_batch = state.point.weights, batch.chooser is not None
        length = 1 if on_batch else iterations.program_length(rows, weights)
        result = iterations.descending_iterations(
            batch,
            state.radii,
            state.point,
            self.stop,
            state.stop,
            np.asarray(length if limit is None else limit, np.int32),
            direction=self.direction,
            step=self.step,
            length=length,
        )
        result.status.block_until_ready()
        return result, time.perf_counter() - started

    def _restarted(self, state: State, recorded: int) -> State:
        """Return the state before its point is evaluated on other rows."""
        point = state.point
        infinite, zero = jnp.full_like(point.loss, jnp.inf), jnp.zeros_like(point.angle)
        return replace(
            state,
            point=eqx.tree_at(lambda p: (p.loss, p.angle), point, (infinite, zero)),
            stop=stopping.restart(self.stop, state.stop),
            restarted=np.asarray(recorded, np.int32),
        )

    def _records(
        self,
        result: ProgramResult,
        recorded: int,
        seconds: float,
        fraction: float,
        unit: float,
    ) -> tuple[Record, ...]:
        """Return the records of a program; its iterations share its time equally."""
        count = int(result.recorded)
        columns = [np.asarray(column)[:count].tolist() for column in result.measured]
        records = []
        for number, values in enumerate(zip(*columns, strict=True), start=recorded + 1):
            row = Measured(*values)
            cost = self._cost_of_acceptance(row.products).plus(Evaluations(float(row.forward)))
            measured = row.in_unit(unit)._asdict() | cost.times(fraction)._asdict()
            records.append(Record(iteration=number, **measured, seconds=seconds / count))
        return tuple(records)

    def _cost_of_acceptance(self, products: Any) -> Evaluations:
        """Return the passes at an accepted point, after its forward pass."""
        return Evaluations(backward=1, products=float(products)).plus(self.step.cost)


def _iterate_on_small_batches(
    method: _Method, schedule: SmallBatches, state: State, recorded: int
) -> Iterator[Update]:
    """Yield a state after each program of steps on small batches."""
    unit, steps = float(schedule.objective.unit), schedule.steps(state.point.weights)
    if np.isfinite(state.point.loss):
        schedule.seek(state.rows)
        ending = None
    else:
        value = loss_of_all(schedule, state.point.weights)
        state = eqx.tree_at(lambda s: s.point.loss, state, value)
        ending = _fired(method.stop, state) if np.isfinite(value) else _not_finite("at the start")
        yield Update(state, (), (), Evaluations(forward=1), ending)
    loss, earlier = float(state.point.loss) * unit, state
    while ending is None:
        started, done = time.perf_counter(), int(state.point.iteration)
        # Each device takes its own steps, and all of them count.
        count = min(steps, -(-method.steps_left(done) // schedule.devices))
        if count == 0:
            ending = Ending(Outcome.CONVERGED, "finished: step schedule completed")
            if not np.isfinite(loss_of_all(schedule, state.point.weights)):
                state, ending = earlier, _not_finite("after the last step")
            yield Update(state, (), (), Evaluations(forward=1), ending)
            return
        block = schedule.block(done // schedule.devices, count, steps)
        if block is None:
            yield Update(state, (), (), Evaluations(), _no_more_rows())
            return
        weights, radii = _conditioned(schedule.objective, state)
        point, angle = iterations.sampled_iterations(
            block,
            np.asarray(count, np.int32),
            radii,
            eqx.tree_at(lambda p: p.weights, state.point, weights),
            direction=method.direction,
            step=method.step,
        )
        before, loss = loss, float(point.loss) * unit
        passes = schedule.passes(count)
        cost = Evaluations(passes, passes)
        if not np.isfinite(loss):
            # The last step of the program before may be the cause: its loss was not computed.
            finite = np.isfinite(loss_of_all(schedule, state.point.weights))
            yield Update(state if finite else earlier, (), (), cost, _not_finite("after a step"))
            return
        recorded, earlier = recorded + 1, state
        nan = float("nan")
        record = Record(
            iteration=recorded,
            loss=loss,
            angle=float(angle),
            slope=nan,
            curvature=nan,
            predicted=nan,
            actual=before - loss,
            halvings=0,
            **cost._asdict(),
            seconds=time.perf_counter() - started,
        )
        rules = method.stop.update(state.stop, record)
        state = replace(state, radii=radii, point=point, stop=rules, rows=schedule.position)
        ending, on_host = _fired(method.stop, state), jax.device_get(point.weights)
        yield Update(state, (record,), (on_host,), cost, ending)


def _conditioned(objective: Any, state: State) -> tuple[Packed, AnyArray]:
    """Return an equivalent, well-conditioned point if the objective can compute one, and radii."""
    improve = getattr(objective, "conditioned", None)
    if improve is None:
        return state.point.weights, state.radii
    weights = improve(state.point.weights)
    return weights, sphere.norm(weights)


def _no_more_rows() -> Ending:
    return Ending(Outcome.MAX_ITER, "there are no more rows")


def _after(state: State, result: ProgramResult, schedule: RowSchedule) -> State:
    """Return the state after a program."""
    return replace(state, point=result.point, stop=result.stop_state, rows=schedule.position)


def _fired(stop: Rule, state: State) -> Ending | None:
    rule = stopping.fired_rule(stop, state.stop)
    return None if rule is None else _rule_ending(rule)


def _not_finite(when: str) -> Ending:
    return Ending(Outcome.NON_FINITE, f"the loss is not finite {when}")


def _rule_ending(rule: Rule) -> Ending:
    return Ending(Outcome.CONVERGED if rule.converged else Outcome.MAX_ITER, rule.reason)


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


def _weights_of(result: ProgramResult, count: int) -> tuple[Packed, ...]:
    """Return the weights after each iteration of a program, on the host."""
    if count == 0:
        return ()
    rows = np.asarray(result.weights)
    return tuple(replace(result.point.weights, rows=rows[i]) for i in range(count))
