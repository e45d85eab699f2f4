"""Inputs and targets to the problem that is trained, and exactly back.

A scaling is fitted on the training part alone and then applied to any data. It carries the factors
that it puts on the network's Lipschitz bound. Three of them:

| scaling | inputs | the bound holds |
|---|---|---|
| "paper" | each row to norm one (Algorithm 1) | per unit of x/‖x‖ |
| "standard" | each column to mean zero and variance one, all by one divisor | everywhere |
| "max" | everything divided by the largest norm of a row | everywhere |

Everything here is NumPy float64: it runs once.
"""

from dataclasses import dataclass

import numpy as np

from greatcircle.data.rows import checked_share, pieces, row_norms, unit_rows

SCALINGS = ("paper", "standard", "max")


@dataclass(frozen=True)
class Scaling:
    """How data become the network's data: (x − shift) / spread / divisor, and the targets' factor.

    Parameters
    ----------
    name
        One of `SCALINGS`.
    shift, spread
        Of each input column.
    divisor
        Of all inputs.
    target_shift
        Subtracted from the targets: a bias of the output, which costs no Lipschitz constant.
    factor
        What the targets are then multiplied by.
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
        """From the training part. Rows of weight zero do not count; `factor` is left at one.

        Parameters
        ----------
        name
            One of `SCALINGS`.
        inputs, targets
            Rows in their own units.
        centred
            Whether the mean of the targets is taken off.
        sample_weight
            Weight of each row.
        """
        if name not in SCALINGS:
            raise ValueError(f"scaling is {name!r}; expected one of {', '.join(SCALINGS)}")
        share = checked_share(sample_weight, len(inputs))
        columns = inputs.shape[1]
        shift, spread, divisor = np.zeros(columns), np.ones(columns), 1.0
        if name == "standard":
            shift = share @ inputs
            squares = (share[some] @ (inputs[some] - shift) ** 2 for some in pieces(len(inputs)))
            deviation = np.sqrt(sum(squares))
            # A column that does not vary, up to rounding, says nothing: the network never sees it.
            varies = deviation > 1e-12 * np.maximum(np.abs(shift), 1e-300)
            spread = np.where(varies, deviation, np.inf)
            divisor = float(np.sqrt(max(np.sum(varies), 1)))
        elif name == "max":
            largest = float(np.max(row_norms(inputs[share > 0])))
            divisor = largest if largest > 0 else 1.0
        middle = share @ targets if centred else np.zeros(targets.shape[1])
        return cls(name, shift, spread, divisor, middle)

    def inputs(self, x: np.ndarray) -> np.ndarray:
        """Rows in their own units to the network's; a row of norm zero stays zero."""
        x = np.asarray(x, np.float64)
        if self.name == "paper":
            return unit_rows(x)[0]
        x = x - self.shift
        x /= self.spread * self.divisor  # in place: a second copy of many rows takes as long again
        return x

    def targets(self, y: np.ndarray) -> np.ndarray:
        """Their own units to the network's."""
        return (np.asarray(y, np.float64) - self.target_shift) * self.factor

    def outputs(self, f: np.ndarray) -> np.ndarray:
        """The network's units back."""
        return np.asarray(f, np.float64) / self.factor + self.target_shift

    @property
    def is_global(self) -> bool:
        """Whether a Lipschitz bound holds for all inputs, and not only per unit of x/‖x‖."""
        return self.name != "paper"

    @property
    def scale(self) -> np.ndarray:
        """What each input is multiplied by; ones for "paper", per unit of x/‖x‖."""
        return 1 / (self.spread * self.divisor)

    def bound(self, gain: float) -> float:
        """Lipschitz bound in the units of the data of a network whose own bound is `gain`.

        For "paper" it is per unit of x/‖x‖.
        """
        return gain / (self.divisor * float(np.min(self.spread)) * self.factor)

    def chained(self, jacobian: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Jacobians (rows, outputs, inputs) of the network at `inputs(x)`, in the data's units."""
        jacobian = np.asarray(jacobian, np.float64) / self.factor
        if self.name != "paper":
            return jacobian / (self.spread * self.divisor)
        z, largest, norm = unit_rows(x)
        along = np.einsum("roi,ri->ro", jacobian, z)[:, :, None] * z[:, None, :]
        across, size = (jacobian - along) / norm[:, :, None], largest[:, :, None]
        return np.divide(across, size, out=np.zeros_like(across), where=size > 0)

    def standard_bound(self, gain: float) -> float:
        """The same per standard deviation of the inputs, where the inputs are standardised."""
        return gain / (self.divisor * self.factor)
