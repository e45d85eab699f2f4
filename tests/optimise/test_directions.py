"""Directions one by one against slow oracles, and the properties that all of them share."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from greatcircle import Network, Problem, descend, losses, sphere, stopping
from greatcircle._runtime.precision import precision
from greatcircle.geometry.great_circle import Arc
from greatcircle.objective.function import FunctionObjective, function_objective
from greatcircle.optimise import arc as arcs
from greatcircle.optimise.arc import ArcStart
from greatcircle.optimise.directions import (
    ConjugateGradient,
    GaussNewton,
    HagerZhang,
    Kronecker,
    KroneckerMomentum,
    MajorantSteepest,
    Muon,
    PolakRibiere,
    Position,
    RiemannianGradient,
    Soap,
    Steepest,
    automatic,
    kronecker,
)
from greatcircle.optimise.directions.gauss_newton import DAMPING
from greatcircle.optimise.directions.soap import of_similar_size, refresh_interval
from greatcircle.optimise.steps import Curvature, DataMajorant, Majorant, SmoothMajorant
from small import LOSS_NAMES, small, thinned, unless_types_are_checked

DIRECTIONS = (
    Steepest(),
    RiemannianGradient(),
    MajorantSteepest(),
    ConjugateGradient(),
    ConjugateGradient(HagerZhang()),
    GaussNewton(),
    Kronecker(),
    Kronecker(sample=3),
)


@jax.jit
def position_at(objective, weights, arc=None, angle=0.0, decrease=jnp.inf):
    """Return the position that the loop reaches along `arc`; by default the start."""
    packed = sphere.pack(tuple(map(jnp.asarray, weights)))
    radii = sphere.norm(packed)
    _, cache = objective.forward(sphere.unpack(packed))
    gradient, cache = objective.backward(sphere.unpack(packed), cache)
    tangent = sphere.project(packed, sphere.pack(gradient), radii)
    return Position(
        objective=objective,
        weights=packed,
        gradient=sphere.scale(tangent, radii),
        cache=cache,
        radii=radii,
        arc=arc or Arc(packed, sphere.scale(packed, 0.0), radii),
        angle=jnp.asarray(angle, radii.dtype),
        decrease=jnp.asarray(decrease, radii.dtype),
    )


@partial(jax.jit, static_argnames="direction")
def choose(direction, position, state):
    return direction.choose(position, state)


def run(direction, problem, weights, steps=1, angle=0.05):
    """Return position, state and choice at the start, and after each of some steps."""
    position = position_at(problem, weights)
    state, visited = direction.init(position.weights), []
    for k in range(steps + 1):
        choice = choose(direction, position, state)
        visited.append((position, state, choice))
        if k < steps:
            arc, state = Arc(position.weights, choice.heading, position.radii), choice.state
            position = position_at(problem, sphere.unpack(arc.point(angle)), arc, angle, 0.01)
    return visited


def matrices(tree):
    return [np.asarray(m) for m in jax.tree.leaves(sphere.unpack(tree))]


def flat(tree):
    return np.concatenate([m.ravel() for m in matrices(tree)])


# Properties of all directions


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bias", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("direction", DIRECTIONS, ids=str)
def test_headings_are_tangent_downhill_and_the_fastest_layer_has_speed_one(direction, bias):
    s = small(1, activation="tanh", bias=bias)
    for position, _, choice in run(direction, s.problem(), s.weights, steps=2):
        np.testing.assert_allclose(sphere.inner(position.weights, choice.heading), 0, atol=1e-14)
        speeds = sphere.norm(choice.heading)
        assert float(jnp.max(speeds)) == pytest.approx(1, rel=1e-14)
        assert float(sphere.dot(position.gradient, choice.heading)) < 0


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("direction", DIRECTIONS, ids=str)
def test_zero_gradient_gives_zero_heading(direction):
    """This holds at the start and with a state from another problem."""
    s = small(1, activation="tanh")
    problem = s.problem()
    fitted = Problem(s.network, s.X, problem.outputs(s.weights), dtype=np.float64)
    position = position_at(fitted, s.weights)
    assert float(sphere.dot(position.gradient, position.gradient)) == 0
    _, state, _ = run(direction, problem, s.weights)[1]
    for earlier in (direction.init(position.weights), state):
        choice = choose(direction, position, earlier)
        np.testing.assert_array_equal(flat(choice.heading), 0)
        assert all(np.all(np.isfinite(leaf)) for leaf in map(np.asarray, [choice.products]))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bias", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("direction", [*DIRECTIONS, KroneckerMomentum()], ids=str)
def test_headings_do_not_depend_on_how_the_radii_are_distributed(direction, bias):
    """Relu: a factor on a layer is a factor on the outputs, and on the targets here."""
    s = small(5, depth=3, rows=12)
    c = 3.0
    position = run(direction, s.problem(), s.weights, steps=2)
    moved = (s.weights[0] * c, s.weights[1], s.weights[2] / c)
    scaled = (s.weights[0], s.weights[1] * c, s.weights[2])
    louder = Problem(s.network, s.X, s.Y * c, dtype=np.float64)
    for problem, weights in ((s.problem(), moved), (louder, scaled)):
        there = run(direction, problem, weights, steps=2)
        for (_, _, a), (_, _, b) in zip(position, there, strict=True):
            np.testing.assert_allclose(flat(a.heading), flat(b.heading), rtol=1e-7, atol=1e-9)


# Steepest


def test_layers_without_a_gradient_do_not_move():
    class Linear:
        def loss(self, weights):
            return jnp.sum(jnp.array([[0.0, 1.0], [2.0, 0.0]]) * weights[0]) + 0 * weights[1][0, 0]

    position = position_at(
        function_objective(Linear(), np.dtype(np.float32)), (np.eye(2), np.eye(2))
    )
    for direction in (Steepest(), RiemannianGradient()):
        first, second = matrices(direction.choose(position, ()).heading)
        np.testing.assert_allclose(first, -np.array([[0, 1], [2, 0]]) / np.sqrt(5), rtol=1e-6)
        np.testing.assert_array_equal(second, 0)


@pytest.mark.usefixtures("x64")
def test_speeds_of_the_riemannian_gradient_are_the_gradients_per_radian():
    s = small(2)
    position = position_at(s.problem(), s.weights)
    unit = Steepest().choose(position, ()).heading
    np.testing.assert_allclose(sphere.norm(unit), 1, rtol=1e-14)
    graded = RiemannianGradient().choose(position, ()).heading
    gradients = oracle.gradient(s.weights, s.X, s.Y, "relu", "squared")
    tangents = [
        mu * oracle.project(W, G, mu)
        for W, G, mu in zip(s.weights, gradients, s.radii, strict=True)
    ]
    largest = max(map(np.linalg.norm, tangents))
    for ours, one, tangent in zip(matrices(graded), matrices(unit), tangents, strict=True):
        np.testing.assert_allclose(ours, -tangent / largest, atol=1e-13)
        np.testing.assert_allclose(one, -tangent / np.linalg.norm(tangent), atol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bias", [False, True])
def test_majorant_steepest_is_steepest_in_its_norm(bias):
    """No other speeds of the same (Σ (k_i s_i)^q)^(1/q), q = 1.25, have a steeper slope."""
    s = small(2, activation="tanh", bias=bias)
    position = position_at(s.problem(), s.weights)
    heading = matrices(MajorantSteepest().choose(position, ()).heading)
    speeds = np.array([np.linalg.norm(v) for v in heading])
    unit = matrices(Steepest().choose(position, ()).heading)
    for v, u, speed in zip(heading, unit, speeds, strict=True):
        np.testing.assert_allclose(v, speed * u, atol=1e-13)
    k, worth = [], [np.linalg.norm(g) for g in matrices(position.gradient)]
    for i, (u, mu) in enumerate(zip(unit, s.radii, strict=True)):
        inputs = [oracle.layer_inputs(s.weights, x, "tanh", bias)[i] for x in s.X]
        rate = mu * np.sqrt(np.mean([np.sum((h @ u) ** 2) for h in inputs]))
        k.append(rate * np.prod([oracle.operator_norm(w) for w in s.weights[i + 1 :]]))

    def gain(speeds):
        return (speeds @ worth) / np.sum((speeds * k) ** 1.25) ** (1 / 1.25)

    rng = np.random.default_rng(0)
    others = rng.uniform(0, 1, (2000, len(k)))
    near = speeds * (1 + 0.01 * rng.standard_normal((2000, len(k))))
    best = gain(speeds)
    assert all(gain(other) <= best * (1 + 1e-12) for other in (*others, *near))


# Conjugate gradients


@pytest.mark.parametrize("beta", [PolakRibiere(), HagerZhang()], ids=str)
@pytest.mark.parametrize(
    ("activation", "loss"), [("tanh", "squared"), ("arctan", "softmax"), ("sin", "huber")]
)
def test_conjugate_gradients_agree_with_the_oracle_over_a_run(beta, activation, loss):
    s = small(8, activation=activation, loss=loss, rows=6)
    visited = []
    result = descend(
        s.problem(),
        s.weights,
        direction=ConjugateGradient(beta),
        stop=stopping.MaxIter(10),
        callback=lambda record, weights: visited.append(weights),
    )
    slow = partial(
        oracle.descend,
        s.weights,
        s.X,
        s.Y,
        radii=s.radii,
        activation=activation,
        loss=loss,
        step="curvature",
    )
    name = {PolakRibiere(): "polak-ribiere", HagerZhang(): "hager-zhang"}[beta]
    expected = slow(iterations=10, direction=name)
    assert len(result.records) == len(expected) == 10
    for record, weights, theirs in zip(result.records, visited, expected, strict=True):
        assert record.slope == pytest.approx(theirs["slope"], rel=1e-7)
        assert record.angle == pytest.approx(theirs["angle"], rel=1e-7)
        for a, b in zip(weights, theirs["weights"], strict=True):
            np.testing.assert_allclose(a, b, atol=1e-8)
    plain = slow(iterations=3)
    assert expected[2]["slope"] != pytest.approx(plain[2]["slope"], rel=1e-3)


@pytest.mark.usefixtures("x64")
def test_conjugate_gradients_restart_if_they_would_lead_uphill():
    """Polak-Ribière only: with Hager's and Zhang's β the direction always leads downhill."""
    s = small(2, activation="tanh")
    direction = ConjugateGradient()
    position, state, _ = run(direction, s.problem(), s.weights)[1]
    steepest = RiemannianGradient().choose(position, ()).heading
    # With a very long last direction along the gradient, the sum points uphill.
    uphill = sphere.project(position.arc.weights, position.gradient, position.radii)
    state = state._replace(gradient=sphere.scale(uphill, 1e-3), direction=sphere.scale(uphill, 1e6))
    choice = choose(direction, position, state)
    np.testing.assert_allclose(flat(choice.heading), flat(steepest), rtol=1e-12)
    np.testing.assert_allclose(flat(choice.state.direction), -flat(position.gradient), rtol=1e-12)


# Gauss-Newton


def dense(problem, weights, rows=slice(None)):
    """Return JᵀHJ of some rows, in the unit of the problem."""
    x, y = problem.inputs[rows], problem.targets[rows]
    weight = problem.rows.sample_weight[rows] / jnp.sum(problem.rows.sample_weight[rows])

    def outputs(w):
        return problem.network.apply(w, x).ravel()

    def loss(f):
        row_losses = losses.of_columns(problem.criterion, f.reshape(y.shape).T, y.T)
        return weight @ row_losses / problem.unit

    weights = tuple(map(jnp.asarray, weights))
    jacobian = jax.jacobian(outputs)(weights)
    J = jnp.concatenate([j.reshape(len(j), -1) for j in jacobian], axis=1)
    H = jax.hessian(loss)(outputs(weights))
    return np.asarray(J.T @ H @ J)


class Same:
    """A user's object with the loss of a problem, in its unit."""

    def __init__(self, problem):
        self.problem = problem

    def outputs(self, weights):
        return self.problem.network.apply(weights, self.problem.inputs)

    def loss_of(self, outputs):
        return self.problem.loss_of(outputs) / self.problem.unit

    def loss(self, weights):
        return self.loss_of(self.outputs(weights))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bias", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("loss", thinned(LOSS_NAMES, 2))
def test_products_agree_with_the_dense_matrix(loss, bias):
    s = small(4, activation="tanh", loss=loss, bias=bias)
    weight = np.arange(1.0, len(s.X) + 1)
    problem = Problem(s.network, s.X, s.Y, loss=loss, sample_weight=weight, dtype=np.float64)
    position = position_at(problem, s.weights)
    rng = np.random.default_rng(0)
    velocity = tuple(jnp.asarray(rng.standard_normal(w.shape)) for w in s.weights)

    expected = dense(problem, s.weights) @ flat(velocity)
    for objective in (problem, function_objective(Same(problem), np.dtype(np.float64))):
        product, fraction = objective.gauss_newton(sphere.unpack(position.weights), position.cache)
        assert fraction == 1
        np.testing.assert_allclose(flat(product(velocity)), expected, rtol=1e-10, atol=1e-13)


@pytest.mark.usefixtures("x64")
def test_a_fraction_of_the_rows_is_every_nth_of_them_in_turn():
    s = small(4, activation="tanh", rows=7)
    weight = np.arange(1.0, 8)
    problem = Problem(s.network, s.X, s.Y, sample_weight=weight, dtype=np.float64)
    position = position_at(problem, s.weights)
    velocity = tuple(jnp.cos(jnp.asarray(w)) for w in s.weights)
    for iteration, rows in enumerate(
        [slice(0, 7, 3), slice(2, 7, 3), slice(1, 7, 3), slice(0, 7, 3)]
    ):
        product, fraction = problem.gauss_newton(
            sphere.unpack(position.weights), position.cache, 0.3, jnp.asarray(iteration)
        )
        assert fraction == 1 / 3
        expected = dense(problem, s.weights, rows) @ flat(velocity)
        np.testing.assert_allclose(flat(product(velocity)), expected, rtol=1e-10, atol=1e-13)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("loss", thinned(LOSS_NAMES, 2))
def test_gauss_newton_solves_the_damped_system_on_the_tangent_space(loss):
    s = small(6, depth=2, activation="tanh", loss=loss, rows=30, bias=True)
    problem = s.problem()
    direction = GaussNewton(residual=1e-12, max_products=2000)
    position, _, choice = run(direction, problem, s.weights, steps=0)[0]
    scale = np.concatenate([np.full(w.size, mu) for w, mu in zip(s.weights, s.radii, strict=True)])
    curved = scale[:, None] * dense(problem, s.weights) * scale
    # An orthonormal basis of the tangent space: everything but one normal for each layer.
    normals = np.zeros((len(scale), len(s.weights)))
    first = 0
    for i, w in enumerate(s.weights):
        normals[first : first + w.size, i] = w.ravel()
        first += w.size
    basis = np.linalg.svd(normals)[0][:, len(s.weights) :]
    system = basis.T @ curved @ basis + DAMPING * np.eye(basis.shape[1])
    v = -basis @ np.linalg.solve(system, basis.T @ flat(position.gradient))
    speeds = [np.linalg.norm(part) for part in np.split(v, [s.weights[0].size])]
    fastest = max(speeds)
    np.testing.assert_allclose(flat(choice.heading), v / fastest, atol=1e-8)
    # Its state is the quadratic model along the heading, without the damping.
    model = choice.state
    assert float(model.damping) == DAMPING
    assert float(model.slope) == pytest.approx(v @ flat(position.gradient) / fastest, rel=1e-8)
    assert float(model.curvature) == pytest.approx(v @ curved @ v / fastest**2, rel=1e-6)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("residual", thinned((0.1, 0.5, 1e-3), 3))
def test_the_solve_stops_at_its_residual_and_not_earlier(residual):
    s = small(6, activation="tanh", rows=20)
    problem = s.problem()
    position, _, choice = run(GaussNewton(residual, 500), problem, s.weights, steps=0)[0]
    products = int(choice.products)
    assert 1 <= products < 500

    def relative_residual(max_products):
        """‖(JᵀHJ + λ)v + ∇‖ / ‖∇‖; the length of v comes from the slope and the curvature."""
        choice = choose(
            GaussNewton(1e-15, max_products), position, GaussNewton().init(position.weights)
        )
        heading, model = flat(choice.heading), choice.state
        scale = np.concatenate(
            [np.full(w.size, m) for w, m in zip(s.weights, s.radii, strict=True)]
        )
        image = scale * (dense(problem, s.weights) @ (scale * heading))
        image = (
            flat(sphere.project(position.weights, _like(position.weights, image), position.radii))
            + DAMPING * heading
        )
        # Conjugate gradients make the residual orthogonal to v, so v has the length that minimises
        # the model.
        length = -float(model.slope) / (float(model.curvature) + DAMPING * heading @ heading)
        gradient = flat(position.gradient)
        return np.linalg.norm(length * image + gradient) / np.linalg.norm(gradient)

    assert relative_residual(products) <= residual * (1 + 1e-9)
    if products > 1:
        assert relative_residual(products - 1) > residual


def _like(packed, vector):
    sizes = np.cumsum([np.prod(shape) for shape in packed.shapes])[:-1]
    parts = [p.reshape(s) for p, s in zip(np.split(vector, sizes), packed.shapes, strict=True)]
    return sphere.pack(tuple(map(jnp.asarray, parts)))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("direction", [GaussNewton(), Kronecker()], ids=str)
@pytest.mark.parametrize(
    ("ratio", "factors"), [(0.1, (3.0, 1.1)), (0.5, (1.0, 1.0)), (0.9, (0.4, 0.95))]
)
def test_damping_follows_how_well_the_model_predicted(direction, ratio, factors):
    """Bad below a quarter of the predicted decrease, good above three quarters of it."""
    s = small(1, activation="tanh")
    position, state, _ = run(direction, s.problem(), s.weights)[1]
    is_kronecker = isinstance(direction, Kronecker)
    model = state.model if is_kronecker else state
    model = model._replace(
        damping=jnp.asarray(0.3), slope=jnp.asarray(-2.0), curvature=jnp.asarray(4.0)
    )
    angle = float(position.angle)
    predicted = 2 * angle - 2 * angle**2
    position = replace(position, decrease=jnp.asarray(ratio * predicted))
    state = state._replace(model=model) if is_kronecker else model
    after = choose(direction, position, state).state
    after = after.model if is_kronecker else after
    assert float(after.damping) == pytest.approx(0.3 * factors[is_kronecker], rel=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("direction", [GaussNewton(), Kronecker()], ids=str)
def test_damping_starts_unchanged_and_never_vanishes(direction):
    s = small(1, activation="tanh")
    (_, start, first), (there, state, _) = run(direction, s.problem(), s.weights)

    def model(m):
        return m.model if isinstance(direction, Kronecker) else m

    def with_model(m, **changes):
        new = model(m)._replace(**changes)
        return m._replace(model=new) if isinstance(direction, Kronecker) else new

    assert float(model(first.state).damping) == float(model(start).damping)
    tiny = with_model(state, damping=jnp.asarray(1e-300))
    there = replace(there, decrease=jnp.asarray(1e9))
    floor = 10 * np.finfo(np.float64).eps
    assert float(model(choose(direction, there, tiny).state).damping) == pytest.approx(floor)


@pytest.mark.parametrize(("fraction", "used"), [(1.0, 1.0), (0.3, 1 / 3)])
def test_products_are_counted(fraction, used):
    s = small(1, activation="tanh", rows=7)
    direction = GaussNewton(residual=1e-9, max_products=3, fraction=fraction)
    result = descend(s.problem(), s.weights, direction=direction, stop=stopping.MaxIter(4))
    assert [r.products for r in result.records] == pytest.approx([3 * used] * 4)
    assert result.evaluations.products == pytest.approx(5 * 3 * used)


def test_the_number_of_products_is_the_number_that_ran():
    calls = []

    class Counted:
        def __init__(self, s):
            self.s, self.X, self.Y = s, jnp.asarray(s.X), jnp.asarray(s.Y)

        def outputs(self, weights):
            return self.s.network.apply(weights, self.X)

        def loss_of(self, outputs):
            return 0.5 * jnp.mean(jnp.sum((watched(outputs) - self.Y) ** 2, axis=1))

        def loss(self, weights):
            return 0.5 * jnp.mean(jnp.sum((self.outputs(weights) - self.Y) ** 2, axis=1))

    @jax.custom_jvp
    def watched(outputs):
        return outputs

    @watched.defjvp
    def watch(primals, tangents):
        # Called once for each derivative of the loss of the outputs along a direction.
        return watched(*primals), counted(*tangents)

    @jax.custom_jvp
    def counted(tangent):
        return tangent

    @counted.defjvp
    def count(primals, tangents):
        return counted(*primals), tangents[0]

    s = small(1, activation="tanh")
    with jax.enable_x64(True):
        problem = Counted(s)

    def product(self, *arguments, inner=FunctionObjective.gauss_newton):
        multiply, fraction = inner(self, *arguments)

        def with_count(velocity):
            jax.debug.callback(lambda: calls.append(1))
            return multiply(velocity)

        return with_count, fraction

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FunctionObjective, "gauss_newton", product)
        result = descend(problem, s.weights, direction=GaussNewton(), stop=stopping.MaxIter(4))
        jax.effects_barrier()
    assert len(calls) == result.evaluations.products > 0


@pytest.mark.parametrize("loss", thinned(LOSS_NAMES, 2))
def test_a_users_object_gives_the_same_run_as_the_problem(loss):
    s = small(3, activation="tanh", loss=loss, bias=True)
    problem = s.problem()

    ours, theirs = (
        descend(p, s.weights, direction=GaussNewton(), stop=stopping.MaxIter(5))
        for p in (problem, Same(problem))
    )
    assert ours.history["products"].min() >= 1
    np.testing.assert_array_equal(ours.history["products"], theirs.history["products"])
    np.testing.assert_allclose(ours.history["angle"], theirs.history["angle"], rtol=1e-7)
    for a, b in zip(ours.weights, theirs.weights, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8)


class OnlyLoss:
    def loss(self, weights):
        return jnp.sum(weights[0])


class NoLossOf(OnlyLoss):
    def outputs(self, weights):
        return weights[0]


class Complete(NoLossOf):
    def loss_of(self, outputs):
        return jnp.sum(outputs)


@pytest.mark.parametrize(("user", "missing"), [(OnlyLoss(), "outputs"), (NoLossOf(), "loss_of")])
def test_gauss_newton_names_the_missing_method(user, missing):
    with pytest.raises(TypeError, match=rf"{type(user).__name__} has no {missing}: add it"):
        descend(user, (np.eye(2),), direction=GaussNewton())


def test_kronecker_and_majorant_steepest_need_a_network():
    with pytest.raises(TypeError, match=r"MajorantSteepest needs a Problem.*RiemannianGradient"):
        descend(Complete(), (np.eye(2),), direction=MajorantSteepest())
    with pytest.raises(TypeError, match=r"Kronecker needs a Problem.*ConjugateGradient"):
        descend(Complete(), (np.eye(2),), direction=Kronecker())


@unless_types_are_checked
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConjugateGradient("fletcher"), "beta is 'fletcher'"),
        (lambda: GaussNewton(residual=0), "residual is 0"),
        (lambda: GaussNewton(residual=1), "residual is 1"),
        (lambda: GaussNewton(max_products=0), "max_products is 0"),
        (lambda: GaussNewton(max_products=2.5), "max_products is 2.5"),
        (lambda: ConjugateGradient(PolakRibiere), "beta is <class"),
        (lambda: GaussNewton(fraction=0), "fraction is 0"),
        (lambda: GaussNewton(fraction=1.5), "fraction is 1.5"),
        (lambda: Kronecker(sample=0), "sample is 0"),
        (lambda: Kronecker(sample=0.5), "sample is 0.5"),
    ],
)
def test_invalid_arguments_are_rejected(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# Kronecker


def weighted(seed, loss, bias):
    """Return a problem with sample weights, the first of them zero, and the weights, normalised."""
    s = small(seed, activation="tanh", loss=loss, bias=bias)
    weight = np.arange(len(s.X), dtype=float)
    problem = Problem(s.network, s.X, s.Y, loss=loss, sample_weight=weight, dtype=np.float64)
    return s, problem, weight / weight.sum()


def factors(s, problem, sample_weight, weights):
    """Return the oracle's Kronecker factors."""
    return oracle.kronecker_factors(
        weights,
        s.X,
        s.Y,
        "tanh",
        s.loss,
        bias=s.network.bias,
        sample_weight=sample_weight,
        unit=float(problem.unit),
    )


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bias", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_kronecker_factors_agree_with_the_oracle(loss, bias):
    s, problem, sample_weight = weighted(2, loss, bias)
    inputs, slopes = map(np.asarray, problem.kronecker(position_at(problem, s.weights).cache))
    expected = factors(s, problem, sample_weight, s.weights)
    for ours, theirs in zip((inputs, slopes), expected, strict=True):
        for stack, matrix in zip(ours, theirs, strict=True):
            n = len(matrix)
            np.testing.assert_allclose(stack[:n, :n], matrix, rtol=1e-10, atol=1e-14)
            assert np.all(stack[n:] == 0)
            assert np.all(stack[:, n:] == 0)


def oracle_natural(s, problem, sample_weight, position, damping, factor=None):
    inputs, slopes = factor or factors(s, problem, sample_weight, matrices(position.weights))
    layers = zip(
        matrices(position.weights),
        matrices(position.gradient),
        s.radii,
        inputs,
        slopes,
        strict=True,
    )
    return [oracle.natural_gradient(*layer, damping) for layer in layers]


def model_minimiser(s, problem, position, span, damping):
    """Return the minimiser of the damped Gauss-Newton model in a span, and its coordinates."""
    span = np.stack([np.concatenate([v.ravel() for v in d]) for d in span], axis=1)
    scale = np.concatenate([np.full(w.size, mu) for w, mu in zip(s.weights, s.radii, strict=True)])
    curved = scale[:, None] * dense(problem, matrices(position.weights)) * scale
    curved += damping * np.eye(len(scale))
    model = span.T @ curved @ span
    model += kronecker.REGULARISATION * np.diag(np.diag(model))
    c = np.linalg.solve(model, -span.T @ flat(position.gradient))
    return span @ c, c


def assert_heading_is(choice, position, v):
    """Compare the heading with v, up to the length of v."""
    largest = np.max(sphere.norm(_like(position.weights, v)))
    np.testing.assert_allclose(flat(choice.heading), v / largest, rtol=1e-7, atol=1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bias", [False, True])
def test_the_first_heading_combines_natural_gradient_and_gradient(bias):
    s, problem, sample_weight = weighted(3, "squared", bias)
    position, state, choice = run(Kronecker(), problem, s.weights, steps=0)[0]
    damping = float(state.model.damping)
    natural = oracle_natural(s, problem, sample_weight, position, damping)
    v, c = model_minimiser(s, problem, position, (natural, matrices(position.gradient)), damping)
    assert c[0] > 0.1
    assert_heading_is(choice, position, v)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bias", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("loss", thinned(LOSS_NAMES, 2))
def test_kronecker_minimises_the_model_in_its_span(loss, bias):
    """The model is the damped Gauss-Newton model; the factors are averages over all points."""
    s, problem, sample_weight = weighted(3, loss, bias)
    visited = run(Kronecker(), problem, s.weights, steps=2)
    position, _, choice = visited[-1]
    damping = float(choice.state.model.damping)
    each = [factors(s, problem, sample_weight, matrices(p.weights)) for p, _, _ in visited]
    mean = [[sum(f) / 3 for f in zip(*layers, strict=True)] for layers in zip(*each, strict=True)]
    natural = oracle_natural(s, problem, sample_weight, position, damping, mean)

    def transported(end, directions):
        layers = zip(
            matrices(end.arc.weights),
            matrices(end.arc.heading),
            s.radii,
            [float(end.angle)] * len(s.radii),
            directions,
            strict=True,
        )
        return [oracle.transport(*layer) for layer in layers]

    # Directions before they were scaled to headings.
    unscaled = [replace(p.weights, rows=v.state.last_directions.rows[0]) for p, _, v in visited]
    second_last = transported(position, transported(visited[1][0], matrices(unscaled[0])))
    span = (
        natural,
        transported(position, matrices(unscaled[1])),
        second_last,
        matrices(position.gradient),
    )
    v, c = model_minimiser(s, problem, position, span, damping)
    assert np.all(np.abs(c[:3]) > 1e-3)  # all of them contribute
    np.testing.assert_allclose(flat(unscaled[2]), v, rtol=1e-6, atol=1e-9)
    assert_heading_is(choice, position, v)


@pytest.mark.usefixtures("x64")
def test_kronecker_uses_a_sample_and_the_gradient_all_rows():
    """Factors and model are those of every second row; the slope is that of all rows."""
    s, problem, _ = weighted(3, "squared", True)
    position, state, choice = run(Kronecker(sample=3), problem, s.weights, steps=0)[0]
    assert len(s.X) == 7
    rows = slice(0, 7, 2)
    weight = np.asarray(problem.rows.sample_weight)[rows]
    half = Problem(s.network, s.X[rows], s.Y[rows], sample_weight=weight, dtype=np.float64)
    half = half.with_unit(problem.unit)
    for ours, theirs in zip(
        choice.state[:2],
        half.kronecker(half.cache_at(sphere.unpack(position.weights))),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-14)
    damping = float(state.model.damping)
    some = replace(s, X=s.X[rows], Y=s.Y[rows])
    natural = oracle_natural(some, half, weight / weight.sum(), position, damping)
    v, _ = model_minimiser(s, half, position, (natural, matrices(position.gradient)), damping)
    assert_heading_is(choice, position, v)
    slope = float(choice.state.model.slope)
    assert slope == pytest.approx(flat(choice.heading) @ flat(position.gradient), rel=1e-7)
    np.testing.assert_allclose(
        flat(position.gradient), flat(position_at(problem, s.weights).gradient), rtol=1e-12
    )


def test_linearly_dependent_directions_are_allowed():
    """The last direction may be zero, or equal to the gradient."""
    a = np.array([[2.0, 2.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    c = np.asarray(kronecker._minimiser(jnp.asarray(a, np.float32), jnp.array([-1.0, -1.0, 0.0])))
    np.testing.assert_allclose(c, [0.25, 0.25, 0], rtol=1e-3)


@pytest.mark.usefixtures("x64")
def test_kronecker_factors_are_moving_averages():
    """The mean of all points at first; later a tenth of the newest."""
    s, problem, _ = weighted(3, "squared", False)
    visited = run(Kronecker(), problem, s.weights, steps=11)
    expected = None
    for k, (position, _, choice) in enumerate(visited):
        new = problem.kronecker(position.cache)
        decay = min(k / (k + 1), 0.9)
        expected = (
            new
            if expected is None
            else [decay * a + (1 - decay) * b for a, b in zip(expected, new, strict=True)]
        )
        for ours, theirs in zip(choice.state[:2], expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-15)


def test_kronecker_works_with_a_layer_of_inactive_units():
    """All relu units are zero, so only the bias of the output has a gradient."""
    network = Network((2, 3, 1), bias=True)
    weights = (np.vstack([np.zeros((2, 3)), -np.ones((1, 3))]), np.array([[0.1, 0.2, 0.3, 0.4]]).T)
    x = np.linspace(-0.5, 0.5, 8).reshape(-1, 2)
    problem = Problem(network, x, np.full((4, 1), 0.1))
    result = descend(problem, weights, direction=Kronecker(), stop=stopping.MaxIter(5))
    assert result.records
    assert result.loss < result.initial_loss
    np.testing.assert_allclose(result.weights[0], weights[0], atol=1e-6)


# Directions for small batches


FOR_SMALL_BATCHES = (Soap(), Muon(), KroneckerMomentum())
SIDES = ((5, 3), (4, 4), (3, 5), (2, 1))


def random_gradients(shapes, steps, seed=0):
    """Yield gradients of successive batches: a common part, and noise of another scale each."""
    rng = np.random.default_rng(seed)
    common = [rng.standard_normal(shape) for shape in shapes]
    for _ in range(steps):
        scale = 10 ** rng.uniform(-3, 3)
        yield tuple(scale * (c + 2 * rng.standard_normal(c.shape)) for c in common)


def follow(direction, shapes, gradients, angle=0.02):
    """Take steps with given gradients; yield position and choice of each."""
    weights = sphere.random_points(np.random.default_rng(1), shapes, 1.5, np.float64)
    objective = function_objective(OnlyLoss(), np.dtype(np.float64))
    position = position_at(objective, weights)
    state = direction.init(position.weights)
    for each in gradients:
        gradient = sphere.pack(tuple(map(jnp.asarray, each)))
        tangent = sphere.project(position.weights, gradient, position.radii)
        position = replace(position, gradient=tangent)
        choice = choose(direction, position, state)
        yield position, choice
        arc, state = Arc(position.weights, choice.heading, position.radii), choice.state
        position = replace(position, weights=arc.point(angle), arc=arc)


def assert_speeds_are_one(position, choice):
    np.testing.assert_allclose(sphere.inner(position.weights, choice.heading), 0, atol=1e-14)
    np.testing.assert_allclose(sphere.norm(choice.heading), 1, rtol=1e-14)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("shapes", [SIDES, ((4, 4), (3, 3))], ids=str)
def test_soap_agrees_with_the_oracle_step_by_step(shapes):
    plain = [oracle.Soap(shape) for shape in shapes]
    steps = 3 * oracle.REFRESH + 3
    for k, (position, choice) in enumerate(follow(Soap(), shapes, random_gradients(shapes, steps))):
        assert_speeds_are_one(position, choice)
        layers = list(zip(matrices(position.weights), matrices(position.gradient), strict=True))
        for i, (layer, (w, g)) in enumerate(zip(plain, layers, strict=True)):
            if k % oracle.REFRESH == 0:
                layer.refresh(w, g)
            if k == 0:
                adopt_first_bases(layer, choice.state.sides[2 * i : 2 * i + 2])
            heading = layer.heading(w, g)
            # Rounding alone decides the entries of the first heading where one gradient, whose
            # rank is at most the shorter side, is zero.
            if k > 0 or len(set(w.shape)) == 1:
                found = matrices(choice.heading)[i]
                np.testing.assert_allclose(found, heading, rtol=1e-6, atol=1e-8)
    assert int(choice.state.steps) == steps


@pytest.mark.usefixtures("x64")
def test_muon_agrees_with_the_oracle_step_by_step():
    plain = [oracle.Muon(shape) for shape in SIDES]
    for position, choice in follow(Muon(), SIDES, random_gradients(SIDES, 12)):
        assert_speeds_are_one(position, choice)
        layers = zip(plain, matrices(position.weights), matrices(position.gradient), strict=True)
        for (layer, w, g), heading in zip(layers, matrices(choice.heading), strict=True):
            np.testing.assert_allclose(layer.heading(w, g), heading, rtol=1e-8, atol=1e-10)


def adopt_first_bases(layer, sides):
    """Let the oracle continue with the first bases of the library, after checking them.

    The factor of one gradient is singular on the longer side, so rounding decides its basis.
    """
    for i, side in enumerate(sides):
        factor, basis = np.asarray(side.factor), np.asarray(side.basis)
        np.testing.assert_allclose(factor, layer.factors[i], rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(basis.T @ basis, np.eye(len(basis)), atol=1e-13)
        np.testing.assert_allclose(np.tril(basis.T @ layer.shifted(i), -1), 0, atol=1e-14)
        layer.bases[i] = basis


@pytest.mark.usefixtures("x64")
def test_bases_of_soap_approach_the_eigenvectors_of_its_factors():
    shapes = ((7, 7), (6, 4))
    rng = np.random.default_rng(2)
    left, right = (
        [np.diag(0.4 ** np.arange(n)) for n in side] for side in zip(*shapes, strict=True)
    )
    turns = [np.linalg.qr(rng.standard_normal((len(m), len(m))))[0] for m in left]
    noise = (
        tuple(
            q @ a @ rng.standard_normal(shape) @ b
            for q, a, b, shape in zip(turns, left, right, shapes, strict=True)
        )
        for _ in range(40 * oracle.REFRESH)
    )
    *_, (_, choice) = follow(Soap(), shapes, noise, angle=1e-4)
    for side in choice.state.sides:
        factor, basis = np.asarray(side.factor), np.asarray(side.basis)
        np.testing.assert_allclose(basis.T @ basis, np.eye(len(basis)), atol=1e-12)
        rotated = basis.T @ factor @ basis
        size = np.sqrt(np.diag(rotated))
        correlation = rotated / np.outer(size, size) - np.eye(len(size))
        before = factor / np.sqrt(np.outer(np.diag(factor), np.diag(factor)))
        assert np.linalg.norm(correlation) < 0.5 * np.linalg.norm(before - np.eye(len(size)))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bias", [False, True])
def test_kronecker_momentum_agrees_with_the_oracle_step_by_step(bias):
    """On a batch of other rows in each step."""
    s = small(2, activation="tanh", bias=bias)
    rng, direction = np.random.default_rng(0), KroneckerMomentum()
    plain = [oracle.KroneckerMomentum(w.shape) for w in s.weights]
    weights, state, last = s.weights, direction.init(sphere.pack(s.weights)), None
    for k in range(2 * oracle.REFRESH + 3):
        x, y = rng.standard_normal(s.X.shape), rng.standard_normal(s.Y.shape)
        problem = Problem(s.network, x, y, dtype=np.float64).with_unit(s.problem().unit)
        position = position_at(problem, weights)
        choice = choose(direction, position, state)
        assert_speeds_are_one(position, choice)
        rows = replace(s, X=x, Y=y)
        share = np.full(len(x), 1 / len(x))
        moments = factors(rows, problem, share, weights)
        gradients = oracle.gradient(weights, x, y, "tanh", "squared", bias)
        found = matrices(choice.heading)
        layers = zip(plain, weights, gradients, *moments, found, strict=True)
        for layer, w, g, inputs, slopes, ours in layers:
            if k % oracle.REFRESH == 0:
                layer.refresh(inputs, slopes)
            tangent = oracle.project(w, g, np.linalg.norm(w))
            np.testing.assert_allclose(ours, layer.heading(w, tangent), rtol=1e-8, atol=1e-10)
        assert last is None or np.max(np.abs(flat(choice.heading) - last)) > 1e-3
        state, last = choice.state, flat(choice.heading)
        weights = oracle.turn_all(weights, found, s.radii, 0.02)
        weights = [w * (r / np.linalg.norm(w)) for w, r in zip(weights, s.radii, strict=True)]
    assert int(state.steps) == 2 * oracle.REFRESH + 3


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("direction", FOR_SMALL_BATCHES, ids=str)
def test_every_batch_counts_alike(direction):
    """Neither the unit of the loss nor the sizes of single gradients have an influence."""
    network = Network((4, 4, 4, 4), "tanh")  # with square layers, rounding decides nothing
    rng = np.random.default_rng(0)
    weights = network.initial_weights(rng, dtype=np.float64)
    batches = [
        Problem(network, x, x[:, ::-1] + rng.standard_normal((20, 4)), dtype=np.float64)
        for x in rng.standard_normal((oracle.REFRESH + 3, 20, 4))
    ]

    def headings(unit, sizes):
        state, found = direction.init(position_at(batches[0], weights).weights), []
        for problem, size in zip(batches, sizes, strict=True):
            position = position_at(problem.with_unit(jnp.asarray(unit)), weights)
            position = replace(position, gradient=sphere.scale(position.gradient, size))
            choice = choose(direction, position, state)
            state = choice.state
            found.append(flat(choice.heading))
        return found

    ones, sizes = np.ones(len(batches)), 10 ** rng.uniform(-6, 6, len(batches))
    expected = headings(1.0, ones)
    for others in (headings(1e-3, ones), headings(1.0, sizes)):
        np.testing.assert_allclose(others, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("direction", FOR_SMALL_BATCHES, ids=str)
def test_headings_of_small_batches_lead_downhill_at_first_and_remember_later(direction):
    s = small(1, activation="tanh", rows=20)
    (first, state, choice), (second, later, again) = run(direction, s.problem(), s.weights)
    assert_speeds_are_one(first, choice)
    assert_speeds_are_one(second, again)
    for g, v in zip(matrices(first.gradient), matrices(choice.heading), strict=True):
        assert np.sum(g * v) < 0
    forgetful = choose(direction, second, state)
    assert np.max(np.abs(flat(again.heading) - flat(forgetful.heading))) > 1e-3
    if not isinstance(direction, Muon):  # which counts no steps
        assert int(again.state.steps) == int(later.steps) + 1 == 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("direction", FOR_SMALL_BATCHES, ids=str)
def test_a_zero_gradient_of_a_small_batch_gives_a_zero_heading(direction, dtype):
    """At the start; later the mean of earlier batches decides. Never NaN."""
    s = small(1, activation="tanh")
    with precision(dtype):
        problem = s.problem(dtype)
        fitted = Problem(s.network, s.X, problem.outputs(s.weights), dtype=dtype)
        weights = tuple(w.astype(dtype) for w in s.weights)
        position = position_at(fitted, weights)
        position = replace(position, gradient=sphere.scale(position.gradient, 0.0))
        choice = choose(direction, position, direction.init(position.weights))
        np.testing.assert_array_equal(flat(choice.heading), 0)
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(choice.state))
        usual = choose(direction, position_at(problem, weights), choice.state)
        np.testing.assert_allclose(sphere.norm(usual.heading), 1, rtol=1e-5)
        after = choose(direction, position, usual.state)
        assert np.all(np.isfinite(flat(after.heading)))


@pytest.mark.usefixtures("x64")
def test_a_layer_without_a_gradient_stays():
    """All of its units are inactive."""
    network = Network((2, 3, 1), bias=True)
    weights = (np.vstack([np.zeros((2, 3)), -np.ones((1, 3))]), np.array([[0.1, 0.2, 0.3, 0.4]]).T)
    problem = Problem(network, np.eye(4, 2), np.full((4, 1), 0.1), dtype=np.float64)
    for direction in FOR_SMALL_BATCHES:
        for _, _, choice in run(direction, problem, weights, steps=oracle.REFRESH + 1):
            first, last = matrices(choice.heading)
            np.testing.assert_array_equal(first, 0)
            assert np.linalg.norm(last) == pytest.approx(1)


def test_kronecker_momentum_needs_layers():
    objective = function_objective(OnlyLoss(), np.dtype(np.float32))
    Soap().check(objective)
    with pytest.raises(TypeError, match=r"KroneckerMomentum needs a Problem.*directions\.Soap"):
        KroneckerMomentum().check(objective)


def test_bases_of_wide_layers_are_refreshed_less_often():
    """The shorter side of a layer decides; the widest layer decides for all."""
    assert refresh_interval(((3, 5), (2000, 4))) == oracle.REFRESH
    narrow, wide, wider = (refresh_interval(((9, 5), (n, n + 1))) for n in (100, 512, 1024))
    assert narrow == oracle.REFRESH < wide
    assert wider == 2 * wide


@given(st.lists(st.integers(1, 300), min_size=1, max_size=20))
def test_sides_of_similar_size_share_a_loop(sizes):
    groups = of_similar_size(sizes)
    assert sorted(i for group in groups for i in group) == list(range(len(sizes)))
    for group in groups:
        assert 2 * min(sizes[i] for i in group) >= max(sizes[i] for i in group)
    largest = [max(sizes[i] for i in group) for group in groups]
    assert all(2 * b < a for a, b in pairwise(largest))


# The automatic choice


def test_the_automatic_choice_depends_on_the_objective():
    rng = np.random.default_rng(0)

    def problem(rows, width):
        network = Network((3, width, 1))
        return Problem(network, rng.standard_normal((rows, 3)), rng.standard_normal((rows, 1)))

    assert automatic(problem(500, 10)) == Kronecker()
    assert automatic(problem(5, 600)) == GaussNewton()
    dtype = np.dtype(np.float32)
    assert automatic(function_objective(Complete(), dtype)) == GaussNewton()
    assert automatic(function_objective(NoLossOf(), dtype)) == ConjugateGradient()
    assert automatic(function_objective(OnlyLoss(), dtype)) == ConjugateGradient()


def test_descend_uses_the_automatic_direction():
    s = small(0, rows=40)
    assert automatic(s.problem()) == Kronecker()
    by_default, named = (
        descend(s.problem(), s.weights, direction=d, stop=stopping.MaxIter(4))
        for d in (None, Kronecker())
    )
    for a, b in zip(by_default.weights, named.weights, strict=True):
        np.testing.assert_array_equal(a, b)


LAPACK = ("cholesky", "triangular_solve", "eigh", "eigvalsh", "svd", "lu", "qr")


def lapack_calls(jaxpr):
    """Yield name and largest number of dimensions of each call, also in inner programs."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in LAPACK:
            yield equation.primitive.name, max(v.aval.ndim for v in equation.invars)
        inner = jax.tree.leaves(
            list(equation.params.values()),
            is_leaf=lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr"),
        )
        for program in inner:
            program = getattr(program, "jaxpr", program)
            if hasattr(program, "eqns"):
                yield from lapack_calls(program)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "step", [Curvature(), Majorant(), DataMajorant(), SmoothMajorant()], ids=str
)
@pytest.mark.parametrize(
    "direction", [Kronecker(), MajorantSteepest(), *FOR_SMALL_BATCHES], ids=str
)
def test_lapack_never_sees_a_stack(direction, step):
    """Two calls on stacks at once can deadlock: `gains.py` says why."""
    s = small(0, depth=3, activation="tanh")
    problem = s.problem()

    def iterate(problem, weights):
        position = position_at(problem, weights)
        choice = direction.choose(position, direction.init(position.weights))
        arc = Arc(position.weights, choice.heading, position.radii)
        loss, cache = problem.forward(weights)
        gradient, cache = problem.backward(weights, cache)
        gradient = sphere.pack(gradient)
        start = ArcStart(problem, arc, gradient, cache, loss, arcs.slope(arc, gradient))
        return step.propose(start), choice

    program = jax.make_jaxpr(iterate)(problem, tuple(map(jnp.asarray, s.weights)))
    calls = list(lapack_calls(program.jaxpr))
    assert calls or (isinstance(direction, Steepest | Muon) and isinstance(step, Curvature))
    assert all(dimensions <= 2 for _, dimensions in calls)
