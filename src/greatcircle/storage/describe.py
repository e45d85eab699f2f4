"""A model as the named arrays and texts of its file."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from greatcircle._runtime.container import Tensors, Texts
from greatcircle._runtime.versions import versions
from greatcircle.model import Model, SelectionTable
from greatcircle.network.activations.builtin import ACTIVATIONS
from greatcircle.optimise.record import Record
from greatcircle.storage.floats import encode_float

__all__ = ["UNCERTIFIED", "describe", "radii"]

LABEL_TYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
)  # fmt: skip
"""NumPy types of labels that are stored as an array."""

UNCERTIFIED = "uncertified"
"""Kind of a file without a certificate."""


def describe(model: Model, *, certified: bool = True) -> tuple[Tensors, Texts]:
    """Return the arrays and texts of a model, with its certificate or without."""
    if ACTIVATIONS.get(model.activation.name) is not model.activation:
        raise ValueError(
            f"activation is {model.activation.name!r}, a user's own code, which a file cannot "
            f"hold; train with one of {', '.join(ACTIVATIONS)}, or keep such a model with pickle "
            "or cloudpickle"
        )
    scaling = model.scaling
    tensors = {f"weights.{i}": w for i, w in enumerate(model.weights)}
    tensors["radii"] = radii(model.weights)
    for name in ("shift", "spread", "divisor", "target_shift", "factor"):
        tensors[f"scaling.{name}"] = np.asarray(getattr(scaling, name), np.float64)
    for name, ends in vars(model.saturation).items():
        if ends is not None:
            tensors[f"saturation.{name}"] = np.asarray(ends, np.float64)
    network = {
        "sizes": list(model.sizes),
        "activation": model.activation.name,
        "bias": model.bias,
    }
    texts = {
        "scaling": scaling.name,
        "network": _json(network),
        "fit": _json(_fit(model)),
        "versions": _json(versions()),
    }
    if model.training is not None:
        if model.training.selection is not None:
            texts["selection"] = _json(_selection(model.training.selection))
        tensors |= {f"history.{name}": model.training.history[name] for name in Record._fields}
    if certified:
        certificate = model.certificate
        tensors |= {f"certificate.{i}": m for i, m in enumerate(certificate.multipliers)}
        tensors["certificate.scale"] = certificate.scale
        if certificate.box is not None:
            tensors |= {f"certificate.slopes.{i}": s for i, s in enumerate(certificate.slopes)}
        texts["certificate"] = _json(
            {
                "method": certificate.method,
                "value": encode_float(certificate.value),
                "margin": encode_float(certificate.margin),
                "gain": encode_float(certificate.gain),
            }
        )
    else:
        texts["kind"] = UNCERTIFIED
    if model.classes is not None:
        if model.classes.dtype.name in LABEL_TYPES:
            tensors["classes"] = model.classes
        else:
            texts["classes"] = _json(_labels(model.classes))
    return tensors, texts


def _fit(model: Model) -> dict[str, Any]:
    names, trained = model.feature_names, model.training
    fit: dict[str, Any] = {
        "n_features_in": model.sizes[0],
        "feature_names_in": None if names is None else list(names),
        "target_names": list(model.target_names),
        "single_output": model.single_output,
        "networks": model.networks,
        "lipschitz": None if model.lipschitz is None else encode_float(model.lipschitz),
    }
    if trained is not None:
        fit |= {
            "n_iter": len(trained.history["loss"]),
            "loss": encode_float(float(trained.loss)),
            "outcome": str(trained.outcome),
            "reason": str(trained.reason),
        }
    return fit


def _selection(table: SelectionTable) -> dict[str, Any]:
    """Return the candidates as a list of JSON objects."""
    rows = [row._asdict() for row in table.rows()]
    return {
        "candidates": [
            {name: encode_float(v) if isinstance(v, float) else v for name, v in row.items()}
            for row in rows
        ]
    }


def _labels(classes: np.ndarray) -> dict[str, Any]:
    """Return labels that are strings; `width` is that of NumPy's type, None for Python strings."""
    if classes.dtype.kind not in "UO" or not all(isinstance(c, str) for c in classes):
        raise ValueError(
            f"classes_ has the type {classes.dtype}; expected numbers, bools or strings: "
            "fit with such labels"
        )
    width = classes.dtype.itemsize // 4 if classes.dtype.kind == "U" else None
    return {"labels": [str(c) for c in classes], "width": width}


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


def radii(weights: Sequence[np.ndarray]) -> np.ndarray:
    """Return the Frobenius norm of each matrix."""
    return np.array([np.linalg.norm(np.asarray(w, np.float64)) for w in weights])
