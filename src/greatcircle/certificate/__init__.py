"""Lipschitz bounds, from cheap to tight, each with a proof that anyone can re-check.

| function | bound | cost |
|---|---|---|
| `frobenius` | ∏‖W_i‖, known before training | – |
| `spectral` | ∏‖W_i‖_op, Eq. (2) | singular values |
| `fast` | closed form, neighbouring layers together | one eigenvalue a layer |
| `tight` | the best multipliers, by our interior-point method | a fraction of a second |
| `exact` | the same optimum by Clarabel, an independent solver | seconds |
| `local` | the best multipliers in a box of inputs | as `tight` |
| `lower` | no bound: the largest Jacobian norm found, which no bound can be below | seconds |

All are float64 NumPy. They take a fitted model, and then are in units of y per unit of X, or the
matrices of any network. `verify` checks a certificate with NumPy alone.
"""

from greatcircle.certificate.ascent import Lower, lower
from greatcircle.certificate.box import Box
from greatcircle.certificate.closed_form import fast, frobenius, spectral
from greatcircle.certificate.interior import tight
from greatcircle.certificate.local import local
from greatcircle.certificate.proof import Certificate, digest
from greatcircle.certificate.sdp import exact
from greatcircle.certificate.verdict import Verdict, verify

__all__ = [
    "Box",
    "Certificate",
    "Lower",
    "Verdict",
    "digest",
    "exact",
    "fast",
    "frobenius",
    "local",
    "lower",
    "spectral",
    "tight",
    "verify",
]
