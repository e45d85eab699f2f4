"""Damped Gauss-Newton by conjugate gradients on the tangent space."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Tree
from greatcircle.objective.objective import Objective, second_order
from greatcircle.optimise.directions.damping import (
    QuadraticModel,
    adapted_damping,
    initial_model,
)
from greatcircle.optimise.directions.direction import (
    Choice,
    Position,
    max_speed,
    ratio,
    unit_max_speed,
)

__all__ = ["GaussNewton"]

DAMPING = 1e-2
"""λ at the start, in units of the loss of the zero function."""


@dataclass(frozen=True)
class GaussNewton:
    """Damped Gauss-Newton: (JᵀHJ + λ) v = −∇ on the tangent space, by conjugate gradients.

    Matrix-free: a product with JᵀHJ is a forward and a backward pass. The solve ends when its
    residual is below `residual` times the gradient. λ falls if the quadratic model predicted the
    last decrease well, and rises if it did not.

    Parameters
    ----------
    residual
        Residual at which the solve ends, relative to the gradient.
    max_products
        Largest number of products in one solve.
    fraction
        Fraction of the rows that the products use, different ones at each iteration. The gradient
        always uses all.
    """

    residual: float = 0.1
    max_products: int = 30
    fraction: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.residual, Real) or not 0 < float(self.residual) < 1:
            raise ValueError(f"residual is {self.residual!r}; expected a number in (0, 1)")
        if not isinstance(self.max_products, int) or self.max_products < 1:
            raise ValueError(
                f"max_products is {self.max_products!r}; expected a whole number of at least 1"
            )
        if not isinstance(self.fraction, Real) or not 0 < float(self.fraction) <= 1:
            raise ValueError(f"fraction is {self.fraction!r}; expected a number in (0, 1]")

    def check(self, objective: Objective) -> None:
        """Raise TypeError if the objective has no outputs with a loss of them."""
        user = getattr(objective, "user", objective)
        for method in ("outputs", "loss_of"):
            if not callable(getattr(user, method, None)):
                raise TypeError(
                    f"direction GaussNewton needs an objective with outputs(weights) and "
                    f"loss_of(outputs); {type(user).__name__} has no {method}: add it, or use "
                    "directions.ConjugateGradient()"
                )

    def init(self, weights: Tree) -> QuadraticModel:
        """Return the damping for a loss of order one."""
        return initial_model(weights, DAMPING)

    def choose(self, position: Position, state: QuadraticModel) -> Choice:
        """Adapt the damping to the last step, then solve for the direction."""
        damping = adapted_damping(position, state, 0.4, 3.0)
        product, fraction = second_order(position.objective, "GaussNewton").gauss_newton(
            sphere.unpack(position.weights), position.cache, self.fraction, state.iteration
        )

        def damped(v: Tree) -> Tree:
            velocity = sphere.unpack(sphere.scale(v, position.radii))
            image = sphere.pack(product(velocity))
            tangent = sphere.project(position.weights, image, position.radii)
            return sphere.add(sphere.scale(tangent, position.radii), v, damping)

        gradient = position.gradient
        v, residual, products = _solve(
            damped, sphere.scale(gradient, -1.0), self.residual, self.max_products
        )
        speed = max_speed(v)
        slope = ratio(sphere.dot(v, gradient), speed)
        # A v = −∇ − r, so that vᵀJᵀHJv = −v·∇ − v·r − λ‖v‖².
        form = -sphere.dot(v, sphere.add(gradient, residual)) - damping * sphere.dot(v, v)
        model = QuadraticModel(damping, slope, ratio(form, speed**2), state.iteration + 1)
        return Choice(unit_max_speed(v), model, fraction * products)


class _Iterate(NamedTuple):
    """State of the linear conjugate gradients."""

    v: Tree
    residual: Tree
    search: Tree
    square: Float[Array, ""]
    """Squared norm of the residual."""
    products: Int[Array, ""]
    valid: Bool[Array, ""]


def _solve(
    operator: Callable[[Tree], Tree], right: Tree, tolerance: float, max_products: int
) -> tuple[Tree, Tree, Int[Array, ""]]:
    """Solve by conjugate gradients from zero; return solution, residual and number of products.

    A direction without positive curvature ends the solve with the current solution, or in the
    first iteration with `right`, which is a descent direction (Steihaug 1983).
    """
    square = sphere.dot(right, right)
    goal = tolerance**2 * square

    def improve(s: _Iterate) -> _Iterate:
        image = operator(s.search)
        curvature = sphere.dot(s.search, image)
        valid = (curvature > 0) & jnp.isfinite(curvature)
        length = jnp.where(valid, s.square / jnp.where(valid, curvature, 1), 0)
        residual = sphere.add(s.residual, image, -length)
        new = sphere.dot(residual, residual)
        return _Iterate(
            sphere.add(s.v, s.search, length),
            residual,
            sphere.add(residual, s.search, ratio(new, s.square)),
            new,
            s.products + 1,
            valid & jnp.isfinite(new),
        )

    start = _Iterate(
        sphere.scale(right, 0.0), right, right, square, jnp.zeros((), jnp.int32), square > 0
    )
    end = jax.lax.while_loop(
        lambda s: s.valid & (s.square > goal) & (s.products < max_products), improve, start
    )
    is_zero = sphere.dot(end.v, end.v) == 0
    v = sphere.add(end.v, right, jnp.where(is_zero, 1.0, 0.0).astype(square.dtype))
    return v, end.residual, end.products
