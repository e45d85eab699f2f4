"""Train a model: choose what the settings leave open, then train on all rows.

Held-out error first chooses target gain, layers and number of iterations (`selection.py`). Then one
network is trained on all rows, or several from different initial weights, whose mean is the model
(`ensemble.py`).
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np

from greatcircle._runtime.precision import precision
from greatcircle._runtime.threads import one_thread
from greatcircle.data.checks import normalised_weights
from greatcircle.data.rows import chunks
from greatcircle.model import Model, Training
from greatcircle.objective import losses
from greatcircle.objective.losses import Loss
from greatcircle.optimise.checkpoint import Checkpoint
from greatcircle.optimise.outcome import Outcome
from greatcircle.optimise.progress import ProgressBar
from greatcircle.optimise.stopping import MaxIter
from greatcircle.training.data import FitData
from greatcircle.training.ensemble import averaged
from greatcircle.training.fit import Fit, fit, model_of, saturation_of, within_certificate
from greatcircle.training.monitor import Monitor
from greatcircle.training.selection import Chosen, select
from greatcircle.training.settings import FitSettings
from greatcircle.training.start import Continuation, Start, check_ranges

__all__ = ["train"]


LAST_ITERATIONS = 100
"""Most iterations on all rows from weights that were trained on most of them."""


def train(
    settings: FitSettings,
    data: FitData,
    loss: Loss,
    seed: int,
    *,
    start: Continuation | None = None,
    checkpoint: Checkpoint | None = None,
    bar: ProgressBar | None = None,
) -> Fit:
    """Select, if the settings say so, and train.

    Parameters
    ----------
    settings, data, loss
        What to train, on which rows.
    seed
        Random seed of the initial weights, of the parts held out and of the order of batches.
    start
        A model to continue from; None starts with random weights.
    checkpoint
        Where to save the fit, and where to resume it from.
    bar
        Progress bar.
    """
    with bar or nullcontext(), one_thread():
        chosen = None
        if start is None and settings.selects:
            check_ranges(settings, data.rows)
            settings.saturation_for(loss, streamed=data.stream is not None)  # refuse it early
            show = (lambda text: None) if bar is None else bar.candidate
            chosen = select(settings, data, loss, seed, checkpoint, show)
        if chosen is None:
            return _networks(settings, data, loss, seed, start, checkpoint, bar)
        if chosen.interrupted:
            return _model_of_candidate(settings, data, loss, chosen)
        final, begin = _as_chosen(settings, data, chosen)
        if checkpoint is not None:
            checkpoint = checkpoint.within(_name(chosen, begin))
        fitted = _networks(final, data, loss, seed, begin, checkpoint, bar)
        return replace(fitted, model=_with_selection(fitted.model, chosen, settings))


def _networks(
    settings: FitSettings,
    data: FitData,
    loss: Loss,
    seed: int,
    start: Continuation | Start | None,
    checkpoint: Checkpoint | None,
    bar: ProgressBar | None,
) -> Fit:
    """Train one network, or several with different initial weights, and return their mean."""
    count = 1 if isinstance(start, Continuation) else settings.ensemble or 1
    fits: list[Fit] = []
    for number in range(count):
        if bar is not None:
            bar.network(number + 1, count, settings.max_iter)
        # Networks after the first have folders of their own.
        kept = checkpoint and (checkpoint.within(f"network-{number + 1}") if number else checkpoint)
        seed_of_network = (seed + number) % 2**32
        fitted = fit(settings, data, loss, seed_of_network, start=start, checkpoint=kept, bar=bar)
        fits.append(fitted)
        if fitted.cut_short:
            break
    return _merged(settings, data, loss, fits)


def _as_chosen(
    settings: FitSettings, data: FitData, chosen: Chosen
) -> tuple[FitSettings, Start | None]:
    """Return the settings of the final fit, and where it starts.

    If the candidates saw only some of the rows, one network continues from the chosen one.
    Otherwise, or if several are wanted, they start anew, with all rows in their scaling.
    """
    count, streams = settings.ensemble, data.stream is not None
    if chosen.candidate.batches is not None:
        return _on_batches_as_chosen(settings, chosen), None
    if chosen.sampled and count in (None, 1):
        selected = replace(
            settings.with_candidate(chosen.candidate),
            ensemble=1,
            stop=settings.stop | MaxIter(LAST_ITERATIONS),
            max_iter=min(settings.max_iter, LAST_ITERATIONS),
            starts_with_chunk=False,
        )
        return selected, chosen.start
    if count is None:
        averages = settings.chooses_sizes and settings.budget is None
        count = chosen.networks if averages else 1
    # Iterations on a stream see batches, and are not those of a candidate.
    counted = data.validation is None and not streams
    limit = chosen.iterations if counted else settings.max_iter
    selected = replace(
        settings.with_candidate(chosen.candidate),
        ensemble=count,
        stop=settings.stop if streams else settings.stop_after(limit),
        max_iter=limit,
        starts_with_chunk=False,
    )
    return selected, None


def _on_batches_as_chosen(settings: FitSettings, chosen: Chosen) -> FitSettings:
    """Return the settings of the final fit of a candidate that was trained on small batches."""
    count, iterations = settings.ensemble, chosen.iterations
    if count is None:
        averages = settings.chooses_sizes and settings.budget is None and not chosen.sampled
        count = chosen.networks if averages else 1
    if chosen.sampled:  # all rows are too many
        iterations = 0
    return replace(
        settings.with_candidate(chosen.candidate),
        ensemble=count,
        stop=settings.stop_after(iterations),
        max_iter=iterations,
        starts_with_chunk=False,
        most_passes=settings.max_iter if chosen.sampled else None,
    )


def _name(chosen: Chosen, begin: Start | None) -> str:
    """Return the folder of a candidate's checkpoints; it differs for other initial weights.

    The choice depends on `max_iter` and `tol`, which may change when a fit is resumed.
    """
    sizes, gain, batches = chosen.candidate
    name = f"{'-'.join(map(str, sizes))}-gain-{gain or 'auto'}"
    name += "" if batches is None else f"-{batches.direction}-{batches.steps}"
    return name if begin is None else f"{name}-after-{chosen.length}"


def _merged(settings: FitSettings, data: FitData, loss: Loss, fits: list[Fit]) -> Fit:
    """Return the mean of the networks as one model; one that was cut short is left out."""
    if len(fits) == 1:
        return fits[0]
    last = fits[-1].model.training
    models = [fitted.model for fitted in fits if not fitted.cut_short]
    first = models[0]
    merged = replace(first, weights=_mean_weights(models), networks=len(models))
    trained = first.training
    if trained is not None and last is not None:
        if fits[-1].cut_short:
            trained = replace(trained, outcome=last.outcome, reason=last.reason)
        trained = replace(trained, loss=_training_loss(merged, data, loss))
    merged = replace(merged, training=trained, known_certificate=None)
    if settings.budget is not None:
        loss_of = partial(_training_loss, data=data, loss=loss)
        merged = within_certificate(merged, settings.budget, loss_of)
    return Fit(merged)


def _mean_weights(models: Sequence[Model]) -> tuple[np.ndarray, ...]:
    """Return the weights of the mean, in the scaling of the first model."""
    first = models[0]
    networks = []
    for model in models:
        *others, last = model.weights
        ratio = first.scaling.factor / model.scaling.factor
        networks.append((*others, last if ratio == 1 else np.asarray(last * ratio, last.dtype)))
    return averaged(networks, bias=first.bias)


def _training_loss(model: Model, data: FitData, loss: Loss) -> float:
    """Return the mean loss of the rows in memory before outputs are clipped."""
    weight = normalised_weights(data.rows.sample_weight, len(data.rows))
    total, network = 0.0, model.unsaturated()
    with precision(np.float64):
        for chunk in chunks(len(data.rows)):
            rows = data.rows.take(chunk)
            of_rows = losses.of_rows(loss, network.outputs(rows.inputs), rows.targets)
            total += float(weight[chunk] @ np.asarray(of_rows))
    return total


def _with_selection(model: Model, chosen: Chosen, settings: FitSettings) -> Model:
    """Return the model with the table of the selection, and with the reason of its choice."""
    trained = model.training
    if trained is None:
        return model
    trained = replace(trained, selection=chosen.table)
    batches, iterations = chosen.candidate.batches, chosen.iterations
    limited = len(trained.history["loss"]) == iterations < settings.max_iter
    after_batches = batches is not None and iterations > 0 and settings.budget is None
    if trained.outcome == Outcome.MAX_ITER and (limited or after_batches):
        reason = f"the held-out loss is lowest after {iterations} iterations"
        if batches is not None:
            reason += f" on all rows that follow {batches.steps} steps on small batches"
        trained = replace(trained, outcome=str(Outcome.CONVERGED), reason=reason)
    return replace(model, training=trained)


def _model_of_candidate(settings: FitSettings, data: FitData, loss: Loss, chosen: Chosen) -> Fit:
    """Return the first network of the best candidate, if the selection was interrupted."""
    (problems, weights), records = chosen.start, chosen.run.records
    reason = "interrupted from the keyboard while candidates were compared"
    monitor = Monitor(problems.network, problems.scaling)
    training = Training(monitor.history(records), np.nan, str(Outcome.INTERRUPTED), reason)
    model = model_of(settings, data.names, problems, weights, training)
    model = replace(model, saturation=saturation_of(settings, data, loss))
    training = replace(training, loss=_training_loss(model, data, loss))
    model = replace(model, training=training)
    if settings.budget is not None:
        loss_of = partial(_training_loss, data=data, loss=loss)
        model = within_certificate(model, settings.budget, loss_of)
    return Fit(_with_selection(model, chosen, settings), cut_short=True)
