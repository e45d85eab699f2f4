"""scikit-learn estimators, thin over the core."""

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from greatcircle import certificate, losses, stopping
from greatcircle.activations import Activation
from greatcircle.certificate import Certificate
from greatcircle.descent import descend
from greatcircle.losses import Huber, Loss
from greatcircle.methods import DIRECTIONS, METHODS, STEPS, lookup
from greatcircle.network import Network
from greatcircle.problem import Problem
from greatcircle.scaling import SCALINGS, spectral_initialisation

LOSSES = ("squared", "huber")


class LipschitzRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Regression by a network with a known Lipschitz bound, trained without a learning rate.

    Parameters
    ----------
    hidden_layer_sizes
        Units of each hidden layer.
    activation
        One of `greatcircle.activations.ACTIVATIONS`, or a declared `Activation`.
    method
        "ad", the paper's Method 1, or "mm", its Method 2.
    scaling
        "paper": inputs to unit norm row by row, targets to the initial network's gain.
    loss
        "squared" or "huber", or a loss object. Huber's `delta` is in the units of y.
    radius
        Frobenius norm of each weight matrix: one number, or one for each layer.
    max_iter
        Most iterations.
    tol
        Stop when ten iterations together gain less than this part of the loss; 0 never does.
    dtype
        "float32" or "float64".
    random_state
        Seed of the initial weights.

    Attributes
    ----------
    weights_ : tuple of arrays, (fan_in, fan_out) each
    scaling_ : PaperScaling
    history_ : dict of arrays, one entry for each iteration
    n_iter_ : int
    loss_ : float, in the scaled units of training
    outcome_, reason_ : str, how training ended, in one word and in several
    certificate_ : Certificate, the operator-norm bound in units of y per unit of x/‖x‖

    Examples
    --------
    >>> from greatcircle import LipschitzRegressor
    >>> from greatcircle.datasets import ground_effect
    >>> table = ground_effect.generate(2000)
    >>> model = LipschitzRegressor(max_iter=20, random_state=0).fit(table.X, table.y)
    >>> model.predict(table.X).shape
    (2000, 3)
    """

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] = (25, 30, 15),
        activation: str | Activation = "relu",
        *,
        method: str = "ad",
        scaling: str = "paper",
        loss: str | Loss = "squared",
        radius: float | Sequence[float] = 1.0,
        max_iter: int = 200,
        tol: float = 1e-6,
        dtype: str = "float32",
        random_state: Any = None,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.method = method
        self.scaling = scaling
        self.loss = loss
        self.radius = radius
        self.max_iter = max_iter
        self.tol = tol
        self.dtype = dtype
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows X and targets y (one column, or several)."""
        method = lookup(METHODS, self.method, "method")
        if self.scaling not in SCALINGS:
            raise ValueError(f"scaling is {self.scaling!r}; expected one of {', '.join(SCALINGS)}")
        if isinstance(self.loss, str) and self.loss not in LOSSES:
            raise ValueError(f"loss is {self.loss!r}; expected one of {', '.join(LOSSES)}")
        if not isinstance(self.tol, int | float) or not self.tol >= 0:
            raise ValueError(f"tol is {self.tol!r}; expected a number that is not negative")
        checked: Any = validate_data(
            self, X=X, y=y, multi_output=True, y_numeric=True, dtype=np.float64
        )
        inputs, targets = (np.asarray(a, np.float64) for a in checked)
        self._single_output = targets.ndim == 1
        targets = targets.reshape(len(targets), -1)
        widths = _widths(self.hidden_layer_sizes)
        network = Network((inputs.shape[1], *widths, targets.shape[1]), self.activation)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        weights, scaling = spectral_initialisation(
            network, targets, rng, radius=self.radius, dtype=self.dtype
        )
        problem = Problem(
            network,
            scaling.inputs(inputs),
            scaling.targets(targets),
            loss=_scaled_loss(losses.get(self.loss), scaling.factor),
            dtype=self.dtype,
        )
        stop = stopping.MaxIter(self.max_iter) | stopping.DecreaseBelow(self.tol)
        result = descend(
            problem,
            weights,
            direction=DIRECTIONS[method.direction],
            step=STEPS[method.step],
            stop=stop,
        )

        self.network_ = network
        self.scaling_ = scaling
        self.weights_ = result.weights
        self.history_ = result.history
        self.n_iter_ = len(result.records)
        self.loss_ = result.loss
        self.outcome_ = result.outcome
        self.reason_ = result.reason
        if result.outcome in ("no_descent", "non_finite", "interrupted"):
            warnings.warn(
                f"training ended after {self.n_iter_} iterations: {result.reason}",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Targets for rows X, in the units of the training targets."""
        check_is_fitted(self)
        rows: Any = validate_data(self, X=X, reset=False, dtype=np.float64)
        inputs = self.scaling_.inputs(rows)
        outputs = self.scaling_.outputs(self.network_.predict(self.weights_, inputs))
        return outputs[:, 0] if self._single_output else outputs

    @property
    def certificate_(self) -> Certificate:
        """∏ ‖W_i‖_op in units of y per unit of x/‖x‖."""
        check_is_fitted(self)
        bound = certificate.spectral(self.weights_)
        return Certificate(self.scaling_.bound(bound.value), bound.method)


def _scaled_loss(loss: Loss, factor: float) -> Loss:
    """The loss for targets multiplied by `factor`, where its shape depends on their units."""
    return Huber(loss.delta * factor) if isinstance(loss, Huber) else loss


def _widths(hidden_layer_sizes: Sequence[int] | int) -> tuple[int, ...]:
    """One number is one hidden layer, as in scikit-learn."""
    widths = np.atleast_1d(np.asarray(hidden_layer_sizes, dtype=object)).tolist()
    if not all(isinstance(w, int | np.integer) and w > 0 for w in widths):
        raise ValueError(
            f"hidden_layer_sizes is {hidden_layer_sizes!r}; expected positive whole numbers"
        )
    return tuple(widths)
