"""Activations from a user's function and a declared interval of its slopes.

A function written in JAX is evaluated and differentiated by JAX, which is imported only then. One
written over array namespaces, with its derivative, works like a built-in activation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from greatcircle.network.activations.builtin import Activation, Derivative, Function

__all__ = ["declare"]


@dataclass(frozen=True)
class _JaxFunction:
    """ρ(z, xp) from a function of one argument that is written in JAX."""

    function: Callable[[Any], Any]

    def __call__(self, z: Any, xp: Any) -> Any:
        return _in_jax(self.function, z) if xp is np else self.function(z)


@dataclass(frozen=True)
class _Differentiated:
    """ρ'(z, a, xp) or ρ''(z, a, xp) from such a function."""

    function: Callable[[Any], Any]
    order: int

    def __call__(self, z: Any, a: Any, xp: Any) -> Any:
        derivative = self.function
        for _ in range(self.order):
            derivative = _differentiated(derivative)
        return _in_jax(derivative, z) if xp is np else derivative(z)


@dataclass(frozen=True)
class _Slope:
    """ρ''(z, a, xp) from ρ and ρ', which are written for array namespaces."""

    function: Function
    derivative: Derivative

    def __call__(self, z: Any, a: Any, xp: Any) -> Any:
        def slope(z: Any) -> Any:
            import jax.numpy as jnp

            return self.derivative(z, self.function(z, jnp), jnp)

        return _in_jax(_differentiated(slope), z) if xp is np else _differentiated(slope)(z)


def _differentiated(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    import jax
    import jax.numpy as jnp

    return lambda z: jax.jvp(function, (z,), (jnp.ones_like(z),))[1]


def _in_jax(function: Callable[[Any], Any], z: Any) -> np.ndarray:
    """Apply a JAX function to a NumPy array, in the precision of the array."""
    import jax.numpy as jnp

    from greatcircle._runtime.precision import precision

    z = np.asarray(z)
    with precision(z.dtype):
        return np.asarray(function(jnp.asarray(z)))


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
            "because the paper's Section 2.3 requires |ρ'| ≤ 1"
        )
    activation = Activation(
        name,
        _JaxFunction(function) if derivative is None else function,
        _Differentiated(function, 1) if derivative is None else derivative,
        _Differentiated(function, 2) if derivative is None else _Slope(function, derivative),
        slopes=(low, high),
        declared=True,
        exportable=derivative is not None,
    )
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
        automatic = _in_jax(_differentiated(activation), grid)
        difference = np.abs(activation.slope(grid) - automatic)
    except Exception as error:  # a user's function may raise anything
        raise ValueError(
            f"activation {activation.name!r} cannot be evaluated in NumPy "
            f"({type(error).__name__}: {error}); expected function(z, xp) and derivative(z, a, xp) "
            "that use only functions of xp"
        ) from error
    if not np.all(difference <= 1e-6):
        x = grid[np.argmax(np.where(np.isnan(difference), np.inf, difference))]
        raise ValueError(
            f"derivative of activation {activation.name!r} disagrees with its function at "
            f"x = {x:.6g}; expected derivative(z, a, xp), where a is the value at z"
        )
