"""A fitted model against slow NumPy: predictions, derivatives, classes, chunks, messages."""

import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from itertools import pairwise

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import oracle
from greatcircle import LipschitzClassifier, LipschitzRegressor, certificate
from greatcircle.data.scaling import SCALINGS, Scaling
from greatcircle.model import Model, as_model
from greatcircle.model import model as model_module
from greatcircle.network.activations import ACTIVATIONS
from small import ACTIVATION_NAMES

RNG = np.random.default_rng(0)
X = 3 * RNG.standard_normal((40, 3)) + [1.0, -2.0, 0.0]
Y = RNG.standard_normal((40, 2)) * 5 + 7


def weights_of(sizes, bias, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(
        rng.standard_normal((fan_in + bias, out)) / np.sqrt(fan_in)
        for fan_in, out in pairwise(sizes)
    )


def model_of(activation="tanh", scaling="standard", bias=True, sizes=(3, 6, 5, 2), **changes):
    fitted = Scaling.fit(scaling, X, Y[:, : sizes[-1]], centred=True)
    return Model(
        weights=weights_of(sizes, bias),
        bias=bias,
        activation=ACTIVATIONS[activation],
        scaling=replace(fitted, factor=0.3),
        **changes,
    )


def scaled(scaling, x):
    """Return one scaled row, by the definition of each scaling."""
    if scaling.name == "paper":
        return x / (np.linalg.norm(x) or 1.0)
    if scaling.name == "standard":
        return (x - X.mean(axis=0)) / X.std(axis=0) / np.sqrt(3)
    return x / max(np.linalg.norm(row) for row in X)


def slow_output(model, x):
    """Return the output for one row, by the oracle."""
    z = scaled(model.scaling, x)
    f = oracle.forward(model.weights, z, model.activation.name, model.bias)
    return f / model.scaling.factor + Y.mean(axis=0)[: len(f)]


def slow_jacobian(model, x):
    """Return the derivatives for one row, forwards through the layers."""
    z = scaled(model.scaling, x)
    inputs = oracle.layer_inputs(model.weights, z, model.activation.name, model.bias)
    J = {
        "paper": (np.eye(3) - np.outer(z, z)) / (np.linalg.norm(x) or np.inf),
        "standard": np.diag(1 / (X.std(axis=0) * np.sqrt(3))),
        "max": np.eye(3) / max(np.linalg.norm(row) for row in X),
    }[model.scaling.name]
    for i, (W, h) in enumerate(zip(model.weights, inputs, strict=True)):
        J = (W[: len(W) - model.bias]).T @ J
        if i < len(model.weights) - 1:
            J = oracle.activate(model.activation.name, h @ W)[1][:, None] * J
    return J / model.scaling.factor


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_outputs_and_derivatives_are_those_of_the_oracle(activation, scaling, bias):
    model = model_of(activation, scaling, bias)
    expected = np.array([slow_output(model, x) for x in X])
    np.testing.assert_allclose(model.outputs(X), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), model.outputs(X))
    expected = np.array([slow_jacobian(model, x) for x in X])
    assert model.jacobian(X).shape == (40, 2, 3)
    np.testing.assert_allclose(model.jacobian(X), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_the_jacobian_is_the_derivative_of_the_outputs(scaling):
    model, step = model_of("tanh", scaling), 1e-6
    jacobian = model.jacobian(X)
    for i in range(3):
        e = step * np.eye(3)[i]
        slope = (model.outputs(X + e) - model.outputs(X - e)) / (2 * step)
        np.testing.assert_allclose(jacobian[:, :, i], slope, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("sizes", [(3, 2), (3, 4, 1), (3, 1, 7, 2), (3, 5, 5, 5, 5, 2)])
def test_networks_of_any_depth(sizes):
    model = model_of("softsign", sizes=sizes)
    assert model.sizes == sizes
    expected = np.array([slow_output(model, x) for x in X])
    np.testing.assert_allclose(model.outputs(X), expected, rtol=1e-12, atol=1e-12)
    expected = np.array([slow_jacobian(model, x) for x in X])
    np.testing.assert_allclose(model.jacobian(X), expected, rtol=1e-11, atol=1e-12)


def test_a_row_of_zeros_with_the_papers_scaling():
    model = model_of("tanh", "paper", bias=False)
    zero = np.zeros((1, 3))
    np.testing.assert_array_equal(model.outputs(zero)[0], model.scaling.target_shift)
    np.testing.assert_array_equal(model.jacobian(zero), np.zeros((1, 2, 3)))


def test_a_constant_column_is_ignored():
    constant = X.copy()
    constant[:, 1] = 4.0
    model = replace(model_of(), scaling=Scaling.fit("standard", constant, Y))
    other = constant.copy()
    other[:, 1] = 1e6
    np.testing.assert_array_equal(model.outputs(other), model.outputs(constant))
    np.testing.assert_array_equal(model.jacobian(X)[:, :, 1], 0)


def test_layers_with_and_without_biases():
    model = model_of()
    assert model.sizes == (3, 6, 5, 2)
    assert [w.shape for w in model.matrices] == [(3, 6), (6, 5), (5, 2)]
    for w, b, weights in zip(model.matrices, model.biases, model.weights, strict=True):
        np.testing.assert_array_equal(np.vstack([w, b]), weights)
    without = model_of(bias=False)
    assert without.sizes == (3, 6, 5, 2)
    assert without.biases is None
    for w, weights in zip(without.matrices, without.weights, strict=True):
        assert w is weights


def test_all_is_computed_in_float64():
    """Far from zero, float32 would not tell neighbouring inputs apart."""
    double = model_of()
    single = replace(double, weights=tuple(w.astype(np.float32) for w in double.weights))
    rounded = replace(double, weights=tuple(w.astype(np.float64) for w in single.weights))
    for rows in (X, X + 1e6):
        np.testing.assert_array_equal(single.outputs(rows), rounded.outputs(rows), strict=True)
        np.testing.assert_array_equal(single.jacobian(rows), rounded.jacobian(rows), strict=True)
    np.testing.assert_array_equal(
        double.outputs(X.astype(np.float32)), double.outputs(X.astype(np.float32).tolist())
    )


# Chunks of rows


@pytest.mark.parametrize("entries", [1, 7, 20, 45])
def test_chunks_change_nothing_and_bound_the_memory(entries, monkeypatch):
    shapes = []
    tanh = ACTIVATIONS["tanh"]

    def function(z, xp):
        shapes.append(z.shape)
        return tanh.function(z, xp)

    model = replace(model_of(), activation=replace(tanh, function=function))
    outputs, jacobian = model.outputs(X), model.jacobian(X)
    assert {rows for rows, _ in shapes} == {40}
    monkeypatch.setattr(model_module, "CHUNK_ENTRIES", entries)
    for compute, whole, per_row in (
        (model.outputs, outputs, 6),
        (model.jacobian, jacobian, 2 * 6),
    ):
        shapes.clear()
        found = compute(X)
        np.testing.assert_allclose(found, whole, rtol=1e-13, atol=1e-14, strict=True)
        assert max(rows for rows, _ in shapes) == max(1, entries // per_row)
        for few in (0, 1, 2, 11):
            np.testing.assert_allclose(compute(X[:few]), whole[:few], rtol=1e-13, atol=1e-14)


def test_no_rows_give_no_outputs():
    model = model_of()
    none = np.empty((0, 3))
    assert model.outputs(none).shape == (0, 2)
    assert model.predict(none).shape == (0, 2)
    assert model.jacobian(none).shape == (0, 2, 3)


# Wrong arguments


@pytest.mark.parametrize("shape", [(3,), (4, 2), (4, 4), (2, 4, 3), ()])
@pytest.mark.parametrize("method", ["outputs", "predict", "jacobian"])
def test_wrong_shapes_are_named(shape, method):
    model = model_of()
    with pytest.raises(ValueError, match="expected rows of 3 columns") as caught:
        getattr(model, method)(np.ones(shape))
    assert str(caught.value).startswith(f"X has shape {shape}; ")
    named = replace(model, feature_names=("height", "speed", "load"))
    with pytest.raises(ValueError, match="expected rows of 3 columns: height, speed, load"):
        getattr(named, method)(np.ones(shape))


def test_classes_of_wrong_shapes_are_named():
    model = model_of(classes=np.array(["a", "b"]))
    with pytest.raises(ValueError, match="expected rows of 3 columns"):
        model.predict_proba(np.ones((4, 2)))


# One target, and classes


def test_a_single_output_is_one_dimensional():
    model = model_of(sizes=(3, 4, 1), single_output=True)
    assert model.outputs(X).shape == (40, 1)
    np.testing.assert_array_equal(model.predict(X), model.outputs(X)[:, 0])
    assert replace(model, single_output=False).predict(X).shape == (40, 1)


def logits_model(outputs, labels):
    """Return a classifier whose logits have mean zero."""
    scaling = Scaling.fit("standard", X, np.zeros((40, outputs)))
    model = model_of(sizes=(3, 4, outputs), classes=np.array(labels))
    return replace(model, scaling=scaling)


def slow_probabilities(logits):
    logits = [0.0, *logits] if len(logits) == 1 else logits
    total = sum(np.exp(z) for z in logits)
    return [np.exp(z) / total for z in logits]


@pytest.mark.parametrize(
    ("outputs", "labels"), [(1, ["no", "yes"]), (2, [3, 5]), (3, [-1.0, 0.5, 2.0])]
)
def test_probabilities_and_labels(outputs, labels):
    model = logits_model(outputs, labels)
    expected = np.array([slow_probabilities(z) for z in model.outputs(X)])
    found = model.predict_proba(X)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-14)
    predicted = model.predict(X)
    assert predicted.dtype == model.classes.dtype
    assert predicted.tolist() == [labels[int(np.argmax(p))] for p in expected]
    assert len(set(predicted.tolist())) > 1
    assert model.jacobian(X).shape == (40, outputs, 3)


@pytest.mark.parametrize("outputs", [1, 3])
def test_large_logits_do_not_overflow(outputs):
    model = logits_model(outputs, [0, 1, 2][: max(outputs, 2)])
    *others, last = model.weights
    huge = replace(model, weights=(*others, 1e6 * last))
    found = huge.predict_proba(X)
    assert np.all(np.isfinite(found))
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_array_equal(huge.predict(X), model.predict(X))


def test_equal_logits_give_the_first_class():
    model = logits_model(3, ["a", "b", "c"])
    zero = replace(model, weights=tuple(0 * w for w in model.weights))
    np.testing.assert_allclose(zero.predict_proba(X), 1 / 3)
    assert set(zero.predict(X)) == {"a"}


def test_a_regressor_has_no_probabilities():
    with pytest.raises(TypeError, match=r"regressor, which has no classes; use predict\(X\)"):
        model_of().predict_proba(X)


# The certificate


@pytest.mark.parametrize("scaling", ["standard", "max"])
def test_the_certificate_bounds_the_outputs(scaling):
    model = model_of("relu", scaling)
    assert certificate.verify(model.certificate, model)
    assert model.certificate is model.certificate
    slopes = [np.linalg.norm(J, 2) for J in model.jacobian(X)]
    assert max(slopes) <= model.certificate.value
    rise = np.linalg.norm(np.diff(model.outputs(X), axis=0), axis=1)
    run = np.linalg.norm(np.diff(X, axis=0), axis=1)
    assert np.all(rise <= model.certificate.value * run)
    known = replace(model, known_certificate=certificate.fast(model))
    assert known.certificate is known.known_certificate


# The record itself


def test_a_model_is_frozen():
    model = model_of()
    for name in ("weights", "bias", "activation", "scaling", "classes", "lipschitz", "training"):
        with pytest.raises(FrozenInstanceError):
            setattr(model, name, None)
    with pytest.raises(FrozenInstanceError):
        model.scaling.factor = 2.0
    other = replace(model, target_names=("a", "b"))
    assert (other.target_names, model.target_names) == (("a", "b"), ())
    np.testing.assert_array_equal(other.predict(X), model.predict(X))


def test_as_model_takes_models_and_fitted_estimators():
    model = model_of()
    assert as_model(model) is model
    regressor = LipschitzRegressor((3,), selection=False, max_iter=1).fit(X, Y)
    assert as_model(regressor) is regressor.model_
    np.testing.assert_array_equal(as_model(regressor).predict(X), regressor.predict(X))
    classifier = LipschitzClassifier((3,), selection=False, max_iter=1).fit(X, Y[:, 0] > 7)
    np.testing.assert_array_equal(as_model(classifier).predict(X), classifier.predict(X))
    np.testing.assert_array_equal(
        as_model(classifier).predict_proba(X), classifier.predict_proba(X)
    )
    pipeline = make_pipeline(regressor)
    for wrong, kind in (
        (LipschitzRegressor(), "LipschitzRegressor"),
        (pipeline, "Pipeline"),
        (None, "NoneType"),
        ("model.safetensors", "str"),
        (model.weights, "tuple"),
        (Model, "type"),
    ):
        with pytest.raises(TypeError, match=f"model is a {kind}; expected a fitted Lipschitz"):
            as_model(wrong)


WITHOUT_JAX = """
import sys
sys.modules["jax"] = sys.modules["equinox"] = None  # an import of either raises ImportError
import numpy as np
from greatcircle.data.scaling import Scaling
from greatcircle.model import Model, as_model
from greatcircle.network.activations import ACTIVATIONS
rng = np.random.default_rng(0)
X = rng.standard_normal((20, 3))
for name, activation in ACTIVATIONS.items():
    for scaling in ("paper", "standard", "max"):
        fitted = Scaling.fit(scaling, X, X[:, :2])
        weights = rng.standard_normal((4, 5)), rng.standard_normal((6, 2))
        model = as_model(Model(weights, True, activation, fitted, classes=np.array(["a", "b"])))
        assert model.outputs(X).shape == (20, 2)
        assert model.jacobian(X).shape == (20, 2, 3)
        assert set(model.predict(X)) <= {"a", "b"}
        assert model.certificate.value > 0
assert not any(name.split(".")[0] in ("jaxlib", "optax") for name in sys.modules)
"""


def test_a_model_works_without_jax():
    subprocess.run([sys.executable, "-c", WITHOUT_JAX], check=True, timeout=240)
