from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

import oracle
from greatcircle import Network, certificate, descend, sphere, stopping
from greatcircle._runtime.precision import precision
from greatcircle._runtime.threads import one_thread
from greatcircle.certificate.closed_form import operator_norms
from greatcircle.network import gains
from small import ACTIVATION_NAMES, small, unless_types_are_checked


@pytest.mark.parametrize("name", ACTIVATION_NAMES)
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_apply_is_equation_1(name, depth):
    s = small(depth, depth=depth, activation=name)
    expected = [oracle.forward(s.weights, x, name) for x in s.X]
    np.testing.assert_allclose(s.network.predict(s.weights, s.X), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ACTIVATION_NAMES)
@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), size=st.floats(1e-6, 1e3), gap=st.floats(1e-9, 1e3))
def test_no_pair_of_inputs_violates_the_operator_norm_product(name, seed, size, gap):
    """‖f(a) − f(b)‖ ≤ ∏‖W_i‖_op ‖a − b‖, near and far, up to rounding."""
    s = small(seed % 7, depth=4, activation=name)  # few networks: each shape compiles once
    rng = np.random.default_rng(seed)
    a = size * rng.standard_normal((20, s.network.sizes[0]))
    b = a + gap * rng.standard_normal(a.shape)
    b[0] = 0  # Eq. (2) is the case b = 0
    bound = certificate.spectral(s.weights, orientation="in-out").value
    fa, fb = (s.network.predict(s.weights, x) for x in (a, b))
    rounding = 1e-13 * bound * (np.linalg.norm(a, axis=1) + np.linalg.norm(b, axis=1))
    lengths = np.linalg.norm(fa - fb, axis=1)
    assert np.all(lengths <= bound * np.linalg.norm(a - b, axis=1) + rounding)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ACTIVATION_NAMES)
def test_all_passes_agree_with_automatic_differentiation(name, bias):
    s = small(3, depth=4, activation=name, bias=bias)
    weights = tuple(map(jnp.asarray, s.weights))
    rng = np.random.default_rng(0)
    velocity = tuple(jnp.asarray(rng.standard_normal(w.shape)) for w in weights)
    outputs, trace = s.network.forward(weights, jnp.asarray(s.X.T))
    cotangent = jnp.asarray(rng.standard_normal(outputs.shape))
    gradient, adjoints = s.network.backward(weights, trace, cotangent)
    jvp, curvature = s.network.second_order(weights, velocity, trace, adjoints)

    def apply(w):
        return s.network.apply(w, jnp.asarray(s.X)).T

    np.testing.assert_allclose(outputs, apply(weights), rtol=1e-14)
    expected = jax.grad(lambda w: jnp.sum(cotangent * apply(w)))(weights)
    for g, e in zip(gradient, expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-10, atol=1e-13)

    def first(w):
        return jax.jvp(apply, (w,), (velocity,))[1]

    np.testing.assert_allclose(jvp, first(weights), rtol=1e-10, atol=1e-13)
    again = s.network.jvp(weights, velocity, trace)
    np.testing.assert_allclose(again, first(weights), rtol=1e-10, atol=1e-13)
    second = jax.jvp(first, (weights,), (velocity,))[1]
    np.testing.assert_allclose(curvature, jnp.sum(cotangent * second), rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ACTIVATION_NAMES)
def test_biases_are_the_last_row_of_each_matrix(name):
    """Compare all passes with a function that appends a column of ones to each layer's input."""
    s = small(3, depth=3, activation=name, bias=True)
    assert s.network.shapes == tuple(
        (a + 1, b) for a, b in zip(s.network.sizes, s.network.sizes[1:], strict=False)
    )
    weights = tuple(map(jnp.asarray, s.weights))
    rng = np.random.default_rng(0)
    velocity = tuple(jnp.asarray(rng.standard_normal(w.shape)) for w in weights)
    ones = jnp.ones((len(s.X), 1))

    def explicit(w):
        h = jnp.asarray(s.X)
        for i, matrix in enumerate(w):
            h = jnp.hstack([h, ones]) @ matrix
            h = s.network.activation(h) if i < len(w) - 1 else h
        return h

    close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-13)
    close(s.network.apply(weights, s.X), explicit(weights))
    close(s.network.predict(s.weights, s.X), explicit(weights))
    close([oracle.forward(s.weights, x, name, bias=True) for x in s.X], explicit(weights))
    outputs, trace = s.network.forward(weights, jnp.asarray(s.X.T))
    close(outputs.T, explicit(weights))
    cotangent = jnp.asarray(rng.standard_normal(outputs.shape))
    gradient, adjoints = s.network.backward(weights, trace, cotangent)
    expected = jax.grad(lambda w: jnp.sum(cotangent.T * explicit(w)))(weights)
    for g, e in zip(gradient, expected, strict=True):
        close(g, e)

    def first(w):
        return jax.jvp(explicit, (w,), (velocity,))[1]

    jvp, curvature = s.network.second_order(weights, velocity, trace, adjoints)
    close(jvp.T, first(weights))
    close(s.network.jvp(weights, velocity, trace).T, first(weights))
    second = jax.jvp(first, (weights,), (velocity,))[1]
    close(curvature, jnp.sum(cotangent.T * second), rtol=1e-9, atol=1e-12)


def test_linear_returns_the_matrices_without_biases():
    s = small(0, bias=True)
    for part, whole, size in zip(
        s.network.linear(s.weights), s.weights, s.network.sizes[:-1], strict=True
    ):
        np.testing.assert_array_equal(part, whole[:size])
        assert len(whole) == size + 1
    plain = small(0)
    assert all(
        a is b for a, b in zip(plain.network.linear(plain.weights), plain.weights, strict=True)
    )


@pytest.mark.parametrize("name", ACTIVATION_NAMES)
def test_biases_do_not_enter_the_lipschitz_bound(name):
    """Even if they are a hundred times larger than the other weights."""
    network = Network((3, 5, 4, 2), name, bias=True)
    rng = np.random.default_rng(0)
    a = 10 * rng.standard_normal((300, 3))
    b = a + 10.0 ** rng.uniform(-6, 1, (300, 1)) * rng.standard_normal(a.shape)
    for size in (1.0, 100.0):
        weights = [w.copy() for w in sphere.random_points(rng, network.shapes, 2.0, np.float64)]
        for w in weights:
            w[-1] *= size
        bound = certificate.spectral(network.linear(weights), orientation="in-out").value
        fa, fb = (network.predict(weights, x) for x in (a, b))
        rounding = 1e-13 * size**3 * (1 + bound) * np.linalg.norm(a, axis=1)
        moved = np.linalg.norm(fa - fb, axis=1)
        assert np.all(moved <= bound * np.linalg.norm(a - b, axis=1) + rounding)


@pytest.mark.parametrize("bias", [False, True])
def test_identity_scheme_makes_hidden_layers_close_to_the_identity(bias):
    network = Network((3, 6, 6, 4, 2), bias=bias)
    weights = network.initial_weights(0, scheme="identity", dtype="float64")
    first, *hidden, last = network.linear(weights)
    for W in hidden:
        W = W / np.median(np.diagonal(W))
        rest = W - np.eye(*W.shape)
        assert 0.01 < np.linalg.norm(rest, 2) < 0.25
    for W in (first, last):  # orthogonal
        singular = np.linalg.svd(W, compute_uv=False)
        np.testing.assert_allclose(singular, singular[0], rtol=1e-12)
    if bias:
        assert all(np.all(w[-1] == 0) for w in weights)


@pytest.mark.parametrize("scheme", ["uniform", "normal", "orthogonal", "identity"])
def test_initial_weights_are_on_their_spheres_and_repeatable(scheme):
    network = Network((5, 9, 3, 2))
    radii = (0.5, 2.0, 1.0)
    first, second = (network.initial_weights(4, scheme=scheme, radius=radii) for _ in range(2))
    wide = network.initial_weights(4, scheme=scheme, radius=radii, dtype="float64")
    for a, b, c, r, shape in zip(first, second, wide, radii, network.shapes, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, atol=1e-6)
        assert (a.shape, a.dtype) == (shape, np.float32)
        assert abs(np.linalg.norm(c) / r - 1) < 1e-14
    if scheme == "orthogonal":
        singular = np.linalg.svd(wide[0], compute_uv=False)
        np.testing.assert_allclose(singular, singular[0], rtol=1e-12)


def test_uniform_weights_are_xavier_up_to_scale():
    (w,) = Network((200, 300)).initial_weights(0, dtype="float64")
    w = w / np.abs(w).max()
    assert abs(w.mean()) < 0.01
    assert abs(w.var() - 1 / 3) < 0.01


@pytest.mark.usefixtures("x64")
def test_gains_are_exact_singular_values():
    s = small(0, depth=5)
    expected = [np.linalg.norm(w, 2) for w in s.weights]
    np.testing.assert_allclose(gains.operator_norms(s.weights), expected, rtol=1e-12)
    np.testing.assert_allclose(gains.product(s.weights), np.prod(expected), rtol=1e-12)
    assert certificate.spectral(s.weights, orientation="in-out").value == pytest.approx(
        np.prod(expected), rel=1e-14
    )
    assert certificate.frobenius(s.weights, orientation="in-out").value == pytest.approx(
        np.prod(s.radii), rel=1e-14
    )


def threads():
    """Return the number of threads of each linear algebra library."""
    libraries = [i for i in threadpool_info() if i["user_api"] == "blas"]
    return {i["filepath"]: i["num_threads"] for i in libraries}


def test_bounds_use_one_thread_and_restore_the_setting(monkeypatch):
    norm, before, during = np.linalg.norm, threads(), []
    monkeypatch.setattr(np.linalg, "norm", lambda *a: during.append(threads()) or norm(*a))
    operator_norms([np.ones((3, 2)), np.ones((2, 1))])
    assert [set(d.values()) for d in during] == [{1}, {1}]
    assert threads() == before


def test_descend_uses_one_thread_and_restores_the_setting():
    """Also in SciPy's library, which JAX loads when it first compiles a call to it."""
    s = small(1)
    with one_thread():
        pass  # find the libraries before JAX has compiled anything
    before, during = threads(), []
    descend(
        s.problem(),
        s.weights,
        stop=stopping.MaxIter(2),
        callback=lambda record, weights: during.append(threads()),
    )
    assert [set(d.values()) for d in during] == [{1}, {1}]
    assert set(during[0]) == set(before)
    assert threads() == before


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (0.5 * np.eye(3), "one array"),
        ([], "empty"),
        ([np.ones(3)], "not a finite matrix"),
        ([np.full((2, 2), np.nan)], "not a finite matrix"),
        ([np.ones((2, 3)), np.ones((7, 4))], "7 inputs"),
    ],
)
def test_bounds_reject_weights_that_are_not_a_network(weights, message):
    for bound in (certificate.spectral, certificate.frobenius):
        with pytest.raises(ValueError, match=message):
            bound(weights)


@unless_types_are_checked
@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((3,), "at least"),
        ((3, 0, 1), "positive"),
        ((3, -2), "positive"),
        ((2.5, 1), "whole"),
        ("ab", "whole numbers"),
        (5, "whole numbers"),
    ],
)
def test_invalid_sizes_are_rejected(sizes, message):
    with pytest.raises(ValueError, match=message) as error:
        Network(sizes)
    assert str(error.value).startswith("sizes is")


@pytest.mark.parametrize("radius", [0.0, -1.0, np.inf, np.nan, (1.0, 0.0, 1.0)])
def test_radius_must_be_positive(radius):
    with pytest.raises(ValueError, match=r"radius is .* expected positive"):
        Network((2, 3, 3, 1)).initial_weights(radius=radius)


def test_other_invalid_arguments():
    network = Network((2, 3, 1))
    with pytest.raises(ValueError, match=r"radius has 3 entries; .* each of the 2 layers"):
        network.initial_weights(radius=(1, 1, 1))
    with pytest.raises(ValueError, match="scheme is 'he'; expected one of uniform"):
        network.initial_weights(scheme="he")
    with pytest.raises(ValueError, match="dtype is 'float16'; expected"):
        network.initial_weights(dtype="float16")
    with pytest.raises(ValueError, match="weights has 1 matrices; the network has 2"):
        network.predict([np.ones((2, 3))], np.ones((1, 2)))
    with pytest.raises(ValueError, match=r"weights\[1\] has shape \(1, 3\); .* \(3, 1\)"):
        network.predict([np.ones((2, 3)), np.ones((1, 3))], np.ones((1, 2)))


def test_predict_has_the_precision_of_the_weights():
    s = small(0)
    for dtype in (np.float32, np.float64):
        for outside in (np.float32, np.float64):
            with precision(outside):
                out = s.network.predict([w.astype(dtype) for w in s.weights], s.X)
            assert out.dtype == dtype
    assert not jax.config.jax_enable_x64
