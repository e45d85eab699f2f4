"""A lower bound on the Lipschitz constant: the largest Jacobian norm found by gradient ascent.

No Lipschitz bound can be below it, so it tells how tight a bound is. The Jacobian of a `relu`
network is constant between kinks and gives no gradient to follow. The quotient
‖f(x + v) − f(x − v)‖ / 2‖v‖ does, because pairs straddle kinks. It is maximised over x by gradient
steps and over v by the power method, from many starts at once, while ‖v‖ shrinks. The result is the
largest Jacobian norm at the end points and at the starts.

If the network clips its inputs, every point is moved to the nearest one inside the box, which has
the derivatives of the points beside it. Outputs that are clipped have no derivatives.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from greatcircle._runtime.threads import one_thread
from greatcircle.certificate.scaled_network import ScaledNetwork, as_scaled_network
from greatcircle.data.saturation import Saturation
from greatcircle.network.activations.builtin import Activation

__all__ = ["Lower", "lower"]

STEPS = 200
"""Steps of the ascent."""

RADII = (0.1, 0.3, 1.0, 3.0)
"""Distances of the starts from the centre of the data, in units of the network's inputs."""

FIRST_WIDTH, LAST_WIDTH = 1.0, 1e-2
"""‖v‖ at the first and the last step, relative to ‖x‖."""

SCREENED = 16
"""Random candidates per start; the steepest candidates become half of the starts."""

POWER_STEPS = 10
"""Steps of the power method before x moves."""

CHUNK_ENTRIES = 2**20
"""Largest number of entries of the Jacobians that are computed at once."""

KINK = 1e-12
"""A unit may be at a kink if |z| is smaller than this part of the sum of its terms' sizes."""


@dataclass(frozen=True)
class Lower:
    """The norm of the Jacobian at some input.

    Parameters
    ----------
    value
        The operator norm, in units of y per unit of X.
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
    min_input_norm: float | None = None,
    orientation: str | None = None,
    starts: int = 256,
    seed: int = 0,
    X: ArrayLike | None = None,
) -> Lower:
    """Return the largest Jacobian norm found by ascent from many starts.

    Parameters
    ----------
    weights, biases, activation, inputs, min_input_norm, orientation
        As for `tight`, and the result is in the same units.
    starts
        Number of random starts.
    seed
        Seed of the random starts.
    X
        Rows that are starts as well, in their own units.

    Examples
    --------
    >>> from greatcircle import certificate
    >>> round(certificate.lower([[[1.0, -1.0]], [[1.0], [-2.0]]], starts=8).value, 6)
    2.0
    """
    network = as_scaled_network(weights, biases, activation, inputs, min_input_norm, orientation)
    if isinstance(starts, bool) or not isinstance(starts, int | np.integer) or starts < 1:
        raise ValueError(f"starts is {starts!r}; expected a whole number of at least 1")
    rng = np.random.default_rng(seed)
    rows = np.empty((0, len(network.scale))) if X is None else _scaled_rows(X, network)
    with (
        one_thread()
    ):  # several threads wait for one another on a busy machine: 3 to 7 times slower
        y, norms = _search(_Function(network), rows, int(starts), rng)
    best = int(np.argmax(norms))
    return Lower(float(norms[best]), _in_units_of_X(y[best], network))


def _search(
    f: "_Function", rows: np.ndarray, starts: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts and the points that the ascent leads to, with their Jacobian norms."""
    radius = np.resize(RADII, SCREENED * starts)[:, None]
    y = np.vstack([rows, radius * rng.standard_normal((SCREENED * starts, rows.shape[1]))])
    steepest = np.argsort(-_jacobian_norms(f, y))[: (starts + 1) // 2]
    y = np.vstack([y[steepest], y[len(y) - starts // 2 :]])
    directions = rng.standard_normal((len(y) + STEPS, y.shape[1]))
    y = np.vstack([y, _ascend(f, y, directions)])
    return y, _jacobian_norms(f, y)


@dataclass(frozen=True)
class _Linearisation:
    """Values and slopes of a network at each row."""

    directions: np.ndarray | None
    """x/‖x‖ of each row, for a network that normalises its inputs."""
    slopes: list[np.ndarray]
    outputs: np.ndarray
    moves: np.ndarray | float
    """One for outputs that are not clipped, zero for the others."""
    away_from_kinks: np.ndarray


@dataclass(frozen=True)
class _Function:
    """A network in units of y per unit of X, as a function of rows of scaled inputs."""

    network: ScaledNetwork

    @cached_property
    def scale(self) -> np.ndarray:
        """Factor of each input; zero for inputs that do not vary."""
        return np.where(self.network.varying, self.network.scale, 0.0)

    @cached_property
    def layers(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Weights (fan_in, fan_out) and biases, with the gain in the last layer."""
        weights = [np.ascontiguousarray(w) for w in self.network.weights]
        biases = list(self.network.biases or (np.zeros(w.shape[1]) for w in weights))
        gain = self.network.gain
        weights[-1], biases[-1] = weights[-1] * gain, biases[-1] * gain
        return list(zip(weights, biases, strict=True))

    @cached_property
    def clipping(self) -> Saturation:
        """Intervals of the scaled inputs, and of the outputs without their shift."""
        network, given = self.network, self.network.saturation
        lower = upper = output_lower = output_upper = None
        if given.lower is not None and given.upper is not None:
            ends = [(end - network.shift) * network.scale for end in (given.lower, given.upper)]
            lower, upper = np.sort(ends, axis=0)
        if given.output_lower is not None and given.output_upper is not None:
            output_lower = given.output_lower - network.output_shift
            output_upper = given.output_upper - network.output_shift
        return Saturation(lower, upper, output_lower, output_upper)

    def linearise(self, y: np.ndarray, kinks: bool = False) -> _Linearisation:
        """Evaluate the network and its slopes; with `kinks`, tell which rows are away from them."""
        activation, slopes = self.network.activation, []
        y = self.clipping.inputs(y)
        h = directions = _unit(y) if self.network.normalises_inputs else y
        clear = np.ones(len(y), bool)
        with np.errstate(all="ignore"):
            for i, (w, b) in enumerate(self.layers[:-1]):
                z = h @ w + b
                if kinks:
                    size = np.abs(h) @ np.abs(w) + np.abs(b)
                    # A unit whose inputs are all zero, from units that are off, stays where it is.
                    off = (size == 0) & (i > 0)
                    clear &= np.all((np.abs(z) > KINK * size) | off, axis=1)
                h = np.asarray(activation.function(z, np))
                slopes.append(np.asarray(activation.derivative(z, h, np)))
        w, b = self.layers[-1]
        known = directions if self.network.normalises_inputs else None
        outputs = h @ w + b
        return _Linearisation(
            known, slopes, self.clipping.outputs(outputs), self._moving(outputs), clear
        )

    def _moving(self, outputs: np.ndarray) -> np.ndarray | float:
        """Return 0 for outputs at the ends of their ranges or outside, and 1 inside."""
        lower, upper = self.clipping.output_lower, self.clipping.output_upper
        if lower is None or upper is None:
            return 1.0
        return np.where((outputs > lower) & (outputs < upper), 1.0, 0.0)

    def jvp(self, at: _Linearisation, v: np.ndarray) -> np.ndarray:
        """Return J v for each row; leading axes of v are further vectors for the same row."""
        h = _tangent(at, v * self.scale)
        for (w, _), slope in zip(self.layers[:-1], at.slopes, strict=True):
            h = (h @ w) * slope
        return (h @ self.layers[-1][0]) * at.moves

    def vjp(self, at: _Linearisation, u: np.ndarray) -> np.ndarray:
        """Return Jᵀ u for each row; leading axes of u are further vectors for the same row."""
        h = (u * at.moves) @ self.layers[-1][0].T
        for (w, _), slope in zip(self.layers[-2::-1], at.slopes[::-1], strict=True):
            h = (h * slope) @ w.T
        return _tangent(at, h) * self.scale


def _tangent(at: _Linearisation, h: np.ndarray) -> np.ndarray:
    """Remove the part along x, which x/‖x‖ does not see."""
    if at.directions is None:
        return h
    return h - np.sum(h * at.directions, axis=-1, keepdims=True) * at.directions


def _jacobian_norms(f: _Function, y: np.ndarray) -> np.ndarray:
    """Return the operator norm of the Jacobian at each row; zero at kinks."""
    inputs, outputs = y.shape[1], f.layers[-1][0].shape[1]
    product, count = (f.vjp, outputs) if outputs <= inputs else (f.jvp, inputs)
    units = np.eye(count)[:, None, :]
    width = max(inputs, *(w.shape[1] for w, _ in f.layers))
    size = max(1, CHUNK_ENTRIES // (count * width))
    norms = []
    for chunk in np.split(y, range(size, len(y), size)):
        at = f.linearise(chunk, kinks=True)
        # The Jacobian of a single layer is the same for all rows.
        J = np.broadcast_to(product(at, units), (count, len(chunk), max(inputs, outputs)))
        J = J.transpose(1, 0, 2)
        largest = np.linalg.eigvalsh(J @ J.transpose(0, 2, 1))[:, -1]
        norms.append(np.where(at.away_from_kinks, np.sqrt(np.maximum(largest, 0.0)), 0.0))
    return np.concatenate(norms)


def _ascend(f: _Function, y: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Return the points that the ascent reaches, with random trial `directions`."""
    rows = len(y)
    radius = np.maximum(np.linalg.norm(y, axis=1, keepdims=True), 1e-3)
    v = directions[:rows]
    for _ in range(POWER_STEPS):
        _, v = _power_step(f, y, v)
    for step in range(STEPS):
        width = radius * FIRST_WIDTH * (LAST_WIDTH / FIRST_WIDTH) ** (step / (STEPS - 1))
        pair = width * _unit(f.scale * v)
        ends = f.linearise(np.concatenate([y + pair, y - pair]))
        rise = ends.outputs[:rows] - ends.outputs[rows:]
        gradients = f.vjp(ends, np.concatenate([rise, rise]))
        uphill = gradients[:rows] - gradients[rows:]
        random = directions[step : step + rows]
        trials = np.concatenate([y, y + width * _unit(uphill), y + width * _unit(random)])
        slopes, turned = _power_step(f, trials, np.tile(v, (3, 1)))
        best = rows * np.argmax(slopes.reshape(3, rows), axis=0) + np.arange(rows)
        y, v = f.clipping.inputs(trials[best]), turned[best]
    return y


def _power_step(f: _Function, y: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ‖J v‖/‖v‖ of each row, and Jᵀ J v/‖v‖, or v if that is zero."""
    at = f.linearise(y)
    along = f.jvp(at, _unit(v))
    back = f.vjp(at, along)
    moved = np.where(np.any(back, axis=1, keepdims=True), back, v)
    return np.linalg.norm(along, axis=1), moved


def _unit(v: np.ndarray) -> np.ndarray:
    """Divide each row by its norm; zero rows stay zero."""
    length = np.linalg.norm(v, axis=1, keepdims=True)
    return v / np.where(length > 0, length, 1.0)


def _scaled_rows(X: ArrayLike, network: ScaledNetwork) -> np.ndarray:
    """Return rows X as the network sees them, or raise an error."""
    try:
        rows = np.asarray(X, np.float64)
    except (TypeError, ValueError):
        rows = np.array(np.nan)
    columns = len(network.scale)
    if rows.ndim != 2 or rows.shape[1] != columns or not np.all(np.isfinite(rows)):
        raise ValueError(f"X has the shape {rows.shape}; expected finite rows of {columns} inputs")
    return (rows - network.shift) * network.scale


def _in_units_of_X(y: np.ndarray, network: ScaledNetwork) -> np.ndarray:
    """Return the row of X that the network sees as y."""
    if network.normalises_inputs:
        y = y / np.linalg.norm(y)
    scale = network.scale
    x = network.shift + y * np.divide(1.0, scale, out=np.zeros_like(scale), where=scale != 0)
    return network.saturation.inputs(x)
