"""The Lipschitz bound of an exported file, proved for the numbers of the file.

The proof starts from the multipliers of the model's certificate. It speaks for the function that
the numbers describe; rounding errors of an evaluation add to the outputs, not to the function.
"""

from dataclasses import replace

import numpy as np

from greatcircle import certificate as certificates
from greatcircle.certificate import Box, Certificate
from greatcircle.export.parameters import Parameters

__all__ = ["proved_bound"]


def proved_bound(certificate: Certificate, parameters: Parameters) -> float:
    """Return the bound of the model, or that with its margin for rounding if it needs it.

    Raises
    ------
    ValueError
        If the margin does not suffice: such a file must not be written.
    """
    slopes = _slopes(parameters)
    for margin in (0.0, certificate.margin):
        tried = _with_margin(certificate, parameters, slopes, margin)
        if certificates.verify(tried, parameters.matrices, parameters.biases):
            return tried.value
    # The multipliers may not fit the rounded numbers, and others may.
    allowed = certificate.value * (1 + certificate.margin)
    found = _tight(certificate, parameters, slopes)
    if found <= allowed:
        return max(found, certificate.value)
    raise ValueError(
        f"the numbers of the file, in {parameters.dtype.name}, have the bound {found:.9g}, and the "
        f"model's certificate allows {certificate.value:.9g} · (1 + {certificate.margin:.3g}) = "
        f"{allowed:.9g}; nothing was written: "
        + ("use dtype=float64" if parameters.dtype == np.float32 else "fit the model again")
    )


def _with_margin(
    certificate: Certificate, parameters: Parameters, slopes: tuple[float, float], margin: float
) -> Certificate:
    """Return the certificate for the numbers of the file, with a bound larger by the margin."""
    # Weights 1 + growth times as large need multipliers that fall so from layer to layer.
    growth = (1 + margin) ** (1 / len(parameters.matrices)) - 1
    multipliers = enumerate(certificate.multipliers, start=1)
    low, high = slopes
    return replace(
        certificate,
        value=certificate.value * (1 + margin),
        multipliers=tuple(m / (1 + growth) ** (2 * i) for i, m in multipliers),
        # Those in a box are already wider than the rounded constants of an activation need.
        slopes=certificate.slopes
        if certificate.box is not None
        else tuple(
            np.column_stack([np.minimum(s[:, 0], low), np.maximum(s[:, 1], high)])
            for s in certificate.slopes
        ),
        box=_box(certificate, parameters),
        scale=_scale(certificate, parameters),
        gain=float(parameters.output_scale),
        digest=certificates.digest(parameters.matrices, parameters.biases),
        margin=np.inf,
    )


def _scale(certificate: Certificate, parameters: Parameters) -> np.ndarray:
    if parameters.normalise:  # not a number of the file: it depends on ‖x‖
        return certificate.scale
    # An input that is clipped to one number stays so.
    return np.where(certificate.scale == 0, 0.0, parameters.input_scale.astype(np.float64))


def _box(certificate: Certificate, parameters: Parameters) -> Box | None:
    """Return the box of all inputs, clipped as in the file."""
    if certificate.box is None:
        return None
    model = parameters.model
    return replace(
        certificate.box,
        shift=model.scaling.shift,
        scale=parameters.input_scale.astype(np.float64),
        lower=model.saturation.lower,
        upper=model.saturation.upper,
    )


def _slopes(parameters: Parameters) -> tuple[float, float]:
    low, high = parameters.slopes
    if low < -1 or high > 1:
        raise ValueError(
            f"the constants of activation {parameters.activation.name!r}, rounded to "
            f"{parameters.dtype.name}, give slopes from {low:.9g} to {high:.9g}; expected slopes "
            "within [-1, 1]: use dtype='float64'"
        )
    return low, high


def _tight(certificate: Certificate, parameters: Parameters, slopes: tuple[float, float]) -> float:
    """Return the best bound of the rounded numbers."""
    if certificate.box is not None:
        return certificates.tight(parameters.model).value
    matrices = [w.astype(np.float64) for w in parameters.matrices]
    matrices[0] = _scale(certificate, parameters)[:, None] * matrices[0]
    matrices[-1] = matrices[-1] * float(parameters.output_scale)
    activation = replace(parameters.activation, slopes=slopes)
    return certificates.tight(matrices, activation=activation, orientation="in-out").value
