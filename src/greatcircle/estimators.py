"""scikit-learn estimators, thin over the core."""

import warnings
from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from greatcircle import certificate, losses, stopping
from greatcircle.activations import Activation
from greatcircle.certificate import Certificate
from greatcircle.descent import descend
from greatcircle.directions import Direction
from greatcircle.losses import Huber, Loss
from greatcircle.methods import DIRECTIONS, METHODS, STARTS, STEPS, Start, lookup
from greatcircle.network import Network
from greatcircle.problem import Problem
from greatcircle.scaling import initialise
from greatcircle.steps import Step

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
        "auto"; "ad", the paper's Method 1; "mm", its Method 2; or a pair (direction, step) of
        names or of objects. The paper's methods start by its Algorithm 1 (no biases, radius 1).
    scaling
        "standard": inputs standardised, a bound that holds everywhere. "paper": each row to norm
        one, a bound per unit of x/‖x‖. "max": everything divided by the largest norm. None leaves
        it to the method: "paper" for the paper's, otherwise "standard".
    lipschitz
        A Lipschitz bound that training never exceeds, in units of y per unit of X: the a-priori
        bound ∏μ_i. Not for `scaling="paper"`, which has no bound of that kind.
    loss
        "squared" or "huber", or a loss object. Huber's `delta` is in the units of y.
    radius
        Frobenius norm of each weight matrix: one number, or one for each layer. None leaves it to
        the method.
    max_iter
        Most iterations.
    tol
        Stop when ten iterations together gain less than this part of the loss; 0 never does. None
        leaves it to the method: 5e-3 for "auto" and pairs, 0 for the paper's.
    dtype
        "float32" or "float64".
    random_state
        Seed of the initial weights.

    Attributes
    ----------
    weights_ : tuple of arrays, (fan_in, fan_out) each
    scaling_ : Scaling
    history_ : dict of arrays, one entry for each iteration
    n_iter_ : int
    loss_ : float, in the scaled units of training
    outcome_, reason_ : str, how training ended, in one word and in several
    certificate_ : Certificate, the operator-norm bound in units of y per unit of X (with
        `scaling="paper"`: of x/‖x‖)

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
        method: str | tuple[Any, Any] = "auto",
        scaling: str | None = None,
        lipschitz: float | None = None,
        loss: str | Loss = "squared",
        radius: float | Sequence[float] | None = None,
        max_iter: int = 200,
        tol: float | None = None,
        dtype: str = "float32",
        random_state: Any = None,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.method = method
        self.scaling = scaling
        self.lipschitz = lipschitz
        self.loss = loss
        self.radius = radius
        self.max_iter = max_iter
        self.tol = tol
        self.dtype = dtype
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows X and targets y (one column, or several)."""
        method = _method(self.method)
        start, scaling_name = method.start, self.scaling or method.scaling
        target_scale = start.target_scale
        if self.lipschitz is not None:
            target_scale = _checked_budget(self.lipschitz, scaling_name)
        if isinstance(self.loss, str) and self.loss not in LOSSES:
            raise ValueError(f"loss is {self.loss!r}; expected one of {', '.join(LOSSES)}")
        tol = method.tol if self.tol is None else self.tol
        if not isinstance(tol, int | float) or not tol >= 0:
            raise ValueError(f"tol is {tol!r}; expected a number that is not negative, or None")
        checked: Any = validate_data(
            self, X=X, y=y, multi_output=True, y_numeric=True, dtype=np.float64
        )
        inputs, targets = (np.asarray(a, np.float64) for a in checked)
        self._single_output = targets.ndim == 1
        targets = targets.reshape(len(targets), -1)
        widths = _widths(self.hidden_layer_sizes)
        sizes = (inputs.shape[1], *widths, targets.shape[1])
        network = Network(sizes, self.activation, bias=start.bias)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        weights, scaling = initialise(
            network,
            inputs,
            targets,
            rng,
            scaling=scaling_name,
            target_scale=target_scale,
            centred=start.centred,
            scheme=start.scheme,
            radius=start.radius if self.radius is None else self.radius,
            headroom=start.headroom,
            dtype=self.dtype,
        )
        problem = Problem(
            network,
            scaling.inputs(inputs),
            scaling.targets(targets),
            loss=_scaled_loss(losses.get(self.loss), scaling.factor),
            dtype=self.dtype,
        )
        stop = stopping.MaxIter(self.max_iter) | stopping.DecreaseBelow(tol)
        result = descend(
            problem,
            weights,
            direction=method.direction,
            step=method.step,
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
        """∏ ‖W_i‖_op in units of y per unit of X (with `scaling="paper"`: of x/‖x‖)."""
        check_is_fitted(self)
        bound = certificate.spectral(self.network_.linear(self.weights_))
        return Certificate(self.scaling_.bound(bound.value), bound.method)


class _Method(NamedTuple):
    """What a method's name, or a pair, stands for."""

    direction: Direction | None
    step: Step
    start: Start
    scaling: str
    tol: float


def _method(choice: Any) -> _Method:
    if isinstance(choice, str):
        named = lookup(METHODS, choice, "method")
        direction, step = DIRECTIONS[named.direction], STEPS[named.step]
        return _Method(direction, step, STARTS[named.start], named.scaling, named.tol)
    if not isinstance(choice, tuple) or len(choice) != 2:
        raise ValueError(
            f"method is {choice!r}; expected one of {', '.join(METHODS)}, or a pair "
            "(direction, step)"
        )
    direction, step = choice
    if isinstance(direction, str):
        direction = lookup(DIRECTIONS, direction, "method's direction")
    if isinstance(step, str):
        step = lookup(STEPS, step, "method's step")
    return _method("auto")._replace(direction=direction, step=step)


def _checked_budget(lipschitz: Any, scaling: str) -> float:
    if scaling == "paper":
        raise ValueError(
            f"lipschitz is {lipschitz!r} with scaling='paper', which has no global bound; "
            "use scaling='standard' or 'max'"
        )
    if not isinstance(lipschitz, Real) or not 0 < float(lipschitz) < np.inf:
        raise ValueError(f"lipschitz is {lipschitz!r}; expected a positive number, or None")
    return float(lipschitz)


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
