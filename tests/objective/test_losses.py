from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from greatcircle import losses
from greatcircle._runtime.precision import precision
from greatcircle.objective.losses import LOSSES, Huber
from small import LOSS_NAMES, small


@partial(jax.jit, static_argnums=0)
def derivatives(name, F, Y):
    """Value, gradient and Hessian of each row."""

    def row(f, y):
        return LOSSES[name].of_row(f, y)

    return tuple(jax.vmap(f)(F, Y) for f in (row, jax.grad(row), jax.hessian(row)))


@pytest.mark.parametrize("name", LOSS_NAMES)
@given(seed=st.integers(0, 1000), scale=st.floats(0.01, 100))
def test_value_gradient_and_curvature_bound(name, seed, scale):
    Y = small(seed, loss=name).Y
    F = scale * np.random.default_rng(seed).standard_normal(Y.shape)
    with precision(np.float64):
        values, gradients, hessians = derivatives(name, F, Y)
    eigenvalues = np.linalg.eigvalsh(hessians)
    for f, y, value, gradient in zip(F, Y, values, gradients, strict=True):
        expected_value, expected_gradient = oracle.sample_loss(name, f, y)
        np.testing.assert_allclose(value, expected_value, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-9, atol=1e-12)
    assert eigenvalues.min() > -1e-12  # convex
    assert eigenvalues.max() <= LOSSES[name].curvature + 1e-12


@pytest.mark.parametrize(
    ("name", "bound"), [("squared", 1), ("huber", 1), ("softmax", 0.5), ("logistic", 0.25)]
)
def test_the_curvature_bound_is_reached(name, bound):
    loss = LOSSES[name]
    y = jnp.array([0.5, 0.5]) if name == "softmax" else jnp.zeros(2)
    hessian = jax.hessian(lambda f: loss.of_row(f, y))(jnp.zeros(2))
    np.testing.assert_allclose(np.linalg.eigvalsh(hessian).max(), bound, rtol=1e-6)
    assert loss.curvature == bound


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_large_outputs_stay_finite(name):
    Y = small(0, loss=name).Y
    F = jnp.asarray(np.where(np.arange(Y.size).reshape(Y.shape) % 2, 1e4, -1e4), jnp.float32)
    row_losses = partial(losses.of_columns, LOSSES[name], targets=jnp.asarray(Y.T, jnp.float32))
    assert np.all(np.isfinite(row_losses(F.T)))
    assert np.all(np.isfinite(jax.grad(lambda f: jnp.sum(row_losses(f)))(F.T)))


@pytest.mark.parametrize(
    ("name", "targets", "message"),
    [
        ("softmax", [[0.5, 0.6]], "sum to one"),
        ("softmax", [[1.5, -0.5]], "non-negative"),
        ("softmax", [[1.0]], "logistic"),
        ("logistic", [[2.0]], "between 0 and 1"),
    ],
)
def test_invalid_targets_are_rejected(name, targets, message):
    with pytest.raises(ValueError, match=message):
        LOSSES[name].check(np.array(targets))


def test_names_and_parameters():
    with pytest.raises(ValueError, match="loss is 'mse'; expected one of squared, huber"):
        losses.get("mse")
    with pytest.raises(ValueError, match="delta is 0"):
        Huber(0)
    assert losses.get(Huber(2.0)).delta == 2.0
