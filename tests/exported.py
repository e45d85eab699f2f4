"""Models to export, inputs to try them on, and the programs that run what was exported."""

import ctypes
import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from itertools import cycle, pairwise
from pathlib import Path

import numpy as np
import pytest

from greatcircle import Network
from greatcircle.data.scaling import SCALINGS, Scaling
from greatcircle.datasets import ground_effect
from greatcircle.model import Model
from greatcircle.network.activations import ACTIVATIONS, get
from greatcircle.training.initialisation import initialise

WARNINGS = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wconversion"]

CASES = [
    pytest.param(a, s, id=f"{a}-{s}", marks=() if s == first else pytest.mark.slow)
    for a, first in zip(ACTIVATIONS, cycle(SCALINGS), strict=False)
    for s in SCALINGS
]
"""Every activation with every scaling; tests that are not slow take one scaling of each."""


@dataclass(frozen=True)
class Case:
    """A model, and the size of its targets."""

    model: Model
    target_scale: float


@cache
def case(activation="relu", scaling="standard", *, bias=True, hidden=None) -> Case:
    """Return an untrained network with biases, for real data: as quick as loading a file."""
    table = ground_effect.generate(400)
    if hidden is None:
        hidden = (8, 6) if activation == "identity" else (25, 30, 15)
    network = Network((12, *hidden, 3), activation, bias=bias)
    rng = np.random.default_rng(7)
    weights, fitted = initialise(
        network, table.X, table.y, rng, scaling=scaling, target_gain=1.0, dtype=np.float64
    )
    if bias:
        for w in weights:
            w[-1] = 0.1 * rng.standard_normal(w.shape[1])
    model = Model(weights, bias, ACTIVATIONS[activation], fitted, target_names=tuple(table.targets))
    spread = table.y - fitted.target_shift
    return Case(model, float(np.sqrt(np.mean(np.sum(spread**2, axis=1)))))


def handmade(sizes, activation="relu", scaling="standard", *, bias=True) -> Model:
    """Return a model with random weights and scaling, without data: as small as its sizes."""
    rng = np.random.default_rng([7, *sizes])
    n, m = sizes[0], sizes[-1]
    shapes = [(a + bias, b) for a, b in pairwise(sizes)]
    weights = tuple(rng.standard_normal(s) / np.sqrt(s[0]) for s in shapes)
    shift, spread, divisor = np.zeros(n), np.ones(n), 1.0
    if scaling == "standard":
        shift, spread, divisor = rng.standard_normal(n), rng.uniform(0.5, 2, n), np.sqrt(n)
    elif scaling == "max":
        divisor = 3.3
    fitted = Scaling(scaling, shift, spread, divisor, rng.standard_normal(m), 0.7)
    return Model(weights, bias, get(activation), fitted)


def inputs(model, dtype, rows=10_000) -> np.ndarray:
    """Return ordinary rows, then as many extreme ones: to 1e6 scaled units, zeros, subnormals."""
    rng = np.random.default_rng(1)
    n = model.sizes[0]
    unit = rng.standard_normal((rows, n)) / np.sqrt(n)
    far = slice(rows // 2, None)
    unit[far] *= 10 ** rng.uniform(-6, 6, (rows - rows // 2, 1))
    unit[-100:] = 0.0
    unit[-200:-100] = 1e6 * np.eye(n)[rng.integers(0, n, 100)] * rng.choice([-1, 1], (100, 1))
    scaling = model.scaling
    x = unit if scaling.name == "paper" else scaling.shift + unit * scaling.spread * scaling.divisor
    x[-50:] = 0.0
    x[-30:] = rng.choice([-1, 1, 3], (30, n)) * np.finfo(dtype).smallest_subnormal
    return x.astype(dtype)


def outputs(model, x) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs in float64 NumPy, and the relative distance of each row to a kink."""
    x = np.asarray(x, np.float64)
    scaling, matrices, biases = model.scaling, model.matrices, model.biases
    if scaling.name == "paper":
        largest = np.max(np.abs(x), axis=1, keepdims=True)
        unit = np.divide(x, largest, out=np.zeros_like(x), where=largest > 0)
        norm = np.linalg.norm(unit, axis=1, keepdims=True)
        h = np.divide(unit, norm, out=np.zeros_like(x), where=norm > 0)
    else:
        h = scaling.inputs(x)
    near = np.full(len(x), np.inf)
    for i, w in enumerate(matrices):
        z = h @ np.asarray(w, np.float64)
        if biases is not None:
            z = z + biases[i]
        if i < len(matrices) - 1:
            near = np.minimum(near, np.min(np.abs(z), axis=1) / (1 + np.max(np.abs(z), axis=1)))
            h = _activated(model.activation.name, z)
    return scaling.outputs(z), near


def _activated(name, z):
    return {
        "relu": lambda: np.maximum(z, 0),
        "leaky_relu": lambda: np.maximum(z, 0.01 * z),
        "abs": lambda: np.abs(z),
        "tanh": lambda: np.tanh(z),
        "softsign": lambda: z / (1 + np.abs(z)),
        "sin": lambda: np.sin(z),
        "arctan": lambda: np.arctan(z),
        "elu": lambda: np.where(z < 0, np.expm1(np.minimum(z, 0)), z),
        "identity": lambda: z,
    }[name]()


def errors(found, expected, target_scale) -> np.ndarray:
    """Return the error of each row, relative to max(‖y‖, target scale)."""
    size = np.maximum(np.linalg.norm(expected, axis=1), target_scale)
    return np.linalg.norm(found - expected, axis=1) / size


def assert_near(case, found, x, limit) -> float:
    """Check errors relative to max(‖y‖, target scale), and return the largest.

    The sine of a large number is no more precise than the number: in float64, beyond ten scaled
    units, the effect of one rounding of the inputs, u · L · ‖x − shift‖, is allowed. NumPy itself
    is no more precise (`test_the_sine_of_a_large_number`).
    """
    model = case.model
    expected, _ = outputs(model, x)
    found = errors(found, expected, case.target_scale)
    room = np.full(len(x), limit)
    if limit == LIMITS["float64"] and model.activation.name == "sin":
        room += sine_room(case, x, expected)
    assert np.all(found <= room), float(np.max(found / room))
    return float(np.max(found))


def sine_room(case, x, expected) -> np.ndarray:
    """Return the relative effect of one rounding of the inputs; zero near the data."""
    model = case.model
    if model.scaling.name == "paper":
        return np.zeros(len(x))
    size = np.maximum(np.linalg.norm(expected, axis=1), case.target_scale)
    far = np.linalg.norm(model.scaling.inputs(x), axis=1) > 10
    moved = np.linalg.norm(x - model.scaling.shift, axis=1)
    return far * np.finfo(np.float64).eps * model.certificate.value * moved / size


LIMITS = {"float64": 1e-12, "float32": 1e-5}


def assert_jacobian(case, found, x, limit) -> None:
    """Compare with the Jacobian of the model away from kinks, relative to the largest entry."""
    model = case.model
    activation, scaling = model.activation.name, model.scaling.name
    x, found = x[:300], found[:300]
    _, near = outputs(model, x)
    keep = np.ones(len(x), bool)
    if activation in ("relu", "leaky_relu", "abs", "elu"):
        keep = near > (1e-4 if limit > 1e-6 else 1e-10)
    assert np.sum(keep) > 200
    expected = _jacobian(activation, scaling, x.dtype.name)
    size = np.max(np.abs(expected))
    assert np.max(np.abs(found[keep] - expected[keep])) <= limit * size


@cache
def _jacobian(activation, scaling, dtype) -> np.ndarray:
    """Return the Jacobians of the model at the first inputs."""
    model = case(activation, scaling).model
    return model.jacobian(inputs(model, dtype)[:300].astype(np.float64))


def broken(x: np.ndarray) -> np.ndarray:
    """Return rows with one number that is not finite."""
    x = np.repeat(x[:1], 3 * x.shape[1], axis=0)
    for i, bad in enumerate((np.nan, np.inf, -np.inf)):
        x[i::3][np.arange(x.shape[1]), np.arange(x.shape[1])] = bad
    return x


def program(name: str) -> str:
    """Return the path of a program, or skip the test."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not on this machine")
    return found


def run(command, **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stderr[-3000:]}"
    return done.stdout


DRIVER = """
#include "{name}.h"
void {name}_run(const {name}_real *x, {name}_real *y, {name}_real *jac, long rows);
void {name}_run(const {name}_real *x, {name}_real *y, {name}_real *jac, long rows)
{{
    long i;
    for (i = 0; i < rows; i++, x += {big}_INPUTS, y += {big}_OUTPUTS) {{
        if (jac) {{
            {name}_eval_jac(x, y, jac);
            jac += {big}_INPUTS * {big}_OUTPUTS;
        }} else {name}_eval(x, y);
    }}
}}
"""


def compiled(sources, compiler: str = "gcc", *flags: str, self_test=False) -> ctypes.CDLL:
    """Compile exported sources into one library; functions have the names of their files."""
    folder = sources[0].parent
    driver = folder / "driver.c"
    driver.write_text("".join(DRIVER.format(name=s.stem, big=s.stem.upper()) for s in sources))
    library = folder / f"{Path(compiler).name}_{len(list(folder.iterdir()))}.so"
    command = [program(compiler), *WARNINGS, "-O2", *flags, "-shared", "-fPIC"]
    command += [f"-D{s.stem.upper()}_SELF_TEST" for s in sources if self_test]
    source = sources[0]
    if len(sources) > 1:
        source = folder / "joined.c"
        source.write_text(joined(sources))
    run([*command, source, driver, "-o", library, "-lm"])
    return ctypes.CDLL(str(library))


def joined(sources) -> str:
    """Join sources into one, which compiles faster; names of one file get its number."""
    parts = []
    for i, source in enumerate(sources):
        text = source.read_text()
        own = {*re.findall(r"^static .*?(\w+)(?=\[|\(| =)", text, re.MULTILINE)}
        own |= {*re.findall(r"^typedef \w+ (\w+);", text, re.MULTILINE)}
        macros = re.findall(r"^#define (\w+)\(", text, re.MULTILINE)
        parts += [*(f"#define {name} {name}_of_{i}" for name in sorted(own)), text]
        parts += [f"#undef {name}" for name in (*sorted(own), *macros)]
    return "\n".join([*parts, ""])


class C:
    """Exported C code in a library."""

    def __init__(self, source: Path, compiler: str = "gcc", *flags: str, library=None) -> None:
        self.library = library or compiled([source], compiler, *flags, self_test=True)
        self.name = source.stem
        single = "typedef float" in source.with_suffix(".h").read_text()
        self.dtype = np.float32 if single else np.float64

    def __call__(self, x: np.ndarray, outputs: int, jacobian: bool = False):
        x = np.ascontiguousarray(x, self.dtype)
        y = np.full((len(x), outputs), 7, self.dtype)
        jac = np.full((len(x), outputs, x.shape[1]), 7, self.dtype)
        at = [ctypes.c_void_p(a.ctypes.data) for a in (x, y, jac)]
        function = getattr(self.library, f"{self.name}_run")
        function(at[0], at[1], at[2] if jacobian else None, ctypes.c_long(len(x)))
        return (y, jac) if jacobian else y

    def names(self, kind: str, count: int) -> list[str]:
        found = (ctypes.c_char_p * count).in_dll(self.library, f"{self.name}_{kind}_names")
        return [name.decode() for name in found]

    def self_test(self) -> int:
        return getattr(self.library, f"{self.name}_self_test")()


def imported(path: Path):
    """Import a Python file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
