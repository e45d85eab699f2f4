import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracle
from greatcircle import Network, Problem
from greatcircle.objective import chunks
from greatcircle.objective.function import function_objective
from small import LOSS_NAMES, small


@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_loss_agrees_with_the_oracle(loss):
    s = small(1, loss=loss)
    expected = oracle.objective(s.weights, s.X, s.Y, "relu", loss)
    assert float(s.problem().loss(s.weights)) == pytest.approx(expected, rel=1e-13)
    assert float(s.problem(np.float32).loss(s.weights)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_passes_agree_with_the_oracle_and_with_automatic_differentiation(loss):
    s = small(2, loss=loss, activation="tanh")
    problem = s.problem()
    weights = tuple(map(jnp.asarray, s.weights))
    velocity = tuple(jnp.cos(w) for w in weights)
    value, cache = problem.forward(weights)
    gradient, cache = problem.backward(weights, cache)
    unit = float(problem.unit)
    expected = oracle.gradient(s.weights, s.X, s.Y, "tanh", loss)
    for g, e in zip(gradient, expected, strict=True):
        np.testing.assert_allclose(g * unit, e, rtol=1e-10, atol=1e-13)

    plain = function_objective(problem.value, np.dtype(np.float64))
    assert float(plain.value(weights)) == pytest.approx(float(value), rel=1e-14)
    second = float(problem.second_order(weights, velocity, cache))
    assert second == pytest.approx(float(plain.second_order(weights, velocity, None)), rel=1e-10)
    hessian = jax.jvp(jax.grad(problem.value), (weights,), (velocity,))[1]
    form = sum(float(jnp.sum(h * v)) for h, v in zip(hessian, velocity, strict=True))
    assert second == pytest.approx(form, rel=1e-10)


def test_the_zero_function_has_loss_one_in_units_of_the_problem():
    s = small(0)
    tiny = Problem(s.network, s.X, 1e-9 * s.Y)
    assert float(tiny.loss_of(jnp.zeros(s.Y.shape)) / tiny.unit) == pytest.approx(1, rel=1e-6)
    nothing = Problem(s.network, s.X, 0 * s.Y)
    assert float(nothing.unit) == 1


def test_sample_weights_equal_repeated_rows():
    s = small(0, rows=4)
    repeats = np.array([1, 3, 0, 2])
    weighted = Problem(s.network, s.X, s.Y, sample_weight=repeats, dtype=np.float64)
    repeated = Problem(
        s.network, np.repeat(s.X, repeats, 0), np.repeat(s.Y, repeats, 0), dtype=np.float64
    )
    assert float(weighted.loss(s.weights)) == pytest.approx(
        float(repeated.loss(s.weights)), rel=1e-14
    )
    assert float(weighted.mean_square_input) == pytest.approx(
        float(repeated.mean_square_input), rel=1e-14
    )


def test_problems_of_one_shape_compile_once():
    traces = []

    @jax.jit
    def value(problem, weights):
        traces.append(1)
        return problem.value(weights)

    for seed in (0, 0):
        s = small(seed)
        value(Problem(s.network, s.X + seed, s.Y), tuple(map(jnp.asarray, s.weights)))
    assert len(traces) == 1


GOOD = {"inputs": np.ones((4, 2)), "targets": np.ones((4, 1))}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"inputs": np.array([[1, np.nan]] * 4)},
            "inputs has 4 entries that are NaN .* row 0, column 1",
        ),
        ({"targets": np.array([[1], [2], [np.inf], [4]])}, "targets has 1 entries .* row 2"),
        ({"inputs": np.ones((4, 3))}, "inputs has 3 columns; the network expects 2"),
        ({"targets": np.ones((4, 2))}, "targets has 2 columns; the network expects 1"),
        ({"targets": np.ones(4)}, r"targets has shape \(4,\).*reshape\(-1, 1\)"),
        ({"targets": np.ones((5, 1))}, "inputs has 4 rows and targets 5"),
        ({"inputs": np.ones((0, 2)), "targets": np.ones((0, 1))}, "inputs is empty"),
        ({"inputs": [["a", "b"]] * 4}, "inputs has entries that are not numbers"),
        ({"loss": "mse"}, "loss is 'mse'"),
        ({"loss": "softmax"}, "softmax"),
        ({"loss": "logistic", "targets": np.full((4, 1), 3.0)}, "between 0 and 1"),
        ({"dtype": "int32"}, "dtype is 'int32'"),
        ({"sample_weight": np.ones(3)}, "sample_weight has shape"),
        ({"sample_weight": -np.ones(4)}, "sample_weight must be"),
    ],
)
def test_invalid_data_are_rejected(change, message):
    with pytest.raises(ValueError, match=message):
        Problem(Network((2, 3, 1)), **{**GOOD, **change})


def test_an_object_without_a_loss_is_rejected():
    with pytest.raises(TypeError, match=r"dict without a method loss\(weights\)"):
        function_objective({}, np.dtype(np.float32))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bias", [False, True])
def test_both_memory_layouts_of_the_rows_give_the_same(bias, monkeypatch):
    s = small(4, depth=3, activation="tanh", bias=bias)
    weights = tuple(map(jnp.asarray, s.weights))
    velocity = tuple(jnp.cos(w) for w in weights)

    def stack(*velocities):
        return tuple(map(jnp.stack, zip(*velocities, strict=True)))

    def passes(problem):
        loss, cache = problem.forward(weights)
        gradient, cache = problem.backward(weights, cache)
        product, _ = problem.gauss_newton(weights, cache, fraction=0.4, iteration=1)
        return (
            loss,
            gradient,
            problem.value(weights),
            problem.second_order(weights, velocity, cache),
            problem.moments(velocity, cache),
            problem.output_gradient(cache),
            problem.largest_input(),
            problem.gram(weights, stack(gradient, velocity), cache),
            problem.kronecker(cache),
            problem.loss_of(problem.outputs(weights)),
            product(velocity),
        )

    columns_first = s.problem()
    with monkeypatch.context() as patch:
        patch.setattr(chunks, "MAX_AT_ONCE", 0)
        rows_first = s.problem()
    assert (columns_first.rows.columns_first, rows_first.rows.columns_first) == (True, False)
    assert columns_first.rows.inputs.shape == rows_first.rows.inputs.shape[::-1]
    for problem in (columns_first, rows_first):
        np.testing.assert_array_equal(problem.inputs, s.X)
        np.testing.assert_array_equal(problem.targets, s.Y)
    found = jax.jit(passes)(columns_first), jax.jit(passes)(rows_first)
    for a, b in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-14)
