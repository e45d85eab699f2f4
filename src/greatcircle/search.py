"""Minimum of a function of one variable on an interval, compiled and bounded.

`golden` and `brent` give minimiser and minimum of any function: the only one where the function is
unimodal, otherwise one of its local ones. `polynomial` finds the global minimiser of a polynomial.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

GOLDEN = (3 - math.sqrt(5)) / 2
MAX_EVALUATIONS = 100

Function = Callable[[Array], Array]


def golden(function: Function, low: Array, high: Array, tolerance: float) -> tuple[Array, Array]:
    """Golden-section search (Kiefer 1953): the bracket shrinks by 0.618 each evaluation."""

    class State(NamedTuple):
        low: Array
        high: Array
        left: Array
        right: Array
        at_left: Array
        at_right: Array
        evaluations: Array

    def inner(low: Array, high: Array) -> tuple[Array, Array]:
        return low + GOLDEN * (high - low), high - GOLDEN * (high - low)

    def shrink(s: State) -> State:
        keep_left = s.at_left <= s.at_right
        low, high = jnp.where(keep_left, s.low, s.left), jnp.where(keep_left, s.right, s.high)
        left, right = inner(low, high)
        new = function(jnp.where(keep_left, left, right))
        return State(
            low,
            high,
            left,
            right,
            jnp.where(keep_left, new, s.at_right),
            jnp.where(keep_left, s.at_left, new),
            s.evaluations + 1,
        )

    left, right = inner(low, high)
    start = State(low, high, left, right, function(left), function(right), jnp.asarray(2))
    end = jax.lax.while_loop(
        lambda s: (s.high - s.low > 2 * tolerance) & (s.evaluations < MAX_EVALUATIONS),
        shrink,
        start,
    )
    left_is_best = end.at_left <= end.at_right
    return jnp.where(left_is_best, end.left, end.right), jnp.minimum(end.at_left, end.at_right)


def brent(function: Function, low: Array, high: Array, tolerance: float) -> tuple[Array, Array]:
    """Brent's method (1973, chapter 5): parabolas where trusted, else golden section."""

    class State(NamedTuple):
        low: Array
        high: Array
        points: Array  # the best, the second and the third
        values: Array  # there
        last: Array  # the move of this step
        before: Array  # the move of the step before last
        evaluations: Array

    def going(s: State) -> Array:
        middle = (s.low + s.high) / 2
        far = jnp.abs(s.points[0] - middle) > 2 * tolerance - (s.high - s.low) / 2
        return (s.evaluations == 0) | far & (s.evaluations < MAX_EVALUATIONS)

    def step(s: State) -> State:
        best, second, third = s.points
        at_best, at_second, at_third = s.values
        middle = (s.low + s.high) / 2
        # Parabola through the three best points: its minimum lies at best + p / q.
        r = (best - second) * (at_best - at_third)
        q = (best - third) * (at_best - at_second)
        p = (best - third) * q - (best - second) * r
        q = 2 * (q - r)
        p, q = jnp.where(q > 0, -p, p), jnp.abs(q)
        inside = (p > q * (s.low - best)) & (p < q * (s.high - best))
        shrinking = jnp.abs(p) < jnp.abs(q * s.before / 2)
        trusted = (jnp.abs(s.before) > tolerance) & inside & shrinking
        parabolic = p / jnp.where(q > 0, q, 1)
        landing = best + parabolic
        near_end = (landing - s.low < 2 * tolerance) | (s.high - landing < 2 * tolerance)
        toward_middle = jnp.where(best < middle, tolerance, -tolerance)
        parabolic = jnp.where(near_end, toward_middle, parabolic)
        room = jnp.where(best < middle, s.high - best, s.low - best)
        move = jnp.where(trusted, parabolic, GOLDEN * room)
        before = jnp.where(trusted, s.last, room)
        # Never closer than the tolerance to the best point: nothing could be learned there.
        x = best + jnp.where(
            jnp.abs(move) >= tolerance, move, jnp.where(move > 0, tolerance, -tolerance)
        )
        # The first evaluation is in the loop, too, so that the function is compiled once.
        begun = s.evaluations > 0
        x = jnp.where(begun, x, best)
        fx = function(x)

        better = fx <= at_best
        right = x >= best
        # The new point or the best one becomes an end: the one with the higher value.
        end = jnp.where(better, best, x)
        low = jnp.where(begun & (better == right), end, s.low)
        high = jnp.where(begun & (better != right), end, s.high)
        is_second = (fx <= at_second) | (second == best)
        is_third = (fx <= at_third) | (third == best) | (third == second)
        rank = jnp.where(better, 0, jnp.where(is_second, 1, jnp.where(is_third, 2, 3)))

        def ranked(old: Array, new: Array) -> Array:
            place = jnp.arange(3)
            moved_up = jnp.where(place < rank, old, jnp.where(place == rank, new, jnp.roll(old, 1)))
            return jnp.where(begun, moved_up, new)

        return State(
            low,
            high,
            ranked(s.points, x),
            ranked(s.values, fx),
            last=jnp.where(begun, move, 0),
            before=jnp.where(begun, before, 0),
            evaluations=s.evaluations + 1,
        )

    none = jnp.zeros_like(low)
    first = jnp.full((3,), low + GOLDEN * (high - low))
    start = State(low, high, first, jnp.zeros_like(first), none, none, jnp.asarray(0))
    end = jax.lax.while_loop(going, step, start)
    return end.points[0], end.values[0]


def polynomial(coefficients: Array, upper: float) -> Array:
    """Global minimiser over [0, upper] of Σ coefficients[k] t^k: stationary points and both ends.

    Among equals the smallest t wins.
    """
    powers = jnp.arange(len(coefficients))
    scaled = coefficients * upper ** powers.astype(coefficients.dtype)
    scaled = scaled / jnp.max(jnp.abs(scaled[1:]), initial=jnp.finfo(scaled.dtype).tiny)
    ends = jnp.asarray([0.0, 1.0], scaled.dtype)
    candidates = jnp.sort(jnp.concatenate([ends, _roots(_derivative(scaled))]))
    return upper * candidates[jnp.argmin(_evaluate(scaled.at[0].set(0), candidates))]


def _roots(coefficients: Array) -> Array:
    """Sorted points of [0, 1] that contain every sign change of the polynomial.

    Between two neighbouring stationary points a polynomial is monotone, so the roots of its
    derivative, found the same way, separate its own. Works with vanishing leading coefficients,
    where companion matrices do not, and on every device.
    """
    if len(coefficients) <= 1:
        return jnp.zeros((0,), coefficients.dtype)
    ends = jnp.asarray([0.0, 1.0], coefficients.dtype)
    knots = jnp.concatenate([ends[:1], _roots(_derivative(coefficients)), ends[1:]])
    low, high = knots[:-1], knots[1:]
    rising = _evaluate(coefficients, low) <= 0

    def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        right = (_evaluate(coefficients, middle) <= 0) == rising
        return jnp.where(right, middle, low), jnp.where(right, high, middle)

    # Enough to reach neighbouring floats for every root above 2^-60.
    digits = jnp.finfo(coefficients.dtype).nmant + 60
    low, high = jax.lax.fori_loop(0, digits, halve, (low, high))
    return (low + high) / 2


def _derivative(coefficients: Array) -> Array:
    return coefficients[1:] * jnp.arange(1, len(coefficients), dtype=coefficients.dtype)


def _evaluate(coefficients: Array, t: Array) -> Array:
    """Horner's rule."""
    value = jnp.zeros_like(t)
    for k in reversed(range(len(coefficients))):
        value = value * t + coefficients[k]
    return value
