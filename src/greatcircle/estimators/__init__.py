"""scikit-learn estimators: they validate data, call `training` and wrap its model.

| module | contents |
|---|---|
| `regressor`, `classifier` | the two estimators: targets, labels, losses |
| `base` | their base class: parameters, `fit`, prediction, attributes |
| `files` | save and load estimators |
| `parameters` | parameters as JSON values |
| `summary` | summary of a fitted model for notebooks |
"""

from greatcircle.estimators.classifier import LipschitzClassifier
from greatcircle.estimators.files import load, save
from greatcircle.estimators.regressor import LipschitzRegressor

__all__ = ["LipschitzClassifier", "LipschitzRegressor", "load", "save"]
