"""Compare an iteration of ours with a full-batch step of torch's Adam, timed alternately."""

import statistics
import time

import jax
import numpy as np

from contenders.contest import Case
from contenders.torch_networks import adam_of, network, squared_error, tensors
from greatcircle import directions, steps
from greatcircle._runtime.threads import one_thread
from greatcircle.objective.problem import Problem
from greatcircle.training.initialisation import initial_network
from greatcircle.training.methods import INITIALISATIONS, METHODS
from iteration_programs import program_of

KINDS = {"Method 1": ("ad", directions.Steepest()), "auto": ("auto", None)}
WARM_UP = 3


def ratio(case: Case, kind: str, seconds: float) -> dict[str, float]:
    """Return the median time of an iteration relative to the step timed just before it.

    Repeats until the time is up, but at least a few times.
    """
    name, direction = KINDS[kind]
    method = METHODS[name]
    net, weights, scaling = initial_network(
        INITIALISATIONS[method.initialisation],
        case.sizes,
        case.X,
        case.y,
        np.random.default_rng(case.seed),
        scaling=method.scaling,
    )
    problem = Problem(net, scaling.inputs(case.X), scaling.targets(case.y))
    direction = direction or directions.automatic(problem)
    program, point = program_of(problem, weights, direction, steps.Curvature(), length=1)
    point = first = program(point, 0).point

    model, (X, y) = network(case), tensors(case)
    optimiser = adam_of(model, 1e-3)
    pairs = []
    end = time.perf_counter() + seconds
    while len(pairs) < 2 * WARM_UP or time.perf_counter() < end:
        started = time.perf_counter()
        optimiser.zero_grad()
        squared_error(model(X), y).backward()
        optimiser.step()
        between = time.perf_counter()
        with one_thread():  # as in `descend`
            result = jax.block_until_ready(program(point, 1))
        ended = time.perf_counter()
        point = result.point
        if result.count == 0:  # at a minimum: restart
            point = first
        elif result.measured.halvings[0] == 0:
            pairs.append((between - started, ended - between))
    pairs = pairs[WARM_UP:]  # the first ones are warm-up
    return {
        "ratio": statistics.median(ours / theirs for theirs, ours in pairs),
        "iteration_ms": 1e3 * statistics.median(ours for _, ours in pairs),
        "adam_step_ms": 1e3 * statistics.median(theirs for theirs, _ in pairs),
    }
