"""Check a certificate against a fitted model or the matrices of a network.

`proof.find_flaw` checks the proof. For a model, all other fields of the certificate are compared
with the model: units, activation, and where the bound holds. Matrices alone do not contain
them, so the verdict lists them as taken on trust.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from greatcircle.certificate.proof import Certificate, find_flaw
from greatcircle.certificate.scaled_network import (
    FittedModel,
    as_scaled_network,
    checked_matrices,
    find_model,
)
from greatcircle.network.activations.builtin import ACTIVATIONS

__all__ = ["Verdict", "verify"]

UNKNOWN_FROM_MATRICES = ("units (scale, gain, inputs)", "activation (slopes)")
"""What matrices alone do not tell."""

CLIPPING = ("clipping of inputs (box.lower, box.upper)",)
"""What they do not tell either, if the certificate relies on it."""

DECLARED_SLOPES = ("slopes that a user declared for the activation",)
"""What a model states but cannot prove."""


@dataclass(frozen=True)
class Verdict:
    """Whether a certificate proves its bound, and if not, why. Its truth value is the answer.

    Parameters
    ----------
    reason
        Why the proof fails; empty if it holds.
    trusted
        What the certificate states and could not be checked.
    """

    reason: str
    trusted: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.reason

    def __str__(self) -> str:
        if self.reason:
            return f"not verified: {self.reason}"
        return "verified" + (f", taking on trust: {', '.join(self.trusted)}" * bool(self.trusted))


def verify(
    certificate: Certificate,
    weights: Any,
    biases: Sequence[ArrayLike] | None = None,
    *,
    orientation: str | None = None,
) -> Verdict:
    """Check that a certificate proves its bound, rigorously in floating point.

    Parameters
    ----------
    certificate
        The certificate to check.
    weights
        A fitted model, with which every field of the certificate is compared, or the matrices of a
        network.
    biases
        Biases of the layers, for matrices, if the certificate was made with biases.
    orientation
        As for `tight`.

    Returns
    -------
    Verdict
        True or false in an `if`. Printed, it says why, and what was taken on trust.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from greatcircle import certificate
    >>> weights = [[[1.0, -1.0]], [[1.0], [1.0]]]
    >>> bound = certificate.tight(weights)
    >>> print(certificate.verify(bound, weights))
    verified, taking on trust: units (scale, gain, inputs), activation (slopes)
    >>> print(certificate.verify(replace(bound, value=0.9), weights))
    not verified: its multipliers do not prove the bound 0.9
    """
    if not isinstance(certificate, Certificate):
        raise TypeError(
            f"certificate is a {type(certificate).__name__}; expected a Certificate: "
            "verify(certificate, model)"
        )
    model = find_model(weights)
    trusted: tuple[str, ...] = UNKNOWN_FROM_MATRICES
    try:
        if model is None:
            clipped = certificate.box is not None and certificate.box.lower is not None
            trusted = UNKNOWN_FROM_MATRICES + CLIPPING * clipped
            reason = find_flaw(
                certificate, checked_matrices(weights, orientation or "in-out"), biases
            )
        else:
            trusted = DECLARED_SLOPES if model.activation.declared else ()
            reason = find_flaw(certificate, model.matrices, model.biases)
            reason = reason or _difference(certificate, model)
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        reason = f"its fields or the weights are not of the right kind ({error})"
    return Verdict(reason, trusted)


def _difference(certificate: Certificate, model: FittedModel) -> str:
    """Return which field contradicts the model, or an empty string."""
    network = as_scaled_network(
        model, inputs=certificate.inputs, min_input_norm=certificate.min_input_norm
    )
    if not _equal(certificate.scale, network.input_factors):
        return "its scale is not what the model multiplies its inputs by"
    if certificate.gain != network.gain:
        return f"its gain is {certificate.gain!r} and the model's is {network.gain!r}"
    if certificate.declared != network.activation.declared:
        return "it does not say whether the slopes of the activation were declared by a user"
    if certificate.min_input_norm != network.min_input_norm:
        return "it does not say for which ‖x‖ it holds"
    box, activation = certificate.box, network.activation
    if box is not None:
        known = ACTIVATIONS.get(box.activation) is activation
        same = _equal(box.shift, network.shift) and _equal(box.scale, network.scale)
        if not known or not same:
            return "its box is for another scaling or activation"
        clipped = network.saturation.lower, network.saturation.upper
        same = _equal(box.lower, clipped[0]) and _equal(box.upper, clipped[1])
        return "" if same else "its box is for inputs that are clipped differently"
    low, high = activation.slopes
    covered = all(
        np.all((np.asarray(s) <= low)[:, 0] & (np.asarray(s) >= high)[:, 1])
        for s in certificate.slopes
    )
    return "" if covered else f"its slopes do not contain those of {activation.name}"


def _equal(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a, b))
