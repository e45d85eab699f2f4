"""Search for the target gain and the sizes of the hidden layers with the lowest held-out error.

The search only compares errors: `evaluate` trains (`trials.py`). It walks over target gains with
one network, then goes on to the next wider one as long as that lowers the error, and finally tries
other depths of the same width, which have to lower it by more than its noise.

On small batches the order is another one (`search_on_batches`), because there a network may be
trained longer instead of being wider.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self, TypeVar

__all__ = ["BatchPhase", "Candidate", "Ladder", "Measured", "search", "search_on_batches"]

FACTOR = math.sqrt(10)
"""From one target gain to the next. The error of one fit is noisier than a smaller step."""

FIRST_GAIN = FACTOR
"""Target gain of the first candidate: between 1 and 10, where most optima are."""

GAINS = (0.03, 3000.0)
"""Limits of the walk, far beyond any useful target gain, so that it always ends."""

FOUR = 4
"""Number of layers of the networks that `FACTOR` and `FIRST_GAIN` are meant for."""


class BatchPhase(NamedTuple):
    """Training on small random batches."""

    direction: str
    """Its name in `methods.py`."""
    steps: int
    """Number of steps, after which the angle is zero."""


class Candidate(NamedTuple):
    """A network to try, and how to train it."""

    hidden_layer_sizes: tuple[int, ...]
    target_gain: float | None
    """None for the automatic one of the network (`target_gain.py`)."""
    batches: BatchPhase | None = None
    """What comes before iterations on all rows; None for nothing."""

    def with_sizes(self, sizes: tuple[int, ...]) -> "Candidate":
        """Return the candidate with other layers, and the same stiffness of each layer.

        Of L layers, each amplifies by the L-th root of the target gain (`docs/scaling.md`).
        """
        if self.target_gain is None:
            return self._replace(hidden_layer_sizes=sizes)
        ratio = (len(sizes) + 1) / (len(self.hidden_layer_sizes) + 1)
        return self._replace(hidden_layer_sizes=sizes, target_gain=self.target_gain**ratio)

    def with_direction(self, direction: str) -> "Candidate":
        """Return the candidate with another direction on small batches."""
        if self.batches is None:
            return self
        return self._replace(batches=self.batches._replace(direction=direction))

    def with_steps(self, steps: int) -> "Candidate":
        """Return the candidate with another number of steps on small batches."""
        if self.batches is None:
            return self
        return self._replace(batches=self.batches._replace(steps=steps))

    def moved(self, steps: int) -> "Candidate | None":
        """Return the candidate with a target gain that is some steps larger; None at a limit."""
        layers = len(self.hidden_layer_sizes) + 1
        gain = (self.target_gain or 1.0) * FACTOR ** (steps * layers / FOUR)
        return self._replace(target_gain=gain) if GAINS[0] <= gain <= GAINS[1] else None


class Measured(Protocol):
    """The held-out error of a candidate."""

    @property
    def candidate(self) -> Candidate:
        """The candidate."""
        ...

    @property
    def hopeless(self) -> bool:
        """Whether it was not measured to the end, because others are clearly better."""
        ...

    def below(self, other: Self) -> bool:
        """Return whether the error is lower, on the rows that both were measured on."""
        ...

    def clearly_below(self, other: Self) -> bool:
        """Return whether it is lower by more than the noise of the difference."""
        ...

    def worth_four_times(self, other: Self) -> bool:
        """Return whether the error is so much lower that it is worth four times the cost."""
        ...


M = TypeVar("M", bound=Measured)


@dataclass(frozen=True)
class Ladder:
    """The networks to try."""

    widths: Sequence[tuple[int, ...]]
    """Hidden layers, from narrow to wide; the walk starts with the first."""
    depths: Callable[[tuple[int, ...]], Sequence[tuple[int, ...]]] = lambda _: ()
    """Returns other depths to try once a width is chosen."""
    walks: bool = True
    """Whether to search for the target gain, too."""
    first_gain: float | None = None
    """Target gain of the first candidate; if `walks` is false, of all. None for the default."""
    batches: BatchPhase | None = None
    """Of the first candidates; None if all rows are seen in every iteration."""
    directions: Sequence[str] = ()
    """Other directions for small batches, to try at the end."""
    affords: Callable[[Candidate], bool] = lambda _: True
    """Whether a candidate costs little enough."""


Evaluate = Callable[[Candidate, M | None], M]


def search(ladder: Ladder, evaluate: Evaluate[M]) -> M:
    """Return the best measurement.

    Parameters
    ----------
    ladder
        The networks to try.
    evaluate
        Returns the held-out error of a candidate. Its second argument is the lowest one so far
        that the candidate competes with: one that is clearly worse need not be measured to the end.
    """
    first, *wider = ladder.widths
    best = _walk(evaluate(_first(ladder, first), None), ladder, evaluate, None)
    for sizes in wider:
        found = _walk(evaluate(best.candidate.with_sizes(sizes), best), ladder, evaluate, best)
        if not found.below(best):
            break
        best = found
    for sizes in ladder.depths(best.candidate.hidden_layer_sizes):
        found = evaluate(best.candidate.with_sizes(sizes), best)
        if not found.hopeless:
            found = _walk(found, ladder, evaluate, best)
        best = found if found.clearly_below(best) else best
    return best


def search_on_batches(ladder: Ladder, evaluate: Evaluate[M]) -> M:
    """Return the best measurement of candidates that are trained on small batches.

    Target gain and depth come first, with the narrowest network. Then, in rounds, four times the
    steps and twice the width are compared, which cost the same: the better one is kept, until
    neither is better. Other directions come last. Parameters are those of `search`.
    """
    first, *wider = ladder.widths
    best = _walk(evaluate(_first(ladder, first), None), ladder, evaluate, None)
    for sizes in ladder.depths(first):
        candidate = best.candidate.with_sizes(sizes)
        if ladder.affords(candidate):
            found = _walk(evaluate(candidate, best), ladder, evaluate, best)
            best = found if found.clearly_below(best) else best
    while True:
        found = best
        for candidate in _of_four_times_the_cost(best.candidate, wider):
            if not ladder.affords(candidate):
                continue
            measured = evaluate(candidate, best)
            if candidate.batches == best.candidate.batches:  # a wider network
                measured = _walk(measured, ladder, evaluate, best)
            found = measured if measured.below(found) else found
        if found is best or not found.worth_four_times(best):
            best = found
            break
        best = found
    for direction in ladder.directions:
        candidate = best.candidate.with_direction(direction)
        if ladder.affords(candidate):
            found = evaluate(candidate, best)
            best = found if found.below(best) else best
    return best


def _first(ladder: Ladder, sizes: tuple[int, ...]) -> Candidate:
    """Return the candidate that the walk over target gains starts with."""
    gain = ladder.first_gain
    if ladder.walks and gain is None:
        gain = FIRST_GAIN ** ((len(sizes) + 1) / FOUR)
    return Candidate(sizes, gain, ladder.batches)


def _of_four_times_the_cost(
    candidate: Candidate, wider: Sequence[tuple[int, ...]]
) -> Iterator[Candidate]:
    """Yield the candidate with four times the steps, and with the next larger width."""
    if candidate.batches is not None:
        yield candidate.with_steps(4 * candidate.batches.steps)
    sizes = candidate.hidden_layer_sizes
    for other in wider:
        if other[0] > sizes[0]:
            yield candidate.with_sizes(other[:1] * len(sizes))
            return


def _walk(start: M, ladder: Ladder, evaluate: Evaluate[M], rival: M | None) -> M:
    """Return the lowest error over target gains, found by going downhill from `start`.

    The first step is upwards: the best target gain of a wider network is larger. If it leads to a
    second hopeless candidate, the walk ends.
    """
    lowest = start
    if not ladder.walks:
        return lowest
    for direction in (1, -1):
        moved = False
        while candidate := lowest.candidate.moved(direction):
            if not ladder.affords(candidate):
                break
            measured = evaluate(candidate, _lower(lowest, rival))
            if not measured.below(lowest):
                break
            lowest, moved = measured, True
        if moved or lowest.hopeless:
            break
    return lowest


def _lower(first: M, second: M | None) -> M:
    return second if second is not None and second.below(first) else first
