"""Train on small batches: a direction by name, the linear decay of the angle, and the batches.

If there are more rows than the candidates of the selection saw, the number of steps that they chose
is only the first. It is doubled, each time from the same initial weights, as long as that lowers
the loss of rows that are held out.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from greatcircle.data.folds import held_out_parts
from greatcircle.data.rows import Rows
from greatcircle.geometry import sphere
from greatcircle.objective.problem import Problem
from greatcircle.optimise import stopping
from greatcircle.optimise.checkpoint import Checkpoint
from greatcircle.optimise.descent import Callback, Observer, Result, descend
from greatcircle.optimise.outcome import Outcome
from greatcircle.optimise.random_batches import RandomBatches, SmallBatches, StreamBatches
from greatcircle.optimise.steps import LinearDecay
from greatcircle.training.data import FitData, Problems
from greatcircle.training.ladder import Costs
from greatcircle.training.methods import BATCH_DIRECTIONS
from greatcircle.training.monitor import Monitor
from greatcircle.training.search import BatchPhase, Candidate
from greatcircle.training.settings import FitSettings
from greatcircle.training.start import Start
from greatcircle.training.trial import GAIN_OF_DOUBLING

__all__ = ["descend_on_batches", "train_on_batches"]

HELD_OUT_ROWS = 10_000
"""Rows that are held out to choose the number of steps, at most a tenth of all."""


def descend_on_batches(
    phase: BatchPhase,
    weights: Any,
    rows: SmallBatches,
    *,
    callback: Callback | None = None,
    observe: Observer | None = None,
    checkpoint: Checkpoint | None = None,
) -> Result:
    """Train on small batches until the angle is zero; the optional arguments are `descend`'s."""
    return descend(
        rows.objective,
        weights,
        direction=BATCH_DIRECTIONS[phase.direction],
        step=LinearDecay(phase.steps),
        stop=stopping.FirstOf(()),
        rows=rows,
        callback=callback,
        observe=observe,
        checkpoint=checkpoint,
    )


def train_on_batches(
    phase: BatchPhase,
    settings: FitSettings,
    data: FitData,
    start: Start,
    seed: int,
    monitor: Monitor,
    checkpoint: Checkpoint | None,
) -> Result:
    """Train on small batches, for as many steps as given, or as held-out rows ask for."""
    problems, weights = start

    def trained(phase: BatchPhase, rows: SmallBatches) -> Result:
        if monitor.bar is not None:
            monitor.bar.expect(-(-phase.steps // rows.steps(sphere.pack(weights))))
        return descend_on_batches(
            phase,
            weights,
            rows,
            callback=monitor.callback,
            observe=monitor.observe,
            checkpoint=checkpoint and checkpoint.within(f"batches-{phase.steps}"),
        )

    if settings.most_passes is None:
        return trained(phase, RandomBatches(problems.of(data.rows), seed=seed))
    rows, held_out = _growing(settings, problems, data, seed)
    costs = Costs(len(data.rows), data.rows, settings.most_passes)
    best, lowest = trained(phase, rows), np.inf
    result = best
    while True:
        loss = float(held_out.loss(result.weights))
        if loss < lowest:
            best = result
        if result.outcome in (Outcome.INTERRUPTED, Outcome.STOPPED):
            return replace(best, outcome=result.outcome, reason=result.reason)
        longer = phase._replace(steps=2 * phase.steps)
        enough = not loss < (1 - GAIN_OF_DOUBLING) * lowest
        affordable = costs.affords(Candidate(settings.hidden_layer_sizes, None, longer))
        if enough or result.outcome != Outcome.CONVERGED or not affordable:
            return best
        phase, lowest = longer, loss
        result = trained(phase, rows)


def _growing(
    settings: FitSettings, problems: Problems, data: FitData, seed: int
) -> tuple[SmallBatches, Problem]:
    """Return batches of the rows, and the problem of rows held out from them.

    A stream may draw some of the rows held out: there are many others.
    """
    if data.stream is not None:
        whole = problems.of(data.rows)

        def of_stream(drawn: Rows) -> Problem:
            return problems.of(drawn, data.encode).with_unit(whole.unit)

        held_out = problems.of(data.rows.take(slice(0, HELD_OUT_ROWS)))
        return StreamBatches(whole, data.stream, of_stream, seed=seed), held_out
    if data.validation is not None:  # the part that early stopping holds out
        held_out = problems.of(data.validation, data.encode)
        return RandomBatches(problems.of(data.rows), seed=seed), held_out
    inputs, targets, weight = data.rows
    weight = np.ones(len(inputs)) if weight is None else weight
    counted = np.flatnonzero(weight)
    if data.groups is None and isinstance(settings.cv, str) and settings.cv == "auto":
        which = np.random.default_rng(seed).permutation(counted)[
            : min(HELD_OUT_ROWS, len(counted) // 10)
        ]
    else:
        which = held_out_parts(data.rows, settings.cv, seed, groups=data.groups, counted=counted)[
            0
        ].held_out
    kept = weight.copy()
    kept[which] = 0
    training = RandomBatches(problems.of(Rows(inputs, targets, kept)), seed=seed)
    return training, problems.of(data.rows.take(which))
