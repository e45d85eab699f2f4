"""A network, a loss and scaled data: the objective whose passes are written by hand.

The passes of `objective.py` share their matrix products through caches. Many rows, and rows on
several devices, are passed chunk by chunk (`chunks.py`): then a cache holds only the weights and
the gradient, and each later pass recomputes the rest.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from numpy.typing import ArrayLike, DTypeLike

from greatcircle._runtime.dtypes import checked_dtype
from greatcircle._runtime.precision import precision
from greatcircle.data import rows as data_rows
from greatcircle.data.checks import checked_data, normalised_weights
from greatcircle.geometry import sphere
from greatcircle.network.network import Adjoints, Network, Trace, Velocities, Weights
from greatcircle.objective import chunks, losses
from greatcircle.objective.chunks import DeviceRows, Window
from greatcircle.objective.losses import Loss
from greatcircle.objective.objective import quadratic_form, value_of

__all__ = ["Problem"]

Scalar = Float[Array, ""]
PerLayer = Float[Array, " layers"]
Outputs = Float[Array, "outputs rows"]


class _Forward(NamedTuple):
    """Cache of a forward pass over all rows at once."""

    outputs: Outputs
    trace: Trace


class _Backward(NamedTuple):
    """Cache of a backward pass over all rows at once."""

    outputs: Outputs
    trace: Trace
    adjoints: Adjoints


class _Recompute(NamedTuple):
    """Cache of passes in chunks: enough to recompute everything else."""

    weights: Weights
    gradient: Weights


class Problem(eqx.Module):
    """A network, a loss and scaled data to fit.

    The data are arguments of the compiled programs and not part of them, so problems of one shape
    share one compilation.

    Parameters
    ----------
    network
        The network to train.
    inputs, targets
        Rows of scaled data.
    loss
        Name or loss object: "squared", "huber", "softmax", "logistic".
    sample_weight
        Weight of each row in the mean; by default all are equal.
    dtype
        float32 or float64.
    """

    network: Network = eqx.field(static=True)
    criterion: Loss = eqx.field(static=True)
    rows: DeviceRows
    unit: Scalar
    """Loss of the zero function: in units of it the loss is of order one, as float32 needs."""
    mean_square_input: Scalar
    """Q of Eq. (23), the mean of ‖x‖²."""

    def __init__(
        self,
        network: Network,
        inputs: ArrayLike,
        targets: ArrayLike,
        *,
        loss: str | Loss = "squared",
        sample_weight: ArrayLike | None = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        if not isinstance(network, Network):
            raise TypeError(
                f"network is of type {type(network).__name__}; expected a Network, as in "
                "Problem(Network((inputs, hidden, outputs)), inputs, targets)"
            )
        sizes = (network.sizes[0], network.sizes[-1])
        x, y, weight = checked_data(inputs, targets, sample_weight, sizes)
        # Large JAX arrays stay on their device; everything else is copied once.
        x, y = (
            given if isinstance(given, Array) else checked
            for given, checked in ((inputs, x), (targets, y))
        )
        self._set(network, losses.get(loss), x, y, np.asarray(weight), dtype)

    @classmethod
    def from_checked(
        cls,
        network: Network,
        criterion: Loss,
        inputs: np.ndarray,
        targets: np.ndarray,
        sample_weight: np.ndarray | None,
        dtype: DTypeLike,
    ) -> "Problem":
        """Return the problem of rows that were validated before."""
        problem = object.__new__(cls)
        weight = normalised_weights(sample_weight, len(inputs))
        problem._set(network, criterion, inputs, targets, weight, dtype)
        return problem

    def _set(
        self,
        network: Network,
        criterion: Loss,
        inputs: Any,
        targets: Any,
        sample_weight: np.ndarray,
        dtype: DTypeLike,
    ) -> None:
        """Set the fields, once; a module is frozen afterwards."""
        dtype = checked_dtype(dtype)
        loss_of_zero = mean_square = 0.0
        with precision(np.float64):
            for part in data_rows.chunks(len(inputs)):
                x, y = (np.asarray(values[part], np.float64) for values in (inputs, targets))
                criterion.check(y)
                of_zero = np.asarray(losses.of_rows(criterion, np.zeros_like(y), y))
                loss_of_zero += float(sample_weight[part] @ of_zero)
                mean_square += float(sample_weight[part] @ np.sum(x**2, axis=1))
        columns_first = chunks.at_once(len(inputs))
        with precision(dtype):
            x, y = (
                jnp.asarray(values.T if columns_first else values, dtype)
                for values in (inputs, targets)
            )
            rows = DeviceRows(x, y, jnp.asarray(sample_weight, dtype), columns_first)
            unit = jnp.asarray(loss_of_zero if loss_of_zero > 0 else 1.0, dtype)
            fields = {
                "network": network,
                "criterion": criterion,
                "rows": rows,
                "unit": unit,
                "mean_square_input": jnp.asarray(mean_square, dtype),
            }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def with_rows(self, rows: DeviceRows) -> "Problem":
        """Return the same problem, in the same unit, with other rows."""
        return eqx.tree_at(lambda problem: problem.rows, self, rows)

    def with_unit(self, unit: Scalar) -> "Problem":
        """Return the same problem in another unit of the loss."""
        return eqx.tree_at(lambda problem: problem.unit, self, unit)

    def window(self, first: int, count: int) -> "Problem":
        """Return the problem of `count` chunks of rows from chunk `first` on.

        One compiled program serves all windows of a problem, including the one of all chunks. Unit
        and `mean_square_input` stay those of all rows.
        """
        rows = self.rows
        with precision(self.dtype):
            one = jnp.ones((), self.dtype)
            limits = jnp.asarray(first, np.int32), jnp.asarray(count, np.int32)
            unweighted = eqx.tree_at(
                lambda r: r.window, rows, Window(*limits, one), is_leaf=lambda leaf: leaf is None
            )
            total = _total_weight(self.with_rows(unweighted))
            weighted = Window(*limits, jnp.where(total > 0, total, one))
            return self.with_rows(eqx.tree_at(lambda r: r.window, unweighted, weighted))

    @property
    def dtype(self) -> np.dtype:
        """float32 or float64."""
        return np.dtype(self.rows.sample_weight.dtype)

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.rows.count

    @property
    def inputs(self) -> Float[Array, "rows inputs"]:
        """Rows of inputs."""
        return self.rows.inputs.T if self.rows.columns_first else self.rows.inputs

    @property
    def targets(self) -> Float[Array, "rows outputs"]:
        """Rows of targets."""
        return self.rows.targets.T if self.rows.columns_first else self.rows.targets

    def outputs(self, weights: Sequence[ArrayLike]) -> Float[Array, "rows outputs"]:
        """Return f(x; w) of every row."""
        with precision(self.dtype):
            return _outputs(self, tuple(map(jnp.asarray, weights)))

    def loss_of(self, outputs: Float[Array, "rows outputs"]) -> Scalar:
        """Return the mean loss of given outputs."""
        return self.unit * self._loss_of(outputs.T)

    def loss(self, weights: Sequence[ArrayLike]) -> Scalar:
        """Return the mean loss over the rows."""
        with precision(self.dtype):
            return value_of(self, tuple(map(jnp.asarray, weights))) * self.unit

    def value(self, weights: Weights) -> Scalar:
        """Return the loss in units of `unit`."""
        in_chunks = self.rows.in_chunks
        return chunks.summed(self, _value, weights) if in_chunks else _value(self, weights)

    def forward(self, weights: Weights) -> tuple[Scalar, _Forward | _Recompute]:
        """Return the loss, and the inputs and sums of each layer."""
        if self.rows.in_chunks:  # compute the gradient now, which saves a second forward pass later
            loss, gradient = chunks.summed(self, _value_and_gradient, weights)
            return loss, _Recompute(weights, gradient)
        cache = self._forward(weights)
        return self._loss_of(cache.outputs), cache

    def backward(
        self, weights: Weights, cache: _Forward | _Recompute
    ) -> tuple[Weights, _Backward | _Recompute]:
        """Return the gradient, and the adjoints of each layer."""
        if isinstance(cache, _Recompute):
            return cache.gradient, cache
        cotangent = jax.grad(self._loss_of)(cache.outputs)
        gradient, adjoints = self.network.backward(weights, cache.trace, cotangent)
        return gradient, _Backward(*cache, adjoints)

    def second_order(
        self, weights: Weights, velocity: Weights, cache: _Backward | _Recompute
    ) -> Scalar:
        """Return vᵀ ∇²L v: the loss's own curvature along f', plus its slope along f''."""
        return self._sum(_second_order, cache, weights, velocity)

    def gauss_newton(
        self,
        weights: Weights,
        cache: _Backward | _Recompute,
        fraction: float = 1.0,
        iteration: Any = 0,
    ) -> tuple[Callable[[Weights], Weights], float | Array]:
        """Return v ↦ Jᵀ H J v on a fraction of the rows, different ones at each iteration."""
        every = int(1 / fraction)
        if every > 1:
            some, used = self.sampled(every, iteration)
            return some.gauss_newton(weights, some.cache_at(weights))[0], used
        if isinstance(cache, _Recompute):
            return partial(chunks.summed, self, _gauss_newton_product, weights), 1.0
        return partial(_gauss_newton_from_cache, self, cache, weights), 1.0

    def sampled(self, every: int, iteration: Any) -> tuple["Problem", float | Array]:
        """Return the problem of every n-th row, and the fraction of the rows it has.

        The sample of a window is taken from all rows, not only from those of the window.
        """
        fraction = 1 / max(1, min(every, self.count))
        if self.rows.window is not None:
            fraction *= chunks.chunk_layout(self.count)[0] / self.rows.window.chunks
        return self.with_rows(chunks.sample(self.rows, every, iteration)), fraction

    def cache_at(self, weights: Weights) -> _Backward | _Recompute:
        """Return the cache of a backward pass."""
        return _Recompute(weights, ()) if self.rows.in_chunks else self._backward(weights)

    def moments(
        self, headings: Weights, cache: _Backward | _Recompute
    ) -> tuple[PerLayer, PerLayer, PerLayer]:
        """Return the means over the rows of ‖hW‖², ⟨hW, hU⟩ and ‖hU‖² for each layer."""
        return self._sum(_moments, cache, headings)

    def output_gradient(self, cache: _Backward | _Recompute) -> Scalar:
        """Return the root mean square of the loss's gradient in the outputs."""
        return jnp.sqrt(self._sum(_squared_output_gradient, cache))

    def largest_input(self) -> Scalar:
        """Return the largest ‖x‖ of a row with positive weight."""
        squares = jnp.sum(self._columns(self.rows.inputs) ** 2, axis=0)
        return jnp.sqrt(jnp.max(jnp.where(self.rows.sample_weight > 0, squares, 0)))

    def gram(self, weights: Weights, velocities: Velocities, cache: Any) -> Float[Array, "n n"]:
        """Return ⟨J a, H J b⟩ for each pair of a stack of velocities."""
        return self._sum(_gram, cache, weights, velocities)

    def kronecker(
        self, cache: _Backward | _Recompute
    ) -> tuple[Float[Array, "layers a a"], Float[Array, "layers b b"]]:
        """Return second moments of each layer's inputs and of the loss's slope in its outputs.

        Stacked over the layers and padded with zeros. Their Kronecker products approximate the
        blocks of the Gauss-Newton matrix (`docs/directions.md`).
        """
        inputs, slopes, square = self._sum(_second_moments, cache)
        # At the output the second moment of the slopes is H, on average, up to this factor.
        factor = square * self.unit / (self.network.sizes[-1] * self.criterion.curvature)
        return inputs, (1 / jnp.where(factor > 0, factor, 1)) * slopes

    def _sum(
        self, quantity: Callable[..., Any], cache: _Backward | _Recompute, *arguments: Any
    ) -> Any:
        """Return the sum over the rows of `quantity(problem, cache, *arguments)`."""
        if isinstance(cache, _Backward):
            return quantity(self, cache, *arguments)

        def recomputed(part: Problem, weights: Weights, *arguments: Any) -> Any:
            return quantity(part, part._backward(weights), *arguments)

        return chunks.summed(self, recomputed, cache.weights, *arguments)

    def _forward(self, weights: Weights) -> _Forward:
        """Pass all rows forward at once."""
        return _Forward(*self.network.forward(weights, self._columns(self.rows.inputs)))

    def _backward(self, weights: Weights) -> _Backward:
        """Pass all rows forward and backward at once."""
        cache = self.backward(weights, self._forward(weights))[1]
        return cache  # pyright: ignore[reportReturnType]

    def _loss_of(self, outputs: Outputs) -> Scalar:
        """Return the mean loss of outputs, in units of `unit`."""
        row_losses = losses.of_columns(self.criterion, outputs, self._columns(self.rows.targets))
        return self.rows.sample_weight @ row_losses / self.unit

    def _columns(self, values: Array) -> Array:
        """Return inputs or targets with a column for each row of data, as the passes need them."""
        return values if self.rows.columns_first else values.T


# Sums over rows, of a problem that is small enough to pass them all at once.


def _value(problem: Problem, weights: Weights) -> Scalar:
    return problem._loss_of(problem._forward(weights).outputs)


def _value_and_gradient(problem: Problem, weights: Weights) -> tuple[Scalar, Weights]:
    cache = problem._forward(weights)
    return problem._loss_of(cache.outputs), problem.backward(weights, cache)[0]


def _second_order(
    problem: Problem, cache: _Backward, weights: Weights, velocity: Weights
) -> Scalar:
    jvp, curvature = problem.network.second_order(weights, velocity, cache.trace, cache.adjoints)
    return quadratic_form(problem._loss_of, cache.outputs, jvp) + curvature


def _gauss_newton_product(problem: Problem, weights: Weights, velocity: Weights) -> Weights:
    return _gauss_newton_from_cache(problem, problem._forward(weights), weights, velocity)


def _gauss_newton_from_cache(
    problem: Problem, cache: _Forward | _Backward, weights: Weights, velocity: Weights
) -> Weights:
    """Return Jᵀ H J v."""
    jvp = problem.network.jvp(weights, velocity, cache.trace)
    cotangent = jax.jvp(jax.grad(problem._loss_of), (cache.outputs,), (jvp,))[1]
    return problem.network.backward(weights, cache.trace, cotangent)[0]


def _moments(
    problem: Problem, cache: _Backward, headings: Weights
) -> tuple[PerLayer, PerLayer, PerLayer]:
    sums = (*cache.trace.sums, cache.outputs)
    pairs = [
        (hw, problem.network.layer(h, u))
        for h, hw, u in zip(cache.trace.inputs, sums, headings, strict=True)
    ]

    def mean(a: Array, b: Array) -> Array:
        return jnp.sum((a * b) @ problem.rows.sample_weight)

    return (
        jnp.stack([mean(hw, hw) for hw, _ in pairs]),
        jnp.stack([mean(hw, hu) for hw, hu in pairs]),
        jnp.stack([mean(hu, hu) for _, hu in pairs]),
    )


def _squared_output_gradient(problem: Problem, cache: _Backward) -> Scalar:
    weight = jnp.where(problem.rows.sample_weight > 0, problem.rows.sample_weight, 1)
    return jnp.sum(jnp.sum(cache.adjoints.sums[-1] ** 2, axis=0) / weight)


def _gram(
    problem: Problem, cache: _Backward, weights: Weights, velocities: Velocities
) -> Float[Array, "n n"]:
    jvps = problem.network.jvps(weights, velocities, cache.trace)
    gradient = jax.grad(problem._loss_of)

    def hessian_product(jvp: Array) -> Array:
        return jax.jvp(gradient, (cache.outputs,), (jvp,))[1]

    images = jax.vmap(hessian_product, in_axes=1, out_axes=1)(jvps)
    products = jnp.einsum("imr,inr->mn", jvps, images)
    return (products + products.T) / 2  # H is symmetric, up to rounding


def _second_moments(problem: Problem, cache: _Backward) -> tuple[Array, Array, Array]:
    root = jnp.sqrt(problem.rows.sample_weight)[None]
    inputs = [root * h for h in cache.trace.inputs]
    if problem.network.bias:
        inputs = [jnp.vstack([h, root]) for h in inputs]
    slopes = [a / jnp.where(root > 0, root, 1) for a in cache.adjoints.sums]
    return (
        sphere.stacked([h @ h.T for h in inputs]),
        sphere.stacked([s @ s.T for s in slopes]),
        jnp.sum(slopes[-1] ** 2),
    )


@jax.jit
def _total_weight(problem: Problem) -> Scalar:
    return chunks.summed(problem, lambda part: jnp.sum(part.rows.sample_weight))


@jax.jit
def _outputs(problem: Problem, weights: Weights) -> Float[Array, "rows outputs"]:
    return problem.network.apply(weights, problem.inputs)
