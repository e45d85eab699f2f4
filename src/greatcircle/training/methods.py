"""Names of directions, steps and initialisations, and the combinations that make a method.

The estimators, the command line and the experiments look methods up here, so that a name means the
same everywhere.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from greatcircle.optimise import directions, steps
from greatcircle.optimise.directions import Direction
from greatcircle.optimise.steps import Step

__all__ = [
    "BATCH_DIRECTIONS",
    "DIRECTIONS",
    "INITIALISATIONS",
    "METHODS",
    "STEPS",
    "Initialisation",
    "Method",
    "MethodNames",
    "lookup",
    "method_of",
]

T = TypeVar("T")

DIRECTIONS: dict[str, Direction | None] = {
    "auto": None,  # `directions.automatic` chooses
    "steepest": directions.Steepest(),
    "riemannian-gradient": directions.RiemannianGradient(),
    "majorant-steepest": directions.MajorantSteepest(),
    "conjugate-gradient": directions.ConjugateGradient(),
    "hager-zhang": directions.ConjugateGradient(directions.HagerZhang()),
    "gauss-newton": directions.GaussNewton(),
    "kronecker": directions.Kronecker(),
}

BATCH_DIRECTIONS: dict[str, Direction] = {
    "soap": directions.Soap(),
    "k-fac": directions.KroneckerMomentum(),
}
"""For small batches, with the step rule `LinearDecay`."""

STEPS: dict[str, Step] = {
    "curvature": steps.Curvature(),
    "compare": steps.ComparedCurvature(),
    "taylor3": steps.Taylor(3),
    "taylor4": steps.Taylor(4),
    "taylor4-full-circle": steps.Taylor(4, 2 * math.pi),
    "majorant": steps.Majorant(),
    "majorant-golden": steps.Majorant(steps.GoldenSection()),
    "data-majorant": steps.DataMajorant(),
    "smooth-majorant": steps.SmoothMajorant(),
    "closed-form": steps.ClosedForm(),
}


class Initialisation(NamedTuple):
    """How initial weights and the scale of the targets are chosen (`initialisation.py`)."""

    bias: bool
    scheme: str
    radius: float | Sequence[float] | None
    target_scale: str | float
    centred: bool
    target_gain: float | None


INITIALISATIONS: dict[str, Initialisation] = {
    # Algorithm 1
    "paper": Initialisation(False, "uniform", 1.0, "gain", False, 1.0),
    # The best accuracy at a given bound for every depth, see docs/scaling.md
    "auto": Initialisation(True, "identity", None, "output", True, None),
}


class MethodNames(NamedTuple):
    """Names of a direction, a step, an initialisation and a scaling, and when training ends."""

    direction: str
    step: str
    initialisation: str
    scaling: str
    tol: float
    """Training ends when ten iterations together lower the loss by less than this fraction."""
    all_rows: bool
    """Whether all iterations see all rows; otherwise training on many rows starts with some."""


METHODS: dict[str, MethodNames] = {
    "auto": MethodNames("auto", "curvature", "auto", "standard", 2e-3, False),
    # Method 1, automatic differentiation
    "ad": MethodNames("steepest", "curvature", "paper", "paper", 0.0, True),
    # Method 2, majorisation-minimisation
    "mm": MethodNames("steepest", "majorant", "paper", "paper", 0.0, True),
}


class Method(NamedTuple):
    """The objects of a method."""

    direction: Direction | None
    step: Step
    initialisation: Initialisation
    scaling: str
    tol: float
    all_rows: bool


def method_of(choice: Any) -> Method:
    """Return the method of a name or of a pair (direction, step) of names or objects."""
    if isinstance(choice, str):
        names = lookup(METHODS, choice, "method")
        return Method(
            DIRECTIONS[names.direction],
            STEPS[names.step],
            INITIALISATIONS[names.initialisation],
            *names[3:],
        )
    if not isinstance(choice, tuple) or len(choice) != 2:
        raise ValueError(
            f"method is {choice!r}; expected one of {', '.join(METHODS)}, or a pair "
            "(direction, step)"
        )
    direction, step = choice
    if isinstance(direction, str):
        direction = lookup(DIRECTIONS, direction, "method's direction")
    if isinstance(step, str):
        step = lookup(STEPS, step, "method's step")
    return method_of("auto")._replace(direction=direction, step=step)


def lookup(names: Mapping[str, T], name: str, argument: str) -> T:
    """Return the entry of a name, or raise an error that lists the names."""
    if name not in names:
        raise ValueError(f"{argument} is {name!r}; expected one of {', '.join(names)}")
    return names[name]
