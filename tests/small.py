"""Small random problems and networks for the tests, and error bounds of their outputs."""

import os
from dataclasses import dataclass
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from greatcircle import Network, Problem, certificate, sphere
from greatcircle._runtime.precision import precision
from greatcircle.certificate.scaled_network import as_scaled_network
from greatcircle.geometry.great_circle import Arc
from greatcircle.model import as_model
from greatcircle.network.activations import ACTIVATIONS
from greatcircle.objective.losses import LOSSES
from greatcircle.optimise import arc as arcs
from greatcircle.optimise.arc import ArcStart
from oracle import activate

ACTIVATION_NAMES = tuple(ACTIVATIONS)
SMOOTH_NAMES = tuple(n for n, a in ACTIVATIONS.items() if a.max_second_derivative is not None)
LOSS_NAMES = tuple(LOSSES)

unless_types_are_checked = pytest.mark.skipif(
    bool(os.environ.get("GREATCIRCLE_CHECK_SHAPES")),
    reason="arguments of the wrong type, which GREATCIRCLE_CHECK_SHAPES reports first",
)


def thinned(cases, every):
    """Return the cases, all but every n-th marked as slow."""
    return [
        pytest.param(
            *(c if isinstance(c, tuple) else (c,)), marks=() if i % every == 0 else pytest.mark.slow
        )
        for i, c in enumerate(cases)
    ]


@dataclass(frozen=True)
class Small:
    """A problem with its data and initial weights, all as NumPy arrays."""

    network: Network
    weights: tuple[np.ndarray, ...]
    radii: tuple[float, ...]
    X: np.ndarray
    Y: np.ndarray
    loss: str

    def problem(self, dtype=np.float64) -> Problem:
        return Problem(self.network, self.X, self.Y, loss=self.loss, dtype=dtype)


def small(
    seed: int,
    *,
    depth: int = 3,
    activation: str = "relu",
    loss: str = "squared",
    rows: int = 7,
    away_from_kinks: float = 0.0,
    bias: bool = False,
) -> Small:
    """Draw sizes, radii, weights (biases included) and data.

    `away_from_kinks` keeps every |z| above a margin.
    """
    rng = np.random.default_rng(seed)
    outputs = 3 if loss == "softmax" else int(rng.integers(2, 4))
    sizes = (int(rng.integers(3, 6)), *rng.integers(3, 6, size=depth - 1).tolist(), outputs)
    network = Network(sizes, activation, bias=bias)
    for _ in range(2000):
        radii = tuple(rng.uniform(0.7, 1.6, size=depth).tolist())
        weights = (
            sphere.random_points(rng, network.shapes, radii, np.float64)
            if bias
            else network.initial_weights(rng, radius=radii, dtype=np.float64)
        )
        X = rng.standard_normal((rows, sizes[0]))
        sums, outputs_norm = _smallest_sum(network, weights, X)
        if sums >= away_from_kinks and outputs_norm > 1e-3:  # some units are active
            break
    else:
        raise AssertionError(f"no draw keeps |z| above {away_from_kinks}")
    if loss == "softmax":
        Y = np.eye(outputs)[rng.integers(0, outputs, size=rows)]
    elif loss == "logistic":
        Y = rng.integers(0, 2, size=(rows, outputs)).astype(float)
    else:
        Y = 0.7 * rng.standard_normal((rows, outputs))
    return Small(network, weights, radii, X, Y, loss)


def _smallest_sum(
    network: Network, weights: tuple[np.ndarray, ...], X: np.ndarray
) -> tuple[float, float]:
    """Return the smallest |z| of all hidden units and rows, and the norm of the outputs."""
    h, smallest = X.T, np.inf
    for w in weights[:-1]:
        z = network.layer(h, w)
        smallest = min(smallest, float(np.abs(z).min()))
        h = np.asarray(network.activation(z))
    return smallest, float(np.linalg.norm(network.layer(h, weights[-1])))


def network_jacobian(network, weights, x):
    """Return the Jacobian of the outputs, (rows, outputs, inputs), in float64."""
    with precision(np.float64):
        weights = tuple(jnp.asarray(w, np.float64) for w in weights)
        jacobian = jax.jacrev(lambda row: network.apply(weights, row[None])[0])
        return np.asarray(jax.jit(jax.vmap(jacobian))(jnp.asarray(x, np.float64)))


@jax.jit
def start_of_arc(problem, weights, heading, radii):
    """Return the input of a step rule at the start of an arc."""
    loss, cache = problem.forward(weights)
    gradient, cache = problem.backward(weights, cache)
    arc = Arc(weights, heading, radii)
    return ArcStart(problem, arc, gradient, cache, loss, arcs.slope(arc, gradient))


def steepest_arc(s, problem, speeds):
    """Return the start of an arc along the steepest descent, with layers of these speeds."""
    return _steepest_arc(problem, s.weights, np.asarray(s.radii), speeds)


@jax.jit
def _steepest_arc(problem, weights, radii, speeds):
    gradient, _ = problem.backward(weights, problem.forward(weights)[1])
    heading = sphere.normalise(sphere.project(weights, gradient, radii), -1.0)
    heading = tuple(v * h for v, h in zip(speeds, heading, strict=True))
    return start_of_arc(problem, weights, heading, radii)


ROUNDING_FACTOR = 1 + 1e-9
"""Allowance for rounding where two bounds or slopes are compared."""


def sizes_of_depth(depth):
    """Return random sizes from 2 to 8 for a network with this number of layers."""
    return tuple(np.random.default_rng(depth).integers(2, 9, depth + 1).tolist())


def random_network(seed, sizes, bias=False):
    """Return random weights (fan_in, fan_out) and, with `bias`, biases; otherwise None."""
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal((a, b)) / np.sqrt(a) for a, b in pairwise(sizes)]
    biases = [0.5 * rng.standard_normal(b) for b in sizes[1:]] if bias else None
    return weights, biases


def evaluated(weights, biases, activation, x, unit=2.0**-53):
    """Return outputs for rows x in plain NumPy, and a bound on the rounding errors of any others.

    The error of a sum of n products, in any order, is at most n + 2 roundings of its terms (Higham
    2002, Eq. 3.5), that of an activation four of its value; and no activation amplifies an error.
    """
    h, error = np.asarray(x, np.float64), unit * np.abs(x)
    for i, w in enumerate(weights):
        w = np.asarray(w, np.float64)
        b = np.zeros(w.shape[1]) if biases is None else np.asarray(biases[i], np.float64)
        terms = (np.abs(h) + error) @ np.abs(w) + np.abs(b)
        error = error @ np.abs(w) + 1.01 * (len(w) + 2) * unit * terms
        h = h @ w + b
        if i < len(weights) - 1:
            h = activate(activation, h)[0]
            error = error + 4 * unit * np.abs(h)
    return h, np.linalg.norm(error, axis=1)


def pairs(rng, count, columns):
    """Return pairs of inputs, near and far from each other and from zero."""
    x = 10 ** rng.uniform(-2, 1.5, (count, 1)) * rng.standard_normal((count, columns))
    step = 10 ** rng.uniform(-5, 1, (count, 1)) * rng.standard_normal((count, columns))
    return x, x + step


def attack_bounds(rng, weights, biases, activation, count):
    """Compare pairs of inputs with every kind of bound of a network; return the number of pairs."""
    options = {"biases": biases, "activation": activation, "orientation": "in-out"}
    columns = len(weights[0])
    group = sorted(rng.choice(columns, rng.integers(1, columns + 1), replace=False).tolist())
    fixed = ~np.isin(np.arange(columns), group)
    x, y = pairs(rng, count, columns)
    low, high = -rng.uniform(0, 2, columns), rng.uniform(0, 2, columns)
    a, b = rng.uniform(low, high, (2, count, columns))
    attacks = (
        (certificate.tight(weights, **options), x, y),
        (certificate.fast(weights, **options), x, y),
        (certificate.tight(weights, **options, inputs=group), x, np.where(fixed, x, y)),
        (certificate.local(weights, low, high, **options), a, b),
        (certificate.local(weights, low, high, **options, inputs=group), a, np.where(fixed, a, b)),
    )
    for bound, left, right in attacks:
        verdict = certificate.verify(bound, weights, biases)
        assert verdict, str(verdict)
        (f, e), (g, d) = (evaluated(weights, biases, activation, r) for r in (left, right))
        rise, run = np.linalg.norm(f - g, axis=1), np.linalg.norm(left - right, axis=1)
        assert np.all(rise <= bound.value * run * (1 + 1e-15) + e + d), bound
    return len(attacks) * count


def rounding(fitted, X):
    """Bound how far outputs can be from those of the same weights and inputs without rounding."""
    model, network = as_model(fitted), as_scaled_network(fitted)
    X = model.saturation.inputs(X)
    scaled = 2.0**-51 * np.linalg.norm((np.abs(X) + np.abs(network.shift)) * network.scale, axis=1)
    name, x = model.activation.name, model.scaling.inputs(X)
    error = evaluated(model.matrices, model.biases, name, x)[1]
    largest = certificate.frobenius(model.matrices, orientation="in-out").value
    size = np.linalg.norm(model.unsaturated().outputs(X), axis=1)
    return (error + largest * scaled) * network.gain + 2.0**-51 * size
