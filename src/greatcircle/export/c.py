"""Export to C99: one header and one source that need only `math.h`.

No heap, no mutable data, loops of constant lengths. Weights are stored so that the inner loop of a
product runs over the outputs of a layer: compilers vectorise it without reordering sums. The
Jacobian is computed in forward mode, one input at a time, so it only needs the stack of one
evaluation and of the slopes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from greatcircle.export.formula import FUNCTIONS, Language
from greatcircle.export.parameters import Parameters, Rounding
from greatcircle.export.render import render
from greatcircle.export.rounded import RoundedModel
from greatcircle.export.text import literal

__all__ = ["SUFFIX", "files", "is_used"]

SUFFIX = ".c"

C_STRING = 4095
"""Largest number of bytes of a string that every C99 compiler accepts."""

WIDTHS = (8, 4, 2, 1)
"""Columns of a matrix that are summed at once; eight take two to four vector registers."""

SELF_TEST_ROWS = 3

SELF_TEST_TOLERANCE = {"float32": 1e-3, "float64": 1e-10}
"""Largest error, relative to the largest output or derivative."""


def is_used(name: str) -> bool:
    """Return whether the files define this name themselves: all theirs have a suffix."""
    return False


def files(model: RoundedModel, path: Path, *, jacobian: bool = False) -> dict[Path, bytes]:
    """Return header and source; functions for the Jacobian are always included."""
    _check_header(path)
    for name in (*model.input_names, *model.output_names):
        _check_string(name)
    header = path.with_suffix(".h")
    context = {"layers": list(_layers(model)), "header": header.name} | _self_test(model)
    context |= _activation(model)

    def rendered(template: str, stamp: str) -> str:
        return render(template, model, _FILTERS, {**context, "stamp": stamp})

    # Both files carry the same stamp, so that files of different exports do not compile.
    stamp = f"0x{sha256(rendered('model.c.j2', '').encode()).hexdigest()[:8]}UL"
    return {
        header: rendered("model.h.j2", stamp).encode("ascii"),
        path: rendered("model.c.j2", stamp).encode("ascii"),
    }


@dataclass(frozen=True)
class _Layer:
    """Template variables of a layer."""

    number: int
    inputs: int
    outputs: int
    is_last: bool
    type: str
    """C type of the layer's weights and sums."""
    sums: str
    """Name of the C array of its sums."""
    matrix: np.ndarray
    bias: np.ndarray | None

    @property
    def blocks(self) -> list[tuple[int, int, int]]:
        """First column, columns summed at once, and number of such blocks."""
        blocks, first = [], 0
        for width in WIDTHS:
            count = (self.outputs - first) // width
            if count:
                blocks.append((first, width, count))
            first += count * width
        return blocks


def _layers(model: RoundedModel) -> Iterator[_Layer]:
    p = model.parameters
    for i, matrix in enumerate(p.matrices):
        in_double = i == 0 and p.has_double_first_layer
        yield _Layer(
            number=i + 1,
            inputs=matrix.shape[0],
            outputs=matrix.shape[1],
            is_last=i == len(p.matrices) - 1,
            type="double" if in_double else "real",
            sums="z1" if in_double else f"h{i + 1}",
            matrix=matrix,
            bias=None if p.biases is None else p.biases[i],
        )


def _activation(model: RoundedModel) -> dict[str, Any]:
    """Return the printed formulas in the precision of the file, and in double if needed.

    Sums of a first layer in double precision can be rounded before the activation, unless it
    oscillates: the sine of a rounded large number has no correct digit.
    """
    double_first, depth = model.parameters.has_double_first_layer, len(model.sizes) - 2
    oscillates = model.function.uses("sin", "cos")

    def printed(dtype: np.dtype) -> dict[str, Any]:
        language = _language(dtype)
        lines, result = model.derivative.printed(language)
        words = re.findall(r"\w+", " ".join([*lines, result]))
        return {
            "function": model.function.printed(language),
            "derivative": (lines, result),
            "unused": [name for name in ("z", "a") if name not in words],
        }

    in_double = double_first and oscillates
    in_real = depth > (1 if in_double else 0)  # compilers warn of unused functions
    return {
        "activation": printed(model.dtype) if in_real else None,
        "double_activation": printed(np.dtype(np.float64)) if in_double else None,
    }


def _language(dtype: np.dtype) -> Language:
    """Return the spelling of formulas in C."""
    suffix = "f" if dtype == np.float32 else ""
    calls = {name: f"{name}{suffix}({{}})" for name in FUNCTIONS}
    return Language(
        calls
        | {"arctan": f"atan{suffix}({{}})", "ones_like": f"1.0{suffix}", "where": "{} ? {} : {}"},
        lambda value: "NAN" if np.isnan(value) else _literal(dtype.type(value)),
        f"const {'float' if suffix else 'double'} {{}} = {{}};",
    )


def _self_test(model: RoundedModel) -> dict[str, Any]:
    """Return typical inputs away from kinks, with outputs, derivatives and tolerances."""
    p, exact = model.parameters, model.parameters.model
    inputs = p.sizes[0]
    draws = np.random.default_rng(0).standard_normal((200, inputs)) / np.sqrt(inputs)
    unit = np.where(p.input_scale > 0, p.input_scale.astype(np.float64), 1)
    rounding = Rounding(model.dtype)
    x = rounding("a typical input", p.input_shift + draws / unit).astype(np.float64)
    x = x[np.argsort(-_distances_to_kink(p, x), kind="stable")[:SELF_TEST_ROWS]]
    y, jac = exact.outputs(x), exact.jacobian(x)
    tolerance = SELF_TEST_TOLERANCE[model.dtype.name]
    return {
        "test_x": rounding("a typical input", x),
        "test_y": rounding("a typical output", y),
        "test_jac": rounding("a typical derivative", jac).reshape(SELF_TEST_ROWS, -1),
        "tolerance_y": model.dtype.type(tolerance * np.max(np.abs(y))),
        "tolerance_jac": model.dtype.type(tolerance * np.max(np.abs(jac))),
    }


def _distances_to_kink(parameters: Parameters, x: np.ndarray) -> np.ndarray:
    """Return for each row the smallest |z| of a hidden unit, or distance to an end of a range."""
    model = parameters.model
    limits = model.saturation
    h, nearest = model.scaling.inputs(limits.inputs(x)), np.full(len(x), np.inf)
    biases = model.biases or [np.zeros(1)] * len(model.matrices)
    for w, b in zip(model.matrices[:-1], biases[:-1], strict=True):
        z = h @ w + b
        nearest = np.minimum(nearest, np.min(np.abs(z), axis=1))
        h = parameters.activation(z)
    if limits.output_lower is not None and limits.output_upper is not None:
        y = model.unsaturated().outputs(limits.inputs(x))
        unit = np.maximum(limits.output_upper - limits.output_lower, 1e-300)
        gaps = np.minimum(np.abs(y - limits.output_lower), np.abs(y - limits.output_upper)) / unit
        nearest = np.minimum(nearest, np.min(gaps, axis=1))
    return nearest


def _literal(value: np.floating) -> str:
    return literal(value, "f" if value.dtype == np.float32 else "")


def _numbers(values: np.ndarray) -> str:
    """Return the numbers of a vector, separated by commas, on lines of at most 96 characters."""
    lines, line = [], "   "
    for text in map(_literal, values):
        if len(line) + len(text) > 96:
            lines.append(line)
            line = "   "
        line += f" {text},"
    return "\n".join([*lines, line.rstrip(",")])


def _string(text: str) -> str:
    """Return a C string; bytes other than plain letters, digits and marks are in octal."""
    safe = set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-+.,:;()[]/")
    return '"' + "".join(chr(b) if b in safe else f"\\{b:03o}" for b in text.encode()) + '"'


def _comment(text: str) -> str:
    return "".join(f" * {line}".rstrip() + "\n" for line in text.splitlines())


_FILTERS = {
    "c_comment": _comment,
    "c_literal": _literal,
    "c_numbers": _numbers,
    "c_string": _string,
}


def _check_header(path: Path) -> None:
    """Reject a file name whose #include is undefined in C99 (6.4.7)."""
    if not re.fullmatch(r"[ -~]+", path.name) or set(path.name) & set("\"'\\?"):
        raise ValueError(
            f"path is {str(path)!r}, and C cannot include a header of that name; expected a file "
            "name in ASCII without quotes, ?, \\ and control characters: try 'model.c'"
        )


def _check_string(name: str) -> None:
    """Refuse a name of an input or output that a C string cannot hold."""
    if re.search("[\0\ud800-\udfff]", name) or len(name.encode()) > C_STRING:
        shown = name if len(name) <= 50 else f"{name[:50]}..."
        raise ValueError(
            f"an input or output is called {shown!r}; expected valid Unicode without a null "
            f"character, of at most {C_STRING} bytes, for a string in C: rename the column"
        )
