"""Names for directions, steps and starts, and for the combinations of them that make a method.

The estimators, the command line and the experiments look methods up here, so that one word means
the same everywhere.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from greatcircle.data.scaling import Scaling
from greatcircle.network.activations import Activation
from greatcircle.network.network import Network
from greatcircle.optimise import directions, steps
from greatcircle.optimise.directions import Direction
from greatcircle.optimise.steps import Step
from greatcircle.training.initialisation import initialise

T = TypeVar("T")

DIRECTIONS: dict[str, Direction | None] = {
    "auto": None,  # the loop chooses, by what the objective offers
    "steepest": directions.Steepest(),
    "steepest-gradient": directions.Steepest("gradient"),
    "steepest-trust": directions.Steepest("trust"),
    "conjugate-gradient": directions.ConjugateGradient(),
    "hager-zhang": directions.ConjugateGradient("hager-zhang"),
    "gauss-newton": directions.GaussNewton(),
    "kronecker": directions.Kronecker(),
}

STEPS: dict[str, Step] = {
    "curvature": steps.Curvature(),
    "compare": steps.Curvature(compare=True),
    "taylor3": steps.Taylor(3),
    "taylor4": steps.Taylor(4),
    "taylor4-full-circle": steps.Taylor(4, 2 * math.pi),
    "majorant": steps.Majorant(),
    "majorant-golden": steps.Majorant("golden"),
    "data-majorant": steps.DataMajorant(),
    "smooth-majorant": steps.SmoothMajorant(),
    "closed-form": steps.ClosedForm(),
}


class Start(NamedTuple):
    """Where training starts: what `initialisation.initialise` and `Network` are told."""

    bias: bool
    scheme: str
    radius: float | Sequence[float] | None
    target_scale: str | float
    centred: bool
    headroom: float | None


STARTS: dict[str, Start] = {
    # Algorithm 1
    "paper": Start(False, "uniform", 1.0, "gain", False, 1.0),
    # The best accuracy at a given bound, at every depth: docs/scaling.md has the evidence
    "auto": Start(True, "identity", None, "output", True, None),
}


def begin(
    start: Start,
    sizes: Sequence[int],
    inputs: np.ndarray,
    targets: np.ndarray,
    rng: np.random.Generator,
    *,
    scaling: str,
    activation: str | Activation = "relu",
    sample_weight: np.ndarray | None = None,
    dtype: DTypeLike = np.float32,
) -> tuple[Network, tuple[np.ndarray, ...], Scaling]:
    """A network, its weights and its scaling, from the training part in its own units."""
    network = Network(sizes, activation, bias=start.bias)
    weights, fitted = initialise(
        network,
        inputs,
        targets,
        rng,
        scaling=scaling,
        target_scale=start.target_scale,
        centred=start.centred,
        scheme=start.scheme,
        radius=start.radius,
        headroom=start.headroom,
        sample_weight=sample_weight,
        dtype=dtype,
    )
    return network, weights, fitted


class Method(NamedTuple):
    """A direction, a step, a start and a scaling, by name; and when ten iterations gain too little.

    The paper's runs have a fixed length, and every iteration of them sees all rows. Others may
    start with some of many rows.
    """

    direction: str
    step: str
    start: str
    scaling: str
    tol: float
    all_rows: bool


METHODS: dict[str, Method] = {
    "auto": Method("auto", "curvature", "auto", "standard", 2e-3, False),
    # Method 1, automatic differentiation
    "ad": Method("steepest", "curvature", "paper", "paper", 0.0, True),
    # Method 2, majorisation-minimisation
    "mm": Method("steepest", "majorant", "paper", "paper", 0.0, True),
}


def lookup(names: Mapping[str, T], name: str, argument: str) -> T:
    """The entry of that name, or an error that lists the names there are."""
    if name not in names:
        raise ValueError(f"{argument} is {name!r}; expected one of {', '.join(names)}")
    return names[name]
