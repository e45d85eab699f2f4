"""scikit-learn estimators, thin over the core.

| module | idea |
|---|---|
| `regressor`, `classifier` | the estimators: what is special to numbers and to classes |
| `base` | what they share: their parameters, how they fit, predict and are shown |
| `training` | which rows are for what, and the descent that goes with them |
| `parameters` | what their parameters mean, checked before any data are looked at |
| `data` | checks of data, and a part held out |
"""

from greatcircle.estimators.classifier import LipschitzClassifier
from greatcircle.estimators.files import load, save
from greatcircle.estimators.regressor import LipschitzRegressor

__all__ = ["LipschitzClassifier", "LipschitzRegressor", "load", "save"]
