"""Models and their exports agree for inputs of every magnitude."""

from dataclasses import replace

import numpy as np
import pytest

from exported import C, handmade, imported, outputs, program
from greatcircle.data.rows import row_norms, unit_rows
from greatcircle.export import export

DTYPES = ("float64", "float32")
LIMITS = {"float64": 1e-14, "float32": 2e-6}


def sizes(dtype):
    """Return powers of ten from the smallest number to the largest, and the ends of the range."""
    kind = np.finfo(dtype)
    ends = np.array([kind.smallest_subnormal, kind.tiny, kind.max / 2, kind.max])
    powers = 10.0 ** np.arange(-323, 309)
    fitting = powers[(powers > kind.smallest_subnormal) & (powers < kind.max)]
    return np.concatenate([ends, fitting]).astype(dtype)


def rows(dtype, columns=3):
    """Return rows of every magnitude: mixed signs, equal entries, one entry, both ends, zero."""
    rng, kind, column = np.random.default_rng(0), np.finfo(dtype), sizes(dtype)[:, None]
    with np.errstate(under="ignore"):
        some = column * rng.uniform(-1, 1, (len(column), columns)).astype(dtype)
    ends = rng.choice([kind.max, kind.tiny, kind.smallest_subnormal, 1, 0], (20, columns))
    first = np.eye(1, columns, dtype=dtype)
    signs = rng.choice([-1, 1], (len(column), columns)).astype(dtype)
    return np.concatenate([some, column * signs, column * first, ends.astype(dtype), 0 * first])


def exact_units(x):
    """Return x/‖x‖ after a division by a power of two, which is exact."""
    _, exponent = np.frexp(np.max(np.abs(x), axis=1, keepdims=True))
    unit = np.ldexp(x.astype(np.float64), -exponent)
    norm = np.linalg.norm(unit, axis=1, keepdims=True)
    return np.divide(unit, norm, out=np.zeros_like(unit), where=norm > 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_every_size_have_norm_one(dtype):
    x = rows(dtype)
    unit, largest, norm = unit_rows(x)
    np.testing.assert_allclose(unit, exact_units(x), rtol=0, atol=4e-16)
    lengths = np.linalg.norm(unit, axis=1)
    np.testing.assert_allclose(lengths[:-1], 1, rtol=1e-15)
    assert lengths[-1] == largest[-1, 0] == 0
    assert np.all(norm >= 1)
    fits = x[np.max(np.abs(x), axis=1) < np.finfo(np.float64).max / 4]
    norms = np.hypot.reduce(fits.astype(np.float64), axis=1)
    np.testing.assert_allclose(row_norms(fits)[:, 0], norms, rtol=1e-15, atol=5e-324)


def exported(to, model, folder, dtype):
    """Return a function from rows to outputs and derivatives."""
    suffix = {"c": "c", "onnx": "onnx", "casadi": "casadi"}.get(to, "py")
    path = folder / f"net.{suffix}"
    export(model, path, to=to, dtype=dtype, jacobian=True)
    if to == "c":
        program("gcc")
        return lambda x: C(path)(x, 2, jacobian=True)
    if to == "numpy":
        module = imported(path)
        return lambda x: (module.evaluate(x), module.jacobian(x))
    if to == "torch":
        torch, module = pytest.importorskip("torch"), imported(path).net()
        return lambda x: [f(torch.tensor(x)).numpy() for f in (module, module.jacobian)]
    package = pytest.importorskip("onnxruntime" if to == "onnx" else "casadi")
    if to == "onnx":
        session = package.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return lambda x: session.run(None, {"x": x})
    function = package.Function.load(str(path))
    slopes = function.jacobian()
    return lambda x: (
        np.array(function(x.T)).T,
        np.stack([np.array(slopes(row, 0)) for row in x]),
    )


FILES = [(to, d) for to in ("c", "onnx", "casadi", "numpy", "torch") for d in DTYPES]


@pytest.mark.parametrize(("to", "dtype"), FILES)
def test_normalised_inputs_of_every_size(to, dtype, tmp_path):
    """`scaling="paper"`: from the smallest subnormal number to the largest number."""
    if (to, dtype) == ("casadi", "float32"):
        pytest.skip("CasADi computes in float64")
    model, x = handmade((3, 4, 2), "tanh", "paper"), rows(dtype)
    y, jac = exported(to, model, tmp_path, dtype)(x)
    with np.errstate(all="ignore"):  # scikit-learn sums the inputs; 1/‖x‖ overflows
        expected, slopes = model.predict(x), model.jacobian(x).astype(dtype)
    assert np.max(np.abs(y - expected)) <= LIMITS[dtype] * np.max(np.abs(expected))
    fits = np.all(np.isfinite(slopes), axis=(1, 2))
    assert 0 < np.sum(~fits) < len(x) / 4
    if to == "casadi":  # whose derivatives contain 1/max|x|, which overflows
        fits &= ~np.all(np.abs(x) < 6e-309, axis=1) | np.all(x == 0, axis=1)
    size = np.max(np.abs(slopes[fits]), axis=(1, 2)) + np.finfo(dtype).tiny
    assert np.all(
        np.max(np.abs(jac[fits] - slopes[fits]), axis=(1, 2)) <= 100 * LIMITS[dtype] * size
    )


@pytest.mark.parametrize("activation", ["relu", "tanh", "arctan"])
@pytest.mark.parametrize(("to", "dtype"), FILES)
def test_scaled_inputs_of_every_size(to, dtype, activation, tmp_path):
    """Covers inputs that overflow when scaled: a bounded activation then saturates."""
    if (to, dtype) == ("casadi", "float32"):
        pytest.skip("CasADi computes in float64")
    model = handmade((1, 3, 2), activation)
    scaling = replace(model.scaling, spread=np.array([0.01]))
    model = replace(model, scaling=scaling)
    x = rows(dtype, 1)
    y, _ = exported(to, model, tmp_path, dtype)(x)
    with np.errstate(all="ignore"):
        expected, _ = outputs(model, x)
    fits = np.all(np.abs(expected) < np.finfo(dtype).max / 10, axis=1)
    assert np.sum(fits) > 50
    size = np.maximum(np.max(np.abs(expected[fits]), axis=1), 1)
    assert np.all(np.max(np.abs(y[fits] - expected[fits]), axis=1) <= 10 * LIMITS[dtype] * size)
