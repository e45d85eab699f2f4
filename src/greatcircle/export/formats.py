"""The file formats of `export`: a registry of exporters, and their protocol."""

from pathlib import Path
from typing import Protocol

from greatcircle.export import c, casadi, numpy, onnx, torch
from greatcircle.export.rounded import RoundedModel

__all__ = ["EXPORTERS", "FORMATS", "Exporter"]


class Exporter(Protocol):
    """What a module must provide to write a format."""

    @property
    def SUFFIX(self) -> str:
        """Ending of the file."""
        ...

    def is_used(self, name: str) -> bool:
        """Return whether the name of a model would replace a name that the files use."""
        ...

    def files(
        self, model: RoundedModel, path: Path, *, jacobian: bool = False
    ) -> dict[Path, bytes]:
        """Return the content of each file to write.

        Parameters
        ----------
        model
            The model to write.
        path
            The main file; others get names made from it.
        jacobian
            Whether derivatives are included where that is a choice.
        """
        ...


EXPORTERS: dict[str, Exporter] = {
    "c": c,
    "onnx": onnx,
    "casadi": casadi,
    "torch": torch,
    "numpy": numpy,
}
"""Name of each format and its exporter."""

FORMATS = {name: exporter.SUFFIX for name, exporter in EXPORTERS.items()}
"""Name of each format and the ending of its files."""
