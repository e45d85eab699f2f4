"""Compiled iterations: gradient, direction, arc, step, turn and record, several per program.

`descending_iterations` accepts a step only if the loss falls, and otherwise halves its angle, as
the authors' program does. The accepted trial point is the next starting point, so nothing is
evaluated twice, and a rejected trial costs one forward pass. `sampled_iterations` accepts every
step; each is chosen by a random batch.

A program runs several iterations before it returns to Python, so dispatch and memory for
intermediate results are paid once per program. All numbers that change between runs are arguments.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec
from jaxtyping import Float, Int

from greatcircle._runtime.precision import optimisation_level
from greatcircle.geometry import sphere
from greatcircle.geometry.great_circle import Arc
from greatcircle.geometry.sphere import Packed
from greatcircle.objective.chunks import AXIS
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
    "ProgramResult",
    "block_length",
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
"""Floating-point operations of a program: at most about a second on two cores, for Ctrl-C."""

PRODUCTS = 6
"""Matrix products per layer and iteration: forward one, gradient two, second order three."""

MAX_STEPS = 128
"""Largest number of steps on small batches in one program."""

Scalar = Float[Array, ""]
Radii = Float[Array, " layers"]


class Point(eqx.Module):
    """An accepted point, and the step to take from there."""

    weights: Packed
    heading: Packed
    direction_state: Any
    loss: Scalar
    """Infinite at a point that has not been evaluated."""
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
    """Decides whether the loss falls, and chooses the next step."""
    chooser: Objective | None = None
    """The rows that chose the current step; None on all rows."""
    separate: bool | np.ndarray | Array = False
    """Whether `chooser` has other rows than `objective`."""


class Measured(NamedTuple):
    """Measurements of each iteration; losses are in units of that of the zero function."""

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
        """Return the measurements with losses multiplied by a unit."""
        return self._replace(**{name: getattr(self, name) * unit for name in self.IN_UNIT})

    IN_UNIT = ("loss", "slope", "curvature", "predicted", "actual")

    @classmethod
    def empty(cls, length: int, dtype: Any) -> "Measured":
        """Return space for the measurements of a number of iterations."""
        counts, values = jnp.zeros(length, jnp.int32), jnp.full(length, jnp.nan, dtype)
        return cls(
            loss=values,
            angle=values,
            slope=values,
            curvature=values,
            predicted=values,
            actual=values,
            halvings=counts,
            forward=counts,
            products=values,
        )


class ProgramResult(NamedTuple):
    """The result of `descending_iterations`."""

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


class _LoopState(NamedTuple):
    """State of the loop over trials."""

    point: Point
    angle: Array
    halvings: Array
    forward: Array
    """Forward passes since the last accepted point."""
    reference: Array
    """Loss of the point on the rows that accept or reject the step."""
    stop_state: Any
    status: Array
    recorded: Array
    """Number of iterations recorded; −1 before the starting point has been evaluated."""
    measured: Measured
    weights: Array


class _Trial(NamedTuple):
    """A point at an angle along an arc, and its loss."""

    arc: Arc
    angle: Array
    weights: Packed
    loss: Array
    cache: Any
    decrease: Array
    """Decrease of the loss along the arc; infinite at a starting point."""
    iteration: Array
    """Number of steps taken before this point."""


def unevaluated(
    weights: Packed, direction: Direction, direction_state: Any = None, iteration: Any = 0
) -> Point:
    """Return a point whose loss is not known yet: a turn by zero leads to `weights`."""
    # Made in NumPy, because every operation of JAX outside a program would be compiled.
    zero = np.zeros((), weights.rows.dtype)
    numbers = (np.full_like(zero, np.nan), np.full_like(zero, np.inf), zero)
    nan, infinite, zero, steps = jax.device_put((*numbers, np.asarray(iteration, np.int32)))
    return Point(
        weights=weights,
        heading=sphere.zeros_like(weights),
        direction_state=direction.init(weights) if direction_state is None else direction_state,
        loss=infinite,
        slope=nan,
        angle=zero,
        curvature=nan,
        predicted=nan,
        products=zero,
        iteration=steps,
    )


def program_length(rows: int | None, weights: Packed) -> int:
    """Return the number of iterations of a program, from shapes alone: runs are reproducible.

    A custom loss without rows (None) may cost anything: its programs have one iteration.
    """
    if rows is None:
        return 1
    entries = sum(math.prod(shape) for shape in weights.shapes)
    operations = 2 * PRODUCTS * max(rows, 1) * entries
    return max(1, min(MAX_LENGTH, int(PROGRAM_OPERATIONS / operations)))


def block_length(rows: int, weights: Packed) -> int:
    """Return the number of steps of a program on batches of this many rows, a power of two."""
    entries = sum(math.prod(shape) for shape in weights.shapes)
    affordable = PROGRAM_OPERATIONS / (4 * PRODUCTS * max(rows, 1) * entries)
    return 2 ** int(math.log2(min(max(affordable, 1), MAX_STEPS)))


# Higher levels compile a second longer without a faster program: its time is in matrix products,
# which come from a library.
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
) -> ProgramResult:
    """Iterate until `limit` iterations are recorded or the run must end.

    A point that has not been evaluated is evaluated first, which is not recorded.
    """
    method = _Method(batch, radii, stop, direction, step)
    end = jax.lax.while_loop(
        lambda loop: (loop.status == Status.RUNNING) & (loop.recorded < limit),
        method.try_step,
        method.first_state(point, stop_state, length),
    )
    return ProgramResult(
        end.point,
        end.stop_state,
        end.status,
        jnp.maximum(end.recorded, 0),
        end.measured,
        end.weights,
        end.forward,
    )


@partial(jax.jit, static_argnames=("direction",), compiler_options=optimisation_level(1))
def sampled_iterations(
    block: Any,
    count: Int[Array, ""] | int,
    radii: Radii,
    point: Point,
    *,
    direction: Direction,
    step: Step,
) -> tuple[Point, Array]:
    """Take `count` steps, each chosen by one batch of a block; return the point and the last angle.

    The loss of the point is the mean of the losses of the batches, each before its step. The step
    rule is a pytree, so that other numbers in it compile nothing. Of several devices each takes
    steps on a block of its own, from the same point, and the result is the mean of their points.
    The mean of k steps is about as long as one, so with k devices each step is k times as long, and
    counts as k steps.
    """
    steps = partial(_sampled_steps, direction, step, block.devices)
    if block.mesh is None:
        return steps(block, count, radii, point)

    def on_device(block: Any, count: Array, radii: Radii, point: Point) -> tuple[Point, Array]:
        moved, angle = steps(block, count, radii, point)
        return _mean_of_devices(moved, radii), angle

    sharded, replicated = PartitionSpec(AXIS), PartitionSpec()
    rows = jax.tree.map(lambda _: sharded, block.objective.rows)
    specs = eqx.tree_at(lambda b: b.objective.rows, jax.tree.map(lambda _: replicated, block), rows)
    return jax.shard_map(
        on_device,
        mesh=block.mesh,
        in_specs=(specs, replicated, replicated, replicated),
        out_specs=replicated,
        check_vma=False,
    )(block, jnp.asarray(count), radii, point)


def _sampled_steps(
    direction: Direction,
    step: Step,
    devices: int,
    block: Any,
    count: Any,
    radii: Radii,
    point: Point,
) -> tuple[Point, Array]:
    """Take `count` steps on the batches of a block."""

    def take(number: Array, carry: tuple[Point, Array, Array]) -> tuple[Point, Array, Array]:
        point, total, _ = carry
        objective, tree = block.at(number), sphere.unpack(point.weights)
        loss, cache = objective.forward(tree)
        gradient, cache = objective.backward(tree, cache)
        gradient = sphere.pack(gradient)
        tangent = sphere.scale(sphere.project(point.weights, gradient, radii), radii)
        last, nan = Arc(point.weights, point.heading, radii), jnp.full_like(loss, jnp.nan)
        position = Position(objective, point.weights, tangent, cache, radii, last, nan, nan)
        choice = direction.choose(position, point.direction_state)
        arc = Arc(point.weights, choice.heading, radii)
        start = ArcStart(objective, arc, gradient, cache, loss, nan, point.iteration)
        angle = devices * step.propose(start).angle
        moved = eqx.tree_at(
            lambda p: (p.weights, p.direction_state, p.iteration),
            point,
            (arc.point(angle), choice.state, point.iteration + devices),
        )
        return moved, total + loss, angle

    zero = jnp.zeros_like(point.loss)
    point, total, angle = jax.lax.fori_loop(0, count, take, (point, zero, zero))
    return eqx.tree_at(lambda p: p.loss, point, total / count), angle


def _mean_of_devices(point: Point, radii: Radii) -> Point:
    """Return the mean over all devices; the state of the direction is that of the first."""
    is_first = jax.lax.axis_index(AXIS) == 0
    state = jax.tree.map(lambda a: jnp.where(is_first, a, 0), point.direction_state)
    # All sums in one message: its latency dominates, not its size.
    summed, unravel = ravel_pytree((point.weights, point.loss, state))
    weights, loss, state = unravel(jax.lax.psum(summed, AXIS))
    return eqx.tree_at(
        lambda p: (p.weights, p.loss, p.direction_state),
        point,
        (sphere.normalise(weights, radii), loss / jax.lax.axis_size(AXIS), state),
    )


@dataclass(frozen=True)
class _Method:
    """Everything that stays the same during a program."""

    batch: Batch
    radii: Radii
    stop: Rule
    direction: Direction
    step: Step

    def first_state(self, point: Point, stop_state: Any, length: int) -> _LoopState:
        """Return the state before the first trial."""
        is_start = jnp.isinf(point.loss)
        status = jnp.where(is_start, Status.RUNNING, self._status(point, stop_state))
        # On a batch, the loss of the point takes a forward pass, too.
        forward = 0 if self.batch.chooser is None else jnp.asarray(self.batch.separate, jnp.int32)
        zero = jnp.zeros((), jnp.int32)
        return _LoopState(
            point=point,
            angle=point.angle,
            halvings=zero,
            forward=zero + forward,
            reference=self._reference(point),
            stop_state=stop_state,
            status=status.astype(jnp.int32),
            recorded=jnp.where(is_start, -1, 0).astype(jnp.int32),
            measured=Measured.empty(length, point.loss.dtype),
            weights=jnp.zeros((length, *point.weights.rows.shape), point.weights.rows.dtype),
        )

    def try_step(self, loop: _LoopState) -> _LoopState:
        """Evaluate the loss at the current angle, and accept or reject the point."""
        arc = Arc(loop.point.weights, loop.point.heading, self.radii)
        weights = arc.point(loop.angle)
        loss, cache = self.batch.objective.forward(sphere.unpack(weights))
        steps = jnp.where(jnp.isinf(loop.point.loss), 0, 1).astype(jnp.int32)
        decrease, iteration = loop.reference - loss, loop.point.iteration + steps
        trial = _Trial(arc, loop.angle, weights, loss, cache, decrease, iteration)
        # A full turn leads back to the start, where rounding may look like a decrease.
        accepted = jnp.isfinite(loss) & (loss < loop.reference) & (loop.angle < FULL_TURN)
        return jax.lax.cond(
            accepted, lambda: self._accept(loop, trial), lambda: self._reject(loop, weights)
        )

    def _accept(self, loop: _LoopState, trial: _Trial) -> _LoopState:
        """Evaluate the point, record the iteration, and check whether to stop."""
        old, objective = loop.point, self.batch.objective
        new = _evaluate(objective, trial, old.direction_state, self.direction, self.step)
        row = Measured(
            loss=new.loss,
            angle=loop.angle,
            slope=old.slope,
            curvature=old.curvature,
            predicted=old.predicted,
            actual=trial.decrease,
            halvings=loop.halvings,
            forward=loop.forward + 1,
            products=new.products,
        )
        is_start = loop.recorded < 0
        unit = jnp.asarray(objective.unit, row.loss.dtype)
        updated = self.stop.update(loop.stop_state, row.in_unit(unit))
        stop_state = jax.tree.map(
            lambda a, b: jnp.where(is_start, a, b.astype(a.dtype)), loop.stop_state, updated
        )
        # The starting point is not recorded: `drop` ignores a place past the end, unlike −1.
        place = jnp.where(is_start, len(loop.measured.loss), loop.recorded)
        measured = jax.tree.map(
            lambda column, value: column.at[place].set(value.astype(column.dtype), mode="drop"),
            loop.measured,
            row,
        )
        return _LoopState(
            point=new,
            angle=new.angle,
            halvings=jnp.zeros_like(loop.halvings),
            forward=jnp.zeros_like(loop.forward),
            reference=new.loss,
            stop_state=stop_state,
            status=self._status(new, stop_state),
            recorded=loop.recorded + 1,
            measured=measured,
            weights=loop.weights.at[place].set(new.weights.rows, mode="drop"),
        )

    def _reject(self, loop: _LoopState, weights: Packed) -> _LoopState:
        """Halve the angle, or end the program."""
        halvings, forward = loop.halvings + 1, loop.forward + 1
        is_start = jnp.isinf(loop.reference)
        exhausted = jnp.where(is_start, Status.NON_FINITE_LOSS, Status.NO_DECREASE)
        status = jnp.where(is_start | (halvings > MAX_HALVINGS), exhausted, Status.RUNNING)
        if self.batch.chooser is not None:
            too_noisy, passes = self._too_noisy(loop, weights)
            status = jnp.where(too_noisy & ~is_start, Status.TOO_NOISY, status)
            forward = forward + passes
        return loop._replace(
            angle=loop.angle / 2,
            halvings=halvings,
            forward=forward,
            status=status.astype(jnp.int32),
        )

    def _status(self, point: Point, stop_state: Any) -> Array:
        """Return whether to stop at a point: by its gradient, the rules, or its next angle."""
        conditions = (
            (~jnp.isfinite(point.slope), Status.NON_FINITE_GRADIENT),
            (point.slope == 0, Status.ZERO_GRADIENT),
            (self.stop.fired(stop_state), Status.RULE_FIRED),
            (point.slope > 0, Status.UPHILL),
            (~jnp.isfinite(point.angle), Status.NON_FINITE_ANGLE),
            (point.angle <= 0, Status.NO_ANGLE),
        )
        status = jnp.asarray(Status.RUNNING, jnp.int32)
        for condition, found in reversed(conditions):
            status = jnp.where(condition, jnp.int32(found), status)
        return status

    def _reference(self, point: Point) -> Array:
        """Return the loss of the point on the rows that accept or reject the next step."""
        if self.batch.chooser is None:
            return point.loss
        return jax.lax.cond(
            self.batch.separate & jnp.isfinite(point.loss),
            lambda: self.batch.objective.value(sphere.unpack(point.weights)),
            lambda: point.loss,
        )

    def _too_noisy(self, loop: _LoopState, weights: Packed) -> tuple[Array, Array]:
        """Return whether the batch is too small, and the forward passes that takes.

        It is if the step lowers the loss of the rows that chose it, but not of other rows, or if it
        is so small that rounding decides.
        """
        point, chooser = loop.point, self.batch.chooser
        separate = jnp.asarray(self.batch.separate)
        digits = 4 * jnp.finfo(loop.reference.dtype).eps
        matters = -point.slope * loop.angle > digits * jnp.abs(loop.reference)
        evaluate = separate & matters & (loop.angle < FULL_TURN)
        falls = jax.lax.cond(
            evaluate,
            lambda: chooser.value(sphere.unpack(weights)) < point.loss,  # pyright: ignore
            lambda: jnp.asarray(False),
        )
        return separate & (~matters | falls), evaluate.astype(jnp.int32)


def _evaluate(
    objective: Objective, trial: _Trial, direction_state: Any, direction: Direction, step: Step
) -> Point:
    """Return the point of a trial with its gradient, the heading from there, and the angle."""
    arc, weights, loss, radii = trial.arc, trial.weights, trial.loss, trial.arc.radii
    gradient, cache = objective.backward(sphere.unpack(weights), trial.cache)
    gradient = sphere.pack(gradient)
    tangent = sphere.scale(sphere.project(weights, gradient, radii), radii)
    position = Position(objective, weights, tangent, cache, radii, arc, trial.angle, trial.decrease)
    choice = direction.choose(position, direction_state)
    onward = Arc(weights, choice.heading, radii)
    slope = arcs.slope(onward, gradient)
    start = ArcStart(objective, onward, gradient, cache, loss, slope, trial.iteration)
    proposal = step.propose(start)
    products = jnp.asarray(choice.products, loss.dtype)
    return Point(
        weights, choice.heading, choice.state, loss, slope, *proposal, products, trial.iteration
    )
