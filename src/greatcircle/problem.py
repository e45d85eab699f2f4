"""What is minimised: a network, a loss and scaled data, frozen; or any object with `loss(weights)`.

The loop asks an objective for three passes, each using the one before:

- `forward(weights)` gives the loss and whatever the pass left behind;
- `backward(weights, left)` gives the gradient and whatever that pass left behind;
- `second_order(weights, velocity, left)` gives vᵀ ∇²L v, without a Hessian.

Gauss-Newton asks for one more: `linearised(weights, left)` gives v ↦ Jᵀ H J v, where J is the
derivative of the outputs and H the Hessian of the loss in them, and how much of a pass over the
data each product is.

`Problem` does them by hand for a `Network`, sharing every product. `Custom` does them by automatic
differentiation for everything else.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, DTypeLike

from greatcircle import losses, sphere
from greatcircle.losses import Loss
from greatcircle.network import Adjoints, Network, Trace, Weights
from greatcircle.precision import checked_dtype, precision
from greatcircle.scaling import checked_share
from greatcircle.sphere import Tree


class Objective(Protocol):
    """What the loop asks of the thing that is minimised. All values are in units of `unit`."""

    unit: Any

    def value(self, weights: Tree) -> Array:
        """The loss."""
        ...

    def forward(self, weights: Tree) -> tuple[Array, Any]:
        """The loss, and what `backward` needs."""
        ...

    def backward(self, weights: Tree, left: Any) -> tuple[Tree, Any]:
        """The gradient, and what `second_order` needs."""
        ...

    def second_order(self, weights: Tree, velocity: Tree, left: Any) -> Array:
        """vᵀ ∇²L v."""
        ...

    def linearised(
        self, weights: Tree, left: Any, share: float = 1.0, turn: Any = 0
    ) -> tuple[Callable[[Tree], Tree], float]:
        """The map v ↦ Jᵀ H J v on a share of the rows, other ones each turn; and that share."""
        ...


class _Forward(NamedTuple):
    outputs: Array
    trace: Trace


class _Backward(NamedTuple):
    outputs: Array
    trace: Trace
    adjoints: Adjoints


class Block(NamedTuple):
    """Some of the rows."""

    some: Callable[[Array], Array]
    """Takes these rows of an array of all."""
    pull: Callable[[Array], Array]
    """Gradient of their mean loss in their outputs."""
    share: float
    """Of all rows."""


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
    inputs: Array
    targets: Array
    share: Array
    """Weight of each row, summing to one."""
    unit: Array
    """Loss of the zero function: inside the loop it is one, so that float32 is used well."""
    mean_square_input: Array
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
                f"network is a {type(network).__name__}; expected a Network, as in "
                "Problem(Network((inputs, hidden, outputs)), inputs, targets)"
            )
        self.network = network
        self.criterion = losses.get(loss)
        x = checked_matrix(inputs, "inputs", network.sizes[0])
        y = checked_matrix(targets, "targets", network.sizes[-1])
        if len(x) != len(y):
            raise ValueError(
                f"inputs has {len(x)} rows and targets {len(y)}; expected the same number: one row "
                "of targets for each row of inputs"
            )
        self.criterion.check(y)
        share = checked_share(sample_weight, len(x))
        dtype = checked_dtype(dtype)
        with precision(np.float64):
            rows = jax.jit(self.criterion.rows)(np.zeros_like(y), y)
            zero = float(share @ np.asarray(rows))
        with precision(dtype):
            self.inputs, self.targets = jnp.asarray(x, dtype), jnp.asarray(y, dtype)
            self.share = jnp.asarray(share, dtype)
            self.unit = jnp.asarray(zero if zero > 0 else 1.0, dtype)
            self.mean_square_input = jnp.asarray(share @ np.sum(x**2, axis=1), dtype)

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

    def tree_flatten(self) -> tuple[tuple[Array, ...], tuple[Network, Loss]]:
        """For JAX: the data are leaves, the network and the loss are structure."""
        leaves = (self.inputs, self.targets, self.share, self.unit, self.mean_square_input)
        return leaves, (self.network, self.criterion)

    @classmethod
    def tree_unflatten(cls, structure: tuple[Network, Loss], leaves: Sequence[Any]) -> Self:
        """For JAX."""
        problem = object.__new__(cls)
        problem.network, problem.criterion = structure
        problem.inputs, problem.targets, problem.share = leaves[:3]
        problem.unit, problem.mean_square_input = leaves[3:]
        return problem

    @property
    def dtype(self) -> np.dtype:
        """float32 or float64."""
        return np.dtype(self.inputs.dtype)

    def outputs(self, weights: Sequence[ArrayLike]) -> Array:
        """f(x; w) of every row."""
        with precision(self.dtype):
            return _outputs(self, tuple(map(jnp.asarray, weights)))

    def loss_of(self, outputs: Array) -> Array:
        """Mean loss of given outputs."""
        return self.share @ self.criterion.rows(outputs, self.targets)

    def loss(self, weights: Sequence[ArrayLike]) -> Array:
        """Mean loss over the rows."""
        with precision(self.dtype):
            return value_of(self, tuple(map(jnp.asarray, weights))) * self.unit

    def value(self, weights: Weights) -> Array:
        """The loss in units of `unit`."""
        return self.scaled_loss_of(self.network.apply(weights, self.inputs))

    def forward(self, weights: Weights) -> tuple[Array, _Forward]:
        """The loss, and what each layer saw."""
        outputs, trace = self.network.forward(weights, self.inputs)
        return self.scaled_loss_of(outputs), _Forward(outputs, trace)

    def backward(self, weights: Weights, left: _Forward) -> tuple[Weights, _Backward]:
        """The gradient, and the adjoint of each layer."""
        pull = jax.grad(self.scaled_loss_of)(left.outputs)
        gradient, adjoints = self.network.backward(weights, left.trace, pull)
        return gradient, _Backward(*left, adjoints)

    def second_order(self, weights: Weights, velocity: Weights, left: _Backward) -> Array:
        """vᵀ ∇²L v: the loss's own curvature along f', plus its slope along f''."""
        push, bend = self.network.second_order(weights, velocity, left.trace, left.adjoints)
        return quadratic_form(self.scaled_loss_of, left.outputs, push) + bend

    def linearised(
        self, weights: Weights, left: _Backward, share: float = 1.0, turn: Any = 0
    ) -> tuple[Callable[[Weights], Weights], float]:
        """The map v ↦ Jᵀ H J v, from a block of the rows: blocks take turns."""
        block = self.block(share, turn)
        outputs, trace = block.some(left.outputs), jax.tree.map(block.some, left.trace)

        def product(velocity: Weights) -> Weights:
            push = self.network.push(weights, velocity, trace)
            curved = jax.jvp(block.pull, (outputs,), (push,))[1]
            return self.network.backward(weights, trace, curved)[0]

        return product, block.share

    def block(self, share: float, turn: Any) -> "Block":
        """A block of about a share of the rows, which stands for all; blocks take turns."""
        rows = self.inputs.shape[0]
        taken = max(1, min(rows, round(share * rows)))
        blocks = rows // taken
        first = (turn % blocks) * taken

        def some(values: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(values, first, taken) if blocks > 1 else values

        targets, weight = some(self.targets), some(self.share)
        # A block without weight has no curvature.
        total = jnp.sum(weight)
        scale = 1 / (jnp.where(total > 0, total, 1) * self.unit)
        pull = jax.grad(lambda f: scale * (weight @ self.criterion.rows(f, targets)))
        return Block(some, pull, taken / rows if blocks > 1 else 1.0)

    def moments(self, headings: Weights, left: _Backward) -> tuple[Array, Array, Array]:
        """Means over the rows of ‖hW‖², ⟨hW, hU⟩ and ‖hU‖² for each layer."""
        sums = (*left.trace.sums, left.outputs)
        pairs = [
            (made, self.network.layer(seen, u))
            for seen, made, u in zip(left.trace.inputs, sums, headings, strict=True)
        ]

        def mean(a: Array, b: Array) -> Array:
            return self.share @ jnp.sum(a * b, axis=1)

        return (
            jnp.stack([mean(made, made) for made, _ in pairs]),
            jnp.stack([mean(made, turned) for made, turned in pairs]),
            jnp.stack([mean(turned, turned) for _, turned in pairs]),
        )

    def pull(self, left: _Backward) -> Array:
        """Root mean square of the loss's gradient in the outputs."""
        share = jnp.where(self.share > 0, self.share, 1)
        return jnp.sqrt(jnp.sum(jnp.sum(left.adjoints.sums[-1] ** 2, axis=1) / share))

    def largest_input(self) -> Array:
        """Largest ‖x‖ of a row that counts."""
        return jnp.sqrt(jnp.max(jnp.where(self.share > 0, jnp.sum(self.inputs**2, axis=1), 0)))

    def pushed(self, weights: Weights, velocity: Weights, left: _Backward) -> tuple[Array, Array]:
        """J v and H J v, so that their inner products are those of Jᵀ H J."""
        push = self.network.push(weights, velocity, left.trace)
        return push, jax.jvp(jax.grad(self.scaled_loss_of), (left.outputs,), (push,))[1]

    def kronecker(self, left: _Backward) -> tuple[Array, Array]:
        """Second moments of what each layer sees and of the loss's slope in what it makes.

        Both as stacks over the layers, filled up with zeros. Their Kronecker products stand for
        the blocks of the Gauss-Newton matrix (`docs/directions.md`).
        """
        root = jnp.sqrt(self.share)[:, None]
        safe = jnp.where(root > 0, root, 1)
        seen = [root * h for h in left.trace.inputs]
        if self.network.bias:
            seen = [jnp.hstack([h, root]) for h in seen]
        slopes = [a / safe for a in left.adjoints.sums]
        # At the output their second moment is H, on average, up to this factor.
        last = slopes[-1]
        size = jnp.sum(last**2) * self.unit / (last.shape[1] * self.criterion.curvature)
        scale = 1 / jnp.where(size > 0, size, 1)
        return (
            sphere.stacked([h.T @ h for h in seen]),
            scale * sphere.stacked([s.T @ s for s in slopes]),
        )

    def scaled_loss_of(self, outputs: Array) -> Array:
        """Mean loss of given outputs, in units of `unit`."""
        return self.loss_of(outputs) / self.unit


class Custom:
    """Any object with `loss(weights)`, where `weights` is a pytree of matrices.

    What the object holds becomes part of the compiled program, so each run compiles anew: a user
    may have changed the object in between.
    """

    def __init__(self, user: Any, dtype: np.dtype) -> None:
        if not callable(getattr(user, "loss", None)):
            raise TypeError(
                f"problem is a {type(user).__name__} without a method loss(weights); "
                "expected a Problem or any object that has one"
            )
        self.user = user
        self.identity = object()
        self.unit = np.ones((), dtype)

    def value(self, weights: Tree) -> Array:
        """The loss."""
        return self.user.loss(weights)

    def forward(self, weights: Tree) -> tuple[Array, Callable[[Array], tuple[Tree]]]:
        """The loss and its pull-back."""
        return jax.vjp(self.value, weights)

    def backward(self, weights: Tree, left: Callable[[Array], tuple[Tree]]) -> tuple[Tree, None]:
        """The gradient."""
        return left(jnp.ones((), self.unit.dtype))[0], None

    def second_order(self, weights: Tree, velocity: Tree, left: None) -> Array:
        """vᵀ ∇²L v, forward over forward."""
        return quadratic_form(self.value, weights, velocity)

    def linearised(
        self, weights: Tree, left: None, share: float = 1.0, turn: Any = 0
    ) -> tuple[Callable[[Tree], Tree], float]:
        """The map v ↦ Jᵀ H J v from the user's `outputs` and `loss_of`; always from all rows."""
        outputs, push = jax.linearize(self.user.outputs, weights)
        pull = jax.linear_transpose(push, weights)
        slope = jax.grad(self.user.loss_of)

        def product(velocity: Tree) -> Tree:
            return pull(jax.jvp(slope, (outputs,), (push(velocity),))[1])[0]

        return product, 1.0


def _rebuilt(structure: tuple[Any, object], leaves: Sequence[Any]) -> Custom:
    custom = object.__new__(Custom)
    custom.user, custom.identity = structure
    (custom.unit,) = leaves
    return custom


class _Structure(tuple[Any, object]):
    """User's object and the identity of its wrapper; only the latter counts."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Structure) and self[1] is other[1]

    def __hash__(self) -> int:
        return hash(self[1])


jax.tree_util.register_pytree_node(
    Custom, lambda custom: ((custom.unit,), _Structure((custom.user, custom.identity))), _rebuilt
)


def quadratic_form(function: Callable[[Tree], Array], point: Tree, velocity: Tree) -> Array:
    """vᵀ ∇²f v by forward over forward differentiation."""

    def along(p: Tree) -> Array:
        return jax.jvp(function, (p,), (velocity,))[1]

    return jax.jvp(along, (point,), (velocity,))[1]


def checked_matrix(values: ArrayLike, name: str, columns: int | None = None) -> np.ndarray:
    """Finite float64 matrix with at least one row, or an error that names the argument."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} has entries that are not numbers; expected a matrix: encode text, and give "
            "all rows the same length"
        ) from None
    if array.ndim != 2:
        raise ValueError(
            f"{name} has shape {array.shape}; expected two dimensions, rows by columns: "
            f"reshape one column with {name}.reshape(-1, 1)"
        )
    if 0 in array.shape:
        raise ValueError(f"{name} is empty, shape {array.shape}; expected at least one row")
    if columns is not None and array.shape[1] != columns:
        raise ValueError(
            f"{name} has {array.shape[1]} columns; the network expects {columns}: "
            "change the data or the network's sizes"
        )
    bad = ~np.isfinite(array)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"{name} has {bad.sum()} entries that are NaN or infinite, the first in row {row}, "
            f"column {column}: remove or fill them before training"
        )
    return array


@jax.jit
def value_of(objective: Objective, weights: Tree) -> Array:
    """The loss in units of `unit`, compiled."""
    return objective.value(weights)


@jax.jit
def _outputs(problem: Problem, weights: Weights) -> Array:
    return problem.network.apply(weights, problem.inputs)
