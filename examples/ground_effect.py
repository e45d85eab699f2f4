"""Learn the force near the ground within a Lipschitz budget, and check the certificate.

A controller that adds the learned force to its model needs to know how fast it can change.
"""

import numpy as np
from sklearn.model_selection import train_test_split

from greatcircle import LipschitzRegressor, certificate
from greatcircle.datasets import ground_effect

BUDGET = 2.0  # newtons per unit of the inputs

table = ground_effect.generate(4000)
X, X_test, y, y_test = train_test_split(table.X, table.y, test_size=0.25, random_state=0)
model = LipschitzRegressor((25, 30, 15), lipschitz=BUDGET, random_state=0).fit(X, y)


def rms(error: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.sum(error**2, axis=1))))


def largest_slope(model: LipschitzRegressor, rows: np.ndarray, pairs: int = 50_000) -> float:
    """Return the largest slope between a row and a random point near it, over many pairs."""
    rng = np.random.default_rng(0)
    row = rows[rng.integers(0, len(rows), pairs)]
    step = rng.uniform(0.01, 0.3, (pairs, 1)) * rng.standard_normal(row.shape)
    change = model.predict(row + step) - model.predict(row)
    return float(np.max(np.linalg.norm(change, axis=1) / np.linalg.norm(step, axis=1)))


verified = certificate.verify(model.certificate_, model)
print(f"test RMS        {rms(model.predict(X_test) - y_test):.3f} N")
print(f"without a model {rms(y.mean(axis=0) - y_test):.3f} N")
print(f"budget          {BUDGET:.2f} N per unit")
print(f"certificate     {model.certificate_.value:.3f}, {verified}")
print(f"largest slope   {largest_slope(model, X_test):.2f}")
