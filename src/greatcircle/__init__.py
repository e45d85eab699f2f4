"""Neural networks with a known Lipschitz bound, trained without a learning rate.

Public names are imported on first use: importing JAX takes seconds, and `greatcircle --version`
should not wait for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from greatcircle._runtime.versions import __version__ as __version__

if TYPE_CHECKING:
    from greatcircle import certificate
    from greatcircle.certificate import control
    from greatcircle.data.scaling import Scaling
    from greatcircle.estimators import LipschitzClassifier, LipschitzRegressor, load
    from greatcircle.geometry import sphere
    from greatcircle.network import activations
    from greatcircle.network.network import Network
    from greatcircle.objective import losses
    from greatcircle.objective.problem import Problem
    from greatcircle.objective.sharding import shard
    from greatcircle.optimise import callbacks, directions, steps, stopping
    from greatcircle.optimise.checkpoint import Checkpoint
    from greatcircle.optimise.descent import Result, descend

__all__ = [
    "Checkpoint",
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
    "shard",
    "sphere",
    "steps",
    "stopping",
]

_PACKAGES = {
    "activations": "network",
    "callbacks": "optimise",
    "certificate": "",
    "control": "certificate",
    "directions": "optimise",
    "losses": "objective",
    "sphere": "geometry",
    "steps": "optimise",
    "stopping": "optimise",
}
"""Public modules and the package each belongs to."""

_MODULES = {
    "Checkpoint": "optimise.checkpoint",
    "LipschitzClassifier": "estimators",
    "LipschitzRegressor": "estimators",
    "Network": "network.network",
    "Problem": "objective.problem",
    "Result": "optimise.descent",
    "Scaling": "data.scaling",
    "descend": "optimise.descent",
    "load": "estimators",
    "shard": "objective.sharding",
}
"""Public classes and functions and the module each is defined in."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"greatcircle.{_MODULES[name]}"), name)
    if name in _PACKAGES:
        return import_module(".".join(filter(None, ("greatcircle", _PACKAGES[name], name))))
    raise AttributeError(f"module 'greatcircle' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
