"""Where a run starts: scaling, network and initial weights, random or of a fitted model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from greatcircle.data.checks import check_range
from greatcircle.data.rows import Rows
from greatcircle.model import Model
from greatcircle.network.network import Network
from greatcircle.objective.losses import Loss, Squared
from greatcircle.optimise.record import Record
from greatcircle.training.data import Problems
from greatcircle.training.initialisation import absorb_factor, initial_network
from greatcircle.training.settings import FitSettings

__all__ = ["Continuation", "Start", "check_ranges", "continued", "random_start"]

Start = tuple[Problems, tuple[np.ndarray, ...]]
"""Scaling and network, and weights."""


@dataclass(frozen=True)
class Continuation:
    """A fitted model to continue from, with the state of its direction."""

    model: Model
    direction_state: Any = None
    records: Sequence[Record] = ()
    """Of earlier iterations, in the units of the targets."""


def check_ranges(settings: FitSettings, rows: Rows) -> None:
    """Reject rows whose scaling would lose precision."""
    check_range("y", rows.targets)
    if settings.scaling == "standard":  # which scales each column separately
        for i, column in enumerate(rows.inputs.T):
            check_range(f"column {i} of X", column)
    else:
        check_range("X", rows.inputs)


def random_start(settings: FitSettings, rows: Rows, loss: Loss, seed: int) -> Start:
    """Return scaling and network for the rows, and random initial weights."""
    dtype = settings.dtype_for(len(rows))
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
    return Problems(network, scaling, loss, dtype), weights


def continued(start: Continuation, loss: Loss) -> Start:
    """Return scaling, network and weights of a fitted model."""
    model = start.model
    network = Network(model.sizes, model.activation, bias=model.bias)
    return Problems(network, model.scaling, loss, model.weights[0].dtype), model.weights
