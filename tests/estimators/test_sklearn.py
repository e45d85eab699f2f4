"""scikit-learn's own checks, all of them, of both estimators."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from greatcircle import LipschitzClassifier, LipschitzRegressor

# The checks make data that warn on purpose: one class, too few iterations, no variance.
pytestmark = pytest.mark.filterwarnings("ignore")

# Quick to compile, which is most of what a hundred tiny fits do.
SMALL = {"hidden_layer_sizes": (6,), "max_iter": 30, "method": ("conjugate-gradient", "curvature")}


@parametrize_with_checks([LipschitzRegressor(**SMALL), LipschitzClassifier(**SMALL)])
def test_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([LipschitzRegressor(), LipschitzClassifier()])
def test_the_same_at_the_defaults(estimator, check):
    check(estimator)
