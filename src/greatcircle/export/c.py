"""C99: one header and one source that need nothing but `math.h`.

No heap, nothing that changes between calls, loops of constant lengths. Here are the two files with
what they say of the model, its numbers and a self-test; `c_functions` writes the functions.
"""

from hashlib import sha256
from pathlib import Path

import numpy as np

from greatcircle.export.c_functions import first_type, functions
from greatcircle.export.names import check_c_string, check_header
from greatcircle.export.numbers import Numbers, Rounding
from greatcircle.export.standalone import ACTIVATIONS, Parameters, jacobians, values
from greatcircle.export.text import literal, plain, table

VECTORS = 3
"""Rows of the self-test."""


def files(of: Numbers, path: Path, *, jacobian: bool = False) -> dict[Path, bytes]:
    """Header and source; the functions for the Jacobian are always there."""
    check_header(path)
    for name in (*of.features, *of.targets):
        check_c_string(name)
    header_path = path.with_suffix(".h")
    source = _source(of, header_path.name)
    # A header of one export and a source of another would not fit: both carry the same stamp.
    stamp = f"0x{sha256(source.encode()).hexdigest()[:8]}UL"
    header = _header(of)
    return {
        header_path: header.replace(_STAMP, stamp).encode("ascii"),
        path: source.replace(_STAMP, stamp).encode("ascii"),
    }


_STAMP = "\0"
"""Where the stamp goes: a character that no name contains."""


def _about(of: Numbers) -> list[str]:
    """What stands at the top of both files."""
    facts = of.facts()
    kind = "logits of a classifier" if of.logits else "targets"
    units = "units given below" if of.units else "units of the training data"
    return [
        f"Network {'-'.join(map(str, of.sizes))}, {of.parameters.activation}, {of.dtype.name}.",
        f"Written by {facts['written_by']}. Model SHA-256 (weights and biases):",
        of.certificate.digest,
        "",
        f"|y(a) - y(b)| <= {literal(of.bound)} |a - b| in Euclidean norms and the {units},",
        f"{_ascii(of.certificate.holds)}; proved for the numbers in this file"
        f" (method: {of.certificate.method}).",
        "",
        "Inputs, in order:",
        *table(of.features, of.units),
        f"Outputs, in order ({kind}):",
        *table(of.targets, of.units),
    ]


def _ascii(words: str) -> str:
    return plain(words.replace("‖", "|").replace("≥", ">="))


def _comment(lines: list[str]) -> str:
    body = "\n".join(f" * {line}".rstrip() for line in lines)
    return f"/*\n{body}\n */\n"


def _header(of: Numbers) -> str:
    name, big = of.name, of.name.upper()
    real = "float" if of.dtype == np.float32 else "double"
    inputs, outputs = of.sizes[0], of.sizes[-1]
    return f"""{_comment(_about(of))}#ifndef {big}_H
#define {big}_H

#define {big}_INPUTS {inputs}
#define {big}_OUTPUTS {outputs}
/* Certified Lipschitz bound, outputs per unit of inputs, {_ascii(of.certificate.holds)}. */
#define {big}_LIPSCHITZ {literal(of.bound)}
#define {big}_MODEL_SHA256 "{of.certificate.digest}"
/* Header and source of one export have the same. */
#define {big}_STAMP {_STAMP}

#ifdef __cplusplus
extern "C" {{
#endif

typedef {real} {name}_real;

/* Names in order, in UTF-8. */
extern const char *const {name}_input_names[{big}_INPUTS];
extern const char *const {name}_output_names[{big}_OUTPUTS];

/*
 * y = f(x). All functions are reentrant and use neither heap nor mutable data; y may be x.
 * An x with a NaN or an infinity makes every output NaN.
 */
void {name}_eval(const {name}_real x[{big}_INPUTS], {name}_real y[{big}_OUTPUTS]);

/* The same, and jac[o * {big}_INPUTS + i] = dy[o] / dx[i]; jac overlaps neither x nor y. */
void {name}_eval_jac(const {name}_real x[{big}_INPUTS], {name}_real y[{big}_OUTPUTS],
                     {name}_real jac[{big}_OUTPUTS * {big}_INPUTS]);

#ifdef {big}_SELF_TEST
/* Number of wrong results, zero where all is well; the source must see {big}_SELF_TEST, too. */
int {name}_self_test(void);
#endif

#ifdef __cplusplus
}}
#endif

#endif
"""


def _source(of: Numbers, header: str) -> str:
    big = of.name.upper()
    body, suffix = functions(of), "##f" if of.dtype == np.float32 else ""
    macros = "".join(
        f"#define {macro}({of_what}) {of_what}{suffix}\n"
        for macro, of_what in (("R", "number"), ("F", "function"))
        if f" {macro}(" in body
    )
    wide = "/* Of the first layer, which sees differences of large numbers. */\n"
    wide = f"{wide}typedef double wide;\n" if of.wide else ""
    return f"""{_comment(_about(of))}#include "{header}"

#include <math.h>

#if {big}_STAMP != {_STAMP}
#error "header and source are of different exports"
#endif
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "inputs are tested for NaN and infinity: compile without -ffast-math"
#endif

{macros}
typedef {of.name}_real real;
{wide}
{_names(of.name, "input", big, of.features)}
{_names(of.name, "output", big, of.targets)}
{_tables(of)}
{body}
{_self_test(of)}"""


def _names(name: str, kind: str, big: str, names: tuple[str, ...]) -> str:
    body = ",\n".join(f"    {_string(n)}" for n in names)
    return f"const char *const {name}_{kind}_names[{big}_{kind.upper()}S] = {{\n{body}}};\n"


def _string(words: str) -> str:
    """A C string; every byte but plain letters, digits and marks in three octal digits."""
    safe = set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-+.,:;()[]/")
    return '"' + "".join(chr(b) if b in safe else f"\\{b:03o}" for b in words.encode()) + '"'


def _tables(of: Numbers) -> str:
    p, parts, first = of.parameters, [], first_type(of)
    if not p.normalise:
        parts += [_vector("shift", p.shift, first), _vector("scale", p.scale, first)]
        if np.any(p.rest):
            comment = "/* What rounding took from the shift. */\n"
            parts.insert(1, comment + _vector("rest", p.rest))
    for i, (w, b) in enumerate(zip(p.matrices, p.biases, strict=True), start=1):
        kind = first if i == 1 else "real"
        parts.append(_matrix(f"w{i}", w, kind))
        if of.bias:
            parts.append(_vector(f"b{i}", b, kind))
    parts.append(f"static const real gain = {_literal(p.gain.reshape(1)[0])};\n")
    if np.any(p.target_shift):
        parts.append(_vector("target_shift", p.target_shift))
    return "\n".join(parts)


def _literal(value: np.floating) -> str:
    return literal(value, "f" if value.dtype == np.float32 else "")


def _rows(values: np.ndarray) -> str:
    words, lines, line = [_literal(v) for v in values], [], "   "
    for word in words:
        if len(line) + len(word) > 96:
            lines.append(line)
            line = "   "
        line += f" {word},"
    return "\n".join([*lines, line.rstrip(",")])


def _vector(name: str, values: np.ndarray, kind: str = "real") -> str:
    return f"static const {kind} {name}[{len(values)}] = {{\n{_rows(values)}}};\n"


def _matrix(name: str, values: np.ndarray, kind: str = "real") -> str:
    rows = ",\n".join(f"  {{\n{_rows(row)}}}" for row in values)
    return f"static const {kind} {name}[{values.shape[0]}][{values.shape[1]}] = {{\n{rows}}};\n"


def vectors(of: Numbers) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs of ordinary size and away from kinks, with outputs and Jacobians."""
    p = Parameters(*of.parameters)
    double = p._replace(
        **{name: np.asarray(getattr(p, name), np.float64) for name in _ARRAYS},
        matrices=tuple(w.astype(np.float64) for w in p.matrices),
        biases=tuple(b.astype(np.float64) for b in p.biases),
    )
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal((200, of.sizes[0])) / np.sqrt(of.sizes[0])
    unit = np.where(double.scale > 0, double.scale, 1)
    x = Rounding(of.dtype)("a typical input", double.shift + drawn / unit).astype(np.float64)
    x = x[np.argsort(-_distance(double, x), kind="stable")[:VECTORS]]
    return x, values(double, x), jacobians(double, x)


_ARRAYS = ("shift", "rest", "scale", "gain", "target_shift")


def _distance(p: Parameters, x: np.ndarray) -> np.ndarray:
    """How far the sums of the hidden layers are from a kink, at zero."""
    nearest = np.full(len(x), np.inf)
    h = ((x - p.shift) - p.rest) * p.scale
    if p.normalise:
        h = x / np.linalg.norm(x, axis=1, keepdims=True)
    for w, b in zip(p.matrices[:-1], p.biases[:-1], strict=True):
        z = h @ w + b
        nearest = np.minimum(nearest, np.min(np.abs(z), axis=1))
        h = ACTIVATIONS[p.activation][0](z)
    return nearest


def _self_test(of: Numbers) -> str:
    big, n, m = of.name.upper(), of.sizes[0], of.sizes[-1]
    kinds = ("a typical input", "a typical output", "a typical derivative")
    x, y, jac = map(Rounding(of.dtype), kinds, vectors(of))
    relative = 1e-3 if of.dtype == np.float32 else 1e-10
    near = [of.dtype.type(relative * np.max(np.abs(a))) for a in (y, jac)]
    return f"""#ifdef {big}_SELF_TEST
{_matrix("test_x", x)}
{_matrix("test_y", y)}
{_matrix("test_jac", jac.reshape(VECTORS, -1))}
static int differ(const real *a, const real *b, int count, real near)
{{
    int i, wrong = 0;
    for (i = 0; i < count; i++) {{
        const real d = a[i] < b[i] ? b[i] - a[i] : a[i] - b[i];
        wrong += d <= near ? 0 : 1;
    }}
    return wrong;
}}

int {of.name}_self_test(void)
{{
    real x[{n}], y[{m}], jac[{m * n}];
    int i, wrong = 0;
    for (i = 0; i < {VECTORS}; i++) {{
        {of.name}_eval(test_x[i], y);
        wrong += differ(y, test_y[i], {m}, {_literal(near[0])});
        {of.name}_eval_jac(test_x[i], y, jac);
        wrong += differ(y, test_y[i], {m}, {_literal(near[0])});
        wrong += differ(jac, test_jac[i], {m * n}, {_literal(near[1])});
    }}
    for (i = 0; i < {n}; i++)
        x[i] = test_x[0][i];
    x[{n - 1}] = (real)NAN;
    {of.name}_eval(x, y);
    for (i = 0; i < {m}; i++)
        wrong += isnan(y[i]) ? 0 : 1;
    return wrong;
}}
#endif
"""
