"""Regression."""

from typing import Any, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin

from greatcircle.data.checks import OF_TEXT
from greatcircle.estimators.base import LipschitzEstimator
from greatcircle.model import Model
from greatcircle.objective import losses
from greatcircle.objective.losses import Loss, Squared
from greatcircle.training.data import Names

LOSSES = ("squared", "huber")


class LipschitzRegressor(MultiOutputMixin, RegressorMixin, LipschitzEstimator):
    """Regression by a network with a known Lipschitz bound, trained without a learning rate.

    Parameters
    ----------
    hidden_layer_sizes
        Units of each hidden layer; "auto" is the paper's (25, 30, 15).
    activation
        One of `greatcircle.activations.ACTIVATIONS`, or a declared `Activation`.
    method
        "auto"; "ad", the paper's Method 1; "mm", its Method 2; or a pair (direction, step) of
        names or of objects. The paper's methods start by its Algorithm 1 (no biases, radius 1).
    scaling
        "standard": inputs standardised, a bound that holds everywhere. "paper": each row to norm
        one, a bound per unit of x/‖x‖. "max": everything divided by the largest norm. None leaves
        it to the method: "paper" for the paper's, otherwise "standard".
    lipschitz
        A budget: the certified bound of the fitted model, `certificate_.value`, is at most this, in
        units of y per unit of X, and as much of it is used as lowers the loss (`docs/bounded.md`).
        Not for `scaling="paper"`, which has no global bound.
    loss
        "squared" (which "auto" means) or "huber", or a loss object. A loss sees outputs and
        targets in the units of y, so Huber's `delta` is in those.
    radius
        Frobenius norm of each weight matrix: one number, or one for each layer. None leaves it to
        the method. With another loss than the squared one, the last layer's is multiplied by the
        scale of the targets.
    max_iter
        Most iterations.
    tol
        Stop when ten iterations together gain less than this part of the loss; 0 never does. None
        leaves it to the method: 2e-3 for "auto" and pairs, 0 for the paper's.
    batch_size
        Rows of the first batches. Batches grow as soon as they can no longer tell the way from
        their noise, and in the end all rows take part (`docs/batches.md`). None trains on all rows
        from the start, or, with data that memory cannot hold, on batches of a size of our choice.
        "auto" is None up to 32,768 rows, for the paper's methods and where a fit goes on by
        `warm_start`; otherwise training starts with a chunk of the rows.
    early_stopping
        Hold out a part of the rows, stop when its loss has not fallen for `n_iter_no_change`
        iterations, and keep the weights with which it was lowest.
    validation_fraction
        How large that part is; with data that memory cannot hold, of 100,000 rows.
    n_iter_no_change
        How long to wait.
    warm_start
        Whether `fit` goes on from the weights, the scaling and the curvature of the last fit.
    checkpoint
        Folder for a checkpoint of training, written whenever `checkpoint_interval` have gone by, and
        at the end.
    checkpoint_interval
        Least time between two of them.
    resume
        Whether to go on from the checkpoint in that folder, bit for bit as if training had not
        been cut short. Data and parameters must be the same, but for `max_iter`, `tol` and what
        does not change the result; an iterator of batches must start from the beginning. Without a
        checkpoint training begins anew.
    callbacks
        Functions called after each iteration with its row of `history_`, see
        `greatcircle.record.Record`; one that returns True ends training.
    verbose
        Whether to show a progress bar.
    dtype
        "float32", "float64", or "auto": float64 up to 2000 rows.
    random_state
        Seed of the initial weights, of the validation part and of the order of batches.

    Attributes
    ----------
    weights_ : tuple of arrays, (fan_in, fan_out) each
    network_ : Network
    scaling_ : Scaling
    target_names_ : tuple of str, names of the targets where y has any, otherwise empty
    history_ : table of the iterations, a dict of columns (`greatcircle.watch.History`)
    n_iter_ : int
    loss_ : float, in the units of y where the loss has units
    outcome_, reason_ : str, how training ended, in one word and in several
    certificate_ : Certificate, the tightest bound that multipliers prove, in units of y per unit of
        X (with `scaling="paper"` for ‖x‖ ≥ 1)

    Examples
    --------
    >>> from greatcircle import LipschitzRegressor
    >>> from greatcircle.datasets import ground_effect
    >>> table = ground_effect.generate(2000)
    >>> model = LipschitzRegressor(max_iter=20, random_state=0).fit(table.X, table.y)
    >>> model.predict(table.X).shape
    (2000, 3)
    """

    def _default_sizes(self) -> tuple[int, ...]:
        return (25, 30, 15)

    def _with_model(self, model: Model) -> Self:
        self._single_output, self._outputs_seen = model.single_output, model.sizes[-1]
        return super()._with_model(model)

    def _encoded(self, y: Any, reset: bool, classes: Any = None) -> np.ndarray:
        try:
            targets = np.asarray(y, np.float64)
        except ValueError:
            raise ValueError(OF_TEXT) from None
        if reset:
            self._single_output = targets.ndim == 1
        targets = targets.reshape(len(targets), -1)
        if reset:
            self._outputs_seen = targets.shape[1]
        if not reset and targets.shape[1] != self._outputs_seen:
            raise ValueError(
                f"y has {targets.shape[1]} columns, but {type(self).__name__} was fitted with "
                f"{self._outputs_seen}: give the same targets, or a new estimator"
            )
        return targets

    def _names(self) -> Names:
        return Names(self._feature_names(), self.target_names_, single_output=self._single_output)

    def _criterion(self, outputs: int) -> Loss:
        if isinstance(self.loss, str) and self.loss not in ("auto", *LOSSES):
            raise ValueError(
                f"loss is {self.loss!r}; expected one of auto, {', '.join(LOSSES)}, or a loss "
                "object"
            )
        return (
            Squared()
            if isinstance(self.loss, str) and self.loss == "auto"
            else losses.get(self.loss)
        )

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """One iteration on these rows; the first call decides scaling and network.

        What the direction has learnt of the curvature goes from one call to the next.
        """
        return self._partial_fit(X, y, sample_weight)

    def predict(self, X: Any) -> np.ndarray:
        """Targets for rows X, in the units of the training targets."""
        outputs = self._outputs(X)
        return outputs[:, 0] if self._single_output else outputs
