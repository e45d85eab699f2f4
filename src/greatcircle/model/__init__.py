"""A fitted model as plain NumPy arrays."""

from greatcircle.model.model import Model, Training, as_model
from greatcircle.model.selection import SelectionRow, SelectionTable

__all__ = ["Model", "SelectionRow", "SelectionTable", "Training", "as_model"]
