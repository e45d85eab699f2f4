"""Names in exported source code: files, functions, inputs, outputs and units."""

import ast
import builtins
import json
import re
import symtable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from exported import WARNINGS, C, compiled, handmade, imported, outputs, program, run
from greatcircle.export import FORMATS, export, onnx, round_model
from greatcircle.export.casadi import CASADI_NAMES
from greatcircle.export.names import KEYWORDS, checked_name
from greatcircle.export.torch import TORCH_NAMES
from small import ACTIVATION_NAMES

FILES = [
    *("ü", 'a"b', "a'b", "a\nb", "a\tb", "a\\b", "??=", "\x7f", "\udc80", "😀", "a\rb"),
    *("a b", "*", "a*", "%s", "%", "$x`", "#", "a<b>", "-x", "a..", "..", "+++", "1", "int", "_"),
    *("x" * 253, "a,b;c", "(a)", "[a]", "{a}", "&|^~!", "a=b", "a@b", "@STAMP@", "a__b", "super"),
]
"""Stems of file names."""


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_c_file_of_any_name_compiles_or_is_refused(compiler, tmp_path):
    model, written = handmade((1, 1)), []
    for i, stem in enumerate(FILES):
        folder = tmp_path / str(i)
        folder.mkdir()
        try:
            header, source = export(model, folder / f"{stem}.c")
        except ValueError:
            assert not list(folder.iterdir())
            continue
        written.append(stem)
        assert (header.name, source.name) == (f"{stem}.h", f"{stem}.c")
        name = re.search(r"void (\w+)_eval\(", header.read_text())
        assert name is not None
        main = folder / "main.c"
        main.write_text(f'#include "{stem}.h"\nint main(void) {{ return !{name[1]}_eval; }}\n')
        run([program(compiler), *WARNINGS, "-Wno-address", "-fsyntax-only", source, main])
    assert {"a b", "%s", "a..", "+++", "x" * 253, "@STAMP@"} <= set(written)
    for stem in {*FILES} - {*written}:
        with pytest.raises(ValueError, match=r"C cannot include a header .* try 'model.c'"):
            export(model, tmp_path / f"{stem}.c")


@pytest.mark.parametrize(("to", "suffix"), FORMATS.items())
def test_other_formats_take_every_file_name(to, suffix, tmp_path):
    if to == "onnx" or to == "casadi":
        pytest.importorskip(to)
    for stem in FILES if to != "c" else ():
        stem = stem[: 255 - len(suffix)]
        first = export(handmade((1, 1)), tmp_path / f"{stem}{suffix}", to=to)[0]
        assert first.name == f"{stem}{suffix}"
        assert first.stat().st_size > 0
    with pytest.raises(ValueError, match="null character"):
        export(handmade((1, 1)), f"a\0b{suffix}", to=to)
    with pytest.raises(OSError, match="name too long"):
        export(handmade((1, 1)), tmp_path / f"{'x' * 255}{suffix}", to=to)


@pytest.mark.parametrize("file", ["torch.py", "numpy.py", "collections.py", "typing.py"])
@pytest.mark.parametrize("to", ["torch", "numpy"])
def test_a_file_does_not_hide_what_it_imports(to, file, tmp_path):
    with pytest.raises(ValueError, match=r"in place of the package .* try 'model.py'"):
        export(handmade((1, 1)), tmp_path / file, to=to)


HOSTILE = [
    *('"', "'", '"""', "'''", "\\", "end\\", "\\n", "\n", "\r\n", "\t", "\x0b\x0c", "\x7f", "\x85"),
    *("*/", "/*", "//", "*/ int x; /*", "??/", "???/", "%s%n", "{0}", "{x}", "\\u0041", "\\x41"),
    *("δ", "µ [m/s²]", "😀", "\u2028", "\u202e", "", " ", "@STAMP@", "x" * 4000, '""" + 1/0 + """'),
]
"""Names of columns and units that would break a careless exporter."""


def hostile():
    """Return a model with such names and units."""
    targets = ("*/ #error", '\\"""\\')
    model = handmade((len(HOSTILE), 2))
    model = replace(model, feature_names=tuple(HOSTILE), target_names=targets)
    return model, dict(zip(HOSTILE, HOSTILE[::-1], strict=True)) | {"*/ #error": '"""\\'}


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_columns_of_any_name_in_c(compiler, tmp_path):
    model, units = hostile()
    export(model, tmp_path / "net.c", units=units)
    c = C(tmp_path / "net.c", compiler)
    assert c.names("input", len(HOSTILE)) == HOSTILE
    assert c.names("output", 2) == list(model.target_names)
    assert c.self_test() == 0


@pytest.mark.parametrize("name", ["a\0b", "\udc80", "x" * 4096, "δ" * 2048])
def test_names_that_c_strings_cannot_hold_are_refused(name, tmp_path):
    model = replace(handmade((1, 1)), feature_names=(name,))
    with pytest.raises(ValueError, match="rename the column"):
        export(model, tmp_path / "net.c")
    assert not list(tmp_path.iterdir())
    export(model, tmp_path / "net.py", to="numpy")
    assert [name] == imported(tmp_path / "net.py").INPUTS


def test_columns_of_any_name_in_python_files(tmp_path):
    model, units = hostile()
    units["\n"] = "\0\udc80"
    for to in ("torch", "numpy"):
        export(model, tmp_path / f"net_{to}.py", to=to, units=units)
        body = ast.parse((tmp_path / f"net_{to}.py").read_bytes()).body
        found = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id in ("INPUTS", "OUTPUTS", "UNITS")
        }
        assert found["INPUTS"] == HOSTILE
        assert found["OUTPUTS"] == list(model.target_names)
        assert found["UNITS"] == units
    assert imported(tmp_path / "net_numpy.py").INPUTS == HOSTILE


@pytest.mark.parametrize("to", ["onnx", "casadi"])
def test_columns_of_any_name_in_metadata(to, tmp_path):
    package = pytest.importorskip(to)
    model, units = hostile()
    units["\n"] = "\0\udc80"
    export(model, tmp_path / f"net.{to}", units=units)
    if to == "onnx":
        texts = {p.key: p.value for p in package.load(tmp_path / "net.onnx").metadata_props}
        facts = {key: json.loads(texts[key]) for key in ("inputs", "outputs", "units")}
    else:
        facts = json.loads((tmp_path / "net.json").read_text())
    assert facts["inputs"] == HOSTILE
    assert facts["outputs"] == list(model.target_names)
    assert facts["units"] == units


# Names of functions and classes

OWN = """
real scale_inputs activation derivative double_activation double_derivative add_product1 w1 b1
input_scale input_shift shift_remainder output_scale output_shift count_differences
test_x test_y test_jac x y h h0 s1 t1 z1 jac size sum norm main sin tanh exp fabs sqrt isnan
isfinite NAN INFINITY printf memcpy self torch np numpy evaluate jacobian forward derivatives module
"""
"""Names that some exported file uses."""

BUILTINS = [name for name in dir(builtins) if name.islower()]  # exceptions are all alike
NAMES = sorted({*OWN.split(), *BUILTINS, *f"{KEYWORDS} {TORCH_NAMES} {CASADI_NAMES}".split()})


def accepted(to):
    """Return the names that are not refused; of those that differ in case only, the first."""
    kept = {}
    for name in NAMES:
        try:
            kept.setdefault(checked_name(name, "", to).lower(), name)
        except ValueError:
            continue
    return list(kept.values())


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_c_compiles_with_every_name(compiler, tmp_path):
    model, names = handmade((1, 1, 1), "tanh", "paper"), accepted("c")
    assert {"sin", "real", "output_scale", "w1", "super"} <= set(names)
    for name in names:
        export(model, tmp_path / f"{name}.c", name=name, dtype="float32")
    sources = [tmp_path / f"{name}.c" for name in names]
    library = compiled(sources, compiler, "-O0")
    x = np.array([[0.5], [-2.0]])
    expected, _ = outputs(model, x)
    for source in sources:
        np.testing.assert_allclose(C(source, library=library)(x, 1), expected, rtol=1e-5)


def test_a_torch_class_hides_nothing_that_its_file_uses(tmp_path):
    """Every name that is global somewhere in the file is refused as the class's."""
    seen = set()
    for activation, scaling, dtype in product(
        ACTIVATION_NAMES, ("standard", "paper"), ("float64", "float32")
    ):
        path = tmp_path / "net.py"
        export(handmade((2, 1, 1), activation, scaling), path, to="torch", dtype=dtype)
        seen |= globals_of(symtable.symtable(path.read_text(), "net.py", "exec")) - {"net"}
    assert {"torch", "super", "float", "DTYPE", "INPUTS"} <= seen
    for name in seen:
        with pytest.raises(ValueError, match="uses itself"):
            checked_name(name, "", "torch")
        assert checked_name(None, name, "torch") != name


def globals_of(scope):
    """Names that a scope, or one inside it, takes from the module or from Python."""
    module = scope.get_type() == "module"
    found = {s.get_name() for s in scope.get_symbols() if module or s.is_global()}
    return found.union(*(globals_of(child) for child in scope.get_children()))


def test_torch_works_with_every_name(tmp_path):
    torch = pytest.importorskip("torch")
    model, x = handmade((2, 3, 1), "tanh", "paper"), np.array([[0.5, 1.0]])
    for name in accepted("torch"):
        export(model, tmp_path / "net.py", to="torch", name=name)
        module = getattr(imported(tmp_path / "net.py"), name)()
        np.testing.assert_allclose(module(torch.tensor(x)).numpy(), model.predict(x), rtol=1e-12)


def test_numpy_works_with_every_name(tmp_path):
    model, x = handmade((2, 3, 1), "tanh", "paper"), np.array([[0.5, 1.0]])
    expected, _ = outputs(model, x)
    for name in accepted("numpy"):
        export(model, tmp_path / "net.py", to="numpy", name=name)
        np.testing.assert_allclose(imported(tmp_path / "net.py").evaluate(x), expected, rtol=1e-12)


def test_onnx_works_with_every_name():
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    of, x = round_model(handmade((2, 1)), name="net"), np.array([[0.5, 1.0]])
    for name in accepted("onnx"):
        data = onnx.model_proto(replace(of, name=name)).SerializeToString()
        session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
        assert session.run(None, {"x": x})[0].shape == (1, 1)


def test_casadis_c_compiles_with_every_name(tmp_path, monkeypatch):
    casadi = pytest.importorskip("casadi")
    monkeypatch.chdir(tmp_path)
    model, names = handmade((2, 3, 1), "tanh", "paper"), accepted("casadi")
    assert "real" in names
    assert "sin" not in names
    for i, name in enumerate(names):
        export(model, tmp_path / "net.casadi", name=name)
        generator = casadi.CodeGenerator(f"c{i}.c")
        generator.add(casadi.Function.load(str(tmp_path / "net.casadi")))
        generator.generate()
    files = [f"c{i}.c" for i in range(len(names))]
    run([program("gcc"), "-w", "-fsyntax-only", *files])


def test_casadi_refuses_names_of_math_h(tmp_path):
    """CasADi's generated C includes it."""
    (tmp_path / "a.c").write_text("#include <math.h>\n")
    text = run([program("gcc"), "-std=gnu17", "-E", "-P", tmp_path / "a.c"])
    declared = {n for n in re.findall(r"\b([A-Za-z]\w*) \([^()]*\)", text) if "__" not in n}
    assert {"sin", "sinf", "sinl", "y1", "nexttowardf"} <= declared
    for name in declared | {"casadi", "casadi_real", "CASADI_PREFIX", "jac", "hess", "null"}:
        with pytest.raises(ValueError, match="uses itself"):
            checked_name(name, "", "casadi")


@pytest.mark.parametrize("name", ["", "_a", "a__b", "1a", "é", "a b", "a-b", "x" * 51, 3, "a\n"])
@pytest.mark.parametrize("to", FORMATS)
def test_invalid_names_are_refused(to, name):
    with pytest.raises(ValueError, match="name is"):
        checked_name(name, "", to)


@pytest.mark.parametrize("to", FORMATS)
def test_every_file_has_a_name(to):
    for stem in (*FILES, *NAMES, "a" * 300, "a_" * 100, "_" * 300, "1" * 300):
        made = checked_name(None, stem, to)
        assert checked_name(made, "", to) == made
