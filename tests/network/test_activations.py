import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greatcircle import activations
from greatcircle._runtime.precision import precision
from greatcircle.network.activations import ACTIVATIONS, declare
from small import ACTIVATION_NAMES

reals = st.floats(-1e6, 1e6, allow_subnormal=False)


@pytest.mark.parametrize("name", ACTIVATION_NAMES)
@given(x=reals, y=reals)
def test_the_three_conditions(name, x, y):
    rho = ACTIVATIONS[name]
    with precision(np.float64):
        fx, fy = float(rho(jnp.float64(x))), float(rho(jnp.float64(y)))
        slope = float(rho.slope(jnp.float64(x)))
    assert abs(fx) <= abs(x) * (1 + 1e-15)
    rounding = 1e-15 * (abs(x) + abs(y))
    assert abs(fx - fy) <= abs(x - y) + rounding
    assert abs(slope) <= 1
    low, high = rho.slopes
    assert low - 1e-12 <= slope <= high + 1e-12
    if x != y:
        assert min(low * (x - y), high * (x - y)) - rounding <= fx - fy
        assert fx - fy <= max(low * (x - y), high * (x - y)) + rounding


@pytest.mark.parametrize("name", ACTIVATION_NAMES)
def test_curved_says_whether_there_is_a_second_derivative(name):
    rho = ACTIVATIONS[name]
    with precision(np.float64):
        bend = np.asarray(rho.bend(jnp.linspace(-3, 3, 13) + 0.05))
    assert np.any(bend != 0) == rho.curved


@pytest.mark.parametrize("name", ACTIVATION_NAMES)
def test_nan_passes_and_far_values_stay_finite(name):
    rho = ACTIVATIONS[name]
    assert np.isnan(rho(jnp.float32(np.nan)))
    far = jnp.array([-3e38, -1e4, 1e4, 3e38], jnp.float32)
    assert np.all(np.isfinite(rho(far)))
    assert np.all(np.isfinite(rho.slope(far)))


@pytest.mark.parametrize(
    ("name", "condition"),
    [
        ("sigmoid", r"\|ρ\(x\)\| ≤ \|x\|"),
        ("softplus", r"\|ρ\(x\)\| ≤ \|x\|"),
        ("gelu", r"\|ρ\(x\) − ρ\(y\)\| ≤ \|x − y\|"),
        ("swish", r"\|ρ\(x\) − ρ\(y\)\| ≤ \|x − y\|"),
    ],
)
def test_refused_with_the_condition_that_they_break(name, condition):
    with pytest.raises(ValueError, match=condition):
        activations.get(name)


def test_the_refusals_are_true():
    """The numbers in the messages, computed."""
    import jax

    with precision(np.float64):
        x = jnp.linspace(-6, 6, 200_001)
        assert float(jax.nn.sigmoid(0.0)) == 0.5
        assert abs(float(jax.nn.softplus(0.0)) - np.log(2)) < 1e-7
        for f, top, where in (
            (lambda z: jax.nn.gelu(z, approximate=False), 1.129, 1.41),
            (jax.nn.swish, 1.0998, 2.40),
        ):
            slope = np.asarray(jax.vmap(jax.grad(f))(x))
            assert abs(slope.max() - top) < 1e-3
            assert abs(float(x[slope.argmax()]) - where) < 1e-2


def test_a_users_function_with_a_true_interval():
    ours = declare(lambda z: 0.5 * jnp.tanh(z), (0.0, 0.5), name="half")
    assert ours.declared
    assert ours.slopes == (0.0, 0.5)
    assert not ACTIVATIONS["tanh"].declared


@pytest.mark.parametrize(
    ("function", "slopes", "message"),
    [
        (lambda z: 1.5 * jnp.tanh(z), (0.0, 1.0), r"breaks \|ρ\(x\)\| ≤ \|x\|"),
        (lambda z: jnp.tanh(z) + 0.1, (0.0, 1.0), r"breaks \|ρ\(x\)\| ≤ \|x\|"),
        (jnp.abs, (0.0, 1.0), "outside the declared slopes"),
        (jnp.tanh, (0.5, 1.0), "outside the declared slopes"),
        (jnp.tanh, (0.0, 1.5), "-1 <= low <= high <= 1"),
        (lambda z: jnp.log(z), (0.0, 1.0), "finite"),
        (lambda z: jnp.sum(z), (0.0, 1.0), "one finite number for each"),
    ],
)
def test_a_grid_can_refute_a_declaration(function, slopes, message):
    with pytest.raises(ValueError, match=message):
        declare(function, slopes)


def test_unknown_names_and_bare_functions():
    with pytest.raises(ValueError, match="activation is 'rely'; expected one of relu"):
        activations.get("rely")
    with pytest.raises(ValueError, match="declare"):
        activations.get(jnp.tanh)
