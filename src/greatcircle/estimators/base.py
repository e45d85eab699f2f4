"""What the estimators share: how they train, predict and are shown."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from numbers import Real
from os import PathLike
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from greatcircle import certificate, stopping, summary
from greatcircle.activations import Activation
from greatcircle.batches import descend_in_batches
from greatcircle.certificate import Certificate
from greatcircle.checkpoint import Checkpoint, checkpointed, fingerprint
from greatcircle.descent import Result, descend
from greatcircle.estimators.data import about_text, check_size, names_of, split_off
from greatcircle.estimators.parameters import (
    MAY_CHANGE,
    Plan,
    check_early_stopping,
    checked_budget,
    checked_widths,
    is_count,
    method_of,
)
from greatcircle.losses import Loss, Squared
from greatcircle.methods import Start, begin
from greatcircle.precision import checked_dtype
from greatcircle.problem import Problem
from greatcircle.scaling import absorbed, checked_share
from greatcircle.sources import Rows, Source, source
from greatcircle.stopping import Rule
from greatcircle.watch import Bar, History, Row, Watch

FEW_ROWS = 2000
"""Up to so many rows, dtype="auto" is float64: it costs next to nothing there."""

SAMPLE = 100_000
"""Rows of a stream from which scaling and start are taken."""

FIRST_BATCH, LARGEST_BATCH = 1024, 65_536
"""Rows of the batches of a stream."""


class LipschitzEstimator(ABC, BaseEstimator):
    """What the regressor and the classifier share: their parameters, and how they train."""

    n_features_in_: int  # scikit-learn's `validate_data` sets it, and the next one for data frames
    feature_names_in_: np.ndarray
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
        batch_size: int | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        warm_start: bool = False,
        checkpoint: str | PathLike[str] | None = None,
        checkpoint_seconds: float = 60.0,
        resume: bool = False,
        callbacks: Sequence[Callable[[Row], Any]] = (),
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
            of a Parquet file or folder, or an iterable of batches (X, y) or (X, y, sample_weight).
        y
            Targets. For a Parquet data set the names of their columns, for batches None.
        sample_weight
            Weight of each row: a row of weight 2 counts like two rows.
        """
        plan = self._plan()
        goes_on = self.warm_start and hasattr(self, "weights_")
        seed = check_random_state(self.random_state).randint(2**31)
        stream = source(X, y, sample_weight, seed)
        with _bar(type(self).__name__, self.max_iter, self.verbose) as bar:
            if stream is not None:
                return self._train_on_stream(plan, stream, bar, goes_on)
            rows = self._rows(X, y, sample_weight, reset=not goes_on)
            return self._train(plan, rows, bar, goes_on)

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Self:
        plan = self._plan()._replace(stop=stopping.MaxIter(1))
        goes_on = hasattr(self, "weights_")
        rows = self._rows(X, y, sample_weight, reset=not goes_on, classes=classes)
        return self._train(plan, rows, None, goes_on, whole_fit=False)

    def _plan(self) -> Plan:
        method = method_of(self.method)
        scaling = self.scaling or method.scaling
        start = method.start
        if self.lipschitz is not None:
            start = start._replace(target_scale=checked_budget(self.lipschitz, scaling))
        if self.radius is not None:
            start = start._replace(radius=self.radius)
        tol = method.tol if self.tol is None else self.tol
        if not isinstance(tol, Real) or not float(tol) >= 0:
            raise ValueError(f"tol is {tol!r}; expected a number that is not negative, or None")
        if not isinstance(self.dtype, str) or self.dtype != "auto":
            checked_dtype(self.dtype, also="'auto', ")
        check_early_stopping(self.validation_fraction, self.n_iter_no_change)
        if self.batch_size is not None and not is_count(self.batch_size):
            raise ValueError(
                f"batch_size is {self.batch_size!r}; expected a whole number from 1 up, or None"
            )
        if not isinstance(self.callbacks, Iterable) or not all(map(callable, self.callbacks)):
            raise ValueError(f"callbacks is {self.callbacks!r}; expected a list of functions")
        widths = self._default_widths()
        if not isinstance(self.hidden_layer_sizes, str) or self.hidden_layer_sizes != "auto":
            widths = checked_widths(self.hidden_layer_sizes)
        self._criterion(1)
        stop = stopping.MaxIter(self.max_iter) | stopping.DecreaseBelow(float(tol))
        return Plan(method.direction, method.step, start, scaling, stop, widths)

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
            checked_share(sample_weight, len(inputs))
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
            raise ValueError(about_text(X)) from error

    def _train(
        self, plan: Plan, rows: Rows, bar: Bar | None, goes_on: bool, *, whole_fit: bool = True
    ) -> Self:
        seed = check_random_state(self.random_state).randint(2**31)
        checkpoint = self._opened_checkpoint(rows) if whole_fit else None
        saved = checkpoint.read() if checkpoint and self.resume else None
        seed = saved.seed if saved else seed
        random = np.random.RandomState(seed)
        training, unseen = rows, None
        if self.early_stopping and whole_fit:
            training, unseen = split_off(
                rows, self.validation_fraction, self._strata(rows), random.randint(2**31)
            )
        if goes_on:
            self._check_unchanged(plan)
            dtype = self.weights_[0].dtype
        else:
            dtype = self.dtype
            if dtype == "auto":
                dtype = "float64" if len(training) <= FEW_ROWS else "float32"
            self._begin(plan, training, np.random.default_rng(seed), dtype)
        whole = self._problem(training, dtype)
        held_out = None if unseen is None else self._problem(unseen, dtype)
        earlier = self.history_.rows() if goes_on and not whole_fit else ()
        watch = self._watch(bar, held_out, saved.rows if saved else earlier)
        settings = self._settings(plan, watch, goes_on)
        size, half = self.batch_size, len(training) // 2
        if whole_fit and size is not None and size < half:
            draws = np.random.default_rng(random.randint(2**31))

            def draw(count: int) -> Problem:
                some = training.take(np.sort(draws.integers(0, len(training), count)))
                return self._with_rows(whole, some)

            result = descend_in_batches(
                draw, self.weights_, batch_size=size, largest=half, whole=whole, **settings
            )
        elif checkpoint:
            result = checkpointed(checkpoint, saved, seed, watch, whole, self.weights_, settings)
        else:
            result = descend(whole, self.weights_, **settings)
        self._keep(result, watch)
        return self

    def _opened_checkpoint(self, rows: Rows) -> Checkpoint | None:
        if self.checkpoint is None:
            if self.resume:
                raise ValueError("resume is True and checkpoint is None; name the folder to resume")
            return None
        if self.batch_size is not None:
            raise ValueError("checkpoint needs all rows at once; use batch_size=None")
        if self.warm_start:
            raise ValueError("checkpoint and warm_start are two ways to go on; use one of them")
        parameters = self.get_params(deep=False)
        for name in MAY_CHANGE:
            del parameters[name]
        of = fingerprint(parameters, X=rows.inputs, y=rows.targets, sample_weight=rows.weight)
        return Checkpoint(self.checkpoint, self.checkpoint_seconds, of)

    def _train_on_stream(self, plan: Plan, stream: Source, bar: Bar | None, goes_on: bool) -> Self:
        if self.early_stopping:
            raise ValueError(
                "early_stopping holds out rows in memory; with a stream of rows use "
                "early_stopping=False: a turn that unseen rows refuse is not taken there anyway"
            )
        sample = stream.draw(SAMPLE)
        if sample is None:
            raise ValueError("X has no rows; expected at least one batch")
        rows = self._rows(*sample, reset=not goes_on)
        if stream.names is not None:
            self.feature_names_in_ = np.array(stream.names, dtype=object)
            self.target_names_ = stream.target_names
        if len(rows) < SAMPLE:  # that was all
            return self._train(plan, rows, bar, goes_on)
        if self.checkpoint is not None or self.resume:
            raise ValueError(
                "checkpoint and resume need all rows in memory; with a long stream use "
                "checkpoint=None and resume=False"
            )
        dtype = "float32" if self.dtype == "auto" else self.dtype
        if goes_on:
            self._check_unchanged(plan)
        else:
            seed = check_random_state(self.random_state).randint(2**31)
            self._begin(plan, rows, np.random.default_rng(seed), dtype)
        whole = self._problem(rows, dtype)

        def draw(count: int) -> Problem | None:
            some = stream.draw(count)
            if some is None or len(some) < count:
                return None
            return self._with_rows(
                whole, Rows(some.inputs, self._encoded(some.targets, False), some.weight)
            )

        watch = self._watch(bar, None, ())
        result = descend_in_batches(
            draw,
            self.weights_,
            batch_size=min(self.batch_size or FIRST_BATCH, LARGEST_BATCH),
            largest=LARGEST_BATCH,
            **self._settings(plan, watch, goes_on),
        )
        self._keep(result, watch)
        return self

    def _problem(self, rows: Rows, dtype: Any) -> Problem:
        return Problem(
            self.network_,
            self.scaling_.inputs(rows.inputs),
            self.scaling_.targets(rows.targets),
            loss=self._criterion(self.network_.sizes[-1]),
            sample_weight=rows.weight,
            dtype=dtype,
        )

    def _with_rows(self, problem: Problem, rows: Rows) -> Problem:
        inputs, targets = self.scaling_.inputs(rows.inputs), self.scaling_.targets(rows.targets)
        return problem.with_rows(inputs, targets, rows.weight)

    def _watch(self, bar: Bar | None, held_out: Problem | None, rows: Sequence[Row]) -> Watch:
        return Watch(
            unit=self.scaling_.factor**-2,  # one, but for the squared loss
            lipschitz=self._bound,
            validation=None if held_out is None else lambda w: float(held_out.loss(w)),
            patience=self.n_iter_no_change,
            callbacks=self.callbacks,
            bar=bar,
            rows=rows,
        )

    def _settings(self, plan: Plan, watch: Watch, goes_on: bool) -> dict[str, Any]:
        """What every way of training is told."""
        enough = self._enough(self.network_.sizes[-1])
        return {
            "direction": plan.direction,
            "step": plan.step,
            "stop": plan.stop | enough if enough else plan.stop,
            "callback": watch,
            # A model that was loaded has none, and starts to remember anew.
            "memory": getattr(self, "_memory", None) if goes_on else None,
        }

    def _begin(self, plan: Plan, rows: Rows, rng: np.random.Generator, dtype: Any) -> None:
        """Network, scaling and initial weights."""
        check_size("y", rows.targets)
        if plan.scaling == "standard":  # the others never square what they are given
            check_size("X", rows.inputs)
        outputs = rows.targets.shape[1]
        sizes = (rows.inputs.shape[1], *plan.widths, outputs)
        network, weights, scaling = begin(
            self._start(plan.start, outputs),
            sizes,
            rows.inputs,
            rows.targets,
            rng,
            scaling=plan.scaling,
            activation=self.activation,
            sample_weight=rows.weight,
            dtype=dtype,
        )
        if not isinstance(self._criterion(outputs), Squared):
            weights, scaling = absorbed(weights, scaling)
        self.network_, self.weights_, self.scaling_ = network, weights, scaling

    def _check_unchanged(self, plan: Plan) -> None:
        hidden = self.network_.sizes[1:-1]
        if hidden != plan.widths:
            raise ValueError(
                f"hidden_layer_sizes is {plan.widths} and the fitted network has {hidden}: "
                "training can only go on with the same layers; use warm_start=False"
            )

    def _keep(self, result: Result, watch: Watch) -> None:
        """The result as attributes."""
        self.weights_ = watch.best if watch.best is not None else result.weights
        self.history_ = History.of(watch.rows)
        self.n_iter_ = len(watch.rows)
        self.loss_ = result.loss * watch.unit
        if watch.best is not None:
            best = int(np.nanargmin(self.history_["validation_loss"]))
            self.loss_ = float(self.history_["loss"][best])
        self.outcome_ = result.outcome
        self.reason_ = watch.reason if result.outcome == "stopped" else result.reason
        self._memory = result.memory
        if result.outcome in ("no_descent", "non_finite", "interrupted"):
            warnings.warn(
                f"training ended after {self.n_iter_} iterations: {result.reason}",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _outputs(self, X: Any) -> np.ndarray:
        """What the network says of rows X, in the units of the targets."""
        check_is_fitted(self)
        rows = self._validated(X, reset=False)
        inputs = self.scaling_.inputs(rows)
        return self.scaling_.outputs(self.network_.predict(self.weights_, inputs))

    def jacobian(self, X: Any) -> np.ndarray:
        """Derivatives of the outputs (for a classifier: of the logits) at each row of X.

        Returns
        -------
        array, (rows, outputs, features)
            In units of y per unit of X. No row's operator norm exceeds `certificate_.value`,
            except with `scaling="paper"`, whose bound is per unit of x/‖x‖.
        """
        check_is_fitted(self)
        rows = self._validated(X, reset=False)
        inner = self.network_.jacobian(self.weights_, self.scaling_.inputs(rows))
        return self.scaling_.chained(inner, rows)

    def _bound(self, weights: Any) -> float:
        return self.scaling_.bound(certificate.spectral(self.network_.linear(weights)).value)

    def layers(self) -> tuple[list[np.ndarray], list[np.ndarray] | None]:
        """Matrices (fan_in, fan_out) and biases of the network, which sees scaled inputs."""
        check_is_fitted(self)
        matrices = [np.asarray(w) for w in self.network_.linear(self.weights_)]
        return matrices, [w[-1] for w in self.weights_] if self.network_.bias else None

    @property
    def certificate_(self) -> Certificate:
        """`certificate.tight` of the model, in units of y per unit of X.

        With `scaling="paper"` it holds for ‖x‖ ≥ 1. For a classifier the outputs are logits.
        """
        check_is_fitted(self)
        if getattr(self, "_certified", (None,))[0] is not self.weights_:
            self._certified = self.weights_, certificate.tight(self)
        return self._certified[1]

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to a .safetensors file; `greatcircle.load` reads it.

        See `greatcircle.storage.save`.
        """
        from greatcircle import storage  # which needs the estimators first

        storage.save(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "history_")

    def _html_repr(self) -> str:
        """For notebooks: scikit-learn's diagram, and a summary of the fit below it."""
        diagram = BaseEstimator._html_repr(self)
        return diagram + (summary.html(self) if self.__sklearn_is_fitted__() else "")


def _bar(title: str, most: int, verbose: bool) -> Any:
    return Bar(title, most) if verbose else nullcontext()
