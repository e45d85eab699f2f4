"""Choose target gain, layers and length of training by held-out error.

Candidates are trained for a short time on each part of the rows (`trials.py`), in the order of
`search.py`: for some iterations on all rows if there are few, otherwise for some steps on small
batches. The best one is then trained longer as long as its held-out error falls, which gives the
length of the final fit.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from greatcircle._runtime import threads
from greatcircle.data.folds import FOLD_ROWS, Part, distinct_rows, held_out_parts
from greatcircle.data.rows import Rows
from greatcircle.model.selection import SelectionRow, SelectionTable
from greatcircle.objective.chunks import MAX_AT_ONCE
from greatcircle.objective.losses import Huber, Loss, Squared
from greatcircle.optimise.checkpoint import Checkpoint
from greatcircle.optimise.random_batches import batch_size
from greatcircle.training.data import FitData
from greatcircle.training.ladder import (
    ITERATIONS,
    MOST_OPERATIONS,
    OPERATIONS_ON_BATCHES,
    PASSES,
    Costs,
    ladder,
    weights_of,
)
from greatcircle.training.search import Candidate, search, search_on_batches
from greatcircle.training.settings import FitSettings
from greatcircle.training.start import Start
from greatcircle.training.trial import GAIN_OF_DOUBLING, Run, Trial
from greatcircle.training.trial_files import SavedTrials
from greatcircle.training.trials import Trials

__all__ = ["Chosen", "select"]

NETWORKS = 4
"""Most networks of an ensemble: three quarters of the error that an average can remove."""

MOST_UNITS = 512
"""Most units of a layer of an ensemble that was trained on small batches: its certificate takes a
time that is cubic in them."""

MANY_ROWS = FOLD_ROWS
"""Above this number of rows, candidates are trained on small batches."""

FEWEST_ROWS = 8
"""Fewest rows of a batch on which its gradient must depend, in effect (`_even_part`)."""

ROWS = MAX_AT_ONCE
"""Most rows that candidates see; more would change the choice little, and cost in proportion."""

ROWS_ON_BATCHES = 100_000
"""The same for training on small batches, whose cost does not depend on the rows."""

CANDIDATE_OPERATIONS = 2.5e11
"""Passes times rows times weights of a candidate of the second width: a few seconds on one core.

With many inputs or outputs, candidates see fewer rows, but at least `FOLD_ROWS`.
"""


@dataclass(frozen=True)
class Chosen:
    """What the selection has found."""

    candidate: Candidate
    iterations: int
    table: SelectionTable
    networks: int
    """Number of networks whose final fits together cost no more than the choice."""
    run: Run
    """The first run of the candidate."""
    length: int
    """Largest number of iterations that this run was allowed."""
    start: Start
    """Scaling and network of that run, and its weights."""
    sampled: bool
    """Whether the candidates saw only some of the rows."""
    interrupted: bool = False


def select(
    settings: FitSettings,
    data: FitData,
    loss: Loss,
    seed: int,
    checkpoint: Checkpoint | None = None,
    show: Callable[[str], None] = lambda text: None,
) -> Chosen | None:
    """Return the candidate with the lowest held-out error, or None for too few rows.

    Parameters
    ----------
    settings, data, loss, seed
        As for `fit`.
    checkpoint
        Where to save finished trials, and where to look for them.
    show
        Called with the name of each candidate.
    """
    trials = _trials(settings, data, loss, seed, show)
    if trials is None:
        return None
    saved = SavedTrials(checkpoint, trials)
    tried: list[Trial] = []

    def evaluate(candidate: Candidate, rival: Trial | None) -> Trial:
        iterations = 0 if candidate.batches else min(ITERATIONS, settings.max_iter)
        tried.append(saved.start(candidate, iterations, rival))
        return tried[-1]

    costs = Costs(len(trials.parts[0].training), data.rows, settings.max_iter)

    def affords(candidate: Candidate) -> bool:
        all_of_them = [*(trial.candidate for trial in tried), candidate]
        total = len(trials.parts) * sum(map(costs.on_batches, all_of_them))
        return costs.affords(candidate) and total <= OPERATIONS_ON_BATCHES

    try:
        if trials.on_batches:
            best = search_on_batches(ladder(settings, costs.first_steps, affords), evaluate)
            if not trials.sampled:
                best = _continued_on_all_rows(saved, best, costs, settings.max_iter, tried)
        else:
            best = search(ladder(settings), evaluate)
        best = _extended(saved, best, settings.max_iter, tried)
    except KeyboardInterrupt:
        if not tried:
            raise
        return _chosen(trials, _best(tried), tried, interrupted=True)
    return _chosen(trials, best, tried)


def _trials(
    settings: FitSettings, data: FitData, loss: Loss, seed: int, show: Callable[[str], None]
) -> Trials | None:
    """Return the trials of some of the rows; None if there are too few."""
    on_batches = _learns_on_batches(settings, data.rows)
    counted = _counted(settings, data.rows, seed, on_batches=on_batches)
    rows = data.rows.take(counted) if len(counted) < len(data.rows) else data.rows
    if data.validation is not None:  # the part that early stopping holds out
        inputs, targets, weight = data.validation
        held_out = Rows(inputs, data.encode(targets), weight)
        parts = [Part(np.arange(len(rows)), len(rows) + np.arange(len(held_out)))]
        rows = rows.followed_by(held_out)
    else:
        strata = None if data.names.classes is None else data.rows.targets
        parts = held_out_parts(
            data.rows, settings.cv, seed, strata=strata, groups=data.groups, counted=counted
        )
    if not parts:
        return None
    return Trials(
        settings,
        loss,
        seed,
        rows,
        parts,
        distinct_rows(rows),
        clipped=isinstance(loss, Squared | Huber),
        workers=min(len(parts), threads.cores()),
        sampled=data.stream is not None or len(counted) < _count(data.rows),
        on_batches=on_batches,
        show=show,
    )


def _learns_on_batches(settings: FitSettings, rows: Rows) -> bool:
    """Return whether candidates are trained on small batches: there are many rows.

    The paper's methods and a given batch size or direction exclude it. So do rare classes and rare
    large targets: most batches would have none of them, and all batches count alike.
    """
    automatic = settings.starts_with_chunk and settings.direction is None and settings.max_iter > 0
    many = automatic and _count(rows) > MANY_ROWS
    return many and batch_size(_count(rows)) * _even_part(rows) >= FEWEST_ROWS


def _even_part(rows: Rows) -> float:
    """Return (mean |y − ȳ|)² / mean (y − ȳ)², the smallest over the targets.

    It is 2/π for a normal distribution, and 4 p for a rare class or value of probability p.
    """
    weight = np.ones(len(rows)) if rows.sample_weight is None else rows.sample_weight
    deviations = np.abs(rows.targets - np.average(rows.targets, axis=0, weights=weight))
    deviations /= np.maximum(np.max(deviations, axis=0), np.finfo(float).tiny)
    mean, square = (np.average(d, axis=0, weights=weight) for d in (deviations, deviations**2))
    parts = np.divide(mean**2, square, out=np.ones_like(mean), where=square > 0)
    return float(np.min(parts))


def _count(rows: Rows) -> int:
    """Return the number of rows with positive weight."""
    weight = rows.sample_weight
    return len(rows) if weight is None else int(np.count_nonzero(weight))


def _counted(settings: FitSettings, rows: Rows, seed: int, *, on_batches: bool) -> np.ndarray:
    """Return the numbers of the rows with positive weight, or of some of them, in order."""
    weight = rows.sample_weight
    counted = np.arange(len(rows)) if weight is None else np.flatnonzero(weight)
    most = ROWS_ON_BATCHES
    if not on_batches:
        widths = ladder(settings).widths
        sizes = (rows.inputs.shape[1], *widths[len(widths) > 1], rows.targets.shape[1])
        affordable = int(CANDIDATE_OPERATIONS / (PASSES * ITERATIONS * weights_of(sizes)))
        most = min(ROWS, max(FOLD_ROWS, affordable))
    if len(counted) <= most:
        return counted
    return np.sort(np.random.default_rng(seed).choice(counted, most, replace=False))


def _continued_on_all_rows(
    trials: SavedTrials, best: Trial, costs: Costs, limit: int, tried: list[Trial]
) -> Trial:
    """Return the trial with iterations on all rows after those on small batches."""
    iterations = min(ITERATIONS, limit)
    if best.ended or costs.on_all_rows(best.candidate, iterations) > MOST_OPERATIONS:
        return best
    longer = trials.extend(best, iterations)
    tried[tried.index(best)] = longer
    return longer


def _extended(trials: SavedTrials, best: Trial, limit: int, tried: list[Trial]) -> Trial:
    """Return the trial with more iterations, for as long as its error falls."""
    while 0 < best.length < limit and not best.ended and 2 * best.operations <= MOST_OPERATIONS:
        half = float(np.min(best.curve[: max(len(best.curve) // 2, 1)]))
        if not best.error < (1 - GAIN_OF_DOUBLING) * half:
            break
        longer = trials.extend(best, min(2 * best.length, limit))
        tried[tried.index(best)] = longer
        best = longer
    return best


def _best(tried: list[Trial]) -> Trial:
    best = tried[0]
    for trial in tried[1:]:
        best = trial if trial.below(best) else best
    return best


def _chosen(
    trials: Trials, best: Trial, tried: list[Trial], *, interrupted: bool = False
) -> Chosen:
    table = SelectionTable.of(
        [
            SelectionRow(
                hidden_layer_sizes=trial.candidate.hidden_layer_sizes,
                target_gain=np.nan if gain is None else gain,
                iterations=trial.iterations,
                parts=len(trial.runs),
                held_out_loss=trial.error,
                standard_error=trial.standard_error,
                evaluations=sum(run.evaluations for run in trial.runs),
                spectral_bound=float(np.mean([run.bound for run in trial.runs])),
                chosen=trial is best,
                direction=batches.direction if batches else "",
                steps=batches.steps if batches else 0,
            )
            for trial in tried
            for _, gain, batches in [trial.candidate]
        ]
    )
    affordable = sum(trial.operations for trial in tried) / max(best.operations_of_fit, 1.0)
    most = NETWORKS
    if trials.on_batches:
        most = min(most, MOST_UNITS // max(best.candidate.hidden_layer_sizes, default=1))
    networks = int(np.clip(affordable, 1, max(most, 1)))
    run, ((problems, _), _) = best.runs[0], trials.begun(best.candidate, 0)
    return Chosen(
        candidate=best.candidate,
        iterations=best.iterations,
        table=table,
        networks=networks,
        run=run,
        length=best.length,
        start=(problems, run.weights),
        sampled=trials.sampled,
        interrupted=interrupted,
    )
