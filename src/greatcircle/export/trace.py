"""Trace activations: call them with symbols to get formulas.

The record of an activation defines it over an array namespace. Called with a symbolic z and a
symbolic namespace, `function` and `derivative` record their operations.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from greatcircle.export.formula import CONDITIONS, FUNCTIONS, Formula, Step
from greatcircle.network.activations.builtin import Activation

__all__ = ["derivative_of", "function_of"]

NUMBERS = (int, float, np.integer, np.floating)

SUPPORTED = (
    f"xp.{', xp.'.join(FUNCTIONS)}, xp.nan, the operators + - * / and the comparisons < <= > >=, "
    "and ** with a whole number from 1 to 9"
)


def function_of(activation: Activation) -> Formula:
    """Return the formula of ρ(z)."""
    trace = _Trace()
    return _formula(activation, trace, activation.function, trace.variable("z"))


def derivative_of(activation: Activation) -> Formula:
    """Return the formula of ρ'(z), in which a = ρ(z)."""
    trace = _Trace()
    z, a = trace.variable("z"), trace.variable("a")
    return _formula(activation, trace, activation.derivative, z, a)


def _formula(
    activation: Activation, trace: "_Trace", function: Callable[..., Any], *variables: "_Symbol"
) -> Formula:
    try:
        result = trace.symbol(function(*variables, _Namespace(trace)))
        if result.is_condition:
            raise TypeError("its result is a comparison")
    except Exception as error:  # a user's function may raise anything
        raise ValueError(
            f"activation {activation.name!r} cannot be exported ({error}); expected a formula "
            f"that uses only {SUPPORTED}"
        ) from error
    if not any(trace.steps[i].operation in ("z", "a") for i in trace.needed(result.index)):
        result = result * _Namespace(trace).ones_like(variables[0])  # of the shape of z
    return Formula(trace.pruned(result.index))


@dataclass(frozen=True)
class _Trace:
    """The steps of a function that is being called with symbols."""

    steps: list[Step] = field(default_factory=list)
    known: dict[Step, int] = field(default_factory=dict)

    def variable(self, name: str) -> "_Symbol":
        return self.symbol_of(Step(name))

    def symbol_of(self, step: Step) -> "_Symbol":
        """Return the symbol of a step, and add the step if it is new."""
        if step not in self.known:
            self.known[step] = len(self.steps)
            self.steps.append(step)
        return _Symbol(self, self.known[step])

    def symbol(self, value: Any) -> "_Symbol":
        """Return a symbol, or that of a constant."""
        if isinstance(value, _Symbol):
            return value
        if isinstance(value, NUMBERS) or (isinstance(value, np.ndarray) and value.ndim == 0):
            number = float(value)
            if not math.isinf(number):
                return self.symbol_of(Step("constant", (), number))
        raise TypeError(f"{value!r} is not a finite number")

    def apply(self, operation: str, *arguments: Any) -> "_Symbol":
        """Return the symbol of an operation on symbols and numbers."""
        symbols = [self.symbol(argument) for argument in arguments]
        for i, symbol in enumerate(symbols):
            if symbol.is_condition != (operation == "where" and i == 0):
                raise TypeError(
                    f"{operation!r} of a comparison: use xp.where(comparison, this, that)"
                )
        if operation == "where" and all(self.is_constant(s) for s in symbols[1:]):
            symbols[2] = symbols[2] * _Namespace(self).ones_like(self.symbol_of(Step("z")))
        return self.symbol_of(Step(operation, tuple(symbol.index for symbol in symbols)))

    def is_constant(self, symbol: "_Symbol") -> bool:
        """Return whether a symbol is a number, which has no shape and no type of a target."""
        return self.steps[symbol.index].operation == "constant"

    def needed(self, last: int) -> list[int]:
        """Return in order the steps that a step depends on, and itself."""
        needed = {last}
        for i in range(last, -1, -1):
            if i in needed:
                needed.update(self.steps[i].arguments)
        return sorted(needed)

    def pruned(self, last: int) -> tuple[Step, ...]:
        """Return these steps, numbered from zero."""
        needed = self.needed(last)
        number = {old: new for new, old in enumerate(needed)}
        steps = (self.steps[i] for i in needed)
        return tuple(
            Step(s.operation, tuple(number[i] for i in s.arguments), s.value) for s in steps
        )


class _Namespace:
    """Array namespace `xp` whose functions record operations on symbols."""

    nan = math.nan

    def __init__(self, trace: _Trace) -> None:
        self._trace = trace

    def __getattr__(self, name: str) -> Callable[..., "_Symbol"]:
        if name not in FUNCTIONS:
            raise TypeError(f"it uses xp.{name}")

        def function(*arguments: Any) -> _Symbol:
            if len(arguments) != FUNCTIONS[name]:
                raise TypeError(f"xp.{name} is called with {len(arguments)} arguments by position")
            return self._trace.apply(name, *arguments)

        return function


def _binary(operation: str) -> Callable[[Any, Any], "_Symbol"]:
    return lambda self, other: self.trace.apply(operation, self, other)


def _reflected(operation: str) -> Callable[[Any, Any], "_Symbol"]:
    return lambda self, other: self.trace.apply(operation, other, self)


class _Symbol:
    """The result of a step: calculating with it adds steps to the trace."""

    __array_ufunc__ = None  # so that np.float64(2) * symbol is a symbol
    __hash__ = None  # type: ignore[assignment]

    __add__, __radd__ = _binary("add"), _reflected("add")
    __sub__, __rsub__ = _binary("sub"), _reflected("sub")
    __mul__, __rmul__ = _binary("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _binary("truediv"), _reflected("truediv")
    __lt__, __le__, __gt__, __ge__ = map(_binary, CONDITIONS)

    def __init__(self, trace: _Trace, index: int) -> None:
        self.trace, self.index = trace, index

    @property
    def is_condition(self) -> bool:
        return self.trace.steps[self.index].operation in CONDITIONS

    def __neg__(self) -> "_Symbol":
        return self.trace.apply("neg", self)

    def __pos__(self) -> "_Symbol":
        return self

    def __pow__(self, exponent: Any) -> "_Symbol":
        if not isinstance(exponent, NUMBERS) or exponent not in range(1, 10):
            raise TypeError(f"it uses ** with the exponent {exponent!r}")
        power = self
        for _ in range(int(exponent) - 1):
            power = power * self
        return power

    def __eq__(self, other: object) -> Any:
        raise TypeError("it uses ==")

    def __ne__(self, other: object) -> Any:
        raise TypeError("it uses !=")

    def __bool__(self) -> bool:
        raise TypeError("it uses `if`, `and`, `or` or `not`; use xp.where")
