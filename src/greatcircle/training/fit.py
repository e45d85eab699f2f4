"""Train one network: from settings and data to a `Model`.

A Lipschitz budget adds a second run, among networks that have the bound by construction, on all
rows or on the sample of a stream. Only the first run has checkpoints: a resumed fit repeats the
second one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from greatcircle._runtime.precision import precision
from greatcircle.bounded import budget
from greatcircle.data.saturation import Saturation
from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Tree
from greatcircle.model import Model, Training
from greatcircle.objective.losses import Loss
from greatcircle.objective.problem import Problem
from greatcircle.optimise import directions
from greatcircle.optimise.checkpoint import Checkpoint
from greatcircle.optimise.descent import Result, descend
from greatcircle.optimise.directions import Direction
from greatcircle.optimise.early_stopping import EarlyStopping
from greatcircle.optimise.outcome import Outcome
from greatcircle.optimise.progress import ProgressBar
from greatcircle.optimise.schedules import GrowingBatches, RowSchedule
from greatcircle.optimise.stopping import MaxIter
from greatcircle.training.batches import train_on_batches
from greatcircle.training.data import FitData, Names, Problems, row_schedule
from greatcircle.training.monitor import Monitor
from greatcircle.training.settings import FitSettings
from greatcircle.training.start import (
    Continuation,
    Start,
    check_ranges,
    continued,
    random_start,
)

__all__ = ["Fit", "fit", "model_of", "saturation_of", "within_certificate"]


@dataclass(frozen=True)
class Fit:
    """A trained model, with the state of its direction."""

    model: Model
    direction_state: Any = None
    cut_short: bool = False
    """Whether Ctrl-C or a callback ended training."""


def fit(
    settings: FitSettings,
    data: FitData,
    loss: Loss,
    seed: int,
    *,
    start: Continuation | Start | None = None,
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
        A model to continue from, or scaling, network and weights; None starts with random weights.
    checkpoint
        Where to save the run, and where to resume it from.
    bar
        Progress bar.
    """
    saturation = saturation_of(settings, data, loss, start)
    earlier = None
    if start is None:
        check_ranges(settings, data.rows)
        problems, weights = random_start(settings, data.rows, loss, seed)
    elif isinstance(start, Continuation):
        earlier = start
        problems, weights = continued(start, loss)
    else:
        problems, weights = start
    monitor = Monitor(
        problems.network,
        problems.scaling,
        None if data.validation is None else problems.of(data.validation, data.encode),
        None,
        settings.callbacks,
        bar,
        () if earlier is None else tuple(earlier.records),
    )
    monitor, free = _without_budget(
        settings, data, (problems, weights), seed, monitor, earlier, checkpoint
    )
    result = free
    if settings.budget is not None:
        monitor, result = _within_budget(settings, problems.of(data.rows), monitor, free)
    history, value = monitor.history(result.records), result.loss * monitor.unit
    training = Training(history, value, str(result.outcome), result.reason)
    model = model_of(settings, data.names, problems, result.weights, training)
    model = replace(model, saturation=saturation)
    if settings.budget is not None:
        whole, unit = problems.of(data.rows), monitor.unit
        model = within_certificate(
            model, settings.budget, lambda shrunk: float(whole.loss(shrunk.weights)) * unit
        )
    return Fit(model, free.direction_state, _cut_short(free, monitor))


def _without_budget(
    settings: FitSettings,
    data: FitData,
    start: Start,
    seed: int,
    monitor: Monitor,
    earlier: Continuation | None,
    checkpoint: Checkpoint | None,
) -> tuple[Monitor, Result]:
    """Train on small batches, on all rows, or first on the one and then on the other."""
    if settings.batches is not None and earlier is None:
        problems, _ = start
        first = train_on_batches(settings.batches, settings, data, start, seed, monitor, checkpoint)
        failed = first.outcome == Outcome.NON_FINITE or _cut_short(first, monitor)
        if failed or settings.max_iter == 0:
            return monitor, monitor.finished(first)
        start, monitor = (problems, first.weights), monitor.before_next_run(first.records, None)
    return _by_row_schedule(settings, data, start, seed, monitor, earlier, checkpoint)


def _by_row_schedule(
    settings: FitSettings,
    data: FitData,
    start: Start,
    seed: int,
    monitor: Monitor,
    earlier: Continuation | None,
    checkpoint: Checkpoint | None,
) -> tuple[Monitor, Result]:
    """Train on all rows, or on batches that grow into all rows."""
    problems, weights = start
    whole, schedule = row_schedule(data, problems, settings, seed)
    direction = settings.direction or _automatic_direction(data, problems, whole, schedule)
    monitor = replace(monitor, early=_early_stopping(settings, data, schedule))
    checkpoint, stop = _resumed(checkpoint, monitor.early, settings)
    if monitor.bar is not None:
        monitor.bar.expect(settings.max_iter)
    result = descend(
        whole,
        weights,
        direction=direction,
        step=settings.step,
        stop=stop,
        rows=schedule,
        callback=monitor.callback,
        observe=monitor.observe,
        checkpoint=checkpoint,
        direction_state=earlier and _compatible_state(earlier, direction, weights),
    )
    return monitor, monitor.finished(_on_all_rows(result, whole, schedule))


def saturation_of(
    settings: FitSettings, data: FitData, loss: Loss, start: Continuation | Start | None = None
) -> Saturation:
    """Return the intervals of the training rows; those of a continued model only grow."""
    kind = settings.saturation_for(loss, streamed=data.stream is not None)
    fitted = Saturation.fit(kind, *data.rows)
    return fitted.union(start.model.saturation) if isinstance(start, Continuation) else fitted


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

    failed = free.outcome == Outcome.NON_FINITE or _cut_short(free, monitor)
    constant = budget.certified_bound(network, free.weights, scale) == 0
    if failed or constant or settings.budget_iterations == 0:
        return shrunk(free)
    early = None if monitor.validation is None else EarlyStopping(settings.patience)
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


def _cut_short(free: Result, monitor: Monitor) -> bool:
    """Return whether Ctrl-C or a callback ended the run."""
    asked = free.outcome == Outcome.STOPPED and not monitor.stopped_early
    return asked or free.outcome == Outcome.INTERRUPTED


def model_of(
    settings: FitSettings, names: Names, problems: Problems, weights: Tree, training: Training
) -> Model:
    """Return the model of trained weights."""
    return Model(
        weights=tuple(np.asarray(w) for w in weights),
        bias=problems.network.bias,
        activation=problems.network.activation,
        scaling=problems.scaling,
        feature_names=names.features,
        target_names=names.targets,
        single_output=names.single_output,
        classes=names.classes,
        lipschitz=settings.budget,
        training=training,
    )


def within_certificate(model: Model, limit: float, loss_of: Callable[[Model], float]) -> Model:
    """Scale the last layer down until the certificate itself is at most the budget.

    Training stays within the budget by construction, up to rounding; the promise is exact.
    `loss_of` returns the training loss of a model.
    """
    part, shrunk = float(np.finfo(model.weights[-1].dtype).eps), model
    while shrunk.certificate.value > limit:
        part = min(4 * part, 0.5)  # at one half, repeated scaling ends with a layer of zeros
        *others, last = shrunk.weights
        factor = (1 - part) * (limit / shrunk.certificate.value)
        shrunk = replace(shrunk, weights=(*others, np.asarray(last * factor, last.dtype)))
    if shrunk is model or model.training is None:
        return shrunk
    training = replace(model.training, loss=loss_of(shrunk))
    return replace(shrunk, training=training, known_certificate=shrunk.certificate)
