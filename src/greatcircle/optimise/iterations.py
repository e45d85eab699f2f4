"""Compiled iterations: gradient, direction, arc, step, turn and record, several per program.

`descending_iterations` accepts a step only if the loss falls, and otherwise halves its angle, as
the authors' program does. The accepted trial point is the next starting point, so nothing is
evaluated twice, and a rejected trial costs one forward pass. `sampled_iterations` takes every step,
each chosen by a random batch.

Both run in one program until something needs Python: dispatch, and the memory for intermediate
results, are paid once per program. All numbers that change between runs are arguments.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from greatcircle._runtime.precision import optimisation_level
from greatcircle.geometry import sphere
from greatcircle.geometry.great_circle import Arc
from greatcircle.geometry.sphere import Packed
from greatcircle.objective.objective import Objective
from greatcircle.optimise import arc as arcs
from greatcircle.optimise.arc import ArcStart
from greatcircle.optimise.directions import Direction, Position
from greatcircle.optimise.outcome import Status
from greatcircle.optimise.steps import Step
from greatcircle.optimise.stopping import Rule

__all__ = [
    "MAX_HALVINGS",
    "Batch",
    "Measured",
    "Point",
    "descending_iterations",
    "program_length",
    "sampled_iterations",
    "unevaluated",
]

MAX_HALVINGS = 30
"""After this many halvings a float32 angle no longer moves float32 weights."""

FULL_TURN = 2 * math.pi

MAX_LENGTH = 16
"""Largest number of iterations in one program."""

PROGRAM_OPERATIONS = 1.5e11
"""Floating-point operations of a program: at most about a second on two cores, as Ctrl-C waits."""

PRODUCTS = 6
"""Matrix products per layer and iteration: forward one, gradient two, second order three."""

Scalar = Float[Array, ""]
Radii = Float[Array, " layers"]


class Point(eqx.Module):
    """An accepted point, and the step to take from there."""

    weights: Packed
    heading: Packed
    direction_state: Any
    loss: Scalar
    slope: Scalar
    angle: Scalar
    curvature: Scalar
    predicted: Scalar
    products: Scalar
    """Gauss-Newton products that the direction used here."""
    iteration: Int[Array, ""]
    """Number of steps taken before this point."""


class Batch(eqx.Module):
    """The rows of one or several iterations."""

    objective: Objective
    """Judges whether the loss falls, and chooses the next step."""
    chooser: Objective | None = None
    """The rows that chose the step at hand; None if they are the same."""
    separate: bool | np.ndarray | Array = False
    """Whether `chooser` has other rows than `objective`."""


class Measured(NamedTuple):
    """What a program measures of each iteration; losses in units of that of the zero function."""

    loss: Array
    angle: Array
    slope: Array
    curvature: Array
    predicted: Array
    actual: Array
    halvings: Array
    forward: Array
    products: Array

    def in_unit(self, unit: Any) -> "Measured":
        """Return the same with losses multiplied by a unit."""
        return self._replace(**{name: getattr(self, name) * unit for name in self.IN_UNIT})

    IN_UNIT = ("loss", "slope", "curvature", "predicted", "actual")


class Result(NamedTuple):
    """What a program returns."""

    point: Point
    stop_state: Any
    status: Array
    """A `Status`."""
    recorded: Array
    """Number of iterations recorded."""
    measured: Measured
    """One entry per iteration, unused ones at the end."""
    weights: Float[Array, "iterations layers entries"]
    """Packed weights after each iteration."""
    forward: Array
    """Forward passes of trials after the last accepted point."""


class _Loop(NamedTuple):
    """What the compiled loop carries from one trial to the next."""

    point: Point
    angle: Array
    halvings: Array
    forward: Array
    reference: Array
    """Loss of the point on the rows that judge the step."""
    stop_state: Any
    status: Array
    recorded: Array
    measured: Measured
    weights: Array


def unevaluated(
    weights: Packed, direction: Direction, direction_state: Any = None, iteration: Any = 0
) -> Point:
    """Return a point whose loss is not known yet: a turn by zero leads to `weights`."""
    nan = jnp.full((), jnp.nan, weights.rows.dtype)
    return Point(
        weights=weights,
        heading=sphere.scale(weights, 0.0),
        direction_state=direction.init(weights) if direction_state is None else direction_state,
        loss=jnp.full_like(nan, jnp.inf),
        slope=nan,
        angle=jnp.zeros_like(nan),
        curvature=nan,
        predicted=nan,
        products=jnp.zeros_like(nan),
        iteration=jnp.asarray(iteration, jnp.int32),
    )


def program_length(rows: int, weights: Packed) -> int:
    """Return how many iterations a program has: by shapes alone, so that runs are reproducible."""
    entries = sum(math.prod(shape) for shape in weights.shapes)
    operations = 2 * PRODUCTS * max(rows, 1) * entries
    return max(1, min(MAX_LENGTH, int(PROGRAM_OPERATIONS / operations)))


# Higher levels take a second longer, and the program is no faster for it: its time is in matrix
# products, which come from a library.
@partial(
    jax.jit,
    static_argnames=("direction", "step", "length"),
    compiler_options=optimisation_level(1),
)
def descending_iterations(
    batch: Batch,
    radii: Radii,
    point: Point,
    stop: Rule,
    stop_state: Any,
    limit: Int[Array, ""] | int,
    *,
    direction: Direction,
    step: Step,
    length: int,
) -> Result:
    """Iterate until `limit` iterations are recorded or something ends them.

    A point that is not evaluated yet is evaluated first, which is not recorded.
    """
    objective = batch.objective
    is_start = jnp.isinf(point.loss)
    reference = _judged(batch, point)

    def trial(loop: _Loop) -> _Loop:
        point, angle = loop.point, loop.angle
        arc = Arc(point.weights, point.heading, radii)
        weights = arc.point(angle)
        matrices = sphere.unpack(weights)
        loss, cache = objective.forward(matrices)
        # A full turn leads back to the start, where rounding may feign a decrease.
        accepted = jnp.isfinite(loss) & (loss < loop.reference) & (angle < FULL_TURN)

        def accept() -> _Loop:
            decrease = loop.reference - loss
            new = _evaluate(
                objective,
                radii,
                arc,
                angle,
                weights,
                (loss, cache, decrease),
                point,
                direction,
                step,
            )
            return _record(objective, loop, new, stop)

        def reject() -> _Loop:
            halvings = loop.halvings + 1
            start = jnp.isinf(loop.reference)
            exhausted = jnp.where(start, Status.NON_FINITE_LOSS, Status.NO_DECREASE)
            status = jnp.where(start | (halvings > MAX_HALVINGS), exhausted, Status.RUNNING)
            forward = loop.forward + 1
            if batch.chooser is not None:
                refused, asked = _refused(batch, point, angle, loop.reference, matrices)
                status = jnp.where(refused & ~start, Status.REFUSED, status)
                forward = forward + asked
            return loop._replace(
                angle=angle / 2, halvings=halvings, forward=forward, status=status.astype(jnp.int32)
            )

        return jax.lax.cond(accepted, accept, reject)

    status = _status(point, stop, stop_state)
    counts = jnp.zeros(length, jnp.int32)
    values = jnp.full(length, jnp.nan, point.loss.dtype)
    # A batch is asked for the loss of the point, too.
    asked = 0 if batch.chooser is None else jnp.asarray(batch.separate, jnp.int32)
    begin = _Loop(
        point=point,
        angle=point.angle,
        halvings=jnp.zeros((), jnp.int32),
        forward=jnp.zeros((), jnp.int32) + asked,
        reference=reference,
        stop_state=stop_state,
        status=jnp.where(is_start, Status.RUNNING, status).astype(jnp.int32),
        # The evaluation of a starting point is not recorded.
        recorded=jnp.where(is_start, -1, 0).astype(jnp.int32),
        measured=Measured(
            loss=values,
            angle=values,
            slope=values,
            curvature=values,
            predicted=values,
            actual=values,
            halvings=counts,
            forward=counts,
            products=values,
        ),
        weights=jnp.zeros((length, *point.weights.rows.shape), point.weights.rows.dtype),
    )
    end = jax.lax.while_loop(
        lambda loop: (loop.status == Status.RUNNING) & (loop.recorded < limit), trial, begin
    )
    return Result(
        end.point,
        end.stop_state,
        end.status,
        jnp.maximum(end.recorded, 0),
        end.measured,
        end.weights,
        end.forward,
    )


@partial(jax.jit, static_argnames=("direction", "length"), compiler_options=optimisation_level(1))
def sampled_iterations(
    rows: Any, radii: Radii, point: Point, *, direction: Direction, step: Step, length: int
) -> tuple[Point, Array]:
    """Take `length` steps, each chosen by another random batch; return the largest last angle.

    The loss of the returned point is that of all rows. The step is a pytree, so that other numbers
    in it compile nothing.
    """

    def take(point: Point, _: None) -> tuple[Point, Array]:
        objective = rows.at(point.iteration)
        matrices = sphere.unpack(point.weights)
        loss, cache = objective.forward(matrices)
        still = Arc(point.weights, sphere.scale(point.weights, 0.0), radii)
        zero = jnp.zeros_like(loss)
        before = (loss, cache, jnp.full_like(loss, jnp.inf))
        here = _evaluate(
            objective, radii, still, zero, point.weights, before, point, direction, step, steps=0
        )
        arc = Arc(here.weights, here.heading, radii)
        moved = eqx.tree_at(
            lambda p: (p.weights, p.iteration),
            here,
            (arc.point(here.angle), here.iteration + 1),
        )
        return moved, jnp.max(here.angle * sphere.norm(here.heading))

    point, angles = jax.lax.scan(take, point, None, length=length)
    loss = rows.objective.value(sphere.unpack(point.weights))
    return eqx.tree_at(lambda p: p.loss, point, loss), angles[-1]


def _evaluate(
    objective: Objective,
    radii: Radii,
    arc: Arc,
    angle: Array,
    weights: Packed,
    evaluated: tuple[Array, Any, Array],
    last: Point,
    direction: Direction,
    step: Step,
    steps: int = 1,
) -> Point:
    """Return the point at `weights`: its gradient, the heading from there, and the angle."""
    loss, cache, decrease = evaluated
    gradient, cache = objective.backward(sphere.unpack(weights), cache)
    gradient = sphere.pack(gradient)
    tangent = sphere.scale(sphere.project(weights, gradient, radii), radii)
    position = Position(objective, weights, tangent, cache, radii, arc, angle, decrease)
    choice = direction.choose(position, last.direction_state)
    onward = Arc(weights, choice.heading, radii)
    slope = arcs.slope(onward, gradient)
    iteration = last.iteration + jnp.where(jnp.isinf(last.loss), 0, steps).astype(jnp.int32)
    start = ArcStart(objective, onward, gradient, cache, loss, slope, iteration)
    proposal = step.propose(start)
    products = jnp.asarray(choice.products, loss.dtype)
    return Point(weights, choice.heading, choice.state, loss, slope, *proposal, products, iteration)


def _record(objective: Objective, loop: _Loop, new: Point, stop: Rule) -> _Loop:
    """Return the loop after an accepted step."""
    old = loop.point
    row = Measured(
        loss=new.loss,
        angle=loop.angle,
        slope=old.slope,
        curvature=old.curvature,
        predicted=old.predicted,
        actual=loop.reference - new.loss,
        halvings=loop.halvings,
        forward=loop.forward + 1,
        products=new.products,
    )
    is_start = loop.recorded < 0
    updated = stop.update(loop.stop_state, row.in_unit(jnp.asarray(objective.unit, row.loss.dtype)))
    stop_state = jax.tree.map(
        lambda a, b: jnp.where(is_start, a, b.astype(a.dtype)), loop.stop_state, updated
    )
    # Index -1 of the starting point would be the last entry: it is dropped.
    place = jnp.where(is_start, len(loop.measured.loss), loop.recorded)
    measured = jax.tree.map(
        lambda column, value: column.at[place].set(value.astype(column.dtype), mode="drop"),
        loop.measured,
        row,
    )
    return _Loop(
        point=new,
        angle=new.angle,
        halvings=jnp.zeros_like(loop.halvings),
        forward=jnp.zeros_like(loop.forward),
        reference=new.loss,
        stop_state=stop_state,
        status=_status(new, stop, stop_state),
        recorded=loop.recorded + 1,
        measured=measured,
        weights=loop.weights.at[place].set(new.weights.rows, mode="drop"),
    )


def _status(point: Point, stop: Rule, stop_state: Any) -> Array:
    """Return whether a point is the last, by its gradient, the rules and the angle from there."""
    conditions = (
        (~jnp.isfinite(point.slope), Status.NON_FINITE_GRADIENT),
        (point.slope == 0, Status.ZERO_GRADIENT),
        (stop.fired(stop_state), Status.RULE_FIRED),
        (point.slope > 0, Status.UPHILL),
        (~jnp.isfinite(point.angle), Status.NON_FINITE_ANGLE),
        (point.angle <= 0, Status.NO_ANGLE),
    )
    status = jnp.asarray(Status.RUNNING, jnp.int32)
    for condition, found in reversed(conditions):
        status = jnp.where(condition, jnp.int32(found), status)
    return status


def _judged(batch: Batch, point: Point) -> Array:
    """Return the loss of the point on the rows that judge the next step."""
    if batch.chooser is None:
        return point.loss
    return jax.lax.cond(
        batch.separate & jnp.isfinite(point.loss),
        lambda: batch.objective.value(sphere.unpack(point.weights)),
        lambda: point.loss,
    )


def _refused(
    batch: Batch, point: Point, angle: Array, reference: Array, matrices: Any
) -> tuple[Array, Array]:
    """Return whether the rows that chose the step accept it, and how often they were asked.

    A step too small to matter is refused without asking.
    """
    digits = 4 * jnp.finfo(reference.dtype).eps
    matters = -point.slope * angle > digits * jnp.abs(reference)
    separate = jnp.asarray(batch.separate)

    def ask() -> Array:
        chooser = batch.objective if batch.chooser is None else batch.chooser
        return chooser.value(matrices) < point.loss

    asked = separate & matters & (angle < FULL_TURN)
    accepts = jax.lax.cond(asked, ask, lambda: jnp.asarray(False))
    return separate & (~matters | accepts), asked.astype(jnp.int32)
