"""Neural networks with a known Lipschitz bound, trained without a learning rate.

The names below are imported when they are first used: JAX takes seconds to import, and the
command line should answer `--version` without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from greatcircle import (
        activations,
        callbacks,
        certificate,
        control,
        directions,
        losses,
        sphere,
        steps,
        stopping,
    )
    from greatcircle.descent import Result, descend
    from greatcircle.estimators import LipschitzClassifier, LipschitzRegressor
    from greatcircle.network import Network
    from greatcircle.problem import Problem
    from greatcircle.scaling import Scaling
    from greatcircle.sharding import spread
    from greatcircle.storage import load

__version__ = "0.1.0"

__all__ = [
    "LipschitzClassifier",
    "LipschitzRegressor",
    "Network",
    "Problem",
    "Result",
    "Scaling",
    "activations",
    "callbacks",
    "certificate",
    "control",
    "descend",
    "directions",
    "load",
    "losses",
    "sphere",
    "spread",
    "steps",
    "stopping",
]

# Where a name is that is not a module of its own.
_HOMES = {
    "LipschitzClassifier": "estimators",
    "LipschitzRegressor": "estimators",
    "Network": "network",
    "Problem": "problem",
    "Result": "descent",
    "Scaling": "scaling",
    "descend": "descent",
    "load": "storage",
    "spread": "sharding",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"greatcircle.{_HOMES[name]}"), name)
    if name in __all__:
        return import_module(f"greatcircle.{name}")
    raise AttributeError(f"module 'greatcircle' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
