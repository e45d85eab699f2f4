"""The base class of the estimators: parameters, training, prediction, and their summary."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
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
from greatcircle.data.folds import checked_groups
from greatcircle.data.rows import Rows
from greatcircle.data.scaling import Scaling
from greatcircle.data.sources import Source, source_of
from greatcircle.estimators import summary
from greatcircle.export import export
from greatcircle.model import Model, SelectionTable, Training
from greatcircle.network.activations import Activation
from greatcircle.network.network import Network
from greatcircle.objective.losses import Loss
from greatcircle.optimise.checkpoint import Checkpoint, fingerprint
from greatcircle.optimise.history import History
from greatcircle.optimise.outcome import Outcome
from greatcircle.optimise.progress import ProgressBar
from greatcircle.optimise.record import Record
from greatcircle.optimise.stopping import MaxIter, Rule
from greatcircle.training import data as training_data
from greatcircle.training.data import FitData, Names
from greatcircle.training.methods import Initialisation
from greatcircle.training.settings import MAY_CHANGE, FitSettings, fit_settings
from greatcircle.training.start import Continuation
from greatcircle.training.train import train
from greatcircle.training.trial_files import saved_seed

__all__ = ["LipschitzEstimator"]


class LipschitzEstimator(ABC, BaseEstimator):
    """Base class of the regressor and the classifier."""

    n_features_in_: int  # set by scikit-learn's `validate_data`, like the names of data frames
    feature_names_in_: np.ndarray
    model_: Model
    """The fitted model as plain NumPy arrays."""
    target_names_: tuple[str, ...]
    saturation: str | bool = False
    """What is clipped; only a regressor has it as a parameter, as logits have no range."""

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
        warm_start: bool = False,
        checkpoint: str | PathLike[str] | None = None,
        checkpoint_interval: float = 60.0,
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
        self.selection = selection
        self.cv = cv
        self.target_gain = target_gain
        self.ensemble = ensemble
        self.max_iter = max_iter
        self.tol = tol
        self.batch_size = batch_size
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.checkpoint_interval = checkpoint_interval
        self.resume = resume
        self.callbacks = callbacks
        self.verbose = verbose
        self.dtype = dtype
        self.random_state = random_state

    @abstractmethod
    def _encoded(self, y: Any, reset: bool, classes: Any = None) -> np.ndarray:
        """Return targets as a matrix; with `reset`, store their kind first."""

    @abstractmethod
    def _criterion(self, outputs: int) -> Loss:
        """Return the loss for this number of outputs."""

    @abstractmethod
    def _default_sizes(self) -> tuple[int, ...]:
        """Return the sizes for hidden_layer_sizes="auto"."""

    @abstractmethod
    def _names(self) -> Names:
        """Return the names of inputs and targets in the data."""

    def _settings(self) -> FitSettings:
        """Return the checked parameters."""
        return fit_settings(self, self._default_sizes())

    def _strata(self, rows: Rows) -> np.ndarray | None:
        """Return the label of each row for a stratified validation part, or None."""
        return None

    def _low_loss(self, outputs: int, *, selects: bool) -> Rule | None:
        """Return a rule that stops at a very low loss, or None."""
        return None

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Train on rows X and targets y.

        Parameters
        ----------
        X
            Rows: an array or a data frame. For data larger than memory: a `numpy.memmap`, the path
            of a Parquet file or folder, or an iterable of batches (X, y) or (X, y, sample_weight),
            which may be a list of such tuples.
        y
            Targets. For a Parquet data set the names of their columns, for batches None.
        sample_weight
            Weight of each row: a row of weight 2 counts like two rows.
        groups
            Group of each row, for rows in memory: the selection holds out whole groups.
        """
        settings = self._settings()
        self._criterion(1)  # reject an invalid loss before reading any data
        continues = self.warm_start and self.__sklearn_is_fitted__()
        if continues:  # a warm start has already seen every row
            settings = replace(settings, starts_with_chunk=False)
        checkpoint = self._checkpoint()
        seed = check_random_state(self.random_state).randint(2**31)
        if checkpoint is not None:
            seed = saved_seed(checkpoint, seed)
        stream = source_of(X, y, sample_weight, seed)
        if stream is None:
            rows = self._rows(X, y, sample_weight, reset=not continues)
        else:
            rows = self._sample(stream, reset=not continues)
        more = stream if stream is not None and len(rows) >= training_data.SAMPLE else None
        if checkpoint is not None:
            of = fingerprint(
                self._fingerprint_parameters(more),
                X=rows.inputs,
                y=rows.targets,
                sample_weight=rows.sample_weight,
            )
            checkpoint = replace(checkpoint, seed=seed, fingerprint=of)
        fraction = settings.validation_fraction
        if more is None:
            checked = None if groups is None else checked_groups(groups, len(rows))
            names, strata = self._names(), self._strata(rows)
            data = FitData.in_memory(rows, names, seed, fraction, strata, checked)
        elif groups is not None:
            raise ValueError(
                "groups are given with data larger than memory, of which any part may be held out; "
                "pass rows that fit into memory, or no groups"
            )
        else:
            encode = partial(self._encoded, reset=False)
            data = FitData.streamed(rows, more, self._names(), encode, fraction)
        bar = ProgressBar(type(self).__name__, settings.max_iter) if self.verbose else None
        start = self._continuation(settings, ()) if continues else None
        return self._train(data, seed, settings, start=start, checkpoint=checkpoint, bar=bar)

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Self:
        settings = replace(
            self._settings(),
            stop=MaxIter(1),
            selects=False,
            ensemble=1,
            budget_iterations=0,
            batch_size=None,
            starts_with_chunk=False,
            validation_fraction=None,
        )
        self._criterion(1)
        continues = self.__sklearn_is_fitted__()
        rows = self._rows(X, y, sample_weight, reset=not continues, classes=classes)
        seed = check_random_state(self.random_state).randint(2**31)
        start = self._continuation(settings, self.history_.rows()) if continues else None
        data = FitData(rows, names=self._names())
        return self._train(data, seed, settings, start=start)

    def _train(
        self,
        data: FitData,
        seed: int,
        settings: FitSettings,
        *,
        start: Continuation | None = None,
        checkpoint: Checkpoint | None = None,
        bar: ProgressBar | None = None,
    ) -> Self:
        outputs = data.rows.targets.shape[1]
        low_loss = self._low_loss(outputs, selects=settings.selects)
        settings = replace(
            settings,
            initialisation=self._initialisation(settings, outputs),
            stop=settings.stop if low_loss is None else settings.stop | low_loss,
            low_loss=low_loss,
        )
        fitted = train(
            settings,
            data,
            self._criterion(outputs),
            seed,
            start=start,
            checkpoint=checkpoint,
            bar=bar,
        )
        self.model_, self._direction_state = fitted.model, fitted.direction_state
        if self.outcome_ in (Outcome.NO_DESCENT, Outcome.NON_FINITE, Outcome.INTERRUPTED):
            warnings.warn(
                f"training ended after {self.n_iter_} iteration{'s' * (self.n_iter_ != 1)}: "
                f"{self.reason_}",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _initialisation(self, settings: FitSettings, outputs: int) -> Initialisation:
        """Return how initial weights are chosen, for targets of this kind."""
        return settings.initialisation

    def _continuation(self, settings: FitSettings, records: Sequence[Record]) -> Continuation:
        """Return the fitted model to continue from, or raise an error if its layers changed."""
        hidden, given = self.model_.sizes[1:-1], settings.hidden_layer_sizes
        together = tuple((settings.ensemble or 1) * units for units in given)  # side by side
        if not settings.chooses_sizes and hidden not in (given, together):
            raise ValueError(
                f"hidden_layer_sizes is {settings.hidden_layer_sizes} and the fitted network has "
                f"{hidden}: training can only continue with the same layers; use warm_start=False"
            )
        # A loaded model has no direction state.
        return Continuation(self.model_, getattr(self, "_direction_state", None), records)

    def _checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint that the parameters ask for, or None."""
        if self.checkpoint is None:
            if self.resume:
                raise ValueError(
                    "resume is True and checkpoint is None; give the folder to resume from"
                )
            return None
        if self.warm_start:
            raise ValueError(
                "checkpoint and warm_start are two ways to continue a fit; use one of them"
            )
        return Checkpoint(self.checkpoint, self.checkpoint_interval, self.resume)

    def _fingerprint_parameters(self, stream: Source | None) -> dict[str, Any]:
        """Return parameters that must not change when a fit is resumed, and a stream's size."""
        parameters = self.get_params(deep=False)
        for name in MAY_CHANGE:
            parameters.pop(name, None)
        if stream is not None:
            parameters["number of rows"] = stream.size
        return parameters

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
        """Validate rows with scikit-learn; for text, raise an error that names the argument."""
        try:
            return validate_data(self, X=X, dtype=np.float64, **checks)
        except ValueError as error:
            if "could not convert string" not in str(error):
                raise
            raise ValueError(text_message(X)) from error

    def _sample(self, stream: Source, *, reset: bool) -> Rows:
        """Return the first rows of a stream, or all of a short one."""
        sample = stream.sample(training_data.SAMPLE)
        if sample is None:
            raise ValueError("X has no rows; expected at least one batch")
        rows = self._rows(*sample, reset=reset)
        if stream.names is not None:
            self.feature_names_in_ = np.array(stream.names, dtype=object)
            self.target_names_ = stream.target_names
        return rows

    def _feature_names(self) -> tuple[str, ...] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else tuple(map(str, names))

    def _with_model(self, model: Model) -> Self:
        """Return this estimator, fitted with a model that was read from a file."""
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
    def selection_(self) -> SelectionTable | None:
        """Table of the candidates among which held-out error chose; None without a choice."""
        return self._trained("selection_").selection

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
            raise AttributeError(
                f"the model has no record of its training, so no {attribute!r}; call fit"
            )
        return trained

    def _outputs(self, X: Any) -> np.ndarray:
        """Return the outputs of the network for rows X, in the units of the targets."""
        check_is_fitted(self)
        return self.model_.outputs(self._validated(X, reset=False))

    def jacobian(self, X: Any) -> np.ndarray:
        """Return the derivatives of the outputs (for a classifier: of the logits) at rows X.

        Returns
        -------
        array, (rows, outputs, features)
            In units of y per unit of X. No row's operator norm exceeds `certificate_.value`,
            except with `scaling="paper"`, whose bound is per unit of x/‖x‖. Derivatives by
            a clipped input, and those of a clipped output, are zero.
        """
        check_is_fitted(self)
        return self.model_.jacobian(self._validated(X, reset=False))

    def layers(self) -> tuple[list[np.ndarray], list[np.ndarray] | None]:
        """Return matrices (fan_in, fan_out) and biases of the network, which sees scaled inputs."""
        check_is_fitted(self)
        return self.model_.matrices, self.model_.biases

    @property
    def certificate_(self) -> Certificate:
        """`certificate.tight` of the model, in units of y per unit of X.

        With `scaling="paper"` it holds for ‖x‖ ≥ 1. For a classifier the outputs are logits.
        """
        check_is_fitted(self)
        return self.model_.certificate

    @property
    def lipschitz_bound_(self) -> float:
        """`certificate_.value`."""
        return self.certificate_.value

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
        saturation: bool = True,
    ) -> list[Path]:
        """Write the fitted model for where it will run: C, ONNX, CasADi, PyTorch or NumPy.

        The file includes the scaling and, unless `saturation` is False, the clipping of inputs and
        outputs. The bound is proved for the rounded numbers in it. A classifier exports its logits.
        See `greatcircle.export.export`.
        """
        return export(
            self,
            path,
            to=to,
            dtype=dtype,
            name=name,
            jacobian=jacobian,
            units=units,
            saturation=saturation,
        )

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in self.__dict__

    def _html_repr(self) -> str:
        """Return scikit-learn's diagram and a summary of the fit, for notebooks."""
        diagram = BaseEstimator._html_repr(self)
        return diagram + (summary.html(self.model_) if self.__sklearn_is_fitted__() else "")
