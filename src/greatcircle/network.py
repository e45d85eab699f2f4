"""The fully connected network without biases, Eq. (1), and its first two derivatives.

Data are rows, so a layer is `h @ W` with `W` of shape (fan_in, fan_out). Besides `apply`, three
passes share their work: `forward` keeps what every layer saw, `backward` turns that into the
gradient, and `second_order` needs, of every layer after the first, only the products h V, h' W
and h' V. The adjoints of the backward pass stand in for h'', so a gradient and a second
derivative along a direction together cost twice a gradient (`docs/arc.md` derives it).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, DTypeLike

from greatcircle import activations
from greatcircle.activations import Activation
from greatcircle.precision import checked_dtype, precision
from greatcircle.sphere import random_point

Weights = tuple[Array, ...]

INITIALISATIONS = ("uniform", "normal", "orthogonal")


class Trace(NamedTuple):
    """What each layer saw on the way forward."""

    inputs: tuple[Array, ...]
    """h_{i−1}, the input of layer i."""
    sums: tuple[Array, ...]
    """z_i = h_{i−1} W_i of the hidden layers, before the activation."""


class Adjoints(NamedTuple):
    """How the loss changes with what each layer made, on the way back."""

    sums: tuple[Array, ...]
    """∂loss/∂z_i, for every layer."""
    hidden: tuple[Array, ...]
    """∂loss/∂h_i, for the hidden layers."""


@dataclass(frozen=True, init=False)
class Network:
    """A fully connected network: its sizes and its activation. The weights live outside.

    Parameters
    ----------
    sizes
        Number of inputs, of units in each hidden layer, and of outputs.
    activation
        Name, or an `Activation` (`declare` makes one of a user's function).

    Examples
    --------
    >>> network = Network((12, 25, 30, 15, 3))
    >>> weights = network.initial_weights(seed=0)
    >>> [w.shape for w in weights]
    [(12, 25), (25, 30), (30, 15), (15, 3)]
    """

    sizes: tuple[int, ...]
    activation: Activation

    def __init__(self, sizes: Sequence[int], activation: str | Activation = "relu") -> None:
        object.__setattr__(self, "sizes", _checked_sizes(sizes))
        object.__setattr__(self, "activation", activations.get(activation))

    @property
    def depth(self) -> int:
        """Number of weight matrices."""
        return len(self.sizes) - 1

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Shape of each weight matrix."""
        return tuple(zip(self.sizes[:-1], self.sizes[1:], strict=True))

    def initial_weights(
        self,
        seed: int | np.random.Generator = 0,
        *,
        scheme: str = "uniform",
        radius: float | Sequence[float] = 1.0,
        dtype: DTypeLike = np.float32,
    ) -> tuple[np.ndarray, ...]:
        """Random weights on their spheres, the first loop of Algorithm 1.

        Parameters
        ----------
        seed
            Seed, or a NumPy generator to draw from.
        scheme
            "uniform" (Xavier, the paper's), "normal" or "orthogonal" (all singular values equal).
        radius
            Frobenius norm μ_i of the weights: one number, or one for each layer.
        dtype
            float32 or float64; the draw is the same in both.
        """
        if scheme not in INITIALISATIONS:
            raise ValueError(f"scheme is {scheme!r}; expected one of {', '.join(INITIALISATIONS)}")
        radii = checked_radii(radius, self.depth)
        rng = np.random.default_rng(seed)
        return tuple(
            (drawn * (r / np.linalg.norm(drawn))).astype(checked_dtype(dtype))
            for drawn, r in zip((_draw(rng, scheme, s) for s in self.shapes), radii, strict=True)
        )

    def check_weights(self, weights: Sequence[ArrayLike]) -> tuple[np.ndarray, ...]:
        """Return the weights as arrays, or say which one does not fit the network."""
        arrays = tuple(np.asarray(w) for w in weights)
        if len(arrays) != self.depth:
            raise ValueError(f"weights has {len(arrays)} matrices; the network has {self.depth}")
        for i, (w, shape) in enumerate(zip(arrays, self.shapes, strict=True)):
            if w.shape != shape:
                raise ValueError(
                    f"weights[{i}] has shape {w.shape}; the network expects {shape}, "
                    "(fan_in, fan_out)"
                )
        return arrays

    def apply(self, weights: Weights, x: Array) -> Array:
        """f(x; w) for rows x, Eq. (1)."""
        h = x
        for w in weights[:-1]:
            h = self.activation(h @ w)
        return h @ weights[-1]

    def predict(self, weights: Sequence[ArrayLike], x: ArrayLike) -> np.ndarray:
        """`apply` for arrays of any kind, compiled, in the precision of the weights."""
        arrays = self.check_weights(weights)
        rows = np.asarray(x)
        if rows.ndim != 2 or rows.shape[1] != self.sizes[0]:
            raise ValueError(f"x has shape {rows.shape}; expected rows of {self.sizes[0]} columns")
        dtype = np.float32 if arrays[0].dtype == np.float32 else np.float64
        arrays = tuple(np.asarray(w, dtype) for w in arrays)
        with precision(dtype):
            rows = jnp.asarray(rows, dtype)
            return np.asarray(_apply(self, tuple(map(jnp.asarray, arrays)), rows))

    def forward(self, weights: Weights, x: Array) -> tuple[Array, Trace]:
        """The same, keeping what the other two passes need."""
        inputs, sums = [x], []
        for w in weights[:-1]:
            sums.append(inputs[-1] @ w)
            inputs.append(self.activation(sums[-1]))
        return inputs[-1] @ weights[-1], Trace(tuple(inputs), tuple(sums))

    def backward(self, weights: Weights, trace: Trace, pull: Array) -> tuple[Weights, Adjoints]:
        """Gradient of ⟨pull, f(x; w)⟩ in the weights, and the adjoints on the way."""
        gradient, sums, hidden = [], [pull], []
        for i in reversed(range(len(weights))):
            gradient.append(trace.inputs[i].T @ sums[-1])
            if i > 0:
                hidden.append(sums[-1] @ weights[i].T)
                sums.append(hidden[-1] * self.activation.slope(trace.sums[i - 1]))
        return tuple(gradient[::-1]), Adjoints(tuple(sums[::-1]), tuple(hidden[::-1]))

    def second_order(
        self, weights: Weights, velocity: Weights, trace: Trace, adjoints: Adjoints
    ) -> tuple[Array, Array]:
        """Velocity f' of the outputs, and the curvature ⟨pull, f''⟩, along w + t·velocity.

        With z_i'' = h_{i−1}'' W_i + 2 h_{i−1}' V_i and h_i'' = ρ'(z_i) z_i'' + ρ''(z_i) z_i'²,
        the adjoints carry every second derivative to the output without computing it.
        """
        push = trace.inputs[0] @ velocity[0]
        curvature = jnp.zeros((), push.dtype)
        for i in range(1, len(weights)):
            if self.activation.curved:
                bend = self.activation.bend(trace.sums[i - 1])
                curvature += jnp.sum(adjoints.hidden[i - 1] * bend * push**2)
            hidden = push * self.activation.slope(trace.sums[i - 1])
            curvature += 2 * jnp.sum(adjoints.sums[i] * (hidden @ velocity[i]))
            push = hidden @ weights[i] + trace.inputs[i] @ velocity[i]
        return push, curvature


@partial(jax.jit, static_argnums=0)
def _apply(network: Network, weights: Weights, x: Array) -> Array:
    return network.apply(weights, x)


def checked_radii(radius: float | Sequence[float], depth: int) -> tuple[float, ...]:
    """One positive radius for each layer."""
    radii = np.asarray(radius, np.float64)
    if radii.ndim == 0:
        radii = np.full(depth, float(radii))
    if radii.shape != (depth,):
        raise ValueError(
            f"radius has {radii.size} entries; expected one number or one for each of the "
            f"{depth} layers"
        )
    if not np.all((radii > 0) & np.isfinite(radii)):
        raise ValueError(f"radius is {radius!r}; expected positive, finite numbers")
    return tuple(radii.tolist())


def _checked_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    try:
        checked = tuple(int(s) for s in sizes)
        whole = all(c == s for c, s in zip(checked, sizes, strict=True))
    except (TypeError, ValueError):
        raise ValueError(f"sizes is {sizes!r}; expected whole numbers") from None
    if len(checked) < 2 or not whole or min(checked) < 1:
        raise ValueError(
            f"sizes is {tuple(sizes)!r}; expected at least (inputs, outputs), all whole and "
            "positive"
        )
    return checked


def _draw(rng: np.random.Generator, scheme: str, shape: tuple[int, int]) -> np.ndarray:
    """One matrix before it is put on its sphere."""
    if scheme == "uniform":
        bound = np.sqrt(6 / sum(shape))  # Xavier; normalisation makes the scale immaterial
        return rng.uniform(-bound, bound, shape)
    if scheme == "normal":
        return random_point(rng, shape, dtype=np.float64)
    tall = max(shape), min(shape)
    q, r = np.linalg.qr(rng.standard_normal(tall))
    q = q * np.sign(np.diagonal(r))  # uniform over the orthogonal matrices (Mezzadri 2007)
    return q if tall == shape else q.T
