"""scikit-learn estimators, thin over the core."""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from numbers import Real
from os import PathLike
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import LabelBinarizer
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from greatcircle import certificate, losses, stopping, summary
from greatcircle.activations import Activation
from greatcircle.batches import descend_in_batches
from greatcircle.certificate import Certificate
from greatcircle.checkpoint import Checkpoint, checkpointed, fingerprint
from greatcircle.descent import Result, descend
from greatcircle.directions import Direction
from greatcircle.losses import Logistic, Loss, SoftmaxCrossEntropy, Squared
from greatcircle.methods import DIRECTIONS, METHODS, STARTS, STEPS, Start, begin, lookup
from greatcircle.precision import checked_dtype
from greatcircle.problem import Problem
from greatcircle.scaling import absorbed, checked_share
from greatcircle.sources import Rows, Source, source
from greatcircle.steps import Step
from greatcircle.stopping import Rule
from greatcircle.watch import Bar, History, Row, Watch

LOSSES = ("squared", "huber")

FEW_ROWS = 2000
"""Up to so many rows, dtype="auto" is float64: it costs next to nothing there."""

SAMPLE = 100_000
"""Rows of a stream from which scaling and start are taken."""

FIRST_BATCH, LARGEST_BATCH = 1024, 65_536
"""Rows of the batches of a stream."""

LOGITS = 1.0
"""Root mean square of the logits at the start (`docs/estimators.md`)."""

MAY_CHANGE = (
    "callbacks",
    "checkpoint",
    "checkpoint_seconds",
    "max_iter",
    "n_iter_no_change",
    "random_state",  # the checkpoint's seed counts
    "resume",
    "tol",
    "verbose",
    "warm_start",
)
"""Parameters that a fit may be resumed with other values of."""

OF_THE_GUESS = 0.01
"""A classifier has learnt all when its loss is this part of the loss of equal probabilities."""


class _Plan(NamedTuple):
    """What the parameters say, checked before any data are looked at."""

    direction: Direction | None
    step: Step
    start: Start
    scaling: str
    stop: Rule
    widths: tuple[int, ...]


class _LipschitzEstimator(ABC, BaseEstimator):
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

    def _plan(self) -> _Plan:
        method = _method(self.method)
        scaling = self.scaling or method.scaling
        start = method.start
        if self.lipschitz is not None:
            start = start._replace(target_scale=_checked_budget(self.lipschitz, scaling))
        if self.radius is not None:
            start = start._replace(radius=self.radius)
        tol = method.tol if self.tol is None else self.tol
        if not isinstance(tol, Real) or not float(tol) >= 0:
            raise ValueError(f"tol is {tol!r}; expected a number that is not negative, or None")
        if not isinstance(self.dtype, str) or self.dtype != "auto":
            checked_dtype(self.dtype, also="'auto', ")
        _check_early_stopping(self.validation_fraction, self.n_iter_no_change)
        if self.batch_size is not None and not _is_count(self.batch_size):
            raise ValueError(
                f"batch_size is {self.batch_size!r}; expected a whole number from 1 up, or None"
            )
        if not isinstance(self.callbacks, Iterable) or not all(map(callable, self.callbacks)):
            raise ValueError(f"callbacks is {self.callbacks!r}; expected a list of functions")
        widths = self._default_widths()
        if not isinstance(self.hidden_layer_sizes, str) or self.hidden_layer_sizes != "auto":
            widths = _widths(self.hidden_layer_sizes)
        self._criterion(1)
        stop = stopping.MaxIter(self.max_iter) | stopping.DecreaseBelow(float(tol))
        return _Plan(method.direction, method.step, start, scaling, stop, widths)

    def _rows(
        self, X: Any, y: Any, sample_weight: Any, *, reset: bool, classes: Any = None
    ) -> Rows:
        checked = self._validated(X, y=y, reset=reset, **self._checks_of_targets())
        if reset:
            self.target_names_ = _names(y)
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
            raise ValueError(_about_text(X)) from error

    def _train(
        self, plan: _Plan, rows: Rows, bar: Bar | None, goes_on: bool, *, whole_fit: bool = True
    ) -> Self:
        seed = check_random_state(self.random_state).randint(2**31)
        checkpoint = self._opened_checkpoint(rows) if whole_fit else None
        saved = checkpoint.read() if checkpoint and self.resume else None
        random = np.random.RandomState(saved.seed if saved else seed)
        training, unseen = rows, None
        if self.early_stopping and whole_fit:
            training, unseen = _split(
                rows, self.validation_fraction, self._strata(rows), random.randint(2**31)
            )
        if goes_on:
            self._check_unchanged(plan)
            dtype = self.weights_[0].dtype
        else:
            dtype = self.dtype
            if dtype == "auto":
                dtype = "float64" if len(training) <= FEW_ROWS else "float32"
            self._begin(plan, training, np.random.default_rng(random.randint(2**31)), dtype)
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

    def _train_on_stream(self, plan: _Plan, stream: Source, bar: Bar | None, goes_on: bool) -> Self:
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

    def _settings(self, plan: _Plan, watch: Watch, goes_on: bool) -> dict[str, Any]:
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

    def _begin(self, plan: _Plan, rows: Rows, rng: np.random.Generator, dtype: Any) -> None:
        """Network, scaling and initial weights."""
        _check_size("y", rows.targets)
        if plan.scaling == "standard":  # the others never square what they are given
            _check_size("X", rows.inputs)
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

    def _check_unchanged(self, plan: _Plan) -> None:
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

    @property
    def certificate_(self) -> Certificate:
        """∏ ‖W_i‖_op in units of y per unit of X (with `scaling="paper"`: of x/‖x‖).

        For a classifier the outputs are logits.
        """
        check_is_fitted(self)
        return Certificate(self._bound(self.weights_), "spectral")

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


class LipschitzRegressor(MultiOutputMixin, RegressorMixin, _LipschitzEstimator):
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
        A Lipschitz bound that training never exceeds, in units of y per unit of X: the a-priori
        bound ∏μ_i. Not for `scaling="paper"`, which has no bound of that kind.
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
        leaves it to the method: 5e-3 for "auto" and pairs, 0 for the paper's.
    batch_size
        Rows of the first batches. Batches grow as soon as they can no longer tell the way from
        their noise, and in the end all rows take part (`docs/batches.md`). None trains on all rows
        from the start, or, with data that memory cannot hold, on batches of a size of our choice.
    early_stopping
        Hold out a part of the rows, stop when its loss has not fallen for `n_iter_no_change`
        iterations, and keep the weights with which it was lowest.
    validation_fraction
        How large that part is.
    n_iter_no_change
        How long to wait.
    warm_start
        Whether `fit` goes on from the weights, the scaling and the curvature of the last fit.
    checkpoint
        Folder for a checkpoint of training, written whenever `checkpoint_seconds` have gone by, and
        at the end.
    checkpoint_seconds
        Least time between two of them.
    resume
        Whether to go on from the checkpoint in that folder, bit for bit as if training had not
        been cut short. Data and parameters must be the same, but for `max_iter`, `tol` and what
        does not change the result. Without a checkpoint training begins anew.
    callbacks
        Functions called after each iteration with its row of `history_`, see
        `greatcircle.watch.Row`; one that returns True ends training.
    verbose
        Whether to show a progress bar.
    dtype
        "float32", "float64", or "auto": float64 up to 2000 rows.
    random_state
        Seed of the initial weights and of the validation part.

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

    def _default_widths(self) -> tuple[int, ...]:
        return (25, 30, 15)

    def _encoded(self, y: Any, reset: bool, classes: Any = None) -> np.ndarray:
        try:
            targets = np.asarray(y, np.float64)
        except ValueError:
            raise ValueError(OF_TEXT) from None
        if reset:
            self._single_output = targets.ndim == 1
        targets = targets.reshape(len(targets), -1)
        if not reset and targets.shape[1] != self.network_.sizes[-1]:
            raise ValueError(
                f"y has {targets.shape[1]} columns, but {type(self).__name__} was fitted with "
                f"{self.network_.sizes[-1]}: give the same targets, or a new estimator"
            )
        return targets

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


class LipschitzClassifier(ClassifierMixin, _LipschitzEstimator):
    """Classification by a network whose logits have a known Lipschitz bound.

    Two classes have one logit and the logistic loss, more have one each and softmax cross-entropy.
    The logits' scale is part of the last layer's radius, and so of every bound.

    Parameters
    ----------
    hidden_layer_sizes
        Units of each hidden layer; "auto" is (100,).
    activation, method, scaling, radius, max_iter, tol, batch_size, warm_start, checkpoint
        As for `LipschitzRegressor`.
    checkpoint_seconds, resume, callbacks, verbose, dtype, random_state
        As for `LipschitzRegressor`.
    lipschitz
        A Lipschitz bound on the logits that training never exceeds, per unit of X. With two
        classes the decision cannot change within the logit's size over the bound of a row.
    loss
        "auto", the cross-entropy, or a loss object.
    early_stopping, validation_fraction, n_iter_no_change
        As for `LipschitzRegressor`; the part held out has all classes in proportion.

    Attributes
    ----------
    classes_ : array of the labels
    weights_, network_, scaling_, history_, n_iter_, loss_, outcome_, reason_, certificate_
        As for `LipschitzRegressor`.

    Examples
    --------
    >>> from greatcircle import LipschitzClassifier
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> model = LipschitzClassifier(max_iter=20, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.97
    True
    """

    def _default_widths(self) -> tuple[int, ...]:
        return (100,)

    def _checks_of_targets(self) -> dict[str, Any]:
        return {}

    def _encoded(self, y: Any, reset: bool, classes: Any = None) -> np.ndarray:
        check_classification_targets(y)
        if reset:
            self._learn_classes(y if classes is None else classes)
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(
                f"y has classes that were not there at the first fit: {unknown.tolist()}; "
                f"expected some of {self.classes_.tolist()}"
            )
        return self._binarizer.transform(y).astype(np.float64)

    def _learn_classes(self, classes: Any) -> None:
        self._binarizer = LabelBinarizer().fit(classes)
        self.classes_ = self._binarizer.classes_
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has one class, {self.classes_.tolist()[0]!r}; a classifier needs at least two "
                "classes"
            )

    def _criterion(self, outputs: int) -> Loss:
        if not isinstance(self.loss, str) and self.loss is not None:
            return losses.get(self.loss)
        if self.loss != "auto":
            raise ValueError(f"loss is {self.loss!r}; expected 'auto' or a loss object")
        return Logistic() if outputs == 1 else SoftmaxCrossEntropy()

    def _start(self, start: Start, outputs: int) -> Start:
        """Logits of root mean square `LOGITS` at the start; classes are not centred.

        One-hot rows have norm one. A single column of 0 and 1 has less, which is near enough.
        """
        return start._replace(centred=False, headroom=1 / (LOGITS * outputs**0.5))

    def _strata(self, rows: Rows) -> np.ndarray | None:
        return rows.targets

    def _enough(self, outputs: int) -> Rule | None:
        """Classes that can be told apart have no lowest loss: a part of the guess's will do."""
        guess = math.log(max(outputs, 2))
        return stopping.LossBelow(OF_THE_GUESS * guess) if self.tol != 0 else None

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """One iteration on these rows; the first call decides scaling, network and classes.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.
        classes
            All labels there will ever be; needed in the first call, unless y has them all.
        """
        return self._partial_fit(X, y, sample_weight, classes)

    def decision_function(self, X: Any) -> np.ndarray:
        """Logits: one for each class, or for two classes that of the second."""
        logits = self._outputs(X)
        return logits[:, 0] if logits.shape[1] == 1 else logits

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class."""
        logits = self._outputs(X)
        if logits.shape[1] == 1:
            logits = np.hstack([np.zeros_like(logits), logits])
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class."""
        most_probable = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[most_probable]


def _names(y: Any) -> tuple[str, ...]:
    """Names of the targets, where y is a data frame or a series; otherwise none."""
    names: Any = getattr(y, "columns", None)
    if names is None:
        names = [getattr(y, "name", None)]
    return tuple(names) if all(isinstance(name, str) and name for name in names) else ()


OF_TEXT = "y has text; expected numbers: for classes use LipschitzClassifier"


def _about_text(X: Any) -> str:
    """What to say of text where numbers should be."""
    if isinstance(X, str):
        return f"X is the text {X!r}; expected rows of numbers: read the file first"
    try:
        np.asarray(X, np.float64)
    except ValueError:
        kinds = getattr(X, "dtypes", ())  # of a data frame
        words = [n for n, k in zip(getattr(X, "columns", ()), kinds, strict=False) if _is_text(k)]
        where = f" in the columns {', '.join(map(str, words))}" if words else ""
        return f"X has text{where}; expected numbers: drop these columns, or encode them"
    return OF_TEXT


def _is_text(kind: Any) -> bool:
    return str(kind).lower() in ("object", "str", "string", "category", "categorical")


LARGEST = 1e150
"""Squares of larger numbers, summed over the rows, may overflow."""


def _check_size(name: str, values: np.ndarray) -> None:
    largest = float(np.max(np.abs(values)))
    if largest > LARGEST:
        raise ValueError(
            f"{name} has entries as large as {largest:.3g}, whose squares overflow; expected at "
            f"most {LARGEST:g}: choose larger units"
        )


def _bar(title: str, most: int, verbose: bool) -> Any:
    return Bar(title, most) if verbose else nullcontext()


def _split(rows: Rows, fraction: float, strata: np.ndarray | None, seed: int) -> tuple[Rows, Rows]:
    """Training part and validation part."""
    count = len(rows.inputs)
    if count < 2:
        raise ValueError("early_stopping needs at least two rows, one to train and one to validate")
    try:
        parts: Any = train_test_split(
            np.arange(count), test_size=fraction, random_state=seed, stratify=strata
        )
    except ValueError as error:
        raise ValueError(
            f"early_stopping cannot hold out {fraction:g} of {count} rows with every class in both "
            "parts; use more rows of each class, another validation_fraction, or "
            "early_stopping=False"
        ) from error
    training, unseen = (rows.take(part) for part in parts)
    for name, part in (("training", training), ("validation", unseen)):
        if part.weight is not None and not part.weight.any():
            raise ValueError(
                f"early_stopping left the {name} part with rows of weight zero only; drop those "
                "rows, or use early_stopping=False"
            )
    return training, unseen


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 1)


def _check_early_stopping(fraction: Any, patience: Any) -> None:
    if not isinstance(fraction, Real) or not 0 < float(fraction) < 1:
        raise ValueError(f"validation_fraction is {fraction!r}; expected a number in (0, 1)")
    if not _is_count(patience):
        raise ValueError(f"n_iter_no_change is {patience!r}; expected a whole number from 1 up")


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


def _widths(hidden_layer_sizes: Any) -> tuple[int, ...]:
    """One number is one hidden layer, as in scikit-learn."""
    widths = np.atleast_1d(np.asarray(hidden_layer_sizes, dtype=object)).tolist()
    if not all(map(_is_count, widths)):
        raise ValueError(
            f"hidden_layer_sizes is {hidden_layer_sizes!r}; expected positive whole numbers, or "
            "'auto'"
        )
    return tuple(widths)
