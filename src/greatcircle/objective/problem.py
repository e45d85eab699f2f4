"""A network, a loss and scaled data, frozen: an objective whose passes are done by hand.

Every product is shared between the passes of `objective.py`. Many rows, and rows on several
devices, go part by part (`parts.py`): the passes then leave behind the weights and the gradient
alone, and what was seen on the way is made again where it is needed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh
from numpy.typing import ArrayLike, DTypeLike

from greatcircle._runtime.dtypes import checked_dtype
from greatcircle._runtime.precision import precision
from greatcircle.data.checks import checked_data
from greatcircle.data.rows import chunks
from greatcircle.geometry import sphere
from greatcircle.network.network import Adjoints, Network, Trace, Weights
from greatcircle.objective import chunks as parts
from greatcircle.objective import losses
from greatcircle.objective.chunks import room_for
from greatcircle.objective.losses import Loss
from greatcircle.objective.objective import quadratic_form, value_of


class Structure(NamedTuple):
    """What of a problem is part of the compiled programs."""

    network: Network
    criterion: Loss
    turned: bool
    mesh: Mesh | None


class _Forward(NamedTuple):
    outputs: Array
    trace: Trace


class _Backward(NamedTuple):
    outputs: Array
    trace: Trace
    adjoints: Adjoints


class _Again(NamedTuple):
    """Left by passes over parts: enough to make all else again."""

    weights: Weights
    gradient: Weights


@jax.tree_util.register_pytree_node_class
class Problem:
    """A network, a loss and the data to fit, already scaled.

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
        Weight of each row in the mean; by default all rows count alike.
    dtype
        float32 or float64.
    """

    network: Network
    criterion: Loss
    seen: Array
    """Inputs, as rows or `turned`."""
    wanted: Array
    """Targets likewise."""
    share: Array
    """Weight of each row, summing to one."""
    unit: Array
    """Loss of the zero function: inside the loop it is one, so that float32 is used well."""
    mean_square_input: Array
    """Q of Eq. (23), the mean of ‖x‖²."""
    turned: bool
    """Whether rows are columns, as in the passes: they are where all of them are done at once."""
    mesh: Mesh | None
    """The devices that the rows are spread over (`sharding.py`); None for one."""
    window: parts.Window | None
    """The chunks of rows that count; None for all. Unit and `mean_square_input` are of all rows."""

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
                f"network is a {type(network).__name__}; expected a Network, as in "
                "Problem(Network((inputs, hidden, outputs)), inputs, targets)"
            )
        self.network = network
        self.criterion = losses.get(loss)
        sizes = (network.sizes[0], network.sizes[-1])
        x, y, share = checked_data(inputs, targets, sample_weight, sizes)
        dtype = checked_dtype(dtype)
        room_for(network.sizes, len(x), dtype)
        zero = square = 0.0
        with precision(np.float64):
            for some in chunks(len(x)):
                seen, wanted = (np.asarray(part[some], np.float64) for part in (x, y))
                self.criterion.check(wanted)
                lost = np.asarray(_losses(self.criterion, np.zeros_like(wanted), wanted))
                zero += float(share[some] @ lost)
                square += float(share[some] @ np.sum(seen**2, axis=1))
        self.turned = parts.at_once(len(x))
        with precision(dtype):
            # Many rows in an array of JAX's stay where they are; others are copied once.
            self.seen, self.wanted = (
                jnp.asarray(rows.T if self.turned else rows, dtype)
                for rows in (
                    given if isinstance(given, Array) else checked
                    for given, checked in ((inputs, x), (targets, y))
                )
            )
            self.share = jnp.asarray(share, dtype)
            self.unit = jnp.asarray(zero if zero > 0 else 1.0, dtype)
            self.mean_square_input = jnp.asarray(square, dtype)
        self.mesh = self.window = None

    def within(self, first: int, count: int) -> "Problem":
        """The same problem with some of its chunks of rows (`parts.chunks_of`) and no others.

        Programs are compiled once for all windows of a problem, the one of all chunks included.
        """
        leaves, structure = self.tree_flatten()
        with precision(self.dtype):
            one = jnp.ones((), self.dtype)
            window = parts.Window(jnp.asarray(first, np.int32), jnp.asarray(count, np.int32), one)
            some = self.tree_unflatten(structure, [*leaves[:-1], window])
            weight = _counted(some)
            some.window = window._replace(weight=jnp.where(weight > 0, weight, one))
        return some

    def with_rows(
        self, inputs: ArrayLike, targets: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> "Problem":
        """The same network and loss, in the same unit, with other rows."""
        other = Problem(
            self.network,
            inputs,
            targets,
            loss=self.criterion,
            sample_weight=sample_weight,
            dtype=self.dtype,
        )
        other.unit = self.unit
        return other

    def tree_flatten(self) -> tuple[tuple[Any, ...], Structure]:
        """For JAX: the data are leaves, the network and the loss are structure."""
        data = self.seen, self.wanted, self.share
        leaves = (*data, self.unit, self.mean_square_input, self.window)
        return leaves, Structure(self.network, self.criterion, self.turned, self.mesh)

    @classmethod
    def tree_unflatten(cls, structure: Structure, leaves: Sequence[Any]) -> Self:
        """For JAX."""
        problem = object.__new__(cls)
        problem.network, problem.criterion, problem.turned, problem.mesh = structure
        problem.seen, problem.wanted, problem.share = leaves[:3]
        problem.unit, problem.mean_square_input, problem.window = leaves[3:]
        return problem

    @property
    def dtype(self) -> np.dtype:
        """float32 or float64."""
        return np.dtype(self.share.dtype)

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.share)

    @property
    def inputs(self) -> Array:
        """Rows of inputs."""
        return self.seen.T if self.turned else self.seen

    @property
    def targets(self) -> Array:
        """Rows of targets."""
        return self.wanted.T if self.turned else self.wanted

    def columns(self, values: Array) -> Array:
        """`seen` or `wanted` as the passes have them."""
        return values if self.turned else values.T

    def outputs(self, weights: Sequence[ArrayLike]) -> Array:
        """f(x; w) of every row."""
        with precision(self.dtype):
            return _outputs(self, tuple(map(jnp.asarray, weights)))

    def loss_of(self, outputs: Array) -> Array:
        """Mean loss of given outputs."""
        return self.unit * self.scaled_loss_of(outputs.T)

    def loss(self, weights: Sequence[ArrayLike]) -> Array:
        """Mean loss over the rows."""
        with precision(self.dtype):
            return value_of(self, tuple(map(jnp.asarray, weights))) * self.unit

    @property
    def in_parts(self) -> bool:
        """Whether passes over the rows go part by part."""
        apart = self.mesh is not None or self.window is not None
        return apart or not parts.at_once(self.count)

    def value(self, weights: Weights) -> Array:
        """The loss in units of `unit`."""
        return parts.summed(self, _value, weights) if self.in_parts else _value(self, weights)

    def forward(self, weights: Weights) -> tuple[Array, _Forward | _Again]:
        """The loss, and what each layer saw."""
        if self.in_parts:  # the gradient at once: it would have to go forward again
            loss, gradient = parts.summed(self, _value_and_gradient, weights)
            return loss, _Again(weights, gradient)
        left = self.passed_forward(weights)
        return self.scaled_loss_of(left.outputs), left

    def backward(
        self, weights: Weights, left: _Forward | _Again
    ) -> tuple[Weights, _Backward | _Again]:
        """The gradient, and the adjoint of each layer."""
        if isinstance(left, _Again):
            return left.gradient, left
        pull = jax.grad(self.scaled_loss_of)(left.outputs)
        gradient, adjoints = self.network.backward(weights, left.trace, pull)
        return gradient, _Backward(*left, adjoints)

    def _sum(self, quantity: Callable[..., Any], left: _Backward | _Again, *more: Any) -> Any:
        """A sum over the rows of what `quantity` makes of what a backward pass left."""
        if isinstance(left, _Backward):
            return quantity(self, left, *more)

        def again(part: Problem, weights: Weights, *more: Any) -> Any:
            return quantity(part, part._passed(weights), *more)

        return parts.summed(self, again, left.weights, *more)

    def passed_forward(self, weights: Weights) -> _Forward:
        """What the forward pass over all rows at once leaves."""
        return _Forward(*self.network.forward(weights, self.columns(self.seen)))

    def _passed(self, weights: Weights) -> _Backward:
        """What the backward pass over all rows at once leaves."""
        return self.backward(weights, self.passed_forward(weights))[1]  # type: ignore[return-value]

    def second_order(self, weights: Weights, velocity: Weights, left: _Backward | _Again) -> Array:
        """vᵀ ∇²L v: the loss's own curvature along f', plus its slope along f''."""
        return self._sum(_second_order, left, weights, velocity)

    def sampled(self, every: int, turn: Any) -> tuple["Problem", float | Array]:
        """The problem of every so many rows, other ones each turn; and its size, relative to ours.

        Rows outside of a window are as good, and the sample is no larger for it.
        """
        share = 1 / max(1, min(every, self.count))
        if self.window is not None:
            share *= parts.chunks_of(self.count)[0] / self.window.chunks
        return parts.sample(self, every, turn), share

    def revisited(self, weights: Weights) -> _Backward | _Again:
        """What a backward pass leaves, where there was none."""
        return _Again(weights, ()) if self.in_parts else self._passed(weights)

    def linearised(
        self, weights: Weights, left: _Backward | _Again, share: float = 1.0, turn: Any = 0
    ) -> tuple[Callable[[Weights], Weights], float | Array]:
        """The map v ↦ Jᵀ H J v, from a sample of the rows."""
        every = int(1 / share)
        if every > 1:
            some, part = self.sampled(every, turn)
            return some.linearised(weights, some.revisited(weights))[0], part
        if isinstance(left, _Again):
            return partial(parts.summed, self, _image, weights), 1.0
        return partial(_image_from, self, left, weights), 1.0

    def moments(self, headings: Weights, left: _Backward | _Again) -> tuple[Array, Array, Array]:
        """Means over the rows of ‖hW‖², ⟨hW, hU⟩ and ‖hU‖² for each layer."""
        return self._sum(_moments, left, headings)

    def pull(self, left: _Backward | _Again) -> Array:
        """Root mean square of the loss's gradient in the outputs."""
        return jnp.sqrt(self._sum(_squared_pull, left))

    def largest_input(self) -> Array:
        """Largest ‖x‖ of a row that counts."""
        squares = jnp.sum(self.columns(self.seen) ** 2, axis=0)
        return jnp.sqrt(jnp.max(jnp.where(self.share > 0, squares, 0)))

    def gram(self, weights: Weights, velocities: Weights, left: Any) -> Array:
        """⟨J a, H J b⟩ of each pair of a stack of velocities."""
        return self._sum(_gram, left, weights, velocities)

    def kronecker(self, left: _Backward | _Again) -> tuple[Array, Array]:
        """Second moments of what each layer sees and of the loss's slope in what it makes.

        Both as stacks over the layers, filled up with zeros. Their Kronecker products stand for
        the blocks of the Gauss-Newton matrix (`docs/directions.md`).
        """
        seen, slopes, square = self._sum(_second_moments, left)
        # At the output their second moment is H, on average, up to this factor.
        size = square * self.unit / (self.network.sizes[-1] * self.criterion.curvature)
        return seen, (1 / jnp.where(size > 0, size, 1)) * slopes

    def scaled_loss_of(self, outputs: Array) -> Array:
        """Mean loss of outputs as the passes give them, in units of `unit`."""
        lost = losses.of_columns(self.criterion, outputs, self.columns(self.wanted))
        return self.share @ lost / self.unit


# What follows are sums over rows, of a problem that is small enough to do them all at once.


def _value(problem: Problem, weights: Weights) -> Array:
    return problem.scaled_loss_of(problem.passed_forward(weights).outputs)


def _value_and_gradient(problem: Problem, weights: Weights) -> tuple[Array, Weights]:
    left = problem.passed_forward(weights)
    return problem.scaled_loss_of(left.outputs), problem.backward(weights, left)[0]


def _second_order(problem: Problem, left: _Backward, weights: Weights, velocity: Weights) -> Array:
    push, bend = problem.network.second_order(weights, velocity, left.trace, left.adjoints)
    return quadratic_form(problem.scaled_loss_of, left.outputs, push) + bend


def _image(problem: Problem, weights: Weights, velocity: Weights) -> Weights:
    return _image_from(problem, problem.passed_forward(weights), weights, velocity)


def _image_from(
    problem: Problem, left: _Forward | _Backward, weights: Weights, velocity: Weights
) -> Weights:
    """Jᵀ H J v."""
    push = problem.network.jvp(weights, velocity, left.trace)
    curved = jax.jvp(jax.grad(problem.scaled_loss_of), (left.outputs,), (push,))[1]
    return problem.network.backward(weights, left.trace, curved)[0]


def _moments(problem: Problem, left: _Backward, headings: Weights) -> tuple[Array, Array, Array]:
    network = problem.network
    sums = (*left.trace.sums, left.outputs)
    pairs = [
        (made, network.layer(seen, u))
        for seen, made, u in zip(left.trace.inputs, sums, headings, strict=True)
    ]

    def mean(a: Array, b: Array) -> Array:
        return jnp.sum((a * b) @ problem.share)

    return (
        jnp.stack([mean(made, made) for made, _ in pairs]),
        jnp.stack([mean(made, turned) for made, turned in pairs]),
        jnp.stack([mean(turned, turned) for _, turned in pairs]),
    )


def _squared_pull(problem: Problem, left: _Backward) -> Array:
    share = jnp.where(problem.share > 0, problem.share, 1)
    squares = jnp.sum(left.adjoints.sums[-1] ** 2, axis=0)
    return jnp.sum(squares / share)


def _gram(problem: Problem, left: _Backward, weights: Weights, velocities: Weights) -> Array:
    pushes = problem.network.jvps(weights, velocities, left.trace)
    slope = jax.grad(problem.scaled_loss_of)

    def curved(push: Array) -> Array:
        return jax.jvp(slope, (left.outputs,), (push,))[1]

    images = jax.vmap(curved, in_axes=1, out_axes=1)(pushes)
    products = jnp.einsum("imr,inr->mn", pushes, images)
    return (products + products.T) / 2  # H is symmetric, but for rounding


def _second_moments(problem: Problem, left: _Backward) -> tuple[Array, Array, Array]:
    root = jnp.sqrt(problem.share)[None]
    safe = jnp.where(root > 0, root, 1)
    seen = [root * h for h in left.trace.inputs]
    if problem.network.bias:
        seen = [jnp.vstack([h, root]) for h in seen]
    slopes = [a / safe for a in left.adjoints.sums]
    return (
        sphere.stacked([h @ h.T for h in seen]),
        sphere.stacked([s @ s.T for s in slopes]),
        jnp.sum(slopes[-1] ** 2),
    )


@partial(jax.jit, static_argnums=0)
def _losses(criterion: Loss, outputs: Array, targets: Array) -> Array:
    """Of each row, compiled once for each kind of loss."""
    return losses.of_columns(criterion, outputs.T, targets.T)


@jax.jit
def _counted(problem: Problem) -> Array:
    """Sum of the weights of the rows."""
    return parts.summed(problem, lambda part: jnp.sum(part.share))


@jax.jit
def _outputs(problem: Problem, weights: Weights) -> Array:
    return problem.network.apply(weights, problem.inputs)
