"""Figures and HTML report of a fit, as file contents by name."""

from collections.abc import Mapping
from typing import Any

from greatcircle.figures import model as drawing
from greatcircle.figures.files import encode
from greatcircle.figures.learning_curves import learning_curves
from greatcircle.figures.selection import selection
from greatcircle.report.evaluation import Evaluation
from greatcircle.report.fit_sections import MAX_INPUTS, fit_sections, shown_targets, training_curves
from greatcircle.report.page import Highlight, Report
from greatcircle.report.render import render
from greatcircle.report.results import FitDescription, format_number
from greatcircle.report.selection import candidate_errors

__all__ = ["FIGURES", "figures", "page"]

FIGURES = ("training", "selection", "lipschitz", "slices", "confusion", "predicted", "residuals")
"""Names of all figures, without suffix; which of them are drawn depends on the model."""

MAX_OUTPUTS = 6
"""Largest number of outputs in the figure of slices."""


def figures(evaluation: Evaluation, description: FitDescription) -> dict[str, bytes]:
    """Return the Matplotlib figures as PNG and PDF files, by name."""
    bounds, table = evaluation.bounds, evaluation.slices
    drawn = {
        "training": learning_curves([training_curves(evaluation, description)]),
        "lipschitz": drawing.bars(bounds.bars, bounds.unit),
        "slices": drawing.slices(table.most_important(MAX_INPUTS, MAX_OUTPUTS)),
    }
    candidates = evaluation.training.selection
    if candidates is not None and (errors := candidate_errors(candidates, description.loss)):
        drawn["selection"] = selection(errors)
    if evaluation.confusion is not None:
        drawn["confusion"] = drawing.confusion(evaluation.confusion)
    else:
        targets, predictions = shown_targets(evaluation), evaluation.predictions
        by_row = description.split == "time"
        drawn["predicted"] = drawing.predicted(predictions, targets)
        drawn["residuals"] = drawing.residuals(predictions, targets, by_row=by_row)
    return {
        f"{name}{suffix}": data
        for name, figure in drawn.items()
        for suffix, data in encode(figure).items()
    }


def page(
    evaluation: Evaluation, description: FitDescription, results: Mapping[str, Any], command: str
) -> bytes:
    """Return the report as an HTML file; `results` is the content of `results.json`."""
    targets = ", ".join(description.targets[:4]) + (" …" if len(description.targets) > 4 else "")
    which = "later rows" if description.split == "time" else "other rows, chosen at random"
    networks = evaluation.model.networks
    average = f" (the average of {networks} networks)" if networks > 1 else ""
    report = Report(
        title=f"{targets} from {description.file}",
        lead=f"A network with a certified Lipschitz bound, {evaluation.network}{average}, trained "
        f"on {len(evaluation.train.rows)} rows and tested on {len(evaluation.test.rows)} {which}.",
        highlights=_highlights(evaluation, results),
        sections=fit_sections(evaluation, description, results),
        command=command,
        facts=_facts(description, results),
    )
    return render(report).encode("utf-8")


def _highlights(evaluation: Evaluation, results: Mapping[str, Any]) -> list[Highlight]:
    train, test = results["metrics"]["train"], results["metrics"]["test"]
    bounds, training = evaluation.bounds, results["training"]
    if evaluation.model.classes is not None:
        quality = [
            Highlight("Test accuracy", f"{test['accuracy']:.1%}", f"train {train['accuracy']:.1%}"),
            Highlight("Largest class", f"{test['largest_class']:.1%}", "of the test rows"),
        ]
    else:
        r2 = [format_number(m["r2"], ".4f") for m in (test, train)]
        quality = [
            Highlight("Test RMS", f"{test['rms']:.4g}", f"train {train['rms']:.4g}"),
            Highlight("Test R²", r2[0], f"train {r2[1]}"),
        ]
    return [
        *quality,
        Highlight("Lipschitz bound", f"{bounds.certified:.4g}", f"per {bounds.unit}"),
        Highlight("Iterations", str(training["iterations"]), f"{training['seconds']:.2f} s"),
    ]


def _facts(description: FitDescription, results: Mapping[str, Any]) -> list[tuple[str, str]]:
    parameters = ", ".join(f"{name}={value!r}" for name, value in description.parameters.items())
    return [
        ("software", results["source"]),
        ("machine", results["machine"]),
        ("data", f"{description.file}, {description.rows} rows"),
        ("inputs", ", ".join(description.inputs)),
        ("targets", ", ".join(description.targets)),
        ("ignored columns", ", ".join(description.ignored) or "none"),
        (
            "split",
            f"{description.split}, {description.test_fraction:g} for testing, "
            f"seed {description.seed}",
        ),
        ("parameters", parameters),
        ("end of training", results["training"]["reason"]),
    ]
