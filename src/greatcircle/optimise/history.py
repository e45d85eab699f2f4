"""The records of a fit as a table of columns."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from greatcircle.optimise.record import Record

__all__ = ["History"]


class History(dict[str, np.ndarray]):
    """The iterations of a fit as columns; `pandas.DataFrame(history)` makes a data frame."""

    SHOWN = ("iteration", "loss", "validation_loss", "angle", "slope", "seconds", "spectral_bound")

    @classmethod
    def of(cls, rows: Sequence[Record]) -> Self:
        """Return the history of some records."""
        return cls({name: np.array([getattr(r, name) for r in rows]) for name in Record._fields})

    def rows(self) -> list[Record]:
        """Return the records, one per iteration."""
        columns = (self[name].tolist() for name in Record._fields)
        return [Record(*values) for values in zip(*columns, strict=True)]

    def __repr__(self) -> str:
        count = len(self["iteration"])
        which = list(range(count))
        if count > 12:
            which = [*range(5), *range(count - 5, count)]
        lines = ["".join(f"{name:>16}" for name in self.SHOWN)]
        for place, i in enumerate(which):
            if place and i != which[place - 1] + 1:
                lines.append(f"{'…':>16}")
            lines.append("".join(f"{_short(self[name][i]):>16}" for name in self.SHOWN))
        return "\n".join([*lines, f"{count} iterations, {len(self)} columns"])


def _short(value: Any) -> str:
    return str(value) if isinstance(value, int | np.integer) else f"{value:.5g}"
