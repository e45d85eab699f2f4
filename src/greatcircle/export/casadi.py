"""Export to CasADi: a symbolic function for optimal control.

`casadi.Function.load` reads the file; CasADi differentiates the function and turns it into C. Its
files have no place for text: names, units, bound and digest are in a JSON file beside it.
"""

import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from greatcircle._runtime.extras import require
from greatcircle.export.formula import ARITHMETIC
from greatcircle.export.rounded import RoundedModel

__all__ = ["SUFFIX", "files", "function", "is_used"]

SUFFIX = ".casadi"

CASADI_NAMES = (
    "jac hess null linux unix INFINITY NAN signgam fpclassify isfinite isinf isnan isnormal "
    "signbit isgreater isgreaterequal isless islessequal islessgreater isunordered "
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh drem erf erfc exp "
    "exp10 exp2 expm1 fabs fdim finite floor fma fmax fmin fmod frexp gamma hypot ilogb j0 j1 "
    "jn ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint "
    "nextafter nexttoward pow pow10 remainder remquo rint round scalb scalbln scalbn "
    "significand sin sincos sinh sqrt tan tanh tgamma trunc y0 y1 yn "
    "lgamma_r lgammaf_r lgammal_r"
)
"""Names that CasADi rejects, and those of math.h, which its generated C code includes."""


def is_used(name: str) -> bool:
    """Return whether CasADi or its generated C code uses this name."""
    # math.h declares each function in three precisions: sin, sinf, sinl.
    functions = {name, name.removesuffix("f"), name.removesuffix("l")}
    return bool(functions & {*CASADI_NAMES.split()}) or name.lower().startswith("casadi")


def files(model: RoundedModel, path: Path, *, jacobian: bool = False) -> dict[Path, bytes]:
    """Return the function and its metadata; CasADi makes the derivatives."""
    made = function(model)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "function.casadi"
        made.save(str(file))
        content = file.read_bytes()
    metadata = json.dumps(model.metadata(), indent=2) + "\n"
    return {path: content, path.with_suffix(".json"): metadata.encode("ascii")}


def function(model: RoundedModel) -> Any:
    """Return the `casadi.Function` from a column x to a column y."""
    if model.dtype != np.float64:
        raise ValueError(
            f"dtype is {model.dtype.name!r} and CasADi computes in float64; use dtype='float64', "
            "or to='c' for float32"
        )
    casadi = require("casadi", "casadi", "export to CasADi")
    p = model.parameters
    x = casadi.MX.sym("x", model.sizes[0])
    # A NaN or an infinity in x makes outputs and derivatives NaN: `fmax` and others would lose it.
    is_finite = casadi.sum1(casadi.fabs(x) <= sys.float_info.max) >= model.sizes[0]
    guard = casadi.if_else(is_finite, 1.0, math.nan)
    limits = p.saturation
    # Otherwise clipping the inputs would lose it in derivatives.
    clipped = _clipped(casadi, x * guard if limits.clips_inputs else x, limits.lower, limits.upper)
    h = _normalised(casadi, clipped) if p.normalise else (clipped - p.input_shift) * p.input_scale
    for i, w in enumerate(p.matrices):
        h = casadi.mtimes(casadi.DM(w.T), h)
        if p.biases is not None:
            h = h + casadi.DM(p.biases[i])
        if i < len(p.matrices) - 1:
            h = model.function.evaluate(_operations(casadi), {"z": h})
    y = h * float(p.output_scale) + casadi.DM(p.output_shift)
    y = _clipped(casadi, y, limits.output_lower, limits.output_upper)
    return casadi.Function(model.name, [x], [y * guard], ["x"], ["y"])


def _clipped(casadi: Any, values: Any, lower: np.ndarray | None, upper: np.ndarray | None) -> Any:
    """Return clipped values, or the values as they are without intervals.

    Derivatives are zero outside, and one at the ends, where those of `fmin` and `fmax` are a half.
    As products, unlike those of `if_else`, they keep NaN.
    """
    if lower is None or upper is None:
        return values
    is_inside = (values >= lower) * (values <= upper) * casadi.DM((lower < upper).astype(float))
    nearest = casadi.if_else(values < lower, casadi.DM(lower), casadi.DM(upper))
    return is_inside * values + (1 - is_inside) * nearest


def _normalised(casadi: Any, x: Any) -> Any:
    """Return x/‖x‖; zero stays zero, and no square overflows or vanishes."""
    largest = casadi.mmax(casadi.fabs(x))
    unit = x / casadi.if_else(largest > 0, largest, 1.0)
    square = casadi.sumsqr(unit)
    norm = casadi.sqrt(casadi.if_else(square > 0, square, 1))
    return casadi.if_else(square > 0, unit / norm, 0)


def _operations(casadi: Any) -> dict[str, Any]:
    """Return how CasADi evaluates each operation of a formula."""
    return {
        **ARITHMETIC,
        **{name: getattr(casadi, name) for name in ("tanh", "sin", "cos", "exp", "expm1")},
        "arctan": casadi.atan,
        "where": casadi.if_else,
        "ones_like": lambda z: casadi.MX.ones(z.shape),
    }
