"""Minimise a loss over weights of fixed norm: run the loop to its end, and return a result."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greatcircle._runtime.precision import precision
from greatcircle._runtime.threads import one_thread
from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Tree
from greatcircle.objective.function import function_objective
from greatcircle.objective.objective import Objective
from greatcircle.objective.problem import Problem
from greatcircle.optimise import directions, steps, stopping
from greatcircle.optimise.checkpoint import Checkpoint
from greatcircle.optimise.directions import Direction
from greatcircle.optimise.history import History
from greatcircle.optimise.loop import State, Update, initial_state, iterate
from greatcircle.optimise.outcome import Ending, Outcome
from greatcircle.optimise.random_batches import SmallBatches, loss_of_all
from greatcircle.optimise.record import Evaluations, Record, total_evaluations
from greatcircle.optimise.schedules import AllRows, RowSchedule
from greatcircle.optimise.steps import Step
from greatcircle.optimise.stopping import Rule

__all__ = ["Callback", "LostProcess", "Observer", "Result", "descend"]

log = logging.getLogger(__name__)

INTERRUPTED = Ending(Outcome.INTERRUPTED, "interrupted from the keyboard")

Callback = Callable[[Record, Tree], bool | None]
"""Called after each iteration with its record and the weights; True stops the run."""

Observer = Callable[[Record, Tree], Record]
"""Adds measurements of the weights after an iteration to its record."""


class LostProcess(RuntimeError):
    """Another process of a distributed run has ended, or cannot be reached."""


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    weights: Tree
    """The best weights seen, which are the last accepted ones."""
    loss: float
    initial_loss: float
    """At the start of this run; for a continued run, at the end of the earlier one."""
    outcome: Outcome
    reason: str
    """Why the run ended, in a sentence."""
    records: list[Record]
    evaluations: Evaluations
    """Passes of the whole run, including the starting point."""
    setup_seconds: float
    """Compilation and evaluation of the starting point."""
    state: State
    """State of the loop; pass it to `descend` to continue the run."""

    @property
    def direction_state(self) -> Any:
        """State of the direction, on the host: an argument of `descend`."""
        return jax.device_get(self.state.point.direction_state)

    @property
    def converged(self) -> bool:
        """Whether the run converged."""
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
    rows: RowSchedule | SmallBatches | None = None,
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
        By default `directions.automatic` chooses the best that the objective supports. The paper's
        is `directions.Steepest()`.
    step
        By default `steps.Curvature()`, the paper's Method 1.
    stop
        Stopping rules joined with `|`; by default at most 200 iterations, and until ten of them
        together reduce the loss by less than 0.2 %. On small batches there is none by default: the
        step rule ends the run.
    rows
        A row schedule, or small batches (`RandomBatches`, `StreamBatches`); by default all rows at
        every iteration.
    callback
        Called for each iteration with its record and the weights; return True to stop there.
        Several iterations run in one compiled program, so calls may come up to a second late.
    observe
        Called before `callback` with the same arguments; returns the record, with measurements
        added. It cannot stop the run.
    checkpoint
        Where to save the run, and where to resume it from. The file is written at most once per
        interval and at the end. In a run of several processes the first one writes it, and all
        must see the folder.
    state
        `state` of an earlier result with the same problem, direction and step: continue that run
        with bit-identical results. `weights` then only gives the shapes.
    direction_state
        `direction_state` of an earlier result with the same network and direction, possibly on
        other rows: start with its curvature estimates and momentum.

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
    weights, radii, dtype = _checked_weights(problem, weights)
    objective = problem if isinstance(problem, Objective) else function_objective(problem, dtype)
    direction = direction or directions.automatic(objective)
    if isinstance(rows, SmallBatches):
        _check_step_on_batches(step)
        stop = stop or stopping.FirstOf(())
    step = step or steps.Curvature()
    stop = stop or stopping.MaxIter(200) | stopping.DecreaseBelow(2e-3)
    _check_method(objective, direction, step, stop)
    with precision(dtype), one_thread():
        schedule = rows if rows is not None else AllRows(objective)
        stop = stop if schedule.can_converge else stopping.limits(stop)
        start = initial_state(weights, radii, direction, stop, schedule, direction_state)
        records: list[Record] = []
        if checkpoint is not None:
            checkpoint = checkpoint.bound_to(objective, direction, step)
            if checkpoint.saved is not None:
                state = checkpoint.saved.state(_without_rules(start))
                records = list(checkpoint.saved.records)
        start = start if state is None else _with_rules(state, stop, records)
        updates = iterate(schedule, start, direction, step, stop, len(records))
        unit = float(objective.unit)
        run = _Run(start, len(records), unit, float(start.point.loss) * unit)
        result = _follow(updates, run, records, _Watchers(callback, observe, checkpoint))
        if isinstance(schedule, SmallBatches):  # whose records have the mean loss of batches
            loss = float(loss_of_all(schedule, result.state.point.weights)) * unit
            result = replace(result, loss=loss)
            if not np.isfinite(loss) and result.outcome != Outcome.NON_FINITE:
                reason = "the loss is not finite after the last step"
                result = replace(result, outcome=Outcome.NON_FINITE, reason=reason)
        return result


@dataclass(frozen=True)
class _Run:
    """What a run has reached.

    It is replaced as a whole, so that Ctrl-C cannot separate a state from its records.
    """

    state: State
    recorded: int
    """Number of records, in this run and in those it continues."""
    unit: float
    initial_loss: float
    """Infinite until the starting point has been evaluated."""
    evaluations: Evaluations = field(default_factory=Evaluations)
    setup_seconds: float = 0.0
    ending: Ending | None = None

    def after(self, update: Update, seconds: float) -> "_Run":
        """Return the run after an update, which took place this long after the start."""
        return replace(
            self,
            state=update.state,
            recorded=self.recorded + len(update.records),
            evaluations=self.evaluations.plus(update.evaluations),
            initial_loss=self._initial_loss(update.state),
            setup_seconds=self.setup_seconds or seconds,
            ending=update.ending,
        )

    def rewound(self, update: Update, count: int) -> "_Run":
        """Return the run after the first `count` iterations of its last update."""
        dropped = update.records[count:]
        if not dropped or update.state_after is None:
            return self
        return replace(
            self,
            state=update.state_after(count),
            recorded=self.recorded - len(dropped),
            evaluations=self.evaluations.plus(total_evaluations(dropped).times(-1.0)),
        )

    def result(self, records: list[Record]) -> Result:
        """Return the result."""
        outcome, reason = self.ending or Ending(Outcome.STOPPED, "")
        return Result(
            # Cut into matrices on the host: on the device, that would be compiled.
            weights=sphere.unpack(jax.device_get(self.state.point.weights)),
            loss=self._loss(self.state),
            initial_loss=self.initial_loss,
            outcome=outcome,
            reason=reason,
            records=records,
            evaluations=self.evaluations,
            setup_seconds=self.setup_seconds,
            state=self.state,
        )

    def _initial_loss(self, state: State) -> float:
        return self._loss(state) if np.isinf(self.initial_loss) else self.initial_loss

    def _loss(self, state: State) -> float:
        return float(state.point.loss) * self.unit


@dataclass(frozen=True)
class _Watchers:
    """What a user attaches to a run."""

    callback: Callback | None
    observe: Observer | None
    checkpoint: Checkpoint | None

    def completed(self, update: Update) -> list[Record]:
        """Return the records of an update with the observer's measurements."""
        if self.observe is None:
            return list(update.records)
        pairs = zip(update.records, update.weights, strict=True)
        return [self.observe(record, sphere.unpack(weights)) for record, weights in pairs]

    def call_back(self, update: Update, records: list[Record]) -> tuple[int, Ending | None]:
        """Call back for each iteration; return the number of calls, and why they ended the run."""
        if self.callback is None:
            return len(records), None
        count = 0
        try:
            for count, (record, weights) in enumerate(zip(records, update.weights, strict=True), 1):
                if self.callback(record, sphere.unpack(weights)):
                    return count, Ending(Outcome.STOPPED, "the callback asked to stop")
        except KeyboardInterrupt:
            return count, INTERRUPTED
        return count, None

    def save(self, run: _Run, records: list[Record], *, now: bool = False) -> None:
        """Write the checkpoint, if there is one and if it is due."""
        if self.checkpoint is not None:
            write = self.checkpoint.write if now else self.checkpoint.write_if_due
            write(_without_rules(run.state), records)


def _follow(
    updates: Iterator[Update], run: _Run, records: list[Record], watchers: _Watchers
) -> Result:
    """Run the loop to its end: collect records, call back, write checkpoints."""
    started = time.perf_counter()
    try:
        for update in updates:
            new = watchers.completed(update)
            records += new
            run = run.after(update, time.perf_counter() - started)
            count, ending = watchers.call_back(update, new)
            if ending is not None:
                run = replace(run.rewound(update, count), ending=ending)
                del records[run.recorded :]
            watchers.save(run, records)
            if run.ending is not None:
                break
    except KeyboardInterrupt:
        del records[run.recorded :]  # those of an update that was interrupted
        run = replace(run, ending=INTERRUPTED)
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1:
            raise
        watchers.save(run, records, now=True)
        raise _lost_process(run.recorded + 1, watchers.checkpoint) from error
    result = run.result(records)
    log.info("%s after %d iterations: %s", result.outcome, run.recorded, result.reason)
    watchers.save(run, records, now=True)
    return result


def _lost_process(iteration: int, checkpoint: Checkpoint | None) -> LostProcess:
    """Return the error for an iteration that failed because another process has ended."""
    lost = LostProcess(
        f"iteration {iteration} did not end, because another process of the run has ended or "
        "cannot be reached: look for its error, and start all of them again"
    )
    if checkpoint is not None:
        lost.add_note(f"the checkpoint is {checkpoint.path}; resume it with resume=True")
    return lost


def _without_rules(state: State) -> State:
    """Return what a checkpoint holds; the states of the rules follow from the records."""
    return replace(state, stop=())


def _with_rules(state: State, stop: Rule, records: list[Record]) -> State:
    """Return a state to continue from, with the stopping rules updated by the records."""
    restarted = min(int(state.restarted), len(records))
    rules = stopping.replay(stop, records, restarted)
    # A checkpoint holds NumPy arrays.
    radii, restarted = jnp.asarray(state.radii), np.asarray(restarted, np.int32)
    return replace(state, radii=radii, stop=rules, restarted=restarted)


def _check_method(objective: Objective, direction: Any, step: Any, stop: Any) -> None:
    for name, given, method, example in (
        ("direction", direction, "choose", "directions.Steepest()"),
        ("step", step, "propose", "steps.Curvature()"),
        ("stop", stop, "fired", "stopping.MaxIter(200)"),
    ):
        if isinstance(given, type) or not callable(getattr(given, method, None)):
            raise TypeError(f"{name} is {given!r}; expected an object such as {example}")
    direction.check(objective)
    step.check(objective)


def _check_step_on_batches(step: Any) -> None:
    """Reject step rules that need all rows, or are not arguments of compiled programs."""
    if not isinstance(step, steps.LinearDecay):
        raise TypeError(
            f"step is {step!r} with small batches; expected steps.LinearDecay(total), with the "
            "number of steps: the loss of one batch does not tell how far to turn"
        )


def _checked_weights(problem: Any, weights: Tree) -> tuple[Tree, np.ndarray, np.dtype]:
    """Return the weights as arrays of the working precision, their radii, and the precision."""
    if isinstance(weights, Problem):
        raise TypeError(
            "weights is a Problem; expected the problem first: descend(problem, weights)"
        )
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
