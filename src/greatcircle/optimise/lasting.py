"""A descent that outlives its processes: a checkpoint on the way, to go on from.

For problems that are described by hand, on one process or spread over many (`sharding.py`); the
estimators have checkpoints of their own. The first process writes, and every process reads, so all
of them must see the folder. A checkpoint holds what the loop knows and no rows: a run may go on
with another number of processes.
"""

import os
from collections.abc import Sequence
from typing import Any

import jax

from greatcircle.geometry.sphere import Tree
from greatcircle.objective.problem import Problem
from greatcircle.optimise import directions, steps
from greatcircle.optimise import loop as descent
from greatcircle.optimise.checkpoint import Checkpoint
from greatcircle.optimise.directions import Direction
from greatcircle.optimise.loop import Callback, LostProcess, Result, descend
from greatcircle.optimise.record import Record
from greatcircle.optimise.steps import Step
from greatcircle.optimise.stopping import Rule


def descend_lasting(
    problem: Problem,
    weights: Tree,
    folder: str | os.PathLike[str],
    *,
    seconds: float = 60.0,
    resume: bool = False,
    direction: Direction | None = None,
    step: Step | None = None,
    stop: Rule | None = None,
    callback: Callback | None = None,
) -> Result:
    """`descend`, with a checkpoint in a folder.

    Parameters
    ----------
    problem, weights, direction, step, stop, callback
        As for `descend`.
    folder
        Where the checkpoint is kept; the same for all processes.
    seconds
        Least time between two writes. The end of the run is always written, and so is the last
        iteration before another process was lost.
    resume
        Whether to go on from the checkpoint that is there, if there is one.

    Raises
    ------
    LostProcess
        When another process of the run has ended. Start all of them again with `resume=True`, or
        one alone with all rows.
    """
    direction = direction or directions.automatic(problem)
    step = step or steps.Curvature()
    checkpoint = Checkpoint(folder, seconds, resume)
    network = problem.network
    of = {
        "network": (network.sizes, network.activation.name, network.bias),
        "loss": problem.criterion,
        "dtype": str(problem.dtype),
        "direction": direction,
        "step": step,
    }
    checkpoint.begin(0, {name: repr(part) for name, part in of.items()})
    state, records, writes = None, (), jax.process_index() == 0
    if checkpoint.saved:
        state = checkpoint.saved.state(descent.start_of(problem, weights, direction))
        records = checkpoint.saved.records
    last: tuple[Any, Sequence[Record]] | None = None

    def keep(state: Any, records: Sequence[Record]) -> None:
        nonlocal last
        last = state, records
        if writes and checkpoint.due():
            checkpoint.write(state, records, records, None)

    try:
        result = descend(
            problem,
            weights,
            direction=direction,
            step=step,
            stop=stop,
            callback=callback,
            state=state,
            records=records,
            keep=keep,
        )
    except LostProcess as lost:
        if writes and last:
            checkpoint.write(*last, last[1], None)
        lost.add_note(f"the checkpoint is {checkpoint.path}; go on from it with resume=True")
        raise
    if writes:
        checkpoint.write(result.state, result.records, result.records, None)
    return result
