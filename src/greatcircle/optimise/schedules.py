"""Row schedules: which rows each iteration sees.

| schedule | rows |
|---|---|
| `AllRows` | all, at every iteration |
| `GrowingBatches` | batches that grow, of a stream or of rows in memory, then all rows |
| `RandomBatches` | a small random batch for each step; no step has to lower the loss |

Batches grow by one rule. A step is chosen by one batch, direction and angle alike, and judged by
the next one, which has other rows. If the loss of those does not fall, the batch that chose is
asked: if its own loss does not fall either, the step was too long and is halved, as on all rows.
Otherwise the batch is too small to tell the gradient from its noise, and batches are `GROWTH` times
as large from then on. There is no schedule of sizes and no threshold (`docs/batches.md`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Packed
from greatcircle.objective import chunks
from greatcircle.objective.objective import Objective, value_of
from greatcircle.objective.problem import Problem
from greatcircle.optimise.iterations import Batch
from greatcircle.optimise.outcome import Ending, Outcome, Status
from greatcircle.optimise.stopping import Rule

__all__ = [
    "AllRows",
    "Chunks",
    "GrowingBatches",
    "RandomBatches",
    "RowSchedule",
    "Source",
    "WindowSource",
]

GROWTH = 8
"""Factor by which batches grow: each size of a batch that is read compiles anew."""

MAX_REFUSALS = 3
"""Number of consecutive refusals by batches that cannot grow that ends a run."""


class RowSchedule(Protocol):
    """Which rows the iterations see."""

    def start(self) -> Batch:
        """Return the rows that evaluate the point from which the next step is taken."""
        ...

    def next(self) -> Batch | Ending:
        """Return the rows of the next iterations."""
        ...

    def update(
        self, status: Status, accepted: bool, rule: Rule | None
    ) -> tuple[Ending | None, bool]:
        """Learn how an iteration on part of the rows ended.

        Return why the run ends, or None, and whether other rows must evaluate the point anew.
        """
        ...

    @property
    def can_converge(self) -> bool:
        """Whether rules that mean convergence may end a run: not on batches of a stream."""
        ...

    @property
    def uses_all_rows(self) -> bool:
        """Whether the next iterations see all rows."""
        ...

    @property
    def fraction(self) -> float:
        """Part of all rows that an iteration sees."""
        ...

    @property
    def rows(self) -> int:
        """Number of rows that an iteration sees: it decides how many run in one program."""
        ...

    @property
    def position(self) -> Any:
        """All that decides which rows come next, as arrays."""
        ...

    def seek(self, position: Any) -> None:
        """Continue from a position that a schedule of the same rows had."""
        ...


class AllRows:
    """All rows at every iteration."""

    position: Any = ()
    fraction = 1.0
    can_converge = True
    uses_all_rows = True

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.rows = getattr(objective, "count", 1)

    def start(self) -> Batch:
        """Return all rows."""
        return Batch(self.objective)

    next = start

    def update(
        self, status: Status, accepted: bool, rule: Rule | None
    ) -> tuple[Ending | None, bool]:
        """Nothing changes."""
        return None, False

    def seek(self, position: Any) -> None:
        """There is only one position."""


class Source(Protocol):
    """Where batches come from: a source of `data.sources` or a `WindowSource`."""

    def draw(self, rows: int) -> Any:
        """Return a number of rows, fewer at the end, or None if there are none left."""
        ...

    @property
    def position(self) -> np.ndarray:
        """All that decides what is drawn next."""
        ...

    def seek(self, position: np.ndarray) -> None:
        """Continue from a position."""
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

        They begin at a multiple of their number, so two consecutive batches share no rows, up to
        half of all.
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
        """Continue from any position."""
        self._next = int(position[0])


class _Place(NamedTuple):
    """Position of a schedule of growing batches."""

    size: np.ndarray
    """Rows of the next batch; zero once all rows are used."""
    refusals: np.ndarray
    """Consecutive refusals by batches that cannot grow."""
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
        which ends after `MAX_REFUSALS` consecutive refusals.
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
        self.refusals = 0
        self._before = source.position
        self._chooser: Problem | None = None

    @property
    def can_converge(self) -> bool:
        """Whether all rows take over in the end."""
        return self.whole is not None

    @property
    def uses_all_rows(self) -> bool:
        """Whether all rows have taken over from the batches."""
        return self.size == 0

    @property
    def fraction(self) -> float:
        """Part of all rows that an iteration sees; of a stream, one."""
        if self.whole is None or self.uses_all_rows:
            return 1.0
        return self.size / self.whole.count

    @property
    def rows(self) -> int:
        """Number of rows of a batch."""
        return self.size if self.whole is None or not self.uses_all_rows else self.whole.count

    @property
    def position(self) -> _Place:
        """Size, refusals, and the position of the source."""
        return _Place(np.asarray(self.size), np.asarray(self.refusals), self._before)

    def seek(self, position: Any) -> None:
        """Continue from a position, and draw again the batch that chose the next step."""
        place = _Place(*position)
        self.size, self.refusals = int(place.size), int(place.refusals)
        if not np.array_equal(place.source, self.source.position):
            self.source.seek(place.source)
        self._before, self._chooser = self.source.position, None
        if not self.uses_all_rows:
            self._chooser = self._draw()

    def start(self) -> Batch:
        """Return a batch as chooser, to evaluate a point on."""
        if self.uses_all_rows:
            return self._all_rows()
        before = self.source.position
        drawn = self._draw()
        if drawn is None and self._chooser is None:
            raise ValueError(
                f"batch_size is {self.size} and there are fewer rows; expected at least one full "
                "batch: use a smaller one"
            )
        if drawn is not None:
            self._before, self._chooser = before, drawn
        return Batch(self._chooser, self._chooser, np.asarray(False))  # pyright: ignore

    def next(self) -> Batch | Ending:
        """Return the next batch as judge of the step that the last one chose."""
        if self.uses_all_rows:
            return self._all_rows()
        if self.refusals >= MAX_REFUSALS:
            return Ending(
                Outcome.CONVERGED,
                f"{MAX_REFUSALS} consecutive batches of {self.size} rows refused a step",
            )
        self._judge_before = self.source.position
        self._judge = self._draw()
        if self._judge is None:
            return Ending(Outcome.MAX_ITER, "there are no more rows")
        return Batch(self._judge, self._chooser, np.asarray(True))

    def update(
        self, status: Status, accepted: bool, rule: Rule | None
    ) -> tuple[Ending | None, bool]:
        """Let batches grow after a refusal, and when a rule says that they gain too little."""
        if status in (Status.NON_FINITE_GRADIENT, Status.NON_FINITE_ANGLE):
            return Ending(Outcome.NON_FINITE, "the gradient or the angle is not finite"), False
        if accepted:
            self.refusals, self._chooser, self._before = 0, self._judge, self._judge_before
        if rule is not None and not rule.converged:
            return Ending(Outcome.MAX_ITER, rule.reason), False
        if accepted and (rule is None or self.whole is None):
            return None, False
        can_grow = self.size < self.largest
        self.refusals = 0 if can_grow else self.refusals + 1
        self.size = min(GROWTH * self.size, self.largest)
        self._chooser = self._judge
        if self.whole is not None and self.size >= self.largest:
            self.size = 0
        return None, True

    def _all_rows(self) -> Batch:
        # Windows of one problem share a program, also the one of all chunks.
        if isinstance(self.source, WindowSource):
            return Batch(self.whole, self.whole, np.asarray(False))  # pyright: ignore
        return Batch(self.whole)  # pyright: ignore

    def _draw(self) -> Problem | None:
        drawn = self.source.draw(self.size)
        return None if drawn is None or len(drawn) < self.size else self.problem_of(drawn)


class RandomBatches(eqx.Module):
    """A random batch for each step, drawn inside the compiled program.

    Not a `RowSchedule`: the loop has a branch for it, in which every step is taken.

    Parameters
    ----------
    objective
        With all rows.
    size
        Number of rows of a batch.
    steps
        Number of steps in an iteration, after which the loss of all rows is recorded.
    """

    objective: Any
    can_converge: ClassVar[bool] = True
    size: int = eqx.field(static=True, default=256)
    steps: int = eqx.field(static=True, default=100)

    def at(self, step: Array) -> Objective:
        """Return the objective of the batch of a step."""
        rows = self.objective.rows
        key = jax.random.fold_in(jax.random.key(0), step)
        size = min(self.size, rows.count)
        index = jax.random.randint(key, (size,), 0, rows.count)
        picked = rows.pick(lambda values, axis: jnp.take(values, index, axis))
        return self.objective.with_rows(
            picked.with_weight(picked.sample_weight * rows.count / size)
        )

    def conditioned(self, weights: Packed) -> Packed:
        """Return an equivalent, well-conditioned point where the objective has one."""
        improve = getattr(self.objective, "conditioned", None)
        return weights if improve is None else improve(weights)

    def loss(self, weights: Packed) -> Array:
        """Return the loss of all rows in units of `unit`."""
        return value_of(self.objective, sphere.unpack(weights))

    @property
    def passes(self) -> float:
        """Passes over the data in an iteration."""
        return self.steps * min(1.0, self.size / self.objective.count)
