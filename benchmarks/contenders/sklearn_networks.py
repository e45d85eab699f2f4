"""scikit-learn's `MLPRegressor`, observed at the end of each epoch or evaluation."""

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

from contenders.contest import GRADIENT, Case, Layers, Watch

AS_LONG_AS_IT_TAKES = 1_000_000


class Watched(MLPRegressor):
    watch: Watch
    passes = 0.0

    def _update_no_improvement_count(self, *args: Any, **kwargs: Any) -> None:
        """Measure at the end of each epoch of Adam."""
        super()._update_no_improvement_count(*args, **kwargs)
        self.look()

    def _loss_grad_lbfgs(self, *args: Any, **kwargs: Any) -> Any:
        """Measure at each evaluation of lbfgs, those of its line search included."""
        result = super()._loss_grad_lbfgs(*args, **kwargs)
        self.look()
        return result

    def look(self) -> None:
        self.passes += GRADIENT
        self.watch.look(self.passes, self.layers)

    def layers(self) -> Layers:
        pairs = zip(self.coefs_, self.intercepts_, strict=True)
        return [(w.copy(), b.copy()) for w, b in pairs]


def fit(case: Case, watch: Watch, **settings: Any) -> None:
    """Train until the time budget is used up, or lbfgs stops."""
    model = Watched(
        hidden_layer_sizes=case.hidden,
        max_iter=AS_LONG_AS_IT_TAKES,
        random_state=case.seed,
        **settings,
    )
    model.watch = watch
    y = case.y.ravel() if case.y.shape[1] == 1 else case.y
    X, y = (np.ascontiguousarray(a, np.float32) for a in (case.X, y))  # the faster of its two types
    watch.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    watch.look(model.passes, model.layers, last=True)


def adam(case: Case, watch: Watch) -> None:
    fit(case, watch, learning_rate_init=case.rate, n_iter_no_change=AS_LONG_AS_IT_TAKES)


def lbfgs(case: Case, watch: Watch) -> None:
    fit(case, watch, solver="lbfgs", max_fun=AS_LONG_AS_IT_TAKES)
