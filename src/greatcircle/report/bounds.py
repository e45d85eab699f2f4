"""The bounds of a model, for all inputs and for blocks of them, as a table, a figure and a page."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from greatcircle import certificate, report
from greatcircle._runtime import versions as provenance
from greatcircle.certificate import Certificate, control
from greatcircle.figures import curves as figures
from greatcircle.figures import model as model_figures
from greatcircle.report import model_charts

ALL = "all inputs"

COLOURS = {
    "frobenius": "#8A6D00",
    "spectral": "#6C6C6C",
    "fast": "#00757F",
    "tight": "#0B5FA5",
    "sdp": "#5B3FA0",
    "lower": "#B34700",
}


class Bounds(NamedTuple):
    """Upper bounds by method, and the steepest slope found, for each block of inputs."""

    model: Any
    certificates: dict[str, dict[str, Certificate]]
    """By block and method."""
    lower: dict[str, float]
    """By block."""


def bounded(
    model: Any,
    blocks: Mapping[str, Sequence[str | int]],
    *,
    min_input_norm: float | None = None,
    sdp: bool = False,
) -> Bounds:
    """All bounds of a fitted model.

    Parameters
    ----------
    model
        A fitted model.
    blocks
        Inputs of each block, by name or number.
    min_input_norm
        As for `certificate.tight`.
    sdp
        Whether Clarabel is asked as well.
    """
    methods = [certificate.frobenius, certificate.spectral, certificate.fast, certificate.tight]
    if sdp:
        methods.append(certificate.sdp)
    certificates, lower = {}, {}
    for name, inputs in {ALL: None, **blocks}.items():
        found = [method(model, inputs=inputs, min_input_norm=min_input_norm) for method in methods]
        certificates[name] = {c.method: c for c in found}
        lower[name] = certificate.lower(model, inputs=inputs, min_input_norm=min_input_norm).value
    return Bounds(model, certificates, lower)


def results(found: Bounds, gain: tuple[str, float] | None = None) -> dict[str, Any]:
    """As JSON can say it; `gain` is that of a block of controls."""
    every = [c for row in found.certificates.values() for c in row.values()]
    first = found.certificates[ALL]
    summary: dict[str, Any] = {
        "source": f"greatcircle {provenance.versions()['greatcircle']}, certify",
        "machine": provenance.machine(),
        "versions": provenance.versions(),
        "methods": [*first, "lower"],
        "bounds": {
            name: {method: c.value for method, c in row.items()} | {"lower": found.lower[name]}
            for name, row in found.certificates.items()
        },
        "holds": first["tight"].holds,
        "declared": first["tight"].declared,
        "margin": first["tight"].margin,
        "digest": first["tight"].digest,
        "certificates": len(every),
        "verified": sum(bool(certificate.verify(c, found.model)) for c in every),
        "contraction": None,
    }
    if gain is not None:
        block, size = gain
        bound = found.certificates[block]["tight"]
        rule = control.contraction(size, bound)
        summary["contraction"] = {
            "block": block,
            "gain": size,
            "bound": bound.value,
            "rate": rule.rate,
            "holds": rule.holds,
        }
    return summary


def write(
    folder: Path, found: Bounds, summary: dict[str, Any], file: str, command: str
) -> list[Path]:
    """`results.json`, the figure and `report.html`; the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.json"
    path.write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n", "utf-8")
    written = [path]
    for index, (name, row) in enumerate(summary["bounds"].items()):
        figure = model_figures.bars(_bars(row), "unit of the inputs")
        figure.suptitle(name, fontsize="medium")
        stem = "bounds" if index == 0 else f"bounds_{index}"
        written += figures.save(figure, folder / stem)
    return [*written, report.write(_page(summary, file, command), folder / "report.html")]


def _bars(row: Mapping[str, float]) -> list[tuple[str, float, str]]:
    return [(method, value, COLOURS[method]) for method, value in row.items() if value > 0]


def _page(summary: dict[str, Any], file: str, command: str) -> report.Report:
    whole = summary["bounds"][ALL]
    table = report.TableBlock(
        ("inputs", *summary["methods"]),
        [
            (name, *(f"{row[method]:.5g}" for method in summary["methods"]))
            for name, row in summary["bounds"].items()
        ],
        "Units of the outputs per unit of the inputs. The other inputs are held fixed.",
    )
    charts = [
        report.Chart(
            model_charts.bars(_bars(row), "unit of the inputs"),
            f"Bounds for {name}, on a logarithmic axis.",
            "; ".join(f"{method} {value:.4g}" for method, value in row.items()),
        )
        for name, row in summary["bounds"].items()
    ]
    text = (
        "Two inputs that differ by a length d have outputs that differ by at most the bound times "
        f"d, {summary['holds']}. `tight` is the least bound that one multiplier for each unit can "
        "prove; `lower` is the steepest slope found: no true bound can be lower.\n\n"
        f"{summary['verified']} of {summary['certificates']} proofs verified."
    )
    highlights = [
        report.Highlight("Lipschitz bound", f"{whole['tight']:.4g}", "certified"),
        report.Highlight(
            "At most too large by", f"{whole['tight'] / whole['lower']:.2f} ×", "the slope found"
        )
        if whole["lower"] > 0
        else report.Highlight("Steepest slope", "0", "found"),
    ]
    if rule := summary["contraction"]:
        verdict = "contracts" if rule["holds"] else "need not contract"
        highlights.append(report.Highlight("Iteration", f"{rule['rate']:.3g}", verdict))
        text += (
            f"\n\nThe fixed-point iteration of a controller with the gain {rule['gain']:g} over "
            f"the block {rule['block']} {verdict}: its rate is at most {rule['rate']:.4g}."
        )
    return report.Report(
        title=f"Lipschitz bounds of {file}",
        lead="How fast the outputs of this model can change with its inputs, with proofs.",
        highlights=highlights,
        sections=[report.Section("Bounds", text, tables=[table], charts=charts)],
        command=command,
        facts=[
            ("software", summary["source"]),
            ("machine", summary["machine"]),
            ("SHA-256 of the weights", summary["digest"]),
            ("allowance for float32", f"{summary['margin']:.2g}, relative"),
        ],
    )
