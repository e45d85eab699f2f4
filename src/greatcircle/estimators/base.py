"""What the estimators share: how they train, predict and are shown."""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from greatcircle.certificate.proof import Certificate
from greatcircle.data.checks import names_of, normalised_weights, text_message
from greatcircle.data.rows import Rows
from greatcircle.data.scaling import Scaling
from greatcircle.data.sources import Source, source_of
from greatcircle.estimators import summary
from greatcircle.model import Model, Training
from greatcircle.network.activations import Activation
from greatcircle.network.network import Network
from greatcircle.objective.losses import Loss
from greatcircle.optimise import stopping
from greatcircle.optimise.checkpoint import Checkpoint
from greatcircle.optimise.record import Record
from greatcircle.optimise.stopping import Rule
from greatcircle.optimise.watch import Bar, History, Watch
from greatcircle.training import training
from greatcircle.training.methods import Start
from greatcircle.training.settings import Plan, plan_of
from greatcircle.training.training import Parts, Problems

FEW_ROWS = 2000
"""Up to so many rows, dtype="auto" is float64: it costs next to nothing there."""


class LipschitzEstimator(ABC, BaseEstimator):
    """What the regressor and the classifier share: their parameters, and how they train."""

    n_features_in_: int  # scikit-learn's `validate_data` sets it, and the next one for data frames
    feature_names_in_: np.ndarray
    model_: Model
    """The fitted model as plain NumPy arrays."""
    target_names_: tuple[str, ...]

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
        max_iter: int = 200,
        tol: float | None = None,
        batch_size: int | str | None = "auto",
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        warm_start: bool = False,
        checkpoint: str | PathLike[str] | None = None,
        checkpoint_seconds: float = 60.0,
        resume: bool = False,
        callbacks: Sequence[Callable[[Record], Any]] = (),
        verbose: bool = False,
        dtype: str = "auto",
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
        self.batch_size = batch_size
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.resume = resume
        self.callbacks = callbacks
        self.verbose = verbose
        self.dtype = dtype
        self.random_state = random_state

    @abstractmethod
    def _encoded(self, y: Any, reset: bool, classes: Any = None) -> np.ndarray:
        """Targets as a matrix; `reset` learns what they look like first."""

    @abstractmethod
    def _criterion(self, outputs: int) -> Loss:
        """The loss for so many outputs."""

    @abstractmethod
    def _default_widths(self) -> tuple[int, ...]:
        """Hidden layers where the user names none."""

    def _start(self, start: Start, outputs: int) -> Start:
        """The method's start, for targets of this kind."""
        return start

    def _strata(self, rows: Rows) -> np.ndarray | None:
        """What a validation part is balanced by."""
        return None

    def _enough(self, outputs: int) -> Rule | None:
        """When the loss is so low that there is nothing left to learn."""
        return None

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train on rows X and targets y.

        Parameters
        ----------
        X
            Rows: an array or a data frame. Data that memory cannot hold: a `numpy.memmap`, the path
            of a Parquet file or folder, or an iterable of batches (X, y) or (X, y, sample_weight),
            which may be a list of such tuples.
        y
            Targets. For a Parquet data set the names of their columns, for batches None.
        sample_weight
            Weight of each row: a row of weight 2 counts like two rows.
        """
        plan = plan_of(self, self._default_widths())
        self._criterion(1)  # a loss that is none is named before the data are looked at
        goes_on = self.warm_start and hasattr(self, "model_")
        if goes_on:  # from weights to which a chunk of the rows has nothing to say
            plan = plan._replace(in_chunks=False)
        checkpoint = training.checkpoint_of(self)
        seed = check_random_state(self.random_state).randint(2**31)
        if checkpoint and checkpoint.saved:
            seed = checkpoint.saved.seed
        stream = source_of(X, y, sample_weight, seed)
        with _bar(type(self).__name__, self.max_iter, self.verbose) as bar:
            if stream is None:
                rows = self._rows(X, y, sample_weight, reset=not goes_on)
            else:
                rows = self._sampled(stream, reset=not goes_on)
            more = stream if stream and len(rows) >= training.SAMPLE else None
            if checkpoint:
                checkpoint.begin(seed, training.fingerprint_of(self, rows, more))
            parts = self._parts(plan, rows, more, seed)
            return self._train(plan, parts, seed, goes_on, bar=bar, checkpoint=checkpoint)

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Self:
        plan = plan_of(self, self._default_widths())._replace(stop=stopping.MaxIter(1))
        self._criterion(1)
        goes_on = hasattr(self, "model_")
        rows = self._rows(X, y, sample_weight, reset=not goes_on, classes=classes)
        seed = check_random_state(self.random_state).randint(2**31)
        earlier = self.history_.rows() if goes_on else ()
        parts = Parts(rows, None)
        return self._train(plan, parts, seed, goes_on, earlier=earlier, whole_fit=False)

    def _rows(
        self, X: Any, y: Any, sample_weight: Any, *, reset: bool, classes: Any = None
    ) -> Rows:
        checked = self._validated(X, y=y, reset=reset, **self._checks_of_targets())
        if reset:
            self.target_names_ = names_of(y)
        inputs = np.asarray(checked[0], np.float64)
        targets = self._encoded(checked[1], reset, classes)
        weight = None
        if sample_weight is not None:
            normalised_weights(sample_weight, len(inputs))
            weight = np.asarray(sample_weight, np.float64)
        return Rows(inputs, targets, weight)

    def _checks_of_targets(self) -> dict[str, Any]:
        return {"multi_output": True, "y_numeric": True}

    def _validated(self, X: Any, **checks: Any) -> Any:
        """As scikit-learn does it, but text is an error that names the argument."""
        try:
            return validate_data(self, X=X, dtype=np.float64, **checks)
        except ValueError as error:
            if "could not convert string" not in str(error):
                raise
            raise ValueError(text_message(X)) from error

    def _sampled(self, stream: Source, *, reset: bool) -> Rows:
        """The first rows of a stream, or all of a short one."""
        sample = stream.sample(training.SAMPLE)
        if sample is None:
            raise ValueError("X has no rows; expected at least one batch")
        rows = self._rows(*sample, reset=reset)
        if stream.names is not None:
            self.feature_names_in_ = np.array(stream.names, dtype=object)
            self.target_names_ = stream.target_names
        return rows

    def _parts(self, plan: Plan, rows: Rows, stream: Source | None, seed: int) -> Parts:
        held_out = self.validation_fraction if self.early_stopping else None
        if stream is None:
            strata = self._strata(rows)
            size, chunks = plan.batch_size, plan.in_chunks
            return training.in_memory(rows, seed, size, chunks, held_out, strata)
        encode = partial(self._encoded, reset=False)
        return training.of_stream(rows, stream, plan.batch_size, held_out, encode)

    def _train(
        self,
        plan: Plan,
        parts: Parts,
        seed: int,
        goes_on: bool,
        *,
        bar: Bar | None = None,
        earlier: Sequence[Record] = (),
        checkpoint: Checkpoint | None = None,
        whole_fit: bool = True,
    ) -> Self:
        outputs = parts.start.targets.shape[1]
        loss = self._criterion(outputs)
        if goes_on:
            self._check_unchanged(plan)
            network, weights, scaling = self.network_, self.weights_, self.scaling_
            dtype = weights[0].dtype
        else:
            dtype = self.dtype
            if dtype == "auto":
                dtype = "float64" if len(parts.start) <= FEW_ROWS else "float32"
            network, weights, scaling = training.begun(
                plan,
                self._start(plan.start, outputs),
                parts.start,
                loss,
                self.activation,
                seed,
                dtype,
            )
        problems = Problems(network, scaling, loss, dtype)
        unseen = None if parts.unseen is None else problems.of(parts.unseen, parts.encode)
        watch = Watch(
            unit=scaling.factor**-2,  # one, but for the squared loss
            lipschitz=partial(_spectral_bound, network, scaling),
            validation=None if unseen is None else lambda w: float(unseen.loss(w)),
            patience=self.n_iter_no_change,
            callbacks=self.callbacks,
            bar=bar,
            rows=checkpoint.saved.rows if checkpoint and checkpoint.saved else earlier,
        )
        enough = self._enough(outputs)
        settings = {
            "direction": plan.direction,
            "step": plan.step,
            "stop": plan.stop | enough if enough else plan.stop,
            # A model that was loaded has none, and starts to remember anew.
            "memory": getattr(self, "_memory", None) if goes_on else None,
        }
        result = training.train(parts, problems, weights, watch, settings, checkpoint)
        if plan.budget is not None:
            result = training.within(plan, parts.start, problems, watch, result, whole_fit)
        weights = result.weights if watch.best is None else watch.best
        history = History.of(watch.rows)
        loss_value = result.loss * watch.unit
        if watch.best is not None:
            best = int(np.nanargmin(history["validation_loss"]))
            loss_value = float(history["loss"][best])
        reason = watch.reason if result.outcome == "stopped" else result.reason
        model = self._made_model(
            network, weights, scaling, Training(history, loss_value, result.outcome, reason)
        )
        if plan.budget is not None:
            within = _shrunk_to(model, plan.budget)
            if within is not model:
                loss_value = float(problems.of(parts.start).loss(within.weights)) * watch.unit
                model = replace(within, training=Training(history, loss_value, result.outcome, reason))
        self.model_, self._memory = model, result.memory
        if result.outcome in ("no_descent", "non_finite", "interrupted"):
            warnings.warn(
                f"training ended after {self.n_iter_} iterations: {result.reason}",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _check_unchanged(self, plan: Plan) -> None:
        hidden = self.network_.sizes[1:-1]
        if hidden != plan.widths:
            raise ValueError(
                f"hidden_layer_sizes is {plan.widths} and the fitted network has {hidden}: "
                "training can only go on with the same layers; use warm_start=False"
            )

    def _made_model(
        self, network: Network, weights: Sequence[Any], scaling: Scaling, trained: Training
    ) -> Model:
        names = getattr(self, "feature_names_in_", None)
        return Model(
            weights=tuple(np.asarray(w) for w in weights),
            bias=network.bias,
            activation=network.activation,
            scaling=scaling,
            feature_names=None if names is None else tuple(map(str, names)),
            target_names=self.target_names_,
            single_output=getattr(self, "_single_output", False),
            classes=getattr(self, "classes_", None),
            lipschitz=None if self.lipschitz is None else float(self.lipschitz),
            training=trained,
        )

    def _with_model(self, model: Model) -> Self:
        """Become fitted with a model that was read from a file."""
        self.model_, self.target_names_ = model, model.target_names
        self.n_features_in_ = model.sizes[0]
        if model.feature_names is not None:
            self.feature_names_in_ = np.array(model.feature_names, dtype=object)
        return self

    @property
    def weights_(self) -> tuple[np.ndarray, ...]:
        """Matrix of each layer, (fan_in, fan_out), the bias in its last row."""
        return self._fitted("weights_").weights

    @property
    def network_(self) -> Network:
        """Sizes, activation and biases of the network."""
        model = self._fitted("network_")
        return Network(model.sizes, model.activation, bias=model.bias)

    @property
    def scaling_(self) -> Scaling:
        """Scaling of inputs and targets."""
        return self._fitted("scaling_").scaling

    @property
    def history_(self) -> History:
        """Table of the iterations."""
        return self._trained("history_").history

    @property
    def n_iter_(self) -> int:
        """Number of iterations."""
        return len(self._trained("n_iter_").history["loss"])

    @property
    def loss_(self) -> float:
        """Final training loss."""
        return self._trained("loss_").loss

    @property
    def outcome_(self) -> str:
        """How training ended, in one word."""
        return self._trained("outcome_").outcome

    @property
    def reason_(self) -> str:
        """How training ended, in a sentence."""
        return self._trained("reason_").reason

    def _fitted(self, attribute: str) -> Model:
        if "model_" not in self.__dict__:
            raise AttributeError(
                f"{type(self).__name__} has no attribute {attribute!r} before fit; call fit first"
            )
        return self.model_

    def _trained(self, attribute: str) -> Training:
        trained = self._fitted(attribute).training
        if trained is None:
            raise AttributeError(f"the model was not trained here and has no {attribute!r}")
        return trained

    def _outputs(self, X: Any) -> np.ndarray:
        """Outputs of the network for rows X, in the units of the targets."""
        check_is_fitted(self)
        return self.model_.outputs(self._validated(X, reset=False))

    def jacobian(self, X: Any) -> np.ndarray:
        """Derivatives of the outputs (for a classifier: of the logits) at each row of X.

        Returns
        -------
        array, (rows, outputs, features)
            In units of y per unit of X. No row's operator norm exceeds `certificate_.value`,
            except with `scaling="paper"`, whose bound is per unit of x/‖x‖.
        """
        check_is_fitted(self)
        return self.model_.jacobian(self._validated(X, reset=False))

    def layers(self) -> tuple[list[np.ndarray], list[np.ndarray] | None]:
        """Matrices (fan_in, fan_out) and biases of the network, which sees scaled inputs."""
        check_is_fitted(self)
        return self.model_.matrices, self.model_.biases

    @property
    def certificate_(self) -> Certificate:
        """`certificate.tight` of the model, in units of y per unit of X.

        With `scaling="paper"` it holds for ‖x‖ ≥ 1. For a classifier the outputs are logits.
        """
        check_is_fitted(self)
        return self.model_.certificate

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to a .safetensors file; `greatcircle.load` reads it.

        See `greatcircle.estimators.save`.
        """
        from greatcircle.estimators import files  # which imports this module

        files.save(self, path)

    def export(
        self,
        path: str | PathLike[str],
        *,
        to: str | None = None,
        dtype: str = "float64",
        name: str | None = None,
        jacobian: bool = False,
        units: Mapping[str, str] | None = None,
    ) -> list[Path]:
        """Write the fitted model for where it will run: C, ONNX, CasADi, PyTorch or NumPy.

        Scaling included, and with the bound proved for the numbers of the file. A classifier
        exports its logits. See `greatcircle.export.export`.
        """
        from greatcircle.export import export  # only here: exporters take time to import

        check_is_fitted(self)
        return export(self, path, to=to, dtype=dtype, name=name, jacobian=jacobian, units=units)

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in self.__dict__

    def _html_repr(self) -> str:
        """For notebooks: scikit-learn's diagram, and a summary of the fit below it."""
        diagram = BaseEstimator._html_repr(self)
        return diagram + (summary.html(self.model_) if self.__sklearn_is_fitted__() else "")


def _spectral_bound(network: Network, scaling: Scaling, weights: Any) -> float:
    """Return ∏ ‖W_i‖_op in the units of the data: cheap enough for every iteration."""
    first, *others = network.linear(weights)
    norms = map(_largest_gain, [first * scaling.scale[:, None], *others])
    return math.prod(norms) / scaling.factor


def _shrunk_to(model: Model, budget: float) -> Model:
    """Shrink the last layer until the certificate itself is at most the budget.

    Training stays within the budget by construction, up to rounding; the promise is exact.
    """
    part = float(np.finfo(model.weights[-1].dtype).eps)
    while model.certificate.value > budget:
        part = min(4 * part, 0.5)  # at half, the layer is zero in the end
        *others, last = model.weights
        factor = (1 - part) * (budget / model.certificate.value)
        model = replace(model, weights=(*others, np.asarray(last * factor, last.dtype)))
    return model


def _largest_gain(matrix: np.ndarray) -> float:
    """Largest singular value, by an eigenvalue: as exact as by singular values, and faster."""
    size = float(np.max(np.abs(matrix))) or 1.0
    unit = np.asarray(matrix, np.float64) / size  # whose squares neither overflow nor vanish
    square = unit @ unit.T if len(unit) < unit.shape[1] else unit.T @ unit
    return size * math.sqrt(np.linalg.eigvalsh(square)[-1])


def _bar(title: str, most: int, verbose: bool) -> Any:
    return Bar(title, most) if verbose else nullcontext()
