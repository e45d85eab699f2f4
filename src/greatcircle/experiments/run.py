"""One training run of the experiments: split, scale, train, and measure errors and bounds."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from greatcircle import certificate
from greatcircle.data.table import Table
from greatcircle.objective.problem import Problem
from greatcircle.optimise.descent import descend
from greatcircle.optimise.directions import Direction
from greatcircle.optimise.record import Record
from greatcircle.optimise.steps import Step
from greatcircle.optimise.stopping import DecreaseBelow, MaxIter
from greatcircle.training.initialisation import initial_network
from greatcircle.training.methods import (
    DIRECTIONS,
    INITIALISATIONS,
    METHODS,
    STEPS,
    Initialisation,
)

__all__ = ["PAPER_HIDDEN", "TRAIN_FRACTION", "Job", "Run", "job_of", "paper_numbers", "train"]

TRAIN_FRACTION = 0.8
PAPER_HIDDEN = (25, 30, 15)


@dataclass(frozen=True)
class Job:
    """Settings of a run: together with the data and the software they determine its result.

    `direction`, `step` and `start` are names in `training.methods`; benchmarks also pass objects.
    """

    direction: str | Direction | None
    step: str | Step
    start: str | Initialisation
    scaling: str
    hidden: tuple[int, ...]
    iterations: int
    seed: int
    """Determines the split and the initial weights."""
    tol: float = 0.0
    """Stops a run that converges, as in `LipschitzRegressor`; 0 never does, as in the paper."""


@dataclass(frozen=True, eq=False)
class Run:
    """Result of a run. Errors are in the units of the targets."""

    train_rms: float
    test_rms: float
    iterations: int
    seconds: float
    """Time of the iterations, without compilation and without evaluating the test objective."""
    setup_seconds: float
    """Time of compilation, unless this process has compiled the same shapes before."""
    bound_a_priori: float
    """∏μ_i, in units of the targets per unit of x/‖x‖, or per standard deviation of the inputs."""
    bound: float
    """∏‖W_i‖_op after training, in the same units."""
    outcome: str
    halvings: int
    """Total number of halvings of the angle."""
    train_objective: np.ndarray
    """Before the first iteration and after each."""
    test_objective: np.ndarray
    angle: np.ndarray


def job_of(method: str, hidden: tuple[int, ...], iterations: int, seed: int) -> Job:
    """Return the job of a method in `training.methods.METHODS`."""
    m = METHODS[method]
    return Job(m.direction, m.step, m.initialisation, m.scaling, hidden, iterations, seed, m.tol)


def paper_numbers() -> dict[str, Any]:
    """Return the published numbers from `reference.json`."""
    text = (resources.files("greatcircle.experiments") / "reference.json").read_text("utf-8")
    return json.loads(text)


def train(table: Table, job: Job, progress: Callable[[Record], None] | None = None) -> Run:
    """Split the table, scale, train and test; call `progress` after each iteration."""
    split_rng, weights_rng = np.random.default_rng(job.seed).spawn(2)
    X, y = table.X, table.y
    train_rows, test_rows = np.split(split_rng.permutation(len(X)), [int(TRAIN_FRACTION * len(X))])
    network, weights, scaling = initial_network(
        INITIALISATIONS[job.start] if isinstance(job.start, str) else job.start,
        (X.shape[1], *job.hidden, y.shape[1]),
        X[train_rows],
        y[train_rows],
        weights_rng,
        scaling=job.scaling,
    )
    inputs, targets = scaling.inputs(X), scaling.targets(y)
    training = Problem(network, inputs[train_rows], targets[train_rows])
    test = Problem(network, inputs[test_rows], targets[test_rows])
    test_objective = [float(test.loss(weights))]

    def callback(record: Record, weights: Any) -> None:
        test_objective.append(float(test.loss(weights)))
        if progress:
            progress(record)

    result = descend(
        training,
        weights,
        direction=DIRECTIONS[job.direction] if isinstance(job.direction, str) else job.direction,
        step=STEPS[job.step] if isinstance(job.step, str) else job.step,
        stop=MaxIter(job.iterations) | DecreaseBelow(job.tol),
        callback=callback,
    )
    if result.outcome == "interrupted":
        raise KeyboardInterrupt  # a partial run is not a result of an experiment
    history = result.history

    def rms(rows: np.ndarray) -> float:
        outputs = scaling.outputs(network.predict(result.weights, inputs[rows]))
        return float(np.sqrt(np.mean(np.sum((outputs - y[rows]) ** 2, axis=1))))

    matrices = network.linear(result.weights)
    frobenius = certificate.frobenius(matrices, orientation="in-out").value
    spectral = certificate.spectral(matrices, orientation="in-out").value
    return Run(
        train_rms=rms(train_rows),
        test_rms=rms(test_rows),
        iterations=len(result.records),
        seconds=float(history["seconds"].sum()),
        setup_seconds=result.setup_seconds,
        bound_a_priori=scaling.standard_bound(frobenius),
        bound=scaling.standard_bound(spectral),
        outcome=result.outcome,
        halvings=int(history["halvings"].sum()),
        train_objective=np.concatenate([[result.initial_loss], history["loss"]]),
        test_objective=np.array(test_objective),
        angle=history["angle"],
    )
