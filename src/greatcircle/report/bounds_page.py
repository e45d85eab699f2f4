"""Figures and page of the Lipschitz bounds of a model, as the bytes of files by name."""

from collections.abc import Mapping
from typing import Any

from greatcircle.figures import model as drawing
from greatcircle.figures.files import encode
from greatcircle.figures.tables import bound_bars
from greatcircle.report.bounds import ALL_INPUTS
from greatcircle.report.charts import model as charts
from greatcircle.report.page import Chart, Highlight, Report, Section, TableBlock
from greatcircle.report.render import render

__all__ = ["files"]

UNIT = "unit of the inputs"


def files(results: Mapping[str, Any], model_file: str, command: str) -> dict[str, bytes]:
    """Return one figure per group of inputs, as PNG and PDF, and `report.html`.

    Parameters
    ----------
    results
        Content of `results.json`, from `bounds.results`.
    model_file
        Name of the model's file.
    command
        The command that produces this report.
    """
    made = {}
    for index, (group, row) in enumerate(results["bounds"].items()):
        figure = drawing.bars(bound_bars(row), UNIT)
        figure.suptitle(group, fontsize="medium")
        stem = "bounds" if index == 0 else f"bounds_{index}"
        made |= {f"{stem}{suffix}": data for suffix, data in encode(figure).items()}
    return made | {"report.html": render(_report(results, model_file, command)).encode("utf-8")}


def _report(results: Mapping[str, Any], model_file: str, command: str) -> Report:
    return Report(
        title=f"Lipschitz bounds of {model_file}",
        lead="How much the outputs of this model can change with its inputs, with proofs.",
        highlights=_highlights(results),
        sections=[_section(results)],
        command=command,
        facts=[
            ("software", results["source"]),
            ("machine", results["machine"]),
            ("SHA-256 of the weights", results["digest"]),
            ("margin for float32", f"{results['margin']:.2g}, relative"),
        ],
    )


def _highlights(results: Mapping[str, Any]) -> list[Highlight]:
    tight, lower = (results["bounds"][ALL_INPUTS][name] for name in ("tight", "lower"))
    highlights = [Highlight("Lipschitz bound", f"{tight:.4g}", "certified")]
    if lower > 0:
        ratio = f"{tight / lower:.2f} ×"
        highlights.append(Highlight("Bound / slope", ratio, "the steepest slope found"))
    else:
        highlights.append(Highlight("Steepest slope", "0", "found"))
    if rule := results["contraction"]:
        highlights.append(Highlight("Iteration", f"{rule['rate']:.3g}", _verdict(rule)))
    return highlights


def _verdict(rule: Mapping[str, Any]) -> str:
    return "contracts" if rule["holds"] else "need not contract"


def _section(results: Mapping[str, Any]) -> Section:
    text = (
        "If two inputs are a distance d apart, the outputs differ by at most the bound times d, "
        f"{results['holds']}. `tight` is the lowest bound that one multiplier per hidden unit can "
        "prove. `lower` is the steepest slope found: no valid bound can be lower.\n\n"
        f"{results['verified']} of {results['certificates']} proofs verified."
    )
    if rule := results["contraction"]:
        text += (
            f"\n\nThe fixed-point iteration of a controller with the gain {rule['gain']:g} over "
            f"the group {rule['group']} {_verdict(rule)}: its rate is at most {rule['rate']:.4g}."
        )
    table = TableBlock(
        ("inputs", *results["methods"]),
        [
            (group, *(f"{row[method]:.5g}" for method in results["methods"]))
            for group, row in results["bounds"].items()
        ],
        "Bounds in units of the outputs per unit of the inputs, with the other inputs held fixed.",
    )
    chart_list = [
        Chart(
            charts.bars(bound_bars(row), UNIT),
            f"Bounds for {group}, on a logarithmic axis.",
            "; ".join(f"{method} {value:.4g}" for method, value in row.items()),
        )
        for group, row in results["bounds"].items()
    ]
    return Section("Bounds", text, tables=[table], charts=chart_list)
