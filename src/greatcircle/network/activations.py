"""The activations that the theory allows: one record each, written once for NumPy and JAX.

Section 2.3 of the paper asks three things of ρ, for all real x and y:

1. |ρ(x)| ≤ |x|, so that a layer never lengthens its input and Eq. (2) holds;
2. |ρ(x) − ρ(y)| ≤ |x − y|, so that gains multiply;
3. |ρ'(x)| ≤ 1 wherever the derivative exists.

Each record carries the interval of its slopes, which certificates use: within [0, 1], or [−1, 1]
for `abs` and `sin`. Functions take an array namespace `xp`, so that NumPy, JAX and the exporters
read the same definition. Kinks take the derivative of the branch z ≥ 0, and NaN passes through.
JAX is imported only when an activation is applied to a JAX array or declared by a user.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

__all__ = ["ACTIVATIONS", "REFUSED", "Activation", "declare", "get"]

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
        ρ'(z, a, xp), where a = ρ(z). None for a function that only JAX can evaluate: JAX then
        differentiates it, and it cannot be exported.
    second_derivative
        ρ''(z, a, xp). None where it is zero between kinks, or where `derivative` is None.
    slopes
        Interval that contains every difference quotient of `function`.
    curved
        False for piecewise linear functions, whose second derivative is zero between kinks.
    declared
        True if `slopes` was declared by a user: a grid of points can refute it, but not prove it.
    max_second_derivative
        Lipschitz constant of the derivative; None where it jumps or is not known.
    bounded
        Whether the values are bounded. Rounding errors of a large argument then show in the value,
        and exporters keep the sums before such an activation in double precision.
    """

    name: str
    function: Function
    derivative: Derivative | None = None
    second_derivative: Derivative | None = None
    slopes: tuple[float, float] = (0.0, 1.0)
    curved: bool = True
    declared: bool = False
    max_second_derivative: float | None = None
    bounded: bool = True

    def __reduce__(self) -> Any:
        """Pickle built-in activations by name: their functions are lambdas."""
        if ACTIVATIONS.get(self.name) is self:
            return get, (self.name,)
        return Activation, tuple(getattr(self, field.name) for field in fields(self))

    def __call__(self, z: Any) -> Any:
        """ρ(z) of a NumPy or JAX array."""
        if not _is_numpy(z):
            import jax.numpy as jnp

            return self.function(z, jnp)
        if self.derivative is None:
            return _evaluate_in_jax(self, z)
        with np.errstate(all="ignore"):
            return np.asarray(self.function(z, np))

    def slope(self, z: Any) -> Any:
        """ρ'(z) of a NumPy or JAX array: closed form in NumPy, automatic in JAX."""
        if not _is_numpy(z):
            return _differentiate(self, z)
        if self.derivative is None:
            return _evaluate_in_jax(self.slope, z)
        with np.errstate(all="ignore"):
            return np.asarray(self.derivative(z, self.function(z, np), np))

    def curvature(self, z: Any) -> Any:
        """ρ''(z), likewise."""
        if not _is_numpy(z):
            return _differentiate(self.slope, z)
        if self.derivative is None:
            return _evaluate_in_jax(self.curvature, z)
        if self.second_derivative is None:
            return np.zeros_like(z)
        with np.errstate(all="ignore"):
            return np.asarray(self.second_derivative(z, self.function(z, np), np))


def _is_numpy(z: Any) -> bool:
    return isinstance(z, np.ndarray | np.generic | float | int)


def _differentiate(function: Callable[[Any], Any], z: Any) -> Any:
    import jax
    import jax.numpy as jnp

    return jax.jvp(function, (z,), (jnp.ones_like(z),))[1]


def _evaluate_in_jax(function: Callable[[Any], Any], z: Any) -> np.ndarray:
    import jax.numpy as jnp

    from greatcircle._runtime.precision import precision

    z = np.asarray(z)
    with precision(z.dtype):
        return np.asarray(function(jnp.asarray(z)))


def _magnitude(z: Any, xp: Any) -> Any:
    """|z| whose derivative at zero is one, unlike that of `xp.abs`."""
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


@dataclass(frozen=True)
class _JaxFunction:
    """A user's function of one argument, written in JAX."""

    function: Callable[[Any], Any]

    def __call__(self, z: Any, xp: Any) -> Any:
        return self.function(z)


def declare(
    function: Callable[..., Any],
    slopes: tuple[float, float],
    name: str | None = None,
    derivative: Derivative | None = None,
) -> Activation:
    """Make an activation from a user's function with a declared interval of slopes.

    A grid of points tries to refute the declaration. It cannot prove it, so every certificate that
    relies on it says "declared".

    Parameters
    ----------
    function
        Scalar function, applied to each entry of an array: `function(z)` written in JAX or, if
        `derivative` is given, `function(z, xp)` written for any array namespace `xp`.
    slopes
        Interval within [−1, 1] that contains every difference quotient of `function`.
    name
        Name in messages and files; by default the function's own name.
    derivative
        `derivative(z, a, xp)`, where a = ρ(z). With it the model can be exported.

    Raises
    ------
    ValueError
        If the grid refutes one of the three conditions, the interval or the derivative.

    Examples
    --------
    >>> half = declare(
    ...     lambda z, xp: 0.5 * xp.tanh(z),
    ...     slopes=(0.0, 0.5),
    ...     name="half_tanh",
    ...     derivative=lambda z, a, xp: 0.5 - 2 * a * a,
    ... )
    >>> half(np.zeros(2))
    array([0., 0.])
    """
    name = name or str(getattr(function, "__name__", "custom"))
    try:
        low, high = map(float, slopes)
    except (TypeError, ValueError):
        raise ValueError(f"slopes is {slopes!r}; expected two numbers (low, high)") from None
    if not -1 <= low <= high <= 1:
        raise ValueError(
            f"slopes is {slopes!r}; expected (low, high) with -1 <= low <= high <= 1, "
            "because the paper's Section 2.3 asks |ρ'| ≤ 1"
        )
    over_namespaces = _JaxFunction(function) if derivative is None else function
    activation = Activation(name, over_namespaces, derivative, slopes=(low, high), declared=True)
    decades = np.logspace(-6, 3, 2000)
    grid = np.unique(np.concatenate([-decades, [0.0], decades, np.linspace(-20, 20, 4001)]))
    _check_values(activation, grid, _compiled_values(activation, grid))
    if derivative is not None:
        _check_derivative(activation, (grid[1:] + grid[:-1]) / 2)
    return activation


def _compiled_values(activation: Activation, grid: np.ndarray) -> np.ndarray:
    import jax

    from greatcircle._runtime.precision import precision

    try:
        with precision(np.float64):
            values = np.asarray(jax.jit(activation)(grid), np.float64)
    except Exception as error:  # a function that is not written in JAX may raise anything
        raise ValueError(
            f"activation {activation.name!r} cannot be compiled ({type(error).__name__}); "
            "expected a scalar function written with jax.numpy"
        ) from error
    if values.shape != grid.shape or not np.all(np.isfinite(values)):
        raise ValueError(
            f"activation {activation.name!r} does not give one finite number for each real number; "
            "expected a scalar function written in JAX"
        )
    return values


def _check_values(activation: Activation, grid: np.ndarray, values: np.ndarray) -> None:
    """Check |ρ(x)| ≤ |x| and the difference quotients between neighbouring points."""
    name, (low, high) = activation.name, activation.slopes
    rounding = 64 * np.finfo(np.float64).eps * (np.abs(grid) + np.abs(values))
    excess = np.abs(values) - np.abs(grid) - rounding
    if np.any(excess > 0):
        x = grid[np.argmax(excess)]
        raise ValueError(
            f"activation {name!r} breaks |ρ(x)| ≤ |x| at x = {x:.6g}; "
            "subtract ρ(0) or choose another function"
        )
    run, rise = np.diff(grid), np.diff(values)
    slack = rounding[1:] + rounding[:-1]
    if np.any(rise > high * run + slack) or np.any(rise < low * run - slack):
        quotients = rise / run
        small = max(abs(quotients.min()), abs(quotients.max())) <= 1
        raise ValueError(
            f"activation {name!r} has difference quotients from {quotients.min():.6g} to "
            f"{quotients.max():.6g} on the grid, outside the declared slopes ({low:g}, {high:g}); "
            + ("declare the interval that contains them" if small else "choose another function")
        )


def _check_derivative(activation: Activation, grid: np.ndarray) -> None:
    """Compare the derivative in NumPy with automatic differentiation."""
    try:
        difference = np.abs(activation.slope(grid) - _evaluate_in_jax(activation.slope, grid))
    except Exception as error:  # a user's function may raise anything
        raise ValueError(
            f"activation {activation.name!r} cannot be evaluated in NumPy "
            f"({type(error).__name__}: {error}); expected function(z, xp) and derivative(z, a, xp) "
            "that use only functions of xp"
        ) from error
    if not np.all(difference <= 1e-6):
        x = grid[np.argmax(np.where(np.isnan(difference), np.inf, difference))]
        raise ValueError(
            f"derivative of activation {activation.name!r} differs from its function at "
            f"x = {x:.6g}; expected derivative(z, a, xp), where a is the value at z"
        )
