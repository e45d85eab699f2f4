"""Formulas: a function as a list of steps, evaluated or printed as source code.

    z / (1 + where(z < 0, −z, z))   →   0, lt(z, 0), neg(z), where(…), 1, add(…), truediv(z, …)

A target needs one spelling of each operation. A step that is used twice is listed once.
"""

import operator
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["ARITHMETIC", "CONDITIONS", "FUNCTIONS", "NUMPY", "Formula", "Language", "Step"]

CONDITIONS = ("lt", "le", "gt", "ge")
"""Comparisons, whose results are conditions of `where`."""

ARITHMETIC: dict[str, Callable[..., Any]] = {
    name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "neg", *CONDITIONS)
}
"""Operations with Python's operators, which most array types overload."""

FUNCTIONS = {
    "tanh": 1,
    "sin": 1,
    "cos": 1,
    "arctan": 1,
    "exp": 1,
    "expm1": 1,
    "ones_like": 1,
    "where": 3,
}
"""Functions of a namespace, and the number of their arguments."""

NUMPY = ARITHMETIC | {name: getattr(np, name) for name in FUNCTIONS}
"""How NumPy evaluates each operation."""


@dataclass(frozen=True)
class Step:
    """An operation on the results of earlier steps; a variable, "z" or "a"; or a constant."""

    operation: str
    arguments: tuple[int, ...] = ()
    value: float = 0.0
    """Of a constant."""


@dataclass(frozen=True)
class Formula:
    """A function ρ(z) or its derivative ρ'(z, a), a = ρ(z), as steps; the last is the result."""

    steps: tuple[Step, ...]

    @property
    def constants(self) -> tuple[float, ...]:
        """Values of all constants."""
        return tuple(step.value for step in self.steps if step.operation == "constant")

    def uses(self, *operations: str) -> bool:
        """Return whether one of the operations or variables occurs."""
        return any(step.operation in operations for step in self.steps)

    def evaluate(
        self,
        operations: Mapping[str, Callable[..., Any]],
        variables: Mapping[str, Any],
        constant: Callable[[float], Any] = float,
    ) -> Any:
        """Evaluate the steps with the operations of a target.

        Parameters
        ----------
        operations
            Function for each operation.
        variables
            Values of "z" and "a".
        constant
            Makes a constant of the target from a number.
        """
        values: list[Any] = []
        for step in self.steps:
            if step.operation == "constant":
                values.append(constant(step.value))
            elif step.operation in variables:
                values.append(variables[step.operation])
            else:
                values.append(operations[step.operation](*(values[i] for i in step.arguments)))
        return values[-1]

    def printed(self, language: "Language") -> tuple[list[str], str]:
        """Return lines that name the steps used twice, and the expression, as source code."""
        uses = Counter(i for step in self.steps for i in step.arguments)
        lines: list[str] = []
        texts: list[tuple[str, int]] = []
        for i, step in enumerate(self.steps):
            text, level = language.spelled(step, [texts[k] for k in step.arguments])
            if uses[i] > 1 and step.arguments and step.operation not in CONDITIONS:
                name = f"t{len(lines) + 1}"
                lines.append(language.assignment.format(name, text))
                text, level = name, _ATOM
            texts.append((text, level))
        return lines, texts[-1][0]


_TERNARY, _COMPARISON, _SUM, _PRODUCT, _SIGN, _ATOM = range(6)

_OPERATORS = {
    "lt": ("<", _COMPARISON),
    "le": ("<=", _COMPARISON),
    "gt": (">", _COMPARISON),
    "ge": (">=", _COMPARISON),
    "add": ("+", _SUM),
    "sub": ("-", _SUM),
    "mul": ("*", _PRODUCT),
    "truediv": ("/", _PRODUCT),
}
"""Sign and precedence, which C and Python share."""


@dataclass(frozen=True)
class Language:
    """How a programming language spells a formula.

    Parameters
    ----------
    functions
        Format of a call for each function: "tanhf({})".
    constant
        Text of a number.
    assignment
        Format of a line that gives a name to an expression: "const float {} = {};".
    """

    functions: Mapping[str, str]
    constant: Callable[[float], str]
    assignment: str = "{} = {}"

    def spelled(self, step: Step, arguments: list[tuple[str, int]]) -> tuple[str, int]:
        """Return the text of a step, from texts of its arguments, with its precedence."""
        if step.operation == "constant":
            text = self.constant(step.value)
            return text, _SIGN if text.startswith("-") else _ATOM
        if step.operation in _OPERATORS:
            (left, right), (sign, level) = arguments, _OPERATORS[step.operation]
            return f"{_enclosed(left, level)} {sign} {_enclosed(right, level + 1)}", level
        if step.operation == "neg":
            return f"-{_enclosed(arguments[0], _ATOM)}", _SIGN
        if not step.arguments:
            return step.operation, _ATOM
        form = self.functions[step.operation]
        if "?" not in form:
            return form.format(*(text for text, _ in arguments)), _ATOM
        return form.format(*(_enclosed(a, _COMPARISON) for a in arguments)), _TERNARY


def _enclosed(text: tuple[str, int], level: int) -> str:
    return text[0] if text[1] >= level else f"({text[0]})"
