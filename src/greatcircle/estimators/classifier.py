"""The classifier: a scikit-learn estimator whose logits have a known Lipschitz bound."""

import math
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted

from greatcircle.data.checks import names_of
from greatcircle.data.rows import Rows
from greatcircle.estimators.base import LipschitzEstimator
from greatcircle.model import Model
from greatcircle.objective import losses
from greatcircle.objective.losses import Logistic, Loss, SoftmaxCrossEntropy
from greatcircle.optimise import stopping
from greatcircle.optimise.stopping import Rule
from greatcircle.training.data import Names
from greatcircle.training.methods import Initialisation
from greatcircle.training.settings import FitSettings

__all__ = ["LipschitzClassifier", "exact_labels"]

LOGITS = 1.0
"""Root mean square of the logits at the start (`docs/estimators.md`)."""

LOW_LOSS = 0.01
"""Training loss, relative to that of equal probabilities, at which training ends."""

LOW_LOSS_SELECTED = 1e-4
"""The same where held-out loss chooses the number of iterations: only rounding errors are left."""


class LipschitzClassifier(ClassifierMixin, LipschitzEstimator):
    """Classification by a network whose logits have a known Lipschitz bound.

    Two classes have one logit and the logistic loss; more classes have one logit each and softmax
    cross-entropy. The scale of the logits is part of the last layer's radius, and so of the bound.

    Parameters
    ----------
    hidden_layer_sizes
        Units of each hidden layer; "auto" chooses by held-out log-loss, or is (100,) without a
        selection.
    activation, method, scaling, radius, selection, cv, target_gain, ensemble, max_iter
        As for `LipschitzRegressor`.
    tol, batch_size, warm_start, checkpoint
        As for `LipschitzRegressor`.
    checkpoint_interval, resume, callbacks, verbose, dtype, random_state
        As for `LipschitzRegressor`.
    lipschitz
        Budget for the Lipschitz bound of the logits, per unit of X. With two classes, the
        decision for a row cannot change within the radius abs(logit) / bound.
    loss
        "auto", the cross-entropy, or a loss object.
    early_stopping, validation_fraction, n_iter_no_change
        As for `LipschitzRegressor`; the part held out of rows in memory has all classes in
        proportion.

    Attributes
    ----------
    classes_ : array of the labels, in order
        Numbers, bools or text. Whole numbers up to 64 bits are compared exactly, never as float64.
    weights_, network_, scaling_, history_, selection_, n_iter_
        As for `LipschitzRegressor`.
    loss_, outcome_, reason_, certificate_
        As for `LipschitzRegressor`.

    Examples
    --------
    >>> from greatcircle import LipschitzClassifier
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> model = LipschitzClassifier((20,), max_iter=20, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.97
    True
    """

    def _default_sizes(self) -> tuple[int, ...]:
        return (100,)

    def _checks_of_targets(self) -> dict[str, Any]:
        return {}

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Train on rows X and labels y.

        Parameters
        ----------
        X, y, sample_weight, groups
            As for `LipschitzRegressor.fit`.
        """
        labels = exact_labels(y) if isinstance(X, np.memmap) else y
        return super().fit(X, labels, sample_weight, groups)

    def _rows(
        self, X: Any, y: Any, sample_weight: Any = None, *, reset: bool, classes: Any = None
    ) -> Rows:
        rows = super()._rows(X, exact_labels(y), sample_weight, reset=reset, classes=classes)
        if reset:
            self.target_names_ = names_of(y)
        return rows

    def _with_model(self, model: Model) -> Self:
        self._learn_classes(model.classes)
        return super()._with_model(model)

    def _encoded(self, y: Any, reset: bool, classes: Any = None) -> np.ndarray:
        """Return labels as 0 and 1 for two classes, otherwise as one column for each class."""
        y = exact_labels(y)
        check_classification_targets(y)
        if reset:
            self._learn_classes(y if classes is None else classes)
        labels, which = np.unique(y, return_inverse=True)
        # Python's numbers: NumPy would compare int64 with uint64 as float64.
        places = {label: place for place, label in enumerate(self.classes_.tolist())}
        unknown = [label for label in labels.tolist() if label not in places]
        if unknown:
            raise ValueError(
                f"y has classes that the first fit did not have: {unknown}; expected some of "
                f"{self.classes_.tolist()}"
            )
        place = np.array([places[label] for label in labels.tolist()])[which.ravel()]
        if len(places) == 2:
            return place[:, None].astype(np.float64)
        return (place[:, None] == np.arange(len(places))).astype(np.float64)

    def _learn_classes(self, labels: Any) -> None:
        labels = exact_labels(labels)
        if type_of_target(labels, input_name="classes") not in ("binary", "multiclass"):
            raise ValueError(
                f"classes is {labels!r}; expected labels: text, bools or whole numbers"
            )
        self.classes_ = np.unique(labels)
        if len(self.classes_) < 2:
            known = "".join(f"one class, {label!r}" for label in self.classes_.tolist())
            raise ValueError(
                f"y has {known or 'no classes'}; a classifier needs at least two classes"
            )

    def _names(self) -> Names:
        return Names(self._feature_names(), self.target_names_, self.classes_)

    def _criterion(self, outputs: int) -> Loss:
        if not isinstance(self.loss, str) and self.loss is not None:
            return losses.get(self.loss)
        if self.loss != "auto":
            raise ValueError(f"loss is {self.loss!r}; expected 'auto' or a loss object")
        return Logistic() if outputs == 1 else SoftmaxCrossEntropy()

    def _initialisation(self, settings: FitSettings, outputs: int) -> Initialisation:
        """Return initial logits of root mean square `LOGITS`; classes are not centred.

        One-hot rows have norm one. A single column of 0 and 1 has less, which is close enough.
        """
        target_gain = settings.initialisation.target_gain or 1 / (LOGITS * outputs**0.5)
        return settings.initialisation._replace(centred=False, target_gain=target_gain)

    def _strata(self, rows: Rows) -> np.ndarray | None:
        return rows.targets

    def _low_loss(self, outputs: int, *, selects: bool) -> Rule | None:
        """Stop at a fraction of the loss of equal probabilities.

        Separable classes have no lowest loss.
        """
        guess = math.log(max(outputs, 2))
        fraction = LOW_LOSS_SELECTED if selects else LOW_LOSS
        return stopping.LossBelow(fraction * guess) if self.tol != 0 else None

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Take one iteration on these rows; the first call fixes scaling, network and classes.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.
        classes
            All labels of this and later calls; the first call needs it unless y has all of them.
        """
        return self._partial_fit(X, y, sample_weight, classes)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the logits: one for each class, or for two classes that of the second."""
        logits = self._outputs(X)
        return logits[:, 0] if logits.shape[1] == 1 else logits

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class."""
        check_is_fitted(self)
        return self.model_.predict_proba(self._validated(X, reset=False))

    def predict(self, X: Any) -> np.ndarray:
        """Predict the most probable class."""
        check_is_fitted(self)
        return self.model_.predict(self._validated(X, reset=False))


def exact_labels(y: Any) -> Any:
    """Return labels in a type in which different labels stay different.

    NumPy and scikit-learn convert some whole numbers to float64, which cannot hold all of them: a
    list with numbers on both sides of 2**63, or a nullable column of pandas. They reject others:
    whole numbers in an array of objects. And a list of 1 and "1" becomes text.

    Returns
    -------
    y itself if its type is safe, otherwise an array of int64, uint64 or bool.
    """
    if isinstance(getattr(y, "dtype", None), np.dtype) and y.dtype != object:
        return y
    try:
        values = np.array(y, dtype=object)
    except ValueError:  # rows of unequal length, which scikit-learn reports
        return y
    kinds = {_kind(value) for value in values.flat}
    if kinds == {int}:
        return _whole(values)
    if kinds == {bool}:
        return values.astype(bool)
    exact = kinds == {int, float} and all(-(2**53) <= value <= 2**53 for value in values.flat)
    if len(kinds) > 1 and not exact:
        raise ValueError(
            f"y has labels of the types {', '.join(sorted(kind.__name__ for kind in kinds))}; "
            "expected one type and no missing label: drop the rows without a label, or convert "
            "all labels to str"
        )
    return y


def _kind(value: Any) -> type:
    if isinstance(value, bool | np.bool_):
        return bool
    kinds = {int: int | np.integer, float: float | np.floating, str: str}
    return next((kind for kind, types in kinds.items() if isinstance(value, types)), type(value))


def _whole(values: np.ndarray) -> np.ndarray:
    """Return whole numbers as int64, or as uint64 if they need it."""
    least, most = min(values.flat), max(values.flat)
    for kind in (np.int64, np.uint64):
        if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max:
            return values.astype(kind)
    raise ValueError(
        f"y has labels from {least} to {most}; expected whole numbers within int64 or within "
        "uint64: convert them to str"
    )
