"""Train a model: from settings and data to a `Model`.

A Lipschitz budget adds a second run, among networks that have the bound by construction, on all
rows or on the sample of a stream. Only the first run has checkpoints: a resumed fit repeats the
second one.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from greatcircle._runtime.precision import precision
from greatcircle.bounded import budget
from greatcircle.data.checks import check_range
from greatcircle.data.rows import Rows
from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Tree
from greatcircle.model import Model, Training
from greatcircle.network.network import Network
from greatcircle.objective.losses import Loss, Squared
from greatcircle.objective.problem import Problem
from greatcircle.optimise import directions
from greatcircle.optimise.checkpoint import Checkpoint
from greatcircle.optimise.descent import Result, descend
from greatcircle.optimise.directions import Direction
from greatcircle.optimise.early_stopping import EarlyStopping
from greatcircle.optimise.outcome import Outcome
from greatcircle.optimise.progress import ProgressBar
from greatcircle.optimise.record import Record
from greatcircle.optimise.schedules import GrowingBatches, RowSchedule
from greatcircle.optimise.stopping import MaxIter
from greatcircle.training.data import FitData, Names, Problems, row_schedule
from greatcircle.training.initialisation import absorb_factor, initial_network
from greatcircle.training.monitor import Monitor
from greatcircle.training.settings import FitSettings

__all__ = ["Continuation", "Fit", "fit"]


@dataclass(frozen=True)
class Continuation:
    """A fitted model to continue from, with the state of its direction."""

    model: Model
    direction_state: Any = None
    records: Sequence[Record] = ()
    """Of earlier iterations, in the units of the targets."""


@dataclass(frozen=True)
class Fit:
    """A trained model, with the state of its direction."""

    model: Model
    direction_state: Any


def fit(
    settings: FitSettings,
    data: FitData,
    loss: Loss,
    seed: int,
    *,
    start: Continuation | None = None,
    checkpoint: Checkpoint | None = None,
    bar: ProgressBar | None = None,
) -> Fit:
    """Train a network on the data.

    Parameters
    ----------
    settings, data, loss
        What to train, on which rows.
    seed
        Random seed of the initial weights and of the order of batches.
    start
        A model to continue from; None starts with random weights.
    checkpoint
        Where to save the run, and where to resume it from.
    bar
        Progress bar.
    """
    if start is None:
        problems, weights = _initial(settings, data.rows, loss, seed)
    else:
        problems, weights = _continued(start, loss)
    whole, schedule = row_schedule(data, problems, settings, seed)
    direction = settings.direction or _automatic_direction(data, problems, whole, schedule)
    monitor = Monitor(
        problems.network,
        problems.scaling,
        None if data.validation is None else problems.of(data.validation, data.encode),
        _early_stopping(settings, data, schedule),
        settings.callbacks,
        bar,
        () if start is None else tuple(start.records),
    )
    checkpoint, stop = _resumed(checkpoint, monitor.early, settings)
    with bar or nullcontext():
        free = descend(
            whole,
            weights,
            direction=direction,
            step=settings.step,
            stop=stop,
            rows=schedule,
            callback=monitor.callback,
            observe=monitor.observe,
            checkpoint=checkpoint,
            direction_state=None if start is None else _compatible_state(start, direction, weights),
        )
        result = monitor.finished(_on_all_rows(free, whole, schedule))
        if settings.budget is not None:
            monitor, result = _within_budget(settings, problems.of(data.rows), monitor, result)
    model = _model(settings, data.names, monitor, result)
    if settings.budget is not None:
        model = _within_certificate(model, settings.budget, problems.of(data.rows), monitor.unit)
    return Fit(model, free.direction_state)


def _initial(
    settings: FitSettings, rows: Rows, loss: Loss, seed: int
) -> tuple[Problems, tuple[np.ndarray, ...]]:
    """Return scaling and network, and random initial weights."""
    check_range("y", rows.targets)
    if settings.scaling == "standard":  # which scales each column separately
        for i, column in enumerate(rows.inputs.T):
            check_range(f"column {i} of X", column)
    else:
        check_range("X", rows.inputs)
    dtype = settings.dtype_for(len(rows))
    network, weights, scaling = initial_network(
        settings.initialisation,
        (rows.inputs.shape[1], *settings.hidden_layer_sizes, rows.targets.shape[1]),
        rows.inputs,
        rows.targets,
        np.random.default_rng(seed),
        scaling=settings.scaling,
        activation=settings.activation,
        sample_weight=rows.sample_weight,
        dtype=dtype,
    )
    if not isinstance(loss, Squared):
        weights, scaling = absorb_factor(weights, scaling)
    return Problems(network, scaling, loss, dtype), weights


def _continued(start: Continuation, loss: Loss) -> tuple[Problems, tuple[np.ndarray, ...]]:
    """Return scaling, network and weights of a fitted model."""
    model = start.model
    network = Network(model.sizes, model.activation, bias=model.bias)
    return Problems(network, model.scaling, loss, model.weights[0].dtype), model.weights


def _automatic_direction(
    data: FitData, problems: Problems, whole: Problem, schedule: RowSchedule
) -> Direction:
    """Return the best direction for the number of rows of an iteration."""
    if data.stream is None:
        return directions.automatic(whole)
    # The iterations see batches of the stream, which has more rows than `whole`.
    return directions.automatic(problems.of(data.rows.take(slice(0, schedule.rows))))


def _early_stopping(
    settings: FitSettings, data: FitData, schedule: RowSchedule
) -> EarlyStopping | None:
    if data.validation is None:
        return None
    # Batches of rows in memory grow into all rows, and patience counts those iterations only.
    counts_batches = schedule.uses_all_rows or data.stream is not None
    return EarlyStopping(settings.patience, counts_batches=counts_batches)


def _resumed(
    checkpoint: Checkpoint | None, early: EarlyStopping | None, settings: FitSettings
) -> tuple[Checkpoint | None, Any]:
    """Return the checkpoint and the stopping rule, with early stopping as it was saved."""
    if checkpoint is None or early is None:
        return checkpoint, settings.stop
    checkpoint, stop = replace(checkpoint, best=lambda: early.best), settings.stop
    if checkpoint.saved is not None:
        early.restore(checkpoint.saved.records, checkpoint.saved.best)
        stop = MaxIter(0) if early.finished else stop
    return checkpoint, stop


def _compatible_state(start: Continuation, direction: Direction, weights: Tree) -> Any:
    """Return the direction's earlier state, or None if another direction left it.

    The method may have changed since, and the automatic choice depends on the number of rows.
    """

    def form(state: Any) -> tuple[Any, ...]:
        return jax.tree.structure(state), *map(np.shape, jax.tree.leaves(state))

    with precision(weights[0].dtype):
        expected = direction.init(sphere.pack(weights))
    return start.direction_state if form(start.direction_state) == form(expected) else None


def _on_all_rows(result: Result, whole: Problem, schedule: RowSchedule) -> Result:
    """Return the result with the loss of all rows if the run ended on a batch."""
    if isinstance(schedule, GrowingBatches) and schedule.ended_on_batch(result.state.rows):
        return replace(result, loss=float(whole.loss(result.weights)))
    return result


def _within_budget(
    settings: FitSettings, whole: Problem, monitor: Monitor, free: Result
) -> tuple[Monitor, Result]:
    """Train within the budget, starting from the result of a run without a budget.

    If that run was interrupted, or no iterations are allowed, only scale down its last layer.
    """
    network, scaling = monitor.network, monitor.scaling
    scale, largest = scaling.scale, (settings.budget or np.inf) * scaling.factor

    def shrunk(result: Result) -> tuple[Monitor, Result]:
        weights = budget.shrink_to(network, free.weights, scale, largest)
        return monitor, replace(result, weights=weights, loss=float(whole.loss(weights)))

    cut_short = free.outcome in (Outcome.INTERRUPTED, Outcome.NON_FINITE) or (
        free.outcome == Outcome.STOPPED and not monitor.stopped_early
    )
    constant = budget.certified_bound(network, free.weights, scale) == 0
    if cut_short or constant or settings.budget_iterations == 0:
        return shrunk(free)
    early = None if monitor.early is None else EarlyStopping(settings.patience)
    second = monitor.before_next_run(free.records, early)
    try:
        result = budget.fit_within(
            whole,
            free.weights,
            scale,
            largest,
            rounds=settings.budget_iterations,
            callback=second.callback,
            observe=second.observe,
        )
    except KeyboardInterrupt:  # outside the loop, while bounds are computed
        reason = "interrupted from the keyboard"
        return shrunk(replace(free, outcome=Outcome.INTERRUPTED, reason=reason))
    return second, second.finished(result)


def _model(settings: FitSettings, names: Names, monitor: Monitor, result: Result) -> Model:
    history, loss = monitor.history(result.records), result.loss * monitor.unit
    return Model(
        weights=tuple(np.asarray(w) for w in result.weights),
        bias=monitor.network.bias,
        activation=monitor.network.activation,
        scaling=monitor.scaling,
        feature_names=names.features,
        target_names=names.targets,
        single_output=names.single_output,
        classes=names.classes,
        lipschitz=settings.budget,
        training=Training(history, loss, str(result.outcome), result.reason),
    )


def _within_certificate(model: Model, limit: float, whole: Problem, unit: float) -> Model:
    """Scale the last layer down until the certificate itself is at most the budget.

    Training stays within the budget by construction, up to rounding; the promise is exact.
    """
    part, shrunk = float(np.finfo(model.weights[-1].dtype).eps), model
    while shrunk.certificate.value > limit:
        part = min(4 * part, 0.5)  # at one half, repeated scaling ends with a layer of zeros
        *others, last = shrunk.weights
        factor = (1 - part) * (limit / shrunk.certificate.value)
        shrunk = replace(shrunk, weights=(*others, np.asarray(last * factor, last.dtype)))
    if shrunk is model or model.training is None:
        return shrunk
    training = replace(model.training, loss=float(whole.loss(shrunk.weights)) * unit)
    return replace(shrunk, training=training, known_certificate=shrunk.certificate)
