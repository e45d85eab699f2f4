"""Versions of this library, of Python and of the packages that determine numerical results."""

import platform
from importlib.metadata import version

__all__ = ["PACKAGES", "__version__", "machine", "versions"]

__version__ = "0.1.0"

PACKAGES = ("greatcircle", "jax", "numpy", "scikit-learn")


def versions() -> dict[str, str]:
    """Return the versions of Python and of `PACKAGES`, without importing them."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def machine(*notes: str) -> str:
    """Return operating system, processor, Python and JAX versions and the notes, in one line."""
    system = f"{platform.system()} {platform.machine()}"
    words = (system, f"Python {platform.python_version()}", f"JAX {version('jax')}", *notes)
    return ", ".join(words)
