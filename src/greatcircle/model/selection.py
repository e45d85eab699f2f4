"""What the selection tried, as a table of columns."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

__all__ = ["SelectionRow", "SelectionTable", "batches_text"]


LAYERS = "hidden_layer_sizes"
"""The column whose entries are tuples."""


class SelectionRow(NamedTuple):
    """A candidate, and what the selection measured of it."""

    hidden_layer_sizes: tuple[int, ...]
    target_gain: float
    """NaN if it was the automatic one (`docs/scaling.md`)."""
    iterations: int
    """At which the held-out loss was lowest."""
    parts: int
    """Parts of the rows that were held out; fewer if the candidate was hopeless."""
    held_out_loss: float
    """Mean loss of the rows held out, in the units of the loss."""
    standard_error: float
    evaluations: float
    """Passes over the rows, of every kind, for all parts together."""
    spectral_bound: float
    """Product of operator norms, in the units of the data; mean over the parts."""
    chosen: bool
    direction: str = ""
    """On small batches, before iterations on all rows; "" for iterations on all rows only."""
    steps: int = 0
    """Number of steps on small batches."""


def batches_text(row: SelectionRow) -> str:
    """Return direction and number of steps on small batches, as in "soap 1024"."""
    return f"{row.direction} {row.steps}" if row.steps else "none"


class SelectionTable(dict[str, np.ndarray]):
    """The candidates as columns; `pandas.DataFrame(table)` makes a data frame."""

    @classmethod
    def of(cls, rows: Sequence[SelectionRow]) -> Self:
        """Return the table of some candidates."""
        columns = {}
        for name in SelectionRow._fields:
            values = [getattr(row, name) for row in rows]
            columns[name] = np.array(values) if name != LAYERS else np.empty(len(values), object)
            columns[name][:] = values
        return cls(columns)

    def rows(self) -> list[SelectionRow]:
        """Return one row for each candidate."""
        columns = (self[name].tolist() for name in SelectionRow._fields)
        return [SelectionRow(*values) for values in zip(*columns, strict=True)]

    def __repr__(self) -> str:
        lines = [
            f"{'layers':>18}{'target gain':>13}{'small batches':>15}{'iterations':>12}"
            f"{'held-out loss':>15}"
            f"{'± s.e.':>10}{'parts':>7}{'passes':>9}{'bound':>10}"
        ]
        for row in self.rows():
            layers = "-".join(map(str, row.hidden_layer_sizes))
            gain = "auto" if np.isnan(row.target_gain) else f"{row.target_gain:.3g}"
            lines.append(
                f"{layers:>18}{gain:>13}{batches_text(row):>15}{row.iterations:>12}"
                f"{row.held_out_loss:>15.5g}"
                f"{row.standard_error:>10.2g}{row.parts:>7}{row.evaluations:>9.0f}"
                f"{row.spectral_bound:>10.3g}{'  chosen' * row.chosen}"
            )
        return "\n".join(lines)
