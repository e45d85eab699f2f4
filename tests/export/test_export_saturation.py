"""Exported files of models that clip inputs and outputs."""

import json
from dataclasses import replace

import numpy as np
import pytest

from exported import LIMITS, C, broken, handmade, imported
from greatcircle import certificate
from greatcircle.data.saturation import KINDS, Saturation
from greatcircle.export import export, round_model
from small import ACTIVATION_NAMES

DTYPES = ("float64", "float32")
SIZES = (4, 7, 6, 3)


def saturated(kind, activation="tanh", scaling="standard", *, bias=True):
    """Return a random model with ranges of about one deviation, and one range of one number."""
    model = handmade(SIZES, activation, scaling, bias=bias)
    rng = np.random.default_rng(3)
    x = model.scaling.shift + model.scaling.spread * rng.standard_normal((30, SIZES[0]))
    x[:, 2] = 0.1  # which float32 cannot hold
    found = Saturation.fit(kind, x, model.outputs(0.5 * x))
    return replace(model, saturation=found)


def rows(model, dtype, count=400):
    """Return rows inside the box, then rows far outside, and its corners."""
    rng = np.random.default_rng(5)
    middle, width = model.scaling.shift, model.scaling.spread
    size = np.where(np.arange(count) < count // 2, 0.5, 50.0)[:, None]
    x = middle + size * width * rng.standard_normal((count, SIZES[0]))
    x[: count // 2, 2] = 0.1
    limits = model.saturation
    if limits.clips_inputs:
        x[: count // 2] = limits.inputs(x[: count // 2])
    return x.astype(dtype)


def run_c(path, x, outputs):
    return C(path)(x, outputs, jacobian=True)


def run_numpy(path, x, _):
    module = imported(path)
    return module.evaluate(x), module.jacobian(x)


def run_torch(path, x, _):
    torch = pytest.importorskip("torch")
    module = getattr(imported(path), path.stem)()
    return module(torch.tensor(x)).numpy(), module.jacobian(torch.tensor(x)).numpy()


def run_onnx(path, x, _):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})


def run_casadi(path, x, outputs):
    casadi = pytest.importorskip("casadi")
    function = casadi.Function.load(str(path))
    slopes = np.array(function.jacobian()(x.T, np.zeros((outputs, len(x)))))
    slopes = slopes.reshape(outputs, len(x), x.shape[1]).swapaxes(0, 1)
    return np.array(function(x.T)).T, slopes


RUN = {
    "c": (".c", run_c),
    "numpy": (".py", run_numpy),
    "torch": (".py", run_torch),
    "onnx": (".onnx", run_onnx),
    "casadi": (".casadi", run_casadi),
}
CASES = [
    pytest.param(to, dtype, kind, id=f"{to}-{dtype}-{kind}")
    for to in RUN
    for dtype in DTYPES
    for kind in KINDS
    if to != "casadi" or dtype == "float64"
]


@pytest.mark.parametrize(("to", "dtype", "kind"), CASES)
def test_files_clip_like_the_model(to, dtype, kind, tmp_path):
    suffix, evaluate = RUN[to]
    for activation, scaling in (("tanh", "standard"), ("relu", "max"), ("relu", "standard")):
        model = saturated(kind, activation, scaling)
        path = tmp_path / f"{activation}_{scaling}{suffix}"
        export(model, path, to=to, dtype=dtype, jacobian=True)
        x = rows(model, dtype)
        y, jac = evaluate(path, x, SIZES[-1])
        exact = round_model(model, name="net", dtype=dtype).parameters.model
        assert exact.saturation.kind == kind
        expected, slopes = exact.outputs(x), exact.jacobian(x)
        size = np.max(np.abs(expected))
        assert np.max(np.abs(y - expected)) <= LIMITS[dtype] * size
        assert np.max(np.abs(y - model.outputs(x))) <= LIMITS[dtype] * size
        # Near an end of an output's range, rounding decides whether it is clipped.
        near = np.abs(exact.unsaturated().outputs(exact.saturation.inputs(x)) - expected)
        clear = np.all((near == 0) | (near > 10 * LIMITS[dtype] * size), axis=1)
        if kind == "outputs":
            ends = [exact.saturation.output_lower, exact.saturation.output_upper]
            gap = np.min([np.abs(expected - end) for end in ends], axis=0)
            clear &= np.all((near > 0) | (gap > 10 * LIMITS[dtype] * size), axis=1)
        away = slice(None) if activation == "tanh" else np.flatnonzero(clear & _clear(exact, x))
        clear = np.flatnonzero(clear) if activation == "tanh" else away
        limit = 100 * LIMITS[dtype] * np.max(np.abs(slopes))
        assert np.max(np.abs(jac[clear] - slopes[clear])) <= limit
        if exact.saturation.clips_inputs:
            assert np.all(jac[len(x) // 2 :][_outside(exact, x[len(x) // 2 :])] == 0)
            assert np.all(jac[:, :, 2] == 0)  # its range is one number
        for found in evaluate(path, broken(x), SIZES[-1]):
            assert np.all(np.isnan(found))


def _outside(model, x):
    limits = model.saturation
    outside = (x < limits.lower) | (x > limits.upper)
    return np.broadcast_to(outside[:, None, :], (len(x), SIZES[-1], SIZES[0]))


def _clear(model, x):
    """Tell which rows are away from kinks of a relu network."""
    h = model.scaling.inputs(model.saturation.inputs(x))
    clear = np.ones(len(x), bool)
    for w, b in zip(model.matrices[:-1], model.biases[:-1], strict=True):
        z = h @ w + b
        clear &= np.min(np.abs(z), axis=1) > 1e-4
        h = np.maximum(z, 0)
    return clear


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_bounds_are_proved_in_the_rounded_box(activation, dtype):
    for scaling in ("standard", "max"):
        for bias in (True, False):
            model = saturated("both", activation, scaling, bias=bias)
            of = round_model(model, name="net", dtype=dtype)
            value, margin = model.certificate.value, model.certificate.margin
            assert value <= of.bound <= value * (1 + margin)
            if dtype == "float64":
                assert of.bound == value
            x = rows(model, dtype, 1000).astype(float)
            rise = np.linalg.norm(np.diff(of.parameters.model.outputs(x), axis=0), axis=1)
            run = np.linalg.norm(np.diff(x, axis=0), axis=1)
            assert np.all(rise <= of.bound * run + 1e-12)
            slopes = np.linalg.norm(of.parameters.model.jacobian(x), 2, axis=(1, 2))
            assert np.max(slopes) <= of.bound * (1 + 1e-9)


@pytest.mark.parametrize("to", ["c", "numpy", "onnx", "casadi", "torch"])
def test_a_file_without_clipping(to, tmp_path):
    """It is that of the unsaturated model to the last byte, and states its bound."""
    model = saturated("both")
    suffix, _ = RUN[to]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    written = export(model, tmp_path / "a" / f"net{suffix}", to=to, saturation=False)
    plain = export(model.unsaturated(), tmp_path / "b" / f"net{suffix}", to=to)
    for a, b in zip(written, plain, strict=True):
        assert a.read_bytes() == b.read_bytes()
    assert round_model(model.unsaturated(), name="net").bound >= model.certificate.value


def test_files_state_the_ranges(tmp_path):
    model = saturated("both")
    source = export(model, tmp_path / "net.c")[0].read_text()
    assert source.count(", clipped to ") == SIZES[0] + SIZES[-1]
    assert "everywhere, as inputs are clipped to a box" in source
    facts = round_model(model, name="net").metadata()
    ends = np.array(json.loads(json.dumps(facts["input_ranges"])))
    assert np.array_equal(ends.T, [model.saturation.lower, model.saturation.upper])
    assert len(facts["output_ranges"]) == SIZES[-1]
    assert round_model(model.unsaturated(), name="net").metadata()["input_ranges"] is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_self_test_of_clipping_c_code(dtype, tmp_path):
    for kind in KINDS:
        of = saturated(kind, "relu")
        path = tmp_path / f"{kind}.c"
        export(of, path, dtype=dtype)
        assert C(path).self_test() == 0


def test_a_range_that_float32_cannot_hold(tmp_path):
    model = saturated("both")
    wide = replace(model.saturation, upper=np.full(SIZES[0], 1e60))
    with pytest.raises(ValueError, match="upper end of a range"):
        export(replace(model, saturation=wide), tmp_path / "net.c", dtype="float32")


def test_the_certificate_of_a_file_is_that_of_its_own_box():
    """A wider box in the file needs another proof."""
    model = saturated("inputs", "tanh")
    wider = replace(model.saturation, upper=model.saturation.upper + 1)
    other = replace(model, saturation=wider)
    assert not certificate.verify(model.certificate, other)
    assert certificate.verify(other.certificate, other)
