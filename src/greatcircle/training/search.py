"""Search for the target gain and the sizes of the hidden layers with the lowest held-out error.

The search only compares errors: `evaluate` trains (`trials.py`). It walks over target gains with
one network, then goes on to the next wider one as long as that lowers the error, and finally tries
other depths of the same width, which have to lower it by more than its noise.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self, TypeVar

__all__ = ["Candidate", "Ladder", "Measured", "search"]

FACTOR = math.sqrt(10)
"""From one target gain to the next. The error of one fit is noisier than a smaller step."""

FIRST_GAIN = FACTOR
"""Target gain of the first candidate: between 1 and 10, where most optima are."""

GAINS = (0.03, 3000.0)
"""Limits of the walk, far beyond any useful target gain, so that it always ends."""

FOUR = 4
"""Number of layers of the networks that `FACTOR` and `FIRST_GAIN` are meant for."""


class Candidate(NamedTuple):
    """A network to try."""

    hidden_layer_sizes: tuple[int, ...]
    target_gain: float | None
    """None for the automatic one of the network (`target_gain.py`)."""

    def with_sizes(self, sizes: tuple[int, ...]) -> "Candidate":
        """Return the candidate with other layers, and the same stiffness of each layer.

        Of L layers, each amplifies by the L-th root of the target gain (`docs/scaling.md`).
        """
        if self.target_gain is None:
            return self._replace(hidden_layer_sizes=sizes)
        ratio = (len(sizes) + 1) / (len(self.hidden_layer_sizes) + 1)
        return Candidate(sizes, self.target_gain**ratio)

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
    gain = ladder.first_gain
    if ladder.walks and gain is None:
        gain = FIRST_GAIN ** ((len(first) + 1) / FOUR)
    best = _walk(evaluate(Candidate(first, gain), None), ladder, evaluate, None)
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
        while (candidate := lowest.candidate.moved(direction)) is not None:
            measured = evaluate(candidate, _lower(lowest, rival))
            if not measured.below(lowest):
                break
            lowest, moved = measured, True
        if moved or lowest.hopeless:
            break
    return lowest


def _lower(first: M, second: M | None) -> M:
    return second if second is not None and second.below(first) else first
