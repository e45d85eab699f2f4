"""The compiled program of the loop, of one iteration or of several, for benchmarks that time it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from greatcircle.objective.problem import Problem
from greatcircle.optimise.iterations import (
    Batch,
    Point,
    descending_iterations,
    program_length,
)
from greatcircle.optimise.loop import State, initial_state
from greatcircle.optimise.schedules import AllRows
from greatcircle.optimise.stopping import MaxIter

__all__ = ["NEVER", "Program", "program_of"]

NEVER = MaxIter(2**31 - 1)
"""A stopping rule that does not fire."""


@dataclass(frozen=True, eq=False)
class Program:
    """A compiled program of at most `length` iterations.

    `program(point, count)` takes `count` steps from the point, and `program(point, 0)` evaluates a
    point of infinite loss. Both return an `iterations.ProgramResult`.
    """

    problem: Problem
    state: State
    direction: Any
    step: Any
    length: int

    def __call__(self, point: Point, count: int) -> Any:
        """Run the program."""
        return descending_iterations(*self._arrays(point, count), **self._static)

    def lower(self, point: Point, count: int) -> Any:
        """Lower the program, to compile and inspect it."""
        return descending_iterations.lower(*self._arrays(point, count), **self._static)

    def _arrays(self, point: Point, count: int) -> tuple[Any, ...]:
        limit = np.asarray(count, np.int32)
        return Batch(self.problem), self.state.radii, point, NEVER, self.state.stop, limit

    @property
    def _static(self) -> dict[str, Any]:
        return {"direction": self.direction, "step": self.step, "length": self.length}


def program_of(
    problem: Problem,
    weights: Sequence[np.ndarray],
    direction: Any,
    step: Any,
    length: int | None = None,
) -> tuple[Program, Point]:
    """Return the program of a method on a problem, and the point before the first iteration.

    By default the program is as long as in `descend`.
    """
    radii = np.array([np.linalg.norm(w) for w in weights], problem.dtype)
    matrices = tuple(np.asarray(w, problem.dtype) for w in weights)
    state = initial_state(matrices, radii, direction, NEVER, AllRows(problem))
    if length is None:
        length = program_length(problem.count, state.point.weights)
    return Program(problem, state, direction, step, length), state.point
