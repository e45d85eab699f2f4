"""A model from the named arrays and texts of its file, each of them checked first.

The checksum of a file proves nothing about its origin, because anyone can compute one. So types,
shapes and ranges are checked, and the certificate is verified for the weights and the scaling.
"""

import json
import reprlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from greatcircle._runtime.container import Tensors, Texts
from greatcircle._runtime.dtypes import FLOATS
from greatcircle.certificate.proof import Certificate
from greatcircle.certificate.scaled_network import as_scaled_network
from greatcircle.certificate.verdict import Verdict, verify
from greatcircle.data.saturation import Saturation
from greatcircle.data.scaling import SCALINGS, Scaling
from greatcircle.model import Model, SelectionRow, SelectionTable, Training
from greatcircle.network.activations.builtin import ACTIVATIONS
from greatcircle.optimise.history import History
from greatcircle.optimise.record import Record
from greatcircle.storage.describe import UNCERTIFIED, radii
from greatcircle.storage.floats import decode_float

__all__ = ["json_section", "rebuild"]

ROUNDING = 1e-9
"""Relative difference that the rounding of another machine may make in a norm."""

FORMER_COLUMNS = {"spectral_bound": "lipschitz"}
"""Columns of the history that version 0.1 wrote under another name."""


def rebuild(tensors: Tensors, texts: Texts) -> Model:
    """Return the model of arrays and texts; a ValueError says what is wrong with them."""
    with np.errstate(all="ignore"):  # numbers so large that they overflow are rejected below
        return _rebuild(dict(tensors), texts)


def _rebuild(tensors: Tensors, texts: Texts) -> Model:
    if texts.get("kind") == "checkpoint":
        raise ValueError(
            "it is a checkpoint of training, not a model: resume the fit with checkpoint='its "
            "folder' and resume=True, then save the model"
        )
    if texts.get("kind") == UNCERTIFIED:
        raise ValueError(
            "it has no certificate, because the bound of the model could not be computed when it "
            "was written; safetensors.numpy.load_file reads its arrays"
        )
    sizes, activation, bias = _checked_network(texts)
    weights = _checked_weights(sizes, bias, tensors)
    fit = json_section(texts, "fit")
    classes = _checked_classes(sizes[-1], tensors, texts)
    model = Model(
        weights=weights,
        bias=bias,
        activation=ACTIVATIONS[activation],
        scaling=_checked_scaling(sizes, tensors, texts),
        feature_names=_checked_feature_names(fit, sizes[0]),
        target_names=_checked_target_names(fit, sizes[-1], classes),
        single_output=_checked_single_output(fit, sizes[-1]),
        classes=classes,
        lipschitz=_checked_budget(fit, texts),
        training=_checked_training(fit, tensors, texts),
        networks=_checked_networks(fit, sizes),
        saturation=_checked_saturation(sizes, tensors),
    )
    model = replace(model, known_certificate=_checked_certificate(model, tensors, texts))
    if tensors:
        raise ValueError(
            f"it has arrays that are not part of a model: {', '.join(sorted(tensors)[:5])}"
        )
    return model


def _text(texts: Texts, name: str) -> str:
    if name not in texts:
        raise ValueError(f"its metadata do not contain {name!r}")
    return texts[name]


def json_section(texts: Texts, name: str) -> dict[str, Any]:
    """Return one of the texts that hold a JSON object."""
    try:
        section = json.loads(_text(texts, name), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its entry {name!r} cannot be read ({error})") from error
    if not isinstance(section, dict):
        raise ValueError(
            f"its entry {name!r} is a {type(section).__name__}; expected a JSON object"
        )
    return section


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _entry(section: dict[str, Any], name: str, *kinds: type) -> Any:
    """Return an entry of exactly one of these types: True does not count as an int."""
    if name not in section or type(section[name]) not in kinds:
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"its {name} is {reprlib.repr(section.get(name))}; expected {names}")
    return section[name]


def _float(section: dict[str, Any], name: str) -> float:
    """Return a number that may be infinite or NaN."""
    value = _entry(section, name, float, dict)
    try:
        return decode_float(value)
    except ValueError as error:
        raise ValueError(f"its {name} is {error}") from None


def _array(tensors: Tensors, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Remove an array from `tensors` and return it; what remains at the end is unknown."""
    array = tensors.pop(name, None)
    if array is None:
        raise ValueError(f"it has no array {name!r}")
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(
            f"its array {name!r} is {array.dtype} of shape {array.shape}; expected "
            f"{np.dtype(dtype)} of shape {shape}"
        )
    return array


def _checked_network(texts: Texts) -> tuple[tuple[int, ...], str, bool]:
    section = json_section(texts, "network")
    sizes = _entry(section, "sizes", list)
    activation = _entry(section, "activation", str)
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"its activation is {activation!r}; expected one of {', '.join(ACTIVATIONS)}"
        )
    if not all(type(size) is int for size in sizes):
        raise ValueError(f"its sizes are {reprlib.repr(sizes)}; expected whole numbers")
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(
            f"its sizes are {reprlib.repr(sizes)}; expected positive numbers, at least two"
        )
    return tuple(sizes), activation, _entry(section, "bias", bool)


def _checked_weights(
    sizes: tuple[int, ...], bias: bool, tensors: Tensors
) -> tuple[np.ndarray, ...]:
    first = tensors.get("weights.0", np.zeros(0))
    dtype = first.dtype if first.dtype in FLOATS else FLOATS[-1]
    shapes = zip((size + bias for size in sizes[:-1]), sizes[1:], strict=True)
    weights = tuple(_array(tensors, f"weights.{i}", shape, dtype) for i, shape in enumerate(shapes))
    if not all(np.all(np.isfinite(w)) for w in weights):
        raise ValueError("its weights are not all finite")
    stored = _array(tensors, "radii", (len(weights),), np.float64)
    if not np.allclose(stored, radii(weights), rtol=ROUNDING, atol=0):
        raise ValueError("its radii are not the norms of its weights")
    return weights


def _checked_networks(fit: dict[str, Any], sizes: tuple[int, ...]) -> int:
    """Return the number of networks side by side; files of version 0.1 do not have it."""
    networks = _entry(fit, "networks", int) if "networks" in fit else 1
    if networks < 1 or any(units % networks for units in sizes[1:-1]):
        raise ValueError(f"its networks is {networks}, which does not divide its layers {sizes}")
    return networks


def _checked_selection(texts: Texts) -> SelectionTable | None:
    if "selection" not in texts:
        return None
    rows = _entry(json_section(texts, "selection"), "candidates", list)
    return SelectionTable.of([_checked_candidate(row) for row in rows])


def _checked_candidate(row: Any) -> SelectionRow:
    if not isinstance(row, dict):
        raise ValueError(f"its selection has {reprlib.repr(row)}; expected JSON objects")
    layers = _entry(row, "hidden_layer_sizes", list)
    if not all(type(units) is int for units in layers):
        raise ValueError(
            f"its selection has the layers {reprlib.repr(layers)}; expected whole numbers"
        )
    return SelectionRow(
        hidden_layer_sizes=tuple(layers),
        target_gain=_float(row, "target_gain"),
        iterations=_entry(row, "iterations", int),
        parts=_entry(row, "parts", int),
        held_out_loss=_float(row, "held_out_loss"),
        standard_error=_float(row, "standard_error"),
        evaluations=_float(row, "evaluations"),
        spectral_bound=_float(row, "spectral_bound"),
        chosen=_entry(row, "chosen", bool),
        # Files written before there were small batches have no such entries.
        direction=_entry(row, "direction", str) if "direction" in row else "",
        steps=_entry(row, "steps", int) if "steps" in row else 0,
    )


def _checked_training(fit: dict[str, Any], tensors: Tensors, texts: Texts) -> Training | None:
    if "n_iter" not in fit:
        return None
    # Files of version 0.1 have another name for it.
    if "history.lipschitz" in tensors:
        tensors["history.spectral_bound"] = tensors.pop("history.lipschitz")
    rows = np.size(tensors.get("history.loss", ()))
    history = History({name: _checked_column(name, rows, tensors) for name in Record._fields})
    if _entry(fit, "n_iter", int) != rows:
        raise ValueError(f"its n_iter is {fit['n_iter']}; its history has {rows} rows")
    return Training(
        history,
        _float(fit, "loss"),
        _entry(fit, "outcome", str),
        _entry(fit, "reason", str),
        _checked_selection(texts),
    )


def _checked_column(name: str, rows: int, tensors: Tensors) -> np.ndarray:
    stored = f"history.{name}"
    if stored not in tensors and name in FORMER_COLUMNS:
        stored = f"history.{FORMER_COLUMNS[name]}"
    counts = stored in tensors and tensors[stored].dtype == np.int64
    return _array(tensors, stored, (rows,), np.dtype("int64" if counts else "float64"))


def _checked_scaling(sizes: tuple[int, ...], tensors: Tensors, texts: Texts) -> Scaling:
    name = _text(texts, "scaling")
    if name not in SCALINGS:
        raise ValueError(f"its scaling is {name!r}; expected one of {', '.join(SCALINGS)}")
    inputs, outputs = sizes[0], sizes[-1]
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
    # An infinite spread marks a constant column.
    if not (np.all(spread > 0) and np.all(scales > 0) and np.all(np.isfinite(scales))):
        raise ValueError("its scaling has a spread, divisor or factor that is not positive")
    if not (np.all(np.isfinite(shift)) and np.all(np.isfinite(target_shift))):
        raise ValueError("its scaling has a shift that is not finite")
    return Scaling(name, shift, spread, float(divisor), target_shift, float(factor))


def _checked_saturation(sizes: tuple[int, ...], tensors: Tensors) -> Saturation:
    return Saturation(
        *_checked_intervals("", sizes[0], tensors),
        *_checked_intervals("output_", sizes[-1], tensors),
    )


def _checked_intervals(
    kind: str, count: int, tensors: Tensors
) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
    """Return the ends of intervals, or None for both if the file has neither."""
    names = [f"saturation.{kind}{end}" for end in ("lower", "upper")]
    if not any(name in tensors for name in names):
        return None, None
    lower, upper = (_array(tensors, name, (count,), np.float64) for name in names)
    if not np.all(np.isfinite([lower, upper])) or not np.all(lower <= upper):
        raise ValueError(f"its arrays {names[0]!r} and {names[1]!r} are not the ends of intervals")
    return lower, upper


def _checked_feature_names(fit: dict[str, Any], inputs: int) -> tuple[str, ...] | None:
    if _entry(fit, "n_features_in", int) != inputs:
        raise ValueError(
            f"its n_features_in is {fit['n_features_in']}; its network has {inputs} inputs"
        )
    names = _entry(fit, "feature_names_in", list, type(None))
    if names is None:
        return None
    if len(names) != inputs or not all(type(name) is str for name in names):
        raise ValueError("its feature_names_in are not one name for each input")
    return tuple(names)


def _checked_target_names(
    fit: dict[str, Any], outputs: int, classes: np.ndarray | None
) -> tuple[str, ...]:
    names = _entry(fit, "target_names", list)
    if not all(type(name) is str for name in names):
        raise ValueError("its target_names are not all strings")
    if names and len(names) != (outputs if classes is None else 1):
        targets = f"{outputs} output(s)" if classes is None else "one column of labels"
        raise ValueError(f"it has {len(names)} target_names for {targets}")
    return tuple(names)


def _checked_single_output(fit: dict[str, Any], outputs: int) -> bool:
    # Files of classifiers written by version 0.1 have no such entry.
    single = _entry(fit, "single_output", bool) if "single_output" in fit else False
    if single and outputs != 1:
        raise ValueError(f"its single_output is true, but its network has {outputs} outputs")
    return single


def _checked_budget(fit: dict[str, Any], texts: Texts) -> float | None:
    budget = None
    if fit.get("lipschitz") is not None:
        budget = _float(fit, "lipschitz")
    elif "lipschitz" not in fit and "parameters" in texts:  # version 0.1 has it only there
        given = json_section(texts, "parameters").get("lipschitz")
        given = given.get("value") if isinstance(given, dict) else given  # a NumPy scalar
        budget = float(given) if isinstance(given, int | float) else None
    if budget is not None and not 0 < budget < np.inf:
        raise ValueError(f"its lipschitz is {budget!r}; expected a positive number")
    return budget


def _checked_classes(outputs: int, tensors: Tensors, texts: Texts) -> np.ndarray | None:
    if "classes" not in tensors and "classes" not in texts:
        return None
    classes = tensors.pop("classes") if "classes" in tensors else _checked_labels(texts)
    expected = 2 if outputs == 1 else outputs
    # As in training: labels of a floating-point type are whole numbers.
    if classes.dtype.kind == "f" and not np.all(
        (classes == np.rint(classes)) & (np.abs(classes) < 2.0**63)
    ):
        raise ValueError(f"its classes are {str(classes)[:100]}; expected whole numbers")
    # Comparisons with NaN are false, so it fails here as well.
    if classes.shape != (expected,) or not np.all(classes[1:] > classes[:-1]):
        raise ValueError(
            f"its classes are {str(classes)[:100]}; expected {expected} different, sorted labels "
            f"for a network with {outputs} output(s)"
        )
    return classes


def _checked_labels(texts: Texts) -> np.ndarray:
    section = json_section(texts, "classes")
    labels = _entry(section, "labels", list)
    width = _entry(section, "width", int, type(None))
    if not labels or not all(type(label) is str for label in labels):
        raise ValueError("its classes are not all strings")
    if width is None:
        return np.array(labels, dtype=object)
    longest = max(1, *map(len, labels))
    if not longest <= width <= 2**16:
        raise ValueError(
            f"its labels have the width {width}; expected from {longest} to {2**16} characters"
        )
    return np.array(labels, dtype=f"U{width}")


def _checked_certificate(model: Model, tensors: Tensors, texts: Texts) -> Certificate:
    """Return the certificate, whose proof has been checked."""
    stored = json_section(texts, "certificate")
    method, value = _entry(stored, "method", str), _float(stored, "value")
    margin, gain = _float(stored, "margin"), _float(stored, "gain")
    hidden, of = model.sizes[1:-1], as_scaled_network(model)
    multipliers = [
        _array(tensors, f"certificate.{i}", (units,), np.float64) for i, units in enumerate(hidden)
    ]
    scale = _array(tensors, "certificate.scale", of.scale.shape, np.float64)
    box = of.box_of_all()

    def checked(slopes: Sequence[np.ndarray]) -> tuple[Certificate, Verdict]:
        made = of.certificate(value, method, multipliers, slopes, box)
        found = replace(made, margin=margin, gain=gain, scale=scale)
        return found, verify(found, model)

    if box is None:
        # A proof is for the interval that contains the slopes of the activation, or for these.
        found, verdict = checked(of.slopes(relaxed=True))
        if not verdict:
            found, verdict = checked(of.slopes())
    else:  # the check computes the slopes in the model's own box, and these must contain them
        found, verdict = checked(
            [
                _array(tensors, f"certificate.slopes.{i}", (units, 2), np.float64)
                for i, units in enumerate(hidden)
            ]
        )
    if method != "tight" or not verdict:
        raise ValueError(
            f"its certificate says {value!r} ({method[:40]}), but "
            f"{verdict.reason or 'its method is not tight'}: do not trust this file"
        )
    return found
