"""Minimisers of a function of one variable on an interval, compiled and bounded.

`Brent` and `GoldenSection` return minimiser and minimum of any function; if it has several local
minima, one of them. `polynomial_minimiser` returns the global minimiser of a polynomial.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

__all__ = ["MAX_EVALUATIONS", "Brent", "GoldenSection", "Search", "polynomial_minimiser"]

Scalar = Float[Array, ""]
Coefficients = Float[Array, " coefficients"]
"""Coefficient k belongs to t^k."""
Function = Callable[[Array], Array]

GOLDEN = (3 - math.sqrt(5)) / 2

MAX_EVALUATIONS = 100


@runtime_checkable
class Search(Protocol):
    """A search for the minimum on an interval."""

    def minimise(
        self, function: Function, low: Array, high: Array, tolerance: float
    ) -> tuple[Array, Array]:
        """Return minimiser and minimum on [low, high]."""
        ...


class _GoldenState(NamedTuple):
    """A bracket with two points inside it."""

    low: Scalar
    high: Scalar
    left: Scalar
    right: Scalar
    at_left: Scalar
    at_right: Scalar
    evaluations: Array


@dataclass(frozen=True)
class GoldenSection:
    """Golden-section search (Kiefer 1953): the bracket shrinks by 0.618 at each evaluation."""

    def minimise(
        self, function: Function, low: Scalar, high: Scalar, tolerance: float
    ) -> tuple[Scalar, Scalar]:
        """Return minimiser and minimum on [low, high]."""

        def inner(low: Array, high: Array) -> tuple[Array, Array]:
            return low + GOLDEN * (high - low), high - GOLDEN * (high - low)

        def shrink(s: _GoldenState) -> _GoldenState:
            keep_left = s.at_left <= s.at_right
            low, high = jnp.where(keep_left, s.low, s.left), jnp.where(keep_left, s.right, s.high)
            left, right = inner(low, high)
            new = function(jnp.where(keep_left, left, right))
            at_left = jnp.where(keep_left, new, s.at_right)
            at_right = jnp.where(keep_left, s.at_left, new)
            return _GoldenState(low, high, left, right, at_left, at_right, s.evaluations + 1)

        def unfinished(s: _GoldenState) -> Array:
            return (s.high - s.low > 2 * tolerance) & (s.evaluations < MAX_EVALUATIONS)

        left, right = inner(low, high)
        start = _GoldenState(
            low, high, left, right, function(left), function(right), jnp.asarray(2)
        )
        end = jax.lax.while_loop(unfinished, shrink, start)
        left_is_best = end.at_left <= end.at_right
        return jnp.where(left_is_best, end.left, end.right), jnp.minimum(end.at_left, end.at_right)


class _BrentState(NamedTuple):
    """A bracket, its three best points, and the last two moves."""

    low: Array
    high: Array
    best: Array
    second: Array
    third: Array
    at_best: Array
    at_second: Array
    at_third: Array
    last_move: Array
    move_before: Array
    evaluations: Array


@dataclass(frozen=True)
class Brent:
    """Brent's method (1973, chapter 5): parabolas where trusted, otherwise golden section."""

    def minimise(
        self, function: Function, low: Scalar, high: Scalar, tolerance: float
    ) -> tuple[Scalar, Scalar]:
        """Return minimiser and minimum on [low, high]."""

        def unfinished(numbers: Array) -> Array:
            s = _BrentState(*numbers)
            middle = (s.low + s.high) / 2
            far = jnp.abs(s.best - middle) > 2 * tolerance - (s.high - s.low) / 2
            return (s.evaluations == 0) | far & (s.evaluations < MAX_EVALUATIONS)

        def improve(numbers: Array) -> Array:
            s = _BrentState(*numbers)
            move, move_before = _brent_move(s, tolerance)
            # Never closer than the tolerance to the best point: the values could not differ.
            x = s.best + jnp.where(
                jnp.abs(move) >= tolerance, move, jnp.where(move > 0, tolerance, -tolerance)
            )
            # The first point is evaluated here as well, so that the function is compiled once.
            x = jnp.where(s.evaluations > 0, x, s.best)
            return _one_array(_brent_update(s, x, function(x), move, move_before))

        zero, first = jnp.zeros_like(low), low + GOLDEN * (high - low)
        start = _BrentState(low, high, first, first, first, *6 * (zero,))
        end = _BrentState(*jax.lax.while_loop(unfinished, improve, _one_array(start)))
        return end.best, end.at_best


def _brent_move(s: _BrentState, tolerance: float) -> tuple[Array, Array]:
    """Return the next move from the best point, and the one to remember as the last."""
    middle = (s.low + s.high) / 2
    # Parabola through the three best points: its minimum lies at best + p / q.
    r = (s.best - s.second) * (s.at_best - s.at_third)
    q = (s.best - s.third) * (s.at_best - s.at_second)
    p = (s.best - s.third) * q - (s.best - s.second) * r
    q = 2 * (q - r)
    p, q = jnp.where(q > 0, -p, p), jnp.abs(q)
    inside = (p > q * (s.low - s.best)) & (p < q * (s.high - s.best))
    shrinking = jnp.abs(p) < jnp.abs(q * s.move_before / 2)
    trusted = (jnp.abs(s.move_before) > tolerance) & inside & shrinking
    parabolic = p / jnp.where(q > 0, q, 1)
    landing = s.best + parabolic
    near_end = (landing - s.low < 2 * tolerance) | (s.high - landing < 2 * tolerance)
    toward_middle = jnp.where(s.best < middle, tolerance, -tolerance)
    parabolic = jnp.where(near_end, toward_middle, parabolic)
    room = jnp.where(s.best < middle, s.high - s.best, s.low - s.best)
    move = jnp.where(trusted, parabolic, GOLDEN * room)
    return move, jnp.where(trusted, s.last_move, room)


def _brent_update(
    s: _BrentState, x: Array, fx: Array, move: Array, move_before: Array
) -> _BrentState:
    """Return the state after the evaluation of a point."""
    started = s.evaluations > 0
    better = ~started | (fx <= s.at_best)
    # The worse of the new point and the best one becomes an end of the bracket.
    end, right = jnp.where(better, s.best, x), x >= s.best
    is_second = ~started | (fx <= s.at_second) | (s.second == s.best)
    is_third = ~started | (fx <= s.at_third) | (s.third == s.best) | (s.third == s.second)
    at_second = jnp.where(is_second, fx, s.at_second)
    at_third = jnp.where(is_third, fx, s.at_third)
    return _BrentState(
        low=jnp.where(started & (better == right), end, s.low),
        high=jnp.where(started & (better != right), end, s.high),
        best=jnp.where(better, x, s.best),
        second=jnp.where(better, s.best, jnp.where(is_second, x, s.second)),
        third=jnp.where(better | is_second, s.second, jnp.where(is_third, x, s.third)),
        at_best=jnp.where(better, fx, s.at_best),
        at_second=jnp.where(better & started, s.at_best, at_second),
        at_third=jnp.where((better | is_second) & started, s.at_second, at_third),
        last_move=jnp.where(started, move, 0),
        move_before=jnp.where(started, move_before, 0),
        evaluations=s.evaluations + 1,
    )


def _one_array(numbers: tuple[Array, ...]) -> Float[Array, " numbers"]:
    """Return numbers as one array, made by one kernel; `jnp.stack` would compile one for each."""
    index = np.arange(len(numbers))  # a constant of the program
    array = jnp.full(len(numbers), numbers[0])
    for i, number in enumerate(numbers[1:], start=1):
        array = jnp.where(index == i, number, array)
    return array


def polynomial_minimiser(coefficients: Coefficients, upper: float) -> Scalar:
    """Return the global minimiser over [0, upper] of Σ coefficients[k] t^k.

    It compares all stationary points and both ends. Of equal minima, the smallest t wins.
    """
    powers = jnp.arange(len(coefficients))
    scaled = coefficients * upper ** powers.astype(coefficients.dtype)
    scaled = scaled / jnp.max(jnp.abs(scaled[1:]), initial=jnp.finfo(scaled.dtype).tiny)
    ends = jnp.asarray([0.0, 1.0], scaled.dtype)
    candidates = jnp.sort(jnp.concatenate([ends, _roots(_derivative(scaled))]))
    return upper * candidates[jnp.argmin(_evaluate(scaled.at[0].set(0), candidates))]


def _roots(coefficients: Coefficients) -> Float[Array, " points"]:
    """Return sorted points of [0, 1] that contain every sign change of the polynomial.

    Between two neighbouring stationary points a polynomial is monotone, so the roots of its
    derivative, found the same way, separate its own. This works with vanishing leading
    coefficients, where companion matrices do not, and on every device.
    """
    if len(coefficients) <= 1:
        return jnp.zeros((0,), coefficients.dtype)
    ends = jnp.asarray([0.0, 1.0], coefficients.dtype)
    knots = jnp.concatenate([ends[:1], _roots(_derivative(coefficients)), ends[1:]])
    low, high = knots[:-1], knots[1:]
    rising = _evaluate(coefficients, low) <= 0

    def halve(_: Array | int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
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
    """Return the polynomial at t, by Horner's rule."""
    value = jnp.zeros_like(t)
    for k in reversed(range(len(coefficients))):
        value = value * t + coefficients[k]
    return value
