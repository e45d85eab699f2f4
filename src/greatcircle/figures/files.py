"""Matplotlib figures as PNG and PDF files."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["encode", "save"]


def encode(figure: "Figure") -> dict[str, bytes]:
    """Return the figure as a PNG and a PDF file, by suffix."""
    files = {}
    for suffix in (".png", ".pdf"):
        file = io.BytesIO()
        # No date in the PDF: the same run gives the same file.
        metadata: dict[str, Any] = {"CreationDate": None} if suffix == ".pdf" else {}
        figure.savefig(file, format=suffix[1:], dpi=150, metadata=metadata)
        figure.set_layout_engine("none")  # compute the layout once: it takes longer than drawing
        files[suffix] = file.getvalue()
    return files


def save(figure: "Figure", stem: Path) -> list[Path]:
    """Write the figure as PNG and PDF, and return the paths."""
    paths = []
    for suffix, data in encode(figure).items():
        paths.append(stem.with_suffix(suffix))
        paths[-1].write_bytes(data)
    return paths
