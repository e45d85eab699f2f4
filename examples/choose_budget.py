"""Error against Lipschitz bound: a grid search over the budget, in a pipeline.

The axes of a PCA are orthonormal, so the bound of the network is also a bound of the pipeline.
"""

import numpy as np
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline

from greatcircle import LipschitzRegressor
from greatcircle.datasets import ground_effect

BUDGETS = [0.1, 0.3, 1.0, 3.0, 10.0]


def error_and_bound(model: Pipeline, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    error = np.sqrt(np.mean(np.sum((model.predict(X) - y) ** 2, axis=1)))
    return {"error": error, "bound": model[-1].certificate_.value}


def smallest_good_budget(results: dict[str, np.ndarray]) -> int:
    """Return the index of the smallest budget with an error within 2 % of the lowest."""
    errors = results["mean_test_error"]
    return int(np.argmax(errors <= 1.02 * errors.min()))


table = ground_effect.generate(1500)
search = GridSearchCV(
    make_pipeline(PCA(10), LipschitzRegressor((20, 20), max_iter=20, random_state=0)),
    {"lipschitzregressor__lipschitz": BUDGETS},
    scoring=error_and_bound,
    refit=smallest_good_budget,
    cv=3,  # consecutive thirds of the flight, not random rows
).fit(table.X, table.y)

print("  budget    bound   RMS in N")
found = search.cv_results_
for i, budget in enumerate(BUDGETS):
    print(f"{budget:8.1f} {found['mean_test_bound'][i]:8.2f} {found['mean_test_error'][i]:10.4f}")
best = search.best_estimator_[-1]
print(f"chosen budget {best.lipschitz}, certificate {best.certificate_.value:.2f} N per unit")
