"""Many runs, kept: interrupt at any point, start again, and it goes on where it was.

Every run is one line of JSON in an append-only file, under a key made of everything that decides
its result. A line is written once, whole, and forced to the disk before the run counts as done; a
line cut short by a crash is dropped at the next start and its run repeated. Only the process that
started the sweep writes.

Runs are done by worker processes on this machine or by the workers of a Dask cluster. Each worker
computes with one thread, so that results do not depend on how many there are.
"""

import hashlib
import json
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from greatcircle._runtime import allocator as memory
from greatcircle.datasets import Table
from greatcircle.experiments.run import train
from greatcircle.training.methods import DIRECTIONS, STARTS, STEPS

Row = dict[str, Any]
Progress = Callable[[Row], None]

CLOCK = ("seconds", "setup_seconds")
"""What a repetition does not repeat."""


@dataclass(frozen=True)
class Job:
    """Everything that decides a run's result; the data and the software are added to its key."""

    direction: str
    step: str
    start: str
    scaling: str
    hidden: tuple[int, ...]
    iterations: int
    seed: int
    tol: float = 0.0
    """Ends a run that gains too little; the paper's runs have a fixed length."""


def fingerprint(table: Table) -> str:
    """A name for the numbers of a table."""
    digest = hashlib.sha256(repr((table.inputs, table.targets, len(table))).encode())
    for part in (table.X, table.y):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


def key(job: Job, data: str) -> str:
    """The job, the data and the versions that matter, as one word."""
    software = {name: version(name) for name in ("greatcircle", "jax")}
    parts = asdict(job) | software | {"data": data}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


class Store:
    """An append-only file of rows, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self) -> list[Row]:
        """The rows that were written whole."""
        if not self.path.exists():
            return []
        whole = self.path.read_bytes().rpartition(b"\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    @contextmanager
    def writer(self) -> Iterator[Callable[[Row], None]]:
        """A function that appends a row; one writer at a time."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path.with_suffix(".lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise ValueError(
                f"another sweep is writing {self.path}; wait for it, or choose another --out"
            ) from None
        try:
            with self.path.open("ab") as file:
                # What a crash cut short would join the next row: drop it.
                file.truncate(self.path.read_bytes().rfind(b"\n") + 1)

                def append(row: Row) -> None:
                    file.write(json.dumps(row).encode() + b"\n")
                    file.flush()
                    os.fsync(file.fileno())

                yield append
        finally:
            lock.release()


def sweep(
    table: Table,
    jobs: Sequence[Job],
    store: Store,
    *,
    workers: int = 1,
    cluster: str | None = None,
    cache: Path | None = None,
    started: Callable[[int], None] | None = None,
    progress: Progress | None = None,
) -> dict[Job, Row]:
    """Do the jobs that the store does not have yet; the row of every job.

    Parameters
    ----------
    table
        The data of all jobs.
    jobs
        Best ordered by shape: a worker compiles once for all jobs of one shape.
    store
        Where rows are kept.
    workers
        Processes on this machine.
    cluster
        Address of a Dask scheduler that does the jobs instead.
    cache
        Folder for compiled programs, shared by the workers and kept for the next time.
    started
        Called once with the number of jobs that the store already has.
    progress
        Called with each new row.
    """
    data = fingerprint(table)
    keys = {job: key(job, data) for job in jobs}
    with store.writer() as append:
        done = {row["key"]: row for row in store.rows()}
        missing = [job for job in jobs if keys[job] not in done]
        if started:
            started(len(jobs) - len(missing))
        results = (
            _on_cluster(table, missing, cluster)
            if cluster
            else _on_this_machine(table, missing, workers, cache)
        )
        for job, result in results:
            row = {"key": keys[job], "data": data, "job": asdict(job), **result}
            append(row)
            done[row["key"]] = row
            if progress:
                progress(row)
    return {job: done[keys[job]] for job in jobs}


def run(table: Table, job: Job) -> Row:
    """One run as a row: its result, or the error that ended it."""
    try:
        outcome = train(
            table,
            direction=DIRECTIONS[job.direction],
            step=STEPS[job.step],
            start=STARTS[job.start],
            scaling=job.scaling,
            hidden=tuple(job.hidden),
            iterations=job.iterations,
            seed=job.seed,
            tol=job.tol,
        )
    except Exception as error:  # whatever it is, the other runs go on
        return {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
    fields = asdict(outcome).items()
    return {"result": {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in fields}}


_worker_table: Table | None = None


def _start_worker(table: Table) -> None:
    global _worker_table
    _worker_table = table


def _run_in_worker(job: Job) -> Row:
    assert _worker_table is not None
    return run(_worker_table, job)


def _on_this_machine(
    table: Table, jobs: Sequence[Job], workers: int, cache: Path | None
) -> Iterator[tuple[Job, Row]]:
    if not jobs:
        return
    environment = {
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}".strip(),
        "GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", memory.KEEP),
    }
    if cache:
        environment |= {
            "JAX_COMPILATION_CACHE_DIR": str(cache.resolve()),
            "JAX_PERSISTENT_COMPILATION_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
        }
    # JAX reads its settings when it starts, so workers must be new processes that find them.
    with _environment(environment):
        pool = ProcessPoolExecutor(
            min(workers, len(jobs)), get_context("spawn"), _start_worker, (table,)
        )
        futures: dict[Future[Row], Job] = {pool.submit(_run_in_worker, j): j for j in jobs}
    try:
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        # On an error or Ctrl-C do not wait for runs that nobody will write down.
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()


ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def _on_cluster(table: Table, jobs: Sequence[Job], address: str) -> Iterator[tuple[Job, Row]]:
    try:
        from dask import distributed
    except ImportError:
        raise ValueError(
            "--cluster needs dask.distributed; install it with pip install 'greatcircle[sweep]'"
        ) from None
    with distributed.Client(address) as client:
        shared = client.scatter(table, broadcast=True, hash=False)
        # A worker that dies takes no run along: the scheduler gives its runs to another.
        futures = {client.submit(run, shared, job, pure=False, retries=3): job for job in jobs}
        for future in distributed.as_completed(list(futures)):
            yield futures[future], future.result()


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
