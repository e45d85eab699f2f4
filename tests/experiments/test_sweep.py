"""Sweeps: every run is stored once, whatever is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import sweep_script
from greatcircle.experiments import sweep as sweeps
from greatcircle.experiments.run import Job
from greatcircle.experiments.sweep import TIMINGS, Store, sweep
from small import thinned
from sweep_script import JOBS

SCRIPT = Path(sweep_script.__file__)


def without_timings(rows):
    """Return rows by key, without results that differ when a run is repeated."""
    kept = {}
    for row in rows:
        assert row["key"] not in kept, "a run was repeated"
        result = {k: v for k, v in row.get("result", {}).items() if k not in TIMINGS}
        kept[row["key"]] = row | {"result": result}
    return kept


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted sweep."""
    folder = tmp_path_factory.mktemp("sweep") / "whole"
    subprocess.run([sys.executable, SCRIPT, folder], check=True)
    return folder


def test_every_job_has_one_row(whole):
    rows = Store(whole / "runs.jsonl").rows()
    assert len(rows) == len(JOBS)
    assert all("result" in row for row in rows)
    assert {json.dumps(r["job"]["hidden"]) for r in rows} == {"[3]", "[5]"}


def test_finished_runs_are_not_repeated_and_new_ones_are_added(whole, monkeypatch):
    store = Store(whole / "runs.jsonl")
    before = store.path.read_bytes()
    done = []
    rows = sweep(sweep_script.table(), JOBS, store, started=done.append)
    assert done == [len(JOBS)]
    assert list(rows) == JOBS
    assert store.path.read_bytes() == before


def has_more_rows(store, than):
    return len(store.rows()) > than


@pytest.mark.parametrize("kills", thinned((1, 10), 2))
def test_kill_at_random_moments_loses_and_repeats_nothing(whole, kills):
    """Kill once there is a new row: before, there would be nothing to lose."""
    rng = np.random.default_rng(kills)
    folder = whole.parent / f"killed{kills}"
    store = Store(folder / "runs.jsonl")
    for _ in range(kills):
        before = len(store.rows())
        process = subprocess.Popen([sys.executable, SCRIPT, folder], start_new_session=True)
        try:
            wait_for(partial(has_more_rows, store, min(before, len(JOBS) - 1)), 300, 0.01)
            time.sleep(rng.uniform(0, 1))  # during the next runs, or their compilation
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    subprocess.run([sys.executable, SCRIPT, folder], check=True)
    expected = without_timings(Store(whole / "runs.jsonl").rows())
    assert without_timings(store.rows()) == expected


def test_a_line_cut_short_is_dropped_and_its_run_repeated(tmp_path):
    store = Store(tmp_path / "runs.jsonl")
    with store.writer() as append:
        append({"key": "a"})
        append({"key": "b"})
    store.path.write_bytes(store.path.read_bytes()[:-4])
    assert [r["key"] for r in store.rows()] == ["a"]
    with store.writer() as append:
        append({"key": "c"})
    assert [r["key"] for r in store.rows()] == ["a", "c"]


def test_one_writer_at_a_time(tmp_path):
    store = Store(tmp_path / "runs.jsonl")
    with (
        store.writer(),
        pytest.raises(ValueError, match="another sweep is writing"),
        store.writer(),
    ):
        pass


def test_a_failed_run_is_recorded_and_the_sweep_continues(tmp_path):
    good = Job("kronecker", "curvature", "auto", "standard", (3,), 2, 0)
    bad = Job("steepest", "curvature", "paper", "paper", (0,), 2, 0)
    store = Store(tmp_path / "runs.jsonl")
    rows = sweep(sweep_script.table(), [bad, good], store)
    assert "ValueError: sizes is" in rows[bad]["error"]
    assert "result" in rows[good]
    assert len(store.rows()) == 2


def test_the_key_depends_on_everything_that_determines_the_result():
    table = sweep_script.table()
    data = sweeps.fingerprint(table)
    keys = {sweeps.key(job, data) for job in JOBS}
    assert len(keys) == len(JOBS)
    assert sweeps.key(JOBS[0], "other") not in keys
    changes = {"direction": "kronecker", "start": "auto", "scaling": "max", "tol": 0.5}
    for name, value in changes.items():
        assert sweeps.key(replace(JOBS[0], **{name: value}), data) not in keys
    other = sweep_script.ground_effect.generate(400, seed=1)
    assert sweeps.fingerprint(other) != data


def test_results_do_not_depend_on_the_number_of_workers(whole, tmp_path):
    store = Store(tmp_path / "runs.jsonl")
    sweep(sweep_script.table(), JOBS[:4], store, workers=1)
    expected = without_timings(Store(whole / "runs.jsonl").rows())
    for key, row in without_timings(store.rows()).items():
        assert row == expected[key]


def test_a_dask_cluster_that_loses_a_worker_loses_no_run(tmp_path):
    pytest.importorskip("distributed", reason="distributed is not installed")
    from distributed import Client

    path = os.pathsep.join(filter(None, [str(SCRIPT.parent), os.environ.get("PYTHONPATH")]))
    flags = f"{os.environ['XLA_FLAGS']} {sweeps.ONE_THREAD}"
    environment = os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": path}
    address_file = tmp_path / "scheduler.json"

    def start(*arguments):
        command = [sys.executable, "-m", "dask", *arguments, "--scheduler-file", address_file]
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    processes = [start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")]
    try:
        wait_for(address_file.exists)
        processes += [start("worker", "--no-nanny", "--nthreads", "1") for _ in range(2)]
        address = json.loads(address_file.read_text())["address"]
        with Client(address) as client:
            wait_for(lambda: len(client.scheduler_info()["workers"]) == 2)
        store = Store(tmp_path / "runs.jsonl")
        seen = []

        def kill_a_worker_half_way(row):
            seen.append(row)
            if len(seen) == len(JOBS) // 2:
                processes[1].send_signal(signal.SIGKILL)

        rows = sweep(
            sweep_script.table(), JOBS, store, cluster=address, progress=kill_a_worker_half_way
        )
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert len(store.rows()) == len(JOBS)
    assert all("result" in row for row in rows.values())


def wait_for(condition, seconds=60, every=0.2):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(every)
