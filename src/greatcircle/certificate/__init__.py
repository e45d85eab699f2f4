"""Lipschitz bounds from cheap to tight, each with a proof that anyone can check.

| function | bound | cost |
|---|---|---|
| `frobenius` | ∏‖W_i‖, known before training | none |
| `spectral` | ∏‖W_i‖_op, Eq. (2) | singular values |
| `fast` | ECLipsE-Fast, a closed form | one eigenvalue per layer |
| `tight` | LipSDP-Neuron, the best multipliers, by our interior-point method | < 1 s |
| `sdp` | the same by Clarabel, an independent solver (not the true constant either) | seconds |
| `local` | the best multipliers for inputs in a box | as `tight` |
| `lower` | not a bound: the largest Jacobian norm found, which no bound can be below | < 1 s |

All are NumPy in float64. They take a fitted model, and then are in units of y per unit of X, or the
matrices of any network. `verify` checks a certificate with NumPy alone; `proof.py` is the check.
"""

from greatcircle.certificate.ascent import Lower, lower
from greatcircle.certificate.box import Box
from greatcircle.certificate.closed_form import fast, frobenius, spectral
from greatcircle.certificate.lipsdp import sdp, tight
from greatcircle.certificate.local_bound import local
from greatcircle.certificate.proof import Certificate, digest
from greatcircle.certificate.verdict import Verdict, verify

__all__ = [
    "Box",
    "Certificate",
    "Lower",
    "Verdict",
    "digest",
    "fast",
    "frobenius",
    "local",
    "lower",
    "sdp",
    "spectral",
    "tight",
    "verify",
]


def __dir__() -> list[str]:
    return sorted(__all__)
