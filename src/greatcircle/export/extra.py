"""Packages that only some exporters need."""

from importlib import import_module
from typing import Any


def needed(package: str, to: str) -> Any:
    """The package, or an error that says how to get it."""
    try:
        return import_module(package)
    except ImportError:
        raise ImportError(
            f"export to {to!r} needs the package {package}: pip install 'greatcircle[export]'"
        ) from None
