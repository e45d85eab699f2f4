"""A fitted model as plain numbers, with the scaling inside: what every exporter starts from.

    z = ((x − shift) − rest) · scale        or x / ‖x‖ for `scaling="paper"`
    h = ρ(h W + b)                          for each hidden layer
    y = (h W + b) · gain + target_shift

All in the precision of the file. The shift is not folded into the first bias: where an input is
large beside its spread, the difference would be lost to rounding. In single precision `rest` is
what rounding took from the shift.

Far from the data the first layer sees differences of large numbers. An activation that grows with
them keeps the errors as small beside its values as they were; a bounded one does not. So in
single precision the first layer of a `BOUNDED` activation is kept, and computed, in double.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from greatcircle._runtime.dtypes import checked_dtype
from greatcircle._runtime.versions import __version__
from greatcircle.certificate import Certificate
from greatcircle.export.bound import recertified
from greatcircle.export.standalone import Parameters
from greatcircle.network.activations.builtin import ACTIVATIONS

BOUNDED = ("tanh", "softsign", "sin", "arctan")
"""Activations whose values stay small where the sums before them grow."""


@dataclass(frozen=True)
class Numbers:
    """What a file holds.

    Parameters
    ----------
    name
        What it is called: a name in C and in Python.
    dtype
        float32 or float64.
    parameters
        What it computes with.
    bias
        Whether the biases are more than zeros.
    features, targets
        Names of inputs and outputs, in order.
    units
        Units of some of them, by name.
    logits
        Whether the outputs are a classifier's logits.
    certificate
        The model's own.
    bound
        The bound that is proved for the numbers of this file.
    """

    name: str
    dtype: np.dtype
    parameters: Parameters
    bias: bool
    features: tuple[str, ...]
    targets: tuple[str, ...]
    units: dict[str, str]
    logits: bool
    certificate: Certificate
    bound: float

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of inputs, of units in each hidden layer, and of outputs."""
        return (len(self.features), *(w.shape[1] for w in self.parameters.matrices))

    @property
    def wide(self) -> bool:
        """Whether the first layer is computed in double precision, and the others are not."""
        return self.parameters.shift.dtype != self.dtype

    def facts(self) -> dict[str, Any]:
        """What the file says of itself."""
        return {
            "name": self.name,
            "written_by": f"greatcircle {__version__}",
            "inputs": list(self.features),
            "outputs": list(self.targets),
            "units": self.units,
            "outputs_are": "logits" if self.logits else "targets",
            "sizes": list(self.sizes),
            "activation": self.parameters.activation,
            "dtype": self.dtype.name,
            "lipschitz": self.bound,
            "lipschitz_holds": self.certificate.holds,
            "lipschitz_method": self.certificate.method,
            "model_sha256": self.certificate.digest,
        }


def numbers(
    model: Any,
    *,
    name: str,
    dtype: Any = "float64",
    units: Mapping[str, str] | None = None,
) -> Numbers:
    """The numbers of a fitted model, rounded and certified anew; parameters as for `export`."""
    if not hasattr(type(model), "certificate_"):
        raise TypeError(
            f"model is a {type(model).__name__}; expected a fitted LipschitzRegressor or "
            "LipschitzClassifier: of a pipeline, export its last step"
        )
    check_is_fitted(model)
    dtype = checked_dtype(dtype)
    activation = model.network_.activation
    if ACTIVATIONS.get(activation.name) is not activation:
        raise ValueError(
            f"activation is {activation.name!r}, a function of your own, and an exporter cannot "
            f"translate code; train with one of {', '.join(ACTIVATIONS)}"
        )
    matrices, biases = model.layers()
    scaling, normalise = model.scaling_, model.scaling_.name == "paper"
    scale = np.ones(len(matrices[0])) if normalise else 1 / (scaling.spread * scaling.divisor)
    shift = np.where(scale > 0, scaling.shift, 0.0)  # what does not count cannot overflow either
    bounded = activation.name in BOUNDED and len(matrices) > 1 and not normalise
    rounded = Rounding(dtype)
    layers = [Rounding(np.dtype(np.float64)) if bounded else rounded, *[rounded] * len(matrices)]
    rough = layers[0]("the shift of an input", shift)
    parameters = Parameters(
        shift=rough,
        rest=layers[0]("the shift of an input", shift - rough.astype(np.float64)),
        scale=layers[0]("the scale of an input", scale, factor=True),
        normalise=normalise,
        matrices=tuple(layers[i]("a weight", w) for i, w in enumerate(matrices)),
        biases=tuple(
            layers[i]("a bias", np.zeros(w.shape[1]) if biases is None else biases[i])
            for i, w in enumerate(matrices)
        ),
        gain=rounded("the scale of the targets", np.asarray(1 / scaling.factor), factor=True),
        target_shift=rounded("the shift of a target", scaling.target_shift),
        activation=activation.name,
    )
    certificate = model.certificate_
    bound = recertified(certificate, parameters)
    rounded("the Lipschitz bound", bound)  # or derivatives would overflow
    features, targets = _features(model), _targets(model)
    return Numbers(
        name=name,
        dtype=dtype,
        parameters=parameters,
        bias=biases is not None,
        features=features,
        targets=targets,
        units=_checked_units(units, (*features, *targets)),
        logits=hasattr(model, "classes_"),
        certificate=certificate,
        bound=bound,
    )


class Rounding:
    """Round to the precision of the file, or raise an error where it cannot hold a number."""

    def __init__(self, dtype: np.dtype) -> None:
        self._dtype = dtype

    def __call__(self, what: str, values: Any, *, factor: bool = False) -> np.ndarray:
        values = np.asarray(values, np.float64)
        with np.errstate(over="ignore", under="ignore"):
            rounded = np.asarray(values, self._dtype)
        lost = ~np.isfinite(rounded)
        if factor:  # all digits count, and below this number there are fewer
            lost |= (values != 0) & (np.abs(rounded) < np.finfo(self._dtype).tiny)
        if np.any(lost):
            single = "dtype='float64', or " if self._dtype == np.float32 else ""
            raise ValueError(
                f"{self._dtype.name} cannot hold {what}, {values[lost].flat[0]:.6g}; try {single}"
                "other units of the data"
            )
        return rounded


def _features(model: Any) -> tuple[str, ...]:
    names = getattr(model, "feature_names_in_", None)
    return (
        tuple(f"x{i}" for i in range(model.n_features_in_))
        if names is None
        else tuple(str(name) for name in names)
    )


def _targets(model: Any) -> tuple[str, ...]:
    outputs = model.network_.sizes[-1]
    if hasattr(model, "classes_"):  # two classes have the logit of the second
        return tuple(f"logit_{label}" for label in model.classes_[-outputs:])
    return tuple(model.target_names_) or tuple(f"y{i}" for i in range(outputs))


def _checked_units(units: Any, names: tuple[str, ...]) -> dict[str, str]:
    if units is None:
        return {}
    if not isinstance(units, Mapping) or not all(isinstance(u, str) for u in units.values()):
        raise ValueError(f"units is {units!r}; expected a dict of names and their units, as text")
    unknown = [str(name) for name in units if name not in names]
    if unknown:
        raise ValueError(
            f"units has {', '.join(unknown)}; expected some of the inputs and outputs: "
            f"{', '.join(names)}"
        )
    return {name: units[name] for name in names if name in units}
