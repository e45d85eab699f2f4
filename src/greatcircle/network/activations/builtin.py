"""The activations that the theory allows: one record each, written once for NumPy and JAX.

Section 2.3 of the paper asks three things of ρ, for all real x and y:

1. |ρ(x)| ≤ |x|, so that a layer never lengthens its input and Eq. (2) holds;
2. |ρ(x) − ρ(y)| ≤ |x − y|, so that gains multiply;
3. |ρ'(x)| ≤ 1 wherever the derivative exists.

Each record carries the interval of its slopes, which certificates use: within [0, 1], or [−1, 1]
for `abs` and `sin`. Functions take an array namespace `xp`, so that NumPy, JAX and the exporters
read the same definition. Kinks take the derivative of the branch z ≥ 0, and NaN passes through.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

__all__ = ["ACTIVATIONS", "REFUSED", "Activation", "Derivative", "Function", "get"]

Function = Callable[[Any, Any], Any]
"""ρ(z, xp), for each entry of an array of the namespace `xp`."""

Derivative = Callable[[Any, Any, Any], Any]
"""ρ'(z, a, xp) or ρ''(z, a, xp), where a = ρ(z) is already known."""


@dataclass(frozen=True)
class Activation:
    """A scalar function with its derivatives and its interval of slopes.

    Parameters
    ----------
    name
        Name in messages and files.
    function
        ρ(z, xp): z is an array, xp its namespace (`numpy`, `jax.numpy`, or an exporter's).
    derivative
        ρ'(z, a, xp), where a = ρ(z).
    second_derivative
        ρ''(z, a, xp). None where it is zero between kinks.
    slopes
        Interval that contains every difference quotient of `function`.
    curved
        False for piecewise linear functions, whose second derivative is zero between kinks.
    declared
        True if `slopes` was declared by a user: a grid of points can refute it, but not prove it.
    exportable
        False for a declared function that only JAX can evaluate.
    max_second_derivative
        Lipschitz constant of the derivative; None where it jumps or is not known.
    bounded
        Whether the values are bounded. Rounding errors of a large argument then show in the value,
        and exporters keep the sums before such an activation in double precision.
    """

    name: str
    function: Function
    derivative: Derivative
    second_derivative: Derivative | None = None
    slopes: tuple[float, float] = (0.0, 1.0)
    curved: bool = True
    declared: bool = False
    exportable: bool = True
    max_second_derivative: float | None = None
    bounded: bool = True

    def __repr__(self) -> str:
        return f"Activation({self.name!r}, slopes={self.slopes})"

    def __reduce__(self) -> Any:
        """Pickle built-in activations by name: their functions are lambdas."""
        if ACTIVATIONS.get(self.name) is self:
            return get, (self.name,)
        return Activation, tuple(getattr(self, field.name) for field in fields(self))

    def __call__(self, z: Any) -> Any:
        """Return ρ(z) of a NumPy or JAX array."""
        return self._evaluate(lambda z, xp: self.function(z, xp), z)

    def slope(self, z: Any) -> Any:
        """Return ρ'(z) of a NumPy or JAX array."""
        return self._evaluate(lambda z, xp: self.derivative(z, self.function(z, xp), xp), z)

    def curvature(self, z: Any) -> Any:
        """Return ρ''(z) of a NumPy or JAX array."""
        second = self.second_derivative
        if second is None:
            return 0 * z
        return self._evaluate(lambda z, xp: second(z, self.function(z, xp), xp), z)

    def _evaluate(self, formula: Function, z: Any) -> Any:
        if not isinstance(z, np.ndarray | np.generic | float | int):
            return formula(z, z.__array_namespace__())
        with np.errstate(all="ignore"):
            return np.asarray(formula(np.asarray(z), np))


def _magnitude(z: Any, xp: Any) -> Any:
    """Return |z|, with derivative one at zero, unlike `xp.abs`."""
    return xp.where(z < 0, -z, z)


ACTIVATIONS: dict[str, Activation] = {
    activation.name: activation
    for activation in (
        Activation(
            "relu",
            function=lambda z, xp: xp.where(z < 0, 0, z),
            derivative=lambda z, a, xp: xp.where(z < 0, 0, xp.ones_like(z)),
            curved=False,
            bounded=False,
        ),
        Activation(
            "leaky_relu",
            function=lambda z, xp: xp.where(z < 0, 0.01 * z, z),
            derivative=lambda z, a, xp: xp.where(z < 0, 0.01, xp.ones_like(z)),
            slopes=(0.01, 1.0),
            curved=False,
            bounded=False,
        ),
        Activation(
            "abs",
            function=_magnitude,
            derivative=lambda z, a, xp: xp.where(z < 0, -1, xp.ones_like(z)),
            slopes=(-1.0, 1.0),
            curved=False,
            bounded=False,
        ),
        Activation(
            "tanh",
            function=lambda z, xp: xp.tanh(z),
            derivative=lambda z, a, xp: 1 - a * a,
            second_derivative=lambda z, a, xp: -2 * a * (1 - a * a),
            max_second_derivative=4 / math.sqrt(27),  # where tanh² = 1/3
        ),
        Activation(
            "softsign",
            function=lambda z, xp: z / (1 + _magnitude(z, xp)),
            derivative=lambda z, a, xp: 1 / (1 + _magnitude(z, xp)) ** 2,
            second_derivative=lambda z, a, xp: (
                xp.where(z < 0, 2, -2 * xp.ones_like(z)) / (1 + _magnitude(z, xp)) ** 3
            ),
            max_second_derivative=2.0,  # at zero
        ),
        Activation(
            "sin",
            function=lambda z, xp: xp.sin(z),
            derivative=lambda z, a, xp: xp.cos(z),
            second_derivative=lambda z, a, xp: -a,
            slopes=(-1.0, 1.0),
            max_second_derivative=1.0,
        ),
        Activation(
            "arctan",
            function=lambda z, xp: xp.arctan(z),
            derivative=lambda z, a, xp: 1 / (1 + z * z),
            second_derivative=lambda z, a, xp: -2 * z / (1 + z * z) ** 2,
            max_second_derivative=math.sqrt(27) / 8,  # where z² = 1/3
        ),
        Activation(
            "elu",
            # The inner `where` keeps exp from overflowing on the branch that is not taken.
            function=lambda z, xp: xp.where(z < 0, xp.expm1(xp.where(z < 0, z, 0)), z),
            derivative=lambda z, a, xp: xp.where(z < 0, a + 1, xp.ones_like(z)),
            second_derivative=lambda z, a, xp: xp.where(z < 0, a + 1, 0),
            max_second_derivative=1.0,
            bounded=False,
        ),
        Activation(
            "identity",
            function=lambda z, xp: z,
            derivative=lambda z, a, xp: xp.ones_like(z),
            slopes=(1.0, 1.0),
            curved=False,
            max_second_derivative=0.0,
            bounded=False,
        ),
    )
}

REFUSED: dict[str, str] = {
    "sigmoid": "it breaks |ρ(x)| ≤ |x|: ρ(0) = 0.5",
    "softplus": "it breaks |ρ(x)| ≤ |x|: ρ(0) = log 2",
    "gelu": "it breaks |ρ(x) − ρ(y)| ≤ |x − y|: its slope reaches 1.129 near x = 1.41",
    "swish": "it breaks |ρ(x) − ρ(y)| ≤ |x − y|: its slope reaches 1.0998 near x = 2.40",
}
"""Well-known activations that break one of the three conditions, and which one."""


def get(choice: str | Activation | Callable[[Any], Any]) -> Activation:
    """Look up an activation by name, or return the given one."""
    if isinstance(choice, Activation):
        return choice
    if callable(choice):
        raise ValueError(
            "activation is a function without an interval of slopes; expected a name or "
            "declare(function, slopes=(low, high)) from greatcircle.activations"
        )
    if isinstance(choice, str) and choice in ACTIVATIONS:
        return ACTIVATIONS[choice]
    names = ", ".join(ACTIVATIONS)
    if isinstance(choice, str) and choice in REFUSED:
        raise ValueError(
            f"activation {choice!r} is refused because {REFUSED[choice]}; expected one of {names}"
        )
    raise ValueError(
        f"activation is {choice!r}; expected one of {names}, or declare(function, slopes)"
    )
