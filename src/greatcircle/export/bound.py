"""The Lipschitz bound of the numbers in a file, proved with the multipliers of the model's own.

What is certified is the function that the file's numbers describe. How its evaluation rounds is
another matter: that adds errors to outputs, not to the function.
"""

from dataclasses import replace

import numpy as np

from greatcircle import certificate
from greatcircle.certificate import Certificate
from greatcircle.export.standalone import Parameters


def recertified(model: Certificate, parameters: Parameters) -> float:
    """The bound proved for these numbers: the model's, or that with its margin for rounding.

    Raises
    ------
    ValueError
        Where the margin does not suffice: such a file must not be written.
    """
    depth = len(parameters.matrices)
    # Weights 1 + room times as large need multipliers that fall so from layer to layer.
    for margin in (0.0, model.margin):
        room = (1 + margin) ** (1 / depth) - 1
        tried = replace(
            model,
            value=model.value * (1 + margin),
            multipliers=tuple(
                m / (1 + room) ** (2 * i) for i, m in enumerate(model.multipliers, start=1)
            ),
            slopes=_slopes(model, parameters),
            scale=_scale(model, parameters),
            gain=float(parameters.gain),
            digest=certificate.digest(parameters.matrices, parameters.biases),
            margin=np.inf,
        )
        if certificate.verify(tried, parameters.matrices, parameters.biases):
            return tried.value
    # The multipliers may not fit the rounded numbers, and others may.
    found, allowed = _found(model, parameters), model.value * (1 + model.margin)
    if found <= allowed:
        return max(found, model.value)
    kind = parameters.gain.dtype.name  # the file's own: the first layer may be more precise
    raise ValueError(
        f"the numbers of the file, in {kind}, have the bound {found:.9g}, and the model's "
        f"certificate allows {model.value:.9g} · (1 + {model.margin:.3g}) = {allowed:.9g}; nothing "
        f"was written: {'use dtype=float64' if kind == 'float32' else 'fit the model again'}"
    )


def _scale(model: Certificate, parameters: Parameters) -> np.ndarray:
    if parameters.normalise:  # no number of the file: it depends on ‖x‖
        return model.scale
    return parameters.scale.astype(np.float64)


def _slopes(model: Certificate, parameters: Parameters) -> tuple[np.ndarray, ...]:
    """In single precision the slope 0.01 of `leaky_relu` is a little less."""
    least = float(parameters.gain.dtype.type(0.01))
    if parameters.activation != "leaky_relu" or least >= 0.01:
        return model.slopes
    return tuple(np.column_stack([np.minimum(s[:, 0], least), s[:, 1]]) for s in model.slopes)


def _found(model: Certificate, parameters: Parameters) -> float:
    """The best bound of the rounded numbers."""
    matrices = [w.astype(np.float64) for w in parameters.matrices]
    matrices[0] = _scale(model, parameters)[:, None] * matrices[0]
    matrices[-1] = matrices[-1] * float(parameters.gain)
    name = parameters.activation
    # The rounded slope of `leaky_relu` is among those of `relu`.
    activation = "relu" if name == "leaky_relu" else name
    return certificate.tight(matrices, activation=activation, orientation="in-out").value
