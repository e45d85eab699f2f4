"""Inputs and targets to the unit problem, and exactly back: Algorithm 1's second half.

A scaling is fitted on the training part alone and then applied to any data. It carries the factor
that takes an output of the network back to physical units, which is also the factor it puts on the
network's Lipschitz bound. Everything here is NumPy float64: it runs once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from greatcircle.network import Network


@dataclass(frozen=True)
class PaperScaling:
    """Each input row to unit norm, targets to the gain of the initial network (Algorithm 1).

    The magnitude of an input is lost, so a Lipschitz bound holds per unit of x/‖x‖ only.

    Parameters
    ----------
    factor
        What the targets are multiplied by, ∏‖W_i‖_op / Y_max.
    """

    factor: float

    name = "paper"

    @classmethod
    def fit(cls, targets: np.ndarray, weights: Sequence[np.ndarray]) -> "PaperScaling":
        """From the training targets and the initial weights.

        Targets that are all zero leave nothing to scale: Y_max is then taken as one.
        """
        largest = float(np.max(_row_norms(targets)))
        gain = float(np.prod([np.linalg.norm(np.asarray(w, np.float64), 2) for w in weights]))
        return cls(gain / (largest if largest > 0 else 1.0))

    def inputs(self, x: np.ndarray) -> np.ndarray:
        """Divide each row by its norm; a row of norm zero stays zero."""
        size = _row_norms(x)
        return np.divide(x, size, out=np.zeros_like(x, np.float64), where=size > 0)

    def targets(self, y: np.ndarray) -> np.ndarray:
        """Physical units to the network's."""
        return y * self.factor

    def outputs(self, f: np.ndarray) -> np.ndarray:
        """The network's units back to physical ones."""
        return np.asarray(f, np.float64) / self.factor

    def bound(self, gain: float) -> float:
        """Lipschitz bound in physical units of a network whose own bound is `gain`."""
        return gain / self.factor


SCALINGS = {PaperScaling.name: PaperScaling}


def spectral_initialisation(
    network: Network,
    targets: np.ndarray,
    seed: int | np.random.Generator,
    *,
    scheme: str = "uniform",
    radius: float | Sequence[float] = 1.0,
    dtype: DTypeLike = np.float32,
) -> tuple[tuple[np.ndarray, ...], PaperScaling]:
    """Algorithm 1: random weights on their spheres, and the scaling that goes with them.

    Parameters
    ----------
    network
        The network to start.
    targets
        Of the training part: Y_max comes from them alone.
    seed, scheme, radius, dtype
        As for `Network.initial_weights`.
    """
    weights = network.initial_weights(seed, scheme=scheme, radius=radius, dtype=dtype)
    return weights, PaperScaling.fit(targets, weights)


def _row_norms(x: np.ndarray) -> np.ndarray:
    """‖x‖ of each row as a column, without overflow or underflow of the squares."""
    largest = np.max(np.abs(x), axis=1, keepdims=True)
    scaled = np.divide(x, largest, out=np.zeros_like(x, np.float64), where=largest > 0)
    return largest * np.linalg.norm(scaled, axis=1, keepdims=True)
