"""Settings of a fit, from the parameters of an estimator, checked before any data are read."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from greatcircle._runtime.dtypes import checked_dtype
from greatcircle.bounded.budget import MAX_ROUNDS
from greatcircle.data.folds import check_cv
from greatcircle.data.saturation import KINDS
from greatcircle.network.activations import Activation, get
from greatcircle.objective.losses import Huber, Loss, Squared
from greatcircle.optimise import stopping
from greatcircle.optimise.directions import Direction
from greatcircle.optimise.record import Record
from greatcircle.optimise.steps import Step
from greatcircle.optimise.stopping import Rule
from greatcircle.training.methods import Initialisation, Method, method_of
from greatcircle.training.search import BatchPhase, Candidate

__all__ = ["AUTOMATIC_SATURATION", "MAY_CHANGE", "FitSettings", "fit_settings"]

MAX_ITER, MAX_ITER_SELECTED = 200, 1000
"""Largest number of iterations by default, and if held-out error chooses it."""

TRIAL_TOLERANCE = 1e-4
"""A candidate ends when ten iterations together lower its loss by less than this fraction.

Held-out error usually ends training long before.
"""

MAY_CHANGE = (
    "callbacks",
    "checkpoint",
    "checkpoint_interval",
    "max_iter",
    "n_iter_no_change",
    "random_state",  # a resumed fit uses the seed in the checkpoint
    "resume",
    "saturation",  # only predictions depend on it
    "tol",
    "verbose",
    "warm_start",
)
"""Parameters that may have other values when a fit is resumed."""

AUTOMATIC_SATURATION: str | bool = "outputs"
"""What saturation="auto" clips with method="auto" and rows in memory."""

FLOAT64_ROWS = 2000
"""Largest number of rows for which dtype="auto" is float64, where that costs next to nothing."""

FLOAT64_ROWS_SELECTED = 500
"""The same with a selection, which trains a hundred times: float32 takes half the time."""


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
    max_iter: int
    selects: bool
    """Whether held-out error chooses what the user leaves open."""
    chooses_sizes: bool
    """Whether that includes the hidden layers."""
    chooses_gain: bool
    """Whether that includes the target gain."""
    cv: Any
    """What to hold out, see `data/folds.py`."""
    ensemble: int | None
    """Number of networks to average; None leaves it to the selection."""
    trial_tolerance: float
    """Fraction of the loss below which ten iterations end the training of a candidate."""
    saturation: str | bool
    """What is clipped, or "auto" with method="auto"."""
    batches: BatchPhase | None = None
    """Training on small batches, before iterations on all rows; None without a selection."""
    most_passes: int | None = None
    """Largest number of passes if more and more steps on small batches are tried; otherwise None.

    They are if there are more rows than the candidates saw.
    """
    low_loss: Rule | None = None
    """Ends training at a very low loss; None for a loss that has a minimum."""

    def with_candidate(self, candidate: Candidate) -> "FitSettings":
        """Return the settings of a candidate."""
        initialisation = self.initialisation._replace(target_gain=candidate.target_gain)
        return replace(
            self,
            hidden_layer_sizes=candidate.hidden_layer_sizes,
            initialisation=initialisation,
            batches=candidate.batches,
        )

    def stop_after(self, iterations: int) -> Rule:
        """Return the stopping rules of a candidate, and of the fit that was chosen."""
        rules = stopping.MaxIter(iterations) | stopping.DecreaseBelow(self.trial_tolerance)
        return rules if self.low_loss is None else rules | self.low_loss

    def saturation_for(self, loss: Loss, *, streamed: bool) -> str | bool:
        """Return what is clipped for this loss, and for rows in memory or a stream."""
        if self.saturation != "auto":
            if self.saturation and streamed:
                raise ValueError(
                    f"saturation is {self.saturation!r} with data larger than memory, whose range "
                    "is not known from the sample that is read first; use saturation=False, or "
                    "pass rows that fit into memory"
                )
            return self.saturation
        # Outputs of another loss need not be estimates of the targets: they may be log-odds.
        if streamed or not isinstance(loss, Squared | Huber):
            return False
        if self.scaling == "paper" and AUTOMATIC_SATURATION in ("inputs", "both"):
            return "outputs" if AUTOMATIC_SATURATION == "both" else False
        return AUTOMATIC_SATURATION

    def dtype_for(self, rows: int) -> np.dtype:
        """Return the working precision for a number of rows."""
        if self.dtype != "auto":
            return checked_dtype(self.dtype)
        most = FLOAT64_ROWS_SELECTED if self.selects else FLOAT64_ROWS
        return np.dtype(np.float64 if rows <= most else np.float32)


def fit_settings(parameters: Any, default_sizes: tuple[int, ...]) -> FitSettings:
    """Return the settings of an estimator, or raise an error that names the wrong parameter."""
    method = method_of(parameters.method)
    scaling = method.scaling if parameters.scaling is None else parameters.scaling
    budget = parameters.lipschitz
    automatic = _is_auto(parameters.batch_size)
    sizes = parameters.hidden_layer_sizes
    given_sizes = not _is_auto(sizes)
    selects = _checked_flag("selection", parameters.selection) and _is_auto(parameters.method)
    if budget is not None and given_sizes:  # with a budget, only the sizes are chosen
        selects = False
    gain = _checked_gain(parameters.target_gain)
    check_cv(parameters.cv)
    max_iter = parameters.max_iter
    if max_iter is None:
        max_iter = MAX_ITER_SELECTED if selects else MAX_ITER
    initialisation = method.initialisation
    if parameters.radius is not None:
        initialisation = initialisation._replace(radius=parameters.radius)
    if gain is not None:
        initialisation = initialisation._replace(target_gain=gain)
    _check_early_stopping(parameters.validation_fraction, parameters.n_iter_no_change)
    return FitSettings(
        direction=method.direction,
        step=method.step,
        initialisation=initialisation,
        scaling=scaling,
        stop=stopping.MaxIter(max_iter)
        | stopping.DecreaseBelow(_checked_tolerance(parameters.tol, method)),
        hidden_layer_sizes=_checked_sizes(sizes) if given_sizes else default_sizes,
        activation=get(parameters.activation),
        budget=None if budget is None else _checked_budget(budget, scaling),
        budget_iterations=min(MAX_ROUNDS, max_iter),
        batch_size=None if automatic else _checked_batch_size(parameters.batch_size),
        starts_with_chunk=automatic and not method.all_rows,
        dtype=_checked_dtype(parameters.dtype),
        validation_fraction=parameters.validation_fraction if parameters.early_stopping else None,
        patience=parameters.n_iter_no_change,
        callbacks=_checked_callbacks(parameters.callbacks),
        max_iter=max_iter,
        selects=selects,
        chooses_sizes=not given_sizes,
        chooses_gain=gain is None and budget is None and parameters.radius is None,
        cv=parameters.cv,
        ensemble=_checked_ensemble(parameters.ensemble),
        trial_tolerance=TRIAL_TOLERANCE if parameters.tol is None else float(parameters.tol),
        saturation=_checked_saturation(parameters.saturation, parameters.method, scaling),
    )


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _checked_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} is {value!r}; expected True or False")
    return bool(value)


def _checked_gain(target_gain: Any) -> float | None:
    if _is_auto(target_gain):
        return None
    if not isinstance(target_gain, Real) or not 0 < float(target_gain) < np.inf:
        raise ValueError(f"target_gain is {target_gain!r}; expected a positive number, or 'auto'")
    return float(target_gain)


def _checked_ensemble(ensemble: Any) -> int | None:
    if _is_auto(ensemble):
        return None
    if not _is_count(ensemble):
        raise ValueError(
            f"ensemble is {ensemble!r}; expected a whole number of at least 1, or 'auto'"
        )
    return int(ensemble)


def _checked_tolerance(tol: Any, method: Method) -> float:
    tol = method.tol if tol is None else tol
    if not isinstance(tol, Real) or not float(tol) >= 0:
        raise ValueError(f"tol is {tol!r}; expected a non-negative number, or None")
    return float(tol)


def _checked_dtype(dtype: Any) -> str:
    if _is_auto(dtype):
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


def _checked_saturation(saturation: Any, method: Any, scaling: str) -> str | bool:
    """Return what is clipped; "auto" is left to `saturation_for` with method="auto"."""
    if isinstance(saturation, str) and saturation == "auto":
        return saturation if isinstance(method, str) and method == "auto" else False
    if isinstance(saturation, bool | np.bool_) and not saturation:
        return False
    if not isinstance(saturation, str) or saturation not in KINDS:
        raise ValueError(
            f"saturation is {saturation!r}; expected 'auto', False, or one of {', '.join(KINDS)}"
        )
    if scaling == "paper" and saturation != "outputs":
        raise ValueError(
            f"saturation is {saturation!r} with scaling='paper', whose bound is per unit of "
            "x/‖x‖: clipping inputs changes the direction of x; use saturation='outputs', or "
            "scaling='standard' or 'max'"
        )
    return saturation


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
