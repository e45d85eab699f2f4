"""How an estimator trains: on all rows at once, on batches of them, or on batches of a stream.

| rows | descent |
|---|---|
| in memory | `descend` |
| in memory, many, `batch_size="auto"` | `descend_in_batches` on chunks of them, then `descend` |
| in memory, with a `batch_size` below half of them | `descend_in_batches`, then `descend` |
| a stream of at least `SAMPLE` rows | `descend_in_batches`, without an end on all rows |

A shorter stream is read and treated as rows in memory. Each descent goes with early stopping and
with checkpoints. A Lipschitz budget adds a descent within it, on all rows
or on the sample of a stream; it has no checkpoints, being made anew from the end of the first.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from greatcircle.bounded import budget
from greatcircle.data.checks import check_range
from greatcircle.data.rows import CHUNK, Rows, chunks
from greatcircle.data.scaling import Scaling
from greatcircle.data.sources import Arrays, Source
from greatcircle.data.split import hold_out
from greatcircle.geometry.sphere import Tree
from greatcircle.network.network import Network
from greatcircle.objective.chunks import at_once
from greatcircle.objective.losses import Loss, Squared
from greatcircle.objective.problem import Problem
from greatcircle.optimise import batches, directions
from greatcircle.optimise import loop as descent
from greatcircle.optimise.batches import Windows
from greatcircle.optimise.checkpoint import Checkpoint, checkpointed, fingerprint
from greatcircle.optimise.loop import Result
from greatcircle.optimise.watch import Watch
from greatcircle.training.initialisation import absorbed
from greatcircle.training.methods import Start, begin
from greatcircle.training.settings import MAY_CHANGE, Plan

SAMPLE = 100_000
"""Rows of a stream from which scaling and start are taken."""

FIRST_BATCH, LARGEST_BATCH = 1024, 65_536
"""Rows of the batches of a stream."""


def _as_is(targets: np.ndarray) -> np.ndarray:
    return targets


def begun(
    plan: Plan, start: Start, rows: Rows, loss: Loss, activation: Any, seed: int, dtype: Any
) -> tuple[Network, Tree, Scaling]:
    """Network, initial weights and scaling."""
    check_range("y", rows.targets)
    if plan.scaling == "standard":  # which scales each column by itself
        for i, column in enumerate(rows.inputs.T):
            check_range(f"column {i} of X", column)
    else:
        check_range("X", rows.inputs)
    network, weights, scaling = begin(
        start,
        (rows.inputs.shape[1], *plan.widths, rows.targets.shape[1]),
        rows.inputs,
        rows.targets,
        np.random.default_rng(seed),
        scaling=plan.scaling,
        activation=activation,
        sample_weight=rows.sample_weight,
        dtype=dtype,
    )
    if not isinstance(loss, Squared):
        weights, scaling = absorbed(weights, scaling)
    return network, weights, scaling


class Parts(NamedTuple):
    """The rows of a fit, by what they are for."""

    start: Rows
    """Scaling and initial weights are taken from these; without `batches` training sees these."""
    unseen: Rows | None
    """For early stopping, never trained on."""
    batches: Source | Windows | None = None
    """Where batches come from."""
    order: np.ndarray | None = None
    """Of the rows of `start` that count, for windows of them."""
    first: int = 0
    """Rows of the first batches."""
    largest: int = 0
    """Rows of the largest ones."""
    streamed: bool = False
    """Whether there are more rows than `start`, so that batches never become all of them."""
    encode: Callable[[np.ndarray], np.ndarray] = _as_is
    """Makes a matrix of the targets of `unseen` and `batches`."""


def in_memory(
    rows: Rows,
    seed: int,
    batch_size: int | None,
    in_chunks: bool,
    held_out: float | None,
    strata: np.ndarray | None,
) -> Parts:
    """All rows, but for a part of them held out in proportion to the strata.

    `in_chunks` starts with a chunk of them, where there are many.
    """
    random = np.random.RandomState(seed)
    training, unseen = rows, None
    if held_out is not None:
        training, unseen = hold_out(rows, held_out, strata, random.randint(2**31))
    half = len(training) // 2
    weight = np.ones(len(training)) if training.sample_weight is None else training.sample_weight
    if in_chunks and not at_once(int(np.count_nonzero(weight))):
        order = random.permutation(np.flatnonzero(weight))
        windows = Windows(len(order))
        return Parts(training, unseen, windows, order, windows.size, len(order) // 2)
    if batch_size is None or batch_size >= half:
        return Parts(training, unseen)
    some = Arrays(*training, random.randint(2**31))
    return Parts(training, unseen, some, first=batch_size, largest=half)


def of_stream(
    sample: Rows,
    stream: Source,
    batch_size: int | None,
    held_out: float | None,
    encode: Callable[[np.ndarray], np.ndarray],
) -> Parts:
    """A stream whose first rows are known; the part held out is as large as of the sample."""
    unseen = None
    if held_out is not None:
        unseen = stream.hold_out(max(1, int(held_out * SAMPLE)))
    first = min(batch_size or FIRST_BATCH, LARGEST_BATCH)
    return Parts(
        sample,
        unseen,
        stream,
        first=first,
        largest=LARGEST_BATCH,
        streamed=True,
        encode=encode,
    )


def checkpoint_of(model: Any) -> Checkpoint | None:
    """Where the parameters of an estimator want training kept, if anywhere."""
    if model.checkpoint is None:
        if model.resume:
            raise ValueError("resume is True and checkpoint is None; name the folder to resume")
        return None
    if model.warm_start:
        raise ValueError("checkpoint and warm_start are two ways to go on; use one of them")
    return Checkpoint(model.checkpoint, model.checkpoint_seconds, model.resume)


def fingerprint_of(model: Any, rows: Rows, stream: Source | None) -> dict[str, str]:
    """Of a fit. A stream is known by its sample and its number of rows, wherever it is kept."""
    parameters = model.get_params(deep=False)
    for name in MAY_CHANGE:
        del parameters[name]
    if stream is not None:
        parameters["number of rows"] = stream.size
    return fingerprint(parameters, X=rows.inputs, y=rows.targets, sample_weight=rows.sample_weight)


@dataclass(frozen=True)
class Problems:
    """Rows as problems."""

    network: Network
    scaling: Scaling
    loss: Loss
    dtype: Any

    def of(
        self,
        rows: Rows,
        encode: Callable[[np.ndarray], np.ndarray] = _as_is,
        order: np.ndarray | None = None,
    ) -> Problem:
        """In the unit of these rows, or of some of them in another order."""
        given = Rows(rows.inputs, encode(rows.targets), rows.sample_weight)
        if order is None and len(rows) <= CHUNK:
            inputs, targets, weight = self._scaled(given)
        else:  # of many rows no copy in double precision is made
            count = len(rows) if order is None else len(order)
            inputs, targets = (np.empty((count, part.shape[1]), self.dtype) for part in given[:2])
            for some in chunks(count):
                which = some if order is None else order[some]
                inputs[some], targets[some], _ = self._scaled(given.take(which))
            weight = rows.sample_weight if rows.sample_weight is None or order is None else rows.sample_weight[order]
        return Problem(
            self.network,
            inputs,
            targets,
            loss=self.loss,
            sample_weight=weight,
            dtype=self.dtype,
        )

    def _scaled(self, rows: Rows) -> Rows:
        inputs, targets = self.scaling.inputs(rows.inputs), self.scaling.targets(rows.targets)
        return Rows(inputs, targets, rows.sample_weight)


def train(
    parts: Parts,
    problems: Problems,
    weights: Tree,
    watch: Watch,
    settings: Mapping[str, Any],
    checkpoint: Checkpoint | None,
) -> Result:
    """The descent that goes with the parts.

    Parameters
    ----------
    parts, problems
        What to train on.
    weights
        Where to start.
    watch
        Called after each iteration.
    settings
        What else `descend` is told.
    checkpoint
        Where training is kept and goes on from, if anywhere.
    """
    whole = problems.of(parts.start, order=parts.order)
    watch.ends_whole = parts.batches is not None and not parts.streamed
    direction = settings["direction"]
    if isinstance(parts.batches, Windows):
        start = partial(batches.start_of, whole, weights, direction, parts.batches)
        run = partial(
            batches.descend_in_batches,
            parts.batches,
            lambda chunks: whole.within(chunks.first, chunks.count),
            batch_size=parts.first,
            largest=parts.largest,
            whole=whole.within(0, parts.batches.chunks),
        )
    elif source := parts.batches:

        def problem_of(rows: Rows) -> Problem:
            problem = problems.of(rows, parts.encode)
            problem.unit = whole.unit
            return problem

        if direction is None:
            few = parts.start.take(slice(0, parts.first))
            direction = directions.automatic(problems.of(few) if parts.streamed else whole)
        start = partial(batches.start_of, whole, weights, direction, source)
        run = partial(
            batches.descend_in_batches,
            source,
            problem_of,
            batch_size=parts.first,
            largest=parts.largest,
            whole=None if parts.streamed else whole,
        )
    else:
        start = partial(descent.start_of, whole, weights, direction)
        run = partial(descent.descend, whole)
    run = partial(run, weights, callback=watch, **{**settings, "direction": direction})
    if checkpoint is None:
        return run()
    return checkpointed(checkpoint, run, start(), float(whole.unit), watch)


def within(
    plan: Plan, rows: Rows, problems: Problems, watch: Watch, free: Result, whole_fit: bool
) -> Result:
    """The fit within `plan.budget`, from a free one.

    One that was cut short is only shrunk, and so is a single iteration.
    """
    network, scaling = problems.network, problems.scaling
    assert plan.budget is not None
    scale, most = scaling.scale, plan.budget * scaling.factor
    weights = free.weights if watch.best is None else watch.best
    whole = problems.of(rows)
    cut_short = free.outcome in ("interrupted", "non_finite") or (
        free.outcome == "stopped" and not watch.done()
    )
    constant = budget.certified(network, weights, scale) == 0
    if cut_short or constant or not whole_fit:
        watch.begin_again(watch.lipschitz)
        return _shrunk(free, whole, weights, scale, most)
    limit = plan.budget
    watch.begin_again(lambda _: limit)
    try:
        found = budget.descend_within(
            whole,
            weights,
            scale,
            most,
            rounds=min(budget.ROUNDS, plan.max_iter),
            callback=watch,
        )
    except KeyboardInterrupt:  # before its first round, while it compiles
        free = replace(free, outcome="interrupted", reason="interrupted from the keyboard")
        return _shrunk(free, whole, weights, scale, most)
    if watch.best is not None:
        watch.best = budget.shrunk(network, watch.best, scale, most)
    return replace(found, state=free.state)


def _shrunk(free: Result, whole: Problem, weights: Tree, scale: np.ndarray, most: float) -> Result:
    weights = budget.shrunk(whole.network, weights, scale, most)
    return replace(free, weights=weights, loss=float(whole.loss(weights)))
