"""CasADi: a symbolic function that optimal control can differentiate and turn into C.

The file is what `casadi.Function.load` reads. CasADi has no place for words in it: names, units,
bound and hash are in a JSON file beside it.
"""

import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from greatcircle.export.extra import needed
from greatcircle.export.numbers import Numbers


def files(of: Numbers, path: Path, *, jacobian: bool = False) -> dict[Path, bytes]:
    """The function and what it means; derivatives are CasADi's."""
    made = function(of)
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder) / "function.casadi"
        made.save(str(there))
        data = there.read_bytes()
    facts = json.dumps(of.facts(), indent=2) + "\n"
    return {path: data, path.with_suffix(".json"): facts.encode("ascii")}


def function(of: Numbers) -> Any:
    """The `casadi.Function` x ↦ y, for columns as CasADi has them."""
    if of.dtype != np.float64:
        raise ValueError(
            f"dtype is {of.dtype.name!r} and CasADi computes in float64; use dtype='float64', or "
            "to='c' for float32"
        )
    casadi = needed("casadi", "casadi")
    p = of.parameters
    x = casadi.MX.sym("x", of.sizes[0])
    h = _normalised(casadi, x) if p.normalise else (x - p.shift) * p.scale
    for i, w in enumerate(p.matrices):
        h = casadi.mtimes(casadi.DM(w.T), h)
        if of.bias:
            h = h + casadi.DM(p.biases[i])
        if i < len(p.matrices) - 1:
            h = _activation(casadi, p.activation, h)
    y = h * float(p.gain) + casadi.DM(p.target_shift)
    # What is not finite gives NaN, in derivatives too: `fmax` and its like would lose it.
    finite = casadi.sum1(casadi.fabs(x) <= sys.float_info.max) >= of.sizes[0]
    y = y * casadi.if_else(finite, 1.0, math.nan)
    return casadi.Function(of.name, [x], [y], ["x"], ["y"])


def _normalised(casadi: Any, x: Any) -> Any:
    """The input divided by its norm; zero stays zero, and no square overflows or vanishes."""
    largest = casadi.mmax(casadi.fabs(x))
    largest = casadi.if_else(largest > 0, largest, 1.0)
    unit = x / largest
    square = casadi.sumsqr(unit)
    return casadi.if_else(square > 0, unit / casadi.sqrt(casadi.if_else(square > 0, square, 1)), 0)


def _activation(casadi: Any, name: str, z: Any) -> Any:
    """As in `activations.py`; at kinks the derivative is that of the branch z ≥ 0."""
    negative = z < 0
    if name == "relu":
        return casadi.if_else(negative, 0, z)
    if name == "leaky_relu":
        return casadi.if_else(negative, 0.01 * z, z)
    if name == "abs":
        return casadi.if_else(negative, -z, z)
    if name == "elu":
        return casadi.if_else(negative, casadi.expm1(casadi.if_else(negative, z, 0)), z)
    if name == "softsign":
        return z / (1 + casadi.fabs(z))
    return {"tanh": casadi.tanh, "sin": casadi.sin, "arctan": casadi.atan, "identity": lambda z: z}[
        name
    ](z)
