"""`export`: write a fitted model in another format."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from greatcircle._runtime.atomic import atomic_write, writable_path
from greatcircle.export.formats import EXPORTERS, FORMATS
from greatcircle.export.names import checked_name
from greatcircle.export.rounded import round_model
from greatcircle.model import as_model

__all__ = ["export"]

IMPORTED = ("torch.py", "numpy.py", "collections.py", "typing.py")
"""Files that would be imported in place of packages that exported Python files need."""


def export(
    model: Any,
    path: str | PathLike[str],
    *,
    to: str | None = None,
    dtype: str = "float64",
    name: str | None = None,
    jacobian: bool = False,
    units: Mapping[str, str] | None = None,
    saturation: bool = True,
) -> list[Path]:
    """Write a fitted model to C, ONNX, CasADi, PyTorch or NumPy.

    Parameters
    ----------
    model
        A fitted estimator or its `Model`. Of a classifier the logits are exported.
    path
        File to write, in a folder that exists. Its ending gives the format: .c (the header .h is
        written beside it), .onnx, .casadi (names and bound are written to a .json beside it) or
        .py.
    to
        Format, needed for .py: "c", "onnx", "casadi", "torch" or "numpy".
    dtype
        "float64" or "float32": precision of the file. CasADi supports float64 only.
    name
        Name of functions and classes; made from the file name by default.
    jacobian
        For ONNX: whether the Jacobian is a second output. The other formats always provide it.
    units
        Units of some inputs and outputs by their names, for comments and metadata.
    saturation
        Whether the file clips inputs and outputs as the model does. Where they are clipped,
        derivatives are zero, which stalls an optimiser: False omits the clipping, and proves the
        bound of the function without it.

    Returns
    -------
    The files that were written, each atomically.

    Raises
    ------
    ValueError
        If the rounded numbers have a larger bound than the certificate with its margin allows.
    """
    path, to = _checked(path, to)
    exporter = EXPORTERS[to]
    name = checked_name(name, path.stem, to)
    model = as_model(model) if saturation else as_model(model).unsaturated()
    rounded = round_model(model, name=name, dtype=dtype, units=units)
    files = exporter.files(rounded, path, jacobian=jacobian)
    for file, content in files.items():
        atomic_write(file, content)
    return list(files)


def _checked(path: Any, to: Any) -> tuple[Path, str]:
    """Return the path and the format, or raise an error if they do not match."""
    if not isinstance(path, str | PathLike):
        raise TypeError(
            f"path is of type {type(path).__name__}; expected the name of a file, as in "
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
                f"path is {str(path)!r}, whose ending does not determine the format; expected one "
                f"of {known}; for .py add to='torch' or to='numpy'"
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
