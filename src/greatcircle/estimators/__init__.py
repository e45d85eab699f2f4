"""scikit-learn estimators: they validate data, call `training` and wrap its model.

| module | contents |
|---|---|
| `regressor`, `classifier` | the estimators: what is special to numbers and to classes |
| `base` | what they share: their parameters, how they fit, predict and are shown |
| `files` | `save` and `load`: the file of a model, with the parameters of the estimator |
| `parameters` | their parameters as JSON values, for that file |
| `summary` | their summary for notebooks |

`training` checks the parameters and trains; `data` checks the rows.
"""

from greatcircle.estimators.classifier import LipschitzClassifier
from greatcircle.estimators.files import load, save
from greatcircle.estimators.regressor import LipschitzRegressor

__all__ = ["LipschitzClassifier", "LipschitzRegressor", "load", "save"]
