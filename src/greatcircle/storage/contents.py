"""A fitted estimator as named arrays and named texts, and back.

On the way back everything is checked before it becomes part of a model: nothing is taken for
granted because the checksum was right, for anyone can compute a checksum.
"""

import json
import reprlib
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from sklearn.utils.validation import check_is_fitted

from greatcircle._runtime.container import Tensors, Texts
from greatcircle._runtime.precision import FLOATS
from greatcircle._runtime.versions import __version__
from greatcircle.certificate.stack import stack
from greatcircle.certificate.verdict import verify
from greatcircle.data.scaling import SCALINGS, Scaling
from greatcircle.estimators import LipschitzClassifier, LipschitzRegressor
from greatcircle.network.activations import ACTIVATIONS
from greatcircle.network.network import Network
from greatcircle.optimise.record import Record
from greatcircle.optimise.watch import History
from greatcircle.storage.values import NUMBERS, decode, encode

Model = LipschitzRegressor | LipschitzClassifier

ESTIMATORS: dict[str, type[Model]] = {
    kind.__name__: kind for kind in (LipschitzRegressor, LipschitzClassifier)
}

UNCERTIFIED = "uncertified"
"""Kind of a file without a certificate."""

SAME = 1e-9
"""Relative difference that another machine's rounding may make in a norm."""

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


def describe(model: Any, *, certified: bool = True) -> tuple[Tensors, Texts]:
    """Return the arrays and texts of a model, with its certificate or without."""
    if ESTIMATORS.get(type(model).__name__) is not type(model):
        raise TypeError(
            f"model is a {type(model).__name__}; expected a fitted {' or '.join(ESTIMATORS)}: of a "
            "pipeline, save its last step"
        )
    check_is_fitted(model)
    weights = [np.asarray(w) for w in model.weights_]
    scaling = model.scaling_
    tensors = {f"weights.{i}": w for i, w in enumerate(weights)}
    tensors["radii"] = _radii(weights)
    for name in ("shift", "spread", "divisor", "target_shift", "factor"):
        tensors[f"scaling.{name}"] = np.asarray(getattr(scaling, name), np.float64)
    tensors |= {f"history.{name}": model.history_[name] for name in Record._fields}
    texts = {
        "estimator": type(model).__name__,
        "scaling": scaling.name,
        "network": _json(_network(model)),
        "parameters": _json(_parameters(model)),
        "fit": _json(_fit(model)),
        "versions": _json(
            {
                "greatcircle": __version__,
                "jax": jax.__version__,
                "numpy": np.__version__,
            }
        ),
    }
    if certified:
        certificate = model.certificate_
        tensors |= {f"certificate.{i}": m for i, m in enumerate(certificate.multipliers)}
        tensors["certificate.scale"] = certificate.scale
        texts["certificate"] = _json(
            {
                "method": certificate.method,
                "value": encode(certificate.value),
                "margin": encode(certificate.margin),
                "gain": encode(certificate.gain),
            }
        )
    else:
        texts["kind"] = UNCERTIFIED
    if isinstance(model, LipschitzClassifier):
        classes = model.classes_
        if classes.dtype.name in NUMBERS:
            tensors["classes"] = classes
        else:
            texts["classes"] = _json(_labels(classes))
    return tensors, texts


def rebuild(tensors: Tensors, texts: Texts) -> Model:
    """The way back; a ValueError says what does not fit."""
    with np.errstate(all="ignore"):  # numbers so large that they overflow fit nothing either
        return _rebuilt(dict(tensors), texts)


def _rebuilt(tensors: Tensors, texts: Texts) -> Model:
    if texts.get("kind") == "checkpoint":
        raise ValueError(
            "it is a checkpoint of training, no model: fit with checkpoint= its folder and "
            "resume=True, then save the model"
        )
    if texts.get("kind") == UNCERTIFIED:
        raise ValueError(
            "it has no certificate, because the bound of the model could not be computed when it "
            "was written; safetensors.numpy.load_file reads its arrays"
        )
    kind = ESTIMATORS.get(_text(texts, "estimator"))
    if kind is None:
        raise ValueError(
            f"its estimator is {texts['estimator']!r}; expected {' or '.join(ESTIMATORS)}"
        )
    model = kind().set_params(**_checked_parameters(kind, texts))
    model.network_ = _checked_network(texts)
    model.weights_ = _checked_weights(model.network_, tensors)
    model.scaling_ = _checked_scaling(model.network_, tensors, texts)
    model.history_ = _checked_history(tensors)
    _set_fit(model, texts)
    if isinstance(model, LipschitzClassifier):
        _set_classes(model, tensors, texts)
    _set_certificate(model, tensors, texts)
    if tensors:
        raise ValueError(f"it has arrays that belong to no model: {', '.join(sorted(tensors)[:5])}")
    return model


def _network(model: Model) -> dict[str, Any]:
    network = model.network_
    if ACTIVATIONS.get(network.activation.name) is not network.activation:
        raise _no_place("activation", network.activation)
    return {
        "sizes": list(network.sizes),
        "activation": network.activation.name,
        "bias": network.bias,
    }


def _parameters(model: Model) -> dict[str, Any]:
    """Of the estimator; what belongs to one process and no file is replaced (`docs/storage.md`)."""
    given = model.get_params(deep=False)
    given["callbacks"] = [] if isinstance(model.callbacks, list) else ()
    if not isinstance(model.random_state, int | np.integer):
        given["random_state"] = None
    given |= {"checkpoint": None, "resume": False}  # a folder of this machine
    encoded = {}
    for name, value in given.items():
        try:
            encoded[name] = encode(value)
        except TypeError:
            raise _no_place(name, value) from None
    return encoded


def _no_place(name: str, value: Any) -> ValueError:
    fix = _FIXES.get(name, f"set_params({name}=...) with numbers, text or a tuple of them")
    return ValueError(
        f"{name} is {value!r}, which a file cannot hold: it has room for numbers, text and what "
        f"this library defines, not for code; {fix}"
    )


def _fit(model: Model) -> dict[str, Any]:
    names = getattr(model, "feature_names_in_", None)
    fit = {
        "n_features_in": int(model.n_features_in_),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "target_names": list(model.target_names_),
        "n_iter": int(model.n_iter_),
        "loss": encode(float(model.loss_)),
        "outcome": str(model.outcome_),
        "reason": str(model.reason_),
    }
    if isinstance(model, LipschitzRegressor):
        fit["single_output"] = model._single_output
    return fit


def _labels(classes: np.ndarray) -> dict[str, Any]:
    """Labels that are strings; `width` is that of NumPy's type, None for Python's strings."""
    if classes.dtype.kind not in "UO" or not all(isinstance(c, str) for c in classes):
        raise ValueError(
            f"classes_ has the type {classes.dtype}; expected numbers, bools or strings: "
            "fit with such labels"
        )
    width = classes.dtype.itemsize // 4 if classes.dtype.kind == "U" else None
    return {"labels": [str(c) for c in classes], "width": width}


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


def _radii(weights: Any) -> np.ndarray:
    return np.array([np.linalg.norm(np.asarray(w, np.float64)) for w in weights])


def _text(texts: Texts, name: str) -> str:
    if name not in texts:
        raise ValueError(f"its metadata have no {name!r}")
    return texts[name]


def _section(texts: Texts, name: str) -> dict[str, Any]:
    """One of the texts that hold a JSON object."""
    try:
        section = json.loads(_text(texts, name), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its {name} cannot be read ({error})") from error
    if not isinstance(section, dict):
        raise ValueError(f"its {name} is a {type(section).__name__}; expected a JSON object")
    return section


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _entry(section: dict[str, Any], name: str, *kinds: type) -> Any:
    """An entry of exactly one of these types: True is no whole number here."""
    if name not in section or type(section[name]) not in kinds:
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"its {name} is {reprlib.repr(section.get(name))}; expected {names}")
    return section[name]


def _float(section: dict[str, Any], name: str) -> float:
    """One that may be infinite or NaN."""
    value = decode(_entry(section, name, float, dict))
    if type(value) is not float:
        raise ValueError(f"its {name} is {reprlib.repr(value)}; expected float")
    return value


def _array(tensors: Tensors, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Taken out, so that what is left over belongs to nothing."""
    array = tensors.pop(name, None)
    if array is None:
        raise ValueError(f"it has no array {name!r}")
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(
            f"its array {name!r} is {array.dtype} of shape {array.shape}; expected "
            f"{np.dtype(dtype)} of shape {shape}"
        )
    return array


def _checked_parameters(kind: type[Model], texts: Texts) -> dict[str, Any]:
    """Those that the file's library did not have yet keep their defaults."""
    given = _section(texts, "parameters")
    unknown = sorted(set(given) - set(kind().get_params(deep=False)))
    if unknown:
        raise ValueError(
            f"it has parameters that {kind.__name__} of greatcircle {__version__} does "
            f"not know: {', '.join(unknown[:5])}; use a newer one"
        )
    return {name: decode(value) for name, value in given.items()}


def _checked_network(texts: Texts) -> Network:
    section = _section(texts, "network")
    sizes = _entry(section, "sizes", list)
    activation = _entry(section, "activation", str)
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"its activation is {activation!r}; expected one of {', '.join(ACTIVATIONS)}"
        )
    if not all(type(size) is int for size in sizes):
        raise ValueError(f"its sizes are {reprlib.repr(sizes)}; expected whole numbers")
    return Network(sizes, activation, bias=_entry(section, "bias", bool))


def _checked_weights(network: Network, tensors: Tensors) -> tuple[np.ndarray, ...]:
    first = tensors.get("weights.0", np.zeros(0))
    dtype = first.dtype if first.dtype in FLOATS else FLOATS[-1]
    weights = tuple(
        _array(tensors, f"weights.{i}", shape, dtype) for i, shape in enumerate(network.shapes)
    )
    if not all(np.all(np.isfinite(w)) for w in weights):
        raise ValueError("its weights are not all finite")
    radii = _array(tensors, "radii", (network.depth,), np.float64)
    if not np.allclose(radii, _radii(weights), rtol=SAME, atol=0):
        raise ValueError("its radii are not the norms of its weights")
    return weights


def _checked_history(tensors: Tensors) -> History:
    rows = np.size(tensors.get("history.loss", ()))

    def column(name: str) -> np.ndarray:
        counts = name in tensors and tensors[name].dtype == np.int64
        return _array(tensors, name, (rows,), np.dtype("int64" if counts else "float64"))

    return History({name: column(f"history.{name}") for name in Record._fields})


def _checked_scaling(network: Network, tensors: Tensors, texts: Texts) -> Scaling:
    name = _text(texts, "scaling")
    if name not in SCALINGS:
        raise ValueError(f"its scaling is {name!r}; expected one of {', '.join(SCALINGS)}")
    inputs, outputs = network.sizes[0], network.sizes[-1]
    shift, spread, divisor, target_shift, factor = (
        _array(tensors, f"scaling.{part}", shape, np.float64)
        for part, shape in (
            ("shift", (inputs,)),
            ("spread", (inputs,)),
            ("divisor", ()),
            ("target_shift", (outputs,)),
            ("factor", ()),
        )
    )
    scales = np.array([divisor, factor])
    # An infinite spread is a column that does not vary.
    if not (np.all(spread > 0) and np.all(scales > 0) and np.all(np.isfinite(scales))):
        raise ValueError("its scaling has a spread, divisor or factor that is not positive")
    if not (np.all(np.isfinite(shift)) and np.all(np.isfinite(target_shift))):
        raise ValueError("its scaling has a shift that is not finite")
    return Scaling(name, shift, spread, float(divisor), target_shift, float(factor))


def _set_fit(model: Model, texts: Texts) -> None:
    fit = _section(texts, "fit")
    model.n_features_in_ = _entry(fit, "n_features_in", int)
    if model.n_features_in_ != model.network_.sizes[0]:
        raise ValueError(
            f"its n_features_in is {model.n_features_in_}; its network has "
            f"{model.network_.sizes[0]} inputs"
        )
    names = _entry(fit, "feature_names_in", list, type(None))
    if names is not None:
        if len(names) != model.n_features_in_ or not all(type(name) is str for name in names):
            raise ValueError("its feature_names_in are not one name for each input")
        model.feature_names_in_ = np.array(names, dtype=object)
    targets = _entry(fit, "target_names", list)
    if not all(type(name) is str for name in targets):
        raise ValueError("its target_names are not all strings")
    model.target_names_ = tuple(targets)
    model.n_iter_ = _entry(fit, "n_iter", int)
    if model.n_iter_ != len(model.history_["loss"]):
        raise ValueError(
            f"its n_iter is {model.n_iter_}; its history has {len(model.history_['loss'])} rows"
        )
    model.loss_ = _float(fit, "loss")
    model.outcome_, model.reason_ = _entry(fit, "outcome", str), _entry(fit, "reason", str)
    if isinstance(model, LipschitzRegressor):
        model._single_output = _entry(fit, "single_output", bool)
        if model._single_output and model.network_.sizes[-1] != 1:
            raise ValueError(f"its single output comes from {model.network_.sizes[-1]} units")


def _set_classes(model: LipschitzClassifier, tensors: Tensors, texts: Texts) -> None:
    classes = tensors.pop("classes") if "classes" in tensors else _checked_labels(texts)
    outputs = model.network_.sizes[-1]
    expected = 2 if outputs == 1 else outputs
    # NaN is larger than nothing, so it fails here as well.
    if classes.shape != (expected,) or not np.all(classes[1:] > classes[:-1]):
        raise ValueError(
            f"its classes are {str(classes)[:100]}; expected {expected} different labels in order, "
            f"for a network with {outputs} outputs"
        )
    model._learn_classes(classes)


def _checked_labels(texts: Texts) -> np.ndarray:
    section = _section(texts, "classes")
    labels = _entry(section, "labels", list)
    width = _entry(section, "width", int, type(None))
    if not labels or not all(type(label) is str for label in labels):
        raise ValueError("its classes are not all strings")
    if width is None:
        return np.array(labels, dtype=object)
    if not max(1, *map(len, labels)) <= width <= 2**16:
        raise ValueError(f"its classes do not fit into {width} characters, or would waste memory")
    return np.array(labels, dtype=f"U{width}")


def _set_certificate(model: Model, tensors: Tensors, texts: Texts) -> None:
    """The bound is what a user trusts: its proof is checked before anyone reads it."""
    stored = _section(texts, "certificate")
    method, value = _entry(stored, "method", str), _float(stored, "value")
    margin, gain = _float(stored, "margin"), _float(stored, "gain")
    hidden, of = model.network_.sizes[1:-1], stack(model)
    multipliers = [
        _array(tensors, f"certificate.{i}", (units,), np.float64) for i, units in enumerate(hidden)
    ]
    scale = _array(tensors, "certificate.scale", of.scale.shape, np.float64)
    # A proof is for the slopes of the activation, or for the interval that contains them.
    for slopes in (of.slopes(relaxed=True), of.slopes()):
        made = of.certificate(value, method, multipliers, slopes)
        found = replace(made, margin=margin, gain=gain, scale=scale)
        verdict = verify(found, model)
        if verdict:
            break
    if method != "tight" or not verdict:
        raise ValueError(
            f"its certificate says {value!r} ({method[:40]}), but "
            f"{verdict.reason or 'its method is not tight'}: do not trust this file"
        )
    model._certified = (model.weights_, model.scaling_, model.network_), found
