"""The largest slope that can be found: no bound can be below it, so it says how tight a bound is.

The Jacobian of a network of `relu` is constant between kinks and has no gradient to follow. The
quotient ‖f(x + v) − f(x − v)‖ / 2‖v‖ has one, because pairs straddle kinks: it is ascended in x by
steps along its gradient and in v by the power method, from many starts at once, while v shrinks.
Then Jacobians are computed where it led, and the largest of their norms is the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from greatcircle._runtime.precision import optimisation_level, precision
from greatcircle.certificate.stack import Stack, chosen_inputs, fitted_model, stack
from greatcircle.network.activations.builtin import Activation

STEPS = 200
"""Steps of the ascent."""

RADII = (0.1, 0.3, 1.0, 3.0)
"""How far from the middle of the data the starts are, in units of the network's inputs."""

WIDEST, NARROWEST = 1.0, 1e-2
"""‖v‖ at the first and the last step, in parts of ‖x‖."""

SCREENED = 16
"""Random points for each start; half of the starts are the steepest of them."""

BATCH = 256
"""Rows whose Jacobians are computed at a time."""

TURNS = 10
"""Steps of the power method before x moves."""

KINK = 1e-12
"""A unit whose |z| is a smaller part of its terms may be at a kink, where no branch decides."""


@dataclass(frozen=True)
class Lower:
    """A slope that the network has somewhere.

    Parameters
    ----------
    value
        The operator norm of the Jacobian there, in units of y per unit of X.
    at
        The input.
    method
        "lower".
    """

    value: float
    at: np.ndarray
    method: str = "lower"

    def __str__(self) -> str:
        return f"{self.value:.6g} ({self.method}, no bound can be below it)"


def lower(
    weights: Any,
    *,
    biases: Sequence[ArrayLike] | None = None,
    activation: str | Activation | None = None,
    inputs: Sequence[str | int] | None = None,
    at_least: float | None = None,
    orientation: str | None = None,
    starts: int = 256,
    seed: int = 0,
    X: ArrayLike | None = None,
) -> Lower:
    """The largest Jacobian norm found by ascent from many starts.

    Parameters
    ----------
    weights, biases, activation, inputs, at_least, orientation
        As for `tight`, and the result is in the same units.
    starts
        How many random points to start from.
    seed
        Which ones.
    X
        Rows to start from besides, in their own units.

    Examples
    --------
    >>> from greatcircle import certificate
    >>> round(certificate.lower([[[1.0, -1.0]], [[1.0], [-2.0]]], starts=8).value, 6)
    2.0
    """
    of = stack(weights, biases, activation, inputs, at_least, orientation)
    if isinstance(starts, bool) or not isinstance(starts, int | np.integer) or starts < 1:
        raise ValueError(f"starts is {starts!r}; expected a whole number from 1 up")
    model = fitted_model(weights)
    on_sphere = model is not None and model.scaling.name == "paper"
    moving = of.active
    if on_sphere and inputs is not None:
        moving = chosen_inputs(inputs, model.feature_names, len(moving))
    rng = np.random.default_rng(seed)
    radius = np.resize(RADII, SCREENED * starts)[:, None]
    y = radius * rng.standard_normal((SCREENED * starts, len(of.scale)))
    y = y if X is None else np.vstack([_scaled(X, of), y])
    with precision(np.float64):
        f = _Function(
            tuple(map(jnp.asarray, of.weights)),
            tuple(map(jnp.asarray, of.biases or (np.zeros(w.shape[1]) for w in of.weights))),
            jnp.asarray(np.where(moving, of.scale, 0.0)),
            jnp.asarray(of.gain),
            of.activation,
            on_sphere,
        )
        norms = _norms(f, y)
        steepest = np.argsort(-norms)[: (starts + 1) // 2]
        y = np.vstack([y[steepest], y[len(y) - starts // 2 :]])
        ways = jnp.asarray(rng.standard_normal((len(y) + STEPS, y.shape[1])))
        ends = _ascended(f, jnp.asarray(y), ways)
        y = np.vstack([y, ends])
        norms = _norms(f, y)
    best = int(np.argmax(norms))
    return Lower(float(norms[best]), _in_units(y[best], of, on_sphere))


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["weights", "biases", "scale", "gain"],
    meta_fields=["activation", "on_sphere"],
)
@dataclass(frozen=True)
class _Function:
    """The network in units of y per unit of X, for rows of scaled inputs."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    scale: Array
    """Zero for inputs that do not vary."""
    gain: Array
    activation: Activation
    on_sphere: bool
    """Whether inputs are divided by their norms."""

    def at(self, y: Array) -> "_Place":
        h = _unit(y) if self.on_sphere else y
        inwards, slopes, clear = h, [], jnp.ones(len(y), bool)
        for i, (w, b) in enumerate(zip(self.weights[:-1], self.biases[:-1], strict=True)):
            z, size = h @ w + b, jnp.abs(h) @ jnp.abs(w) + jnp.abs(b)
            # A unit that gets nothing but zeros from units that are off stays where it is.
            clear &= jnp.all((jnp.abs(z) > KINK * size) | ((size == 0) & (i > 0)), axis=1)
            slopes.append(self.activation.slope(z))
            h = self.activation(z)
        outputs = self.gain * (h @ self.weights[-1] + self.biases[-1])
        return _Place(outputs, tuple(slopes), inwards, clear)

    def push(self, at: "_Place", v: Array) -> Array:
        """J v."""
        h = self._tangent(at, v * self.scale)
        for w, slope in zip(self.weights[:-1], at.slopes, strict=True):
            h = (h @ w) * slope
        return self.gain * (h @ self.weights[-1])

    def pull(self, at: "_Place", u: Array) -> Array:
        """Jᵀ u."""
        h = self.gain * (u @ self.weights[-1].T)
        for w, slope in zip(self.weights[-2::-1], at.slopes[::-1], strict=True):
            h = (h * slope) @ w.T
        return self._tangent(at, h) * self.scale

    def _tangent(self, at: "_Place", h: Array) -> Array:
        if not self.on_sphere:
            return h
        return h - jnp.sum(h * at.inputs, axis=1, keepdims=True) * at.inputs


class _Place(NamedTuple):
    """What the network does at each row."""

    outputs: Array
    slopes: tuple[Array, ...]
    inputs: Array
    clear: Array
    """Whether no unit is at a kink."""


def _norms(f: _Function, y: np.ndarray) -> np.ndarray:
    """Operator norm of the Jacobian at each row; zero at kinks."""
    norms = []
    for some in np.split(y, range(BATCH, len(y), BATCH)):
        padded = np.resize(some, (BATCH, y.shape[1]))
        grams, clear = (np.asarray(a)[: len(some)] for a in _grams(f, jnp.asarray(padded)))
        largest = np.linalg.eigvalsh(grams)[:, -1]
        norms.append(np.where(clear, np.sqrt(np.maximum(largest, 0.0)), 0.0))
    return np.concatenate(norms)


@partial(jax.jit, compiler_options=optimisation_level(0))
def _grams(f: _Function, y: Array) -> tuple[Array, Array]:
    """J Jᵀ or JᵀJ, whichever is smaller, at each row, and whether no unit is at a kink."""
    at = f.at(y)
    count = at.outputs.shape[1]
    each = jax.tree.map(lambda a: jnp.repeat(a, count, axis=0), at)
    J = f.pull(each, jnp.tile(jnp.eye(count), (len(y), 1))).reshape(len(y), count, -1)
    form = "boi,bpi->bop" if count <= J.shape[2] else "boi,boj->bij"
    return jnp.einsum(form, J, J), at.clear


@partial(jax.jit, compiler_options=optimisation_level(0))
def _ascended(f: _Function, y: Array, ways: Array) -> Array:
    """Where each start led; `ways` are random directions to try."""
    rows = len(y)
    radius = jnp.maximum(jnp.linalg.norm(y, axis=1, keepdims=True), 1e-3)

    def turned(y: Array, v: Array) -> tuple[Array, Array]:
        """Slopes along v, and v after one step of the power method."""
        at = f.at(y)
        along = f.push(at, _unit(v))
        back = f.pull(at, along)
        return jnp.linalg.norm(along, axis=1), jnp.where(jnp.any(back, 1, keepdims=True), back, v)

    def step(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        y, v = state
        width = radius * WIDEST * (NARROWEST / WIDEST) ** (k / (STEPS - 1))
        pair = width * _unit(f.scale * v)
        ends = f.at(jnp.concatenate([y + pair, y - pair]))
        rise = ends.outputs[:rows] - ends.outputs[rows:]
        pulled = f.pull(ends, jnp.concatenate([rise, rise]))
        uphill = pulled[:rows] - pulled[rows:]
        anywhere = jax.lax.dynamic_slice_in_dim(ways, k, rows)
        there = jnp.concatenate([y, y + width * _unit(uphill), y + width * _unit(anywhere)])
        slopes, turns = turned(there, jnp.tile(v, (3, 1)))
        best = rows * jnp.argmax(slopes.reshape(3, rows), axis=0) + jnp.arange(rows)
        return there[best], turns[best]

    v = jax.lax.fori_loop(0, TURNS, lambda _, v: turned(y, v)[1], ways[:rows])
    return jax.lax.fori_loop(0, STEPS, step, (y, v))[0]


def _unit(v: Array) -> Array:
    length = jnp.linalg.norm(v, axis=1, keepdims=True)
    return v / jnp.where(length > 0, length, 1.0)


def _scaled(X: ArrayLike, of: Stack) -> np.ndarray:
    try:
        rows = np.asarray(X, np.float64)
    except (TypeError, ValueError):
        rows = np.array(np.nan)
    if rows.ndim != 2 or rows.shape[1] != len(of.scale) or not np.all(np.isfinite(rows)):
        raise ValueError(
            f"X has the shape {rows.shape}; expected finite rows of {len(of.scale)} inputs"
        )
    return (rows - of.shift) * of.scale


def _in_units(y: np.ndarray, of: Stack, on_sphere: bool) -> np.ndarray:
    if on_sphere:
        y = y / np.linalg.norm(y)
    spread = np.divide(1.0, of.scale, out=np.zeros_like(of.scale), where=of.scale != 0)
    return of.shift + y * spread
