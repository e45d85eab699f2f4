"""C99: one header and one source that need nothing but `math.h`.

No heap, nothing that changes between calls, loops of constant lengths. Weights lie so that the
inner loop runs over outputs of a layer, which compilers turn into vector instructions without
being allowed to reorder sums. The Jacobian goes forward, one input at a time: its stack is that of
one evaluation and of the slopes.
"""

from hashlib import sha256
from pathlib import Path

import numpy as np

from greatcircle.export.numbers import Numbers
from greatcircle.export.standalone import ACTIVATIONS, Parameters, jacobians, values
from greatcircle.export.text import literal, plain, table

VECTORS = 3
"""Rows of the self-test."""

BLOCK = 8
"""Columns of a matrix that are summed at once: two to four vector registers."""

RULES = {
    # value of z, and slope of z where a is the value
    "relu": ("z < 0 ? 0 : z", "(void)a; return z < 0 ? 0 : 1;"),
    "leaky_relu": ("z < 0 ? R(0.01) * z : z", "(void)a; return z < 0 ? R(0.01) : 1;"),
    "abs": ("z < 0 ? -z : z", "(void)a; return z < 0 ? -R(1.0) : R(1.0);"),
    "tanh": ("F(tanh)(z)", "(void)z; return 1 - a * a;"),
    "softsign": (
        "z / (1 + F(fabs)(z))",
        "const real d = 1 + F(fabs)(z); (void)a; return 1 / (d * d);",
    ),
    "sin": ("F(sin)(z)", "(void)a; return F(cos)(z);"),
    "arctan": ("F(atan)(z)", "(void)a; return 1 / (1 + z * z);"),
    "elu": ("z < 0 ? F(expm1)(z) : z", "return z < 0 ? a + 1 : 1;"),
    "identity": ("z", "(void)z; (void)a; return 1;"),
}


def files(of: Numbers, path: Path, *, jacobian: bool = False) -> dict[Path, bytes]:
    """Header and source; the functions for the Jacobian are always there."""
    header_path = path.with_suffix(".h")
    source = _source(of, header_path.name)
    # A header of one export and a source of another would not fit: both carry the same stamp.
    stamp = f"0x{sha256(source.encode()).hexdigest()[:8]}UL"
    header = _header(of)
    return {
        header_path: header.replace("@STAMP@", stamp).encode("ascii"),
        path: source.replace("@STAMP@", stamp).encode("ascii"),
    }


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
#define {big}_STAMP @STAMP@

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
    p, big = of.parameters, of.name.upper()
    single = of.dtype == np.float32
    used = "".join(RULES[p.activation]) if len(p.matrices) > 1 else ""
    macros = ""
    if "R(" in used:
        macros += "#define R(number) number" + ("##f\n" if single else "\n")
    if "F(" in used or p.normalise:
        macros += "#define F(function) function" + ("##f\n" if single else "\n")
    return f"""{_comment(_about(of))}#include "{header}"

#include <math.h>

#if {big}_STAMP != @STAMP@
#error "header and source are of different exports"
#endif
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "inputs are tested for NaN and infinity: compile without -ffast-math"
#endif

{macros}
typedef {of.name}_real real;

{_names(of.name, "input", big, of.features)}
{_names(of.name, "output", big, of.targets)}
{_tables(of)}
{_functions(of)}
{_self_test(of)}"""


def _names(name: str, kind: str, big: str, names: tuple[str, ...]) -> str:
    body = ",\n".join(f"    {_string(n)}" for n in names)
    return f"const char *const {name}_{kind}_names[{big}_{kind.upper()}S] = {{\n{body}}};\n"


def _string(words: str) -> str:
    """A C string; every byte but plain letters, digits and marks in three octal digits."""
    safe = set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-+.,:;()[]/")
    return '"' + "".join(chr(b) if b in safe else f"\\{b:03o}" for b in words.encode()) + '"'


def _tables(of: Numbers) -> str:
    p, parts = of.parameters, []
    if not p.normalise:
        parts += [_vector("shift", p.shift), _vector("scale", p.scale)]
        if np.any(p.rest):
            comment = "/* What rounding took from the shift. */\n"
            parts.insert(1, comment + _vector("rest", p.rest))
    for i, (w, b) in enumerate(zip(p.matrices, p.biases, strict=True), start=1):
        parts.append(_matrix(f"w{i}", w))
        if of.bias:
            parts.append(_vector(f"b{i}", b))
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


def _vector(name: str, values: np.ndarray) -> str:
    return f"static const real {name}[{len(values)}] = {{\n{_rows(values)}}};\n"


def _matrix(name: str, values: np.ndarray) -> str:
    rows = ",\n".join(f"  {{\n{_rows(row)}}}" for row in values)
    return f"static const real {name}[{values.shape[0]}][{values.shape[1]}] = {{\n{rows}}};\n"


def _functions(of: Numbers) -> str:
    parts = [_prepare(of)]
    depth = len(of.parameters.matrices)
    if depth > 1:
        value, slope = RULES[of.parameters.activation]
        parts.append(f"static real act(real z) {{ return {value}; }}\n")
        parts.append(f"/* a is act(z). */\nstatic real slope(real z, real a) {{ {slope} }}\n")
    for i, (n, m) in enumerate(zip(of.sizes[:-1], of.sizes[1:], strict=True), start=1):
        parts.append(_layer(i, n, m))
    return "\n".join([*parts, _eval(of), _eval_jac(of)])


def _prepare(of: Numbers) -> str:
    """The inputs as the first layer sees them; zero where one of them is not finite."""
    n = of.sizes[0]
    if not of.parameters.normalise:
        shifted = "(x[i] - shift[i])" + (" - rest[i]" if np.any(of.parameters.rest) else "")
        return f"""/* The inputs as the first layer sees them; returns 0 where one is not finite. */
static int prepare(const real x[{n}], real h[{n}])
{{
    int i, finite = 1;
    for (i = 0; i < {n}; i++) {{
        finite &= isfinite(x[i]) ? 1 : 0;
        h[i] = ({shifted}) * scale[i];
    }}
    return finite;
}}
"""
    return f"""/* x / |x|, and |x|; zero stays zero. Returns 0 where an input is not finite. */
static int prepare(const real x[{n}], real h[{n}], real *size)
{{
    real largest = 0, sum = 0, norm;
    int i, finite = 1;
    for (i = 0; i < {n}; i++) {{
        const real a = F(fabs)(x[i]);
        finite &= isfinite(x[i]) ? 1 : 0;
        largest = a > largest ? a : largest;
    }}
    for (i = 0; i < {n}; i++) {{ /* no square overflows or vanishes */
        h[i] = largest > 0 ? x[i] / largest : 0;
        sum += h[i] * h[i];
    }}
    norm = F(sqrt)(sum);
    for (i = 0; i < {n}; i++)
        h[i] = largest > 0 ? h[i] / norm : 0;
    *size = largest * norm;
    return finite;
}}
"""


def _layer(i: int, n: int, m: int) -> str:
    """Add h W to z, in blocks of columns whose sums stay in registers even at -O2."""
    parts, first, width = [], 0, BLOCK
    while first < m:
        count = (m - first) // width
        if count:
            parts.append(_block(i, n, first, width, count))
            first += count * width
        width //= 2
    loops = "".join(parts)
    counters = "i, j, k" if "(j =" in loops else "i, k"
    return f"""static void times{i}(const real h[{n}], real z[{m}])
{{
    int {counters};
{loops}}}
"""


def _block(i: int, n: int, first: int, width: int, count: int) -> str:
    start = "    {"
    at = str(first)
    if count > 1:
        end = first + width * count
        start, at = f"    for (j = {first}; j < {end}; j += {width}) {{", "j"
    return f"""{start}
        real sum[{width}];
        for (k = 0; k < {width}; k++)
            sum[k] = z[{at} + k];
        for (i = 0; i < {n}; i++) {{
            const real a = h[i], *const w = &w{i}[i][{at}];
            for (k = 0; k < {width}; k++)
                sum[k] += a * w[k];
        }}
        for (k = 0; k < {width}; k++)
            z[{at} + k] = sum[k];
    }}
"""


def _eval(of: Numbers) -> str:
    big, sizes = of.name.upper(), of.sizes
    body = [
        f"    real {', '.join(f'h{i}[{n}]' for i, n in enumerate(sizes))};",
        *_local_size(of),
        "    int j;",
        *_guard(of, "eval"),
    ]
    for i, m in enumerate(sizes[1:], start=1):
        body += _sum(of, i, m)
        if i < len(sizes) - 1:
            body += [f"    for (j = 0; j < {m}; j++)", f"        h{i}[j] = act(h{i}[j]);"]
    body += _write_outputs(of)
    text = "\n".join(body)
    return f"""void {of.name}_eval(const real x[{big}_INPUTS], real y[{big}_OUTPUTS])
{{
{text}
}}
"""


def _local_size(of: Numbers) -> list[str]:
    return ["    real size;"] if of.parameters.normalise else []


def _guard(of: Numbers, kind: str) -> list[str]:
    big, size = of.name.upper(), ", &size" if of.parameters.normalise else ""
    lines = [
        f"    if (!prepare(x, h0{size})) {{",
        f"        for (j = 0; j < {big}_OUTPUTS; j++)",
        "            y[j] = (real)NAN;",
    ]
    if kind == "eval_jac":
        lines += [
            f"        for (j = 0; j < {big}_OUTPUTS * {big}_INPUTS; j++)",
            "            jac[j] = (real)NAN;",
        ]
    if kind == "eval" and of.parameters.normalise:
        lines += ["        return;", "    }", "    (void)size;"]
        return lines
    return [*lines, "        return;", "    }"]


def _sum(of: Numbers, i: int, m: int) -> list[str]:
    start = f"b{i}[j]" if of.bias else "0"
    return [
        f"    for (j = 0; j < {m}; j++)",
        f"        h{i}[j] = {start};",
        f"    times{i}(h{i - 1}, h{i});",
    ]


def _write_outputs(of: Numbers) -> list[str]:
    last = len(of.sizes) - 1
    shift = " + target_shift[j]" if np.any(of.parameters.target_shift) else ""
    return [
        f"    for (j = 0; j < {of.sizes[-1]}; j++)",
        f"        y[j] = h{last}[j] * gain{shift};",
    ]


def _eval_jac(of: Numbers) -> str:
    big, sizes = of.name.upper(), of.sizes
    n, hidden = sizes[0], sizes[1:-1]
    arrays = [f"h{i}[{m}]" for i, m in enumerate(sizes)]
    arrays += [f"s{i}[{m}]" for i, m in enumerate(hidden, start=1)]
    arrays += [f"t{i}[{m}]" for i, m in enumerate(sizes[1:], start=1)]
    body = [f"    real {', '.join(arrays)};", *_local_size(of), "    int j, k;"]
    body += _guard(of, "eval_jac")
    for i, m in enumerate(sizes[1:], start=1):
        body += _sum(of, i, m)
        if i < len(sizes) - 1:
            body += [
                f"    for (j = 0; j < {m}; j++) {{",
                f"        const real z = h{i}[j];",
                f"        h{i}[j] = act(z);",
                f"        s{i}[j] = slope(z, h{i}[j]);",
                "    }",
            ]
    body += _write_outputs(of)
    body += [f"    for (k = 0; k < {n}; k++) {{"]
    for i, m in enumerate(sizes[1:], start=1):
        times = f" * s{i}[j]" if i < len(sizes) - 1 else ""
        body += [f"        for (j = 0; j < {m}; j++)"]
        if i == 1:
            body += [f"            t1[j] = w1[k][j]{times};"]
            continue
        body += [f"            t{i}[j] = 0;", f"        times{i}(t{i - 1}, t{i});"]
        if times:
            body += [f"        for (j = 0; j < {m}; j++)", f"            t{i}[j] *= s{i}[j];"]
    factor = "gain" if of.parameters.normalise else "(gain * scale[k])"
    last = len(sizes) - 1
    body += [
        f"        for (j = 0; j < {sizes[-1]}; j++)",
        f"            jac[j * {n} + k] = t{last}[j] * {factor};",
        "    }",
    ]
    if of.parameters.normalise:
        body += [
            f"    for (j = 0; j < {sizes[-1]}; j++) {{ /* d(x / |x|) = (I - h h') dx / |x| */",
            "        real along = 0;",
            f"        for (k = 0; k < {n}; k++)",
            f"            along += jac[j * {n} + k] * h0[k];",
            f"        for (k = 0; k < {n}; k++)",
            f"            jac[j * {n} + k] =",
            f"                size > 0 ? (jac[j * {n} + k] - along * h0[k]) / size : 0;",
            "    }",
        ]
    text = "\n".join(body)
    return f"""void {of.name}_eval_jac(const real x[{big}_INPUTS], real y[{big}_OUTPUTS],
{" " * (15 + len(of.name))}real jac[{big}_OUTPUTS * {big}_INPUTS])
{{
{text}
}}
"""


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
    x = (double.shift + drawn / unit).astype(of.dtype).astype(np.float64)
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
    x, y, jac = (a.astype(of.dtype) for a in vectors(of))
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
