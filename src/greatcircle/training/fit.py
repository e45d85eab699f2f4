"""Train a model: from settings and data to a `Model`.

A Lipschitz budget adds a second run, among networks that have the bound by construction, on all
rows or on the sample of a stream. It has no checkpoints: it is repeated from the end of the first.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from greatcircle._runtime.precision import precision
from greatcircle.bounded import budget
from greatcircle.data.checks import check_range
from greatcircle.data.rows import Rows
from greatcircle.data.scaling import Scaling
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
from greatcircle.optimise.history import History
from greatcircle.optimise.outcome import Outcome
from greatcircle.optimise.progress import ProgressBar
from greatcircle.optimise.record import Record
from greatcircle.optimise.stopping import MaxIter, Rule
from greatcircle.training.data import FitData, Names, Problems, row_schedule
from greatcircle.training.initialisation import absorb_factor, initial_network
from greatcircle.training.settings import FitSettings

__all__ = ["Continuation", "Fit", "fit"]

IN_UNITS = ("loss", "slope", "curvature", "predicted", "actual", "validation_loss")
"""Columns of a record that are in the units of the loss."""


@dataclass(frozen=True)
class Continuation:
    """A fitted model to continue from, with what its direction has learnt."""

    model: Model
    direction_state: Any = None
    records: Sequence[Record] = ()
    """Of earlier iterations, in the units of the data."""


@dataclass(frozen=True)
class Fit:
    """A trained model, and what a later fit needs to continue."""

    model: Model
    direction_state: Any


def fit(
    settings: FitSettings,
    data: FitData,
    loss: Loss,
    seed: int,
    *,
    stop: Rule,
    start: Continuation | None = None,
    checkpoint: Checkpoint | None = None,
    bar: AbstractContextManager[ProgressBar] | None = None,
    use_budget: bool = True,
) -> Fit:
    """Train a network on the data.

    Parameters
    ----------
    settings, data, loss
        What to train, on which rows.
    seed
        Of the initial weights and of the order of batches.
    stop
        When to stop.
    start
        A model to continue from; None begins with random weights.
    checkpoint
        Where to keep the run, and where to resume it from.
    bar
        Progress bar.
    use_budget
        Whether to train within `settings.budget`. Otherwise the weights are only scaled to fit it.
    """
    if start is None:
        dtype = settings.dtype_for(len(data.rows))
        network, weights, scaling = _initial(settings, data.rows, loss, seed, dtype)
    else:
        model = start.model
        network = Network(model.sizes, model.activation, bias=model.bias)
        weights, scaling, dtype = model.weights, model.scaling, model.weights[0].dtype
    problems = Problems(network, scaling, loss, dtype)
    whole, schedule = row_schedule(data, problems, settings, seed)
    direction = settings.direction
    if direction is None:
        # A stream has more rows than memory, and each iteration sees a batch of them.
        few = data.rows.take(slice(0, schedule.rows)) if data.stream is not None else None
        direction = directions.automatic(whole if few is None else problems.of(few))
    with bar or nullcontext() as shown:
        watch = _watch(settings, data, problems, start, shown, schedule.uses_all_rows)
        if checkpoint is not None:
            checkpoint = replace(checkpoint, best=lambda: watch.early and watch.early.best)
            if checkpoint.saved is not None and watch.early is not None:
                watch.early.restore(checkpoint.saved.records, checkpoint.saved.best)
                stop = MaxIter(0) if watch.early.finished else stop
        result = descend(
            whole,
            weights,
            direction=direction,
            step=settings.step,
            stop=stop,
            rows=schedule,
            callback=watch.callback,
            observe=watch.observe,
            checkpoint=checkpoint,
            direction_state=None if start is None else _compatible_state(start, direction, weights),
        )
        result = watch.explained(result)
        if schedule.can_converge and not schedule.uses_all_rows:
            # The loss of a batch is not that of all rows.
            result = replace(result, loss=float(whole.loss(result.weights)))
        free = result
        if settings.budget is not None:
            result = _within_budget(settings, data, problems, watch, result, use_budget)
    model = _model(settings, data.names, problems, watch, result)
    if settings.budget is not None:
        model = _shrink_to_certificate(model, settings.budget, problems, data.rows, watch.unit)
    return Fit(model, free.direction_state)


def _initial(
    settings: FitSettings, rows: Rows, loss: Loss, seed: int, dtype: np.dtype
) -> tuple[Network, tuple[np.ndarray, ...], Scaling]:
    """Return network, initial weights and scaling."""
    check_range("y", rows.targets)
    if settings.scaling == "standard":  # which scales each column by itself
        for i, column in enumerate(rows.inputs.T):
            check_range(f"column {i} of X", column)
    else:
        check_range("X", rows.inputs)
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
    return network, weights, scaling


def _compatible_state(start: Continuation, direction: Direction, weights: Tree) -> Any:
    """Return the direction's earlier state, or None if another direction left it.

    The method may have changed since, and the automatic choice depends on the number of rows.
    """

    def form(state: Any) -> tuple[Any, ...]:
        return jax.tree.structure(state), *map(np.shape, jax.tree.leaves(state))

    with precision(weights[0].dtype):
        expected = direction.init(sphere.pack(weights))
    return start.direction_state if form(start.direction_state) == form(expected) else None


@dataclass
class _Watch:
    """What follows a run: measures, early stopping, the progress bar and the user's callbacks."""

    unit: float
    """Multiplied by this, the losses of the run are in the units of the targets."""
    spectral_bound: Callable[[Tree], float]
    validation: Problem | None
    early: EarlyStopping | None
    callbacks: tuple[Callable[[Record], Any], ...]
    bar: ProgressBar | None
    earlier: list[Record] = field(default_factory=list)
    """Of earlier runs, in the units of the data."""
    records: list[Record] = field(default_factory=list)
    """Of runs that have ended, in the units of the run."""

    @property
    def callback(self) -> Callable[[Record, Tree], bool] | None:
        """What may stop the run after any iteration; None if nothing may."""
        return self._call if self.early is not None or self.callbacks else None

    def observe(self, record: Record, weights: Tree) -> Record:
        """Complete a record: validation loss and spectral bound."""
        validation = math.nan if self.validation is None else float(self.validation.loss(weights))
        record = record._replace(
            validation_loss=validation, spectral_bound=self.spectral_bound(weights)
        )
        if self.bar is not None:
            self.bar.show(self.in_units(record))
        return record

    def in_units(self, record: Record) -> Record:
        """Return a record in the units of the data, numbered after earlier runs."""
        values = {name: getattr(record, name) * self.unit for name in IN_UNITS}
        before = len(self.earlier) + len(self.records)
        return record._replace(**values, iteration=before + record.iteration)

    def history(self, records: Sequence[Record]) -> History:
        """Return all records in the units of the data."""
        rows = list(self.earlier)
        for record in (*self.records, *records):
            values = {name: getattr(record, name) * self.unit for name in IN_UNITS}
            rows.append(record._replace(**values, iteration=len(rows) + 1))
        return History.of(rows)

    def explained(self, result: Result) -> Result:
        """Return the result with the reason of early stopping or of a callback."""
        early = self.early
        if early is not None and early.finished and result.outcome != Outcome.INTERRUPTED:
            return replace(result, outcome=Outcome.STOPPED, reason=early.reason)
        if result.outcome == Outcome.STOPPED:
            return replace(result, reason="a callback asked to stop")
        return result

    def _call(self, record: Record, weights: Tree) -> bool:
        stop = self.early is not None and self.early(record, weights)
        # All callbacks are called, and one True is enough.
        answers = [callback(self.in_units(record)) for callback in self.callbacks]
        return stop or any(answers)


def _watch(
    settings: FitSettings,
    data: FitData,
    problems: Problems,
    start: Continuation | None,
    bar: ProgressBar | None,
    counts_batches: bool,
) -> _Watch:
    validation, early = None, None
    if data.validation is not None:
        validation = problems.of(data.validation, data.encode)
        counts = counts_batches or data.stream is not None
        early = EarlyStopping(settings.patience, counts_batches=counts)
    return _Watch(
        unit=problems.scaling.factor**-2,  # one, except for the squared loss
        spectral_bound=lambda w: _spectral_bound(problems.network, problems.scaling, w),
        validation=validation,
        early=early,
        callbacks=settings.callbacks,
        bar=bar,
        earlier=[] if start is None else list(start.records),
    )


def _within_budget(
    settings: FitSettings,
    data: FitData,
    problems: Problems,
    watch: _Watch,
    free: Result,
    use_budget: bool,
) -> Result:
    """Train within the budget from the end of a free run.

    One that was interrupted, or a single iteration, is only scaled to the budget.
    """
    network, scaling = problems.network, problems.scaling
    limit = settings.budget or math.inf
    scale, largest = scaling.scale, limit * scaling.factor
    early, whole = watch.early, problems.of(data.rows)
    weights = free.weights if early is None or early.best is None else early.best
    cut_short = free.outcome in (Outcome.INTERRUPTED, Outcome.NON_FINITE) or (
        free.outcome == Outcome.STOPPED and not (early is not None and early.finished)
    )
    constant = budget.certified_bound(network, weights, scale) == 0

    def shrunk(result: Result) -> Result:
        small = budget.shrink_to(network, weights, scale, largest)
        if early is not None:
            early.best = None
        return replace(result, weights=small, loss=float(whole.loss(small)))

    if cut_short or constant or not use_budget:
        return shrunk(free)
    watch.records.extend(free.records)
    if early is not None:
        watch.early = EarlyStopping(settings.patience)
    rounds = min(budget.MAX_ROUNDS, settings.max_iter)
    try:
        result = budget.fit_within(
            whole,
            weights,
            scale,
            largest,
            rounds=rounds,
            callback=watch.callback,
            observe=watch.observe,
        )
    except KeyboardInterrupt:  # before the first iteration, during compilation
        watch.records.clear()
        reason = "interrupted from the keyboard"
        return shrunk(replace(free, outcome=Outcome.INTERRUPTED, reason=reason))
    if watch.early is not None and watch.early.best is not None:
        watch.early.best = budget.shrink_to(network, watch.early.best, scale, largest)
    return watch.explained(result)


def _model(
    settings: FitSettings, names: Names, problems: Problems, watch: _Watch, result: Result
) -> Model:
    history = watch.history(result.records)
    weights, loss = result.weights, result.loss * watch.unit
    if watch.early is not None and watch.early.best is not None:
        weights = watch.early.best
        # Of the run that the best weights come from.
        first = len(history["loss"]) - len(result.records)
        best = first + int(np.nanargmin(history["validation_loss"][first:]))
        loss = float(history["loss"][best])
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
        training=Training(history, loss, str(result.outcome), result.reason),
    )


def _shrink_to_certificate(
    model: Model, limit: float, problems: Problems, rows: Rows, unit: float
) -> Model:
    """Scale the last layer down until the certificate itself is at most the budget.

    Training stays within the budget by construction, up to rounding; the promise is exact.
    """
    part = float(np.finfo(model.weights[-1].dtype).eps)
    while model.certificate.value > limit:
        part = min(4 * part, 0.5)  # at one half, the layer becomes zero in the end
        *others, last = model.weights
        factor = (1 - part) * (limit / model.certificate.value)
        weights = (*others, np.asarray(last * factor, last.dtype))
        loss = float(problems.of(rows).loss(weights)) * unit
        training = model.training and replace(model.training, loss=loss)
        model = replace(model, weights=weights, training=training)
    return model


def _spectral_bound(network: Network, scaling: Scaling, weights: Tree) -> float:
    """Return ∏ ‖W_i‖_op in the units of the data: cheap enough for every iteration."""
    first, *others = network.linear(weights)
    norms = map(_operator_norm, [first * scaling.scale[:, None], *others])
    return math.prod(norms) / scaling.factor


def _operator_norm(matrix: np.ndarray) -> float:
    """Return the largest singular value, by an eigenvalue: as accurate as an SVD, and faster."""
    size = float(np.max(np.abs(matrix))) or 1.0
    unit = np.asarray(matrix, np.float64) / size  # whose squares neither overflow nor vanish
    square = unit @ unit.T if len(unit) < unit.shape[1] else unit.T @ unit
    return size * math.sqrt(max(np.linalg.eigvalsh(square)[-1], 0.0))
