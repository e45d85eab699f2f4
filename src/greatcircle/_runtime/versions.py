"""What a result was made with."""

import platform
from importlib.metadata import version

__version__ = "0.1.0"

PACKAGES = ("greatcircle", "jax", "numpy", "scikit-learn")


def versions() -> dict[str, str]:
    """Of Python and of the packages that decide the numbers."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def machine(*notes: str) -> str:
    """System, Python and JAX in a line, with any notes behind."""
    system = f"{platform.system()} {platform.machine()}"
    words = (system, f"Python {platform.python_version()}", f"JAX {version('jax')}", *notes)
    return ", ".join(words)
