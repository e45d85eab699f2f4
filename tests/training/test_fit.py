"""From settings and data to a model: units, history, early stopping, budget, continuation."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greatcircle import LipschitzRegressor, Network, certificate, losses
from greatcircle.data.rows import Rows
from greatcircle.data.scaling import SCALINGS, Scaling
from greatcircle.geometry import sphere
from greatcircle.model import Model
from greatcircle.optimise.checkpoint import Checkpoint
from greatcircle.optimise.stopping import MaxIter
from greatcircle.training.data import FitData, Names
from greatcircle.training.fit import Continuation, fit
from greatcircle.training.monitor import spectral_bound
from greatcircle.training.settings import fit_settings

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 3)) * [1.0, 10.0, 0.1] + 5
Y = 30 * np.stack([np.tanh(X[:, 0] - 5), (X[:, 1] - 5) / 10], axis=1)
Y += RNG.standard_normal(Y.shape)
DATA = FitData(Rows(X, Y), names=Names(features=("a", "b", "c"), targets=("u", "v")))
SQUARED = losses.Squared()


def settings(iterations=8, **changes):
    parameters = LipschitzRegressor((6,)).get_params(deep=False) | changes
    return replace(fit_settings(SimpleNamespace(**parameters), (6,)), stop=MaxIter(iterations))


def trained(data=DATA, iterations=8, *, loss=SQUARED, seed=0, changes=None, **options):
    return fit(settings(iterations, **(changes or {})), data, loss, seed, **options).model


def loss_of(model, rows=DATA.rows):
    """Return ½‖f − y‖² before clipping, the mean over the rows, in the units of the targets."""
    errors = model.unsaturated().outputs(rows.inputs) - rows.targets
    return float(np.mean(np.sum(errors**2, axis=1))) / 2


def assert_same_records(found, expected):
    np.testing.assert_array_equal(np.array(found), np.array(expected))  # NaN equals NaN


def product_of_norms(model):
    """Return ∏ ‖W_i‖_op of a model in the units of the data, by SVD."""
    first, *others = model.matrices
    matrices = [first / (model.scaling.spread * model.scaling.divisor)[:, None], *others]
    return math.prod(np.linalg.norm(w, 2) for w in matrices) / model.scaling.factor


# The model


@pytest.mark.parametrize("method", ["auto", "ad", "mm"])
def test_the_model_has_what_was_trained(method):
    model = trained(changes={"method": method, "activation": "tanh"})
    assert isinstance(model, Model)
    assert model.sizes == (3, 6, 2)
    assert model.activation.name == "tanh"
    assert model.bias == (method == "auto")
    assert (model.feature_names, model.target_names) == (("a", "b", "c"), ("u", "v"))
    assert (model.classes, model.lipschitz, model.single_output) == (None, None, False)
    assert model.scaling.name == ("standard" if method == "auto" else "paper")
    assert all(isinstance(w, np.ndarray) for w in model.weights)
    assert model.training.outcome == "max_iter"
    assert model.training.reason == "reached the limit of 8 iterations"


@pytest.mark.parametrize("scaling", SCALINGS)
def test_the_history_is_in_the_units_of_the_data(scaling):
    model = trained(changes={"scaling": scaling})
    history = model.training.history
    assert model.training.loss == pytest.approx(loss_of(model), rel=1e-9)
    assert history["loss"][-1] == pytest.approx(loss_of(model), rel=1e-9)
    assert history["spectral_bound"][-1] == pytest.approx(product_of_norms(model), rel=1e-9)
    np.testing.assert_array_equal(history["iteration"], np.arange(1, 9))
    np.testing.assert_allclose(-np.diff(history["loss"]), history["actual"][1:], rtol=1e-6)
    assert np.all(np.isnan(history["validation_loss"]))
    # Targets in other units have the same iterations, and losses in the square of the unit.
    other = FitData(Rows(X, 1000 * Y), names=DATA.names)
    thousand = trained(other, changes={"scaling": scaling}).training.history
    for name in ("loss", "slope", "predicted", "actual"):
        np.testing.assert_allclose(thousand[name], 1e6 * history[name], rtol=1e-5)
    np.testing.assert_allclose(thousand["spectral_bound"], 1000 * history["spectral_bound"], 1e-5)
    np.testing.assert_allclose(thousand["angle"], history["angle"], rtol=1e-5)


def test_losses_other_than_the_squared_one_see_the_targets_themselves():
    model = trained(loss=losses.Huber(2.0))
    assert model.scaling.factor == 1.0
    errors = np.abs(model.unsaturated().outputs(X) - Y)
    huber = np.where(errors <= 2, errors**2 / 2, 2 * (errors - 1))
    assert model.training.loss == pytest.approx(float(np.mean(huber.sum(axis=1))), rel=1e-9)


def test_weighted_rows_have_the_weighted_loss():
    weight = RNG.uniform(0, 2, len(X))
    model = trained(FitData(Rows(X, Y, weight)))
    errors = np.sum((model.unsaturated().outputs(X) - Y) ** 2, axis=1)
    expected = float(np.average(errors, weights=weight)) / 2
    assert model.training.loss == pytest.approx(expected, rel=1e-9)


def test_the_seed_decides_the_initial_weights():
    one, same, other = (trained(iterations=0, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.weights[0], same.weights[0])
    assert np.any(one.weights[0] != other.weights[0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weights_have_the_precision_of_the_settings(dtype):
    assert {w.dtype.name for w in trained(changes={"dtype": dtype}).weights} == {dtype}


# Callbacks and the progress bar


def test_all_callbacks_see_every_iteration_and_one_may_stop():
    seen = {"first": [], "second": []}

    def first(record):
        seen["first"].append(record)
        return record.iteration == 3

    def second(record):
        seen["second"].append(record)

    model = trained(changes={"callbacks": [first, second]})
    training = model.training
    assert (training.outcome, training.reason) == ("stopped", "a callback asked to stop")
    for records in seen.values():
        assert_same_records(records, training.history.rows())
    assert [r.iteration for r in seen["first"]] == [1, 2, 3]


def test_the_bar_shows_every_record_in_the_units_of_the_data():
    shown, expected, open_bars = [], [], []

    class Bar:
        show = shown.append
        expect = expected.append

        def __enter__(self):
            open_bars.append(True)

        def __exit__(self, *_):
            open_bars.pop()

    model = trained(bar=Bar())
    assert not open_bars
    assert len(expected) == 1
    assert len(shown) <= expected[0]
    assert_same_records(shown, model.training.history.rows())


# Early stopping


def test_early_stopping_keeps_the_weights_with_the_lowest_validation_loss():
    rng = np.random.default_rng(1)
    rows = Rows(X[:20], Y[:20] + 20 * rng.standard_normal((20, 2)))
    held_out = Rows(X[20:], Y[20:])
    changes = {"early_stopping": True, "n_iter_no_change": 3}
    model = trained(FitData(rows, held_out), 200, changes=changes)
    history = model.training.history
    best = int(np.argmin(history["validation_loss"]))
    assert len(history["loss"]) == best + 1 + 3
    assert model.training.outcome == "stopped"
    assert model.training.reason == "the validation loss has not fallen for 3 iterations"
    assert history["validation_loss"][best] == pytest.approx(loss_of(model, held_out), rel=1e-9)
    assert model.training.loss == history["loss"][best]
    assert model.training.loss == pytest.approx(loss_of(model, rows), rel=1e-9)


# Continuation


def test_a_run_in_two_parts_is_the_run_in_one():
    whole = fit(settings(8), DATA, SQUARED, 0)
    first = fit(settings(5), DATA, SQUARED, 0)
    records = first.model.training.history.rows()
    start = Continuation(first.model, first.direction_state, records)
    rest = fit(settings(3), DATA, SQUARED, 1, start=start)
    history = rest.model.training.history
    np.testing.assert_array_equal(history["iteration"], np.arange(1, 9))
    assert_same_records(history.rows()[:5], records)
    np.testing.assert_array_equal(history["loss"][:5], whole.model.training.history["loss"][:5])
    assert np.all(np.diff(history["loss"]) < 0)
    assert rest.model.scaling is first.model.scaling
    for a, b in zip(first.model.weights, rest.model.weights, strict=True):
        assert np.linalg.norm(a) == pytest.approx(np.linalg.norm(b), rel=1e-12)
    # Without the records, the numbers begin at one; without the state, the direction begins anew.
    alone = fit(settings(3), DATA, SQUARED, 1, start=Continuation(first.model))
    np.testing.assert_array_equal(alone.model.training.history["iteration"], [1, 2, 3])


def test_a_steepest_run_in_two_parts_has_the_same_bits():
    changes = {"method": ("steepest", "curvature")}
    whole, first = (trained(iterations=n, changes=changes) for n in (8, 5))
    rest = trained(iterations=3, changes=changes, start=Continuation(first))
    for a, b in zip(rest.weights, whole.weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_checkpoint_resumes_with_the_same_bits(tmp_path):
    def run(iterations, resume):
        checkpoint = Checkpoint(tmp_path, resume=resume, fingerprint={})
        return trained(iterations=iterations, checkpoint=checkpoint)

    whole = trained(iterations=8)
    run(3, False)
    rest = run(8, True)
    for a, b in zip(rest.weights, whole.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(rest.training.history["loss"], whole.training.history["loss"])


# The budget


@pytest.mark.parametrize("scaling", ["standard", "max"])
def test_a_budget_is_a_second_run_within_it(scaling):
    free = trained(changes={"scaling": scaling})
    budget = 0.3 * free.certificate.value
    changes = {"scaling": scaling, "lipschitz": budget, "max_iter": 10}
    model = trained(changes=changes)
    assert 0.97 * budget <= model.certificate.value <= budget
    assert certificate.verify(model.certificate, model)
    assert model.lipschitz == budget
    history = model.training.history
    assert len(history["loss"]) == 8 + 10  # iterations of the free run, then rounds
    np.testing.assert_array_equal(history["iteration"], np.arange(1, 19))
    np.testing.assert_array_equal(history["loss"][:8], free.training.history["loss"])
    assert np.all(history["spectral_bound"] > 0)
    assert model.training.loss == pytest.approx(loss_of(model), rel=1e-6)
    # It fits better than the free run's weights, scaled down to the budget.
    scaled = trained(changes=changes | {"max_iter": 0})
    assert 0.97 * budget <= scaled.certificate.value <= budget
    assert len(scaled.training.history["loss"]) == 8
    assert scaled.training.loss == pytest.approx(loss_of(scaled), rel=1e-6)
    assert model.training.loss < scaled.training.loss


def test_a_run_that_a_callback_stops_is_scaled_to_the_budget():
    changes = {"lipschitz": 0.5, "callbacks": [lambda record: record.iteration == 2]}
    model = trained(changes=changes)
    assert len(model.training.history["loss"]) == 2
    assert (model.training.outcome, model.training.reason) == (
        "stopped",
        "a callback asked to stop",
    )
    assert model.certificate.value <= 0.5
    assert model.training.loss == pytest.approx(loss_of(model), rel=1e-6)


def test_early_stopping_within_a_budget_keeps_its_best_weights():
    held_out = Rows(X[60:], Y[60:])
    data = FitData(Rows(X[:60], Y[:60]), held_out)
    changes = {"lipschitz": 2.0, "early_stopping": True, "n_iter_no_change": 2, "max_iter": 10}
    model = trained(data, 5, changes=changes)
    assert model.certificate.value <= 2.0
    history = model.training.history
    best = 5 + int(np.argmin(history["validation_loss"][5:]))
    assert loss_of(model, held_out) == pytest.approx(history["validation_loss"][best], rel=1e-3)


# The spectral bound


@given(
    seed=st.integers(0, 10**6),
    depth=st.integers(1, 4),
    bias=st.booleans(),
    size=st.sampled_from([1e-200, 1e-30, 1.0, 1e30, 1e200]),
    scaling=st.sampled_from(SCALINGS),
)
def test_the_spectral_bound_is_the_product_of_norms(seed, depth, bias, size, scaling):
    rng = np.random.default_rng(seed)
    network = Network(rng.integers(1, 9, depth + 1).tolist(), bias=bias)
    inputs = rng.standard_normal((20, network.sizes[0])) * 10 ** rng.uniform(-2, 2)
    fitted = Scaling.fit(scaling, inputs, np.zeros((20, 1)))
    weights = [rng.standard_normal(shape) for shape in network.shapes]
    weights[0] *= size
    matrices = [w[: len(w) - bias] for w in weights]
    matrices[0] = matrices[0] / (fitted.spread * fitted.divisor)[:, None]
    expected = math.prod(np.linalg.svd(w, compute_uv=False)[0] for w in matrices)
    assert spectral_bound(network, fitted, tuple(weights)) == pytest.approx(expected, rel=1e-12)


def test_the_spectral_bound_of_zero_and_of_the_targets_scale():
    network = Network((3, 4, 2))
    scaling = Scaling.fit("max", X, Y)
    zero = (np.zeros((3, 4)), np.ones((4, 2)))
    assert spectral_bound(network, scaling, zero) == 0
    ones = (np.ones((3, 4)), np.ones((4, 2)))
    once = spectral_bound(network, scaling, ones)
    by_factor = Scaling(**{**vars(scaling), "factor": 4.0})
    assert spectral_bound(network, by_factor, ones) == pytest.approx(once / 4, rel=1e-14)
    single = tuple(w.astype(np.float32) for w in ones)
    assert spectral_bound(network, scaling, single) == pytest.approx(once, rel=1e-12)
    assert once == pytest.approx(
        np.sqrt(12) * np.sqrt(8) / max(np.linalg.norm(row) for row in X), rel=1e-12
    )


def test_the_spectral_bound_of_the_loops_own_weights():
    """The loop hands weights to observers as it unpacks them."""
    network = Network((3, 4, 2), bias=True)
    weights = network.initial_weights(0, dtype=np.float64)
    scaling = Scaling.fit("standard", X, Y)
    unpacked = sphere.unpack(sphere.pack(weights))
    assert spectral_bound(network, scaling, unpacked) == pytest.approx(
        spectral_bound(network, scaling, weights), rel=1e-6
    )
