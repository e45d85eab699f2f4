"""Measure memory and processes of training on small batches: a million rows, 128-128.

    python benchmarks/wide_scale.py [--rounds N] [--write]

Memory is the peak of a process beyond what it held before training, rows included, less the rows
themselves. One process is compared with two that share the rows (`jax.distributed`), each on a core
of its own, on the same number of passes; all in turn. Every measurement runs in its own process.
`--write` updates wide_scale.json.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_suffix(".json")
ROWS, HIDDEN, STEPS = 1_000_000, (128, 128), 8192
ONE_CORE = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}


def resident(name: str) -> float:
    """Return a line of the process's status in MB."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def million() -> tuple[Any, Any, Any, Any]:
    """Return rows and test rows of `wide_cases.py`, scaled so that the gain is one."""
    from wide_cases import load

    case = load("1e6 rows 128-128", Path())
    return case.X, case.y, case.test_X, case.test_y


def train(process: int, count: int, port: int) -> None:
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[process]})
    import jax

    if count > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", count, process)
    import numpy as np

    from greatcircle import Network, Problem, descend, shard
    from greatcircle.optimise.directions import Soap
    from greatcircle.optimise.random_batches import RandomBatches
    from greatcircle.optimise.steps import LinearDecay

    X, y, test_X, test_y = million()
    mine = np.array_split(np.arange(len(X)), count)[process]
    X, y = X[mine], y[mine]
    network = Network((X.shape[1], *HIDDEN, 1), bias=True)
    weights = network.initial_weights(0, scheme="orthogonal", radius=8.0)

    def run(rows: slice, steps: int) -> Any:
        problem = Problem(network, X[rows], y[rows])
        problem = shard(problem) if count > 1 else problem
        batches = RandomBatches(problem)
        return descend(problem, weights, direction=Soap(), step=LinearDecay(steps), rows=batches)

    run(slice(0, 40_000), 100)  # compile
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = resident("VmRSS:")
    cpu, wall = time.process_time(), time.perf_counter()
    result = run(slice(None), STEPS)
    seconds = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    found = np.asarray(network.predict(result.weights, test_X))
    error = float(np.sqrt(np.mean((found - test_y) ** 2)))
    rows = (X.nbytes + y.nbytes) / 2**20
    beyond = resident("VmHWM:") - before - rows
    print(json.dumps({"error": error, "beyond the rows, MB": beyond, "rows, MB": rows, **seconds}))


def measured(count: int) -> dict[str, float]:
    """Train in this many processes, and return the results of the first."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, "worker", str(process), str(count), str(port)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ONE_CORE,
        )
        for process in range(count)
    ]
    outputs = [worker.communicate()[0] for worker in workers]
    if any(worker.returncode for worker in workers):
        raise SystemExit("a process failed")
    return json.loads(outputs[0].splitlines()[-1])


def main() -> None:
    if sys.argv[1:2] == ["worker"]:
        train(*map(int, sys.argv[2:5]))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    runs = [(measured(1), measured(2)) for _ in range(given.rounds)]
    ones, twos = map(list, zip(*runs, strict=True))

    def ratio(key: str) -> float:
        return statistics.median(r[key] for r in twos) / statistics.median(r[key] for r in ones)

    results = {
        "two processes / one, wall": ratio("wall"),
        "two processes / one, CPU of one": ratio("cpu"),
        "two processes / one, error": ratio("error"),
        "beyond the rows, MB": max(r["beyond the rows, MB"] for r in ones),
        "one": ones,
        "two": twos,
    }
    print(json.dumps(results, indent=2))
    if given.write:
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
