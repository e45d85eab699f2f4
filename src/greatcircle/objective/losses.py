"""Convex losses of one row: squared, Huber, softmax cross-entropy, logistic.

`curvature` bounds the largest eigenvalue of the Hessian in the outputs. Multiplied by it, Q of
Eq. (22), which the paper derives for the squared loss alone, gives a majorant for every loss here.
"""

from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

__all__ = [
    "LOSSES",
    "Huber",
    "Logistic",
    "Loss",
    "SoftmaxCrossEntropy",
    "Squared",
    "get",
    "of_columns",
    "of_rows",
]


def __dir__() -> list[str]:
    return sorted(__all__)


AnyArray = Array | np.ndarray
Row = Float[AnyArray, " outputs"]
Columns = Float[AnyArray, "outputs rows"]
Scalar = Float[Array, ""]
Targets = Float[np.ndarray, "rows outputs"]


@runtime_checkable
class Loss(Protocol):
    """The protocol of a loss."""

    @property
    def name(self) -> str:
        """Name in messages and files."""
        ...

    @property
    def curvature(self) -> float:
        """Upper bound on the eigenvalues of the Hessian in the outputs."""
        ...

    def of_row(self, outputs: Row, targets: Row) -> Scalar:
        """Return the loss of one row."""
        ...

    def check(self, targets: Targets) -> None:
        """Raise ValueError if the targets do not suit the loss."""
        ...


@dataclass(frozen=True)
class Squared:
    """½‖f − y‖², the paper's loss."""

    name = "squared"
    curvature = 1.0

    def of_row(self, outputs: Row, targets: Row) -> Scalar:
        """Return the loss of one row."""
        return 0.5 * _total((outputs - targets) ** 2)

    def check(self, targets: Targets) -> None:
        """Accept all finite targets."""


@dataclass(frozen=True)
class Huber:
    """½r² up to `delta`, then linear; summed over the outputs."""

    delta: float = 1.0
    name = "huber"
    curvature = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.delta, Real) or not 0 < float(self.delta) < np.inf:
            raise ValueError(f"delta is {self.delta!r}; expected a positive number")

    def of_row(self, outputs: Row, targets: Row) -> Scalar:
        """Return the loss of one row."""
        error = outputs - targets
        clipped = jnp.where(error > self.delta, self.delta, error)
        clipped = jnp.where(error < -self.delta, -self.delta, clipped)
        return _total(clipped * (error - 0.5 * clipped))

    def check(self, targets: Targets) -> None:
        """Accept all finite targets."""


@dataclass(frozen=True)
class SoftmaxCrossEntropy:
    """−Σ y_k log softmax(f)_k; each row of targets is a probability distribution.

    The Hessian diag(p) − ppᵀ has no eigenvalue above ½.
    """

    name = "softmax"
    curvature = 0.5

    def of_row(self, outputs: Row, targets: Row) -> Scalar:
        """Return the loss of one row."""
        return jax.nn.logsumexp(outputs) - _total(targets * outputs)

    def check(self, targets: Targets) -> None:
        """Raise ValueError unless rows are non-negative and sum to one."""
        if targets.shape[1] < 2:
            raise ValueError(
                "loss 'softmax' needs at least two target columns, one for each class; "
                "for one column of 0 and 1 use loss='logistic'"
            )
        if np.any(targets < 0) or np.any(np.abs(targets.sum(axis=1) - 1) > 1e-6):
            raise ValueError(
                "loss 'softmax' needs target rows that are non-negative and sum to one; "
                "one-hot encode the classes"
            )


@dataclass(frozen=True)
class Logistic:
    """log(1 + eᶠ) − y f for targets between 0 and 1, summed over the outputs.

    Its second derivative p(1 − p) never exceeds ¼.
    """

    name = "logistic"
    curvature = 0.25

    def of_row(self, outputs: Row, targets: Row) -> Scalar:
        """Return the loss of one row."""
        # log(1 + eᶠ) without overflow; the branches agree in every derivative at 0.
        small = jnp.exp(jnp.where(outputs < 0, outputs, -outputs))
        softplus = jnp.where(outputs < 0, 0, outputs) + jnp.log1p(small)
        return _total(softplus - targets * outputs)

    def check(self, targets: Targets) -> None:
        """Raise ValueError unless all entries are between 0 and 1."""
        if np.any((targets < 0) | (targets > 1)):
            raise ValueError(
                "loss 'logistic' needs targets between 0 and 1; encode the two classes as 0 and 1"
            )


LOSSES: dict[str, Loss] = {
    loss.name: loss for loss in (Squared(), Huber(), SoftmaxCrossEntropy(), Logistic())
}


def get(choice: str | Loss) -> Loss:
    """Look up a loss by name, or return the given one."""
    if callable(getattr(choice, "of_row", None)) and not isinstance(choice, str | type):
        return choice
    if not isinstance(choice, str) or choice not in LOSSES:
        raise ValueError(
            f"loss is {choice!r}; expected one of {', '.join(LOSSES)}, or a loss object such as "
            "losses.Huber(delta=1.0)"
        )
    return LOSSES[choice]


def of_columns(loss: Loss, outputs: Columns, targets: Columns) -> Float[Array, " rows"]:
    """Return the loss of each row of data, given as columns, as in the passes of a network."""
    return jax.vmap(loss.of_row, in_axes=1)(outputs, targets)


@partial(jax.jit, static_argnums=0)
def of_rows(loss: Loss, outputs: Array, targets: Array) -> Float[Array, " rows"]:
    """Return the loss of each row of data, compiled once for each kind of loss."""
    return of_columns(loss, outputs.T, targets.T)


def _total(values: Row) -> Scalar:
    """Return the sum, as a product: XLA's sum over few outputs takes four times as long."""
    return jnp.dot(values, jnp.ones_like(values), precision="highest")
