"""A Python file that needs NumPy alone: `evaluate(x)` and `jacobian(x)`."""

import inspect
from pathlib import Path

import numpy as np

from greatcircle.export import standalone
from greatcircle.export.numbers import Numbers
from greatcircle.export.text import literal, plain, table


def files(of: Numbers, path: Path, *, jacobian: bool = False) -> dict[Path, bytes]:
    """One file."""
    p = of.parameters
    code = inspect.getsource(standalone).split('"""', 2)[2].strip()
    source = f'''{docstring(of, "NumPy", "evaluate(x) and jacobian(x) take one row, or rows.")}
{code}


{constants(of)}
_TYPE = np.{of.dtype.name}

PARAMETERS = Parameters(
    shift={array_of(p.shift)},
    rest={array_of(p.rest)},
    scale={array_of(p.scale)},
    normalise={p.normalise},
    matrices=({
        "".join(
            f"""
        {array_of(w)},"""
            for w in p.matrices
        )
    }
    ),
    biases=({
        "".join(
            f"""
        {array_of(b)},"""
            for b in p.biases
        )
    }
    ),
    gain={array_of(p.gain)},
    target_shift={array_of(p.target_shift)},
    activation="{p.activation}",
)


def evaluate(x):
    """Outputs for one row x, or for rows. NaN and infinity give NaN."""
    rows = _rows(x)
    y = values(PARAMETERS, rows)
    return y[0] if np.ndim(x) == 1 else y


def jacobian(x):
    """Derivatives (outputs, inputs) for one row x, or (rows, outputs, inputs)."""
    rows = _rows(x)
    found = jacobians(PARAMETERS, rows)
    return found[0] if np.ndim(x) == 1 else found


def _rows(x):
    x = np.asarray(x, _TYPE)
    if x.ndim not in (1, 2) or x.shape[-1] != len(INPUTS):
        raise ValueError(f"x has the shape {{x.shape}}; expected (rows, {{len(INPUTS)}})")
    return x.reshape(-1, len(INPUTS))
'''
    return {path: source.encode("utf-8")}


def docstring(of: Numbers, kind: str, use: str) -> str:
    """What stands at the top of a Python file."""
    outputs = "logits of a classifier" if of.logits else "targets"
    lines = [
        f'"""{of.name}: a network with a certified Lipschitz bound, for {kind} alone.',
        "",
        use,
        "",
        f"Network {'-'.join(map(str, of.sizes))}, {of.parameters.activation}, {of.dtype.name}, "
        f"written by {of.facts()['written_by']}.",
        f"Bound: {literal(of.bound)} units of the outputs per unit of the inputs, Euclidean norms,",
        f"{plain(of.certificate.holds.replace('‖', '|').replace('≥', '>='))}, proved for the "
        "numbers in this file.",
        "",
        "Inputs, in order:",
        *table(of.features, of.units),
        f"Outputs, in order ({outputs}):",
        *table(of.targets, of.units),
        '"""',
        "",
    ]
    return "\n".join(lines)


def constants(of: Numbers) -> str:
    """Names, bound and hash, in ASCII."""
    return f"""INPUTS = {list(of.features)!a}
OUTPUTS = {list(of.targets)!a}
UNITS = {of.units!a}
LIPSCHITZ = {literal(of.bound)}
MODEL_SHA256 = "{of.certificate.digest}"
"""


def array_of(array: np.ndarray) -> str:
    return f"np.array({numbers_of(array)}, np.{array.dtype.name})"


def numbers_of(array: np.ndarray) -> str:
    """Nested lists, exact."""
    if array.ndim == 0:
        return literal(array.reshape(1)[0])
    separator = ",\n         " if array.ndim > 1 else ", "
    return "[" + separator.join(numbers_of(row) for row in array) + "]"
