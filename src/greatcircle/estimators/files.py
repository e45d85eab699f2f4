"""Save and load estimators: the file of a model, with the parameters of the estimator."""

import json
from os import PathLike
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from greatcircle._runtime.versions import __version__
from greatcircle.estimators.classifier import LipschitzClassifier
from greatcircle.estimators.parameters import decode, encode
from greatcircle.estimators.regressor import LipschitzRegressor
from greatcircle.network.activations import ACTIVATIONS
from greatcircle.storage import encoded as encoded_model
from greatcircle.storage import json_section, load_with_texts
from greatcircle.storage import save as save_model

__all__ = ["encoded", "load", "save"]

Estimator = LipschitzRegressor | LipschitzClassifier

ESTIMATORS: dict[str, type[Estimator]] = {
    kind.__name__: kind for kind in (LipschitzRegressor, LipschitzClassifier)
}

FORMER_PARAMETERS = {"checkpoint_seconds": "checkpoint_interval"}
"""Parameters that version 0.1 wrote under another name."""

_KEEP_CODE = "keep such a model with pickle or cloudpickle"

_FIXES = {
    "activation": f"train with one of {', '.join(ACTIVATIONS)}, or {_KEEP_CODE}",
    "loss": (
        f"only further training needs it: set_params(loss='auto') before saving, or {_KEEP_CODE}"
    ),
    "method": (
        f"only further training needs it: set_params(method='auto') before saving, or {_KEEP_CODE}"
    ),
}


def save(estimator: BaseEstimator, path: str | PathLike[str]) -> None:
    """Write a fitted estimator to a file, completely or not at all.

    Parameters
    ----------
    estimator
        A fitted `LipschitzRegressor` or `LipschitzClassifier`. `callbacks`, a `random_state` that
        is an object and the state of the direction are not stored (`docs/storage.md`).
    path
        A name that ends in .safetensors, in a folder that exists. An existing file is replaced
        atomically: a reader sees the old one or the new one.

    Raises
    ------
    ValueError
        If a parameter holds a user's own code (activation, loss, direction, step).
    """
    save_model(estimator, path, _texts(estimator))


def encoded(estimator: BaseEstimator, *, certified: bool = True) -> bytes:
    """Return the bytes of the file of a fitted estimator, with its certificate or without."""
    return encoded_model(estimator, _texts(estimator), certified=certified)


def load(path: str | PathLike[str]) -> Estimator:
    """Read an estimator, and verify its certificate for the weights and the scaling in the file.

    It predicts bit for bit like the saved one.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, altered, of a newer format, or not a greatcircle model.
    """
    model, texts = load_with_texts(path)
    try:
        kind = ESTIMATORS.get(texts.get("estimator", ""))
        if kind is None:
            raise ValueError(
                f"its estimator is {texts.get('estimator')!r}; expected {' or '.join(ESTIMATORS)}"
            )
        if (kind is LipschitzClassifier) != (model.classes is not None):
            has = "no classes" if model.classes is None else "classes"
            raise ValueError(f"its estimator is {kind.__name__}, but it has {has}")
        estimator = kind().set_params(**_checked_parameters(kind, texts))
    except ValueError as error:
        raise ValueError(f"{path} cannot be loaded: {error}") from error
    return estimator._with_model(model)


def _texts(estimator: Any) -> dict[str, str]:
    if ESTIMATORS.get(type(estimator).__name__) is not type(estimator):
        raise TypeError(
            f"model is a {type(estimator).__name__}; expected a fitted {' or '.join(ESTIMATORS)}: "
            "for a pipeline, save its last step"
        )
    check_is_fitted(estimator)
    parameters = json.dumps(_parameters(estimator), allow_nan=False)
    return {"estimator": type(estimator).__name__, "parameters": parameters}


def _parameters(estimator: Any) -> dict[str, Any]:
    """Return the parameters as JSON values, with defaults for those tied to one process."""
    given = estimator.get_params(deep=False)
    given["callbacks"] = [] if isinstance(estimator.callbacks, list) else ()
    if not isinstance(estimator.random_state, int | np.integer):
        given["random_state"] = None
    given |= {"checkpoint": None, "resume": False}  # they name a folder of this machine
    encoded = {}
    for name, value in given.items():
        try:
            encoded[name] = encode(value)
        except TypeError:
            fix = _FIXES.get(name, f"set_params({name}=...) with numbers, text or a tuple of them")
            raise ValueError(
                f"{name} is {value!r}, which a file cannot hold: it stores numbers, text and "
                f"objects of this library, but no code; {fix}"
            ) from None
    return encoded


def _checked_parameters(kind: type[Estimator], texts: dict[str, str]) -> dict[str, Any]:
    """Return the parameters in the file; the estimator has defaults for the others."""
    given, known = json_section(texts, "parameters"), kind().get_params(deep=False)
    for former, name in FORMER_PARAMETERS.items():
        if former in given and former not in known:
            given[name] = given.pop(former)
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ValueError(
            f"it has parameters that {kind.__name__} of greatcircle {__version__} does "
            f"not know: {', '.join(unknown[:5])}; use a newer version"
        )
    return {name: decode(value) for name, value in given.items()}
