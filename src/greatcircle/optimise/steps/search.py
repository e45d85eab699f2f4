"""Minimisers of a function of one variable on an interval, compiled and bounded.

`Brent` and `GoldenSection` return minimiser and minimum of any function; if it has several local
minima, one of them. `polynomial` returns the global minimiser of a polynomial.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

GOLDEN = (3 - math.sqrt(5)) / 2
MAX_EVALUATIONS = 100

__all__ = ["Brent", "GoldenSection", "Search", "brent", "golden", "polynomial"]

Function = Callable[[Array], Array]


class Search(Protocol):
    """A search for the minimum on an interval."""

    def minimise(
        self, function: Function, low: Array, high: Array, tolerance: float
    ) -> tuple[Array, Array]:
        """Return minimiser and minimum on [low, high]."""
        ...


@dataclass(frozen=True)
class Brent:
    """Brent's method: parabolas where trusted, otherwise golden section."""

    def minimise(
        self, function: Function, low: Array, high: Array, tolerance: float
    ) -> tuple[Array, Array]:
        """Return minimiser and minimum on [low, high]."""
        return brent(function, low, high, tolerance)


@dataclass(frozen=True)
class GoldenSection:
    """Golden-section search."""

    def minimise(
        self, function: Function, low: Array, high: Array, tolerance: float
    ) -> tuple[Array, Array]:
        """Return minimiser and minimum on [low, high]."""
        return golden(function, low, high, tolerance)


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
        best: Array
        second: Array
        third: Array
        at_best: Array
        at_second: Array
        at_third: Array
        last: Array  # the move of this step
        before: Array  # the move of the step before last
        evaluations: Array

    def going(numbers: Array) -> Array:
        s = State(*numbers)
        middle = (s.low + s.high) / 2
        far = jnp.abs(s.best - middle) > 2 * tolerance - (s.high - s.low) / 2
        return (s.evaluations == 0) | far & (s.evaluations < MAX_EVALUATIONS)

    def step(numbers: Array) -> Array:
        s = State(*numbers)
        middle = (s.low + s.high) / 2
        # Parabola through the three best points: its minimum lies at best + p / q.
        r = (s.best - s.second) * (s.at_best - s.at_third)
        q = (s.best - s.third) * (s.at_best - s.at_second)
        p = (s.best - s.third) * q - (s.best - s.second) * r
        q = 2 * (q - r)
        p, q = jnp.where(q > 0, -p, p), jnp.abs(q)
        inside = (p > q * (s.low - s.best)) & (p < q * (s.high - s.best))
        shrinking = jnp.abs(p) < jnp.abs(q * s.before / 2)
        trusted = (jnp.abs(s.before) > tolerance) & inside & shrinking
        parabolic = p / jnp.where(q > 0, q, 1)
        landing = s.best + parabolic
        near_end = (landing - s.low < 2 * tolerance) | (s.high - landing < 2 * tolerance)
        toward_middle = jnp.where(s.best < middle, tolerance, -tolerance)
        parabolic = jnp.where(near_end, toward_middle, parabolic)
        room = jnp.where(s.best < middle, s.high - s.best, s.low - s.best)
        move = jnp.where(trusted, parabolic, GOLDEN * room)
        # Never closer than the tolerance to the best point: nothing could be learned there.
        x = s.best + jnp.where(
            jnp.abs(move) >= tolerance, move, jnp.where(move > 0, tolerance, -tolerance)
        )
        # The first evaluation is in the loop, too, so that the function is compiled once.
        begun = s.evaluations > 0
        x = jnp.where(begun, x, s.best)
        fx = function(x)

        better = ~begun | (fx <= s.at_best)
        right = x >= s.best
        # The new point or the best one becomes an end: the one with the higher value.
        end = jnp.where(better, s.best, x)
        is_second = ~begun | (fx <= s.at_second) | (s.second == s.best)
        is_third = ~begun | (fx <= s.at_third) | (s.third == s.best) | (s.third == s.second)
        return _one_array(
            State(
                low=jnp.where(begun & (better == right), end, s.low),
                high=jnp.where(begun & (better != right), end, s.high),
                best=jnp.where(better, x, s.best),
                second=jnp.where(better, s.best, jnp.where(is_second, x, s.second)),
                third=jnp.where(better | is_second, s.second, jnp.where(is_third, x, s.third)),
                at_best=jnp.where(better, fx, s.at_best),
                at_second=jnp.where(
                    better & begun, s.at_best, jnp.where(is_second, fx, s.at_second)
                ),
                at_third=jnp.where(
                    (better | is_second) & begun, s.at_second, jnp.where(is_third, fx, s.at_third)
                ),
                last=jnp.where(begun, move, 0),
                before=jnp.where(begun, jnp.where(trusted, s.last, room), 0),
                evaluations=s.evaluations + 1,
            )
        )

    none, first = jnp.zeros_like(low), low + GOLDEN * (high - low)
    start = State(low, high, first, first, first, *6 * (none,))
    end = State(*jax.lax.while_loop(going, step, _one_array(start)))
    return end.best, end.at_best


def _one_array(numbers: tuple[Array, ...]) -> Array:
    """Numbers as an array that one kernel makes; `jnp.stack` would compile one for each."""
    place = np.arange(len(numbers))  # a constant of the program
    array = jnp.full(len(numbers), numbers[0])
    for i, number in enumerate(numbers[1:], start=1):
        array = jnp.where(place == i, number, array)
    return array


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
