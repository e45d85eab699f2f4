"""Settings of a fit, from the parameters of an estimator, checked before any data are read."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from greatcircle._runtime.dtypes import checked_dtype
from greatcircle.bounded.budget import MAX_ROUNDS
from greatcircle.network.activations import Activation, get
from greatcircle.optimise import stopping
from greatcircle.optimise.directions import Direction
from greatcircle.optimise.record import Record
from greatcircle.optimise.steps import Step
from greatcircle.optimise.stopping import Rule
from greatcircle.training.methods import Initialisation, Method, method_of

__all__ = ["MAY_CHANGE", "FitSettings", "fit_settings"]

MAY_CHANGE = (
    "callbacks",
    "checkpoint",
    "checkpoint_interval",
    "max_iter",
    "n_iter_no_change",
    "random_state",  # a resumed fit uses the seed in the checkpoint
    "resume",
    "tol",
    "verbose",
    "warm_start",
)
"""Parameters that may have other values when a fit is resumed."""

FLOAT64_ROWS = 2000
"""Largest number of rows for which dtype="auto" is float64, where that costs next to nothing."""


@dataclass(frozen=True)
class FitSettings:
    """The checked settings of a fit."""

    direction: Direction | None
    """None leaves the choice to `directions.automatic`."""
    step: Step
    initialisation: Initialisation
    scaling: str
    stop: Rule
    hidden_layer_sizes: tuple[int, ...]
    activation: Activation
    budget: float | None
    """Largest certified bound, in units of y per unit of X."""
    budget_iterations: int
    """Largest number of iterations within the budget; zero only scales the weights down to it."""
    batch_size: int | None
    """Number of rows of the first batches, or None for all."""
    starts_with_chunk: bool
    """Whether training on many rows starts with a chunk of them."""
    dtype: str
    validation_fraction: float | None
    """Fraction of the rows held out for early stopping, or None."""
    patience: int
    callbacks: tuple[Callable[[Record], Any], ...]

    def dtype_for(self, rows: int) -> np.dtype:
        """Return the working precision for a number of rows."""
        if self.dtype != "auto":
            return checked_dtype(self.dtype)
        return np.dtype(np.float64 if rows <= FLOAT64_ROWS else np.float32)


def fit_settings(parameters: Any, default_sizes: tuple[int, ...]) -> FitSettings:
    """Return the settings of an estimator, or raise an error that names the wrong parameter."""
    method = method_of(parameters.method)
    scaling = method.scaling if parameters.scaling is None else parameters.scaling
    budget = parameters.lipschitz
    automatic = isinstance(parameters.batch_size, str) and parameters.batch_size == "auto"
    sizes = parameters.hidden_layer_sizes
    given_sizes = not (isinstance(sizes, str) and sizes == "auto")
    _check_early_stopping(parameters.validation_fraction, parameters.n_iter_no_change)
    return FitSettings(
        direction=method.direction,
        step=method.step,
        initialisation=(
            method.initialisation
            if parameters.radius is None
            else method.initialisation._replace(radius=parameters.radius)
        ),
        scaling=scaling,
        stop=stopping.MaxIter(parameters.max_iter)
        | stopping.DecreaseBelow(_checked_tolerance(parameters.tol, method)),
        hidden_layer_sizes=_checked_sizes(sizes) if given_sizes else default_sizes,
        activation=get(parameters.activation),
        budget=None if budget is None else _checked_budget(budget, scaling),
        budget_iterations=min(MAX_ROUNDS, parameters.max_iter),
        batch_size=None if automatic else _checked_batch_size(parameters.batch_size),
        starts_with_chunk=automatic and not method.all_rows,
        dtype=_checked_dtype(parameters.dtype),
        validation_fraction=parameters.validation_fraction if parameters.early_stopping else None,
        patience=parameters.n_iter_no_change,
        callbacks=_checked_callbacks(parameters.callbacks),
    )


def _checked_tolerance(tol: Any, method: Method) -> float:
    tol = method.tol if tol is None else tol
    if not isinstance(tol, Real) or not float(tol) >= 0:
        raise ValueError(f"tol is {tol!r}; expected a non-negative number, or None")
    return float(tol)


def _checked_dtype(dtype: Any) -> str:
    if isinstance(dtype, str) and dtype == "auto":
        return dtype
    return checked_dtype(dtype, also="'auto', ").name


def _checked_batch_size(batch_size: Any) -> int | None:
    if batch_size is not None and not _is_count(batch_size):
        raise ValueError(
            f"batch_size is {batch_size!r}; expected a whole number of at least 1, 'auto', or None"
        )
    return batch_size


def _checked_callbacks(callbacks: Any) -> tuple[Callable[[Record], Any], ...]:
    if not isinstance(callbacks, Iterable) or not all(map(callable, callbacks)):
        raise ValueError(f"callbacks is {callbacks!r}; expected a list of functions")
    return tuple(callbacks)


def _checked_budget(lipschitz: Any, scaling: str) -> float:
    if scaling == "paper":
        raise ValueError(
            f"lipschitz is {lipschitz!r} with scaling='paper', which has no global bound; "
            "use scaling='standard' or 'max'"
        )
    if not isinstance(lipschitz, Real) or not 0 < float(lipschitz) < np.inf:
        raise ValueError(f"lipschitz is {lipschitz!r}; expected a positive number, or None")
    return float(lipschitz)


def _checked_sizes(hidden_layer_sizes: Any) -> tuple[int, ...]:
    """Return the sizes; one number is one hidden layer, as in scikit-learn."""
    sizes = np.atleast_1d(np.asarray(hidden_layer_sizes, dtype=object)).tolist()
    if not all(map(_is_count, sizes)):
        raise ValueError(
            f"hidden_layer_sizes is {hidden_layer_sizes!r}; expected positive whole numbers, or "
            "'auto'"
        )
    return tuple(sizes)


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 1)


def _check_early_stopping(fraction: Any, patience: Any) -> None:
    if not isinstance(fraction, Real) or not 0 < float(fraction) < 1:
        raise ValueError(f"validation_fraction is {fraction!r}; expected a number in (0, 1)")
    if not _is_count(patience):
        raise ValueError(f"n_iter_no_change is {patience!r}; expected a whole number of at least 1")
