"""Train candidates on the parts of the rows, side by side, and measure held-out losses.

Rows are held out by weight zero, so the parts and all candidates of one shape share one compiled
program, and so does the final fit. Losses of held-out rows are recorded every `EVERY` iterations.
For a regressor, predictions are clipped to the range of the training targets before: otherwise one
outlying row could decide between candidates.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from greatcircle._runtime.precision import precision
from greatcircle.data.folds import Part
from greatcircle.data.rows import Rows
from greatcircle.objective import losses
from greatcircle.objective.losses import Loss
from greatcircle.objective.problem import Problem
from greatcircle.optimise import directions
from greatcircle.optimise.descent import descend
from greatcircle.optimise.outcome import Outcome
from greatcircle.optimise.random_batches import RandomBatches
from greatcircle.optimise.record import Record
from greatcircle.training.batches import descend_on_batches
from greatcircle.training.data import Problems
from greatcircle.training.monitor import spectral_bound
from greatcircle.training.search import BatchPhase, Candidate
from greatcircle.training.settings import FitSettings
from greatcircle.training.start import Start, random_start
from greatcircle.training.trial import EVERY, NEARLY, Run, Trial

__all__ = ["Trials"]

FIRST = 2
"""Parts on which a candidate is compared first; on the others only if it is not clearly worse."""


@dataclass(frozen=True, eq=False)
class Trials:
    """Train candidates on parts of the rows.

    Parameters
    ----------
    settings, loss, seed
        Of the fit.
    rows
        All rows, with positive weights.
    parts
        Rows to train on and rows to hold out.
    codes
        A number for each row, the same for duplicates.
    clipped
        Whether predictions are clipped to the range of the training targets.
    workers
        Number of runs side by side.
    sampled
        Whether there are more rows than these.
    on_batches
        Whether candidates are trained on small batches.
    show
        Called with the name of each candidate.
    """

    settings: FitSettings
    loss: Loss
    seed: int
    rows: Rows
    parts: Sequence[Part]
    codes: np.ndarray
    clipped: bool
    workers: int
    sampled: bool = False
    on_batches: bool = False
    show: Callable[[str], None] = lambda text: None

    def start(self, candidate: Candidate, iterations: int, rival: Trial | None) -> Trial:
        """Return the trial of a candidate, cut short if it is hopeless beside `rival`."""
        self.show(self._title(candidate))

        def train(number: int, stop: threading.Event) -> Run:
            return self._trained(candidate, number, None, iterations, stop)

        numbers = range(len(self.parts))
        first, rest = numbers[:FIRST], numbers[FIRST:]
        runs = self._side_by_side(train, first)
        trial = self.trial(candidate, iterations, runs)
        if rival is not None and rival.clearly_below(trial):
            return replace(trial, hopeless=True)
        if not rest:
            return trial
        return self.trial(candidate, iterations, runs + self._side_by_side(train, rest))

    def extend(self, trial: Trial, iterations: int) -> Trial:
        """Return the trial after more iterations, up to this number in all."""
        self.show(self._title(trial.candidate))

        def train(number: int, stop: threading.Event) -> Run:
            run = trial.runs[number]
            if run.state is None and run.iterations > 0:  # read from a file: repeat it first
                run = self._trained(trial.candidate, number, None, trial.length, stop)
            return self._trained(trial.candidate, number, run, iterations, stop)

        runs = self._side_by_side(train, range(len(trial.runs)))
        return self.trial(trial.candidate, iterations, runs)

    def trial(self, candidate: Candidate, length: int, runs: Sequence[Run]) -> Trial:
        """Return a trial of runs on the first parts."""
        held_out = [part.held_out for part in self.parts[: len(runs)]]
        return Trial(
            candidate,
            length,
            tuple(runs),
            tuple(self.weight[part] for part in held_out),
            tuple(self.codes[part] for part in held_out),
            float(len(self.rows) * sum(map(np.size, runs[0].weights))),
        )

    def begun(self, candidate: Candidate, number: int) -> tuple[Start, Rows]:
        """Return scaling, network and initial weights on a part, and the rows with its weights."""
        part, weight = self.parts[number], np.zeros(len(self.rows))
        weight[part.training] = self.weight[part.training]
        training = Rows(self.rows.inputs, self.rows.targets, weight)
        settings = self.settings.with_candidate(candidate)
        return random_start(settings, training, self.loss, self.seed + number), training

    @cached_property
    def weight(self) -> np.ndarray:
        """Weight of each row."""
        weight = self.rows.sample_weight
        return np.ones(len(self.rows)) if weight is None else weight

    def _title(self, candidate: Candidate) -> str:
        sizes = "-".join(map(str, candidate.hidden_layer_sizes))
        gain, batches = candidate.target_gain, candidate.batches
        title = sizes if gain is None else f"{sizes}, target gain {gain:.3g}"
        return title if batches is None else f"{title}, {batches.direction} {batches.steps} steps"

    def _side_by_side(
        self, task: Callable[[int, threading.Event], Run], numbers: Iterable[int]
    ) -> list[Run]:
        """Run tasks in threads; Ctrl-C reaches this thread, and ends them at their iteration."""
        stop = threading.Event()
        with ThreadPoolExecutor(self.workers) as pool:
            futures: list[Future[Run]] = [pool.submit(task, i, stop) for i in numbers]
            try:
                wait(futures)
            except KeyboardInterrupt:
                stop.set()
                raise
            return [future.result() for future in futures]

    def _trained(
        self,
        candidate: Candidate,
        number: int,
        run: Run | None,
        iterations: int,
        stop: threading.Event,
    ) -> Run:
        """Return a run after more iterations, up to this number in all; None begins one.

        Training on small batches comes first; after it, these are iterations on all rows.
        """
        if run is not None and (run.ended or iterations <= run.iterations):
            return run
        (problems, weights), rows = self.begun(candidate, number)
        problem, settings = problems.of(rows), self.settings
        if run is None and candidate.batches is not None:
            run = self._on_batches(candidate.batches, (problems, weights), problem, number, stop)
            if run.ended or iterations == 0:
                return run
        measured = _HeldOut(self, problems, number, run)
        result = descend(
            problem,
            weights if run is None else run.weights,
            direction=settings.direction or directions.automatic(problem),
            step=settings.step,
            stop=settings.stop_after(iterations - measured.before),
            observe=measured.observe,
            callback=lambda record, weights: stop.is_set() or measured.rises,
            state=run and run.state,
        )
        earlier = () if run is None else run.records
        return Run(
            losses=np.array(measured.losses or [measured.of(result.weights)]),
            ended=result.outcome != Outcome.MAX_ITER,
            evaluations=(run.evaluations if run else 0.0) + float(sum(result.evaluations)),
            bound=spectral_bound(problems.network, problems.scaling, result.weights),
            weights=tuple(np.asarray(w) for w in result.weights),
            records=(*earlier, *result.records),
            batch_records=run.batch_records if run else 0,
            state=result.state,
        )

    def _on_batches(
        self,
        batches: BatchPhase,
        start: Start,
        problem: Problem,
        number: int,
        stop: threading.Event,
    ) -> Run:
        """Return a run after training on small batches."""
        problems, weights = start
        result = descend_on_batches(
            batches,
            weights,
            RandomBatches(problem, seed=self.seed + number),
            callback=lambda record, weights: stop.is_set(),
        )
        failed = result.outcome == Outcome.NON_FINITE
        losses = _HeldOut(self, problems, number, None).of(result.weights)[None]
        return Run(
            losses=np.full_like(losses, np.inf) if failed else losses,
            ended=failed,
            evaluations=float(sum(result.evaluations)),
            bound=spectral_bound(problems.network, problems.scaling, result.weights),
            weights=tuple(np.asarray(w) for w in result.weights),
            records=tuple(result.records),
            batch_records=len(result.records),
        )


class _HeldOut:
    """Measures the held-out losses of a run."""

    def __init__(self, trials: Trials, problems: Problems, number: int, run: Run | None) -> None:
        rows, part, scaling = trials.rows, trials.parts[number], problems.scaling
        self.network, self.scaling, self.loss = problems.network, scaling, trials.loss
        self.inputs = scaling.inputs(rows.inputs[part.held_out])
        self.targets = rows.targets[part.held_out]
        self.range = (-np.inf, np.inf)
        if trials.clipped:
            seen = rows.targets[part.training]
            self.range = seen.min(axis=0), seen.max(axis=0)
        self.weight = trials.weight[part.held_out]
        self.before = 0 if run is None else run.iterations
        self.batch_records = 0 if run is None else run.batch_records
        self.losses: list[np.ndarray] = [] if run is None else list(run.losses)
        self.sums = [float(row_losses @ self.weight) for row_losses in self.losses]

    def observe(self, record: Record, weights: Any) -> Record:
        """Measure every few iterations, and return the record with its number in the whole run."""
        iteration = self.before + record.iteration
        if iteration % EVERY == 0:
            self.losses.append(self.of(weights))
            self.sums.append(float(self.losses[-1] @ self.weight))
        return record._replace(iteration=self.batch_records + iteration)

    @property
    def rises(self) -> bool:
        """Whether the loss was lowest in the first half of the iterations, and is higher now."""
        if not self.sums:
            return False
        best = int(np.argmin(self.sums))
        return len(self.sums) >= 2 * (best + 1) and self.sums[-1] > (1 + NEARLY) * self.sums[best]

    def of(self, weights: Any) -> np.ndarray:
        """Return the loss of each row held out."""
        outputs = self.scaling.outputs(self.network.predict(weights, self.inputs))
        with precision(np.float64):
            clipped = np.clip(outputs, *self.range)
            return np.asarray(losses.of_rows(self.loss, clipped, self.targets))
