"""Time of one iteration of each method, as a multiple of one gradient.

Both are timed alternately in one process, so that other load affects both equally. The gradient is
JAX's `value_and_grad` of the same loss, in the code that a user would write. An iteration is timed
as `descend` runs it: in a program of several.

    python benchmarks/iteration.py            print the table
    python benchmarks/iteration.py --write    also write benchmarks/iteration.json
    python benchmarks/iteration.py --check    also fail if a limit is exceeded

The check also fails if a ratio, the operations or the instructions of a program exceed those of
benchmarks/iteration.json by a fifth.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from greatcircle import Network, Problem, directions, sphere, steps
from greatcircle._runtime.threads import one_thread
from greatcircle.datasets import ground_effect
from greatcircle.optimise.iterations import Point
from greatcircle.training.initialisation import spectral_initialisation
from iteration_programs import Program, program_of

ROWS, REPEATS, ROUNDS = 22_401, 30, 3
COMPILE_LIMIT = 2.0  # seconds
REGRESSION = 1.2
RESULTS = Path(__file__).with_suffix(".json")
STEEPEST = directions.Steepest()
METHODS = {
    "Method 1, Curvature": (STEEPEST, steps.Curvature(), 2.5),
    "Method 2, Majorant (Brent)": (STEEPEST, steps.Majorant(), 4.0),
    "Method 2, Majorant (golden section)": (STEEPEST, steps.Majorant(steps.GoldenSection()), None),
    "ClosedForm": (STEEPEST, steps.ClosedForm(), None),
    "auto, Kronecker and Curvature": (directions.Kronecker(), steps.Curvature(), None),
}


def gradient_of(problem: Problem):
    """Return the same loss in plain JAX."""

    def loss(weights, X, Y):
        h = X
        for w in weights[:-1]:
            h = jax.nn.relu(h @ w)
        return 0.5 * jnp.mean(jnp.sum((h @ weights[-1] - Y) ** 2, axis=1))

    return partial(jax.jit(jax.value_and_grad(loss)), X=problem.inputs, Y=problem.targets)


def timed(function) -> float:
    started = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - started


def measure(problem: Problem, weights, direction, step) -> dict[str, float]:
    """Return the median ratio of an iteration to the gradient timed just before it."""
    program, point = program_of(problem, weights, direction, step)
    gradient = gradient_of(problem)
    jax.clear_caches()  # each round includes its own compilation
    started = time.perf_counter()
    point = jax.block_until_ready(program(point, 0)).point
    compile_seconds = time.perf_counter() - started
    point = _start_without_halvings(program, point)
    weights = sphere.unpack(point.weights)
    gradients, iterations = [], []
    for _ in range(REPEATS + 5):
        gradients.append(timed(lambda: gradient(weights)))
        seconds = timed(lambda: program(point, program.length))
        iterations.append((gradients[-1], seconds / program.length))
    iterations = iterations[-REPEATS:]  # the first ones are warm-up
    return {
        "ratio": statistics.median(s / g for g, s in iterations),
        "iteration_ms": 1e3 * statistics.median(s for _, s in iterations),
        "gradient_ms": 1e3 * statistics.median(g for g, _ in iterations),
        "compile_seconds": compile_seconds,
    }


def _start_without_halvings(program: Program, point: Point) -> Point:
    """Return a point from which a program takes all its iterations without rejecting a trial."""
    for _ in range(50):
        result = program(point, program.length)
        if result.recorded == program.length and not np.any(result.measured.halvings):
            return point
        point = result.point
    raise RuntimeError("every program rejected a trial; expected one without halvings")


def counts(problem: Problem, weights, direction, step) -> dict[str, float]:
    """Return operations and instructions of the compiled program, the same on every run."""
    program, point = program_of(problem, weights, direction, step)
    compiled = program.lower(point, 1).compile()
    return {
        "operations": compiled.cost_analysis()["flops"],
        "instructions": compiled.as_text().count(" = "),
    }


def regressions(name: str, result: dict[str, float]) -> list[str]:
    """Return what exceeds the committed results by a fifth."""
    if not RESULTS.exists():
        return []
    before = json.loads(RESULTS.read_text("utf-8"))["methods"].get(name, {})
    return [
        f"{what} were {before[what]:.4g} and are {result[what]:.4g}"
        for what in ("ratio", "operations", "instructions")
        if what in before and result[what] > REGRESSION * before[what]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write benchmarks/iteration.json")
    parser.add_argument("--check", action="store_true", help="fail if a limit is exceeded")
    options = parser.parse_args()
    table = ground_effect.generate(ROWS)
    network = Network((12, 25, 30, 15, 3))
    weights, scaling = spectral_initialisation(network, table.y, 0)
    problem = Problem(network, scaling.inputs(table.X), scaling.targets(table.y))
    results, failed = {}, False
    for name, (direction, step, limit) in METHODS.items():
        with one_thread():  # as in `descend`
            rounds = [measure(problem, weights, direction, step) for _ in range(ROUNDS)]
        result = sorted(rounds, key=lambda r: r["ratio"])[ROUNDS // 2] | {
            # The minimum, because other load only adds time.
            "compile_seconds": min(r["compile_seconds"] for r in rounds),
            "limit": limit,
            **counts(problem, weights, direction, step),
        }
        results[name] = result
        worse = regressions(name, result)
        over = limit is not None and (
            result["ratio"] > limit or result["compile_seconds"] > COMPILE_LIMIT
        )
        failed |= over or bool(worse)
        print(
            f"{name:36s} {result['ratio']:5.2f} × a gradient"
            f" ({result['iteration_ms']:.2f} ms / {result['gradient_ms']:.2f} ms),"
            f" compiled in {result['compile_seconds']:.2f} s"
            + (f", limit {limit} × and {COMPILE_LIMIT} s" if limit else "")
            + (": PASSED OVER" if over else "")
            + "".join(f"; WORSE: {text}" for text in worse)
        )
    if options.write:
        summary = {
            "rows": ROWS,
            "layers": network.sizes,
            "machine": f"{platform.system()} {platform.machine()}, JAX {jax.__version__}",
            "methods": results,
        }
        RESULTS.write_text(json.dumps(summary, indent=2) + "\n", "utf-8")
    return int(options.check and failed)


if __name__ == "__main__":
    sys.exit(main())
