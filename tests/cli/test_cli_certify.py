"""`greatcircle certify`: bounds of all inputs and of groups, and mistakes."""

import json

import pandas as pd
import pytest

from greatcircle import LipschitzRegressor, certificate
from greatcircle.cli import main
from greatcircle.datasets import ground_effect

TABLE = ground_effect.generate(300)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    X = pd.DataFrame(TABLE.X, columns=list(TABLE.inputs))
    model = LipschitzRegressor((6, 5), selection=False, max_iter=5, random_state=0)
    model.fit(X, TABLE.y)
    model.save(path)
    return model, path


def test_certify_prints_and_writes_every_bound(stored, tmp_path, capsys):
    model, path = stored
    arguments = ["certify", str(path), "--groups", "u=u1,u2,u3,u4", "height=0"]
    assert main([*arguments, "--gain", "u=0.1", "--out", str(tmp_path / "out")]) == 0
    text = capsys.readouterr().out
    assert "proofs verified: 12 of 12" in text
    assert "fixed-point iteration over u: contracts" in text
    results = json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))
    for name, inputs in (("all inputs", None), ("u", ["u1", "u2", "u3", "u4"]), ("height", ["z"])):
        row = results["bounds"][name]
        assert row["tight"] == certificate.tight(model, inputs=inputs).value
        order = [row[method] for method in ("lower", "tight", "fast", "spectral", "frobenius")]
        assert order == sorted(order)
    assert results["contraction"]["rate"] == 0.1 * results["bounds"]["u"]["tight"]
    names = {p.name for p in (tmp_path / "out").iterdir()}
    assert names >= {"report.html", "bounds.png", "bounds.pdf", "bounds_1.png", "bounds_2.png"}
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "Bounds for u" in page
    assert model.certificate_.digest in page


def test_certify_prints_only_json_on_standard_output(stored, capsys):
    _, path = stored
    assert main(["certify", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verified"] == 4


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--groups", "u1,u2"], "expected a name and its inputs"),
        (["--groups", "u=²"], "inputs has '²'; expected numbers from 0 to 11"),
        (["--groups", "u=٣"], "inputs has '٣'; expected numbers from 0 to 11"),
        (["--groups", "u=-1"], "inputs has '-1'; expected numbers from 0 to 11"),
        (["--groups", f"u={'9' * 5000}"], "expected numbers from 0 to 11"),
        (["--groups", "u=u1", "u=u2"], "there already is a group 'u'"),
        (["--groups", "all inputs=u2"], "there already is a group 'all inputs'"),
        (["--groups", "u=u1", "--gain", "u=nan"], "expected a group and a positive number"),
        (["--groups", "u=u1", "--gain", "u=²"], "expected a group and a positive number"),
        (["--groups", "[/x]=[/y]"], "inputs has '[/y]'"),
        (["--groups", "u=w1"], "inputs has 'w1'; expected numbers from 0 to 11, or names"),
        (["--gain", "u=0.1"], "expected one of --groups: none is given"),
        (["--groups", "u=u1", "--gain", "u=much"], "expected a group and a positive number"),
        (["--min-input-norm", "2"], "min_input_norm is only for scaling='paper'"),
    ],
)
def test_mistakes_are_named(stored, capsys, more, words):
    _, path = stored
    assert main(["certify", str(path), *more]) == 2
    assert words in capsys.readouterr().err


def test_a_missing_file_is_named(tmp_path, capsys):
    assert main(["certify", str(tmp_path / "none.safetensors")]) == 2
    assert "file not found: " in capsys.readouterr().err


def test_names_of_inputs_take_precedence_over_numbers(tmp_path, capsys):
    X = pd.DataFrame(TABLE.X[:, :3], columns=["1", "0", "²"])
    model = LipschitzRegressor((3,), selection=False, max_iter=2, random_state=0)
    model.fit(X, TABLE.y)
    model.save(tmp_path / "m.safetensors")
    groups = ["--groups", "named=1", "numbered=2", "strange=²"]
    assert main(["certify", str(tmp_path / "m.safetensors"), *groups, "--json"]) == 0
    bounds = json.loads(capsys.readouterr().out)["bounds"]
    for name, place in (("named", 0), ("numbered", 2), ("strange", 2)):
        assert bounds[name]["tight"] == certificate.tight(model, inputs=[place]).value
