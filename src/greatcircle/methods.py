"""Names for directions and steps, and for the pairs of them that make the paper's methods.

The estimators, the command line and the experiments look methods up here, so that one word means
the same everywhere.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from greatcircle import directions, steps
from greatcircle.directions import Direction
from greatcircle.steps import Step

T = TypeVar("T")


class Method(NamedTuple):
    """A direction and a step, by name."""

    direction: str
    step: str


DIRECTIONS: dict[str, Direction] = {"steepest": directions.Steepest()}

STEPS: dict[str, Step] = {
    "curvature": steps.Curvature(),
    "compare": steps.Curvature(compare=True),
    "taylor3": steps.Taylor(3),
    "taylor4": steps.Taylor(4),
    "taylor4-full-circle": steps.Taylor(4, 2 * math.pi),
    "majorant": steps.Majorant(),
    "majorant-golden": steps.Majorant("golden"),
    "closed-form": steps.ClosedForm(),
}

METHODS: dict[str, Method] = {
    "ad": Method("steepest", "curvature"),  # Method 1, automatic differentiation
    "mm": Method("steepest", "majorant"),  # Method 2, majorisation-minimisation
}


def lookup(names: Mapping[str, T], name: str, argument: str) -> T:
    """The entry of that name, or an error that lists the names there are."""
    if name not in names:
        raise ValueError(f"{argument} is {name!r}; expected one of {', '.join(names)}")
    return names[name]
