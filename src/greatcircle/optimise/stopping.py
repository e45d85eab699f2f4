"""When to stop: small rules joined with `|`, as in `MaxIter(200) | SlopeBelow(1e-8)`.

A rule looks at the records so far and says yes or no. Each says whether a yes means convergence:
running out of iterations does not.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, final

import numpy as np

from greatcircle.optimise.record import Record


class Rule(ABC):
    """A stopping rule."""

    converged: bool
    """Whether this rule's yes means that the run has converged."""
    meaning: str = "a stopping rule"
    """Its yes in words."""

    @abstractmethod
    def fired(self, records: Sequence[Record]) -> "Rule | None":
        """The rule that says stop, if any does."""

    def __or__(self, other: "Rule") -> "FirstOf":
        if not isinstance(other, Rule):
            return NotImplemented
        return FirstOf((self, other))


@final
@dataclass(frozen=True)
class FirstOf(Rule):
    """Stops when the first of its rules does."""

    rules: tuple[Rule, ...]
    converged = False

    def fired(self, records: Sequence[Record]) -> Rule | None:
        """The first rule that says stop."""
        return next((r for rule in self.rules if (r := rule.fired(records))), None)


@final
@dataclass(frozen=True)
class Since(Rule):
    """A rule for which the first records are no sign of anything."""

    rule: Rule
    first: int

    @property
    def converged(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the rule itself."""
        return self.rule.converged

    def fired(self, records: Sequence[Record]) -> Rule | None:
        """The rule, by the records after the first ones."""
        return self.rule.fired(records[self.first :])


def since(rule: Rule, first: int) -> Rule:
    """The same rules, of which those that mean convergence leave out the first records."""
    if isinstance(rule, FirstOf):
        return FirstOf(tuple(since(each, first) for each in rule.rules))
    return Since(rule, first) if rule.converged else rule


@final
@dataclass(frozen=True)
class MaxIter(Rule):
    """After a number of iterations. Not convergence."""

    iterations: int
    converged = False
    meaning = "the most iterations allowed"

    def __post_init__(self) -> None:
        if not isinstance(self.iterations, int | np.integer) or self.iterations < 0:
            raise ValueError(
                f"max_iter is {self.iterations!r}; expected a whole number, not negative"
            )

    def fired(self, records: Sequence[Record]) -> Rule | None:
        """When that many records are there."""
        return self if len(records) >= self.iterations else None


@final
@dataclass(frozen=True)
class SlopeBelow(Rule):
    """When a full radian at the last slope would gain less than `tolerance` of the loss."""

    tolerance: float
    converged = True
    meaning = "the slope is almost zero"

    def __post_init__(self) -> None:
        _check_number("tolerance", self.tolerance)

    def fired(self, records: Sequence[Record]) -> Rule | None:
        """Relative to the loss, so that its units do not matter."""
        if not records:
            return None
        last = records[-1]
        return self if -last.slope <= self.tolerance * abs(last.loss) else None


@final
@dataclass(frozen=True)
class DecreaseBelow(Rule):
    """When the last `patience` iterations together gained less than `tolerance` of the loss."""

    tolerance: float
    patience: int = 10
    converged = True
    meaning = "the last iterations gained too little"

    def __post_init__(self) -> None:
        _check_number("tolerance", self.tolerance)
        if not isinstance(self.patience, int | np.integer) or self.patience < 1:
            raise ValueError(f"patience is {self.patience!r}; expected a whole number from 1 up")

    def fired(self, records: Sequence[Record]) -> Rule | None:
        """Relative to the loss, so that its units do not matter."""
        if len(records) < self.patience:
            return None
        gained = sum(r.actual for r in records[-self.patience :])
        return self if gained <= self.tolerance * abs(records[-1].loss) else None


@final
@dataclass(frozen=True)
class LossBelow(Rule):
    """When the loss has reached a value."""

    value: float
    converged = True
    meaning = "the loss is low enough"

    def __post_init__(self) -> None:
        _check_number("value", self.value)

    def fired(self, records: Sequence[Record]) -> Rule | None:
        """By the last record."""
        return self if records and records[-1].loss <= self.value else None


def _check_number(name: str, value: Any) -> None:
    if not isinstance(value, Real):
        raise ValueError(f"{name} is {value!r}; expected a number")
