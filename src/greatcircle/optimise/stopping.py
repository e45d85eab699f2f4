"""Stopping rules, joined with `|`, as in `MaxIter(200) | SlopeBelow(1e-8)`.

A rule looks at the records so far and decides whether to stop. Each says whether that means
convergence: reaching the iteration limit does not.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, final

import numpy as np

from greatcircle.optimise.record import Record

__all__ = [
    "DecreaseBelow",
    "FirstOf",
    "LossBelow",
    "MaxIter",
    "Rule",
    "Since",
    "SlopeBelow",
    "since",
]


class Rule(ABC):
    """A stopping rule."""

    converged: bool
    """Whether stopping by this rule means that the run has converged."""

    @property
    def reason(self) -> str:
        """Why the run stopped, in words."""
        return f"the stopping rule {self!r}"

    @abstractmethod
    def fired(self, records: Sequence[Record]) -> "Rule | None":
        """Return the rule that says stop, or None."""

    def __or__(self, other: "Rule") -> "FirstOf":
        if not isinstance(other, Rule):
            return NotImplemented
        return FirstOf((self, other))


@final
@dataclass(frozen=True)
class FirstOf(Rule):
    """Stop when the first of several rules does."""

    rules: tuple[Rule, ...]
    converged = False

    def fired(self, records: Sequence[Record]) -> Rule | None:
        """Return the first rule that says stop."""
        return next((r for rule in self.rules if (r := rule.fired(records))), None)


@final
@dataclass(frozen=True)
class Since(Rule):
    """Another rule, applied to the records after the first ones."""

    rule: Rule
    first: int

    @property
    def converged(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether stopping by the other rule means convergence."""
        return self.rule.converged

    def fired(self, records: Sequence[Record]) -> Rule | None:
        """Return the other rule, if it says stop."""
        return self.rule.fired(records[self.first :])


def since(rule: Rule, first: int) -> Rule:
    """Return the same rules, of which those that mean convergence ignore the first records."""
    if isinstance(rule, FirstOf):
        return FirstOf(tuple(since(each, first) for each in rule.rules))
    return Since(rule, first) if rule.converged else rule


@final
@dataclass(frozen=True)
class MaxIter(Rule):
    """Stop after a number of iterations, without convergence."""

    iterations: int
    converged = False

    def __post_init__(self) -> None:
        if not isinstance(self.iterations, int | np.integer) or self.iterations < 0:
            raise ValueError(
                f"max_iter is {self.iterations!r}; expected a whole number, not negative"
            )

    @property
    def reason(self) -> str:
        """Why the run stopped."""
        return f"the limit of {self.iterations} iterations"

    def fired(self, records: Sequence[Record]) -> Rule | None:
        """Return the rule, if there are that many records."""
        return self if len(records) >= self.iterations else None


@final
@dataclass(frozen=True)
class SlopeBelow(Rule):
    """Stop when the last slope is less than `tolerance` times the loss, per radian."""

    tolerance: float
    converged = True

    def __post_init__(self) -> None:
        _check_number("tolerance", self.tolerance)

    @property
    def reason(self) -> str:
        """Why the run stopped."""
        return f"the slope fell below {_percent(self.tolerance)} of the loss per radian"

    def fired(self, records: Sequence[Record]) -> Rule | None:
        """Return the rule, if the last slope is small relative to the loss."""
        if not records:
            return None
        last = records[-1]
        return self if -last.slope <= self.tolerance * abs(last.loss) else None


@final
@dataclass(frozen=True)
class DecreaseBelow(Rule):
    """Stop when the loss fell by less than `tolerance` of itself in `patience` iterations."""

    tolerance: float
    patience: int = 10
    converged = True

    def __post_init__(self) -> None:
        _check_number("tolerance", self.tolerance)
        if not isinstance(self.patience, int | np.integer) or self.patience < 1:
            raise ValueError(f"patience is {self.patience!r}; expected a whole number from 1 up")

    @property
    def reason(self) -> str:
        """Why the run stopped."""
        count = "one iteration" if self.patience == 1 else f"{self.patience} iterations"
        return f"the loss fell by less than {_percent(self.tolerance)} in {count}"

    def fired(self, records: Sequence[Record]) -> Rule | None:
        """Return the rule, if the last decreases are small relative to the loss."""
        if len(records) < self.patience:
            return None
        decrease = sum(r.actual for r in records[-self.patience :])
        return self if decrease <= self.tolerance * abs(records[-1].loss) else None


@final
@dataclass(frozen=True)
class LossBelow(Rule):
    """Stop when the loss is at most `value`."""

    value: float
    converged = True

    def __post_init__(self) -> None:
        _check_number("value", self.value)

    @property
    def reason(self) -> str:
        """Why the run stopped."""
        return f"the loss fell to {self.value:g}"

    def fired(self, records: Sequence[Record]) -> Rule | None:
        """Return the rule, if the last loss is low enough."""
        return self if records and records[-1].loss <= self.value else None


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.3g} %"


def _check_number(name: str, value: Any) -> None:
    if not isinstance(value, Real):
        raise ValueError(f"{name} is {value!r}; expected a number")
