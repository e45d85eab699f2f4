"""Encode parameters of an estimator as JSON values, and decode them with their exact types.

Plain JSON values are kept. Any other value is a JSON object with one of these keys:

| key | value | second key |
|---|---|---|
| "float" | nan, inf, -inf | |
| "tuple" | a tuple | |
| "numpy" | a NumPy scalar, by the name of its type | "value" |
| "array" | a NumPy array, by the name of its type | "values" |
| "dtype", "type" | `np.dtype("float32")`, `np.float32` | |
| "activation" | one of `ACTIVATIONS` | |
| "object" | a direction, step or loss of this library, by the name of its class | "fields" |

Objects in files of version 0.1 had other fields; the tables `FORMER_...` translate them.
"""

import reprlib
from dataclasses import fields
from typing import Any

import numpy as np

from greatcircle.network.activations import ACTIVATIONS, Activation
from greatcircle.objective import losses
from greatcircle.optimise import directions, steps
from greatcircle.storage.floats import decode_float, encode_float

__all__ = ["NUMBERS", "OBJECTS", "decode", "encode"]

OBJECTS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        directions.ConjugateGradient,
        directions.GaussNewton,
        directions.HagerZhang,
        directions.Kronecker,
        directions.MajorantSteepest,
        directions.PolakRibiere,
        directions.RiemannianGradient,
        directions.KroneckerMomentum,
        directions.Muon,
        directions.Soap,
        directions.Steepest,
        losses.Huber,
        losses.Logistic,
        losses.SoftmaxCrossEntropy,
        losses.Squared,
        steps.Brent,
        steps.ClosedForm,
        steps.ComparedCurvature,
        steps.LinearDecay,
        steps.Curvature,
        steps.DataMajorant,
        steps.GoldenSection,
        steps.Majorant,
        steps.SmoothMajorant,
        steps.Taylor,
    )
}

FORMER_FIELDS = {("GaussNewton", "share"): "fraction"}
"""Fields that had another name in version 0.1."""

_SEARCHES: dict[Any, Any] = {"brent": steps.Brent(), "golden": steps.GoldenSection()}

FORMER_VALUES: dict[tuple[str, str], dict[Any, Any]] = {
    ("ConjugateGradient", "beta"): {
        "polak-ribiere": directions.PolakRibiere(),
        "hager-zhang": directions.HagerZhang(),
    },
    ("DataMajorant", "search"): _SEARCHES,
    ("Majorant", "search"): _SEARCHES,
    ("SmoothMajorant", "search"): _SEARCHES,
}
"""Objects that replace texts of version 0.1."""

FORMER_CLASSES: dict[tuple[str, str], dict[Any, type]] = {
    ("Curvature", "compare"): {False: steps.Curvature, True: steps.ComparedCurvature},
    ("Steepest", "speed"): {
        "unit": directions.Steepest,
        "gradient": directions.RiemannianGradient,
        "trust": directions.MajorantSteepest,
    },
}
"""Classes that replace a field of version 0.1, by its value."""

NUMBERS = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
)  # fmt: skip


def encode(value: Any) -> Any:
    """Return a value that `json.dumps` takes; raise TypeError for a value of another kind."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return encode_float(value)
    if type(value) is list:
        return [encode(v) for v in value]
    if type(value) is tuple:
        return {"tuple": [encode(v) for v in value]}
    if isinstance(value, Activation) and ACTIVATIONS.get(value.name) is value:
        return {"activation": value.name}
    if OBJECTS.get(type(value).__name__) is type(value):
        return {
            "object": type(value).__name__,
            "fields": {f.name: encode(getattr(value, f.name)) for f in fields(value)},
        }
    return _encode_numpy(value)


def decode(value: Any) -> Any:
    """Return the value that `encode` encoded; raise ValueError for anything else."""
    try:
        return _decode(value)
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{reprlib.repr(value)} is not an encoded value ({error})") from error


def _encode_numpy(value: Any) -> Any:
    if isinstance(value, np.dtype) and str(value) in NUMBERS:
        return {"dtype": str(value)}
    if isinstance(value, np.str_):
        return {"numpy": "str", "value": str(value)}
    if isinstance(value, np.generic) and value.dtype.name in NUMBERS:
        return {"numpy": value.dtype.name, "value": encode(value.item())}
    if type(value) is np.ndarray and value.dtype.name in NUMBERS:
        return {"array": value.dtype.name, "values": encode(value.tolist())}
    if isinstance(value, type) and issubclass(value, np.generic) and _name(value) in NUMBERS:
        return {"type": _name(value)}
    raise TypeError(type(value).__name__)


def _name(kind: type[np.generic]) -> str:
    return "bool" if kind is np.bool_ else kind.__name__


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(v) for v in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"float": _}:
            return decode_float(value)
        case {"tuple": list(entries)}:
            return tuple(map(_decode, entries))
        case {"activation": name}:
            return ACTIVATIONS[name]
        case {"object": name, "fields": dict(given)}:
            return _object(name, {k: _decode(v) for k, v in given.items()})
        case {"dtype": name}:
            return _dtype(name)
        case {"type": name}:
            return _dtype(name).type
        case {"numpy": "str", "value": str(text)}:
            return np.str_(text)
        case {"numpy": name, "value": number}:
            return _dtype(name).type(_number(_decode(number)))
        case {"array": name, "values": entries}:
            return np.array(_decode(entries), _dtype(name))
    raise TypeError("unknown keys")


def _object(name: str, given: dict[str, Any]) -> Any:
    """Return an object of this library, a frozen dataclass that checks its own fields."""
    kind, values = OBJECTS[name], {}
    for field, value in given.items():
        key = (name, field)
        if key in FORMER_CLASSES:
            kind = FORMER_CLASSES[key][value]
        elif key in FORMER_VALUES and isinstance(value, str):
            values[field] = FORMER_VALUES[key][value]
        else:
            values[FORMER_FIELDS.get(key, field)] = value
    return kind(**values)


def _number(value: Any) -> Any:
    if not isinstance(value, bool | int | float):
        raise TypeError(f"{type(value).__name__} is not a number")
    return value


def _dtype(name: Any) -> np.dtype:
    if name not in NUMBERS:
        raise TypeError(f"type {name!r}")
    return np.dtype(name)
