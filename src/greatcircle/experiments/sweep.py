"""Resumable sweep: many runs in parallel, each stored when it is done.

Every run is one line of JSON in an append-only file, under a key made of everything that determines
its result. A line is flushed to the disk before the run counts as done; a line cut short by a crash
is dropped at the next start and its run repeated. Only the process that started the sweep writes.

Runs are done by worker processes on this machine or by the workers of a Dask cluster. Each worker
computes with one thread, so that results do not depend on the number of workers.
"""

import hashlib
import json
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from greatcircle._runtime.extras import require
from greatcircle.data.table import Table
from greatcircle.experiments.run import Job, train

__all__ = ["ONE_THREAD", "TIMINGS", "Row", "Store", "fingerprint", "key", "run", "sweep"]

Row = dict[str, Any]

TIMINGS = ("seconds", "setup_seconds")
"""Results that differ when a run is repeated."""

KEEP_MEMORY = (
    "glibc.malloc.mmap_threshold=8589934592:glibc.malloc.trim_threshold=8589934592:"
    "glibc.malloc.arena_max=1:glibc.malloc.hugetlb=1"
)
"""GLIBC_TUNABLES of worker processes: freed memory stays with the process (`docs/scale.md`)."""

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def fingerprint(table: Table) -> str:
    """Return a hash of a table's column names and numbers."""
    digest = hashlib.sha256(repr((table.inputs, table.targets, len(table))).encode())
    for part in (table.X, table.y):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


def key(job: Job, data: str) -> str:
    """Return a hash of the job, the data and the versions of the software."""
    software = {name: version(name) for name in ("greatcircle", "jax")}
    parts = asdict(job) | software | {"data": data}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


class Store:
    """An append-only file of rows, one JSON object per line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self) -> list[Row]:
        """Return the rows that were written completely."""
        if not self.path.exists():
            return []
        complete = self.path.read_bytes().rpartition(b"\n")[0]
        return [json.loads(line) for line in complete.splitlines()]

    @contextmanager
    def writer(self) -> Iterator[Callable[[Row], None]]:
        """Open the file for one writer; yield a function that appends a row."""
        filelock = require("filelock", "sweep", "rerunning the experiments")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(self.path.with_suffix(".lock"))
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            raise ValueError(
                f"another sweep is writing {self.path}; wait for it, or choose another --out"
            ) from None
        try:
            with self.path.open("ab") as file:
                # Drop a line cut short by a crash: the next row would be appended to it.
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
    progress: Callable[[Row], None] | None = None,
) -> dict[Job, Row]:
    """Run the jobs that the store does not have yet; return the row of every job.

    Parameters
    ----------
    table
        The data of all jobs.
    jobs
        Best ordered by shape: a worker compiles once for all jobs of one shape.
    store
        File of the finished runs.
    workers
        Number of processes on this machine.
    cluster
        Address of a Dask scheduler that runs the jobs instead.
    cache
        Folder for compiled programs, shared by the workers and kept for later sweeps.
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
    """Return the result of a run, or the error that ended it."""
    try:
        outcome = train(table, job)
    except Exception as error:  # the other runs continue
        return {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
    fields = asdict(outcome).items()
    return {"result": {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in fields}}


_worker_tables: list[Table] = []
"""The data, sent once to each worker process."""


def _start_worker(table: Table) -> None:
    _worker_tables.append(table)


def _run_in_worker(job: Job) -> Row:
    return run(_worker_tables[0], job)


def _on_this_machine(
    table: Table, jobs: Sequence[Job], workers: int, cache: Path | None
) -> Iterator[tuple[Job, Row]]:
    if not jobs:
        return
    environment = {
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}".strip(),
        "GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", KEEP_MEMORY),
    }
    if cache:
        environment |= {
            "JAX_COMPILATION_CACHE_DIR": str(cache.resolve()),
            "JAX_PERSISTENT_COMPILATION_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
        }
    # JAX reads its settings when it starts, so the workers must be new processes.
    with _environment(environment):
        pool = ProcessPoolExecutor(
            min(workers, len(jobs)), get_context("spawn"), _start_worker, (table,)
        )
        futures: dict[Future[Row], Job] = {pool.submit(_run_in_worker, j): j for j in jobs}
    try:
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        # After an error or Ctrl-C do not wait for runs whose results would not be stored.
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()


def _on_cluster(table: Table, jobs: Sequence[Job], address: str) -> Iterator[tuple[Job, Row]]:
    distributed = require("distributed", "sweep", "--cluster")
    with distributed.Client(address) as client:
        shared = client.scatter(table, broadcast=True, hash=False)
        # The scheduler gives the runs of a worker that dies to another worker.
        futures = {client.submit(run, shared, job, pure=False, retries=3): job for job in jobs}
        for future in distributed.as_completed(list(futures)):
            yield futures[future], future.result()


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, and restore them at the end."""
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
