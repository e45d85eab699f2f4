"""Row schedules: which rows each iteration sees.

| schedule | rows |
|---|---|
| `AllRows` | all, at every iteration |
| `GrowingBatches` | batches that grow, of a stream or of rows in memory, then all rows |

Small batches for steps that need not lower the loss are in `random_batches.py`.

Batches grow by one rule. One batch chooses a step, direction and angle alike; the next batch, which
has other rows, accepts it if its loss falls. If it does not, the loss of the batch that chose is
compared, too. If that does not fall either, the step was too long and is halved, as on all rows.
Otherwise the batch is too small to tell the gradient from its noise, and from then on batches are
`GROWTH` times as large. There is no schedule of sizes and no threshold (`docs/batches.md`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from greatcircle.objective import chunks
from greatcircle.objective.objective import Objective
from greatcircle.objective.problem import Problem
from greatcircle.optimise.iterations import Batch
from greatcircle.optimise.outcome import Ending, Outcome, Status
from greatcircle.optimise.stopping import Rule

__all__ = [
    "AllRows",
    "Chunks",
    "GrowingBatches",
    "RowSchedule",
    "Source",
    "WindowSource",
]

GROWTH = 8
"""Factor by which batches grow: few sizes, because each is compiled separately."""

MAX_REJECTIONS = 3
"""A run on batches that cannot grow ends after this number of consecutive rejected steps."""


class RowSchedule(Protocol):
    """Which rows the iterations see."""

    def start(self) -> Batch:
        """Return the rows that evaluate the point from which the next step is taken."""
        ...

    def next(self) -> Batch | Ending:
        """Return the rows of the next iterations, or why there are none."""
        ...

    def update(
        self, status: Status, accepted: bool, rule: Rule | None
    ) -> tuple[Ending | None, bool]:
        """Choose the next rows after an iteration on part of the rows.

        Return why the run ends, or None, and whether other rows must evaluate the point again.
        """
        ...

    @property
    def can_converge(self) -> bool:
        """Whether rules that mean convergence may end a run; False for a stream."""
        ...

    @property
    def uses_all_rows(self) -> bool:
        """Whether the next iterations see all rows."""
        ...

    @property
    def fraction(self) -> float:
        """Fraction of all rows that an iteration sees."""
        ...

    @property
    def rows(self) -> int | None:
        """Number of rows that an iteration sees: it decides how many run in one program.

        None for a custom loss.
        """
        ...

    @property
    def position(self) -> Any:
        """Everything that determines the next rows, as arrays."""
        ...

    def seek(self, position: Any) -> None:
        """Continue from a position of a schedule of the same rows."""
        ...


class AllRows:
    """All rows at every iteration."""

    position: Any = ()
    fraction = 1.0
    can_converge = True
    uses_all_rows = True

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.rows: int | None = getattr(objective, "count", None)

    def start(self) -> Batch:
        """Return all rows."""
        return Batch(self.objective)

    next = start

    def update(
        self, status: Status, accepted: bool, rule: Rule | None
    ) -> tuple[Ending | None, bool]:
        """Change nothing."""
        return None, False

    def seek(self, position: Any) -> None:
        """Do nothing: there is only one position."""


class Source(Protocol):
    """Where batches come from: a source of `data.sources` or a `WindowSource`."""

    def draw(self, rows: int) -> Any:
        """Return the next batch: this many rows, fewer at the end, or None after the end."""
        ...

    @property
    def position(self) -> np.ndarray:
        """Everything that determines the next batch."""
        ...

    def seek(self, position: np.ndarray) -> None:
        """Restore a position."""
        ...


@dataclass(frozen=True)
class Chunks:
    """Consecutive chunks of the rows of a problem."""

    first: int
    count: int
    rows: int

    def __len__(self) -> int:
        return self.rows


class WindowSource:
    """Consecutive chunks of rows that are in memory in random order: batches without copies."""

    def __init__(self, rows: int) -> None:
        self.chunks, self.size = chunks.chunk_layout(rows)
        self._next = 0

    def draw(self, rows: int) -> Chunks:
        """Return the next chunks with at least this number of rows, fewer at the end.

        They begin at a multiple of their number, so two consecutive batches of up to half of the
        rows share none.
        """
        count = min(-(-rows // self.size), self.chunks)
        first = -(-self._next // count) * count
        first = first if first + count <= self.chunks else 0
        self._next = first + count
        return Chunks(first, count, count * self.size)

    @property
    def position(self) -> np.ndarray:
        """The next chunk."""
        return np.array([self._next])

    def seek(self, position: np.ndarray) -> None:
        """Restore a position."""
        self._next = int(position[0])


class _Position(NamedTuple):
    """Position of a schedule of growing batches."""

    size: np.ndarray
    """Rows of the next batch; zero once all rows are used."""
    rejections: np.ndarray
    """Consecutive steps rejected by batches that cannot grow."""
    source: np.ndarray
    """Position of the source before it drew the batch that chose the next step."""


class GrowingBatches:
    """Batches that grow until they are half of all rows, then all rows.

    Parameters
    ----------
    source
        Where batches come from.
    problem_of
        Makes a problem of drawn rows, in the unit of all rows.
    first, largest
        Number of rows of the first and of the largest batches.
    whole
        The problem with all rows; None for a stream, whose batches stay at the largest size, and
        which ends after `MAX_REJECTIONS` consecutive rejected steps.
    """

    def __init__(
        self,
        source: Source,
        problem_of: Callable[[Any], Problem],
        first: int,
        largest: int,
        whole: Problem | None = None,
    ) -> None:
        self.source, self.problem_of = source, problem_of
        self.largest, self.whole = largest, whole
        self.size = first if whole is None or first < largest else 0
        self.rejections = 0
        self._chooser: Problem | None = None
        self._before = source.position
        """Position of the source before it drew the chooser."""
        self._judge: Problem | None = None
        self._before_judge = self._before

    @property
    def can_converge(self) -> bool:
        """Whether the batches grow into all rows."""
        return self.whole is not None

    @property
    def uses_all_rows(self) -> bool:
        """Whether the batches have grown into all rows."""
        return self.size == 0

    @property
    def fraction(self) -> float:
        """Fraction of all rows that an iteration sees; of a stream, one."""
        if self.whole is None or self.uses_all_rows:
            return 1.0
        return self.size / self.whole.count

    @property
    def rows(self) -> int:
        """Number of rows that an iteration sees."""
        return self.size if self.whole is None or not self.uses_all_rows else self.whole.count

    @property
    def position(self) -> _Position:
        """Size, rejections, and the position of the source."""
        return _Position(np.asarray(self.size), np.asarray(self.rejections), self._before)

    def seek(self, position: Any) -> None:
        """Continue from a position: draw the batch that chose the next step again."""
        position = _Position(*position)
        self.size, self.rejections = int(position.size), int(position.rejections)
        if not np.array_equal(position.source, self.source.position):
            self.source.seek(position.source)
        self._before = self.source.position
        self._chooser = None if self.uses_all_rows else self._draw()

    def ended_on_batch(self, position: Any) -> bool:
        """Return whether a run that ended at this position had not reached all rows."""
        return self.whole is not None and int(_Position(*position).size) > 0

    def start(self) -> Batch:
        """Return the next batch as chooser, or the last one if there are no more rows."""
        if self.uses_all_rows:
            return self._all_rows()
        before = self.source.position
        drawn = self._draw()
        if drawn is not None:
            self._before, self._chooser = before, drawn
        if self._chooser is None:
            raise ValueError(
                f"batch_size is {self.size} and there are fewer rows; expected at least one full "
                "batch: use a smaller one"
            )
        return Batch(self._chooser, self._chooser, np.asarray(False))

    def next(self) -> Batch | Ending:
        """Return the next batch, which accepts or rejects the step that the last one chose."""
        if self.uses_all_rows:
            return self._all_rows()
        if self.rejections >= MAX_REJECTIONS:
            return Ending(
                Outcome.CONVERGED,
                f"{MAX_REJECTIONS} consecutive batches of {self.size} rows rejected a step",
            )
        self._before_judge = self.source.position
        self._judge = self._draw()
        if self._judge is None:
            return Ending(Outcome.MAX_ITER, "there are no more rows")
        return Batch(self._judge, self._chooser, np.asarray(True))

    def update(
        self, status: Status, accepted: bool, rule: Rule | None
    ) -> tuple[Ending | None, bool]:
        """Grow after a rejected step, or if a rule finds that the loss falls too little."""
        if accepted:
            self.rejections, self._chooser, self._before = 0, self._judge, self._before_judge
        if status in (Status.NON_FINITE_GRADIENT, Status.NON_FINITE_ANGLE):
            return Ending(Outcome.NON_FINITE, "the gradient or the angle is not finite"), False
        if rule is not None and not rule.converged:
            return Ending(Outcome.MAX_ITER, rule.reason), False
        if accepted and (rule is None or self.whole is None):
            return None, False
        can_grow = self.size < self.largest
        self.rejections = 0 if can_grow else self.rejections + 1
        self.size = min(GROWTH * self.size, self.largest)
        self._chooser = self._judge
        if self.whole is not None and self.size >= self.largest:
            self.size = 0
        return None, True

    def _all_rows(self) -> Batch:
        # The windows of a problem share one program, the window of all chunks included.
        if isinstance(self.source, WindowSource):
            return Batch(self.whole, self.whole, np.asarray(False))  # pyright: ignore
        return Batch(self.whole)  # pyright: ignore

    def _draw(self) -> Problem | None:
        drawn = self.source.draw(self.size)
        return None if drawn is None or len(drawn) < self.size else self.problem_of(drawn)
