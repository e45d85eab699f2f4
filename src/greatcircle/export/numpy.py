"""Export to a Python file that needs only NumPy: `evaluate(x)` and `jacobian(x)`."""

from pathlib import Path

import numpy as np

from greatcircle.export.formula import FUNCTIONS, Language
from greatcircle.export.render import render
from greatcircle.export.rounded import RoundedModel
from greatcircle.export.text import literal, nested

__all__ = ["SUFFIX", "files", "is_used"]

SUFFIX = ".py"

LANGUAGE = Language(
    {name: f"np.{name}({{}})" for name in FUNCTIONS} | {"where": "np.where({}, {}, {})"},
    lambda value: "np.nan" if np.isnan(value) else literal(value),
)


def is_used(name: str) -> bool:
    """Return whether the file uses this name: no function or class is called by the model's."""
    return False


def files(model: RoundedModel, path: Path, *, jacobian: bool = False) -> dict[Path, bytes]:
    """Return one file."""
    filters = {"array": lambda a: f"np.array({nested(a)}, np.{a.dtype.name})", "ascii": ascii}
    formulas = {
        "function": model.function.printed(LANGUAGE),
        "derivative": model.derivative.printed(LANGUAGE),
    }
    return {path: render("numpy.py.j2", model, filters, formulas).encode("ascii")}
