"""The functions of the C source: an evaluation, and one with the Jacobian, as text.

Weights lie so that the inner loop runs over outputs of a layer, which compilers turn into vector
instructions without being allowed to reorder sums. The Jacobian goes forward, one input at a time:
its stack is that of one evaluation and of the slopes.
"""

import numpy as np

from greatcircle.export.numbers import Numbers

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


WIDE_RULES = {"sin": ("(real)sin(z)", "(void)a; return (real)cos(z);")}
"""Those of a wide sum that must not be rounded before; for the others any sum is single enough."""


def first_type(of: Numbers) -> str:
    """In which the first layer sums."""
    return "wide" if of.wide else "real"


def functions(of: Numbers) -> str:
    parts = [_prepare(of)]
    depth = len(of.parameters.matrices)
    if depth > 1:
        name = of.parameters.activation
        value, slope = RULES[name]
        if not of.wide or depth > 2 or name not in WIDE_RULES:  # gcc warns of unused functions
            parts.append(f"static real act(real z) {{ return {value}; }}\n")
            parts.append(f"/* a is act(z). */\nstatic real slope(real z, real a) {{ {slope} }}\n")
        if of.wide:
            rounded = "act((real)z)", "return slope((real)z, a);"
            value, slope = WIDE_RULES.get(name, rounded)
            parts.append(f"static real act1(wide z) {{ return {value}; }}\n")
            parts.append(f"static real slope1(wide z, real a) {{ {slope} }}\n")
    for i, (n, m) in enumerate(zip(of.sizes[:-1], of.sizes[1:], strict=True), start=1):
        parts.append(_layer(i, n, m, first_type(of) if i == 1 else "real"))
    return "\n".join([*parts, _eval(of), _eval_jac(of)])


def _prepare(of: Numbers) -> str:
    """The inputs as the first layer sees them; zero where one of them is not finite."""
    n = of.sizes[0]
    if not of.parameters.normalise:
        kind, x = first_type(of), "(wide)x[i]" if of.wide else "x[i]"
        shifted = f"({x} - shift[i])" + (" - rest[i]" if np.any(of.parameters.rest) else "")
        return f"""/* The inputs as the first layer sees them; returns 0 where one is not finite. */
static int prepare(const real x[{n}], {kind} h[{n}])
{{
    int i, finite = 1;
    for (i = 0; i < {n}; i++) {{
        finite &= isfinite(x[i]) ? 1 : 0;
        h[i] = ({shifted}) * scale[i];
    }}
    return finite;
}}
"""
    return f"""/*
 * h = x / |x|, and |x| as two factors: their product may overflow, or lose digits below the
 * smallest normal number. Zero stays zero. Returns 0 where an input is not finite.
 */
static int prepare(const real x[{n}], real h[{n}], real size[2])
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
    norm = F(sqrt)(sum > 1 ? sum : 1); /* 1: zero stays zero */
    for (i = 0; i < {n}; i++)
        h[i] = h[i] / norm;
    size[0] = largest;
    size[1] = norm;
    return finite;
}}
"""


def _layer(i: int, n: int, m: int, kind: str) -> str:
    """Add h W to z, in blocks of columns whose sums stay in registers even at -O2."""
    parts, first, width = [], 0, BLOCK
    while first < m:
        count = (m - first) // width
        if count:
            parts.append(_block(i, n, first, width, count, kind))
            first += count * width
        width //= 2
    loops = "".join(parts)
    counters = "i, j, k" if "(j =" in loops else "i, k"
    return f"""static void times{i}(const {kind} h[{n}], {kind} z[{m}])
{{
    int {counters};
{loops}}}
"""


def _block(i: int, n: int, first: int, width: int, count: int, kind: str) -> str:
    start = "    {"
    at = str(first)
    if count > 1:
        end = first + width * count
        start, at = f"    for (j = {first}; j < {end}; j += {width}) {{", "j"
    return f"""{start}
        {kind} sum[{width}];
        for (k = 0; k < {width}; k++)
            sum[k] = z[{at} + k];
        for (i = 0; i < {n}; i++) {{
            const {kind} a = h[i], *const w = &w{i}[i][{at}];
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
        *_locals(of, []),
        "    int j;",
        *_guard(of, "eval"),
    ]
    for i, m in enumerate(sizes[1:], start=1):
        body += _sum(of, i, m)
        if i < len(sizes) - 1:
            z, first = _summed(of, i)
            body += [f"    for (j = 0; j < {m}; j++)", f"        h{i}[j] = act{first}({z}[j]);"]
    body += _write_outputs(of)
    text = "\n".join(body)
    return f"""void {of.name}_eval(const real x[{big}_INPUTS], real y[{big}_OUTPUTS])
{{
{text}
}}
"""


def _locals(of: Numbers, more: list[str]) -> list[str]:
    """Values of each layer, and `more`; in wide numbers what the first layer sees and sums."""
    layers = [f"h{i}[{n}]" for i, n in enumerate(of.sizes)]
    wide = [f"    wide {layers.pop(0)}, z1[{of.sizes[1]}];"] if of.wide else []
    size = ["    real size[2];"] if of.parameters.normalise else []
    return [*wide, f"    real {', '.join([*layers, *more])};", *size]


def _summed(of: Numbers, i: int) -> tuple[str, str]:
    """Where a layer's sums are, and what the names of its functions end with."""
    return ("z1", "1") if of.wide and i == 1 else (f"h{i}", "")


def _guard(of: Numbers, kind: str) -> list[str]:
    big, size = of.name.upper(), ", size" if of.parameters.normalise else ""
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
    return [*lines, "        return;", "    }"]


def _sum(of: Numbers, i: int, m: int) -> list[str]:
    start, (z, _) = f"b{i}[j]" if of.bias else "0", _summed(of, i)
    return [
        f"    for (j = 0; j < {m}; j++)",
        f"        {z}[j] = {start};",
        f"    times{i}(h{i - 1}, {z});",
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
    arrays = [f"s{i}[{m}]" for i, m in enumerate(hidden, start=1)]
    arrays += [f"t{i}[{m}]" for i, m in enumerate(sizes[1:], start=1)]
    body = [*_locals(of, arrays), "    int j, k;"]
    body += _guard(of, "eval_jac")
    for i, m in enumerate(sizes[1:], start=1):
        body += _sum(of, i, m)
        if i < len(sizes) - 1:
            (z, first), kind = _summed(of, i), first_type(of) if i == 1 else "real"
            body += [
                f"    for (j = 0; j < {m}; j++) {{",
                f"        const {kind} z = {z}[j];",
                f"        h{i}[j] = act{first}(z);",
                f"        s{i}[j] = slope{first}(z, h{i}[j]);",
                "    }",
            ]
    body += _write_outputs(of)
    body += [f"    for (k = 0; k < {n}; k++) {{"]
    for i, m in enumerate(sizes[1:], start=1):
        times = f" * s{i}[j]" if i < len(sizes) - 1 else ""
        body += [f"        for (j = 0; j < {m}; j++)"]
        if i == 1:
            body += [f"            t1[j] = {'(real)' if of.wide else ''}w1[k][j]{times};"]
            continue
        body += [f"            t{i}[j] = 0;", f"        times{i}(t{i - 1}, t{i});"]
        if times:
            body += [f"        for (j = 0; j < {m}; j++)", f"            t{i}[j] *= s{i}[j];"]
    factor = "gain" if of.parameters.normalise else "(gain * scale[k])"
    factor = f"(real){factor}" if of.wide else factor
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
            "                size[0] > 0",
            f"                    ? (jac[j * {n} + k] - along * h0[k]) / size[1] / size[0]",
            "                    : 0;",
            "    }",
        ]
    text = "\n".join(body)
    return f"""void {of.name}_eval_jac(const real x[{big}_INPUTS], real y[{big}_OUTPUTS],
{" " * (15 + len(of.name))}real jac[{big}_OUTPUTS * {big}_INPUTS])
{{
{text}
}}
"""
