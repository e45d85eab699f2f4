"""Small problems and random sandwich layers for the tests of `greatcircle.bounded`."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

from greatcircle import Network, Problem
from greatcircle._runtime.precision import precision
from greatcircle.bounded import sandwich
from greatcircle.bounded.objective import SandwichObjective

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 3))
Y = np.stack([np.sin(2 * X[:, 0]) + X[:, 1], np.abs(X[:, 2])], axis=1)
SCALE = np.array([1.0, 0.5, 2.0])
ACTIVATIONS = ["relu", "tanh", "abs"]


def problem_of(activation="relu", bias=True, hidden=(6, 5), **options):
    """Return a problem in float64 whose inputs are X multiplied by SCALE."""
    network = Network((3, *hidden, 2), activation, bias=bias)
    return Problem(network, X * SCALE, Y, dtype="float64", **options)


def random_layers(network, seed=0):
    """Return sandwich layers that are not orthonormal, and of any length."""
    rng = np.random.default_rng(seed)
    return tuple(
        rng.standard_normal((fan_in + out + network.bias + (i < network.depth - 1), out))
        for i, (fan_in, out) in enumerate(pairwise(network.sizes))
    )


def network_weights(network, layers, bound, length=1.0):
    """Return the weights that sandwich layers stand for, as NumPy arrays in float64."""
    with precision(np.float64):
        numbers = [jnp.asarray(v, np.float64) for v in (SCALE, bound, length)]
        weights = sandwich.network_weights(network, tuple(map(jnp.asarray, layers)), *numbers)
        return jax.device_get(weights)


def sandwich_objective(problem, bound, length=1.0):
    """Return the loss of sandwich layers; to be called with JAX in float64."""
    return SandwichObjective(problem, *(jnp.asarray(v, np.float64) for v in (SCALE, bound, length)))
