"""A fitted model as plain NumPy arrays."""

from greatcircle.model.model import Model, Training, as_model

__all__ = ["Model", "Training", "as_model"]
