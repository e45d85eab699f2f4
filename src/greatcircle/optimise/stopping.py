"""Stopping rules, joined with `|`: `MaxIter(200) | SlopeBelow(1e-8)`.

A rule is a fold over the records of the iterations: `init` returns its state, `update` adds a
record, and `fired` returns whether to stop. All three are JAX functions, because several iterations
run in one compiled program. Numbers such as a tolerance are arguments of the program, so that a
change of them compiles nothing.
Each rule says whether it means convergence: reaching a limit of iterations does not.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool

from greatcircle.optimise.record import Record

__all__ = [
    "DecreaseBelow",
    "FirstOf",
    "LossBelow",
    "MaxIter",
    "Rule",
    "SlopeBelow",
    "fired_rule",
    "limits",
    "replay",
    "restart",
]


def __dir__() -> list[str]:
    return sorted(__all__)


LARGEST_COUNT = 2**31 - 1


def _clipped(count: Any) -> Any:
    """Return a count that int32 can hold; leave other types for `MaxIter` to reject."""
    return min(int(count), LARGEST_COUNT) if isinstance(count, int | np.integer) else count


class Rule(eqx.Module):
    """A stopping rule."""

    converged: ClassVar[bool] = False
    """Whether the run has converged when this rule fires."""

    @abstractmethod
    def init(self) -> Any:
        """Return the state before the first record."""

    @abstractmethod
    def update(self, state: Any, record: Any) -> Any:
        """Return the state after a record; its fields are those of `record.Record`."""

    @abstractmethod
    def fired(self, state: Any) -> Bool[Array, ""]:
        """Return whether to stop."""

    @property
    @abstractmethod
    def reason(self) -> str:
        """Why the rule stops, in words."""

    def __or__(self, other: "Rule") -> "FirstOf":
        if not isinstance(other, Rule):
            return NotImplemented
        return FirstOf((*_leaves(self), *_leaves(other)))


class FirstOf(Rule):
    """Stop when the first of several rules does."""

    rules: tuple[Rule, ...]

    def init(self) -> tuple[Any, ...]:
        """Return the states of all rules."""
        return tuple(rule.init() for rule in self.rules)

    def update(self, state: tuple[Any, ...], record: Any) -> tuple[Any, ...]:
        """Update all rules."""
        return tuple(r.update(s, record) for r, s in zip(self.rules, state, strict=True))

    def fired(self, state: tuple[Any, ...]) -> Bool[Array, ""]:
        """Return whether any rule fired."""
        fired = [r.fired(s) for r, s in zip(self.rules, state, strict=True)]
        return jnp.any(jnp.stack(fired)) if fired else jnp.asarray(False)

    @property
    def reason(self) -> str:
        """Return the reasons of all rules."""
        return ", or ".join(rule.reason for rule in self.rules)


class MaxIter(Rule):
    """Stop after a number of iterations. Not convergence."""

    iterations: int = eqx.field(converter=_clipped)

    def __check_init__(self) -> None:
        if not isinstance(self.iterations, int | np.integer) or self.iterations < 0:
            raise ValueError(
                f"max_iter is {self.iterations!r}; expected a non-negative whole number"
            )

    def init(self) -> Array:
        """Return a count of zero."""
        return jnp.zeros((), jnp.int32)

    def update(self, state: Array, record: Any) -> Array:
        """Count the record."""
        return state + 1

    def fired(self, state: Array) -> Bool[Array, ""]:
        """Return whether that many records were counted."""
        return state >= self.iterations

    @property
    def reason(self) -> str:
        """Return the limit."""
        return f"reached the limit of {_in_words(self.iterations)}"


class SlopeBelow(Rule):
    """Stop when the slope per radian is below `tolerance` times the loss."""

    tolerance: float
    converged: ClassVar[bool] = True

    def __check_init__(self) -> None:
        _check_number("tolerance", self.tolerance)

    def init(self) -> Array:
        """Return False: the rule has not fired."""
        return jnp.asarray(False)

    def update(self, state: Array, record: Any) -> Array:
        """Compare slope and loss; relative, so that units do not matter."""
        return jnp.asarray(-record.slope <= self.tolerance * jnp.abs(record.loss))

    def fired(self, state: Array) -> Bool[Array, ""]:
        """Return the last comparison."""
        return state

    @property
    def reason(self) -> str:
        """Return the tolerance."""
        return f"the slope fell below {self.tolerance:g} of the loss per radian"


class DecreaseBelow(Rule):
    """Stop when `patience` iterations together lower the loss by less than `tolerance` times it."""

    tolerance: float
    patience: int = eqx.field(static=True, default=10)
    converged: ClassVar[bool] = True

    def __check_init__(self) -> None:
        _check_number("tolerance", self.tolerance)
        if not isinstance(self.patience, int | np.integer) or self.patience < 1:
            raise ValueError(
                f"patience is {self.patience!r}; expected a whole number of at least 1"
            )

    def init(self) -> tuple[Array, Array, Array]:
        """Return no decreases, a count of zero, and no loss."""
        return jnp.zeros(self.patience), jnp.zeros((), jnp.int32), jnp.zeros(())

    def update(self, state: tuple[Array, Array, Array], record: Any) -> tuple[Array, Array, Array]:
        """Append the decrease to the last ones."""
        decreases, count, loss = state
        newest = jnp.asarray(record.actual, decreases.dtype)
        decreases = jnp.append(decreases[1:], newest)
        count = jnp.minimum(count + 1, self.patience)
        return decreases, count, jnp.asarray(record.loss, loss.dtype)

    def fired(self, state: tuple[Array, Array, Array]) -> Bool[Array, ""]:
        """Compare the sum of the last decreases and the loss."""
        decreases, count, loss = state
        small = jnp.sum(decreases) <= self.tolerance * jnp.abs(loss)
        return (count >= self.patience) & small

    @property
    def reason(self) -> str:
        """Return tolerance and patience."""
        percent = f"{100 * self.tolerance:.3g} %"
        return f"the loss fell by less than {percent} in {_in_words(self.patience)}"


class LossBelow(Rule):
    """Stop when the loss has reached a value."""

    value: float
    converged: ClassVar[bool] = True

    def __check_init__(self) -> None:
        _check_number("value", self.value)

    def init(self) -> Array:
        """Return False: the rule has not fired."""
        return jnp.asarray(False)

    def update(self, state: Array, record: Any) -> Array:
        """Compare the last loss."""
        return jnp.asarray(record.loss <= self.value)

    def fired(self, state: Array) -> Bool[Array, ""]:
        """Return the last comparison."""
        return state

    @property
    def reason(self) -> str:
        """Return the value."""
        return f"the loss reached {self.value:g}"


def fired_rule(rule: Rule, state: Any) -> Rule | None:
    """Return the first rule that fired, or None."""
    if not isinstance(rule, FirstOf):
        return rule if rule.fired(state) else None
    fired = (fired_rule(r, s) for r, s in zip(rule.rules, state, strict=True))
    return next((r for r in fired if r is not None), None)


def restart(rule: Rule, state: Any) -> Any:
    """Return the state with all rules that mean convergence restarted."""
    if isinstance(rule, FirstOf):
        return tuple(restart(r, s) for r, s in zip(rule.rules, state, strict=True))
    return rule.init() if rule.converged else state


def replay(rule: Rule, records: Sequence[Record], restarted: int) -> Any:
    """Return the state after the records of a run, which restarted the rule after some of them."""
    state = restart(rule, _after(rule, rule.init(), records[:restarted]))
    return _after(rule, state, records[restarted:])


def limits(rule: Rule) -> Rule:
    """Return the rules that do not mean convergence."""
    return FirstOf(tuple(r for r in _leaves(rule) if not r.converged))


def _after(rule: Rule, state: Any, records: Sequence[Record]) -> Any:
    """Return the state after more records."""
    if not records:
        return state

    def add(state: Any, record: Record) -> tuple[Any, None]:
        updated = rule.update(state, record)
        return jax.tree.map(lambda old, new: new.astype(old.dtype), state, updated), None

    columns = Record._make(jnp.asarray(column) for column in zip(*records, strict=True))
    return jax.lax.scan(add, state, columns)[0]


def _leaves(rule: Rule) -> Iterator[Rule]:
    if isinstance(rule, FirstOf):
        for each in rule.rules:
            yield from _leaves(each)
    else:
        yield rule


def _in_words(iterations: int) -> str:
    return "one iteration" if iterations == 1 else f"{iterations} iterations"


def _check_number(name: str, value: Any) -> None:
    if not isinstance(value, Real) and not isinstance(value, jax.Array):
        raise ValueError(f"{name} is {value!r}; expected a number")
