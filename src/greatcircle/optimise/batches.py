"""Descent on parts of the rows that grow: a turn counts only if rows that did not choose it agree.

Every turn is chosen by one batch, direction and angle alike, and judged by the next one, which has
other rows. Where the loss of those does not fall, the batch that chose is asked: if its own loss
does not fall either, the turn was too long and is halved, as for all rows. Otherwise the batch was
too small to tell the way from its noise, and batches are `GROWTH` times as large from then on. That
is the whole rule. It has no schedule and no threshold, and what it looks at costs one forward pass.

When a batch would be half of all rows or more, all of them take over, by `descend`. Where there is
no such thing as all rows, or no room for them, batches stay at their largest size, and the descent
ends when several of them in a row refuse.

Batches of many rows that are in memory are chunks of them, in random order (`Windows`): they need
no copy, and all sizes share one program.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from greatcircle._runtime import allocator as memories
from greatcircle._runtime.precision import precision
from greatcircle._runtime.threads import one_thread
from greatcircle.data.sources import Source
from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Tree
from greatcircle.objective.chunks import chunks_of
from greatcircle.objective.objective import value_of
from greatcircle.objective.problem import Problem
from greatcircle.optimise import directions, steps, stopping
from greatcircle.optimise import loop as descent
from greatcircle.optimise.directions import Direction
from greatcircle.optimise.loop import (
    MAX_HALVINGS,
    Callback,
    Keep,
    Point,
    Result,
    descend,
    nowhere,
    on_host,
    record_of,
    result_at,
    spent_on,
    visit_point,
)
from greatcircle.optimise.record import Evaluations, Record
from greatcircle.optimise.steps import Step

GROWTH = 8
"""Each size of a batch that is read is compiled for itself, so there are few."""

REFUSALS = 3
"""So many refusals in a row by batches that cannot grow end the descent."""

ALL = 0
"""In place of a batch's rows: all rows have taken over."""


@dataclass(frozen=True)
class Chunks:
    """Neighbours among the chunks of a problem, of so many rows together."""

    first: int
    count: int
    rows: int

    def __len__(self) -> int:
        return self.rows


class Windows:
    """Chunks of a problem's rows in turn, whose order must be random: a source without copies."""

    def __init__(self, rows: int) -> None:
        self.chunks, self.size = chunks_of(rows)
        self._next = 0

    def draw(self, rows: int) -> Chunks:
        """The next chunks that have so many rows, those at the end perhaps fewer.

        They begin at a multiple of their number: so two in a row share no rows, up to half of all.
        """
        count = min(-(-rows // self.size), self.chunks)
        first = -(-self._next // count) * count
        first = first if first + count <= self.chunks else 0
        self._next = first + count
        return Chunks(first, count, count * self.size)

    @property
    def position(self) -> np.ndarray:
        """The next chunk."""
        return np.array([self._next])

    def seek(self, position: np.ndarray) -> None:
        """Restore a position."""
        self._next = int(position[0])


class State(NamedTuple):
    """All that is known between two batches, to go on from."""

    radii: Array
    point: Point
    rows: int
    """Of the next batch; with `ALL`, radii and point are a state of `descend`."""
    refusals: int
    """In a row, by batches that cannot grow."""
    place: np.ndarray
    """Where the source was before it drew the batch that has chosen the next turn."""


def descend_in_batches(
    source: Source | Windows,
    problem_of: Callable[[Any], Problem],
    weights: Tree,
    *,
    batch_size: int,
    largest: int,
    whole: Problem | None = None,
    direction: Direction | None = None,
    step: Step | None = None,
    stop: stopping.Rule | None = None,
    callback: Callback | None = None,
    memory: Any = None,
    state: State | None = None,
    records: Sequence[Record] = (),
    keep: Keep | None = None,
) -> Result:
    """Minimise a loss that only parts of the data are asked about.

    Parameters
    ----------
    source
        Where batches come from.
    problem_of
        Makes a problem of what is drawn, in the unit of all rows.
    weights
        Where to start.
    batch_size
        Rows of the first batches.
    largest
        Rows of the largest ones.
    whole
        The problem with all rows, which goes on when batches of `largest` rows no longer do; None
        where there is none.
    direction, step, stop, callback, memory
        As for `descend`. Records of batches have the loss of a batch that had no part in the turn.
    state, records, keep
        As for `descend`, too. The source is as it was when the run began: it is told where to go
        on from. `keep` is also called after a refusal, which adds no record.
    """

    def draw(rows: int) -> Problem | None:
        drawn = source.draw(rows)
        return None if drawn is None or len(drawn) < rows else problem_of(drawn)

    place = source.position
    first = draw(batch_size)
    if first is None:
        raise ValueError(
            f"batch_size is {batch_size} and there are fewer rows; expected enough for one batch: "
            "use a smaller one"
        )
    direction = direction or directions.automatic(whole or first)
    step = step or steps.Curvature()
    stop = stop or stopping.MaxIter(200) | stopping.DecreaseBelow(2e-3)
    direction.check(first)
    step.check(first)
    sizes = [np.linalg.norm(np.asarray(w, np.float64)) for w in weights]
    unit = float(first.unit)

    with precision(first.dtype), memories.kept(), one_thread():
        zero = jnp.zeros((), first.dtype)
        visit = partial(visit_point, direction=direction, step=step)
        started, ending, chooser = time.perf_counter(), None, first
        records, evaluations = list(records), Evaluations()
        initial_loss, setup_seconds = math.inf, 0.0
        begins = state is None
        if state is None:
            radii = jnp.asarray(sizes, first.dtype)
            state = State(radii, nowhere(weights, direction, memory), batch_size, 0, place)
        elif state.rows != batch_size or not np.array_equal(state.place, place):
            source.seek(state.place)  # unless `first` is the one, since sources only go forward
            with_batches = whole is None or ALL < state.rows < largest
            chooser = draw(state.rows) if with_batches else None
        try:
            if begins:
                accepted, point = visit(first, state.radii, state.point, zero)
                ending = None if accepted else ("non_finite", "the loss is not finite at the start")
                state = state._replace(point=point)
            initial_loss = float(state.point.loss) * unit
            setup_seconds = time.perf_counter() - started
            while not ending and (whole is None or ALL < state.rows < largest):
                radii, point, rows, refusals, place = state
                next_place = source.position
                judge = draw(rows)
                if ending := _ending(state, judge, records, stop):
                    break
                started = time.perf_counter()
                before = point._replace(loss=value_of(judge, sphere.unpack(point.weights)))
                accepted, moved = visit(judge, radii, before, before.angle)
                halvings, trials = 0, 1
                while not accepted and chooser and halvings < MAX_HALVINGS and _matters(before):
                    trials += 1
                    if visit(chooser, radii, point, before.angle)[0]:
                        break
                    before, halvings = before._replace(angle=before.angle / 2), halvings + 1
                    accepted, moved = visit(judge, radii, before, before.angle)
                    trials += 1
                spent = _spent(step, moved if accepted else None, trials, rows, whole)
                evaluations = evaluations.plus(spent)
                new = []
                if accepted:
                    seconds, angle = time.perf_counter() - started, float(before.angle)
                    done = len(records) + 1
                    new = [record_of(done, unit, before, moved, angle, halvings, spent, seconds)]
                    point, refusals, chooser, place = moved, 0, judge, next_place
                if not accepted or (whole and _gains_little([*records, *new], stop, rows, whole)):
                    refusals = 0 if rows < largest else refusals + 1
                    rows = min(GROWTH * rows, largest)
                    if whole is None or rows < largest:
                        # Stand where we are, with the eyes of another batch.
                        place, lost = source.position, jnp.full_like(point.loss, jnp.inf)
                        chooser = draw(rows) or judge
                        _, point = visit(chooser, radii, point._replace(loss=lost), zero)
                # Both at once and before anyone is asked: Ctrl-C must not find half of them.
                state, records = State(radii, point, rows, refusals, place), records + new
                if new and callback and callback(new[0], on_host(moved.weights)):
                    ending = "stopped", "the callback asked to stop"
                if keep:
                    keep(state, records)
        except KeyboardInterrupt:
            ending = "interrupted", "interrupted from the keyboard"
        reached = replace(
            result_at(state, unit, ending or ("", ""), records),
            initial_loss=initial_loss,
            evaluations=evaluations,
            setup_seconds=setup_seconds,
        )
    if whole is None:
        return reached
    if ending:  # what a batch has lost is not what all rows have
        return replace(reached, loss=float(whole.loss(reached.weights)))

    def with_all(state: tuple[Array, Point]) -> State:
        return State(*state, ALL, 0, reached.state.place)

    # Batches that gain little say little of all rows, whose records have a whole backward pass.
    of_batches = sum(record.backward < 1 for record in records)
    end = descend(
        whole,
        reached.weights,
        direction=direction,
        step=step,
        stop=stopping.since(stop, of_batches),
        callback=callback,
        memory=reached.memory,
        state=state[:2] if state.rows == ALL else None,
        records=records,
        keep=(lambda state, records: keep(with_all(state), records)) if keep else None,
    )
    return replace(
        end,
        initial_loss=initial_loss,
        evaluations=evaluations.plus(end.evaluations),
        setup_seconds=setup_seconds + end.setup_seconds,
        state=with_all(end.state),
    )


def start_of(
    problem: Problem, weights: Tree, direction: Direction, source: Source | Windows
) -> State:
    """A state of the form that a run has, to read one from a file by."""
    return State(*descent.start_of(problem, weights, direction), ALL, 0, source.position)


def _ending(
    state: State, judge: Problem | None, records: list[Record], stop: stopping.Rule
) -> tuple[str, str] | None:
    """Outcome and reason, when batches have nothing more to say."""
    point = state.point
    if judge is None:
        return "max_iter", "there are no more rows"
    if not (math.isfinite(float(point.slope)) and math.isfinite(float(point.angle))):
        return "non_finite", "the gradient or the angle is not finite"
    if state.refusals >= REFUSALS:
        return "converged", f"{REFUSALS} batches of {state.rows} rows in a row refused a turn"
    rule = stop.fired(records)
    return ("max_iter", repr(rule)) if rule and not rule.converged else None


def _matters(point: Point) -> bool:
    """Whether the turn leads downhill, and further than rounding can."""
    gain = -float(point.slope) * float(point.angle)
    return gain > 4 * float(jnp.finfo(point.loss.dtype).eps) * abs(float(point.loss))


def _gains_little(records: list[Record], stop: stopping.Rule, rows: int, whole: Problem) -> bool:
    """Whether a rule calls it converged, which for a batch means that a larger one should see.

    What smaller batches gained says nothing of batches of this size.
    """
    smaller = sum(record.backward < rows / whole.count for record in records)
    rule = stopping.since(stop, smaller).fired(records)
    return rule is not None and rule.converged


def _spent(
    step: Step, moved: Point | None, trials: int, rows: int, whole: Problem | None
) -> Evaluations:
    """A forward pass and one for each trial, and what standing costs.

    In passes over the data, or over a batch where there is no such thing as the data.
    """
    spent = Evaluations(forward=1 + trials)
    if moved is not None:
        spent = spent_on(spent.plus(Evaluations(backward=1)).plus(step.cost), moved)
    return spent if whole is None else spent.times(rows / whole.count)
