"""How a run ends: an outcome in one word, and the reason in a sentence."""

from enum import IntEnum, StrEnum
from typing import NamedTuple

__all__ = ["Ending", "Outcome", "Status"]


class Outcome(StrEnum):
    """How a run ended."""

    CONVERGED = "converged"
    MAX_ITER = "max_iter"
    NO_DESCENT = "no_descent"
    NON_FINITE = "non_finite"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"


class Ending(NamedTuple):
    """Outcome of a run, and why."""

    outcome: Outcome
    reason: str


class Status(IntEnum):
    """What a compiled program found after its last iteration."""

    RUNNING = 0
    NON_FINITE_LOSS = 1
    NON_FINITE_GRADIENT = 2
    ZERO_GRADIENT = 3
    RULE_FIRED = 4
    UPHILL = 5
    NON_FINITE_ANGLE = 6
    NO_ANGLE = 7
    NO_DECREASE = 8
    REFUSED = 9
    """The rows that chose the step accept it, other rows do not: a batch is too small."""
