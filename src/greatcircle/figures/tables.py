"""Data of figures: learning curves, predictions, residuals, slices, confusion counts, grids.

NumPy only. `figures` draws these tables with Matplotlib and `report.charts` with Plotly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from greatcircle.figures.style import ANGLE, BOUND_COLOURS, TEST, TRAIN

__all__ = [
    "Bar",
    "Confusion",
    "Curve",
    "GridComparison",
    "LearningCurves",
    "Predictions",
    "Slices",
    "bound_bars",
    "evenly_spaced",
    "residual_histograms",
]


@dataclass(frozen=True, eq=False)
class LearningCurves:
    """Losses and angles of one method, one row per seed.

    Parameters
    ----------
    title
        Usually the name of the method.
    train, test
        (seeds, iterations + 1): before the first iteration and after each one. Runs that ended
        early are padded with NaN. Without `test` no second curve is drawn.
    angle
        (seeds, iterations)
    seeds
        Seed of each row.
    names
        Names of `train` and `test`.
    axis
        Title of their axis.
    """

    title: str
    train: np.ndarray
    test: np.ndarray | None
    angle: np.ndarray
    seeds: Sequence[int] = (0,)
    names: tuple[str, str] = ("training objective", "test objective")
    axis: str = "objective (scaled data)"

    def __post_init__(self) -> None:
        shape = (len(self.seeds), self.train.shape[-1])
        other = self.train.shape if self.test is None else self.test.shape
        if not len(self.seeds) or self.train.shape != shape or other != shape:
            raise ValueError(
                f"train has shape {self.train.shape} and test {other} for {len(self.seeds)} seeds; "
                "expected equal shapes with one row for each seed"
            )
        if self.angle.shape != (shape[0], shape[1] - 1):
            raise ValueError(
                f"angle has shape {self.angle.shape} and train {self.train.shape}; expected "
                f"{(shape[0], shape[1] - 1)}, one angle per iteration"
            )

    @property
    def curves(self) -> list["Curve"]:
        """Losses and angle, in this order."""
        iterations = np.arange(self.train.shape[1])
        curves = [Curve(self.names[0], iterations, self.train, TRAIN)]
        if self.test is not None:
            curves.append(Curve(self.names[1], iterations, self.test, TEST, dashed=True))
        return [*curves, Curve("angle", iterations[1:], self.angle, ANGLE, right=True)]


class Curve(NamedTuple):
    """One quantity over the iterations, one row per seed, and how to draw it."""

    name: str
    iterations: np.ndarray
    rows: np.ndarray
    colour: str
    dashed: bool = False
    right: bool = False
    """Whether its axis is on the right."""

    def summary(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return mean and standard deviation over the seeds, and both edges of their band.

        NaN is ignored. The band is positive, for a log axis.
        """
        finite = np.ma.masked_invalid(self.rows)
        mean = np.ma.filled(finite.mean(axis=0), np.nan)
        deviation = np.ma.filled(finite.std(axis=0), np.nan)
        return mean, deviation, np.maximum(mean - deviation, 0.1 * mean), mean + deviation


class Predictions(NamedTuple):
    """Measured and predicted values of the training rows, or of the test rows."""

    rows: np.ndarray
    """Row numbers in the table, from zero."""
    measured: np.ndarray
    """(rows, targets), or one label per row."""
    predicted: np.ndarray

    @property
    def residuals(self) -> np.ndarray:
        """Measured − predicted."""
        return self.measured - self.predicted


def residual_histograms(
    predictions: Mapping[str, Predictions], target: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the histogram of the residuals of one target, for training and test rows.

    The bins are the same for both; an empty bin at either end closes the outline.

    Returns
    -------
    dict
        By name: centres of the bins, and the share of the rows in each bin.
    """
    residuals = {name: rows.residuals[:, target] for name, rows in predictions.items()}
    all_residuals = np.concatenate(list(residuals.values()))
    # A single outlier must not squeeze all others into one bin.
    low, high = np.quantile(all_residuals, [0.002, 0.998] if len(all_residuals) > 500 else [0, 1])
    if not high > low:
        low, high = low - 0.5, high + 0.5
    fewest = min(map(len, residuals.values()))
    edges = np.linspace(low, high, int(np.clip(np.sqrt(fewest), 8, 50)) + 1)
    width = edges[1] - edges[0]
    centres = np.concatenate([[low - width / 2], edges[:-1] + width / 2, [high + width / 2]])
    return {
        name: (centres, np.pad(np.histogram(values, edges)[0], 1) / len(values))
        for name, values in residuals.items()
    }


def evenly_spaced(count: int, limit: int) -> np.ndarray:
    """Return at most `limit` of the indices below `count`, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, limit)).round().astype(np.intp))


class Bar(NamedTuple):
    """One bound in a bar chart."""

    name: str
    value: float
    colour: str


def bound_bars(bounds: Mapping[str, float]) -> list[Bar]:
    """Return bars of the positive bounds: a log axis has no zero."""
    return [Bar(name, v, BOUND_COLOURS[name]) for name, v in bounds.items() if v > 0]


class Slices(NamedTuple):
    """The learned function along each input, with the other inputs at their medians."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    grid: np.ndarray
    """(inputs, points), over the range of the training rows."""
    values: np.ndarray
    """(inputs, points, outputs)"""

    def most_important(self, inputs: int, outputs: int) -> "Slices":
        """Return the inputs along which any output changes most, and the first outputs."""
        change = np.ptp(self.values, axis=1)
        largest = np.max(change / np.maximum(change.max(axis=0), 1e-300), axis=1)
        kept = np.sort(np.argsort(-largest, kind="stable")[:inputs])
        return Slices(
            tuple(self.inputs[index] for index in kept),
            self.outputs[:outputs],
            self.grid[kept],
            self.values[kept, :, :outputs],
        )


class Confusion(NamedTuple):
    """Number of rows by true class (down) and predicted class (across)."""

    labels: list[Any]
    counts: np.ndarray

    @property
    def names(self) -> list[str]:
        """Labels as text."""
        return [str(label) for label in self.labels]

    @property
    def shares(self) -> np.ndarray:
        """Counts as fractions of the true class."""
        return self.counts / np.maximum(self.counts.sum(axis=1, keepdims=True), 1)


@dataclass(frozen=True, eq=False)
class GridComparison:
    """One quantity for each depth and width, ours and the paper's.

    Parameters
    ----------
    label, unit
        What is shown, as in ``"train RMS"`` and ``"N"``.
    depths, widths
        Names of the rows and of the columns.
    ours, paper
        (depths, widths); cells with NaN stay empty, as in an unfinished sweep.
    log
        Colour by the logarithm, for positive values over several decades.
    """

    label: str
    unit: str
    depths: Sequence[int]
    widths: Sequence[int]
    ours: np.ndarray
    paper: np.ndarray
    log: bool = False

    def __post_init__(self) -> None:
        expected = (len(self.depths), len(self.widths))
        if self.ours.shape != expected or self.paper.shape != expected:
            raise ValueError(
                f"ours has shape {self.ours.shape} and paper {self.paper.shape}; expected "
                f"{expected} for both, depths by widths"
            )
        low = self.value_range[0]
        if self.log and low <= 0:
            raise ValueError(f"{self.label}: {low:g} has no logarithm; use log=False")

    @property
    def difference(self) -> np.ndarray:
        """Ours − the paper's."""
        return self.ours - self.paper

    @property
    def panels(self) -> dict[str, np.ndarray]:
        """Cells of the three panels, by their titles."""
        return {"ours": self.ours, "paper": self.paper, "ours − paper": self.difference}

    @property
    def value_range(self) -> tuple[float, float]:
        """Smallest and largest value of ours and the paper's, for one colour scale."""
        values = np.stack([self.ours, self.paper])
        values = values[np.isfinite(values)]
        return (float(values.min()), float(values.max())) if values.size else (1.0, 1.0)

    @property
    def largest_difference(self) -> float:
        """Largest absolute difference, for a colour scale centred at zero; one if all are zero."""
        finite = self.difference[np.isfinite(self.difference)]
        return float(np.abs(finite).max(initial=0.0)) or 1.0

    def texts(self, title: str) -> list[list[str]]:
        """Return the text of each cell of a panel: three decimals near one, fewer for large values.

        Differences have a sign; cells without a value are empty.
        """
        largest = max(map(abs, (*self.value_range, 1.0)))
        decimals = int(np.clip(3 - np.floor(np.log10(largest)), 0, 3))
        sign = "+" if title == "ours − paper" else ""

        def text(value: float) -> str:
            rounded = round(value, decimals) + 0.0  # no negative zero
            shown = f"{rounded:{sign if rounded else ''}.{decimals}f}".replace("-", "−")
            return shown if np.isfinite(value) else ""

        return [[text(value) for value in row] for row in self.panels[title].tolist()]
