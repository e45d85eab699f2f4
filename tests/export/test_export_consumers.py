"""Exported files where they run: onnxruntime, CasADi and its generated C, PyTorch, NumPy."""

import json
import subprocess
import sys
from itertools import product

import numpy as np
import pytest

from exported import (
    CASES,
    LIMITS,
    assert_jacobian,
    assert_near,
    broken,
    case,
    handmade,
    imported,
    inputs,
    outputs,
    program,
    run,
)
from greatcircle.data.scaling import SCALINGS
from greatcircle.export import export, onnx, round_model
from small import ACTIVATION_NAMES, thinned

DTYPES = ("float64", "float32")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("activation", "scaling"), CASES)
def test_onnxruntime_agrees_with_numpy(activation, scaling, dtype, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    of = case(activation, scaling)
    export(of.model, tmp_path / "net.onnx", dtype=dtype, jacobian=True, units={"x0": "m"})
    session = runtime.InferenceSession(
        str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"]
    )
    x = inputs(of.model, dtype)
    y, jac = session.run(None, {"x": x})
    assert y.dtype == jac.dtype == dtype
    assert_near(of, y, x, LIMITS[dtype])
    assert_jacobian(of, jac, x, 100 * LIMITS[dtype])
    for found in session.run(None, {"x": broken(x)}):
        assert np.all(np.isnan(found))
    texts = session.get_modelmeta().custom_metadata_map
    assert json.loads(texts["inputs"]) == [f"x{i}" for i in range(12)]
    assert json.loads(texts["outputs"]) == list(of.model.target_names)
    assert json.loads(texts["units"]) == {"x0": "m"}
    assert texts["model_sha256"] == of.model.certificate.digest
    certificate = of.model.certificate
    bound = float(texts["lipschitz"])
    assert certificate.value <= bound <= certificate.value * (1 + certificate.margin)


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_onnxruntime_is_exact_in_double_precision(activation):
    """Layers of one unit matter: onnxruntime folds factors of one element in float32."""
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    hidden = [(), (1,), (3,), (1, 1), (2, 3), (1, 1, 1), (2, 1, 3)]
    ends = [(1, 1), (1, 3), (3, 1), (2, 2)]
    shapes = [(n, *units, m) for units in hidden for n, m in ends]
    for i, (sizes, bias) in enumerate(product(shapes, (True, False))):
        kind = sizes, SCALINGS[i % 3], bias
        model = handmade(sizes, activation, kind[1], bias=bias)
        of = round_model(model, name="net")
        data = onnx.model_proto(of, jacobian=True).SerializeToString()
        session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        x = np.random.default_rng(i).standard_normal((6, sizes[0]))
        x += np.sign(x)  # |x| >= 1, where the bound holds for every scaling
        y, jac = session.run(None, {"x": x})
        expected, _ = outputs(model, x)
        assert np.max(np.abs(y - expected)) <= 1e-14 * np.max(np.abs(expected)), kind
        slopes = of.parameters.model.jacobian(x)
        assert np.max(np.abs(jac - slopes)) <= 1e-14 * of.bound, kind


def test_no_constant_factor_stands_beside_a_matrix_product():
    """Whatever a runtime folds, it computes with the numbers that were certified."""
    package = pytest.importorskip("onnx")
    for activation, sizes, bias in product(
        ACTIVATION_NAMES, [(1, 1), (1, 1, 1), (1, 1, 1, 1)], (True, False)
    ):
        for kind, dtype in product(SCALINGS, DTYPES):
            of = round_model(handmade(sizes, activation, kind, bias=bias), name="net", dtype=dtype)
            graph = onnx.model_proto(of, jacobian=True).graph
            constants = {c.name: package.numpy_helper.to_array(c) for c in graph.initializer}
            products = [node for node in graph.node if node.op_type == "MatMul"]
            beside = {name for node in products for name in (*node.input, *node.output)}
            for node in graph.node:
                touches = beside & {*node.input, *node.output}
                if node.op_type in ("Mul", "Div") and touches:
                    assert not set(node.input) & set(constants), (activation, kind, node)
            stored = [c.tobytes() for c in constants.values()]
            p = of.parameters
            scaling = () if p.normalise else (p.input_shift, p.input_scale)
            for array in (*p.matrices, p.output_scale, p.output_shift, *scaling):
                assert array.tobytes() in stored


def test_onnx_without_the_jacobian(tmp_path):
    package = pytest.importorskip("onnx")
    export(case().model, tmp_path / "net.onnx")
    graph = package.load(tmp_path / "net.onnx").graph
    assert [output.name for output in graph.output] == ["y"]
    used = {name for node in graph.node for name in node.input}
    assert {constant.name for constant in graph.initializer} <= used


@pytest.mark.parametrize(("activation", "scaling"), CASES)
def test_casadi_agrees_with_numpy(activation, scaling, tmp_path):
    casadi = pytest.importorskip("casadi")
    of = case(activation, scaling)
    export(of.model, tmp_path / "net.casadi")
    function = casadi.Function.load(str(tmp_path / "net.casadi"))
    jacobian = function.jacobian()
    x = inputs(of.model, "float64")
    assert_near(of, np.array(function(x.T)).T, x, 1e-12)
    found = np.array(jacobian(x[:300].T, np.zeros((3, 300)))).reshape(3, 300, 12).swapaxes(0, 1)
    assert_jacobian(of, found, x, 1e-10)
    for row in broken(x):
        assert np.all(np.isnan(np.array(function(row))))
        assert np.all(np.isnan(np.array(jacobian(row, 0))))
    facts = json.loads((tmp_path / "net.json").read_text())
    assert facts["lipschitz"] == of.model.certificate.value
    assert facts["outputs"] == list(of.model.target_names)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_c_code_generated_by_casadi(compiler, tmp_path, monkeypatch):
    casadi = pytest.importorskip("casadi")
    of = case("elu")
    export(of.model, tmp_path / "net.casadi")
    function = casadi.Function.load(str(tmp_path / "net.casadi"))
    monkeypatch.chdir(tmp_path)
    generator = casadi.CodeGenerator("generated.c")
    generator.add(function)
    generator.add(function.jacobian())
    generator.generate()
    library = tmp_path / "generated.so"
    run([program(compiler), "-O1", "-shared", "-fPIC", "generated.c", "-o", library, "-lm"])
    compiled = casadi.external("net", str(library))
    x = inputs(of.model, "float64")
    assert_near(of, np.array(compiled(x.T)).T, x, 1e-12)
    slopes = casadi.external("jac_net", str(library))
    found = np.stack([np.array(slopes(row, 0)) for row in x[:300]])
    assert_jacobian(of, found, x, 1e-10)
    assert np.all(np.isnan(np.array(compiled(broken(x)[0]))))


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("activation", "scaling"), thinned([c.values for c in CASES], 8))
def test_a_torch_file(activation, scaling, dtype, tmp_path):
    torch = pytest.importorskip("torch")
    of = case(activation, scaling)
    export(of.model, tmp_path / "net.py", to="torch", dtype=dtype)
    module = imported(tmp_path / "net.py").net()
    x = inputs(of.model, dtype)
    assert_near(of, module(torch.tensor(x)).numpy(), x, LIMITS[dtype])
    assert_jacobian(of, module.jacobian(torch.tensor(x[:300])).numpy(), x, 100 * LIMITS[dtype])
    assert np.all(np.isnan(module(torch.tensor(broken(x))).numpy()))
    assert np.all(np.isnan(module.jacobian(torch.tensor(broken(x))).numpy()))
    assert not list(module.parameters())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("activation", "scaling"), CASES)
def test_a_numpy_file(activation, scaling, dtype, tmp_path):
    of = case(activation, scaling)
    export(of.model, tmp_path / "net.py", to="numpy", dtype=dtype)
    module = imported(tmp_path / "net.py")
    x = inputs(of.model, dtype)
    y, jac = module.evaluate(x), module.jacobian(x[:300])
    assert y.dtype == jac.dtype == dtype
    assert_near(of, y, x, LIMITS[dtype])
    assert_jacobian(of, jac, x, 100 * LIMITS[dtype])
    assert_near(of, module.evaluate(x[0])[None], x[:1], LIMITS[dtype])  # sums in another order
    assert module.jacobian(x[0]).shape == (3, 12)
    assert np.all(np.isnan(module.evaluate(broken(x))))
    assert np.all(np.isnan(module.jacobian(broken(x))))
    with pytest.raises(ValueError, match="expected"):
        module.evaluate(x[:, :5])


@pytest.mark.parametrize("to", ["numpy", pytest.param("torch", marks=pytest.mark.slow)])
def test_the_files_stand_alone(to, tmp_path):
    pytest.importorskip(to)
    export(case().model, tmp_path / "net.py", to=to)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import net; "
        "print('greatcircle' in sys.modules, 'jax' in sys.modules, net.LIPSCHITZ > 0)"
    )
    command = [sys.executable, "-I", "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["False", "False", "True"]
