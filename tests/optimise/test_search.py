import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from greatcircle._runtime.precision import precision
from greatcircle.optimise.steps import Brent, GoldenSection
from greatcircle.optimise.steps.search import MAX_EVALUATIONS, polynomial_minimiser

FUNCTIONS = {
    "parabola": (lambda x: (x - 0.3) ** 2, 0.3),
    "left end": (lambda x: x, -2.0),
    "right end": (lambda x: -x, 3.0),
    "flat then steep": (lambda x: jnp.exp(4 * x) - 20 * x, np.log(5) / 4),
    "kink": (lambda x: jnp.abs(x - 1.1), 1.1),
    "quartic": (lambda x: (x + 0.7) ** 4, -0.7),
}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("search", [GoldenSection(), Brent()], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_unimodal_minimum_within_the_tolerance(search, name):
    function, expected = FUNCTIONS[name]
    found, value = jax.jit(lambda a, b: search.minimise(function, a, b, 1e-7))(-2.0, 3.0)
    # A quartic is flat to rounding within 1e-4 of its minimum.
    assert abs(float(found) - expected) < (1e-3 if name == "quartic" else 1e-6)
    assert float(value) == pytest.approx(float(function(found)), abs=1e-12)


@pytest.mark.usefixtures("x64")
def test_brent_needs_fewer_evaluations_and_both_are_bounded():
    def count(search, function):
        calls = []

        def counted(x):
            jax.debug.callback(lambda: calls.append(1))
            return function(x)

        search.minimise(counted, jnp.asarray(-2.0), jnp.asarray(3.0), 1e-8)
        jax.effects_barrier()
        return len(calls)

    smooth = FUNCTIONS["flat then steep"][0]
    assert count(Brent(), smooth) < 0.5 * count(GoldenSection(), smooth)
    for search in (Brent(), GoldenSection()):
        assert count(search, lambda x: x * jnp.nan) <= MAX_EVALUATIONS


minimise = jax.jit(polynomial_minimiser, static_argnums=1)


@given(
    degree=st.integers(1, 6),
    seed=st.integers(0, 10_000),
    exponent=st.floats(-5, 5),
    upper=st.sampled_from([np.pi / 6, 2 * np.pi]),
)
def test_polynomial_minimum_is_global(degree, seed, exponent, upper):
    rng = np.random.default_rng(seed)
    derivatives = rng.standard_normal(degree + 1) * 10.0 ** (
        exponent * np.arange(degree + 1) / degree
    )
    factorials = np.cumprod([1.0, *range(1, degree + 1)])
    with precision(np.float64):
        found = float(minimise(jnp.asarray(derivatives / factorials), upper))
    expected = oracle.taylor_step(derivatives.tolist(), upper)

    def p(t):
        return np.polyval((derivatives / factorials)[::-1], t) - derivatives[0]

    assert 0 <= found <= upper * (1 + 1e-15)
    size = np.abs((derivatives / factorials)[1:] * upper ** np.arange(1, degree + 1)).max()
    assert p(found) <= p(expected) + 1e-13 * size
    assert p(found) <= p(np.linspace(0, upper, 500)).min() + 1e-13 * size


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("coefficients", "expected"),
    [
        ([0.0, -1.0, 1e6], 5e-7),  # a tiny root keeps its digits
        ([0.0, -1.0, 0.5 / 1e-12], 1e-12),
        ([0.0, -1.0, 1.0, 0.0, 0.0], 0.5),  # vanishing leading coefficients
        ([1.0, 0.0, 0.0], 0.0),  # a constant
        ([0.0, 1.0], 0.0),
        ([0.0, -1.0], 0.6),
    ],
)
def test_degenerate_polynomials(coefficients, expected):
    assert float(minimise(jnp.array(coefficients), 0.6)) == pytest.approx(expected, rel=1e-12)


def test_float32_keeps_small_angles():
    found = minimise(jnp.array([1.0, -1.0, 0.5e6], jnp.float32), float(np.pi / 6))
    assert found.dtype == jnp.float32
    assert float(found) == pytest.approx(1e-6, rel=1e-5)
