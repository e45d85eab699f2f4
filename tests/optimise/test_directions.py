"""Directions one by one: against slow oracles, and what all of them promise."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracle
from greatcircle import Network, Problem, descend, losses, sphere, stopping
from greatcircle.objective.objective import Custom
from greatcircle.optimise.arc import Arc
from greatcircle.optimise.directions import (
    ConjugateGradient,
    GaussNewton,
    Kronecker,
    Place,
    Steepest,
    automatic,
    kronecker,
)
from greatcircle.optimise.directions.gauss_newton import DAMPING
from greatcircle.optimise.loop import nowhere, visit_point
from greatcircle.optimise.steps import Curvature, DataMajorant, Majorant, SmoothMajorant
from small import LOSS_NAMES, small, thinned

DIRECTIONS = (
    Steepest(),
    Steepest("gradient"),
    Steepest("trust"),
    ConjugateGradient(),
    ConjugateGradient("hager-zhang"),
    GaussNewton(),
    Kronecker(),
    Kronecker(sample=3),
)


@jax.jit
def place(objective, weights, way=None, angle=0.0, decrease=jnp.inf):
    """A point that the loop has reached along `way`; by default the start."""
    packed = sphere.pack(tuple(map(jnp.asarray, weights)))
    radii = sphere.norm(packed)
    _, left = objective.forward(sphere.unpack(packed))
    gradient, left = objective.backward(sphere.unpack(packed), left)
    tangent = sphere.project(packed, sphere.pack(gradient), radii)
    way = way or Arc(packed, sphere.scale(packed, 0.0), radii)
    angle = jnp.asarray(angle, radii.dtype)
    gradient = sphere.scale(tangent, radii)
    decrease = jnp.asarray(decrease, radii.dtype)
    return Place(
        objective=objective,
        weights=packed,
        gradient=gradient,
        left=left,
        radii=radii,
        way=way,
        angle=angle,
        decrease=decrease,
    )


@partial(jax.jit, static_argnames="direction")
def choose(direction, here, memory):
    return direction.choose(here, memory)


def chosen_after(direction, problem, weights, turns=1, angle=0.05):
    """What the direction chooses at the start, and after each of some turns."""
    here = place(problem, weights)
    memory, seen = direction.start(here.weights), []
    for k in range(turns + 1):
        chosen = choose(direction, here, memory)
        seen.append((here, memory, chosen))
        if k < turns:
            way, memory = Arc(here.weights, chosen.heading, here.radii), chosen.memory
            here = place(problem, sphere.unpack(way.point(angle)), way, angle, 0.01)
    return seen


def matrices(tree):
    return [np.asarray(m) for m in jax.tree.leaves(sphere.unpack(tree))]


def flat(tree):
    return np.concatenate([m.ravel() for m in matrices(tree)])


# What all of them promise


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bias", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("direction", DIRECTIONS, ids=str)
def test_headings_are_tangent_downhill_and_the_fastest_layer_has_speed_one(direction, bias):
    s = small(1, activation="tanh", bias=bias)
    for here, _, chosen in chosen_after(direction, s.problem(), s.weights, turns=2):
        np.testing.assert_allclose(sphere.inner(here.weights, chosen.heading), 0, atol=1e-14)
        speeds = sphere.norm(chosen.heading)
        assert float(jnp.max(speeds)) == pytest.approx(1, rel=1e-14)
        assert float(sphere.dot(here.gradient, chosen.heading)) < 0


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("direction", DIRECTIONS, ids=str)
def test_zero_gradient_gives_zero_heading(direction):
    """At the start, and with something to remember."""
    s = small(1, activation="tanh")
    problem = s.problem()
    fitted = Problem(s.network, s.X, problem.outputs(s.weights), dtype=np.float64)
    here = place(fitted, s.weights)
    assert float(sphere.dot(here.gradient, here.gradient)) == 0
    _, memory, _ = chosen_after(direction, problem, s.weights)[1]
    for remembered in (direction.start(here.weights), memory):
        chosen = choose(direction, here, remembered)
        np.testing.assert_array_equal(flat(chosen.heading), 0)
        assert all(np.all(np.isfinite(leaf)) for leaf in map(np.asarray, [chosen.products]))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bias", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("direction", DIRECTIONS, ids=str)
def test_no_heading_depends_on_how_the_radii_are_shared_out(direction, bias):
    """Relu: a factor on a layer comes out at the end, where the targets have it too."""
    s = small(5, depth=3, rows=12)
    c = 3.0
    here = chosen_after(direction, s.problem(), s.weights, turns=2)
    moved = (s.weights[0] * c, s.weights[1], s.weights[2] / c)
    scaled = (s.weights[0], s.weights[1] * c, s.weights[2])
    louder = Problem(s.network, s.X, s.Y * c, dtype=np.float64)
    for problem, weights in ((s.problem(), moved), (louder, scaled)):
        there = chosen_after(direction, problem, weights, turns=2)
        for (_, _, a), (_, _, b) in zip(here, there, strict=True):
            np.testing.assert_allclose(flat(a.heading), flat(b.heading), rtol=1e-7, atol=1e-9)


# Steepest


def test_steepest_has_unit_speed_and_leaves_dead_layers_alone():
    class Linear:
        def loss(self, weights):
            return jnp.sum(jnp.array([[0.0, 1.0], [2.0, 0.0]]) * weights[0]) + 0 * weights[1][0, 0]

    here = place(Custom(Linear(), np.dtype(np.float32)), (np.eye(2), np.eye(2)))
    for speed in ("unit", "gradient"):
        first, second = matrices(Steepest(speed).choose(here, ()).heading)
        np.testing.assert_allclose(first, -np.array([[0, 1], [2, 0]]) / np.sqrt(5), rtol=1e-6)
        np.testing.assert_array_equal(second, 0)


@pytest.mark.usefixtures("x64")
def test_speeds_of_steepest_are_the_gradients_per_radian():
    s = small(2)
    here = place(s.problem(), s.weights)
    unit = Steepest().choose(here, ()).heading
    np.testing.assert_allclose(sphere.norm(unit), 1, rtol=1e-14)
    graded = Steepest("gradient").choose(here, ()).heading
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
def test_trust_is_steepest_in_its_norm(bias):
    """No other speeds gain more for the same (Σ (k_i s_i)^q)^(1/q), q = 1.25."""
    s = small(2, activation="tanh", bias=bias)
    here = place(s.problem(), s.weights)
    heading = matrices(Steepest("trust").choose(here, ()).heading)
    speeds = np.array([np.linalg.norm(v) for v in heading])
    unit = matrices(Steepest().choose(here, ()).heading)
    for v, u, speed in zip(heading, unit, speeds, strict=True):
        np.testing.assert_allclose(v, speed * u, atol=1e-13)
    k, worth = [], [np.linalg.norm(g) for g in matrices(here.gradient)]
    for i, (u, mu) in enumerate(zip(unit, s.radii, strict=True)):
        seen = [oracle.layers_see(s.weights, x, "tanh", bias)[i] for x in s.X]
        rate = mu * np.sqrt(np.mean([np.sum((h @ u) ** 2) for h in seen]))
        k.append(rate * np.prod([oracle.operator_norm(w) for w in s.weights[i + 1 :]]))

    def gain(speeds):
        return (speeds @ worth) / np.sum((speeds * k) ** 1.25) ** (1 / 1.25)

    rng = np.random.default_rng(0)
    others = rng.uniform(0, 1, (2000, len(k)))
    near = speeds * (1 + 0.01 * rng.standard_normal((2000, len(k))))
    best = gain(speeds)
    assert all(gain(other) <= best * (1 + 1e-12) for other in (*others, *near))


# Conjugate gradients


@pytest.mark.parametrize("beta", ["polak-ribiere", "hager-zhang"])
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
    expected = slow(iterations=10, direction=beta)
    assert len(result.records) == len(expected) == 10
    for record, weights, theirs in zip(result.records, visited, expected, strict=True):
        assert record.slope == pytest.approx(theirs["slope"], rel=1e-7)
        assert record.angle == pytest.approx(theirs["angle"], rel=1e-7)
        for a, b in zip(weights, theirs["weights"], strict=True):
            np.testing.assert_allclose(a, b, atol=1e-8)
    plain = slow(iterations=3)
    assert expected[2]["slope"] != pytest.approx(plain[2]["slope"], rel=1e-3)


@pytest.mark.usefixtures("x64")
def test_conjugate_gradients_restart_where_they_would_not_lead_downhill():
    """Polak-Ribière only: Hager's and Zhang's β leads downhill by itself."""
    s = small(2, activation="tanh")
    direction = ConjugateGradient()
    here, memory, _ = chosen_after(direction, s.problem(), s.weights)[1]
    steepest = Steepest("gradient").choose(here, ()).heading
    # A last direction along the gradient, longer than any: the sum leads uphill.
    uphill = sphere.project(here.way.weights, here.gradient, here.radii)
    memory = memory._replace(gradient=sphere.scale(uphill, 1e-3), way=sphere.scale(uphill, 1e6))
    chosen = choose(direction, here, memory)
    np.testing.assert_allclose(flat(chosen.heading), flat(steepest), rtol=1e-12)
    np.testing.assert_allclose(flat(chosen.memory.way), -flat(here.gradient), rtol=1e-12)


# Gauss-Newton


def dense(problem, weights, rows=slice(None)):
    """JᵀHJ of the loss in the loop's units, from some rows that stand for all."""
    x, y = problem.inputs[rows], problem.targets[rows]
    share = problem.share[rows] / jnp.sum(problem.share[rows])

    def outputs(w):
        return problem.network.apply(w, x).ravel()

    def loss(f):
        lost = losses.of_columns(problem.criterion, f.reshape(y.shape).T, y.T)
        return share @ lost / problem.unit

    weights = tuple(map(jnp.asarray, weights))
    jacobian = jax.jacobian(outputs)(weights)
    J = jnp.concatenate([j.reshape(len(j), -1) for j in jacobian], axis=1)
    H = jax.hessian(loss)(outputs(weights))
    return np.asarray(J.T @ H @ J)


class Same:
    """A user's object that is the problem, in the units that one has inside the loop."""

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
def test_products_are_those_of_the_dense_matrix(loss, bias):
    s = small(4, activation="tanh", loss=loss, bias=bias)
    weight = np.arange(1.0, len(s.X) + 1)
    problem = Problem(s.network, s.X, s.Y, loss=loss, sample_weight=weight, dtype=np.float64)
    here = place(problem, s.weights)
    rng = np.random.default_rng(0)
    velocity = tuple(jnp.asarray(rng.standard_normal(w.shape)) for w in s.weights)

    expected = dense(problem, s.weights) @ flat(velocity)
    for objective in (problem, Custom(Same(problem), np.dtype(np.float64))):
        product, share = objective.linearised(sphere.unpack(here.weights), here.left)
        assert share == 1
        np.testing.assert_allclose(flat(product(velocity)), expected, rtol=1e-10, atol=1e-13)


@pytest.mark.usefixtures("x64")
def test_a_share_of_the_rows_is_every_so_many_of_them_and_takes_turns():
    s = small(4, activation="tanh", rows=7)
    weight = np.arange(1.0, 8)
    problem = Problem(s.network, s.X, s.Y, sample_weight=weight, dtype=np.float64)
    here = place(problem, s.weights)
    velocity = tuple(jnp.cos(jnp.asarray(w)) for w in s.weights)
    for turn, rows in enumerate([slice(0, 7, 3), slice(2, 7, 3), slice(1, 7, 3), slice(0, 7, 3)]):
        product, share = problem.linearised(
            sphere.unpack(here.weights), here.left, 0.3, jnp.asarray(turn)
        )
        assert share == 1 / 3
        expected = dense(problem, s.weights, rows) @ flat(velocity)
        np.testing.assert_allclose(flat(product(velocity)), expected, rtol=1e-10, atol=1e-13)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("loss", thinned(LOSS_NAMES, 2))
def test_gauss_newton_solves_the_damped_system_on_the_tangent_space(loss):
    s = small(6, depth=2, activation="tanh", loss=loss, rows=30, bias=True)
    problem = s.problem()
    direction = GaussNewton(residual=1e-12, max_products=2000)
    here, _, chosen = chosen_after(direction, problem, s.weights, turns=0)[0]
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
    v = -basis @ np.linalg.solve(system, basis.T @ flat(here.gradient))
    speeds = [np.linalg.norm(part) for part in np.split(v, [s.weights[0].size])]
    fastest = max(speeds)
    np.testing.assert_allclose(flat(chosen.heading), v / fastest, atol=1e-8)
    # What it remembers is the quadratic model along the heading, without the damping.
    model = chosen.memory
    assert float(model.damping) == DAMPING
    assert float(model.slope) == pytest.approx(v @ flat(here.gradient) / fastest, rel=1e-8)
    assert float(model.curvature) == pytest.approx(v @ curved @ v / fastest**2, rel=1e-6)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("residual", thinned((0.1, 0.5, 1e-3), 3))
def test_the_solve_ends_at_its_residual_and_not_earlier(residual):
    s = small(6, activation="tanh", rows=20)
    problem = s.problem()
    here, _, chosen = chosen_after(GaussNewton(residual, 500), problem, s.weights, turns=0)[0]
    products = int(chosen.products)
    assert 1 <= products < 500

    def left_over(most):
        """‖(JᵀHJ + λ)v + ∇‖ / ‖∇‖; the length of v comes from the slope and the curvature."""
        chosen = choose(GaussNewton(1e-15, most), here, GaussNewton().start(here.weights))
        heading, model = flat(chosen.heading), chosen.memory
        scale = np.concatenate(
            [np.full(w.size, m) for w, m in zip(s.weights, s.radii, strict=True)]
        )
        image = scale * (dense(problem, s.weights) @ (scale * heading))
        image = (
            flat(sphere.project(here.weights, _like(here.weights, image), here.radii))
            + DAMPING * heading
        )
        # Conjugate gradients make the residual orthogonal to v: its length minimises the model.
        length = -float(model.slope) / (float(model.curvature) + DAMPING * heading @ heading)
        gradient = flat(here.gradient)
        return np.linalg.norm(length * image + gradient) / np.linalg.norm(gradient)

    assert left_over(products) <= residual * (1 + 1e-9)
    if products > 1:
        assert left_over(products - 1) > residual


def _like(packed, vector):
    sizes = np.cumsum([np.prod(shape) for shape in packed.shapes])[:-1]
    parts = [p.reshape(s) for p, s in zip(np.split(vector, sizes), packed.shapes, strict=True)]
    return sphere.pack(tuple(map(jnp.asarray, parts)))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("direction", [GaussNewton(), Kronecker()], ids=str)
@pytest.mark.parametrize(
    ("share", "factors"), [(0.1, (3.0, 1.1)), (0.5, (1.0, 1.0)), (0.9, (0.4, 0.95))]
)
def test_damping_follows_how_well_the_model_predicted(direction, share, factors):
    """Bad below a quarter of the predicted decrease, good above three quarters."""
    s = small(1, activation="tanh")
    here, memory, _ = chosen_after(direction, s.problem(), s.weights)[1]
    natural = isinstance(direction, Kronecker)
    model = memory.model if natural else memory
    model = model._replace(
        damping=jnp.asarray(0.3), slope=jnp.asarray(-2.0), curvature=jnp.asarray(4.0)
    )
    angle = float(here.angle)
    predicted = 2 * angle - 2 * angle**2
    here = here._replace(decrease=jnp.asarray(share * predicted))
    memory = memory._replace(model=model) if natural else model
    after = choose(direction, here, memory).memory
    after = after.model if natural else after
    assert float(after.damping) == pytest.approx(0.3 * factors[natural], rel=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("direction", [GaussNewton(), Kronecker()], ids=str)
def test_damping_starts_as_it_is_and_never_vanishes(direction):
    s = small(1, activation="tanh")
    (_, start, first), (there, memory, _) = chosen_after(direction, s.problem(), s.weights)

    def model(m):
        return m.model if isinstance(direction, Kronecker) else m

    def with_model(m, **changes):
        new = model(m)._replace(**changes)
        return m._replace(model=new) if isinstance(direction, Kronecker) else new

    assert float(model(first.memory).damping) == float(model(start).damping)
    tiny = with_model(memory, damping=jnp.asarray(1e-300))
    there = there._replace(decrease=jnp.asarray(1e9))
    floor = 10 * np.finfo(np.float64).eps
    assert float(model(choose(direction, there, tiny).memory).damping) == pytest.approx(floor)


@pytest.mark.parametrize(("share", "part"), [(1.0, 1.0), (0.3, 1 / 3)])
def test_products_are_counted(share, part):
    s = small(1, activation="tanh", rows=7)
    direction = GaussNewton(residual=1e-9, max_products=3, share=share)
    result = descend(s.problem(), s.weights, direction=direction, stop=stopping.MaxIter(4))
    assert [r.products for r in result.records] == pytest.approx([3 * part] * 4)
    assert result.evaluations.products == pytest.approx(5 * 3 * part)


def test_products_are_what_really_ran():
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
        # Once for each time that the loss of the outputs is differentiated along a direction.
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

    def product(self, *arguments, inner=Custom.linearised):
        run, share = inner(self, *arguments)

        def with_count(velocity):
            jax.debug.callback(lambda: calls.append(1))
            return run(velocity)

        return with_count, share

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Custom, "linearised", product)
        result = descend(problem, s.weights, direction=GaussNewton(), stop=stopping.MaxIter(4))
        jax.effects_barrier()
    assert len(calls) == result.evaluations.products > 0


@pytest.mark.parametrize("loss", thinned(LOSS_NAMES, 2))
def test_a_custom_object_takes_the_same_run_as_the_problem(loss):
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


class Whole(NoLossOf):
    def loss_of(self, outputs):
        return jnp.sum(outputs)


@pytest.mark.parametrize(("user", "missing"), [(OnlyLoss(), "outputs"), (NoLossOf(), "loss_of")])
def test_gauss_newton_says_what_an_object_lacks(user, missing):
    with pytest.raises(TypeError, match=rf"{type(user).__name__} has no {missing}: add it"):
        descend(user, (np.eye(2),), direction=GaussNewton())


def test_kronecker_and_trust_need_a_network():
    with pytest.raises(TypeError, match=r"'trust'\) needs a Problem.*Steepest\('gradient'\)"):
        descend(Whole(), (np.eye(2),), direction=Steepest("trust"))
    with pytest.raises(TypeError, match=r"Kronecker needs a Problem.*ConjugateGradient"):
        descend(Whole(), (np.eye(2),), direction=Kronecker())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Steepest("fast"), "speed is 'fast'"),
        (lambda: ConjugateGradient("fletcher"), "beta is 'fletcher'"),
        (lambda: GaussNewton(residual=0), "residual is 0"),
        (lambda: GaussNewton(residual=1), "residual is 1"),
        (lambda: GaussNewton(max_products=0), "max_products is 0"),
        (lambda: GaussNewton(max_products=2.5), "max_products is 2.5"),
        (lambda: GaussNewton(share=0), "share is 0"),
        (lambda: GaussNewton(share=1.5), "share is 1.5"),
        (lambda: Kronecker(sample=0), "sample is 0"),
        (lambda: Kronecker(sample=0.5), "sample is 0.5"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# Kronecker


def weighted(seed, loss, bias):
    s = small(seed, activation="tanh", loss=loss, bias=bias)
    share = np.arange(len(s.X), dtype=float)  # the first row does not count
    problem = Problem(s.network, s.X, s.Y, loss=loss, sample_weight=share, dtype=np.float64)
    return s, problem, share / share.sum()


def factors(s, problem, share, weights):
    return oracle.kronecker_factors(
        weights,
        s.X,
        s.Y,
        "tanh",
        s.loss,
        bias=s.network.bias,
        share=share,
        unit=float(problem.unit),
    )


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bias", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_kronecker_factors_agree_with_the_oracle(loss, bias):
    s, problem, share = weighted(2, loss, bias)
    seen, slopes = map(np.asarray, problem.kronecker(place(problem, s.weights).left))
    expected = factors(s, problem, share, s.weights)
    for ours, theirs in zip((seen, slopes), expected, strict=True):
        for stack, matrix in zip(ours, theirs, strict=True):
            n = len(matrix)
            np.testing.assert_allclose(stack[:n, :n], matrix, rtol=1e-10, atol=1e-14)
            assert np.all(stack[n:] == 0)
            assert np.all(stack[:, n:] == 0)


def oracle_natural(s, problem, share, here, damping, factor=None):
    seen, slopes = factor or factors(s, problem, share, matrices(here.weights))
    layers = zip(
        matrices(here.weights), matrices(here.gradient), s.radii, seen, slopes, strict=True
    )
    return [oracle.natural_gradient(*layer, damping) for layer in layers]


def lowest(s, problem, here, span, damping):
    """The point of a span that is lowest in the damped Gauss-Newton model, and its coordinates."""
    span = np.stack([np.concatenate([v.ravel() for v in d]) for d in span], axis=1)
    scale = np.concatenate([np.full(w.size, mu) for w, mu in zip(s.weights, s.radii, strict=True)])
    curved = scale[:, None] * dense(problem, matrices(here.weights)) * scale
    curved += damping * np.eye(len(scale))
    model = span.T @ curved @ span
    model += kronecker.DEPENDENT * np.diag(np.diag(model))
    c = np.linalg.solve(model, -span.T @ flat(here.gradient))
    return span @ c, c


def same_heading(chosen, here, v):
    largest = np.max(sphere.norm(_like(here.weights, v)))
    np.testing.assert_allclose(flat(chosen.heading), v / largest, rtol=1e-7, atol=1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bias", [False, True])
def test_the_first_heading_is_made_of_natural_gradient_and_gradient(bias):
    s, problem, share = weighted(3, "squared", bias)
    here, memory, chosen = chosen_after(Kronecker(), problem, s.weights, turns=0)[0]
    damping = float(memory.model.damping)
    natural = oracle_natural(s, problem, share, here, damping)
    v, c = lowest(s, problem, here, (natural, matrices(here.gradient)), damping)
    assert c[0] > 0.1
    same_heading(chosen, here, v)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bias", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("loss", thinned(LOSS_NAMES, 2))
def test_kronecker_takes_the_lowest_point_of_its_span(loss, bias):
    """Of the damped Gauss-Newton model; the factors are averages over all points."""
    s, problem, share = weighted(3, loss, bias)
    visited = chosen_after(Kronecker(), problem, s.weights, turns=2)
    here, _, chosen = visited[-1]
    damping = float(chosen.memory.model.damping)
    each = [factors(s, problem, share, matrices(p.weights)) for p, _, _ in visited]
    mean = [[sum(f) / 3 for f in zip(*layers, strict=True)] for layers in zip(*each, strict=True)]
    natural = oracle_natural(s, problem, share, here, damping, mean)

    def brought(place, directions):
        way = zip(
            matrices(place.way.weights),
            matrices(place.way.heading),
            s.radii,
            [float(place.angle)] * len(s.radii),
            directions,
            strict=True,
        )
        return [oracle.transport(*layer) for layer in way]

    # As they were before they were scaled.
    ways = [replace(p.weights, rows=v.memory.ways.rows[0]) for p, _, v in visited]
    second_last = brought(here, brought(visited[1][0], matrices(ways[0])))
    span = natural, brought(here, matrices(ways[1])), second_last, matrices(here.gradient)
    v, c = lowest(s, problem, here, span, damping)
    assert np.all(np.abs(c[:3]) > 1e-3)  # all of them count
    np.testing.assert_allclose(flat(ways[2]), v, rtol=1e-6, atol=1e-9)
    same_heading(chosen, here, v)


@pytest.mark.usefixtures("x64")
def test_kronecker_looks_at_a_sample_and_the_gradient_at_all():
    """Factors and model are those of every second row; the slope is not."""
    s, problem, _ = weighted(3, "squared", True)
    (here, memory, chosen) = chosen_after(Kronecker(sample=3), problem, s.weights, turns=0)[0]
    assert len(s.X) == 7
    rows = slice(0, 7, 2)
    weight = np.asarray(problem.share)[rows]
    half = Problem(s.network, s.X[rows], s.Y[rows], sample_weight=weight, dtype=np.float64)
    half.unit = problem.unit
    for ours, theirs in zip(
        chosen.memory[:2], half.kronecker(half.revisited(sphere.unpack(here.weights))), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-14)
    damping = float(memory.model.damping)
    some = replace(s, X=s.X[rows], Y=s.Y[rows])
    natural = oracle_natural(some, half, weight / weight.sum(), here, damping)
    v, _ = lowest(s, half, here, (natural, matrices(here.gradient)), damping)
    same_heading(chosen, here, v)
    slope = float(chosen.memory.model.slope)
    assert slope == pytest.approx(flat(chosen.heading) @ flat(here.gradient), rel=1e-7)
    np.testing.assert_allclose(
        flat(here.gradient), flat(place(problem, s.weights).gradient), rtol=1e-12
    )


def test_directions_that_depend_on_one_another_are_no_trouble():
    """The last direction may be zero, or the gradient once more."""
    a = np.array([[2.0, 2.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    c = np.asarray(kronecker._lowest(jnp.asarray(a, np.float32), jnp.array([-1.0, -1.0, 0.0])))
    np.testing.assert_allclose(c, [0.25, 0.25, 0], rtol=1e-3)


@pytest.mark.usefixtures("x64")
def test_kronecker_factors_are_averaged_and_the_past_fades():
    """The mean of all points at first; then a tenth of the new one."""
    s, problem, _ = weighted(3, "squared", False)
    seen = chosen_after(Kronecker(), problem, s.weights, turns=11)
    expected = None
    for k, (here, _, chosen) in enumerate(seen):
        new = problem.kronecker(here.left)
        age = min(k / (k + 1), 0.9)
        expected = (
            new
            if expected is None
            else [age * a + (1 - age) * b for a, b in zip(expected, new, strict=True)]
        )
        for ours, theirs in zip(chosen.memory[:2], expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-15)


def test_a_layer_that_is_dead_does_not_stop_kronecker():
    """Relu units that are all off: no slope anywhere below them, and an output bias that learns."""
    network = Network((2, 3, 1), bias=True)
    weights = (np.vstack([np.zeros((2, 3)), -np.ones((1, 3))]), np.array([[0.1, 0.2, 0.3, 0.4]]).T)
    x = np.linspace(-0.5, 0.5, 8).reshape(-1, 2)
    problem = Problem(network, x, np.full((4, 1), 0.1))
    result = descend(problem, weights, direction=Kronecker(), stop=stopping.MaxIter(5))
    assert result.records
    assert result.loss < result.initial_loss
    np.testing.assert_allclose(result.weights[0], weights[0], atol=1e-6)


# Which one


def test_automatic_takes_what_the_objective_allows():
    rng = np.random.default_rng(0)

    def problem(rows, width):
        network = Network((3, width, 1))
        return Problem(network, rng.standard_normal((rows, 3)), rng.standard_normal((rows, 1)))

    assert automatic(problem(500, 10)) == Kronecker()
    assert automatic(problem(5, 600)) == GaussNewton()
    dtype = np.dtype(np.float32)
    assert automatic(Custom(Whole(), dtype)) == GaussNewton()
    assert automatic(Custom(NoLossOf(), dtype)) == ConjugateGradient()
    assert automatic(Custom(OnlyLoss(), dtype)) == ConjugateGradient()


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
    """Name and largest dimension of each call, those of inner programs included."""
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
@pytest.mark.parametrize("direction", [Kronecker(), Steepest("trust")], ids=str)
def test_lapack_never_sees_a_stack(direction, step):
    """Two calls on stacks at once can wait for each other for ever: `gains.py` says why."""
    s = small(0, depth=3, activation="tanh")
    problem = s.problem()
    program = jax.make_jaxpr(partial(visit_point, direction=direction, step=step))(
        problem, jnp.asarray(s.radii), nowhere(s.weights, direction), jnp.zeros(())
    )
    calls = list(lapack_calls(program.jaxpr))
    assert calls or (isinstance(direction, Steepest) and isinstance(step, Curvature))
    assert all(dimensions <= 2 for _, dimensions in calls)
