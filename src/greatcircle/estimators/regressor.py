"""The regressor: a scikit-learn estimator with a known Lipschitz bound."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin

from greatcircle.data.checks import TEXT_TARGETS
from greatcircle.estimators.base import LipschitzEstimator
from greatcircle.model import Model
from greatcircle.network.activations import Activation
from greatcircle.objective import losses
from greatcircle.objective.losses import Loss, Squared
from greatcircle.optimise.record import Record
from greatcircle.training.data import Names

__all__ = ["LipschitzRegressor"]

LOSSES = ("squared", "huber")


class LipschitzRegressor(MultiOutputMixin, RegressorMixin, LipschitzEstimator):
    """Regression by a network with a known Lipschitz bound, trained without a learning rate.

    Parameters
    ----------
    hidden_layer_sizes
        Units of each hidden layer; "auto" chooses by held-out error, or is the paper's
        (25, 30, 15) without a selection.
    activation
        One of `greatcircle.activations.ACTIVATIONS`, or a declared `Activation`.
    method
        "auto"; "ad", the paper's Method 1; "mm", its Method 2; or a pair (direction, step) of
        names or of objects. The paper's methods start with its Algorithm 1 (no biases, radius 1).
    scaling
        "standard": inputs standardised, a bound that holds everywhere. "paper": each row scaled to
        norm one, a bound per unit of x/‖x‖. "max": everything divided by the largest norm. None
        leaves it to the method: "paper" for the paper's, otherwise "standard".
    lipschitz
        A budget: the largest certified bound that the fitted model may have, in units of y per unit
        of X. Training uses as much of it as lowers the loss (`docs/bounded.md`). Not for
        `scaling="paper"`, which has no global bound.
    loss
        "squared" (also "auto") or "huber", or a loss object. A loss sees outputs and targets in the
        units of y, so Huber's `delta` is in those units.
    radius
        Frobenius norm of each weight matrix: one number, or one for each layer. None leaves it to
        the method. With another loss than the squared one, the radius of the last layer is
        multiplied by the scale of the targets.
    selection
        Whether held-out error chooses what is left open: target gain, hidden layers and number of
        iterations (`docs/selection.md`). Only for `method="auto"`; False trains one network of the
        default size.
    cv
        Rows to hold out for the choice. "auto": five folds up to 5,000 distinct rows, above that a
        fifth of them. Or a number of folds, "time" for rows in time order, a splitter of
        scikit-learn, or pairs of row numbers.
    target_gain
        Scaled targets relative to the initial outputs: larger means a lower bound and a stiffer
        network. "auto" chooses by held-out error, or by a formula without a selection
        (`docs/scaling.md`).
    ensemble
        Number of networks, trained from different initial weights, whose mean is the model, stored
        as one network. "auto" is 4, or fewer where they would take longer than the choice; and 1
        with given hidden layers, with a budget, or without a selection.
    max_iter
        Largest number of iterations. None is 1000 with a selection and 200 without.
    tol
        Stop when ten iterations together gain less than this fraction of the loss; 0 never stops.
        None leaves it to the method: 2e-3 for "auto" and pairs (1e-4 where held-out error chooses
        the number of iterations), 0 for the paper's.
    batch_size
        Number of rows of the first batches. Batches grow when gradient noise dominates, and finally
        all rows are used (`docs/batches.md`). None trains on all rows from the start, or, with data
        larger than memory, on batches of a default size. "auto" is None up to 32,768 rows, for the
        paper's methods and for a warm start; otherwise training starts with a chunk of the rows.
    early_stopping
        Hold out part of the rows, stop when its loss has not fallen for `n_iter_no_change`
        iterations, and keep the weights with the lowest one.
    validation_fraction
        Fraction of the rows to hold out; with data larger than memory, of 100,000 rows.
    n_iter_no_change
        Number of iterations to wait for a lower validation loss.
    saturation
        "outputs" clips each prediction to the range of its training targets, widened by a twentieth
        on each side; "inputs" clips each input to its range in the training rows; "both" does both,
        False neither. Clipping is 1-Lipschitz, so bounds remain valid; if inputs are clipped, the
        bound inside their box holds everywhere (`docs/certificates.md`). "auto" is "outputs" for
        method="auto" and rows in memory, and False otherwise. Not for data larger than memory,
        and for `scaling="paper"` only "outputs".
    warm_start
        Whether `fit` continues from the weights, the scaling and the direction state of the last
        fit.
    checkpoint
        Folder for a checkpoint of training, written at most once per `checkpoint_interval`, and at
        the end.
    checkpoint_interval
        Least number of seconds between two writes.
    resume
        Whether to resume an interrupted fit from the checkpoint in that folder, with bit-identical
        results. Data and parameters must be the same, except `max_iter`, `tol` and what does not
        change the result; an iterator of batches must start from the beginning. Without a
        checkpoint in the folder, training starts from the beginning.
    callbacks
        Functions called after each iteration with its row of `history_`, a
        `greatcircle.optimise.record.Record`; one that returns True ends training.
    verbose
        Whether to show a progress bar.
    dtype
        "float32", "float64", or "auto": float64 up to 2000 rows, or up to 500 with a selection.
    random_state
        Seed of the initial weights, of the validation part and of the order of batches.

    Attributes
    ----------
    model_ : greatcircle.model.Model
        The fitted model as NumPy arrays, with `predict` and `jacobian`; it does not need JAX.
    certificate_ : Certificate
        The tightest bound that multipliers prove, in units of y per unit of X (with
        `scaling="paper"` for ‖x‖ ≥ 1); `lipschitz_bound_` is its value.
    weights_ : tuple of arrays, (fan_in, fan_out) each
    network_ : Network
    scaling_ : Scaling
    target_names_ : tuple of str, empty if the targets have no names
    history_ : History
        Table of the iterations, a dict of columns; of an ensemble, those of its first network.
    selection_ : SelectionTable or None
        Table of the candidates, a dict of columns.
    n_iter_ : int
    loss_ : float, in the units of y if the loss has units
    outcome_, reason_ : str
        How training ended, in one word and in a sentence.

    Examples
    --------
    >>> from greatcircle import LipschitzRegressor
    >>> from greatcircle.datasets import ground_effect
    >>> table = ground_effect.generate(2000)
    >>> model = LipschitzRegressor((25, 30, 15), max_iter=20, random_state=0).fit(table.X, table.y)
    >>> model.predict(table.X).shape
    (2000, 3)
    """

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] | str = "auto",
        activation: str | Activation = "relu",
        *,
        method: str | tuple[Any, Any] = "auto",
        scaling: str | None = None,
        lipschitz: float | None = None,
        loss: str | Loss = "auto",
        radius: float | Sequence[float] | None = None,
        selection: bool = True,
        cv: Any = "auto",
        target_gain: float | str = "auto",
        ensemble: int | str = "auto",
        max_iter: int | None = None,
        tol: float | None = None,
        batch_size: int | str | None = "auto",
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        saturation: str | bool = "auto",
        warm_start: bool = False,
        checkpoint: str | PathLike[str] | None = None,
        checkpoint_interval: float = 60.0,
        resume: bool = False,
        callbacks: Sequence[Callable[[Record], Any]] = (),
        verbose: bool = False,
        dtype: str = "auto",
        random_state: Any = None,
    ) -> None:
        super().__init__(
            hidden_layer_sizes,
            activation,
            method=method,
            scaling=scaling,
            lipschitz=lipschitz,
            loss=loss,
            radius=radius,
            selection=selection,
            cv=cv,
            target_gain=target_gain,
            ensemble=ensemble,
            max_iter=max_iter,
            tol=tol,
            batch_size=batch_size,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            warm_start=warm_start,
            checkpoint=checkpoint,
            checkpoint_interval=checkpoint_interval,
            resume=resume,
            callbacks=callbacks,
            verbose=verbose,
            dtype=dtype,
            random_state=random_state,
        )
        self.saturation = saturation

    def _default_sizes(self) -> tuple[int, ...]:
        return (25, 30, 15)

    def _with_model(self, model: Model) -> Self:
        self._single_output, self._outputs_seen = model.single_output, model.sizes[-1]
        return super()._with_model(model)

    def _encoded(self, y: Any, reset: bool, classes: Any = None) -> np.ndarray:
        try:
            targets = np.asarray(y, np.float64)
        except ValueError:
            raise ValueError(TEXT_TARGETS) from None
        if reset:
            self._single_output = targets.ndim == 1
        targets = targets.reshape(len(targets), -1)
        if reset:
            self._outputs_seen = targets.shape[1]
        if not reset and targets.shape[1] != self._outputs_seen:
            raise ValueError(
                f"y has {targets.shape[1]} columns, but {type(self).__name__} was fitted with "
                f"{self._outputs_seen}: pass the same targets, or fit a new estimator"
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
        """Take one iteration on these rows; the first call fixes scaling and network.

        The direction keeps its state from one call to the next.
        """
        return self._partial_fit(X, y, sample_weight)

    def predict(self, X: Any) -> np.ndarray:
        """Predict the targets of rows X, in the units of the training targets."""
        outputs = self._outputs(X)
        return outputs[:, 0] if self._single_output else outputs
