"""A fitted model to where it will run, with the scaling inside and the bound proved again.

| module | idea |
|---|---|
| `numbers` | a fitted model as plain numbers, which all exporters share |
| `bound` | the bound of those numbers, rounding included |
| `names` | which names are safe in source code |
| `c` | C99: one header, one source, for a microcontroller or a simulation |
| `onnx` | a graph for onnxruntime and its kin |
| `casadi` | a symbolic function, for optimal control |
| `torch`, `numpy` | source files that stand alone |
| `standalone` | the code of the NumPy file |

`docs/export.md` shows each of them.
"""

from collections.abc import Mapping
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

from greatcircle._runtime.atomic import atomic_write, writable_path
from greatcircle.export.names import checked_name
from greatcircle.export.numbers import Numbers, numbers

__all__ = ["FORMATS", "Numbers", "export", "numbers"]

FORMATS = {"c": ".c", "onnx": ".onnx", "casadi": ".casadi", "torch": ".py", "numpy": ".py"}
"""Names of the formats, and how their files end."""

IMPORTED = ("torch.py", "numpy.py", "collections.py", "typing.py")
"""Files that would hide a package that exported Python files import."""


def export(
    model: Any,
    path: str | PathLike[str],
    *,
    to: str | None = None,
    dtype: str = "float64",
    name: str | None = None,
    jacobian: bool = False,
    units: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write a fitted model in the format of another world.

    Parameters
    ----------
    model
        A fitted `LipschitzRegressor`, or a `LipschitzClassifier`, of which the logits are exported.
    path
        Where to, in a folder that exists. Its ending says the format: .c (the header .h is written
        beside it), .onnx, .casadi (a .json with names and bound beside it), or .py.
    to
        The format, which .py needs: "c", "onnx", "casadi", "torch" or "numpy".
    dtype
        "float64" or "float32": what the file computes in. CasADi knows float64 only.
    name
        What functions and classes are called; by default made of the file's name.
    jacobian
        For ONNX: whether the graph has the Jacobian as a second output. The other formats always
        give it.
    units
        Units of some inputs and outputs by their names, for comments and metadata.

    Returns
    -------
    The files that were written, each all at once or not at all.

    Raises
    ------
    ValueError
        Where the rounded numbers have a larger bound than the certificate and its margin allow.
    """
    path, to = _checked(path, to)
    of = numbers(model, name=checked_name(name, path.stem, to), dtype=dtype, units=units)
    made = import_module(f"greatcircle.export.{to}").files(of, path, jacobian=jacobian)
    for file, data in made.items():
        atomic_write(file, data)
    return list(made)


def _checked(path: Any, to: Any) -> tuple[Path, str]:
    if not isinstance(path, str | PathLike):
        raise TypeError(
            f"path is a {type(path).__name__}; expected the name of a file, as in "
            "model.export('model.c')"
        )
    path = Path(path)
    if "\0" in str(path):
        raise ValueError(f"path is {str(path)!r}; expected no null character: try 'model.c'")
    known = ", ".join(f"{name} ({suffix})" for name, suffix in FORMATS.items())
    if to is None:
        fitting = [name for name, suffix in FORMATS.items() if suffix == path.suffix]
        if len(fitting) != 1:
            raise ValueError(
                f"path is {str(path)!r}, whose ending does not say the format; expected one of "
                f"{known}: for .py say which by to='torch' or to='numpy'"
            )
        to = fitting[0]
    if not isinstance(to, str) or to not in FORMATS:
        raise ValueError(f"to is {to!r}; expected one of {known}")
    if path.suffix != FORMATS[to]:
        raise ValueError(
            f"path is {str(path)!r}; expected a name that ends in {FORMATS[to]} for to={to!r}"
        )
    if path.name in IMPORTED:
        raise ValueError(
            f"path is {str(path)!r}, which would be imported in place of the package "
            f"{path.stem!r}; expected another name: try 'model.py'"
        )
    return writable_path(path), to
