"""Training within a Lipschitz budget: the bound holds, and the budget is used."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone

import oracle
from greatcircle import LipschitzClassifier, LipschitzRegressor, certificate, descend, sphere
from greatcircle.bounded import sandwich
from greatcircle.bounded.budget import (
    BATCH,
    MAX_ROUNDS,
    STEPS,
    certified_bound,
    fit_within,
    multipliers,
    shrink_to,
)
from greatcircle.network.activations import declare
from greatcircle.optimise import stopping
from greatcircle.optimise.directions import Muon
from greatcircle.optimise.iterations import sampled_iterations, unevaluated
from greatcircle.optimise.random_batches import RandomBatches
from greatcircle.optimise.steps import LinearDecay
from sandwich_problems import (
    ACTIVATIONS,
    RNG,
    SCALE,
    X,
    Y,
    network_weights,
    problem_of,
    random_layers,
    sandwich_objective,
)
from small import ACTIVATION_NAMES, thinned

BOUND, LENGTH, ROUNDS = 0.8, 1.5, 3

DISTANCE = 0.01
"""Small, because long steps amplify rounding until two runs differ."""


class PlainLoop:
    """Rounds of steps on random batches, in NumPy except for the gradients."""

    def __init__(self, problem, layers, weight):
        self.points = [np.array(layer) for layer in layers]
        self.directions = [oracle.Muon(p.shape) for p in self.points]
        self.step = 0
        self.angle = self.loss = 0.0
        numbers = [jnp.asarray(v, np.float64) for v in (SCALE, BOUND, LENGTH)]
        inputs, targets, share = map(jnp.asarray, (X * SCALE, Y, weight / np.sum(weight)))
        passes = range(-(-ROUNDS * STEPS * BATCH // 300))
        self.order = np.concatenate(
            [np.random.default_rng((0, k)).permutation(300) for k in passes]
        )

        def loss(layers, rows):
            weights = sandwich.network_weights(problem.network, layers, *numbers)
            errors = problem.network.apply(weights, inputs[rows]) - targets[rows]
            return jnp.mean(300 * share[rows] * jnp.sum(errors**2, axis=1) / 2) / problem.unit

        self.gradient = jax.jit(jax.value_and_grad(loss))

    def continue_from(self, point):
        """Take over a state of the library."""
        self.points = [np.array(p) for p in sphere.unpack(point.weights)]
        self.step = int(point.iteration)
        means = sphere.unpack(point.direction_state)
        for direction, mean in zip(self.directions, means, strict=True):
            direction.mean = np.array(mean)

    def round(self):
        """Take the steps of one round."""
        losses = []
        for _ in range(STEPS):
            rows = self.order[self.step * BATCH : (self.step + 1) * BATCH]
            loss, gradients = self.gradient(tuple(self.points), jnp.asarray(rows))
            losses.append(float(loss))
            total = ROUNDS * STEPS
            self.angle = DISTANCE / np.sqrt(total) * (1 - self.step / total)
            for i, g in enumerate(gradients):
                self.turn(i, np.asarray(g))
            self.step += 1
        self.loss = np.mean(losses)

    def turn(self, i, g):
        """Turn one layer."""
        p, direction = self.points[i], self.directions[i]
        radius = np.linalg.norm(p)
        tangent = oracle.project(p, g, radius)
        self.points[i] = oracle.turn(p, direction.heading(p, tangent), radius, self.angle)

    def condition(self, network):
        """Replace every factor by its orthonormal one."""
        for i, (fan_in, out) in enumerate(pairwise(network.sizes)):
            G = self.points[i][: fan_in + out]
            Q, R = np.linalg.qr(G)
            rest = self.points[i][fan_in + out :] * np.sqrt(out) / np.linalg.norm(G)
            self.points[i] = np.vstack([Q * np.sign(np.diag(R)), rest])


def plain_problem():
    """Return a problem with weighted rows, sandwich layers for it, and their plain loop."""
    weight = RNG.uniform(0.5, 2, 300)
    problem = problem_of("tanh", sample_weight=weight)
    layers = random_layers(problem.network)
    return problem, layers, PlainLoop(problem, layers, weight)


def assert_same_network(network, found, expected):
    pairs = (network_weights(network, layers, BOUND, LENGTH) for layers in (found, expected))
    for a, b in zip(*pairs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


@pytest.mark.usefixtures("x64")
def test_a_round_is_that_of_a_plain_loop():
    problem, layers, plain = plain_problem()
    rows = RandomBatches(sandwich_objective(problem, BOUND, LENGTH), BATCH, STEPS)
    packed = sphere.pack(tuple(map(jnp.asarray, layers)))

    def taken(point):
        return sampled_iterations(
            rows.block(int(point.iteration), STEPS),
            np.asarray(STEPS, np.int32),
            sphere.norm(packed),
            point,
            direction=Muon(),
            step=LinearDecay(jnp.asarray(float(ROUNDS * STEPS)), jnp.asarray(DISTANCE)),
        )

    first, _ = taken(unevaluated(packed, Muon()))
    plain.continue_from(first)
    point, angle = taken(first)
    plain.round()
    assert int(point.iteration) == 2 * STEPS
    found = sphere.unpack(point.weights)
    for a, b in zip(found, plain.points, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
    assert_same_network(problem.network, found, plain.points)
    assert float(angle) == pytest.approx(plain.angle, rel=1e-12)
    assert float(point.loss) == pytest.approx(plain.loss, rel=1e-9)


@pytest.mark.usefixtures("x64")
def test_the_loop_takes_the_rounds_of_a_plain_loop():
    """Between rounds, the factors are made orthonormal and the averages are kept."""
    problem, layers, plain = plain_problem()
    objective = sandwich_objective(problem, BOUND, LENGTH)

    def run(rounds, **options):
        return descend(
            objective,
            layers,
            direction=Muon(),
            step=LinearDecay(ROUNDS * STEPS, DISTANCE),
            stop=stopping.MaxIter(rounds),
            rows=RandomBatches(objective, BATCH, STEPS),
            **options,
        )

    first = run(1)
    plain.continue_from(first.state.point)
    result = run(2, state=first.state)
    for record in result.records:
        plain.condition(problem.network)
        plain.round()
        assert record.angle == pytest.approx(plain.angle, rel=1e-6)
        assert record.loss == pytest.approx(plain.loss * float(problem.unit), rel=1e-6)
    assert len(result.records) == 2
    assert_same_network(problem.network, result.weights, plain.points)
    weights = network_weights(problem.network, plain.points, BOUND, LENGTH)
    assert result.loss == pytest.approx(float(problem.loss(weights)), rel=1e-6)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_run_stays_within_the_budget_and_uses_it(activation):
    problem = problem_of(activation)
    start = problem.network.initial_weights(
        0, scheme="orthogonal", radius=[3.0, 3.0, 3.0], dtype=np.float64
    )
    losses, bounds, observed = {}, [], []

    def callback(record, weights):
        bounds.append(certified_bound(problem.network, weights, SCALE))

    def observe(record, weights):
        observed.append(float(problem.loss(weights)))
        return record._replace(spectral_bound=1.5)

    for budget in (0.3, 1.0):
        bounds.clear()
        observed.clear()
        result = fit_within(
            problem, start, SCALE, budget, rounds=12, callback=callback, observe=observe
        )
        # A record has the mean loss of its batches, each before its step; at the end of the run
        # the steps are so short that it is nearly the loss of all rows.
        np.testing.assert_allclose(result.records[-1].loss, observed[-1], rtol=0.02)
        assert [r.spectral_bound for r in result.records] == [1.5] * 12
        matrices = problem.network.linear(result.weights)
        folded = [matrices[0] * SCALE[:, None], *matrices[1:]]
        value = certificate.tight(folded, activation=activation).value
        assert 0.97 * budget <= value <= budget
        assert len(bounds) == 12
        assert max(bounds) <= budget
        assert result.loss == pytest.approx(float(problem.loss(result.weights)), rel=1e-12)
        # A certificate is up to 1e-7 above the least bound; the last layer is scaled down by it.
        assert result.loss <= observed[-1] * (1 + 1e-6)
        assert [r.iteration for r in result.records] == [*range(1, 13)]
        assert result.outcome == "max_iter"
        assert result.reason == "reached the limit of 12 iterations"
        assert result.records[-1].angle < 0.05 * result.records[0].angle
        losses[budget] = result.loss
    assert losses[1.0] < losses[0.3] < 0.9 * float(problem.loss([0 * w for w in start]))


def test_a_start_with_a_smaller_bound_keeps_it():
    problem = problem_of()
    start = problem.network.initial_weights(0, scheme="orthogonal", dtype=np.float64)
    value = certified_bound(problem.network, start, SCALE)
    result = fit_within(problem, start, SCALE, 100 * value, rounds=3)
    assert certified_bound(problem.network, result.weights, SCALE) <= value
    assert result.loss < result.initial_loss


def test_runs_are_repeatable_and_can_be_stopped():
    problem = problem_of()
    start = problem.network.initial_weights(0, scheme="orthogonal", dtype=np.float64)
    first, second = (fit_within(problem, start, SCALE, 0.1, rounds=3) for _ in range(2))
    for a, b in zip(first.weights, second.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    stopped = fit_within(problem, start, SCALE, 0.1, callback=lambda r, w: r.iteration == 2)
    assert (stopped.outcome, len(stopped.records)) == ("stopped", 2)

    def interrupt(record, weights):
        raise KeyboardInterrupt

    ended = fit_within(problem, start, SCALE, 0.1, callback=interrupt)
    assert (ended.outcome, len(ended.records)) == ("interrupted", 1)
    assert certified_bound(problem.network, ended.weights, SCALE) <= 0.1


def test_a_complete_run_converges():
    problem = problem_of(hidden=(4,))
    start = problem.network.initial_weights(0, scheme="orthogonal", dtype=np.float64)
    result = fit_within(problem, start, SCALE, 0.3)
    assert len(result.records) == MAX_ROUNDS
    assert (result.outcome, result.reason) == ("converged", "finished: step schedule completed")
    # A round is STEPS forward and backward passes of a batch; the start is evaluated on all rows.
    passes = STEPS * BATCH / 300
    assert result.records[0].forward == pytest.approx(passes)
    assert result.evaluations.backward == pytest.approx(MAX_ROUNDS * passes)
    assert result.evaluations.forward == pytest.approx(MAX_ROUNDS * passes + 1)


@pytest.mark.parametrize("activation", ["leaky_relu", *ACTIVATIONS])
def test_multipliers_prove_their_bound(activation):
    network = problem_of(activation).network
    weights = network.initial_weights(0, dtype=np.float64)
    proof, value = multipliers(network, weights, SCALE)
    linear = [w[:-1] for w in weights]
    linear[0] = linear[0] * SCALE[:, None]
    least = -1.0 if activation == "abs" else 0.0
    found = certificate.Certificate(
        value=value * (1 + 1e-6),
        method="sandwich",
        multipliers=tuple(proof),
        slopes=tuple(np.tile([least, 1.0], (len(m), 1)) for m in proof),
        scale=np.ones(3),
        gain=1.0,
        digest=certificate.proof.digest(linear),
    )
    assert certificate.verify(found, linear)
    # The wider interval of slopes can only raise the bound.
    assert value >= certified_bound(network, weights, SCALE) * (1 - 1e-6)


def test_shrinking_changes_only_the_last_layer_and_only_if_needed():
    problem = problem_of()
    weights = problem.network.initial_weights(0, dtype=np.float64)
    value = certified_bound(problem.network, weights, SCALE)
    same = shrink_to(problem.network, weights, SCALE, 2 * value)
    assert all(a is b for a, b in zip(same, weights, strict=True))
    less = shrink_to(problem.network, weights, SCALE, value / 3)
    assert all(a is b for a, b in zip(less[:-1], weights[:-1], strict=True))
    assert certified_bound(problem.network, less, SCALE) == pytest.approx(value / 3, rel=1e-5)
    assert certified_bound(problem.network, less, SCALE) <= value / 3


BUMP = declare(lambda z: 0.5 * jnp.sin(z) + 0.25 * z, (-0.25, 0.75), name="bump")
CASES = [
    (kind, activation, dtype)
    for kind in (LipschitzRegressor, LipschitzClassifier)
    for dtype in ("float64", "float32")
    for activation in ("identity", BUMP, *(n for n in ACTIVATION_NAMES if n != "identity"))
]


@pytest.mark.parametrize(("kind", "activation", "dtype"), thinned(CASES, 11))
def test_a_budget_is_never_exceeded(kind, activation, dtype):
    """Not even by rounding, for any activation, precision and size of the budget."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((60, 2))
    y = X @ [1.0, 2.0] if kind is LipschitzRegressor else X[:, 0] > X[:, 1]
    for budget in (1e-12, 1e-6, 0.1, 0.5, 1e12):
        model = kind((4,), activation, lipschitz=budget, selection=False, max_iter=2, dtype=dtype)
        model.set_params(random_state=0)
        model.fit(X, y)
        assert model.certificate_.value <= budget
        assert certificate.verify(model.certificate_, model)
        if budget < 0.1 and dtype == "float64":  # float32 losses hardly differ for small bounds
            assert model.certificate_.value >= 0.99 * budget
        stopped = clone(model).set_params(early_stopping=True).fit(X, y)
        assert stopped.certificate_.value <= budget
    for _ in range(2):
        model.set_params(lipschitz=0.3).partial_fit(X, y)
        assert model.certificate_.value <= 0.3


def test_a_constant_network_is_within_every_budget():
    X = np.random.default_rng(0).standard_normal((30, 2))
    model = LipschitzRegressor((3,), lipschitz=0.1, selection=False, max_iter=2, random_state=0)
    model.fit(X, np.full(30, 4.0))
    assert model.certificate_.value <= 0.1
    np.testing.assert_allclose(model.predict(X), 4.0, atol=0.5)
