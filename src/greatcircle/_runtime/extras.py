"""Import packages that only an extra of the library installs."""

from importlib import import_module
from typing import Any

__all__ = ["require"]


def require(package: str, extra: str, purpose: str) -> Any:
    """Import a package, or raise an error that names the extra to install.

    Parameters
    ----------
    package
        Name of the module to import.
    extra
        Extra of greatcircle that installs it.
    purpose
        What needs it, as the subject of a sentence: "export to ONNX".
    """
    try:
        return import_module(package)
    except ImportError:
        raise ImportError(
            f"{purpose} needs the package {package}: pip install 'greatcircle[{extra}]'"
        ) from None
