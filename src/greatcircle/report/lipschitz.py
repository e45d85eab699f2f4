"""Lipschitz bounds of a fitted model, and the steepest slope at its data."""

from typing import NamedTuple

import numpy as np

from greatcircle import certificate
from greatcircle.figures.tables import Bar, bound_bars, evenly_spaced
from greatcircle.model import Model

__all__ = ["LipschitzBounds", "lipschitz_bounds"]

MAX_JACOBIANS, MAX_ENTRIES = 5000, 10**7
"""Largest number of rows at which the Jacobian is computed, and of its entries over all rows."""


class LipschitzBounds(NamedTuple):
    """Bounds on the Lipschitz constant, in units of the outputs per `unit`."""

    a_priori: float
    """Known before training: the budget, or ∏μ_i (of an average, that of one network)."""
    operator_norms: float
    """∏‖W_i‖_op."""
    certified: float
    """Bound of the certificate."""
    lower: float
    """Largest operator norm of the Jacobian at the rows; no valid bound can be lower."""
    per_deviation: float | None
    """The certified bound per standard deviation of the inputs, if these are standardised."""
    unit: str

    @property
    def bars(self) -> list[Bar]:
        """The positive bounds, largest first."""
        return bound_bars(
            {
                "before training": self.a_priori,
                "product of operator norms": self.operator_norms,
                "certified": self.certified,
                "steepest slope found": self.lower,
            }
        )


def lipschitz_bounds(model: Model, inputs: np.ndarray) -> LipschitzBounds:
    """Return the upper bounds, and the steepest slope at the rows of `inputs`."""
    scaling = model.scaling
    if model.lipschitz is not None:
        a_priori = float(model.lipschitz)
    else:
        radii = [np.linalg.norm(np.asarray(w, np.float64)) for w in model.weights]
        # Networks side by side have √n times the norm of each, and 1/√n times in the last layer.
        excess = model.networks ** ((len(radii) - 2) / 2)
        a_priori = scaling.bound(float(np.prod(radii)) / excess)
    return LipschitzBounds(
        a_priori,
        certificate.spectral(model).value,
        model.certificate.value,
        _steepest_slope(model, inputs),
        _bound_per_deviation(model) if scaling.name == "standard" else None,
        "unit of the inputs" if scaling.is_global else "unit of x/‖x‖",
    )


def _steepest_slope(model: Model, inputs: np.ndarray) -> float:
    """Return the largest operator norm of the Jacobian at evenly spaced rows."""
    limit = MAX_ENTRIES // (model.sizes[0] * model.sizes[-1])
    rows = inputs[evenly_spaced(len(inputs), max(1, min(MAX_JACOBIANS, limit)))]
    slopes = np.linalg.norm(model.jacobian(rows), 2, axis=(1, 2))
    if not model.scaling.is_global:
        # The bound is per unit of x/‖x‖, where the step from x to x + d has the length ‖d‖/‖x‖.
        slopes = slopes * np.linalg.norm(rows, axis=1)
    return float(slopes.max())


def _bound_per_deviation(model: Model) -> float:
    matrices = model.matrices
    varying = model.scaling.scale > 0
    matrices[0] = matrices[0] * varying[:, None]
    own = certificate.tight(matrices, activation=model.activation, orientation="in-out")
    return model.scaling.standard_bound(own.value)
