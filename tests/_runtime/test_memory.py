import os
import platform
import subprocess
import sys

import numpy as np
import pytest

from greatcircle._runtime import allocator as memory
from greatcircle.objective import chunks

SCRIPT = """
import resource, sys
import numpy as np
from greatcircle import Network, Problem, descend, directions, stopping
from greatcircle._runtime import allocator as memory

if sys.argv[1] == "given back":
    memory._glibc = lambda: None
rng = np.random.default_rng(0)
X = rng.standard_normal((20_000, 12))
network = Network((12, 128, 128, 128, 3))  # more than a heap of a thread's own can hold
faults = []
descend(
    Problem(network, X, np.abs(X[:, :3])),
    network.initial_weights(0),
    direction=directions.Steepest(),
    stop=stopping.MaxIter(7),
    callback=lambda *_: faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt),
)
print(np.median(np.diff(faults)))  # now and then the heap has to grow
"""


def pages_of_an_iteration(which):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(memory.SETTINGS)}
    # A thread of NumPy's may have a heap before the library can ask for one (docs/scale.md).
    environment["OPENBLAS_NUM_THREADS"] = "1"
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, which],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_an_iteration_finds_the_memory_of_the_last_one():
    fetched = pages_of_an_iteration("given back")
    assert fetched > 2_000  # or the test would show nothing
    assert pages_of_an_iteration("kept") < 0.05 * fetched


class Recorder:
    def __init__(self):
        self.calls = []

    def mallopt(self, parameter, value):
        self.calls.append((parameter, value))


def test_the_outermost_descent_decides(monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr(memory, "_glibc", lambda: recorder)
    with memory.kept():
        begun = list(recorder.calls)
        with pytest.raises(KeyboardInterrupt), memory.kept():
            raise KeyboardInterrupt
        assert recorder.calls == begun
    assert dict(begun) == {memory.MMAP_MAX: 0, memory.TRIM_THRESHOLD: memory.NEVER}
    assert dict(recorder.calls[len(begun) :]) == memory.USUAL


@pytest.mark.parametrize(
    ("hidden", "rows", "dtype", "asked"),
    [
        ((25, 30, 15), 32_768, np.float32, False),
        ((128, 128, 128), 20_000, np.float32, True),
        ((25, 30, 15), 32_768, np.float64, True),
        ((25, 30, 15), 10_000_000, np.float64, False),  # in chunks
        ((512, 512), 100_000, np.float32, True),
    ],
)
def test_large_problems_alone_ask_for_one_heap(monkeypatch, hidden, rows, dtype, asked):
    calls = []
    monkeypatch.setattr(memory, "one_heap", lambda: calls.append("asked"))
    chunks.room_for((12, *hidden, 3), rows, dtype)
    assert bool(calls) == asked


@pytest.mark.parametrize("name", ["GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_"])
def test_what_the_user_has_set_stays(monkeypatch, name):
    monkeypatch.setenv(name, "1")
    memory._glibc.cache_clear()
    try:
        assert memory._glibc() is None
    finally:
        memory._glibc.cache_clear()
