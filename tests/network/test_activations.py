"""Activations: the three conditions, their derivatives in NumPy and JAX, declarations."""

import copy
import pickle
import subprocess
import sys

import jax
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
def test_the_three_conditions_of_the_paper(name, x, y):
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
def test_curved_activations_have_a_second_derivative(name):
    rho = ACTIVATIONS[name]
    with precision(np.float64):
        curvature = np.asarray(rho.curvature(jnp.linspace(-3, 3, 13) + 0.05))
    assert np.any(curvature != 0) == rho.curved


@pytest.mark.parametrize("name", ACTIVATION_NAMES)
def test_nan_passes_and_far_values_stay_finite(name):
    rho = ACTIVATIONS[name]
    assert np.isnan(rho(jnp.float32(np.nan)))
    far = jnp.array([-3e38, -1e4, 1e4, 3e38], jnp.float32)
    assert np.all(np.isfinite(rho(far)))
    assert np.all(np.isfinite(rho.slope(far)))


def grid(dtype):
    """Return numbers of all magnitudes, except subnormal ones: XLA on CPUs makes them zero."""
    decades = np.logspace(-37, 37, 500)
    ends = [0.0, -0.0, np.finfo(dtype).max, np.finfo(dtype).tiny]
    return np.concatenate([-decades, decades, np.linspace(-20, 20, 1001), ends]).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ACTIVATION_NAMES)
def test_numpy_and_jax_agree(name, dtype):
    """The closed forms of NumPy, and automatic differentiation in compiled programs."""
    rho, z = ACTIVATIONS[name], grid(dtype)
    for in_numpy in (rho, rho.slope, rho.curvature):
        with precision(dtype):
            in_jax = np.asarray(jax.jit(lambda z, f=in_numpy: f(z))(z))
        values = in_numpy(z)
        assert isinstance(values, np.ndarray)
        assert values.dtype == in_jax.dtype == dtype
        np.testing.assert_allclose(
            values,
            in_jax,
            rtol=3e-7 if dtype == np.float32 else 1e-15,
            atol=16 * np.finfo(dtype).eps,
        )


@pytest.mark.parametrize("name", ACTIVATION_NAMES)
def test_nan_and_infinity_in_numpy(name):
    rho, z = ACTIVATIONS[name], np.array([np.nan, np.inf, -np.inf])
    with precision(np.float64):
        in_jax = np.asarray(rho(jnp.asarray(z)))
    np.testing.assert_array_equal(rho(z), in_jax)
    assert np.isnan(rho(z)[0])


def test_activations_do_not_need_jax():
    code = (
        "import sys; sys.modules['jax'] = None; import numpy as np; "
        "from greatcircle.network.activations import ACTIVATIONS as all_; "
        "print(sum(float(a(np.ones(2))[0] + a.slope(np.ones(2))[0]) for a in all_.values()) > 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "True", done.stderr


@pytest.mark.parametrize("name", ACTIVATION_NAMES)
def test_pickled_and_copied_activations_are_the_same_object(name):
    rho = ACTIVATIONS[name]
    assert pickle.loads(pickle.dumps(rho)) is copy.deepcopy(rho) is rho


@pytest.mark.parametrize(
    ("name", "condition"),
    [
        ("sigmoid", r"\|ρ\(x\)\| ≤ \|x\|"),
        ("softplus", r"\|ρ\(x\)\| ≤ \|x\|"),
        ("gelu", r"\|ρ\(x\) − ρ\(y\)\| ≤ \|x − y\|"),
        ("swish", r"\|ρ\(x\) − ρ\(y\)\| ≤ \|x − y\|"),
    ],
)
def test_refused_activations_name_the_violated_condition(name, condition):
    with pytest.raises(ValueError, match=condition):
        activations.get(name)


def test_the_numbers_in_the_refusals_are_right():
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


def test_a_users_function_in_jax():
    ours = declare(lambda z: 0.5 * jnp.tanh(z), (0.0, 0.5), name="half")
    assert ours.declared
    assert ours.slopes == (0.0, 0.5)
    assert not ACTIVATIONS["tanh"].declared
    z = np.array([-1.0, 0.0, 2.0])
    np.testing.assert_allclose(ours(z), 0.5 * np.tanh(z), rtol=1e-15)
    np.testing.assert_allclose(ours.slope(z), 0.5 - 0.5 * np.tanh(z) ** 2, rtol=1e-15)
    assert ours(z.astype(np.float32)).dtype == np.float32


def test_a_users_function_for_array_namespaces():
    ours = declare(
        lambda z, xp: 0.5 * xp.tanh(z),
        (0.0, 0.5),
        name="half",
        derivative=lambda z, a, xp: 0.5 - 2 * a * a,
    )
    z = np.array([-1.0, 0.0, 2.0])
    np.testing.assert_allclose(ours.slope(z), 0.5 - 0.5 * np.tanh(z) ** 2, rtol=1e-15)
    with precision(np.float64):
        np.testing.assert_allclose(ours.slope(z), ours.slope(jnp.asarray(z)), rtol=1e-15)


@pytest.mark.parametrize(
    ("derivative", "message"),
    [
        (lambda z, a, xp: 0.5 - a * a, "disagrees with its function at x = "),
        (lambda z, a, xp: xp.nan * z, "disagrees with its function at x = "),
        (lambda z, a, xp: xp.no_such(z), "cannot be evaluated in NumPy .AttributeError"),
    ],
)
def test_a_wrong_derivative_is_refused(derivative, message):
    with pytest.raises(ValueError, match=message):
        declare(lambda z, xp: 0.5 * xp.tanh(z), (0.0, 0.5), "half", derivative)


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


def test_unknown_names_and_undeclared_functions():
    with pytest.raises(ValueError, match="activation is 'rely'; expected one of relu"):
        activations.get("rely")
    with pytest.raises(ValueError, match="declare"):
        activations.get(jnp.tanh)
