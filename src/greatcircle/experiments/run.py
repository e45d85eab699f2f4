"""One training run as the paper does it: split, Algorithm 1, descent, errors in newtons."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from greatcircle import certificate
from greatcircle.datasets import Table
from greatcircle.objective.problem import Problem
from greatcircle.optimise.directions import Direction, Steepest
from greatcircle.optimise.loop import descend
from greatcircle.optimise.record import Record
from greatcircle.optimise.steps import Step
from greatcircle.optimise.stopping import DecreaseBelow, MaxIter
from greatcircle.training.methods import STARTS, Start, begin

TRAIN_FRACTION = 0.8
PAPER_HIDDEN = (25, 30, 15)
STEEPEST = Steepest()


@dataclass(frozen=True)
class Run:
    """What one run gave. Errors are in the units of the targets."""

    train_rms: float
    test_rms: float
    iterations: int
    seconds: float
    """Of the iterations alone: neither compilation nor the test objective is counted."""
    setup_seconds: float
    """Compilation, where this process has not compiled the same shapes before."""
    bound_a_priori: float
    """∏μ_i, in units of the targets per unit of x/‖x‖, or per standard deviation of the inputs."""
    bound: float
    """∏‖W_i‖_op after training, in the same units."""
    outcome: str
    halvings: int
    """How often an angle was halved, in all."""
    train_objective: np.ndarray
    """Before the first iteration and after each."""
    test_objective: np.ndarray
    angle: np.ndarray


def paper_numbers() -> dict[str, Any]:
    """The published numbers, as `reference.json` in this folder has them."""
    text = (resources.files("greatcircle.experiments") / "reference.json").read_text("utf-8")
    return json.loads(text)


def train(
    table: Table,
    *,
    step: Step,
    iterations: int,
    seed: int,
    direction: Direction | None = STEEPEST,
    scaling: str = "paper",
    start: Start = STARTS["paper"],
    hidden: tuple[int, ...] = PAPER_HIDDEN,
    tol: float = 0.0,
    progress: Callable[[Record], None] | None = None,
) -> Run:
    """Split, scale, train and test; the seed decides the split and the initial weights.

    By default as the paper does it; `direction=None` is the library's choice. `tol` ends a run as
    in `LipschitzRegressor`.
    """
    split_rng, weights_rng = np.random.default_rng(seed).spawn(2)
    X, y = table.X, table.y
    order = split_rng.permutation(len(X))
    split = int(TRAIN_FRACTION * len(X))
    train_rows, test_rows = order[:split], order[split:]

    network, weights, fitted_scaling = begin(
        start,
        (X.shape[1], *hidden, y.shape[1]),
        X[train_rows],
        y[train_rows],
        weights_rng,
        scaling=scaling,
    )
    scaled_X, scaled_y = fitted_scaling.inputs(X), fitted_scaling.targets(y)
    fitted = Problem(network, scaled_X[train_rows], scaled_y[train_rows])
    unseen = Problem(network, scaled_X[test_rows], scaled_y[test_rows])
    test_objective = [float(unseen.loss(weights))]

    def watch(record: Record, weights: Any) -> None:
        test_objective.append(float(unseen.loss(weights)))
        if progress:
            progress(record)

    result = descend(
        fitted,
        weights,
        direction=direction,
        step=step,
        stop=MaxIter(iterations) | DecreaseBelow(tol),
        callback=watch,
    )
    if result.outcome == "interrupted":
        raise KeyboardInterrupt  # a run cut short is no result of an experiment
    history = result.history

    def rms(rows: np.ndarray) -> float:
        outputs = fitted_scaling.outputs(network.predict(result.weights, scaled_X[rows]))
        return float(np.sqrt(np.mean(np.sum((outputs - y[rows]) ** 2, axis=1))))

    matrices = network.linear(result.weights)
    return Run(
        train_rms=rms(train_rows),
        test_rms=rms(test_rows),
        iterations=len(result.records),
        seconds=float(history["seconds"].sum()),
        setup_seconds=result.setup_seconds,
        bound_a_priori=fitted_scaling.standard_bound(
            certificate.frobenius(matrices, orientation="in-out").value
        ),
        bound=fitted_scaling.standard_bound(
            certificate.spectral(matrices, orientation="in-out").value
        ),
        outcome=result.outcome,
        halvings=int(history["halvings"].sum()),
        train_objective=np.concatenate([[result.initial_loss], history["loss"]]),
        test_objective=np.array(test_objective),
        angle=history["angle"],
    )
