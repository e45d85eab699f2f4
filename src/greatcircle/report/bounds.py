"""Lipschitz bounds of a model by every method, for all inputs and for groups of inputs."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from greatcircle import certificate
from greatcircle._runtime import versions
from greatcircle.certificate import Certificate, control

__all__ = ["ALL_INPUTS", "GroupBounds", "bound_groups", "results"]

ALL_INPUTS = "all inputs"


class GroupBounds(NamedTuple):
    """Upper bounds, and the steepest slope found, for each group of inputs."""

    certificates: dict[str, dict[str, Certificate]]
    """By group and method."""
    lower: dict[str, float]
    """By group."""
    verified: int
    """Number of certificates that `certificate.verify` accepted."""


def bound_groups(
    model: Any,
    groups: Mapping[str, Sequence[str | int]],
    *,
    min_input_norm: float | None = None,
    sdp: bool = False,
) -> GroupBounds:
    """Compute and verify all bounds of a fitted model.

    Parameters
    ----------
    model
        A fitted model.
    groups
        Inputs of each group, by name or number; the other inputs are held fixed.
    min_input_norm
        As for `certificate.tight`.
    sdp
        Whether to compute the bound with Clarabel as well.
    """
    methods = [certificate.frobenius, certificate.spectral, certificate.fast, certificate.tight]
    if sdp:
        methods.append(certificate.sdp)
    certificates, lower = {}, {}
    for name, inputs in {ALL_INPUTS: None, **groups}.items():
        computed = [
            method(model, inputs=inputs, min_input_norm=min_input_norm) for method in methods
        ]
        certificates[name] = {c.method: c for c in computed}
        lower[name] = certificate.lower(model, inputs=inputs, min_input_norm=min_input_norm).value
    verified = sum(
        bool(certificate.verify(c, model)) for row in certificates.values() for c in row.values()
    )
    return GroupBounds(certificates, lower, verified)


def results(bounds: GroupBounds, gain: tuple[str, float] | None = None) -> dict[str, Any]:
    """Return the content of `results.json`; `gain` is the controller gain of a group of inputs."""
    first = bounds.certificates[ALL_INPUTS]
    tight, packages = first["tight"], versions.versions()
    return {
        "source": f"greatcircle {packages['greatcircle']}, certify",
        "machine": versions.machine(),
        "versions": packages,
        "methods": [*first, "lower"],
        "bounds": {
            name: {method: c.value for method, c in row.items()} | {"lower": bounds.lower[name]}
            for name, row in bounds.certificates.items()
        },
        "holds": tight.holds,
        "declared": tight.declared,
        "margin": tight.margin,
        "digest": tight.digest,
        "certificates": sum(map(len, bounds.certificates.values())),
        "verified": bounds.verified,
        "contraction": None if gain is None else _contraction(bounds, *gain),
    }


def _contraction(bounds: GroupBounds, group: str, gain: float) -> dict[str, Any]:
    bound = bounds.certificates[group]["tight"]
    rule = control.contraction(gain, bound)
    return {
        "group": group,
        "gain": gain,
        "bound": bound.value,
        "rate": rule.rate,
        "holds": rule.holds,
    }
