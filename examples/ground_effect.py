"""The force near the ground, with a bound that was chosen before training and is checked after it.

A controller that adds the learned force to its model has to know how fast that force can change.
"""

import numpy as np
from sklearn.model_selection import train_test_split

from greatcircle import LipschitzRegressor, certificate
from greatcircle.datasets import ground_effect

BUDGET = 2.0  # newtons per unit of the inputs

table = ground_effect.generate(4000)
X, X_test, y, y_test = train_test_split(table.X, table.y, test_size=0.25, random_state=0)
model = LipschitzRegressor(lipschitz=BUDGET, random_state=0).fit(X, y)


def rms(error: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.sum(error**2, axis=1))))


def steepest_pair(model: LipschitzRegressor, rows: np.ndarray, pairs: int = 50_000) -> float:
    """The largest slope between a row and a random point near it, over many pairs."""
    rng = np.random.default_rng(0)
    row = rows[rng.integers(0, len(rows), pairs)]
    way = rng.uniform(0.01, 0.3, (pairs, 1)) * rng.standard_normal(row.shape)
    change = model.predict(row + way) - model.predict(row)
    return float(np.max(np.linalg.norm(change, axis=1) / np.linalg.norm(way, axis=1)))


verified = certificate.verify(model.certificate_, model)
print(f"test RMS        {rms(model.predict(X_test) - y_test):.3f} N")
print(f"without a model {rms(y.mean(axis=0) - y_test):.3f} N")
print(f"budget          {BUDGET:.2f} N per unit")
print(f"certificate     {model.certificate_.value:.3f}, {verified}")
print(f"steepest pair   {steepest_pair(model, X_test):.2f}")
