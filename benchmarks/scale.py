"""Measure how well a machine is used: arithmetic, rows, memory, processes, many runs.

    python benchmarks/scale.py [rate rows memory processes seeds experiments] [--write] [--quick]

Each part prints its ratio and its limit; `--write` updates these parts in benchmarks/scale.json.
Ratios are of medians of alternating measurements, so that other load affects both sides equally.
Every measurement runs in its own process. Those for one core are pinned to it by the operating
system, because XLA's settings are not enough.
"""

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).with_suffix(".json")
PAPER = (12, 25, 30, 15, 3)
WIDE = (256,) * 5
ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
KEEP_MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=8589934592:"
    "glibc.malloc.trim_threshold=8589934592:glibc.malloc.arena_max=1:glibc.malloc.hugetlb=1"
}
"""Of all measurements (docs/scale.md)."""


def stay_on_core(number: int) -> None:
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[number]})


class Seconds(NamedTuple):
    """Wall-clock time, and processor time of this process."""

    wall: float
    cpu: float

    def over(self, other: "Seconds") -> dict[str, float]:
        """Return the ratios, which are equal on an idle machine."""
        return {"ratio": self.wall / other.wall, "ratio of CPU seconds": self.cpu / other.cpu}


def medians(times: list[Seconds]) -> Seconds:
    return Seconds(*map(statistics.median, zip(*times, strict=True)))


def timed(function, repeats: int) -> Seconds:
    import jax

    times = []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(function())
        times.append(Seconds(time.perf_counter() - wall, time.process_time() - cpu))
    return medians(times)


def in_turn(functions: dict, rounds: int, repeats: int) -> dict[str, Seconds]:
    """Return medians over rounds; each round measures all functions."""
    times = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            times[name].append(timed(function, repeats))
    return {name: medians(values) for name, values in times.items()}


def random_problem(sizes, rows: int):
    """Return a problem of cosines, made on the device without a copy on the host."""
    import jax
    import jax.numpy as jnp

    from greatcircle import Network, Problem

    @partial(jax.jit, static_argnums=(0, 1))
    def waves(rows, columns):
        row = jnp.arange(rows, dtype=jnp.float32)[:, None]
        return jnp.cos(row * (1 + jnp.arange(columns, dtype=jnp.float32)) * 0.7137)

    return Problem(Network(sizes), waves(rows, sizes[0]), 0.1 * waves(rows, sizes[-1]))


def iteration_of(problem, step=None, direction=None):
    """Return a function that does one accepted iteration, from a point of infinite loss."""
    from greatcircle import directions, steps
    from iteration_programs import program_of

    direction, step = direction or directions.Steepest(), step or steps.Curvature()
    weights = problem.network.initial_weights(0)
    program, point = program_of(problem, weights, direction, step, length=1)
    return partial(program, restarted(program(point, 0).point), 0)


def restarted(point):
    """Return a point of infinite loss: evaluating it takes a step of a ninth of its angle."""
    import equinox as eqx
    import jax.numpy as jnp

    values = (jnp.full_like(point.loss, jnp.inf), point.angle / 9)
    return eqx.tree_at(lambda p: (p.loss, p.angle), point, values)


def operations(sizes, rows: int) -> int:
    """Return the operations of the matrix products of a Method 1 iteration, two per multiplication.

    With P_i = fan_in · fan_out: forward Σ P, backward 2 Σ P without the adjoint of the inputs, and
    second order h V, h' W and h' V, of which the first layer has only the first.
    """
    P = [a * b for a, b in pairwise(sizes)]
    return 2 * rows * (6 * sum(P) - 3 * P[0])


PRODUCTS = {
    lambda h, w, p: w.T @ h: (2, 4),
    lambda h, w, p: w @ p: (0, 1),
    lambda h, w, p: p @ h.T: (1, 1),
}
"""Products of a Method 1 iteration: their numbers in the first layer and in each other one."""


def products(h, W, functions) -> list:
    """Compute the matrix products of an iteration, and nothing else."""
    return [
        function(h[i], w, h[i + 1])
        for i, w in enumerate(W)
        for function, (first, others) in zip(functions, PRODUCTS.values(), strict=True)
        for _ in range(others if i else first)
    ]


def rate(quick: bool) -> dict:
    """Compare a Method 1 iteration with NumPy's product of two 2000 × 2000 matrices."""
    stay_on_core(0)
    import jax
    import jax.numpy as jnp
    import numpy as np

    A = np.random.default_rng(0).standard_normal((2000, 2000)).astype(np.float32)
    results = {}
    for name, sizes, rows in (("25", PAPER, 22_401), ("256", WIDE, 5_000 if quick else 20_000)):
        problem = random_problem(sizes, rows)
        h = [jnp.full((n, rows), 0.1) for n in sizes]
        W = [jnp.full(shape, 0.1) for shape in problem.network.shapes]
        peak = {"peak": lambda: A @ A}
        # The iteration comes first, because memory left by the products would slow it down.
        least = operations(sizes, rows) / (2 * 2000**3)
        found, seconds = {}, {}
        for functions in (
            peak | {"iteration": iteration_of(problem)},
            peak
            | {
                "products alone": partial(products, h, W, list(map(jax.jit, PRODUCTS))),
                "NumPy's products": partial(products, *jax.device_get((h, W)), list(PRODUCTS)),
            },
        ):
            for function in functions.values():
                jax.block_until_ready(function())
            times = in_turn(functions, 3 if quick else 7, 5 if name == "25" else 2)
            # Seconds for the same arithmetic at the peak rate, over measured seconds.
            top = Seconds(*(least * s for s in times.pop("peak")))
            found |= {what: top.over(taken) for what, taken in times.items()}
            seconds |= times
        results[name] = {
            **found.pop("iteration"),
            "limit": 0.35 if name == "25" else 0.7,
            "peak_gflops": operations(sizes, rows) / top.wall / 1e9,
            **found,
            "seconds": seconds,
        }
    return results


def rows(quick: bool) -> dict:
    """Compare an iteration of a million rows with one of a hundred thousand, on all cores."""
    counts = (30_000, 300_000) if quick else (100_000, 1_000_000)
    functions = {str(n): iteration_of(random_problem(PAPER, n)) for n in counts}
    seconds = in_turn(functions, 3 if quick else 7, 2)
    few, many = seconds.values()
    return {"rows": {**many.over(few), "limit": 10.5, "seconds": seconds}}


def resident(rows: int) -> dict:
    """Return the peak resident memory of two iterations of Method 1 and of `auto`, in MB."""
    from greatcircle import descend, directions, stopping

    problem = random_problem(PAPER, rows)
    weights = problem.network.initial_weights(0)
    for direction in (directions.Steepest(), None):
        descend(problem, weights, direction=direction, stop=stopping.MaxIter(2))
    status = Path("/proc/self/status").read_text("utf-8").splitlines()
    peak = next(line for line in status if line.startswith("VmHWM"))
    return {
        "peak_mb": int(peak.split()[1]) * 1024 / 1e6,
        "data_mb": (problem.inputs.nbytes + problem.targets.nbytes) / 1e6,
    }


def memory(quick: bool) -> dict:
    """Measure resident memory beyond the data, minus that with a hundred rows."""
    count = 1_000_000 if quick else 10_000_000
    small, large = (child("resident", n, environment={}) for n in (100, count))
    beyond = large["peak_mb"] - large["data_mb"] - small["peak_mb"]
    return {
        "memory": {"ratio": beyond, "limit": 500, "rows": count, "few rows": small, "many": large}
    }


def worker(process: int, count: int, port: int, total: int) -> dict:
    """Time an iteration on some of the rows, pinned to a core, for each line of input."""
    stay_on_core(process)
    import jax

    if count > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", count, process)
    from greatcircle import directions, shard, steps

    problem = random_problem(PAPER, total // count)
    problem = shard(problem) if count > 1 else problem
    iteration = iteration_of(problem, steps.Curvature(), directions.Steepest())
    jax.block_until_ready(iteration())
    for _ in sys.stdin:
        print(json.dumps(timed(iteration, 2)), flush=True)
    return {}


def ask(workers: list[subprocess.Popen]) -> Seconds:
    """Return the longest time of an iteration that all workers do together."""
    for each in workers:
        each.stdin.write("go\n")
        each.stdin.flush()
    answers = [(line for line in each.stdout if not line.startswith("[Gloo]")) for each in workers]
    times = [json.loads(next(lines)) for lines in answers]
    return Seconds(*map(max, zip(*times, strict=True)))


def processes(quick: bool) -> dict:
    """Compare two processes on two cores with one process, with the same rows in total."""
    total, rounds = (200_000, 3) if quick else (1_000_000, 31)
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    one = [start("worker", 0, 1, 0, total)]
    two = [start("worker", i, 2, port, total) for i in range(2)]
    for workers in (one, two):
        ask(workers)
    times = [(ask(one), ask(two)) for _ in range(rounds)]
    for each in (*one, *two):  # close all first, because the processes of a run exit together
        each.stdin.close()
    for each in (*one, *two):
        each.wait()
    ones, twos = map(list, zip(*times, strict=True))
    ratios = medians(twos).over(medians(ones))
    return {"processes": {**ratios, "limit": 0.6, "one": ones, "two": twos}}


def seeds(quick: bool) -> dict:
    """Compare forty runs of Experiment 1, Method 1, in one program with one after another."""
    stay_on_core(0)
    import jax
    import jax.numpy as jnp
    import numpy as np

    from greatcircle import Network, Problem, directions, steps
    from greatcircle._runtime.precision import optimisation_level
    from greatcircle.datasets import ground_effect
    from greatcircle.optimise.iterations import Batch, descending_iterations
    from greatcircle.training.initialisation import spectral_initialisation
    from iteration_programs import NEVER, program_of

    table, many = ground_effect.generate(22_401), 8 if quick else 40
    network, direction, step = Network(PAPER), directions.Steepest(), steps.Curvature()
    runs = []
    for seed in range(many):
        split = np.random.default_rng(seed).permutation(22_401)[:17_920]
        weights, scaling = spectral_initialisation(network, table.y[split], seed)
        problem = Problem(network, scaling.inputs(table.X)[split], scaling.targets(table.y[split]))
        program, point = program_of(problem, weights, direction, step, length=1)
        runs.append((program, restarted(program(point, 0).point)))

    def evaluated(problem, radii, point, stop_state):
        return descending_iterations.__wrapped__(
            Batch(problem),
            radii,
            point,
            NEVER,
            stop_state,
            0,
            direction=direction,
            step=step,
            length=1,
        )

    batched = jax.jit(jax.vmap(evaluated), compiler_options=optimisation_level(1))
    arguments = [(p.problem, p.state.radii, point, p.state.stop) for p, point in runs]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *arguments)
    functions = {
        "batched": lambda: batched(*stacked),
        "one after another": lambda: [program(point, 0) for program, point in runs],
    }
    for function in functions.values():
        jax.block_until_ready(function())
    seconds = in_turn(functions, 3 if quick else 5, 2)
    ratios = seconds["batched"].over(seconds["one after another"])
    return {"seeds": {**ratios, "limit": 0.8, "runs": many, "seconds": seconds}}


def cells(process: int, iterations: int) -> dict:
    """Time an iteration of each network of both experiments, test objective included."""
    stay_on_core(process)
    from greatcircle.datasets import ground_effect
    from greatcircle.experiments import exp1, exp2
    from greatcircle.experiments.run import job_of, train

    table = ground_effect.generate(22_401)
    total = Seconds(0, 0)
    for job in [*exp1.jobs(["ad", "mm"], 1), *exp2.jobs(job_of("ad", (), exp2.ITERATIONS, 0), 1)]:
        clock: list[Seconds] = []
        train(
            table,
            replace(job, iterations=iterations, seed=process),
            progress=lambda _, clock=clock: clock.append(
                Seconds(time.perf_counter(), time.process_time())
            ),
        )
        each = medians([Seconds(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(clock)])
        total = Seconds(*(t + job.iterations * e for t, e in zip(total, each, strict=True)))
    return {"seconds": total}


def experiments(quick: bool) -> dict:
    """Extrapolate the hours of both experiments with 40 seeds from a few iterations per network.

    Two workers run at once, with a core each. Compilation is not counted: a worker compiles each of
    the 27 programs once.
    """
    from greatcircle.experiments.exp1 import SEEDS

    pair = [start("cells", i, 4 if quick else 8) for i in range(2)]
    each = [Seconds(*ended(process)["seconds"]) for process in pair]
    wall, cpu = (SEEDS * statistics.mean(s) / 2 / 3600 for s in zip(*each, strict=True))
    return {
        "experiments": {
            "ratio": wall,
            "ratio of CPU seconds": cpu,
            "limit": 2.5,
            "seconds of one seed": each,
        }
    }


PARTS = {
    "rate": (rate, ONE_THREAD, "of the peak", min),
    "rows": (rows, {}, "times the time", max),
    "memory": (memory, {}, "MB beyond the data", max),
    "processes": (processes, {}, "of the time of one", max),
    "seeds": (seeds, ONE_THREAD, "of the time one by one", max),
    "experiments": (experiments, {}, "hours", max),
}


def start(name: str, *arguments, environment=ONE_THREAD) -> subprocess.Popen:
    command = [sys.executable, __file__, "--call", name, json.dumps(arguments)]
    return subprocess.Popen(
        command,
        env={**os.environ, **KEEP_MEMORY, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen) -> dict:
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{process.args} ended with {process.returncode}")
    return json.loads(out.splitlines()[-1])


def child(name: str, *arguments, environment=ONE_THREAD) -> dict:
    return ended(start(name, *arguments, environment=environment))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="by default all of them")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--quick", action="store_true", help="fewer rows and repetitions")
    parser.add_argument("--call", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.call:
        name, arguments = options.call
        print(json.dumps(globals()[name](*json.loads(arguments))))
        return
    by_cpu = "ratio of CPU seconds"
    found = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    for part in options.parts or PARTS:
        _, environment, unit, worst = PARTS[part]
        result = child(part, options.quick, environment=environment)
        for name, row in result.items():
            within = worst(row["ratio"], row["limit"]) == row["limit"]
            label = part if name == part else f"{part}, width {name}"
            print(
                f"{label:20s} {row['ratio']:8.3g} {unit}, limit {row['limit']}"
                + ("" if within else ": NOT MET")
                + (f" ({row[by_cpu]:.3g} by CPU seconds)" if by_cpu in row else ""),
                flush=True,
            )
        found[part] = {
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            "load": os.getloadavg()[0],
            **result,
        }
    if options.write:
        RESULTS.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
