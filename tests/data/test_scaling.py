"""There and back, bounds, weights of rows, and where training starts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from greatcircle import Network, Problem, certificate, descend, sphere, stopping
from greatcircle._runtime.precision import precision
from greatcircle.data.scaling import SCALINGS, Scaling
from greatcircle.training.initialisation import initialise, spectral_initialisation
from small import small

GLOBAL = ("standard", "max")
FIELDS = ("shift", "spread", "divisor", "target_shift", "factor")


def data(seed=0, rows=12, inputs=3, outputs=2):
    """Columns of very different sizes, away from zero."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, inputs)) * 10.0 ** np.arange(-1, inputs - 1) + 3
    return X, 5 * rng.standard_normal((rows, outputs)) - 2


def same(a, b, tolerance=1e-12):
    assert a.name == b.name
    for field in FIELDS:
        np.testing.assert_allclose(
            getattr(a, field), getattr(b, field), rtol=tolerance, atol=1e-300, err_msg=field
        )


# Algorithm 1


@given(seed=st.integers(0, 1000), exponent=st.integers(-8, 8))
def test_algorithm_1_agrees_with_the_oracle(seed, exponent):
    s = small(seed % 20, rows=9)
    Y = s.Y * 10.0**exponent
    train, test = slice(0, 6), slice(6, 9)
    weights, scaling = spectral_initialisation(
        s.network, Y[train], seed, radius=s.radii, dtype=np.float64
    )
    _, X1, Y1, X2, Y2, factor = oracle.spectral_initialisation(
        weights, s.X[train], Y[train], s.X[test], Y[test], s.radii
    )
    assert scaling.factor == pytest.approx(factor, rel=1e-13)
    np.testing.assert_allclose(scaling.inputs(s.X), np.concatenate([X1, X2]), rtol=1e-14)
    np.testing.assert_allclose(scaling.targets(Y), np.concatenate([Y1, Y2]), rtol=1e-13)
    np.testing.assert_allclose(scaling.outputs(scaling.targets(Y)), Y, rtol=1e-15)


def test_scaled_training_targets_just_fit_under_the_gain():
    s = small(0)
    weights, scaling = spectral_initialisation(s.network, s.Y, 0, dtype=np.float64)
    gain = np.prod([np.linalg.norm(w, 2) for w in weights])
    longest = np.linalg.norm(scaling.targets(s.Y), axis=1).max()
    assert longest == pytest.approx(gain, rel=1e-14)
    assert scaling.bound(gain) == pytest.approx(np.linalg.norm(s.Y, axis=1).max(), rel=1e-14)


@pytest.mark.parametrize("bias", [False, True])
def test_gain_is_the_papers_rule(bias):
    X, Y = data()
    network = Network((3, 4, 2), bias=bias)
    weights, scaling = initialise(
        network,
        X,
        Y,
        5,
        scaling="paper",
        target_scale="gain",
        centred=False,
        scheme="uniform",
        radius=(0.5, 2.0),
        dtype=np.float64,
    )
    gain = np.prod([np.linalg.norm(w, 2) for w in network.linear(weights)])
    assert scaling.factor == pytest.approx(gain / np.linalg.norm(Y, axis=1).max(), rel=1e-13)
    expected, theirs = spectral_initialisation(network, Y, 5, radius=(0.5, 2.0), dtype=np.float64)
    same(scaling, theirs)
    for a, b in zip(weights, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


# There and back


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("centred", [False, True])
def test_the_way_back_is_exact(name, centred):
    X, Y = data()
    _, scaling = initialise(Network((3, 4, 2)), X, Y, 0, scaling=name, centred=centred)
    assert scaling.factor != 1
    np.testing.assert_allclose(scaling.outputs(scaling.targets(Y)), Y, rtol=1e-13)
    np.testing.assert_array_equal(scaling.target_shift != 0, centred)
    if centred:
        np.testing.assert_allclose(scaling.targets(Y).mean(axis=0), 0, atol=1e-13)
    scaled = scaling.inputs(X)
    if name == "paper":
        np.testing.assert_allclose(scaled * np.linalg.norm(X, axis=1, keepdims=True), X, rtol=1e-14)
        np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), 1, rtol=1e-14)
    else:
        back = scaled * (scaling.spread * scaling.divisor) + scaling.shift
        np.testing.assert_allclose(back, X, rtol=1e-13)
    if name == "standard":
        np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-14)
        np.testing.assert_allclose(np.mean(np.sum(scaled**2, axis=1)), 1, rtol=1e-13)
        np.testing.assert_allclose(scaled.var(axis=0), 1 / 3, rtol=1e-13)
    if name == "max":
        assert np.linalg.norm(scaled, axis=1).max() == pytest.approx(1, rel=1e-14)


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1.0, 1e160, 1e300])
@pytest.mark.parametrize("name", ["paper", "max"])
def test_rows_of_every_magnitude_come_to_unit_norm(name, size):
    rows = size * np.array([[3.0, 4.0], [0.0, 0.0]])
    scaling = Scaling.fit(name, rows, np.zeros((2, 1)))
    np.testing.assert_allclose(scaling.inputs(rows), [[0.6, 0.8], [0.0, 0.0]], rtol=1e-14)


@pytest.mark.parametrize("name", SCALINGS)
def test_inputs_that_are_all_zero_stay_zero(name):
    zero = np.zeros((4, 2))
    np.testing.assert_array_equal(Scaling.fit(name, zero, zero).inputs(zero), 0)


@pytest.mark.parametrize("constant", [0.0, 0.1, -7e9, 1e-200])
def test_constant_columns_become_zero_and_count_for_nothing(constant):
    X, Y = data()
    plain = Scaling.fit("standard", X, Y)
    wider = np.column_stack([X[:, :1], np.full(len(X), constant), X[:, 1:]])
    scaling = Scaling.fit("standard", wider, Y)
    scaled = scaling.inputs(wider)
    np.testing.assert_allclose(scaled[:, 1], 0, atol=4e-16 * abs(constant))
    np.testing.assert_allclose(np.delete(scaled, 1, axis=1), plain.inputs(X), rtol=1e-13)
    assert np.isfinite(scaling.bound(1.0))


@pytest.mark.parametrize(
    "targets", [np.zeros((4, 2)), np.full((4, 2), 3.0), np.array([[1.0, 2.0]])]
)
@pytest.mark.parametrize("target_scale", ["gain", "output", 2.0])
def test_zero_constant_and_single_targets(targets, target_scale):
    network = Network((3, 4, 2))
    X = data(rows=len(targets))[0]
    both = [
        spectral_initialisation(network, targets, 0),
        initialise(network, X, targets, 0, target_scale=target_scale, radius=1.0),
    ]
    for weights, scaling in both:
        assert np.isfinite(scaling.factor)
        assert scaling.factor > 0
        np.testing.assert_allclose(scaling.outputs(scaling.targets(targets)), targets, rtol=1e-15)
        assert all(abs(np.linalg.norm(w) - 1) < 1e-6 for w in weights)


# Bounds


@pytest.mark.parametrize("name", GLOBAL)
@pytest.mark.parametrize("gap", [1e-6, 1.0, 1e4])
def test_no_pair_of_inputs_violates_the_bound(name, gap):
    X, Y = data()
    network = Network((3, 5, 4, 2), "tanh", bias=True)
    _, scaling = initialise(network, X, Y, 0, scaling=name)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        weights = sphere.random_points(rng, network.shapes, (0.5, 2.0, 3.0), np.float64)
        bound = scaling.bound(certificate.spectral(network.linear(weights)).value)
        a = X[rng.integers(0, len(X), 200)]
        b = a + gap * rng.standard_normal(a.shape)
        fa, fb = (scaling.outputs(network.predict(weights, scaling.inputs(x))) for x in (a, b))
        moved = np.linalg.norm(fa - fb, axis=1)
        rounding = 1e-13 * bound * (np.linalg.norm(a, axis=1) + np.linalg.norm(b, axis=1))
        assert np.all(moved <= bound * np.linalg.norm(a - b, axis=1) + rounding)


@pytest.mark.parametrize("name", GLOBAL)
def test_the_bound_is_reached(name):
    """Use one linear layer that depends only on the column of least spread: the bound is exact."""
    X, Y = data()
    network = Network((3, 2), "identity", bias=True)
    scaling = Scaling.fit(name, X, Y)
    narrow = int(np.argmin(scaling.spread))
    W = np.zeros((4, 2))
    W[narrow] = 3.0, 4.0
    step = np.eye(3)[[narrow]]
    f = [scaling.outputs(network.predict([W], scaling.inputs(x))) for x in (0 * step, step)]
    assert np.linalg.norm(f[1] - f[0]) == pytest.approx(scaling.bound(5.0), rel=1e-12)
    assert scaling.is_global


def test_bounds_per_standard_deviation():
    X, Y = data()
    scaling = Scaling.fit("standard", X, Y)
    assert scaling.standard_bound(2.0) == pytest.approx(2.0 / np.sqrt(3), rel=1e-14)
    assert scaling.bound(2.0) * X.std(axis=0).min() == pytest.approx(2.0 / np.sqrt(3), rel=1e-12)


@pytest.mark.parametrize("name", GLOBAL)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("budget", [1e-3, 20.0])
def test_a_lipschitz_budget_is_never_exceeded(name, dtype, budget):
    X, Y = data(rows=40)
    network = Network((3, 5, 2), bias=True)
    weights, scaling = initialise(network, X, Y, 0, scaling=name, target_scale=budget, dtype=dtype)
    problem = Problem(network, scaling.inputs(X), scaling.targets(Y), dtype=dtype)
    result = descend(problem, weights, stop=stopping.MaxIter(20))
    assert len(result.records) >= 1
    for w in (weights, result.weights):
        a_priori = scaling.bound(np.prod([np.linalg.norm(m.astype(np.float64)) for m in w]))
        assert 0.99999 * budget <= a_priori <= budget
        assert scaling.bound(certificate.spectral(network.linear(w)).value) <= budget


# The start


@pytest.mark.parametrize("target_gain", [1.0, 7.5])
@pytest.mark.parametrize("name", SCALINGS)
def test_output_makes_targets_as_large_as_the_first_outputs(name, target_gain):
    X, Y = data(rows=30)
    weight = np.arange(30.0)
    network = Network((3, 5, 2), bias=True)
    weights, scaling = initialise(
        network,
        X,
        Y,
        0,
        scaling=name,
        target_gain=target_gain,
        sample_weight=weight,
        dtype=np.float64,
    )
    outputs = network.predict(weights, scaling.inputs(X))

    def rms(values):
        return np.sqrt(np.average(np.sum(values**2, axis=1), weights=weight))

    assert rms(scaling.targets(Y)) == pytest.approx(target_gain * rms(outputs), rel=1e-12)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("scheme", ["uniform", "identity"])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_without_a_radius_the_sums_of_every_layer_have_mean_square_one(bias, scheme, activation):
    X, Y = data(rows=30)
    weight = np.arange(30.0)
    network = Network((3, 6, 5, 5, 2), activation, bias=bias)
    weights, scaling = initialise(
        network, X, Y, 1, scheme=scheme, sample_weight=weight, dtype=np.float64
    )
    with precision(np.float64):
        outputs, trace = network.forward(weights, scaling.inputs(X).T)
    for sums in (*trace.sums, outputs):
        mean = np.average(np.mean(np.asarray(sums) ** 2, axis=0), weights=weight)
        assert mean == pytest.approx(1, rel=1e-12)


def test_a_given_radius_is_kept():
    X, Y = data()
    weights, _ = initialise(Network((3, 4, 2)), X, Y, 0, radius=(0.5, 3.0), dtype=np.float64)
    assert [np.linalg.norm(w) for w in weights] == pytest.approx([0.5, 3.0], rel=1e-14)


# Weights of rows


@pytest.mark.parametrize("name", SCALINGS)
def test_weights_equal_repetition(name):
    X, Y = data(rows=6)
    repeats = np.array([1, 3, 0, 2, 5, 1])
    X[2], Y[2] = 1e6, -1e6  # of weight zero: changes nothing
    X2, Y2 = np.repeat(X, repeats, axis=0), np.repeat(Y, repeats, axis=0)
    fitted = Scaling.fit(name, X, Y, centred=True, sample_weight=repeats)
    same(fitted, Scaling.fit(name, X2, Y2, centred=True))
    keep = repeats > 0
    same(
        fitted,
        Scaling.fit(name, X[keep], Y[keep], centred=True, sample_weight=repeats[keep]),
    )
    for target_scale in ("gain", "output", 3.0):
        network = Network((3, 4, 2), bias=True)
        ours, theirs = (
            initialise(
                network,
                *rows,
                0,
                scaling=name,
                target_scale=target_scale,
                sample_weight=weight,
                dtype=np.float64,
            )
            for rows, weight in (((X, Y), repeats), ((X2, Y2), None))
        )
        same(ours[1], theirs[1], 1e-10)
        for a, b in zip(ours[0], theirs[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("name", SCALINGS)
def test_the_test_part_does_not_leak(name):
    """Applying a scaling does not change it."""
    X, Y = data()
    scaling = Scaling.fit(name, X[:6], Y[:6], centred=True)
    before = scaling.inputs(X[:6]).copy(), scaling.targets(Y[:6]).copy()
    scaling.inputs(100 * X)
    scaling.targets(100 * Y)
    np.testing.assert_array_equal(scaling.inputs(X[:6]), before[0])
    np.testing.assert_array_equal(scaling.targets(Y[:6]), before[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scaling": "unit"}, "scaling is 'unit'; expected one of paper, standard, max"),
        ({"target_scale": "big"}, "target_scale is 'big'; expected 'gain', 'output' or"),
        ({"target_scale": -1.0}, "target_scale is -1.0"),
        ({"target_scale": 0}, "target_scale is 0"),
        ({"target_scale": np.nan}, "target_scale is nan"),
        ({"target_scale": None}, "target_scale is None"),
        ({"scheme": "he"}, "scheme is 'he'"),
        ({"radius": -1.0}, "radius is -1.0"),
        ({"radius": (1.0, 2.0, 3.0)}, "radius has 3 entries"),
        ({"dtype": "float16"}, "dtype is 'float16'"),
        ({"target_gain": -1.0}, "target_gain is -1.0"),
        ({"target_gain": 0.0}, "target_gain is 0.0"),
        ({"target_gain": np.nan}, "target_gain is nan"),
    ],
)
def test_bad_arguments_are_named(change, message):
    X, Y = data()
    with pytest.raises(ValueError, match=message):
        initialise(Network((3, 4, 2)), X, Y, 0, **change)
