"""The activations that the theory allows, and why each qualifies.

Section 2.3 of the paper asks three things of ρ, for all real x and y:

1. |ρ(x)| ≤ |x|, so that a layer never lengthens its input and Eq. (2) holds;
2. |ρ(x) − ρ(y)| ≤ |x − y|, so that gains multiply;
3. |ρ'(x)| ≤ 1 wherever the derivative exists.

Each activation carries the interval of its slopes: within [0, 1], or [−1, 1] for `abs` and `sin`,
because certificates use it. Kinks take the derivative of the branch z ≥ 0, and NaN passes
through every one of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greatcircle._runtime.precision import precision


@dataclass(frozen=True)
class Activation:
    """A scalar function with its interval of slopes.

    Parameters
    ----------
    name
        What it is called in messages and files.
    function
        Applied to each entry; written in JAX.
    slopes
        The interval that contains every difference quotient of `function`.
    curved
        False for piecewise linear functions, whose second derivative is zero between kinks.
    declared
        True where `slopes` is a user's word, which a grid can refute but not prove.
    most_bent
        The Lipschitz constant of the derivative; None where it has jumps or is not known.
    """

    name: str
    function: Callable[[Array], Array]
    slopes: tuple[float, float] = (0.0, 1.0)
    curved: bool = True
    declared: bool = False
    most_bent: float | None = None

    def __reduce__(self) -> Any:
        """Pickle the built-in ones by name: their functions need not be importable."""
        if ACTIVATIONS.get(self.name) is self:
            return get, (self.name,)
        fields = (self.name, self.function, self.slopes, self.curved, self.declared)
        return Activation, (*fields, self.most_bent)

    def __call__(self, z: Array) -> Array:
        """ρ(z)."""
        return self.function(z)

    def slope(self, z: Array) -> Array:
        """ρ'(z)."""
        return jax.jvp(self.function, (z,), (jnp.ones_like(z),))[1]

    def bend(self, z: Array) -> Array:
        """ρ''(z)."""
        return jax.jvp(self.slope, (z,), (jnp.ones_like(z),))[1]


def _leaky_relu(z: Array) -> Array:
    return jnp.where(z < 0, 0.01 * z, z)


def _elu(z: Array) -> Array:
    # The inner `where` keeps exp from overflowing on the branch that is not taken.
    return jnp.where(z < 0, jnp.expm1(jnp.where(z < 0, z, 0)), z)


def _softsign(z: Array) -> Array:
    return z / (1 + jnp.where(z < 0, -z, z))


ACTIVATIONS: dict[str, Activation] = {
    a.name: a
    for a in (
        # slopes 0 and 1
        Activation("relu", lambda z: jnp.where(z < 0, 0, z), curved=False),
        # slopes 0.01 and 1
        Activation("leaky_relu", _leaky_relu, (0.01, 1.0), curved=False),
        # slopes −1 and 1
        Activation("abs", lambda z: jnp.where(z < 0, -z, z), (-1.0, 1.0), curved=False),
        # ρ' = 1 − tanh² in (0, 1]; |ρ''| is largest where tanh² = 1/3
        Activation("tanh", jnp.tanh, most_bent=4 / math.sqrt(27)),
        # ρ' = 1 / (1 + |z|)² in (0, 1]; |ρ''| = 2 / (1 + |z|)³
        Activation("softsign", _softsign, most_bent=2.0),
        # ρ' = cos z in [−1, 1]
        Activation("sin", jnp.sin, (-1.0, 1.0), most_bent=1.0),
        # ρ' = 1 / (1 + z²) in (0, 1]; |ρ''| is largest where z² = 1/3
        Activation("arctan", jnp.arctan, most_bent=math.sqrt(27) / 8),
        # ρ' = eᶻ in (0, 1) for z < 0, else 1
        Activation("elu", _elu, most_bent=1.0),
        Activation("identity", lambda z: z, (1.0, 1.0), curved=False, most_bent=0.0),
    )
}

REFUSED: dict[str, str] = {
    "sigmoid": "it breaks |ρ(x)| ≤ |x|: ρ(0) = 0.5",
    "softplus": "it breaks |ρ(x)| ≤ |x|: ρ(0) = log 2",
    "gelu": "it breaks |ρ(x) − ρ(y)| ≤ |x − y|: its slope reaches 1.129 near x = 1.41",
    "swish": "it breaks |ρ(x) − ρ(y)| ≤ |x − y|: its slope reaches 1.0998 near x = 2.40",
}


def get(choice: str | Activation | Callable[[Array], Array]) -> Activation:
    """Look up an activation by name, or pass one through."""
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


def declare(
    function: Callable[[Array], Array],
    slopes: tuple[float, float],
    name: str | None = None,
) -> Activation:
    """Make an activation of a user's function with a declared interval of slopes.

    A grid of points tries to refute the declaration; it cannot prove it, so whatever is certified
    on top of it says "declared".

    Parameters
    ----------
    function
        Scalar function, written in JAX, applied to each entry of an array.
    slopes
        Interval within [−1, 1] that contains every difference quotient of `function`.
    name
        What to call it; by default the function's own name.

    Raises
    ------
    ValueError
        When the grid refutes one of the three conditions or the declared interval.
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
    decades = np.logspace(-6, 3, 2000)
    grid = np.sort(np.concatenate([-decades, [0.0], decades, np.linspace(-20, 20, 4001)]))
    try:
        with precision(np.float64):
            values = np.asarray(jax.jit(function)(grid), np.float64)
    except Exception as error:  # whatever a function that is not JAX's may raise
        raise ValueError(
            f"activation {name!r} cannot be compiled ({type(error).__name__}); "
            "expected a scalar function written with jax.numpy"
        ) from error
    if values.shape != grid.shape or not np.all(np.isfinite(values)):
        raise ValueError(
            f"activation {name!r} does not give one finite number for each real number; "
            "expected a scalar function written in JAX"
        )
    rounding = 64 * np.finfo(np.float64).eps * (np.abs(grid) + np.abs(values))
    excess = np.abs(values) - np.abs(grid) - rounding
    if np.any(excess > 0):
        x = grid[np.argmax(excess)]
        raise ValueError(
            f"activation {name!r} breaks |ρ(x)| ≤ |x| at x = {x:.6g}; "
            "subtract ρ(0) or choose another function"
        )
    run, rise = np.diff(grid), np.diff(values)
    keep = run > 0
    run, rise = run[keep], rise[keep]
    slack = (rounding[1:] + rounding[:-1])[keep]
    if np.any(rise > high * run + slack) or np.any(rise < low * run - slack):
        quotients = rise / run
        small = max(abs(quotients.min()), abs(quotients.max())) <= 1
        raise ValueError(
            f"activation {name!r} has difference quotients from {quotients.min():.6g} to "
            f"{quotients.max():.6g} on the grid, outside the declared slopes ({low:g}, {high:g}); "
            + ("declare the interval that contains them" if small else "choose another function")
        )
    return Activation(name, function, (low, high), declared=True)
