"""Where to go: a heading on each sphere, from the gradient and from what is remembered.

| direction | beyond the gradient, per iteration | known as |
|---|---|---|
| `Steepest()` | nothing | the paper's Eq. (6) |
| `Steepest("gradient")` | nothing | Riemannian gradient descent |
| `Steepest("trust")` | what each layer sees | steepest in a majorant's norm |
| `ConjugateGradient()` | nothing | Riemannian conjugate gradients |
| `GaussNewton()` | products with JᵀHJ | truncated, damped Gauss-Newton |
| `Kronecker()` | two forward passes, and second moments | K-FAC with momentum |

A direction is a pair of pure functions: `start` makes its memory, `choose` gives the heading at a
point and the memory for the next one. Headings are tangent, and scaled so that the fastest layer
has angular speed one: then an angle bounds the turn of every layer.

The spheres are measured in radians: the gradient of layer i in that metric is μ_i times the
tangent part of its Euclidean gradient, and inner products of headings are plain sums over the
layers. So no direction here depends on how the radii are shared out among the layers of a network
with homogeneous activations (`docs/directions.md`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greatcircle import gains, sphere
from greatcircle.arc import Arc
from greatcircle.problem import Objective, Problem, stacked
from greatcircle.sphere import Tree


class Place(NamedTuple):
    """A point that the loop has reached, and the way it came."""

    objective: Objective
    weights: Tree
    gradient: Tree
    """In radians: μ_i times the tangent part of the Euclidean gradient."""
    left: Any
    """What the backward pass left."""
    radii: Array
    way: Arc
    """The arc that led here. At the start its headings are zero."""
    angle: Array
    """How far along it."""
    decrease: Array
    """Of the loss on that way; infinite at the start."""

    def bring(self, vectors: Tree) -> Tree:
        """Tangent vectors of the last point, transported to this one."""
        return sphere.transport(self.way.weights, self.way.heading, self.angle, vectors, self.radii)


class Chosen(NamedTuple):
    """What a direction says."""

    heading: Tree
    memory: Any
    products: Array | float = 0.0
    """Gauss-Newton products spent, in passes over all the data."""


class Direction(Protocol):
    """What the loop asks of a direction."""

    def check(self, objective: Objective) -> None:
        """Raise TypeError where the direction cannot work with the objective."""
        ...

    def start(self, weights: Tree) -> Any:
        """Memory before the first point."""
        ...

    def choose(self, place: Place, memory: Any) -> Chosen:
        """Heading at this point, and the memory to take along."""
        ...


@dataclass(frozen=True)
class Steepest:
    """Against the gradient.

    Parameters
    ----------
    speed
        "unit": every layer at unit speed, the paper's Eq. (6). "gradient": each layer as fast as
        its gradient is large, which is the steepest descent of the loss per radian. "trust": layers
        that change the outputs little for what they gain go first, which suits the majorants. A
        layer whose gradient is zero stays where it is.
    """

    speed: str = "unit"

    def __post_init__(self) -> None:
        if self.speed not in ("unit", "gradient", "trust"):
            raise ValueError(f"speed is {self.speed!r}; expected 'unit', 'gradient' or 'trust'")

    def check(self, objective: Objective) -> None:
        """Works with every objective, except for "trust"."""
        if self.speed == "trust" and not isinstance(objective, Problem):
            raise TypeError(
                "direction Steepest('trust') needs a Problem with a Network, because it uses the "
                "norms of its layers; for any other objective use directions.Steepest('gradient')"
            )

    def start(self, weights: Tree) -> tuple[()]:
        """Nothing to remember."""
        return ()

    def choose(self, place: Place, memory: tuple[()]) -> Chosen:
        """V_i = −∇_i / ‖∇_i‖, or −∇_i at one scale for all."""
        if self.speed == "gradient":
            return Chosen(_heading(sphere.scale(place.gradient, -1.0)), memory)
        heading = sphere.normalise(place.gradient, -1.0)
        if self.speed == "unit":
            return Chosen(heading, memory)
        return Chosen(sphere.scale(heading, _trusted_speeds(place, heading)), memory, 0.25)


TRUST = 1.25


def _trusted_speeds(place: Place, heading: Tree) -> Array:
    """Speeds of the steepest descent in the norm (Σ (k_i s_i)^q)^{1/q}.

    k_i bounds the rate at which layer i at unit speed changes the outputs, as in `DataMajorant`.
    With q = 1, which is that majorant's own norm, one layer at a time would turn; with q = 2 all
    would. In between is best (`docs/directions.md`).
    """
    problem = place.objective
    assert isinstance(problem, Problem)  # `check` has made sure
    units = sphere.unpack(sphere.scale(heading, place.radii))
    rate = jnp.sqrt(problem.moments(units, place.left)[2])
    gain = gains.operator_norms(sphere.unpack(place.weights))
    k = rate * jnp.cumprod(jnp.append(gain[1:], 1)[::-1])[::-1]
    worth = _ratio(sphere.norm(place.gradient), k)
    speeds = _ratio(_ratio(worth, jnp.max(worth)) ** (1 / (TRUST - 1)), k)
    return _ratio(speeds, jnp.max(speeds))


class _Last(NamedTuple):
    gradient: Tree
    way: Tree
    """The direction, before it was scaled."""


@dataclass(frozen=True)
class ConjugateGradient:
    """Nonlinear conjugate gradients on the product of the spheres.

    Gradient and direction of the last point come along by parallel transport; the new direction is
    −∇ plus β times the last one. Where that does not lead downhill it restarts with −∇.

    Parameters
    ----------
    beta
        "polak-ribiere" (PR+: never negative) or "hager-zhang" (2005).
    """

    beta: str = "polak-ribiere"

    def __post_init__(self) -> None:
        if self.beta not in ("polak-ribiere", "hager-zhang"):
            raise ValueError(f"beta is {self.beta!r}; expected 'polak-ribiere' or 'hager-zhang'")

    def check(self, objective: Objective) -> None:
        """Works with every objective."""

    def start(self, weights: Tree) -> _Last:
        """No last direction."""
        zero = sphere.scale(weights, 0.0)
        return _Last(zero, zero)

    def choose(self, place: Place, memory: _Last) -> Chosen:
        """The conjugate direction, or the steepest."""
        gradient = place.gradient
        last, way = place.bring(memory.gradient), place.bring(memory.way)
        change = sphere.add(gradient, last, -1.0)
        if self.beta == "polak-ribiere":
            beta = jnp.maximum(_ratio(sphere.dot(gradient, change), sphere.dot(last, last)), 0)
        else:
            beta = _hager_zhang(gradient, last, change, way)
        steepest = sphere.scale(gradient, -1.0)
        conjugate = sphere.add(steepest, way, beta)
        downhill = sphere.dot(conjugate, gradient) < 0
        chosen = jax.tree.map(lambda c, s: jnp.where(downhill, c, s), conjugate, steepest)
        return Chosen(_heading(chosen), _Last(gradient, chosen))


def _hager_zhang(gradient: Tree, last: Tree, change: Tree, way: Tree) -> Array:
    """β of Hager & Zhang (2005), Eq. (1.3), with their lower bound, Eq. (1.5) and (1.6)."""
    along = sphere.dot(way, change)
    beta = _ratio(sphere.dot(gradient, change), along)
    beta -= 2 * _ratio(sphere.dot(change, change) * sphere.dot(gradient, way), along**2)
    size = jnp.sqrt(sphere.dot(way, way))
    lowest = -_ratio(1.0, size * jnp.minimum(0.01, jnp.sqrt(sphere.dot(last, last))))
    return jnp.maximum(beta, lowest)


class _Model(NamedTuple):
    damping: Array
    slope: Array
    """Of the quadratic model along the heading, per radian."""
    curvature: Array
    iteration: Array


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
        if not 0 < self.residual < 1:
            raise ValueError(f"residual is {self.residual!r}; expected a number in (0, 1)")
        if not isinstance(self.max_products, int) or self.max_products < 1:
            raise ValueError(
                f"max_products is {self.max_products!r}; expected a whole number of at least 1"
            )
        if not 0 < self.share <= 1:
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

    def start(self, weights: Tree) -> _Model:
        """Damping of a loss of order one."""
        return _start_model(weights, DAMPING)

    def choose(self, place: Place, memory: _Model) -> Chosen:
        """Solve for the direction, after having learnt from the last one."""
        damping = _adapted(place, memory, 0.4, 3.0)
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
        fastest = _fastest(v)
        slope = _ratio(sphere.dot(v, place.gradient), fastest)
        # A v = −∇ − r, so that vᵀJᵀHJv = −v·∇ − v·r − λ‖v‖².
        curved = -sphere.dot(v, sphere.add(place.gradient, residual)) - damping * sphere.dot(v, v)
        curvature = _ratio(curved, fastest**2)
        model = _Model(damping, slope, curvature, memory.iteration + 1)
        return Chosen(_heading(v), model, share * products)


class _Natural(NamedTuple):
    seen: Array
    """Moving average of the second moments of each layer's input."""
    slopes: Array
    """The same of the loss's slope in each layer's output."""
    way: Tree
    """The last direction."""
    model: _Model


@dataclass(frozen=True)
class Kronecker:
    """Natural gradient by Kronecker factors (K-FAC), with momentum; no rate for either.

    Every layer's block of the Gauss-Newton matrix is approximated by a Kronecker product of two
    small matrices (Martens & Grosse 2015), whose inverse costs nothing beside a pass over the
    data. The heading is the combination of that natural gradient and of the last direction that is
    lowest in the Gauss-Newton model of the loss, which needs two forward passes.
    """

    def check(self, objective: Objective) -> None:
        """Needs the layers of a network."""
        if not isinstance(objective, Problem):
            raise TypeError(
                "direction Kronecker needs a Problem with a Network, because it uses what its "
                "layers see; for any other objective use directions.ConjugateGradient()"
            )

    def start(self, weights: Tree) -> _Natural:
        """No factors yet."""
        assert isinstance(weights, sphere.Packed)
        rows, columns = (max(s[axis] for s in weights.shapes) for axis in (0, 1))
        layers, dtype = len(weights.shapes), weights.rows.dtype
        return _Natural(
            jnp.zeros((layers, rows, rows), dtype),
            jnp.zeros((layers, columns, columns), dtype),
            sphere.scale(weights, 0.0),
            _start_model(weights, KRONECKER_DAMPING),
        )

    def choose(self, place: Place, memory: _Natural) -> Chosen:
        """The best combination of natural gradient and last direction."""
        problem = place.objective
        assert isinstance(problem, Problem)  # `check` has made sure
        model = memory.model
        damping = _adapted(place, model, KRONECKER_LESS, KRONECKER_MORE)
        age = jnp.minimum(1 - 1 / (model.iteration + 1.0), KRONECKER_MEMORY).astype(damping.dtype)
        seen, slopes = (
            age * old + (1 - age) * new
            for old, new in zip(memory[:2], problem.kronecker(place.left), strict=True)
        )
        natural = _natural_gradient(place, seen, slopes, damping)
        last = place.bring(memory.way)
        matrices = sphere.unpack(place.weights)

        def pushed(v: Tree) -> tuple[Array, Array]:
            velocity = sphere.unpack(sphere.scale(v, place.radii))
            return problem.pushed(matrices, velocity, place.left)

        (a, Ha), (b, Hb) = pushed(natural), pushed(last)
        curved = [[jnp.vdot(a, Ha), jnp.vdot(b, Ha)], [jnp.vdot(b, Ha), jnp.vdot(b, Hb)]]
        sizes = [sphere.dot(x, y) for x, y in ((natural, natural), (natural, last), (last, last))]
        G = jnp.array(curved)
        S = jnp.array([[sizes[0], sizes[1]], [sizes[1], sizes[2]]])
        slope = jnp.stack([sphere.dot(place.gradient, v) for v in (natural, last)])
        c = _solve_2(G + damping * S, -slope)
        v = sphere.add(sphere.scale(natural, c[0]), last, c[1])
        fastest = _fastest(v)
        new = _Model(
            damping, _ratio(c @ slope, fastest), _ratio(c @ G @ c, fastest**2), model.iteration + 1
        )
        return Chosen(_heading(v), _Natural(seen, slopes, v, new), 1.5)


KRONECKER_DAMPING = 0.1
KRONECKER_LESS, KRONECKER_MORE = 0.95, 1.1
KRONECKER_MEMORY = 0.9


def _natural_gradient(place: Place, seen: Array, slopes: Array, damping: Array) -> Tree:
    """−(A ⊗ G + λ)⁻¹ ∇ on the tangent space, with factored damping (Martens & Grosse, §6.3)."""
    gradient = stacked(jax.tree.leaves(sphere.unpack(place.gradient)))
    points = stacked(jax.tree.leaves(sphere.unpack(place.weights)))
    shapes = jax.tree.leaves(sphere.unpack(place.weights))
    rows, columns = (np.array([w.shape[axis] for w in shapes]) for axis in (0, 1))
    seen = seen * (place.radii**2)[:, None, None]
    mean_a = jnp.trace(seen, axis1=1, axis2=2) / rows
    mean_g = jnp.trace(slopes, axis1=1, axis2=2) / columns
    # A layer that sees nothing, or that nothing depends on, has nothing to balance.
    some = (mean_a > 0) & (mean_g > 0)
    balance = jnp.sqrt(jnp.where(some, mean_a, 1) / jnp.where(some, mean_g, 1))
    root = jnp.sqrt(damping)
    A = seen + (root * balance)[:, None, None] * jnp.eye(seen.shape[1], dtype=seen.dtype)
    G = slopes + (root / balance)[:, None, None] * jnp.eye(slopes.shape[1], dtype=seen.dtype)
    A, G = (jnp.linalg.cholesky(m) for m in (A, G))

    def inverse(m: Array) -> Array:
        left = jax.scipy.linalg.cho_solve((A, True), m)
        return jax.scipy.linalg.cho_solve((G, True), left.swapaxes(1, 2)).swapaxes(1, 2)

    free, normal = inverse(gradient), inverse(points)
    along = _ratio(jnp.sum(points * free, (1, 2)), jnp.sum(points * normal, (1, 2)))
    solved = along[:, None, None] * normal - free
    matrices = [m[:r, :c] for m, r, c in zip(solved, rows, columns, strict=True)]
    tree = jax.tree.unflatten(jax.tree.structure(sphere.unpack(place.weights)), matrices)
    return sphere.project(place.weights, sphere.pack(tree), place.radii)


def _solve_2(matrix: Array, right: Array) -> Array:
    """Two equations; where the second direction adds nothing to the first, the first alone."""
    (a, b), (_, d) = matrix
    determinant = a * d - b * b
    good = determinant > 1e-5 * a * d
    safe = jnp.where(good, determinant, 1)
    both = jnp.stack([d * right[0] - b * right[1], a * right[1] - b * right[0]]) / safe
    alone = jnp.stack([_ratio(right[0], a), jnp.zeros_like(a)])
    return jnp.where(good, both, alone)


def _start_model(weights: Tree, damping: float) -> _Model:
    dtype = jax.tree.leaves(weights)[0].dtype
    nan = jnp.full((), jnp.nan, dtype)
    return _Model(jnp.asarray(damping, dtype), nan, nan, jnp.zeros((), jnp.int32))


NEXT_TO_NOTHING = 1e8
"""Operations: about ten milliseconds."""


def automatic(objective: Objective) -> Direction:
    """The direction that gains most per evaluation, of those that the objective allows.

    A network's layers allow `Kronecker`; it pays as long as inverting its factors costs less than
    a pass over the data does, or next to nothing. Outputs with a loss of them allow `GaussNewton`.
    Everything else gets `ConjugateGradient`.
    """
    if isinstance(objective, Problem):
        sizes, rows = objective.network.shapes, len(objective.inputs)
        inversions = sum(a**3 + b**3 + a * b * (a + b) for a, b in sizes)
        passes = 6 * rows * sum(a * b for a, b in sizes)
        return Kronecker() if inversions <= max(passes, NEXT_TO_NOTHING) else GaussNewton()
    try:
        GaussNewton().check(objective)
    except TypeError:
        return ConjugateGradient()
    return GaussNewton()


DAMPING = 1e-2
"""λ at the start, where the loss of the zero function is one."""


def _adapted(place: Place, memory: _Model, less: float, more: float) -> Array:
    """λ after the last arc: Levenberg's and Marquardt's rule, on a quadratic model along it."""
    angle = place.angle
    predicted = -(memory.slope + 0.5 * memory.curvature * angle) * angle
    good = place.decrease > 0.75 * predicted
    bad = place.decrease < 0.25 * predicted
    factor = jnp.where(bad, more, jnp.where(good, less, 1.0))
    tiny = 10 * jnp.finfo(angle.dtype).eps
    return jnp.where(
        memory.iteration > 0, jnp.maximum(factor * memory.damping, tiny), memory.damping
    )


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

    A direction without positive curvature, which only rounding or a value that is not finite can
    make, ends the solve with what there is.
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
            sphere.add(residual, s.towards, _ratio(new, s.square)),
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
    return end.v, end.residual, end.products


def _heading(v: Tree) -> Tree:
    """Scaled so that the fastest layer has speed one; zero stays zero."""
    return sphere.scale(v, _ratio(1.0, _fastest(v)))


def _fastest(v: Tree) -> Array:
    return jnp.max(sphere.norm(v))


def _ratio(a: Array | float, b: Array) -> Array:
    """A / b, and zero where b is."""
    return jnp.where(b != 0, a / jnp.where(b != 0, b, 1), 0)
