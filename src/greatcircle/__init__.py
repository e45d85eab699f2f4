"""Neural networks with a known Lipschitz bound, trained without a learning rate."""

from greatcircle import activations, certificate, directions, losses, sphere, steps, stopping
from greatcircle.descent import Result, descend
from greatcircle.estimators import LipschitzClassifier, LipschitzRegressor
from greatcircle.network import Network
from greatcircle.problem import Problem
from greatcircle.scaling import Scaling
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
    "certificate",
    "descend",
    "directions",
    "load",
    "losses",
    "sphere",
    "steps",
    "stopping",
]
