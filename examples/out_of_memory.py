"""Train on rows from a memory map, resume from a checkpoint, save and load.

The first fit holds 100,000 sampled rows and one batch in memory, however large the file is. The
second is stopped half way and resumed from its checkpoint, with bit-identical results.
"""

import tempfile
from pathlib import Path

import numpy as np

from greatcircle import LipschitzRegressor, load
from greatcircle.datasets import ground_effect

ROWS = 120_000
test = ground_effect.generate(4000, seed=1)


def rms(model: LipschitzRegressor) -> float:
    return float(np.sqrt(np.mean(np.sum((model.predict(test.X) - test.y) ** 2, axis=1))))


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    table = ground_effect.generate(ROWS)
    np.save(folder / "X.npy", table.X)
    np.save(folder / "y.npy", table.y)
    X, y = (np.load(folder / f"{part}.npy", mmap_mode="r") for part in "Xy")
    streamed = LipschitzRegressor(
        (16,), selection=False, max_iter=10, batch_size=4096, random_state=0
    )
    streamed.fit(X, y)
    print(f"streamed {ROWS} rows: test RMS {rms(streamed):.3f} N")

    X, y = X[::40], y[::40]
    settings = {"hidden_layer_sizes": (16,), "selection": False, "tol": 0, "random_state": 0}
    kept = {"checkpoint": folder / "checkpoint", **settings}
    LipschitzRegressor(max_iter=10, **kept).fit(X, y)
    resumed = LipschitzRegressor(max_iter=20, resume=True, **kept).fit(X, y)
    whole = LipschitzRegressor(max_iter=20, **settings).fit(X, y)
    print(f"resumed after 10 of {resumed.n_iter_} iterations: test RMS {rms(resumed):.3f} N")
    same = np.array_equal(resumed.predict(test.X), whole.predict(test.X))
    print(f"same as an uninterrupted fit: {same}")

    resumed.save(folder / "model.safetensors")
    again = load(folder / "model.safetensors")
    print(f"saved and loaded; same bound: {again.certificate_ == resumed.certificate_}")
