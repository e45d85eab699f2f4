"""The fully connected network of Eq. (1), and its first two derivatives.

Data are rows, so a layer is H W with `W` of shape (fan_in, fan_out). With `bias`, every layer also
sees a unit that is always one, and the last row of its matrix is what that unit contributes: the
bias is part of the matrix and lives on its sphere. A constant has no difference, so it costs no
Lipschitz constant: `linear` gives the part of each matrix that counts.

`apply` takes and gives rows. The passes have a column for each of them, so a layer is Wᵀh, with
h of shape (units, rows): XLA's matrix products on processors are faster so (`docs/scale.md`).

Besides `apply`, the passes share their work: `forward` keeps what every layer saw, `backward` turns
that into the gradient, `push` gives the velocity of the outputs, and `second_order` needs, of every
layer after the first, only the products h V, h' W and h' V. The adjoints of the backward pass stand
in for h'', so a gradient and a second derivative along a direction together cost twice a gradient
(`docs/arc.md` derives it).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, DTypeLike

from greatcircle._runtime.precision import checked_dtype, precision
from greatcircle.geometry.sphere import random_point
from greatcircle.network import activations
from greatcircle.network.activations import Activation

Weights = tuple[Array, ...]

INITIALISATIONS = ("uniform", "normal", "orthogonal", "identity")


ASIDE = 0.1
"""Size of the orthogonal part beside an identity."""


class Trace(NamedTuple):
    """What each layer saw on the way forward, (units, rows)."""

    inputs: tuple[Array, ...]
    """h_{i−1}, the input of layer i."""
    sums: tuple[Array, ...]
    """z_i = h_{i−1} W_i of the hidden layers, before the activation."""


class Adjoints(NamedTuple):
    """How the loss changes with what each layer made, on the way back; likewise."""

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
    bias
        Whether every layer sees a unit that is always one. The paper's networks have none.

    Examples
    --------
    >>> network = Network((12, 25, 30, 15, 3))
    >>> weights = network.initial_weights(seed=0)
    >>> [w.shape for w in weights]
    [(12, 25), (25, 30), (30, 15), (15, 3)]
    """

    sizes: tuple[int, ...]
    activation: Activation
    bias: bool

    def __init__(
        self,
        sizes: Sequence[int],
        activation: str | Activation = "relu",
        *,
        bias: bool = False,
    ) -> None:
        object.__setattr__(self, "sizes", _checked_sizes(sizes))
        object.__setattr__(self, "activation", activations.get(activation))
        object.__setattr__(self, "bias", bool(bias))

    @property
    def depth(self) -> int:
        """Number of weight matrices."""
        return len(self.sizes) - 1

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Shape of each weight matrix."""
        rows = [size + self.bias for size in self.sizes[:-1]]
        return tuple(zip(rows, self.sizes[1:], strict=True))

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
            "uniform" (Xavier, the paper's), "normal", "orthogonal" (all singular values equal), or
            "identity": hidden layers pass on what they get, except for a small orthogonal part, so
            that a deep network starts as a shallow one. Biases start at zero.
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
            for drawn, r in zip(self._drawn(rng, scheme), radii, strict=True)
        )

    def _drawn(self, rng: np.random.Generator, scheme: str) -> Iterator[np.ndarray]:
        """The matrices before they are put on their spheres."""
        for i, (rows, columns) in enumerate(self.shapes):
            hidden = 0 < i < self.depth - 1
            drawn = _draw(rng, scheme, (rows - self.bias, columns), hidden)
            yield np.vstack([drawn, np.zeros((int(self.bias), columns))])

    def linear(self, weights: Sequence[Any]) -> tuple[Any, ...]:
        """The matrices without their biases: what a Lipschitz bound is made of."""
        return tuple(w[:-1] if self.bias else w for w in weights)

    def check_weights(self, weights: Sequence[ArrayLike]) -> tuple[np.ndarray, ...]:
        """Return the weights as arrays, or say which one does not fit the network."""
        arrays = tuple(np.asarray(w) for w in weights)
        if len(arrays) != self.depth:
            raise ValueError(
                f"weights has {len(arrays)} matrices; the network has {self.depth}: give one for "
                "each layer, as network.initial_weights() does"
            )
        for i, (w, shape) in enumerate(zip(arrays, self.shapes, strict=True)):
            if w.shape != shape:
                raise ValueError(
                    f"weights[{i}] has shape {w.shape}; the network expects {shape}, "
                    "(fan_in, fan_out)"
                )
        return arrays

    def apply(self, weights: Weights, x: Array) -> Array:
        """f(x; w) for rows x, Eq. (1)."""
        return self.forward(weights, x.T)[0].T

    def layer(self, h: Array, w: Array) -> Array:
        """Wᵀh, with the constant unit where there is one."""
        return _product(w[:-1], h) + w[-1][:, None] if self.bias else _product(w, h)

    def _gradient(self, h: Array, pull: Array) -> Array:
        """Gradient of ⟨pull, Wᵀh⟩ in W."""
        linear = h @ pull.T
        return jnp.vstack([linear, jnp.sum(pull, axis=1)]) if self.bias else linear

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

    def jacobian(self, weights: Sequence[ArrayLike], x: ArrayLike) -> np.ndarray:
        """Derivatives of the outputs in the inputs, (rows, outputs, inputs)."""
        matrices = self.check_weights(weights)
        with precision(np.float64):
            return np.asarray(_jacobian(self, matrices, jnp.asarray(x, np.float64)))

    def forward(self, weights: Weights, x: Array) -> tuple[Array, Trace]:
        """The same for columns x, keeping what the other passes need."""
        inputs, sums = [x], []
        for w in weights[:-1]:
            sums.append(self.layer(inputs[-1], w))
            inputs.append(self.activation(sums[-1]))
        return self.layer(inputs[-1], weights[-1]), Trace(tuple(inputs), tuple(sums))

    def backward(self, weights: Weights, trace: Trace, pull: Array) -> tuple[Weights, Adjoints]:
        """Gradient of ⟨pull, f(x; w)⟩ in the weights, and the adjoints on the way."""
        matrices, gradient, hidden = self.linear(weights), [], []
        sums = [pull]
        for i in reversed(range(len(weights))):
            gradient.append(self._gradient(trace.inputs[i], sums[-1]))
            if i > 0:
                hidden.append(matrices[i] @ sums[-1])
                sums.append(hidden[-1] * self.activation.slope(trace.sums[i - 1]))
        return tuple(gradient[::-1]), Adjoints(tuple(sums[::-1]), tuple(hidden[::-1]))

    def jvp(self, weights: Weights, velocity: Weights, trace: Trace) -> Array:
        """Return the velocity f' of the outputs along w + t·velocity."""
        return self.jvps(weights, tuple(v[None] for v in velocity), trace)[:, 0]

    def jvps(self, weights: Weights, velocities: Weights, trace: Trace) -> Array:
        """The same along each of a stack of velocities: (outputs, velocities, rows).

        They go together through every product.
        """
        matrices, count = self.linear(weights), len(velocities[0])

        def apart(made: Array) -> Array:
            return made.reshape(-1, count, trace.inputs[0].shape[1])

        def by_velocity(i: int) -> Array:
            together = jnp.moveaxis(velocities[i], 0, -1)
            return apart(self.layer(trace.inputs[i], together.reshape(len(together), -1)))

        push = by_velocity(0)
        for i in range(1, len(weights)):
            hidden = push * self.activation.slope(trace.sums[i - 1])[:, None]
            push = apart(_product(matrices[i], hidden.reshape(len(hidden), -1))) + by_velocity(i)
        return push

    def second_order(
        self, weights: Weights, velocity: Weights, trace: Trace, adjoints: Adjoints
    ) -> tuple[Array, Array]:
        """Velocity f' of the outputs, and the curvature ⟨pull, f''⟩, along w + t·velocity.

        With z_i'' = h_{i−1}'' W_i + 2 h_{i−1}' V_i and h_i'' = ρ'(z_i) z_i'' + ρ''(z_i) z_i'²,
        the adjoints carry every second derivative to the output without computing it.
        """
        matrices, turning = self.linear(weights), self.linear(velocity)
        push = self.layer(trace.inputs[0], velocity[0])
        curvature = jnp.zeros((), push.dtype)
        for i in range(1, len(weights)):
            if self.activation.curved:
                bend = self.activation.curvature(trace.sums[i - 1])
                curvature += jnp.sum(adjoints.hidden[i - 1] * bend * push**2)
            hidden = push * self.activation.slope(trace.sums[i - 1])
            curvature += 2 * jnp.sum(adjoints.sums[i] * _product(turning[i], hidden))
            push = _product(matrices[i], hidden) + self.layer(trace.inputs[i], velocity[i])
        return push, curvature


def _product(w: Array, h: Array) -> Array:
    # Behind a barrier the small matrix is transposed first: XLA's product with a matrix that it has
    # to read down its columns takes a tenth longer.
    return jax.lax.optimization_barrier(w.T) @ h


@partial(jax.jit, static_argnums=0)
def _apply(network: Network, weights: Weights, x: Array) -> Array:
    return network.apply(weights, x)


@partial(jax.jit, static_argnums=0)
def _jacobian(network: Network, weights: Weights, x: Array) -> Array:
    return jax.vmap(jax.jacrev(lambda row: network.apply(weights, row[None])[0]))(x)


def checked_radii(radius: float | Sequence[float], depth: int) -> tuple[float, ...]:
    """One positive radius for each layer."""
    try:
        radii = np.asarray(radius, np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"radius is {radius!r}; expected one number or one for each of the {depth} layers"
        ) from None
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
        raise ValueError(
            f"sizes is {sizes!r}; expected whole numbers, (inputs, hidden units, …, outputs)"
        ) from None
    if len(checked) < 2 or not whole or min(checked) < 1:
        raise ValueError(
            f"sizes is {tuple(sizes)!r}; expected at least (inputs, outputs), all whole and "
            "positive"
        )
    return checked


def _draw(
    rng: np.random.Generator, scheme: str, shape: tuple[int, int], hidden: bool
) -> np.ndarray:
    """One matrix before it is put on its sphere; `hidden` where both its sides are hidden."""
    if scheme == "uniform":
        bound = np.sqrt(6 / sum(shape))  # Xavier; normalisation makes the scale immaterial
        return rng.uniform(-bound, bound, shape)
    if scheme == "normal":
        return random_point(rng, shape, dtype=np.float64)
    tall = max(shape), min(shape)
    q, r = np.linalg.qr(rng.standard_normal(tall))
    q = q * np.sign(np.diagonal(r))  # uniform over the orthogonal matrices (Mezzadri 2007)
    q = q if tall == shape else q.T
    return np.eye(*shape) + ASIDE * q if scheme == "identity" and hidden else q
