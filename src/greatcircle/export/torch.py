"""Export to a Python file with one `torch.nn.Module`. Writing it does not need PyTorch."""

from pathlib import Path

import numpy as np

from greatcircle.export.formula import FUNCTIONS, Language
from greatcircle.export.render import render
from greatcircle.export.rounded import RoundedModel
from greatcircle.export.text import literal, nested

__all__ = ["SUFFIX", "files", "is_used"]

SUFFIX = ".py"

TORCH_NAMES = "torch super float INPUTS OUTPUTS UNITS LIPSCHITZ MODEL_SHA256 DTYPE"
"""Names that the file uses, which its class must not replace."""

LANGUAGE = Language(
    {name: f"torch.{name}({{}})" for name in FUNCTIONS} | {"where": "torch.where({}, {}, {})"},
    lambda value: "torch.nan" if np.isnan(value) else literal(value),
)


def is_used(name: str) -> bool:
    """Return whether the file uses this name itself."""
    return name in TORCH_NAMES.split()


def files(model: RoundedModel, path: Path, *, jacobian: bool = False) -> dict[Path, bytes]:
    """Return one file; PyTorch makes the derivatives."""
    filters = {
        "tensor": lambda a: f"torch.tensor({nested(a)}, dtype=torch.{a.dtype.name})",
        "ascii": ascii,
    }
    formula = {"function": model.function.printed(LANGUAGE)}
    return {path: render("torch.py.j2", model, filters, formula).encode("ascii")}
