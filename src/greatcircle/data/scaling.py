"""Scaling of inputs and targets between the units of the data and those of the network.

A scaling is fitted on the training part only and then applied to any data. It also converts the
Lipschitz bound of the network to the units of the data. There are three scalings:

| name | inputs | the bound holds |
|---|---|---|
| "paper" | each row to norm one (Algorithm 1) | per unit of x/‖x‖ |
| "standard" | each column to mean zero and variance one, then all by one divisor | everywhere |
| "max" | all divided by the largest norm of a row | everywhere |

All computations are in NumPy float64.
"""

from dataclasses import dataclass

import numpy as np

from greatcircle.data.checks import normalised_weights
from greatcircle.data.rows import chunks, row_norms, unit_rows

__all__ = ["SCALINGS", "Scaling"]

SCALINGS = ("paper", "standard", "max")


@dataclass(frozen=True)
class Scaling:
    """Scaling of inputs by (x − shift) / spread / divisor, and of targets by a shift and a factor.

    Parameters
    ----------
    name
        One of `SCALINGS`.
    shift, spread
        Mean and standard deviation of each input column; zeros and ones where not used.
    divisor
        Divisor of all inputs.
    target_shift
        Subtracted from the targets: a bias of the output, which does not change the bound.
    factor
        The targets are then multiplied by it.
    """

    name: str
    shift: np.ndarray
    spread: np.ndarray
    divisor: float
    target_shift: np.ndarray
    factor: float = 1.0

    @classmethod
    def fit(
        cls,
        name: str,
        inputs: np.ndarray,
        targets: np.ndarray,
        *,
        centred: bool = False,
        sample_weight: np.ndarray | None = None,
    ) -> "Scaling":
        """Fit a scaling on the training part, ignoring rows of weight zero; `factor` is one.

        Parameters
        ----------
        name
            One of `SCALINGS`.
        inputs, targets
            Rows in the units of the data.
        centred
            Whether to subtract the mean of the targets.
        sample_weight
            Weight of each row.
        """
        if name not in SCALINGS:
            raise ValueError(f"scaling is {name!r}; expected one of {', '.join(SCALINGS)}")
        weight = normalised_weights(sample_weight, len(inputs))
        columns = inputs.shape[1]
        shift, spread, divisor = np.zeros(columns), np.ones(columns), 1.0
        if name == "standard":
            shift = weight @ inputs
            squares = (weight[some] @ (inputs[some] - shift) ** 2 for some in chunks(len(inputs)))
            deviation = np.sqrt(sum(squares))
            # A column that is constant up to rounding has no information: the network ignores it.
            varies = deviation > 1e-12 * np.maximum(np.abs(shift), 1e-300)
            spread = np.where(varies, deviation, np.inf)
            divisor = float(np.sqrt(max(np.sum(varies), 1)))
        elif name == "max":
            largest = float(np.max(row_norms(inputs[weight > 0])))
            divisor = largest if largest > 0 else 1.0
        target_shift = weight @ targets if centred else np.zeros(targets.shape[1])
        return cls(name, shift, spread, divisor, target_shift)

    def inputs(self, x: np.ndarray) -> np.ndarray:
        """Convert inputs to the units of the network; a row of norm zero stays zero."""
        x = np.asarray(x, np.float64)
        if self.name == "paper":
            return unit_rows(x)[0]
        x = x - self.shift
        x /= self.spread * self.divisor  # in place: a second copy would take as long again
        return x

    def targets(self, y: np.ndarray) -> np.ndarray:
        """Convert targets to the units of the network."""
        return (np.asarray(y, np.float64) - self.target_shift) * self.factor

    def outputs(self, f: np.ndarray) -> np.ndarray:
        """Convert outputs of the network to the units of the targets."""
        return np.asarray(f, np.float64) / self.factor + self.target_shift

    @property
    def is_global(self) -> bool:
        """Whether a Lipschitz bound holds for all inputs, and not only per unit of x/‖x‖."""
        return self.name != "paper"

    @property
    def scale(self) -> np.ndarray:
        """Factor of each input; ones for "paper", per unit of x/‖x‖."""
        return 1 / (self.spread * self.divisor)

    def bound(self, gain: float) -> float:
        """Return the Lipschitz bound in the units of the data for a network with the bound `gain`.

        For "paper" it is per unit of x/‖x‖.
        """
        return gain / (self.divisor * float(np.min(self.spread)) * self.factor)

    def chained(self, jacobian: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Convert Jacobians of the network at `inputs(x)` to the units of the data.

        Parameters
        ----------
        jacobian
            Derivatives in the units of the network, (rows, outputs, inputs).
        x
            The rows in the units of the data.
        """
        jacobian = np.asarray(jacobian, np.float64) / self.factor
        if self.name != "paper":
            return jacobian / (self.spread * self.divisor)
        z, largest, norm = unit_rows(x)
        along = np.einsum("roi,ri->ro", jacobian, z)[:, :, None] * z[:, None, :]
        across, size = (jacobian - along) / norm[:, :, None], largest[:, :, None]
        return np.divide(across, size, out=np.zeros_like(across), where=size > 0)

    def standard_bound(self, gain: float) -> float:
        """Return the bound per standard deviation of the inputs, for the scaling "standard"."""
        return gain / (self.divisor * self.factor)
