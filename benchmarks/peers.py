"""Compare `auto` with other optimisers on this machine.

    python benchmarks/peers.py run --data FOLDER [--quick] [--fresh]
    python benchmarks/peers.py page [--quick]

FOLDER contains neural_lander_surrogate.csv.gz and neural_fly.csv.gz; without it, the runs that need
them are skipped. Each finished run is a row of benchmarks/peers_rows.jsonl and is not repeated:
rerun the command to resume an interrupted `run`; --fresh discards the rows. `page` writes
benchmarks/results.json, docs/benchmarks.md and its figures from the rows. --quick has one seed,
short time budgets and separate rows; it only tests that everything runs.

The parts:

    main      surrogate and fly, network 12-25-30-15-3: all contenders, five seeds, all rates
    widths    generated data, 10,000 rows, two hidden layers of 25 to 512 units
    rows      generated data, 1,000 to 1,000,000 rows, network 12-25-30-15-3
    sets      scikit-learn's diabetes and digits (one output for each digit, squared error)
    steps     one iteration of ours compared with one full-batch step of torch's Adam

Compilation is not counted: each optimiser first runs briefly without being timed. torch and
scikit-learn do so with one thread and with two, and then use two if that is a fifth faster. The
learning rate is that of the grid with the lowest final test error on seed 0; it is selected on the
test rows, which favours optimisers with a learning rate.
"""

import argparse
import json
import os
import platform
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contenders import CONTENDERS, OURS, RATES
from contenders.contest import Case, TimeUp, Watch, blas_threads, split
from greatcircle import certificate
from greatcircle.datasets import ground_effect
from greatcircle.experiments.run import PAPER_HIDDEN

HERE = Path(__file__).parent
SHORT_LIST = (OURS, "scikit-learn adam", "torch Adam, batches")
SHORT_RATES = RATES[3:8:2]
WIDTHS = (25, 64, 256, 512)
ROWS = (1_000, 10_000, 100_000, 1_000_000)
WIDE = 400
"""Number of hidden units above which the bound is `certificate.fast`: `tight` takes minutes."""

WARM_UP = 0.2
WORTH_IT = 1.2
"""Speed-up that justifies two threads; on a busy machine they wait for each other."""

Row = dict[str, Any]


class Pace(NamedTuple):
    """Time budgets in seconds, and the number of seeds."""

    main: float
    short: float
    million: float
    seeds: int
    steps: float
    sizes: int


FULL, QUICK = Pace(5.0, 3.0, 10.0, 5, 3.0, 4), Pace(2.0, 0.5, 2.0, 1, 0.6, 2)


class Job(NamedTuple):
    """A run, or for a contender with rates, all rates on seed 0 and the best on the other seeds."""

    part: str
    data: str
    hidden: tuple[int, ...]
    contender: str
    budget: float
    seeds: int
    rates: tuple[float, ...]

    @property
    def runs(self) -> int:
        return len(self.rates) + self.seeds - 1 if self.rates else self.seeds


def jobs(pace: Pace, have_files: bool) -> Iterator[Job]:
    """Return the cases; a quick run omits the largest widths and numbers of rows."""
    for data in ("surrogate", "fly") if have_files else ():
        for name, contender in CONTENDERS.items():
            yield Job("main", data, PAPER_HIDDEN, name, pace.main, pace.seeds, contender.rates)
    for width in WIDTHS[: pace.sizes]:
        for name in SHORT_LIST:
            yield short("widths", "generated 10000", (width, width), name, pace.short)
    for rows in ROWS[: pace.sizes]:
        for name in SHORT_LIST:
            budget = pace.million if rows == max(ROWS) else pace.short
            yield short("rows", f"generated {rows}", PAPER_HIDDEN, name, budget)
    for data in ("diabetes", "digits"):
        for name in (*SHORT_LIST, "scikit-learn lbfgs"):
            yield short("sets", data, PAPER_HIDDEN, name, pace.short)


def short(part: str, data: str, hidden: tuple[int, ...], name: str, budget: float) -> Job:
    rates = SHORT_RATES if CONTENDERS[name].rates else ()
    return Job(part, data, hidden, name, budget, 1, rates)


@cache
def rows_of(data: str, folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    if data in ("surrogate", "fly"):
        from beyond import tables

        table = tables(folder)[data]
        return table.X, table.y
    if data.startswith("generated"):
        table = ground_effect.generate(int(data.split()[1]))
        return table.X, table.y
    from sklearn import datasets

    if data == "diabetes":
        X, y = datasets.load_diabetes(return_X_y=True)
        return X, y[:, None]
    X, y = datasets.load_digits(return_X_y=True)
    return X, np.eye(10)[y]


@cache
def machine() -> dict[str, Any]:
    """Return what the results depend on besides this code."""
    names = [line for line in _cpu_lines() if line.startswith("model name")]
    packages = ("jax", "numpy", "scikit-learn", "torch", "prodigyopt", "dadaptation")
    packages += ("schedulefree", "dog-optimizer", "optax", "geoopt", "pymanopt")
    return {
        "cpu": names[0].split(":", 1)[1].strip() if names else platform.processor(),
        "cores": cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in packages},
    }


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text("utf-8").splitlines() if path.exists() else []


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


class Store:
    """The rows of all finished runs of this machine."""

    def __init__(self, file: Path, *, fresh: bool = False) -> None:
        self.file, self.machine = file, f"{machine()['cpu']}, {cores()} cores"
        if fresh:
            file.unlink(missing_ok=True)
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        self.rows = {self.key(row): row for row in map(json.loads, lines)}

    def key(self, row: Row) -> tuple[Any, ...]:
        names = ("machine", "part", "data", "contender", "seed", "rate", "budget")
        return *(row.get(name) for name in names), tuple(row["hidden"])

    def add(self, row: Row) -> Row:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        row = {"machine": self.machine, "ended": now, **row}
        self.rows[self.key(row)] = row
        with self.file.open("a", encoding="utf-8") as file:
            print(json.dumps(row), file=file)
        return row

    def of(self, pace: Pace) -> list[Row]:
        """Return the rows of this machine with these time budgets; others are not comparable."""
        rows = (row for row in self.rows.values() if row["machine"] == self.machine)
        budgets = (pace.main, pace.short, pace.million, pace.steps)
        return [row for row in rows if row["budget"] in budgets]

    def known(self, row: Row) -> Row | None:
        """Return the row of a finished run; a failed one is repeated."""
        found = self.rows.get(self.key({"machine": self.machine, **row}))
        return None if found is None or "failed" in found else found


def threads(count: int) -> Any:
    """Limit the threads of torch and of NumPy's linear algebra; JAX chooses by itself."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)
    return blas_threads(count)


def once(case: Case, contender: str, budget: float, count: int) -> Watch:
    watch = Watch(case, budget)
    with threads(count), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other packages warn about their own code
        with suppress(TimeUp):
            CONTENDERS[contender].run(case, watch)
    return watch


def warmed_up(case: Case, contender: str) -> int:
    """Run briefly to compile, and return the faster number of threads."""
    most = min(2, cores())
    once(case, contender, WARM_UP / 4, most)
    if CONTENDERS[contender].compiles:
        return most
    speeds = {}
    for count in {1, most}:
        watch = once(case, contender, WARM_UP, count)
        speeds[count] = watch.passes[-1] / watch.seconds[-1] if watch.passes else 0.0
    return most if speeds[most] > WORTH_IT * speeds[1] else 1


def bound(watch: Watch) -> tuple[str, float]:
    """Return the certified bound in units of the targets per standard deviation of the inputs."""
    matrices, biases = ([layer[i] for layer in watch.layers] for i in (0, 1))
    units = sum(watch.case.hidden)
    prove = certificate.tight if units < WIDE else certificate.fast
    return prove.__name__, prove(matrices, biases=biases).value * watch.case.unit


def rounded(values: list[float], digits: int = 5) -> list[float]:
    return [float(f"{v:.{digits}g}") for v in values]


def row_of(watch: Watch, count: int) -> Row:
    row: Row = {"threads": count, "seconds": rounded(watch.seconds, 4)}
    row |= {"passes": rounded(watch.passes, 4), "rms": rounded(watch.rms)}
    if watch.layers:
        row["certificate"], value = bound(watch)
        row["bound"] = float(f"{value:.5g}")
    return row


class Runner:
    """Run jobs, and report progress on standard error."""

    def __init__(self, store: Store, folder: Path | None, todo: list[Job]) -> None:
        self.store, self.folder = store, folder
        self.left = sum(job.budget * job.runs for job in todo)
        self.total, self.done, self.started = self.left, 0.0, time.perf_counter()
        self.best_threads: dict[Any, int] = {}

    def do(self, job: Job) -> None:
        trials = [self.one(job, 0, rate) for rate in job.rates]
        ends = [row["rms"][-1] if row and row.get("rms") else np.inf for row in trials]
        rate = job.rates[int(np.argmin(ends))] if trials else None
        for seed in range(1 if trials else 0, job.seeds):
            self.one(job, seed, rate)

    def one(self, job: Job, seed: int, rate: float | None) -> Row | None:
        wanted: Row = {"part": job.part, "data": job.data, "hidden": list(job.hidden)}
        wanted |= {"contender": job.contender, "seed": seed, "rate": rate, "budget": job.budget}
        row = self.store.known(wanted)
        if row is None:
            row = self.store.add(wanted | self.measured(job, seed, rate))
            self.done += job.budget
        self.left -= job.budget
        self.say(job, seed, rate, row)
        return row

    def measured(self, job: Job, seed: int, rate: float | None) -> Row:
        try:
            X, y = rows_of(job.data, self.folder)
            case = split(X, y, job.hidden, seed, rate)
            key = job.contender, job.data, job.hidden
            if key not in self.best_threads:
                self.best_threads[key] = warmed_up(case, job.contender)
            count = self.best_threads[key]
            load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
            return {"load": load} | row_of(once(case, job.contender, job.budget, count), count)
        except ModuleNotFoundError as error:
            return {"failed": f"not installed: {error.name}"}
        except Exception as error:  # a failure is a result too; continue with the others
            traceback.print_exc()
            return {"failed": f"{type(error).__name__}: {error}"[:200]}

    def say(self, job: Job, seed: int, rate: float | None, row: Row) -> None:
        pace = (time.perf_counter() - self.started) / self.done if self.done else 1.2
        what = row.get("failed") or (f"{row['rms'][-1]:.4f}" if row["rms"] else "no number")
        rate_text = "" if rate is None else f" rate {rate:g}"
        print(
            f"[{1 - self.left / self.total:4.0%}, {pace * self.left / 60:.0f} min left] "
            f"{job.part} {job.data} {job.hidden} {job.contender}{rate_text} seed {seed}: {what}",
            file=sys.stderr,
            flush=True,
        )


def run_steps(store: Store, seconds: float, sizes: int) -> None:
    """Compare one iteration with one Adam step, for the paper's network and the widths."""
    for hidden in (PAPER_HIDDEN, *((width, width) for width in WIDTHS[:sizes])):
        for kind in ("Method 1", OURS):
            rows = "generated 28001" if hidden == PAPER_HIDDEN else "generated 10000"
            wanted: Row = {"part": "steps", "data": rows, "hidden": list(hidden)}
            wanted |= {"contender": kind, "seed": 0, "rate": None, "budget": seconds}
            if store.known(wanted):
                continue
            try:
                from contenders.steps import ratio

                case = split(*rows_of(rows, None), hidden, 0)
                both = []
                for count in {1, min(2, cores())}:
                    with threads(count):
                        both.append({"threads": count} | ratio(case, kind, seconds))
                result = min(both, key=lambda r: r["adam_step_ms"])  # the fastest for torch
                result = {k: float(f"{v:.4g}") for k, v in result.items()}
            except ModuleNotFoundError as error:
                result = {"failed": f"not installed: {error.name}"}
            print("steps", hidden, kind, result, file=sys.stderr, flush=True)
            store.add(wanted | result)


def rows_file(quick: bool) -> Path:
    return HERE / ("peers_rows_quick.jsonl" if quick else "peers_rows.jsonl")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("run", "page"))
    parser.add_argument("--data", type=Path, default=os.environ.get("GREATCIRCLE_DATA") or None)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--fresh", action="store_true", help="discard the stored rows")
    parser.add_argument("--only", nargs="*", help="names of contenders", choices=CONTENDERS)
    options = parser.parse_args()
    pace = QUICK if options.quick else FULL
    store = Store(rows_file(options.quick), fresh=options.fresh and options.part == "run")
    if options.part == "page":
        from peers_page import write

        rows = store.of(pace)
        if not rows:
            sys.exit("no rows of this machine: peers.py run makes them")
        return write(rows, machine(), quick=options.quick)
    if options.data is None:
        print("no --data: surrogate and fly are left out", file=sys.stderr)
    todo = [
        job
        for job in jobs(pace, options.data is not None)
        if not options.only or job.contender in options.only
    ]
    run_steps(store, pace.steps, pace.sizes)
    runner = Runner(store, options.data, todo)
    for job in todo:
        runner.do(job)


if __name__ == "__main__":
    main()
