"""Damped Gauss-Newton by conjugate gradients on the tangent space."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Tree
from greatcircle.objective.objective import Objective
from greatcircle.optimise.directions.damping import Model, adapted_damping, start_model
from greatcircle.optimise.directions.direction import Chosen, Place, fastest_speed, ratio, scaled

DAMPING = 1e-2
"""λ at the start, where the loss of the zero function is one."""


@dataclass(frozen=True)
class GaussNewton:
    """Damped Gauss-Newton: (JᵀHJ + λ) v = −∇ on the tangent space, by conjugate gradients.

    Matrix-free: a product with JᵀHJ is a pass forward and a pass back. The solve ends when its
    residual is below `residual` of the gradient. λ falls where the quadratic model predicted the
    last decrease well, and rises where it did not.

    Parameters
    ----------
    residual
        Where the solve ends, relative to the gradient.
    max_products
        Most products in one solve.
    share
        Share of the rows that the products use, each iteration other ones. The gradient always
        sees all.
    """

    residual: float = 0.1
    max_products: int = 30
    share: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.residual, Real) or not 0 < float(self.residual) < 1:
            raise ValueError(f"residual is {self.residual!r}; expected a number in (0, 1)")
        if not isinstance(self.max_products, int) or self.max_products < 1:
            raise ValueError(
                f"max_products is {self.max_products!r}; expected a whole number of at least 1"
            )
        if not isinstance(self.share, Real) or not 0 < float(self.share) <= 1:
            raise ValueError(f"share is {self.share!r}; expected a number in (0, 1]")

    def check(self, objective: Objective) -> None:
        """Needs outputs and a loss of them."""
        user = getattr(objective, "user", objective)
        for method in ("outputs", "loss_of"):
            if not callable(getattr(user, method, None)):
                raise TypeError(
                    f"direction GaussNewton needs an objective with outputs(weights) and "
                    f"loss_of(outputs); {type(user).__name__} has no {method}: add it, or use "
                    "directions.ConjugateGradient()"
                )

    def start(self, weights: Tree) -> Model:
        """Damping of a loss of order one."""
        return start_model(weights, DAMPING)

    def choose(self, place: Place, memory: Model) -> Chosen:
        """Solve for the direction, after having learnt from the last one."""
        damping = adapted_damping(place, memory, 0.4, 3.0)
        matrices = sphere.unpack(place.weights)
        product, share = place.objective.linearised(
            matrices, place.left, self.share, memory.iteration
        )

        def damped(v: Tree) -> Tree:
            velocity = sphere.unpack(sphere.scale(v, place.radii))
            curved = sphere.pack(product(velocity))
            tangent = sphere.project(place.weights, curved, place.radii)
            return sphere.add(sphere.scale(tangent, place.radii), v, damping)

        v, residual, products = _solve(
            damped, sphere.scale(place.gradient, -1.0), self.residual, self.max_products
        )
        fastest = fastest_speed(v)
        slope = ratio(sphere.dot(v, place.gradient), fastest)
        # A v = −∇ − r, so that vᵀJᵀHJv = −v·∇ − v·r − λ‖v‖².
        curved = -sphere.dot(v, sphere.add(place.gradient, residual)) - damping * sphere.dot(v, v)
        curvature = ratio(curved, fastest**2)
        model = Model(damping, slope, curvature, memory.iteration + 1)
        return Chosen(scaled(v), model, share * products)


class _Solution(NamedTuple):
    v: Tree
    residual: Tree
    towards: Tree
    square: Array
    """Of the residual's norm."""
    products: Array
    good: Array


def _solve(
    operator: Callable[[Tree], Tree], right: Tree, tolerance: float, most: int
) -> tuple[Tree, Tree, Array]:
    """Conjugate gradients from zero: solution, residual and products used.

    A direction without positive curvature ends the solve with what there is, and where that is
    nothing with `right` itself, the way downhill (Steihaug 1983).
    """
    square = sphere.dot(right, right)
    goal = tolerance**2 * square

    def improve(s: _Solution) -> _Solution:
        image = operator(s.towards)
        curvature = sphere.dot(s.towards, image)
        good = (curvature > 0) & jnp.isfinite(curvature)
        length = jnp.where(good, s.square / jnp.where(good, curvature, 1), 0)
        residual = sphere.add(s.residual, image, -length)
        new = sphere.dot(residual, residual)
        return _Solution(
            sphere.add(s.v, s.towards, length),
            residual,
            sphere.add(residual, s.towards, ratio(new, s.square)),
            new,
            s.products + 1,
            good & jnp.isfinite(new),
        )

    start = _Solution(
        sphere.scale(right, 0.0), right, right, square, jnp.zeros((), jnp.int32), square > 0
    )
    end = jax.lax.while_loop(
        lambda s: s.good & (s.square > goal) & (s.products < most), improve, start
    )
    nothing = sphere.dot(end.v, end.v) == 0
    v = sphere.add(end.v, right, jnp.where(nothing, 1.0, 0.0).astype(square.dtype))
    return v, end.residual, end.products
