"""Descent on parts of the rows that grow: a turn counts only if rows that did not choose it agree.

Every turn is chosen by one batch, direction and angle alike, and judged by the next one, which has
other rows. Where the loss of those does not fall, the batch was too small to tell the way from its
noise: the turn is refused, and batches are `GROWTH` times as large from then on. That is the whole
rule. It has no schedule and no threshold, and what it looks at costs one forward pass.

When a batch would be half of all rows or more, all of them take over, by `descend`. Where there is
no such thing as all rows, or no room for them, batches stay at their largest size, and the descent
ends when several of them in a row refuse.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from greatcircle import directions, sphere, steps, stopping
from greatcircle.descent import (
    Callback,
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
from greatcircle.directions import Direction
from greatcircle.precision import precision
from greatcircle.problem import Problem, value_of
from greatcircle.record import Evaluations, Record
from greatcircle.sphere import Tree
from greatcircle.steps import Step

GROWTH = 8
"""Each size is compiled for itself, so there are few."""

REFUSALS = 3
"""So many refusals in a row by batches that cannot grow end the descent."""

Draw = Callable[[int], Problem | None]
"""A problem with so many rows, other ones each time; None when there are no more."""


def descend_in_batches(
    draw: Draw,
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
) -> Result:
    """Minimise a loss that only parts of the data are asked about.

    Parameters
    ----------
    draw
        Gives a problem with so many rows, in the unit of all of them.
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
    """
    first = draw(batch_size)
    if first is None:
        raise ValueError("there are no rows to train on: the first batch is empty")
    direction = direction or directions.automatic(whole or first)
    step = step or steps.Curvature()
    stop = stop or stopping.MaxIter(200) | stopping.DecreaseBelow(5e-3)
    direction.check(first)
    step.check(first)
    sizes = [np.linalg.norm(np.asarray(w, np.float64)) for w in weights]
    unit = float(first.unit)

    with precision(first.dtype):
        radii, zero = jnp.asarray(sizes, first.dtype), jnp.zeros((), first.dtype)
        visit = partial(visit_point, direction=direction, step=step)
        started = time.perf_counter()
        accepted, point = visit(first, radii, nowhere(weights, direction, memory), zero)
        ending = None if accepted else ("non_finite", "the loss is not finite at the start")
        initial_loss, setup_seconds = float(point.loss) * unit, time.perf_counter() - started
        records, evaluations, refusals = [], Evaluations(), 0
        try:
            while not ending and (whole is None or batch_size < largest):
                judge = draw(batch_size)
                if ending := _ending(point, judge, records, stop, largest, refusals):
                    break
                started = time.perf_counter()
                before = point._replace(loss=value_of(judge, sphere.unpack(point.weights)))
                accepted, moved = visit(judge, radii, before, before.angle)
                spent = _spent(step, moved if accepted else None, batch_size, whole)
                evaluations = evaluations.plus(spent)
                if accepted:
                    seconds, angle = time.perf_counter() - started, float(before.angle)
                    done = len(records) + 1
                    records.append(record_of(done, unit, before, moved, angle, 0, spent, seconds))
                    point, refusals = moved, 0
                    if callback and callback(records[-1], on_host(point.weights)):
                        ending = "stopped", "the callback asked to stop"
                if not accepted or (whole and _gains_little(records, stop)):
                    refusals = 0 if batch_size < largest else refusals + 1
                    batch_size = min(GROWTH * batch_size, largest)
                    if whole is None or batch_size < largest:
                        # Stand where we are, with the eyes of another batch.
                        other = draw(batch_size)
                        _, point = visit(other or judge, radii, point._replace(loss=jnp.inf), zero)
        except KeyboardInterrupt:
            ending = "interrupted", "interrupted from the keyboard"
        reached = replace(
            result_at((radii, point), unit, ending or ("", ""), records),
            initial_loss=initial_loss,
            evaluations=evaluations,
            setup_seconds=setup_seconds,
        )
    if ending or whole is None:
        return reached
    end = descend(
        whole,
        reached.weights,
        direction=direction,
        step=step,
        stop=stop,
        callback=callback,
        memory=reached.memory,
        records=records,
    )
    return replace(
        end,
        initial_loss=initial_loss,
        evaluations=evaluations.plus(end.evaluations),
        setup_seconds=setup_seconds + end.setup_seconds,
    )


def _ending(
    point: Point,
    judge: Problem | None,
    records: list[Record],
    stop: stopping.Rule,
    largest: int,
    refusals: int,
) -> tuple[str, str] | None:
    """Outcome and reason, when batches have nothing more to say."""
    if judge is None:
        return "max_iter", "there are no more rows"
    if not (math.isfinite(float(point.slope)) and math.isfinite(float(point.angle))):
        return "non_finite", "the gradient or the angle is not finite"
    if refusals >= REFUSALS:
        return "converged", f"{REFUSALS} batches of {largest} rows in a row refused a turn"
    rule = stop.fired(records)
    return ("max_iter", repr(rule)) if rule and not rule.converged else None


def _gains_little(records: list[Record], stop: stopping.Rule) -> bool:
    """Whether a rule calls it converged, which for a batch means that a larger one should see."""
    rule = stop.fired(records)
    return rule is not None and rule.converged


def _spent(step: Step, moved: Point | None, rows: int, whole: Problem | None) -> Evaluations:
    """Two forward passes, and what standing costs, in passes over the data or over a batch."""
    spent = Evaluations(forward=2)
    if moved is not None:
        spent = spent_on(spent.plus(Evaluations(backward=1)).plus(step.cost), moved)
    return spent if whole is None else spent.times(rows / len(whole.inputs))
