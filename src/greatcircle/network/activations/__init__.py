"""Activations that the theory allows, and `declare` for a user's function."""

from greatcircle.network.activations.builtin import ACTIVATIONS, REFUSED, Activation, get
from greatcircle.network.activations.declared import declare

__all__ = ["ACTIVATIONS", "REFUSED", "Activation", "declare", "get"]


def __dir__() -> list[str]:
    return sorted(__all__)
