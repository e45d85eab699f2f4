"""Check a certificate against a fitted model or the matrices of a network.

`proof.flaw` checks the proof itself. Given a model, everything else that the certificate says is
compared with the model: units, activation, and where the bound holds. Given matrices, these cannot
be known, and the verdict lists them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from greatcircle.certificate.proof import Certificate, flaw
from greatcircle.certificate.stack import fitted_model, in_out, stack
from greatcircle.network.activations.builtin import ACTIVATIONS

UNKNOWN = ("units (scale, gain, inputs)", "activation (slopes)")
"""What matrices alone do not say."""

DECLARED = ("slopes that a user declared for the activation",)
"""What a model states but cannot prove."""


@dataclass(frozen=True)
class Verdict:
    """Whether a certificate proves its bound, and why not; false in an `if` where it does not.

    Parameters
    ----------
    reason
        What is wrong; empty where the proof holds.
    trusted
        What the certificate says and could not be checked.
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
        What to check.
    weights
        A fitted model, with which every field of the certificate is compared, or the matrices of a
        network.
    biases
        Biases of the layers, where matrices are given and the certificate was made with biases.
    orientation
        As for `tight`.

    Returns
    -------
    Verdict
        True or false in an `if`; printed, it says why, and what was taken on trust.

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
    model = fitted_model(weights)
    trusted = UNKNOWN
    try:
        if model is None:
            weights = in_out(weights, orientation or "in-out")
        else:
            weights, biases = model.matrices, model.biases
            trusted = DECLARED if model.activation.declared else ()
        reason = flaw(certificate, weights, biases)
        if model is not None and not reason:
            reason = _difference(certificate, model)
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        reason = f"its fields or the weights are not of the right kind ({error})"
    return Verdict(reason, trusted)


def _difference(certificate: Certificate, model: Any) -> str:
    """Name the first field that contradicts the model; an empty text if there is none."""
    of = stack(model, inputs=certificate.inputs, at_least=certificate.at_least)
    activation, box = of.activation, certificate.box
    expected = of.certificate(0.0, "", (), ())
    if not _equal(certificate.scale, expected.scale):
        return "its scale is not what the model multiplies its inputs by"
    if certificate.gain != expected.gain:
        return f"its gain is {certificate.gain!r} and the model's is {expected.gain!r}"
    if certificate.declared != expected.declared:
        return "it does not say whether the slopes of the activation were declared by a user"
    if certificate.at_least != of.at_least:
        return "it does not say for which ‖x‖ it holds"
    if box is not None:
        known = ACTIVATIONS.get(box.activation) is activation
        same = _equal(box.shift, of.shift) and _equal(box.scale, of.scale)
        return "" if known and same else "its box is for another scaling or activation"
    low, high = activation.slopes
    covered = all(
        np.all((np.asarray(s) <= low)[:, 0] & (np.asarray(s) >= high)[:, 1])
        for s in certificate.slopes
    )
    return "" if covered else f"its slopes do not contain those of {activation.name}"


def _equal(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a, b))
