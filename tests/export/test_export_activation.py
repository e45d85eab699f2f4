"""A user's own activation, declared in one place: fit, certificate and every exporter."""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from exported import C, handmade, imported
from greatcircle import LipschitzRegressor, certificate
from greatcircle.datasets import ground_effect
from greatcircle.export import FORMATS, export, round_model
from greatcircle.export.formula import NUMPY
from greatcircle.export.trace import derivative_of, function_of
from greatcircle.network.activations import ACTIVATIONS, declare
from greatcircle.network.activations.builtin import Activation

DECLARED = {
    activation.name: activation
    for activation in (
        declare(
            lambda z, xp: 0.6 * xp.tanh(z) + 0.3 * z / (1 + z**2),
            slopes=(-0.04, 0.9),
            name="bump",
            derivative=lambda z, a, xp: (
                0.6 * (1 - xp.tanh(z) ** 2) + 0.3 * (1 - z**2) / (1 + z**2) ** 2
            ),
        ),
        declare(
            lambda z, xp: 0.5 * (z + xp.sin(z)),
            slopes=(0.0, 1.0),
            name="stairs",
            derivative=lambda z, a, xp: 0.5 + 0.5 * xp.cos(z),
        ),
        declare(
            lambda z, xp: xp.where(z > 0, z, 0.3 * z),
            slopes=(0.3, 1.0),
            name="leaky",
            derivative=lambda z, a, xp: xp.where(z >= 0, 1, 0.3),
        ),
        declare(
            lambda z, xp: xp.where(z <= 0, -0.7, 0.7) * xp.arctan(z),
            slopes=(-0.7, 0.7),
            name="even_arctan",
            derivative=lambda z, a, xp: xp.where(z < 0, -0.7, 0.7) / (1 + z * z),
        ),
        declare(
            lambda z, xp: 0.25 * z,
            slopes=(0.25, 0.25),
            name="quarter",
            derivative=lambda z, a, xp: 0.25 * xp.ones_like(z),
        ),
    )
}
"""Shared steps, rounded constants, oscillation, kinks, constant slopes."""

LIMITS = {"float64": 1e-12, "float32": 1e-5}


@cache
def fitted(name: str) -> LipschitzRegressor:
    table = ground_effect.generate(200)
    model = LipschitzRegressor((6, 5), activation=DECLARED[name], selection=False, max_iter=3)
    return model.set_params(random_state=0).fit(table.X, table.y)


def run(to: str, path, x: np.ndarray, outputs: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return values and Jacobians that an exported file gives."""
    if to == "c":
        c = C(path)
        assert c.self_test() == 0
        return c(x, outputs, jacobian=True)
    if to == "numpy":
        module = imported(path)
        return module.evaluate(x), module.jacobian(x)
    if to == "torch":
        torch = pytest.importorskip("torch")
        module = imported(path).net()
        return tuple(f(torch.tensor(x)).numpy() for f in (module, module.jacobian))
    if to == "onnx":
        runtime = pytest.importorskip("onnxruntime")
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return session.run(None, {"x": x})
    function = pytest.importorskip("casadi").Function.load(str(path))
    jacobian = function.jacobian()
    return np.array(function(x.T)).T, np.stack([np.array(jacobian(row, 0)) for row in x])


@pytest.mark.parametrize("name", DECLARED)
def test_fit_and_certificate(name):
    model = fitted(name)
    losses = model.history_["loss"]
    assert losses[-1] < losses[0]
    found = certificate.tight(model)
    assert found.declared
    assert certificate.verify(found, model)
    x = ground_effect.generate(100).X
    steepest = np.linalg.norm(model.jacobian(x), 2, axis=(1, 2))
    assert 0 < np.max(steepest) <= found.value


@pytest.mark.parametrize("name", DECLARED)
@pytest.mark.parametrize(
    ("to", "suffix", "dtype"),
    [
        ("c", "c", "float64"),
        ("c", "c", "float32"),
        ("onnx", "onnx", "float64"),
        ("onnx", "onnx", "float32"),
        ("casadi", "casadi", "float64"),
        ("torch", "py", "float64"),
        ("torch", "py", "float32"),
        ("numpy", "py", "float64"),
        ("numpy", "py", "float32"),
    ],
)
def test_every_exporter(to, suffix, dtype, name, tmp_path):
    model, path = fitted(name), tmp_path / f"net.{suffix}"
    x = ground_effect.generate(100).X.astype(dtype)
    export(model, path, to=to, dtype=dtype, jacobian=True)
    y, jacobian = run(to, path, x)
    assert y.dtype == jacobian.dtype == dtype
    for found, expected in ((y, model.predict(x)), (jacobian, model.jacobian(x))):
        assert np.max(np.abs(found - expected)) <= LIMITS[dtype] * np.max(np.abs(expected))


@pytest.mark.parametrize("activation", [*ACTIVATIONS.values(), *DECLARED.values()], ids=str)
def test_formulas_are_the_record(activation):
    z = np.array([-1e300, -700.0, -3.0, -1e-9, -0.0, 0.0, 1e-9, 0.5, 20.0, 1e300, np.nan])
    with np.errstate(all="ignore"):
        a = function_of(activation).evaluate(NUMPY, {"z": z})
        slope = derivative_of(activation).evaluate(NUMPY, {"z": z, "a": a})
    np.testing.assert_array_equal(a, activation(z))
    np.testing.assert_array_equal(slope, activation.slope(z))


def test_a_shared_step_is_computed_once(tmp_path):
    model = handmade((2, 3, 1), DECLARED["bump"])
    export(model, tmp_path / "net.c")
    source = (tmp_path / "net.c").read_text()
    slope = source[source.index("static real derivative") :]
    assert slope[: slope.index("}")].count("tanh(z)") == 1
    assert "const double t1 = tanh(z);" in slope


def test_nan_is_a_constant_of_every_target(tmp_path):
    gap = Activation(
        "gap",
        function=lambda z, xp: xp.where(z > 1e6, xp.nan, z),
        derivative=lambda z, a, xp: xp.where(z > 1e6, xp.nan, xp.ones_like(z)),
    )
    model = handmade((2, 3, 2), gap)
    x = np.array([[1.0, 2.0], [1e9, -1e9]])
    for to, file in (("c", "net.c"), ("onnx", "net.onnx"), ("casadi", "net.casadi")):
        export(model, tmp_path / file, to=to, jacobian=True)
    for to in ("torch", "numpy"):
        export(model, tmp_path / f"{to}_net.py", to=to, name="net")
    files = {"c": "net.c", "onnx": "net.onnx", "casadi": "net.casadi"}
    for to in FORMATS:
        y, _ = run(to, tmp_path / files.get(to, f"{to}_net.py"), x, outputs=2)
        np.testing.assert_allclose(y[0], model.predict(x[:1])[0], rtol=1e-12)
        assert np.all(np.isnan(y[1])), to


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda z, xp: xp.log1p(z), "it uses xp.log1p"),
        (lambda z, xp: abs(z), "abs"),
        (lambda z, xp: z % 2, "%"),
        (lambda z, xp: z**0.5, r"\*\* with the exponent 0.5"),
        (lambda z, xp: z if z > 0 else 0 * z, "use xp.where"),
        (lambda z, xp: xp.where(z == 0, 0, z), "it uses =="),
        (lambda z, xp: (z < 0) * z, "'mul' of a comparison"),
        (lambda z, xp: z < 0, "its result is a comparison"),
        (lambda z, xp: np.tanh(z), "ufunc"),
        (lambda z, xp: z * np.inf, "inf is not a finite number"),
        (lambda z, xp: xp.where(z < 0, z), "xp.where is called with 2 arguments"),
    ],
)
def test_unsupported_operations_are_named(function, words, tmp_path):
    mine = Activation("mine", function, lambda z, a, xp: xp.ones_like(z), bounded=False)
    with pytest.raises(ValueError, match=rf"'mine' cannot be exported \(.*{words}.*xp\.tanh"):
        function_of(mine)


def test_rounding_the_constants_widens_the_slopes():
    """0.6 is rounded up in single precision, and 0.3 is too; the proof is for these numbers."""
    for name, low, high in (("leaky", 0.3, 1.0), ("even_arctan", -0.7, 0.7)):
        model = handmade((2, 3, 1), DECLARED[name])
        single = round_model(model, name="net", dtype="float32").parameters.slopes
        rounded = float(np.float32(high if name == "even_arctan" else low))
        assert round_model(model, name="net").parameters.slopes == (low, high)
        if name == "leaky":
            assert single == (min(low, rounded), high)
        else:
            assert single == (min(low, -rounded), max(high, rounded))
    steep = declare(
        lambda z, xp: 0.3 * (xp.tanh(z) + z * (7 / 3)),
        slopes=(0.0, 1.0),
        name="steep",
        derivative=lambda z, a, xp: 0.3 * ((1 - xp.tanh(z) ** 2) + 7 / 3),
    )
    model = handmade((2, 3, 1), steep)
    round_model(model, name="net")
    with pytest.raises(ValueError, match=r"rounded to float32, give slopes .* within \[-1, 1\]"):
        round_model(model, name="net", dtype="float32")


def test_constants_that_single_precision_cannot_hold():
    tiny = replace(ACTIVATIONS["relu"], function=lambda z, xp: xp.where(z < 0, 1e-300 * z, z))
    huge = replace(ACTIVATIONS["relu"], function=lambda z, xp: z / (1 + 1e300 * z * z))
    round_model(handmade((2, 3, 1), tiny), name="net", dtype="float32")
    with pytest.raises(ValueError, match=re.escape("float32 cannot hold a constant")):
        round_model(handmade((2, 3, 1), huge), name="net", dtype="float32")
