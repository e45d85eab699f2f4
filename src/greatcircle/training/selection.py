"""Choose target gain, layers and number of iterations by held-out error.

Candidates are trained for a few iterations on each part of the rows (`trials.py`), in the order of
`search.py`. The best one then continues as long as its held-out error falls, which gives the number
of iterations of the final fit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from greatcircle._runtime import threads
from greatcircle.data.folds import FOLD_ROWS, Part, distinct_rows, held_out_parts
from greatcircle.data.rows import Rows
from greatcircle.model.selection import SelectionRow, SelectionTable
from greatcircle.objective.chunks import MAX_AT_ONCE
from greatcircle.objective.losses import Huber, Loss, Squared
from greatcircle.optimise.checkpoint import Checkpoint
from greatcircle.training.data import FitData
from greatcircle.training.search import Candidate, Ladder, search
from greatcircle.training.settings import FitSettings
from greatcircle.training.start import Start
from greatcircle.training.trial import Run, Trial
from greatcircle.training.trial_files import SavedTrials
from greatcircle.training.trials import Trials

__all__ = ["Chosen", "select"]

WIDTHS = (32, 64, 128)
"""Units of each hidden layer, from narrow to wide; a wider network costs four times as much."""

DEPTHS = (1, 3, 5)
"""Numbers of hidden layers; the first candidates have as many as the estimator's default."""

ITERATIONS = 50
"""Iterations of every candidate: with 25, a quarter of the choices differ, with 200 hardly any."""

GAIN_OF_DOUBLING = 0.02
"""The iterations are doubled as long as that lowers the held-out loss by this fraction.

The loss is a square, so that is 1 % of the error, for twice the time.
"""

NETWORKS = 4
"""Most networks of an ensemble: three quarters of the error that an average can remove."""

MOST_OPERATIONS = 1e12
"""Passes times rows times weights of the longest runs: about twenty seconds on one core."""

ROWS = MAX_AT_ONCE
"""Most rows that candidates see; more would change the choice little, and cost in proportion."""

CANDIDATE_OPERATIONS = 2.5e11
"""Passes times rows times weights of a candidate of the second width: a few seconds on one core.

With many inputs or outputs, candidates see fewer rows, but at least `FOLD_ROWS`.
"""

PASSES = 7
"""Passes of an iteration: gradient, second-order angle, and Kronecker factors with their model."""


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
        tried.append(saved.start(candidate, min(ITERATIONS, settings.max_iter), rival))
        return tried[-1]

    try:
        best = search(_ladder(settings), evaluate)
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
    counted = _counted(settings, data.rows, seed)
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
        show=show,
    )


def _count(rows: Rows) -> int:
    """Return the number of rows with positive weight."""
    weight = rows.sample_weight
    return len(rows) if weight is None else int(np.count_nonzero(weight))


def _counted(settings: FitSettings, rows: Rows, seed: int) -> np.ndarray:
    """Return the numbers of the rows with positive weight, or of some of them, in order."""
    weight = rows.sample_weight
    counted = np.arange(len(rows)) if weight is None else np.flatnonzero(weight)
    widths = _ladder(settings).widths
    sizes = (rows.inputs.shape[1], *widths[len(widths) > 1], rows.targets.shape[1])
    weights = sum((a + 1) * b for a, b in pairwise(sizes))
    affordable = int(CANDIDATE_OPERATIONS / (PASSES * ITERATIONS * weights))
    most = min(ROWS, max(FOLD_ROWS, affordable))
    if len(counted) <= most:
        return counted
    return np.sort(np.random.default_rng(seed).choice(counted, most, replace=False))


def _ladder(settings: FitSettings) -> Ladder:
    """Return the networks to try."""
    gain = settings.initialisation.target_gain
    if not settings.chooses_sizes:
        return Ladder([settings.hidden_layer_sizes], walks=settings.chooses_gain, first_gain=gain)
    radius, depth, depths = settings.initialisation.radius, len(settings.hidden_layer_sizes), DEPTHS
    if isinstance(radius, Sequence | np.ndarray):  # one for each layer
        depth = len(radius) - 1
        depths = (depth,)

    def others(sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [sizes[:1] * other for other in depths if other != depth]

    return Ladder([(width,) * depth for width in WIDTHS], others, settings.chooses_gain, gain)


def _extended(trials: SavedTrials, best: Trial, limit: int, tried: list[Trial]) -> Trial:
    """Return the trial with more iterations, for as long as its error falls."""
    while best.length < limit and not best.ended and 2 * best.operations <= MOST_OPERATIONS:
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
            )
            for trial in tried
            for gain in [trial.candidate.target_gain]
        ]
    )
    affordable = sum(trial.operations for trial in tried) / max(best.operations_of_fit, 1.0)
    networks = int(np.clip(affordable, 1, NETWORKS))
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
