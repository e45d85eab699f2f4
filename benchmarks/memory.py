"""Resident memory and error of a fit of ten million rows from a memory map, and of a sample.

    python benchmarks/memory.py [--rows N] [--write]

The rows are generated into a temporary folder. Each fit runs in its own process, whose peak
resident memory is reported by the operating system (VmHWM).
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from greatcircle.datasets import ground_effect

RESULTS = Path(__file__).with_suffix(".json")
PIECE = 100_000
FIT = """
import sys, json, time
import numpy as np
from greatcircle import LipschitzRegressor
folder = sys.argv[1]
X, y = (np.load(f"{folder}/{name}.npy", mmap_mode="r") for name in "Xy")
started = time.perf_counter()
model = LipschitzRegressor(selection=False, random_state=0).fit(X, y)
seconds = time.perf_counter() - started
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
test = np.load(f"{folder}/test.npz")
error = model.predict(test["X"]) - test["y"]
print(json.dumps({
    "test_rms": float(np.sqrt(np.mean(np.sum(error**2, axis=1)))),
    "seconds": seconds,
    "iterations": model.n_iter_,
    "ended": model.reason_,
    "peak_resident_mib": int(peak.split()[1]) / 1024,
}))
"""


def write_rows(folder: Path, rows: int) -> None:
    X = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float32, (rows, 12))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", np.float32, (rows, 3))
    for first in range(0, rows, PIECE):
        table = ground_effect.generate(min(PIECE, rows - first), seed=first // PIECE)
        X[first : first + PIECE], y[first : first + PIECE] = table.X, table.y
    test = ground_effect.generate(PIECE, seed=10**6)
    np.savez(folder / "test.npz", X=test.X, y=test.y)


def fit(folder: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", FIT, str(folder)], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder, options.rows)
        stream = fit(folder)
        rng = np.random.default_rng(0)
        which = np.sort(rng.choice(options.rows, min(100_000, options.rows) - 1, replace=False))
        for part in (
            "Xy"
        ):  # one row less than the sample of a stream, so that all rows are fitted in memory
            rows = np.load(folder / f"{part}.npy", mmap_mode="r")[which]
            np.save(folder / f"{part}.npy", rows)
        sample = fit(folder)
    results = {
        "rows": options.rows,
        "stream": stream,
        "sample of 99,999 rows": sample,
        "stream / sample, test RMS": stream["test_rms"] / sample["test_rms"],
    }
    print(json.dumps(results, indent=2))
    if options.write:
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
