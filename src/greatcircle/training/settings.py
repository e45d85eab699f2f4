"""What the parameters of an estimator mean, checked before any data are looked at."""

from collections.abc import Iterable
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from greatcircle._runtime.dtypes import checked_dtype
from greatcircle.optimise import stopping
from greatcircle.optimise.directions import Direction
from greatcircle.optimise.steps import Step
from greatcircle.optimise.stopping import Rule
from greatcircle.training.methods import DIRECTIONS, METHODS, STARTS, STEPS, Start, lookup

MAY_CHANGE = (
    "callbacks",
    "checkpoint",
    "checkpoint_seconds",
    "max_iter",
    "n_iter_no_change",
    "random_state",  # the checkpoint's seed counts
    "resume",
    "tol",
    "verbose",
    "warm_start",
)
"""Parameters that a fit may be resumed with other values of."""


class Plan(NamedTuple):
    """What the parameters say, checked before any data are looked at."""

    direction: Direction | None
    step: Step
    start: Start
    scaling: str
    stop: Rule
    widths: tuple[int, ...]
    budget: float | None
    """Largest certified bound, in units of y per unit of X."""
    max_iter: int
    batch_size: int | None
    """Rows of the first batches, or None for all."""
    in_chunks: bool
    """Whether training starts with a chunk of many rows."""


def plan_of(model: Any, default_widths: tuple[int, ...]) -> Plan:
    """What the parameters of an estimator say."""
    method = method_of(model.method)
    scaling = method.scaling if model.scaling is None else model.scaling
    start = method.start
    budget = None if model.lipschitz is None else checked_budget(model.lipschitz, scaling)
    if model.radius is not None:
        start = start._replace(radius=model.radius)
    tol = method.tol if model.tol is None else model.tol
    if not isinstance(tol, Real) or not float(tol) >= 0:
        raise ValueError(f"tol is {tol!r}; expected a number that is not negative, or None")
    if not isinstance(model.dtype, str) or model.dtype != "auto":
        checked_dtype(model.dtype, also="'auto', ")
    check_early_stopping(model.validation_fraction, model.n_iter_no_change)
    if model.batch_size not in ("auto", None) and not is_count(model.batch_size):
        raise ValueError(
            f"batch_size is {model.batch_size!r}; expected a whole number from 1 up, 'auto', or "
            "None"
        )
    if not isinstance(model.callbacks, Iterable) or not all(map(callable, model.callbacks)):
        raise ValueError(f"callbacks is {model.callbacks!r}; expected a list of functions")
    widths = default_widths
    if not isinstance(model.hidden_layer_sizes, str) or model.hidden_layer_sizes != "auto":
        widths = checked_widths(model.hidden_layer_sizes)
    stop = stopping.MaxIter(model.max_iter) | stopping.DecreaseBelow(float(tol))
    automatic = model.batch_size == "auto"
    batch_size: Any = None if automatic else model.batch_size
    return Plan(
        method.direction,
        method.step,
        start,
        scaling,
        stop,
        widths,
        budget,
        model.max_iter,
        batch_size,
        automatic and not method.all_rows,
    )


class Method(NamedTuple):
    """What a method's name, or a pair, stands for."""

    direction: Direction | None
    step: Step
    start: Start
    scaling: str
    tol: float
    all_rows: bool


def method_of(choice: Any) -> Method:
    if isinstance(choice, str):
        named = lookup(METHODS, choice, "method")
        direction, step = DIRECTIONS[named.direction], STEPS[named.step]
        start = STARTS[named.start]
        return Method(direction, step, start, named.scaling, named.tol, named.all_rows)
    if not isinstance(choice, tuple) or len(choice) != 2:
        raise ValueError(
            f"method is {choice!r}; expected one of {', '.join(METHODS)}, or a pair "
            "(direction, step)"
        )
    direction, step = choice
    if isinstance(direction, str):
        direction = lookup(DIRECTIONS, direction, "method's direction")
    if isinstance(step, str):
        step = lookup(STEPS, step, "method's step")
    return method_of("auto")._replace(direction=direction, step=step)


def checked_budget(lipschitz: Any, scaling: str) -> float:
    if scaling == "paper":
        raise ValueError(
            f"lipschitz is {lipschitz!r} with scaling='paper', which has no global bound; "
            "use scaling='standard' or 'max'"
        )
    if not isinstance(lipschitz, Real) or not 0 < float(lipschitz) < np.inf:
        raise ValueError(f"lipschitz is {lipschitz!r}; expected a positive number, or None")
    return float(lipschitz)


def checked_widths(hidden_layer_sizes: Any) -> tuple[int, ...]:
    """One number is one hidden layer, as in scikit-learn."""
    widths = np.atleast_1d(np.asarray(hidden_layer_sizes, dtype=object)).tolist()
    if not all(map(is_count, widths)):
        raise ValueError(
            f"hidden_layer_sizes is {hidden_layer_sizes!r}; expected positive whole numbers, or "
            "'auto'"
        )
    return tuple(widths)


def is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 1)


def check_early_stopping(fraction: Any, patience: Any) -> None:
    if not isinstance(fraction, Real) or not 0 < float(fraction) < 1:
        raise ValueError(f"validation_fraction is {fraction!r}; expected a number in (0, 1)")
    if not is_count(patience):
        raise ValueError(f"n_iter_no_change is {patience!r}; expected a whole number from 1 up")
