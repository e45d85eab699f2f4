"""Saturation: inputs clipped to the box of the training rows, outputs to the range of the targets.

Clipping acts on each number alone and never moves two of them further apart. So it is 1-Lipschitz
in every norm that grows with the size of each coordinate, and no Lipschitz bound becomes larger.

| kind | clipped |
|---|---|
| False | nothing |
| "outputs" | each output to the range of its training targets, widened a little |
| "inputs" | each input to the range of its column in the training rows |
| "both" | inputs and outputs |
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

__all__ = ["KINDS", "UNSATURATED", "WIDENING", "Saturation"]

KINDS = ("outputs", "inputs", "both")

WIDENING = 0.05
"""Part of a target's range added on each side: the true extremes may lie a little beyond those of
the training rows, and a twentieth of the range is small beside the errors of an extrapolation."""


@dataclass(frozen=True, eq=False)
class Saturation:
    """Intervals to which inputs and outputs are clipped, in the units of the data.

    Parameters
    ----------
    lower, upper
        Ends of the interval of each input; None to leave the inputs as they are.
    output_lower, output_upper
        Ends of the interval of each output; None to leave the outputs as they are.
    """

    lower: np.ndarray | None = None
    upper: np.ndarray | None = None
    output_lower: np.ndarray | None = None
    output_upper: np.ndarray | None = None

    @classmethod
    def fit(
        cls,
        kind: str | bool,
        inputs: np.ndarray,
        targets: np.ndarray,
        sample_weight: np.ndarray | None = None,
    ) -> "Saturation":
        """Return the intervals of the training rows, ignoring rows of weight zero.

        Parameters
        ----------
        kind
            False or one of `KINDS`.
        inputs, targets
            Rows in the units of the data.
        sample_weight
            Weight of each row, or None.
        """
        saturation = cls()
        if kind in ("inputs", "both"):
            lower, upper = _ranges(inputs, sample_weight)
            saturation = replace(saturation, lower=lower, upper=upper)
        if kind in ("outputs", "both"):
            lower, upper = _ranges(targets, sample_weight)
            widening = WIDENING * (upper - lower)
            saturation = replace(
                saturation, output_lower=lower - widening, output_upper=upper + widening
            )
        return saturation

    def union(self, earlier: "Saturation") -> "Saturation":
        """Return the smallest intervals that contain these and the earlier ones, where both are."""
        return Saturation(
            _joined(np.minimum, self.lower, earlier.lower),
            _joined(np.maximum, self.upper, earlier.upper),
            _joined(np.minimum, self.output_lower, earlier.output_lower),
            _joined(np.maximum, self.output_upper, earlier.output_upper),
        )

    def converted(self, convert: Callable[[str, np.ndarray], np.ndarray]) -> "Saturation":
        """Return the intervals with ends converted by a function, which also gets their name."""

        def converted(name: str, ends: np.ndarray | None) -> np.ndarray | None:
            return None if ends is None else convert(f"the {name} end of a range", ends)

        return Saturation(
            converted("lower", self.lower),
            converted("upper", self.upper),
            converted("lower", self.output_lower),
            converted("upper", self.output_upper),
        )

    @property
    def clips_inputs(self) -> bool:
        """Whether inputs are clipped."""
        return self.lower is not None

    @property
    def clips_outputs(self) -> bool:
        """Whether outputs are clipped."""
        return self.output_lower is not None

    @property
    def kind(self) -> str | bool:
        """False or one of `KINDS`."""
        if self.clips_inputs:
            return "both" if self.clips_outputs else "inputs"
        return "outputs" if self.clips_outputs else False

    def inputs(self, x: np.ndarray) -> np.ndarray:
        """Clip rows of inputs; NaN stays NaN."""
        return x if self.lower is None else np.clip(x, self.lower, self.upper)

    def outputs(self, y: np.ndarray) -> np.ndarray:
        """Clip rows of outputs; NaN stays NaN."""
        return y if self.output_lower is None else np.clip(y, self.output_lower, self.output_upper)

    def chained(self, jacobian: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Convert Jacobians of a function at the clipped rows to those of the clipped function.

        The derivatives by an input outside its interval are zero, and so are those of an output
        outside its interval. At an end of an interval they are those of the inside.

        Parameters
        ----------
        jacobian
            Derivatives of the function, (rows, outputs, inputs).
        x, y
            Inputs before clipping, and the outputs of the function at the clipped inputs.
        """
        if self.lower is not None and self.upper is not None:
            moves = _is_inside(x, self.lower, self.upper)
            jacobian = np.where(moves[:, None, :], jacobian, 0.0)
        if self.output_lower is not None and self.output_upper is not None:
            moves = _is_inside(y, self.output_lower, self.output_upper)
            jacobian = np.where(moves[:, :, None], jacobian, 0.0)
        return jacobian

    def __str__(self) -> str:
        words = []
        if self.clips_inputs:
            words.append("inputs are clipped to the box of the training rows")
        if self.clips_outputs:
            beyond = f"{WIDENING:.0%} beyond"
            words.append(f"outputs are clipped to the range of the training targets and {beyond}")
        return ", ".join(words) or "nothing is clipped"


UNSATURATED = Saturation()
"""Nothing is clipped."""


def _ranges(values: np.ndarray, sample_weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the largest number of each column, over rows of positive weight."""
    if sample_weight is not None:
        values = values[np.asarray(sample_weight) > 0]
    values = np.asarray(values, np.float64)
    return np.min(values, axis=0), np.max(values, axis=0)


def _joined(
    end: np.ufunc, found: np.ndarray | None, earlier: np.ndarray | None
) -> np.ndarray | None:
    return found if found is None or earlier is None else end(found, earlier)


def _is_inside(values: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Tell which numbers are in their interval; an interval of one number has no inside."""
    return (values >= lower) & (values <= upper) & (lower < upper)
