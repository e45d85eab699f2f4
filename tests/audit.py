"""Random attacks on the library: bounds, certificates, files, data, names and signals.

Each attack is a function of a random generator and an empty folder. It tries one case, raises an
error if the library fails, and returns its number of attempts. `make audit` runs all of them for
ten minutes and prints the counts; `test_audit.py` runs a few cases of each.

    python tests/audit.py --minutes 10 --seed 0
    python tests/audit.py --loop models --case 17    # repeat one case
"""

import argparse
import contextlib
import io
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from cli import test_signals
from exported import handmade
from greatcircle import LipschitzClassifier, LipschitzRegressor, certificate, cli, load
from greatcircle._runtime.container import pack, unpack
from greatcircle.data.saturation import KINDS, Saturation
from greatcircle.model import as_model
from greatcircle.network.activations import declare
from small import ACTIVATION_NAMES, attack_bounds, random_network, rounding

Loop = Callable[[np.random.Generator, Path], int]

WAVE = declare(lambda z: 0.5 * jnp.sin(z) + 0.25 * z, (-0.25, 0.75), name="wave")


# --- bounds ---------------------------------------------------------------------------------------


def networks(rng: np.random.Generator, folder: Path) -> int:
    """Random networks, some sparse or of unusual sizes: no pair of inputs may exceed a bound."""
    sizes = rng.integers(1, 13, rng.integers(2, 7)).tolist()
    weights, biases = random_network(int(rng.integers(2**31)), sizes, bias=bool(rng.integers(2)))
    weights = [np.where(rng.random(w.shape) < rng.choice([0, 0.5]), 0.0, w) for w in weights]
    weights = [w * 10.0 ** rng.choice([0, 0, -20, 20]) for w in weights]
    name = str(rng.choice(ACTIVATION_NAMES))
    return attack_bounds(rng, weights, biases, name, 2000)


def models(rng: np.random.Generator, folder: Path) -> int:
    """Fitted models of every kind: no pair of predictions may exceed the bound."""
    model, X = _fitted(rng)
    bound = model.certificate_
    verdict = certificate.verify(bound, model)
    assert verdict, str(verdict)
    if model.lipschitz is not None:
        assert bound.value <= model.lipschitz
    outputs = getattr(model, "decision_function", model.predict)
    count, spread = 1000, np.maximum(np.std(X, axis=0), 1e-6)
    x = X[rng.integers(len(X), size=count)] + spread * rng.standard_normal((count, X.shape[1]))
    v = spread * rng.standard_normal(x.shape) * 10.0 ** rng.uniform(-4, 1, (count, 1))
    steepest = np.zeros(count)
    for step in range(20):  # hill climbing: keep a new point or direction if the slope grows
        start, change = x.copy(), v.copy()
        if step:
            start += 0.3 * spread * rng.standard_normal(x.shape)
            change *= 1 + 0.3 * rng.standard_normal(x.shape)
        if bound.min_input_norm is not None:
            size = np.linalg.norm(start, axis=1, keepdims=True)
            start *= np.maximum(
                1, (bound.min_input_norm + np.linalg.norm(change, axis=1)[:, None]) / size
            )
        end = start + change
        rise = outputs(end).reshape(count, -1) - outputs(start).reshape(count, -1)
        rise, run = np.linalg.norm(rise, axis=1), np.linalg.norm(end - start, axis=1)
        room = sum(_rounding(model, rows) for rows in (end, start))
        assert np.all(rise <= bound.value * run * (1 + 1e-12) + room), bound
        slope = (rise - room) / run
        better = slope > steepest
        x[better], v[better], steepest = start[better], change[better], np.maximum(slope, steepest)
    if bound.min_input_norm is None:
        slopes = np.linalg.norm(model.jacobian(x), 2, axis=(1, 2))
        assert slopes.max() <= bound.value * (1 + 1e-9)
    return 21 * count


def _fitted(rng: np.random.Generator) -> tuple[Any, np.ndarray]:
    """Return a random estimator, fitted, and its training inputs."""
    rows, columns = int(rng.integers(20, 80)), int(rng.integers(1, 4))
    X = rng.standard_normal((rows, columns)) * 10.0 ** rng.uniform(-2, 2, columns)
    X += rng.choice([0.0, 0.0, 1e6])
    y = np.abs(X / np.abs(X).max(axis=0)).sum(axis=1) * 10.0 ** rng.uniform(-3, 3)
    kind = LipschitzClassifier if rng.random() < 0.3 else LipschitzRegressor
    scaling = str(rng.choice(["standard", "max", "paper"]))
    activation = WAVE if rng.random() < 0.2 else str(rng.choice(ACTIVATION_NAMES))
    model = kind(
        tuple(rng.integers(1, 6, rng.integers(1, 4)).tolist()),
        activation,
        scaling=scaling,
        lipschitz=None if scaling == "paper" or rng.random() < 0.6 else 10 ** rng.uniform(-4, 4),
        max_iter=int(rng.integers(1, 15)),
        early_stopping=bool(rng.random() < 0.2),
        dtype=str(rng.choice(["float32", "float64"])),
        random_state=int(rng.integers(1000)),
    )
    if kind is LipschitzRegressor:
        model.set_params(loss=str(rng.choice(["squared", "huber"])))
        kinds = (False, "outputs") if scaling == "paper" else (False, *KINDS)
        model.set_params(saturation=kinds[rng.integers(len(kinds))])
    model.fit(X, y > np.median(y) if kind is LipschitzClassifier else y)
    return model, X


def _rounding(model: Any, X: np.ndarray) -> np.ndarray:
    """Bound the rounding error of outputs; for a declared activation, by what its slope allows."""
    if model.model_.activation is WAVE:
        return 1e-12 * (1 + np.linalg.norm(model.model_.outputs(X), axis=1)) + (
            1e-13 * model.certificate_.value * np.linalg.norm(X, axis=1)
        )
    return rounding(model, X)


# --- certificates and files -----------------------------------------------------------------------


def certificates(rng: np.random.Generator, folder: Path) -> int:
    """Certificates of models with altered fields: none may pass that claims too much."""
    model = _handmade(rng)
    found = _some_bound(model, rng)
    assert certificate.verify(found, model)
    slope = np.linalg.norm(model.jacobian(_rows(model, rng)), 2, axis=(1, 2)).max()
    for _ in range(30):
        altered = found
        for name in rng.choice([f.name for f in fields(found)], rng.integers(1, 4)):
            altered = replace(altered, **{str(name): _altered(getattr(altered, name), rng)})
        if rng.random() < 0.5:
            altered = replace(altered, value=found.value * 10 ** rng.uniform(-6, -0.3))
        if not certificate.verify(altered, model):
            continue
        same = ("scale", "gain", "digest", "declared", "min_input_norm", "inputs", "holds")
        for name in same:
            assert np.array_equal(getattr(altered, name), getattr(found, name)), (name, altered)
        if found.value > 0:
            assert altered.margin >= found.margin * found.value / altered.value * (1 - 1e-6)
        everywhere = found.box is None or (found.box.is_everything and found.box.lower is not None)
        if everywhere and found.inputs is None and found.min_input_norm is None:
            assert altered.value >= slope * (1 - 1e-9)
    return 30


def _handmade(rng: np.random.Generator) -> Any:
    sizes = tuple(rng.integers(1, 6, rng.integers(2, 5)).tolist())
    scaling = str(rng.choice(["standard", "max", "paper"]))
    plain = handmade(sizes, str(rng.choice(ACTIVATION_NAMES)), scaling, bias=bool(rng.integers(2)))
    if rng.random() < 0.5:
        return plain
    kind = "outputs" if scaling == "paper" else str(rng.choice(KINDS))
    X = plain.scaling.shift + plain.scaling.spread * rng.standard_normal((5, sizes[0]))
    return replace(plain, saturation=Saturation.fit(kind, X, plain.outputs(X)))


def _rows(model: Any, rng: np.random.Generator) -> np.ndarray:
    plain = as_model(model)
    x = rng.standard_normal((200, plain.sizes[0])) * 10 ** rng.uniform(-1, 1, (200, 1))
    if plain.scaling.name == "paper":
        return x / np.minimum(1, np.linalg.norm(x, axis=1, keepdims=True))
    return plain.scaling.shift + x * plain.scaling.spread * plain.scaling.divisor


def _some_bound(model: Any, rng: np.random.Generator) -> certificate.Certificate:
    plain = as_model(model)
    columns, scaling = plain.sizes[0], plain.scaling.name
    inputs = rng.permutation(columns)[: rng.integers(1, columns + 1)].tolist()
    choice = rng.integers(4)
    if choice == 0 and scaling != "paper":
        middle = _rows(model, rng)[0]
        return certificate.local(model, middle - 0.1, middle + 0.1)
    if choice == 1:
        return certificate.tight(model, inputs=inputs)
    if choice == 2 and scaling == "paper":
        return certificate.tight(model, min_input_norm=float(10 ** rng.uniform(-1, 1)))
    return getattr(certificate, str(rng.choice(["tight", "fast", "spectral"])))(model)


FACTORS = [1e-3, 0.5, 1 - 1e-6, 1 + 1e-6, 2.0, 1e3, -1.0, 0.0, np.nan, np.inf]


def _altered_array(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    value = np.array(value)
    value.flat[rng.integers(value.size)] *= float(rng.choice(FACTORS))
    return value


def _altered(value: Any, rng: np.random.Generator) -> Any:
    """Return another value for a field."""
    if rng.random() < 0.1:
        return [None, "everywhere", -1, (), np.ones((2, 2)), True][rng.integers(6)]
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return value * float(rng.choice(FACTORS))
    if isinstance(value, str):
        return ["everywhere", "in a box", value[::-1], "0" * 64][rng.integers(4)]
    if isinstance(value, np.ndarray):
        return _altered_array(value, rng)
    if isinstance(value, tuple) and value:
        place = int(rng.integers(len(value)))
        return (*value[:place], _altered(value[place], rng), *value[place + 1 :])
    if isinstance(value, certificate.Box):
        name = ("low", "high", "shift", "scale", "lower", "upper")[rng.integers(6)]
        return replace(value, **{name: _altered(getattr(value, name), rng)})
    return [(0,), 0.5, "everywhere"][rng.integers(3)]


@cache
def _saved(case: int) -> bytes:
    """Return the file of a small fitted model."""
    rng = np.random.default_rng(case)
    X = rng.standard_normal((30, 2))
    names = {"a": X[:, 0], "b": X[:, 1]}
    kind = LipschitzClassifier if case % 2 else LipschitzRegressor
    y = np.where(X[:, 0] > 0, "up", "down") if case % 2 else X[:, 0]
    model = kind((3,), max_iter=2, random_state=case).fit(pl.DataFrame(names), y)
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/m.safetensors")
        return Path(f"{folder}/m.safetensors").read_bytes()


def files(rng: np.random.Generator, folder: Path) -> int:
    """Files with damaged or altered contents: `load` must refuse them or return a sound model."""
    data, path = _saved(int(rng.integers(2))), folder / "m.safetensors"
    for _ in range(20):
        changed = _damaged(data, rng)
        if changed == data:
            continue
        path.write_bytes(changed)
        with contextlib.suppress(ValueError):
            load(path)
            raise AssertionError("a damaged file was loaded")
    for _ in range(10):  # altered arrays in a file with a valid checksum
        tensors, texts = unpack(data)
        name = str(rng.choice(list(tensors)))
        if tensors[name].dtype.kind == "f" and tensors[name].size:
            tensors[name] = _altered_array(tensors[name], rng)
        path.write_bytes(pack(tensors, texts))
        try:
            model = load(path)
        except ValueError:
            continue
        assert certificate.verify(model.certificate_, model)
        slopes = np.linalg.norm(model.jacobian(_rows(model, rng)), 2, axis=(1, 2))
        assert slopes.max() <= model.certificate_.value * (1 + 1e-9), name
    return 30


def _damaged(data: bytes, rng: np.random.Generator) -> bytes:
    place, length = int(rng.integers(len(data))), int(rng.integers(1, 64))
    changed = bytearray(data)
    match rng.integers(6):
        case 0:
            changed[place] ^= 1 << int(rng.integers(8))
        case 1:
            del changed[place:]
        case 2:
            changed[place:place] = rng.bytes(length)
        case 3:
            changed[place : place + length] = bytes(len(changed[place : place + length]))
        case 4:
            del changed[place : place + length]
        case 5:
            other = _saved(int(rng.integers(2)))
            changed[place:] = other[place:]
    return bytes(changed) if bytes(changed) != _saved(0) and bytes(changed) != _saved(1) else data


# --- data, names and signals ----------------------------------------------------------------------


def data(rng: np.random.Generator, folder: Path) -> int:
    """Data of any size and shape: an error that names the argument, or a sound model."""
    rows, columns = int(rng.choice([1, 2, 3, 30])), int(rng.choice([1, 2, 40]))
    powers = [[-2, 2], [-170, 170]]
    X = rng.standard_normal((rows, columns)) * 10.0 ** rng.uniform(*rng.choice(powers))
    X[:, rng.random(columns) < 0.2] = rng.choice([0.0, 1.0, 1e9])
    X = X[rng.integers(rows, size=rows)] if rng.random() < 0.2 else X
    y = X[:, 0] * 10.0 ** rng.uniform(*rng.choice(powers))
    weight = None if rng.random() < 0.5 else 10.0 ** rng.uniform(-300, 307, rows)
    scaling = str(rng.choice(["standard", "max", "paper"]))
    model = LipschitzRegressor((3,), max_iter=2, scaling=scaling, random_state=0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            warnings.filterwarnings("ignore", "training ended")
            model.fit(X, y, weight)
            predicted = model.predict(X)
    except ValueError as error:
        if any(word in str(error) for word in ("X", " y ", "sample_weight")):
            return 1
        raise
    assert np.all(np.isfinite(predicted))
    verdict = certificate.verify(model.certificate_, model)
    assert verdict, str(verdict)
    model.save(folder / "m.safetensors")
    again = load(folder / "m.safetensors")
    assert again.certificate_ == model.certificate_
    np.testing.assert_array_equal(again.predict(X), predicted)
    return 1


ODD = [*"[]{}()<>%$\\'\"`*:;,.|&!?#~^@=+-_/ \téß²‖😀\u202e", "[/]", "[bold]", ":smile:"]


def names(rng: np.random.Generator, folder: Path) -> int:
    """Hostile names of columns, labels, groups and files in all commands."""
    table = {f"{_odd(rng)}{i}": rng.standard_normal(40) for i in range(4)}
    *inputs, target = table
    classify = bool(rng.integers(2))
    columns: dict[str, Any] = dict(table)
    if classify:
        labels = [f"{_odd(rng)}{i}" for i in range(2)]
        columns[target] = [labels[int(v > 0)] for v in table[inputs[0]]]
    out = folder / _odd(rng).replace("/", "").replace("\0", "").strip(". ") / "out"
    out.mkdir(parents=True)
    path = out / "rows.csv"
    pl.DataFrame(columns).write_csv(path)
    fit = ["fit", str(path), f"--targets={target}", "--out", str(out), "--hidden", "2"]
    _run([*fit, "--max-iter", "2", "--quiet", *(["--classify"] if classify else [])])
    model = out / "model.safetensors"
    if not model.exists():  # refused, for example a blank name
        return 1
    _run(["predict", str(model), str(path), "--out", str(out / "p.csv")])
    _run(["certify", str(model), "--groups", f"{_odd(rng)}=0,1", "--out", str(out / "bounds")])
    _run(["export", str(model), "--to", str(rng.choice(["c", "numpy", "torch"]))])
    return 4


def _odd(rng: np.random.Generator) -> str:
    return "".join(rng.choice(ODD, rng.integers(1, 6)))


def _run(arguments: list[str]) -> None:
    """Run a command, which must succeed or end with a usage error and no traceback."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        try:
            code = cli.main(arguments)
        except SystemExit as usage_error:
            code = usage_error.code
    assert code in (0, cli.USAGE_ERROR), (arguments, text.getvalue())
    assert "Traceback" not in text.getvalue(), text.getvalue()


@cache
def _undisturbed() -> tuple[Path, tuple[float, set[str]]]:
    folder = Path(tempfile.mkdtemp())
    table = test_signals.written_table(folder)
    return table, test_signals.run_undisturbed(table, folder / "out")


def signals(rng: np.random.Generator, folder: Path) -> int:
    """Signals at any time during a fit: results must be complete or absent."""
    table, undisturbed = _undisturbed()
    both = (test_signals.SIGINT, test_signals.SIGTERM)
    numbers = tuple(both[i] for i in rng.integers(2, size=rng.integers(1, 3)))
    share, gap, older = 1.1 * rng.random(), 0.5 * rng.random(), bool(rng.integers(2))
    test_signals.interrupt(undisturbed, table, folder, share, numbers, gap, older)
    return len(numbers)


LOOPS: dict[str, tuple[Loop, float]] = {
    "networks": (networks, 0.2),
    "models": (models, 0.3),
    "certificates": (certificates, 0.1),
    "files": (files, 0.05),
    "data": (data, 0.1),
    "names": (names, 0.1),
    "signals": (signals, 0.15),
}
"""Each attack with its share of the time."""


def attempt(name: str, seed: int, case: int) -> int:
    """Run one case of an attack; return its number of attempts."""
    rng = np.random.default_rng([seed, list(LOOPS).index(name), case])
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LOOPS[name][0](rng, Path(folder))


def main() -> int:
    """Run the attacks and print the numbers of attempts and failures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--loop", choices=list(LOOPS), help="default: all of them")
    parser.add_argument("--case", type=int, help="run only this case of --loop")
    options = parser.parse_args()
    if options.case is not None:
        print(attempt(options.loop or next(iter(LOOPS)), options.seed, options.case), "attempts")
        return 0
    chosen = [options.loop] if options.loop else list(LOOPS)
    shares = sum(LOOPS[name][1] for name in chosen)
    failed = 0
    print(f"{'loop':<14}{'cases':>8}{'attempts':>12}{'failures':>10}{'seconds':>9}")
    for name in chosen:
        cases, attempts, failures, started = 0, 0, 0, time.monotonic()
        while time.monotonic() - started < 60 * options.minutes * LOOPS[name][1] / shares:
            try:
                attempts += attempt(name, options.seed, cases)
            except Exception:
                failures += 1
                print(f"\n{name}, seed {options.seed}, case {cases}:\n{traceback.format_exc()}")
            cases += 1
            if name in ("models", "data", "names") and cases % 20 == 0:
                jax.clear_caches()  # compiled programs hold memory
        seconds = time.monotonic() - started
        print(f"{name:<14}{cases:>8}{attempts:>12}{failures:>10}{seconds:>9.0f}", flush=True)
        failed += failures
    print(f"{failed} failures")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
