"""The fully connected network of Eq. (1), and its first two derivatives in the weights.

Data are rows, so a layer is H W with `W` of shape (fan_in, fan_out). With `bias` every layer has an
additional input that is always one, and the last row of its matrix holds the biases, which are
therefore on the same sphere. A constant cancels in differences of outputs, so biases do not count
in a Lipschitz bound: `linear` returns the matrices without them.

`apply` and `predict` take rows and return rows. The other passes take rows of data as columns, so
that a layer is Wᵀh: XLA's matrix products on CPUs are faster in this layout (`docs/scale.md`). They
share their work:

- `forward` keeps the input of every layer;
- `backward` returns the gradient, and keeps the adjoints;
- `jvp` returns the velocity f' of the outputs along a velocity of the weights;
- `second_order` also returns the second derivative. The adjoints take the place of h'', so each
  layer after the first needs three products only, h V, h' W and h' V, and a gradient with a second
  derivative costs two gradients (`docs/arc.md` derives it).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from numpy.typing import ArrayLike, DTypeLike

from greatcircle._runtime.dtypes import checked_dtype
from greatcircle.network import activations
from greatcircle.network.activations import Activation
from greatcircle.network.initial_weights import checked_radii, draw

__all__ = ["Adjoints", "Network", "Trace", "Velocities", "Weights"]

AnyArray = Array | np.ndarray
Weights = tuple[Float[AnyArray, "_ _"], ...]
"""A matrix for each layer, (fan_in, fan_out); with `bias` the last row holds the biases."""

Velocities = tuple[Float[AnyArray, "velocities _ _"], ...]
"""A stack of matrices for each layer."""
PerLayer = tuple[Float[Array, "_ rows"], ...]
"""For each layer a value of each of its units for each row of data."""


class Trace(eqx.Module):
    """Inputs and sums of the layers, kept by the forward pass."""

    inputs: PerLayer
    """h_{i−1}, the input of layer i, without the constant."""
    sums: PerLayer
    """z_i = h_{i−1} W_i of the hidden layers, before the activation."""


class Adjoints(eqx.Module):
    """Derivatives of the loss in sums and values of the layers, kept by the backward pass."""

    sums: PerLayer
    """∂loss/∂z_i of every layer."""
    hidden: PerLayer
    """∂loss/∂h_i of the hidden layers."""


@dataclass(frozen=True, init=False)
class Network:
    """Sizes and activation of a fully connected network; the weights are kept outside.

    Parameters
    ----------
    sizes
        Number of inputs, of units in each hidden layer, and of outputs.
    activation
        Name, or an `Activation` (`declare` makes one of a user's function).
    bias
        Whether layers have biases. The paper's networks have none.

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
        """Return random weights on their spheres, the first loop of Algorithm 1.

        Parameters
        ----------
        seed
            Seed, or a NumPy generator to draw from.
        scheme
            "uniform" (Xavier, the paper's), "normal", "orthogonal" (all singular values equal), or
            "identity": the matrices between hidden layers are the identity plus a small orthogonal
            matrix, so that a deep network starts close to a shallow one. Biases start at zero.
        radius
            Frobenius norm μ_i of the weights: one number, or one for each layer.
        dtype
            float32 or float64; the draw is the same in both.
        """
        radii, rng = checked_radii(radius, self.depth), np.random.default_rng(seed)
        drawn = draw(rng, self.shapes, radii, scheme=scheme, bias=self.bias)
        return tuple(w.astype(checked_dtype(dtype)) for w in drawn)

    def linear(self, weights: Sequence[Any]) -> tuple[Any, ...]:
        """Return the matrices without their biases, as a Lipschitz bound needs them."""
        return tuple(w[:-1] if self.bias else w for w in weights)

    def check_weights(self, weights: Sequence[ArrayLike]) -> tuple[np.ndarray, ...]:
        """Return the weights as NumPy arrays, or raise ValueError if one has the wrong shape."""
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

    def predict(self, weights: Sequence[ArrayLike], x: ArrayLike) -> np.ndarray:
        """Return f(x; w) of rows x in NumPy, in the precision of the weights."""
        arrays, h = self.check_weights(weights), np.asarray(x)
        if h.ndim != 2 or h.shape[1] != self.sizes[0]:
            raise ValueError(f"x has shape {h.shape}; expected rows of {self.sizes[0]} columns")
        dtype = np.float32 if arrays[0].dtype == np.float32 else np.float64
        h = h.astype(dtype)
        for i, w in enumerate(w.astype(dtype) for w in arrays):
            h = h @ w[:-1] + w[-1] if self.bias else h @ w
            h = self.activation(h) if i < self.depth - 1 else h
        return h

    def apply(
        self, weights: Weights, x: Float[AnyArray, "rows inputs"]
    ) -> Float[Array, "rows outputs"]:
        """Return f(x; w), Eq. (1)."""
        return self.forward(weights, x.T)[0].T

    def layer(
        self, h: Float[AnyArray, "fan_in rows"], w: Float[AnyArray, "_ fan_out"]
    ) -> Float[Array, "fan_out rows"]:
        """Return Wᵀh, plus the biases if there are any."""
        return _product(w[:-1], h) + w[-1][:, None] if self.bias else _product(w, h)

    def forward(
        self, weights: Weights, x: Float[AnyArray, "inputs rows"]
    ) -> tuple[Float[Array, "outputs rows"], Trace]:
        """Return f(x; w), and what the other passes need."""
        inputs, sums = [jnp.asarray(x)], []
        for w in weights[:-1]:
            sums.append(self.layer(inputs[-1], w))
            inputs.append(self.activation(sums[-1]))
        return self.layer(inputs[-1], weights[-1]), Trace(tuple(inputs), tuple(sums))

    def backward(
        self, weights: Weights, trace: Trace, cotangent: Float[Array, "outputs rows"]
    ) -> tuple[Weights, Adjoints]:
        """Return the gradient of ⟨cotangent, f(x; w)⟩ in the weights, and the adjoints."""
        matrices, gradient, hidden = self.linear(weights), [], []
        sums = [cotangent]
        for i in reversed(range(len(weights))):
            gradient.append(self._layer_gradient(trace.inputs[i], sums[-1]))
            if i > 0:
                hidden.append(matrices[i] @ sums[-1])
                sums.append(hidden[-1] * self.activation.slope(trace.sums[i - 1]))
        return tuple(gradient[::-1]), Adjoints(tuple(sums[::-1]), tuple(hidden[::-1]))

    def jvp(
        self, weights: Weights, velocity: Weights, trace: Trace
    ) -> Float[Array, "outputs rows"]:
        """Return the velocity f' of the outputs along w + t·velocity."""
        return self.jvps(weights, tuple(v[None] for v in velocity), trace)[:, 0]

    def jvps(
        self, weights: Weights, velocities: Velocities, trace: Trace
    ) -> Float[Array, "outputs velocities rows"]:
        """Return f' along each of a stack of velocities, which share every matrix product."""
        matrices, count = self.linear(weights), len(velocities[0])

        def split(products: Array) -> Array:
            return products.reshape(-1, count, trace.inputs[0].shape[1])

        def from_velocity(i: int) -> Array:
            side_by_side = jnp.moveaxis(velocities[i], 0, -1)
            wide = side_by_side.reshape(len(side_by_side), -1)
            return split(self.layer(trace.inputs[i], wide))

        dz = from_velocity(0)
        for i in range(1, len(weights)):
            dh = dz * self.activation.slope(trace.sums[i - 1])[:, None]
            dz = split(_product(matrices[i], dh.reshape(len(dh), -1))) + from_velocity(i)
        return dz

    def second_order(
        self, weights: Weights, velocity: Weights, trace: Trace, adjoints: Adjoints
    ) -> tuple[Float[Array, "outputs rows"], Float[Array, ""]]:
        """Return f' and ⟨cotangent, f''⟩ along w + t·velocity.

        With z_i'' = h_{i−1}'' W_i + 2 h_{i−1}' V_i and h_i'' = ρ'(z_i) z_i'' + ρ''(z_i) z_i'²,
        the adjoints of `backward` carry every second derivative to the output without computing it.
        """
        matrices, linear_velocity = self.linear(weights), self.linear(velocity)
        dz = self.layer(trace.inputs[0], velocity[0])
        curvature = jnp.zeros((), dz.dtype)
        for i in range(1, len(weights)):
            if self.activation.curved:
                second = self.activation.curvature(trace.sums[i - 1])
                curvature += jnp.sum(adjoints.hidden[i - 1] * second * dz**2)
            dh = dz * self.activation.slope(trace.sums[i - 1])
            curvature += 2 * jnp.sum(adjoints.sums[i] * _product(linear_velocity[i], dh))
            dz = _product(matrices[i], dh) + self.layer(trace.inputs[i], velocity[i])
        return dz, curvature

    def _layer_gradient(
        self, h: Float[Array, "fan_in rows"], cotangent: Float[Array, "fan_out rows"]
    ) -> Float[Array, "_ fan_out"]:
        """Return the gradient of ⟨cotangent, layer(h, w)⟩ in w."""
        linear = h @ cotangent.T
        return jnp.vstack([linear, jnp.sum(cotangent, axis=1)]) if self.bias else linear


def _product(
    w: Float[AnyArray, "fan_in fan_out"], h: Float[AnyArray, "fan_in columns"]
) -> Float[Array, "fan_out columns"]:
    """Return Wᵀh."""
    # The barrier makes XLA transpose the small matrix first: a product that reads it down its
    # columns takes a tenth longer.
    return jax.lax.optimization_barrier(w.T) @ h


def _checked_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes as positive integers, or raise ValueError."""
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
