"""How a run or a compiled program ends: outcomes, reasons and status codes."""

from enum import IntEnum, StrEnum
from typing import NamedTuple

__all__ = ["Ending", "Outcome", "Status"]


class Outcome(StrEnum):
    """How a run ended, in one word."""

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
    """Why, in a sentence."""


class Status(IntEnum):
    """Why a compiled program returned."""

    RUNNING = 0
    """It reached the limit of its iterations."""
    NON_FINITE_LOSS = 1
    NON_FINITE_GRADIENT = 2
    ZERO_GRADIENT = 3
    RULE_FIRED = 4
    UPHILL = 5
    NON_FINITE_ANGLE = 6
    NO_ANGLE = 7
    NO_DECREASE = 8
    TOO_NOISY = 9
    """A step lowers the loss of the rows that chose it, but not of others: a batch is too small."""
