"""What all exporters share: numbers, proved bound, files and names."""

import json
import sys
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from exported import case, errors, imported, inputs, sine_room
from greatcircle import LipschitzRegressor, certificate, cli, load
from greatcircle.cli import export as cli_export
from greatcircle.datasets import ground_effect
from greatcircle.export import FORMATS, export, round_model
from greatcircle.export.names import checked_name
from greatcircle.export.text import literal, plain
from greatcircle.network.activations import declare
from small import ACTIVATION_NAMES

ALL = [(to, f"net{suffix}") for to, suffix in FORMATS.items()]


@pytest.mark.parametrize("scaling", ["standard", "max", "paper"])
@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_the_rounded_numbers_are_certified(activation, scaling):
    model = case(activation, scaling).model
    certified = model.certificate
    assert round_model(model, name="net").bound == certified.value
    of = round_model(model, name="net", dtype="float32")
    assert certified.value <= of.bound <= certified.value * (1 + certified.margin)
    p = of.parameters
    assert not np.array_equal(p.matrices[-1], model.matrices[-1])  # rounding changed them
    x = np.random.default_rng(0).standard_normal((50, 12))
    if scaling == "paper":
        x = 1.5 * x / np.linalg.norm(x, axis=1, keepdims=True)
    steepest = np.linalg.norm(p.model.jacobian(x), 2, axis=(1, 2))
    assert np.max(steepest) <= of.bound * (1 + 1e-12)
    assert of.certificate.digest == certificate.digest(model.matrices, model.biases)


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_a_bounded_activation_sees_sums_in_double_precision(activation):
    of = round_model(case(activation).model, name="net", dtype="float32")
    kinds = [w.dtype.name for w in of.parameters.matrices]
    bounded = activation in ("tanh", "softsign", "sin", "arctan")
    assert of.parameters.has_double_first_layer == bounded
    assert kinds == ["float64" if bounded else "float32", *["float32"] * (len(kinds) - 1)]
    normalised = round_model(case(activation, "paper").model, name="net", dtype="float32")
    assert not normalised.parameters.has_double_first_layer
    assert not round_model(case(activation).model, name="net").parameters.has_double_first_layer


def test_the_sine_of_a_large_number():
    """NumPy differs from itself by more than 1e-12 if it sums in another order."""
    of = case("sin")
    model = round_model(of.model, name="net").parameters.model
    x = inputs(of.model, "float64")
    y = model.outputs(x)
    back, first = slice(None, None, -1), model.weights[0]
    scaling = model.scaling
    turned = replace(
        model,
        scaling=replace(scaling, shift=scaling.shift[back], spread=scaling.spread[back]),
        weights=(np.vstack([first[:-1][back], first[-1]]), *model.weights[1:]),
    )
    differences = errors(turned.outputs(x[:, back]), y, of.target_scale)
    assert np.max(differences) > 1e-12
    assert np.all(differences <= 1e-12 + sine_room(of, x, y))


@pytest.mark.parametrize(("to", "file"), ALL)
def test_a_bound_beyond_the_certificate_is_not_written(to, file, tmp_path):
    model = case().model
    low = replace(model.certificate, value=0.99 * model.certificate.value)
    model = replace(model, known_certificate=low)
    with pytest.raises(ValueError, match="nothing was written: fit the model again"):
        export(model, tmp_path / file, to=to)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_bound_beyond_the_certificate_names_the_precision_of_the_file(activation):
    model = case(activation).model
    low = replace(model.certificate, value=0.99 * model.certificate.value)
    model = replace(model, known_certificate=low)
    with pytest.raises(ValueError, match=r"in float32, .* use dtype=float64"):
        round_model(model, name="net", dtype="float32")


def test_other_multipliers_may_prove_what_the_models_do_not():
    model = case().model
    wrong = tuple(3 * m for m in model.certificate.multipliers)
    own = replace(model.certificate, multipliers=wrong)
    model = replace(model, known_certificate=own)
    assert round_model(model, name="net").bound == case().model.certificate.value


def test_the_message_has_the_round_model():
    model = case().model
    value = model.certificate.value
    own = replace(model.certificate, value=value / 2, margin=1e-6)
    model = replace(model, known_certificate=own)
    with pytest.raises(ValueError, match=f"{value:.6g}.*{value / 2:.6g}") as caught:
        round_model(model, name="net")
    assert "1e-06" in str(caught.value)


@pytest.mark.parametrize(("to", "file"), ALL)
def test_files_are_written_atomically(to, file, tmp_path):
    model = case().model
    written = export(model, tmp_path / file, to=to)
    assert sorted(written) == sorted(tmp_path.iterdir())
    before = {path: path.read_bytes() for path in written}
    assert before == {path: path.read_bytes() for path in export(model, tmp_path / file, to=to)}
    with pytest.raises(ValueError, match="name is"):
        export(model, tmp_path / file, to=to, name="not a name")
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}


def test_the_command_knows_the_formats():
    assert cli_export.SUFFIXES == FORMATS


def test_the_ending_determines_the_format(tmp_path):
    model = case().model
    assert [p.suffix for p in export(model, tmp_path / "a.c")] == [".h", ".c"]
    assert [p.name for p in export(model, str(tmp_path / "a.onnx"))] == ["a.onnx"]
    for path, to, words in [
        ("a.py", None, "to='torch'"),
        ("a", None, "ending"),
        ("a.cpp", "c", "ends in .c"),
        ("a.c", "rust", "expected one of"),
        ("nowhere/a.c", None, "create it first"),
    ]:
        with pytest.raises((ValueError, FileNotFoundError), match=words):
            export(model, tmp_path / path, to=to)


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("net", "net"),
        ("3 nets", "model_3_nets"),
        ("int", "model_int"),
        ("δ", "model"),
        ("_", "model"),
    ],
)
def test_names_from_files(stem, name):
    assert checked_name(None, stem, "c") == name


def test_an_activation_without_a_derivative_is_refused(tmp_path):
    model = replace(case().model, activation=declare(jnp.tanh, (0, 1), name="mine"))
    for to, file in ALL:
        with pytest.raises(ValueError, match=r"'mine' was declared without its derivative"):
            export(model, tmp_path / file, to=to)
    assert not list(tmp_path.iterdir())


def test_numbers_that_single_precision_cannot_hold(tmp_path):
    model = case(scaling="max").model
    for change in (
        {"divisor": 1e50},
        {"divisor": 1e-50},
        {"factor": 1e60},
        {"divisor": 1e-25, "factor": 1e-25},
    ):
        scaling = replace(case(scaling="max").model.scaling, **change)
        model = replace(model, scaling=scaling)
        export(model, tmp_path / "a.c", dtype="float64")
        with pytest.raises(ValueError, match="float32 cannot hold"):
            export(model, tmp_path / "a.c", dtype="float32")


def test_packages_that_are_missing_are_named(tmp_path, monkeypatch):
    files = (("onnx", "a.onnx"), ("casadi", "a.casadi"), ("jinja2", "a.c"))
    for package, file in files:
        extra = "export" if package == "jinja2" else package
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ImportError, match=rf"{package}: pip install 'greatcircle\[{extra}\]'"):
            export(case().model, tmp_path / file)


@pytest.mark.parametrize("value", [0.1, 1.0, -3e-300, 5e-324, 1e6, 123456.789, 1 / 3, 0.0, 1e22])
def test_literals_read_back_exactly(value):
    for kind in (np.float64, np.float32):
        with np.errstate(under="ignore"):
            number = kind(value)
        assert kind(literal(number)) == number
        assert set(literal(number)) & set(".e")
    assert plain('*/ "/* ??/ \\ δ\n') == "* / '/ * ? ?/ / /u03b4 "


def test_model_and_command_write_the_same(tmp_path, capsys):
    table = ground_effect.generate(60)
    model = LipschitzRegressor((4,), selection=False, max_iter=2, random_state=0)
    model.fit(table.X, table.y)
    model.save(tmp_path / "model.safetensors")
    path = tmp_path / "model.safetensors"
    assert cli.main(["export", str(path), "--to", "c", "--dtype", "float32", "--json"]) == 0
    printed, said = capsys.readouterr()
    results = json.loads(printed)
    assert results["files"] == [str(tmp_path / "model.h"), str(tmp_path / "model.c")]
    assert results["model_sha256"] == model.certificate_.digest
    assert f"wrote {tmp_path / 'model.c'}" in said
    source = (tmp_path / "model.c").read_bytes()
    export(load(path), tmp_path / "model.c", dtype="float32")
    assert source == (tmp_path / "model.c").read_bytes()
    out = tmp_path / "new" / "f.py"
    command = ["export", str(path), "--to", "numpy", "--out", str(out), "--name", "f"]
    assert cli.main([*command, "--units", "x0=m/s", "y1=N"]) == 0
    module = imported(out)
    assert module.UNITS == {"x0": "m/s", "y1": "N"}
    np.testing.assert_allclose(module.evaluate(table.X), model.predict(table.X), rtol=1e-10)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "neither --to nor --out"),
        (["--to", "c", "--units", "z"], "--units has 'z'"),
        (["--out", "x.py"], "to='torch'"),
    ],
)
def test_the_command_says_what_is_wrong(arguments, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = ground_effect.generate(60)
    model = LipschitzRegressor((4,), selection=False, max_iter=1, random_state=0)
    model.fit(table.X, table.y)
    model.save(tmp_path / "model.safetensors")
    assert cli.main(["export", "model.safetensors", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_only_models_can_be_exported(tmp_path):
    with pytest.raises(TypeError, match="pass its last step"):
        export(object(), tmp_path / "a.c")
    with pytest.raises(TypeError, match="name of a file"):
        export(case().model, 3)
