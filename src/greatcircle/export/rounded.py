"""A fitted model rounded to the precision of a file, with names, units and bound.

Every exporter writes its files from this record.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from greatcircle._runtime.dtypes import checked_dtype
from greatcircle._runtime.versions import __version__
from greatcircle.certificate import Certificate
from greatcircle.export.bound import proved_bound
from greatcircle.export.formula import Formula
from greatcircle.export.parameters import Parameters, Rounding, rounded_parameters
from greatcircle.export.trace import derivative_of, function_of
from greatcircle.model import Model, as_model

__all__ = ["RoundedModel", "round_model"]


@dataclass(frozen=True, eq=False)
class RoundedModel:
    """The content of an exported file.

    Parameters
    ----------
    name
        Name of functions and classes, valid in C and Python.
    parameters
        The numbers of the file.
    function, derivative
        Formulas of the activation ρ(z), and of its derivative from z and a = ρ(z).
    input_names, output_names
        In order.
    units
        Units of some inputs and outputs, by name.
    is_classifier
        Whether the outputs are the logits of a classifier.
    certificate
        Certificate of the model.
    bound
        Lipschitz bound, proved for the numbers of this file.
    """

    name: str
    parameters: Parameters
    function: Formula
    derivative: Formula
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    units: dict[str, str]
    is_classifier: bool
    certificate: Certificate
    bound: float

    @property
    def dtype(self) -> np.dtype:
        """float32 or float64."""
        return self.parameters.dtype

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of inputs, of units of each hidden layer, and of outputs."""
        return self.parameters.sizes

    def metadata(self) -> dict[str, Any]:
        """Return names, units, ranges, bound and origin, for JSON."""
        saturation = self.parameters.saturation
        return {
            "name": self.name,
            "written_by": f"greatcircle {__version__}",
            "inputs": list(self.input_names),
            "outputs": list(self.output_names),
            "units": self.units,
            "outputs_are": "logits" if self.is_classifier else "targets",
            "sizes": list(self.sizes),
            "activation": self.parameters.activation.name,
            "dtype": self.dtype.name,
            "input_ranges": _ranges(saturation.lower, saturation.upper),
            "output_ranges": _ranges(saturation.output_lower, saturation.output_upper),
            "lipschitz": self.bound,
            "lipschitz_holds": self.certificate.holds,
            "lipschitz_method": self.certificate.method,
            "model_sha256": self.certificate.digest,
        }


def round_model(
    model: Any, *, name: str, dtype: Any = "float64", units: Mapping[str, str] | None = None
) -> RoundedModel:
    """Round a fitted model and prove its bound again; parameters as for `export`."""
    model, dtype = as_model(model), checked_dtype(dtype)
    activation = model.activation
    if not activation.exportable:
        raise ValueError(
            f"activation {activation.name!r} was declared without its derivative, so only JAX can "
            "evaluate it; to export models, declare it as declare(function, slopes, "
            "derivative=...), with function(z, xp) and derivative(z, a, xp)"
        )
    function, derivative = function_of(activation), derivative_of(activation)
    constants = np.array([*function.constants, *derivative.constants])
    Rounding(dtype)("a constant of the activation", constants[~np.isnan(constants)])
    parameters = rounded_parameters(model, dtype)
    bound = proved_bound(model.certificate, parameters)
    Rounding(dtype)("the Lipschitz bound", bound)  # otherwise derivatives could overflow
    input_names, output_names = _input_names(model), _output_names(model)
    return RoundedModel(
        name=name,
        parameters=parameters,
        function=function,
        derivative=derivative,
        input_names=input_names,
        output_names=output_names,
        units=_checked_units(units, (*input_names, *output_names)),
        is_classifier=model.classes is not None,
        certificate=model.certificate,
        bound=bound,
    )


def _ranges(lower: np.ndarray | None, upper: np.ndarray | None) -> list[list[float]] | None:
    """Return the two ends of each interval, or None if nothing is clipped."""
    return None if lower is None or upper is None else np.stack([lower, upper], axis=1).tolist()


def _input_names(model: Model) -> tuple[str, ...]:
    return model.feature_names or tuple(f"x{i}" for i in range(model.sizes[0]))


def _output_names(model: Model) -> tuple[str, ...]:
    outputs = model.sizes[-1]
    if model.classes is not None:  # with two classes, the only logit is that of the second
        return tuple(f"logit_{label}" for label in model.classes[-outputs:])
    return tuple(model.target_names) or tuple(f"y{i}" for i in range(outputs))


def _checked_units(units: Any, names: tuple[str, ...]) -> dict[str, str]:
    if units is None:
        return {}
    if not isinstance(units, Mapping) or not all(isinstance(u, str) for u in units.values()):
        raise ValueError(f"units is {units!r}; expected a dict from names to units, both text")
    unknown = [str(name) for name in units if name not in names]
    if unknown:
        raise ValueError(
            f"units has {', '.join(map(repr, unknown))}; expected names of inputs and outputs: "
            f"{', '.join(names)}"
        )
    return {name: units[name] for name in names if name in units}
