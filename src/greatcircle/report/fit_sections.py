"""Sections of the page of a fit: errors, training, choice, predictions, bounds, slices."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from greatcircle.figures.tables import Confusion, LearningCurves
from greatcircle.report.charts import learning_curves as curve_charts
from greatcircle.report.charts import model as charts
from greatcircle.report.evaluation import Evaluation
from greatcircle.report.page import Chart, Section, TableBlock
from greatcircle.report.results import (
    CLASS_HEADINGS,
    ERROR_HEADINGS,
    FitDescription,
    class_rows,
    error_rows,
)
from greatcircle.report.selection import selection_section

__all__ = ["MAX_INPUTS", "fit_sections", "shown_targets", "training_curves"]

MAX_TARGETS, MAX_INPUTS = 12, 12
"""Largest number of panels of a figure or chart."""

MAX_OUTPUTS = 24
"""Largest number of outputs in the menu of the slices."""


def fit_sections(
    evaluation: Evaluation, description: FitDescription, results: Mapping[str, Any]
) -> list[Section]:
    """Return all sections of the page."""
    if evaluation.confusion is not None:
        details = [_confusion_section(evaluation.confusion)]
    else:
        details = [_predicted_section(evaluation), _residual_section(evaluation)]
    return [
        _error_section(results),
        _training_section(evaluation, description),
        *_selection_sections(evaluation, description, results),
        *details,
        _bound_section(evaluation),
        *_saturation_sections(evaluation, results),
        _slice_section(evaluation),
    ]


def training_curves(evaluation: Evaluation, description: FitDescription) -> LearningCurves:
    """Return the learning curves with the definition of the loss on the axis."""
    is_squared = description.loss == "squared"
    return evaluation.learning_curves("loss, ½ mean ‖error‖²" if is_squared else "loss")


def shown_targets(evaluation: Evaluation) -> Sequence[str]:
    """Return the targets that have a panel."""
    return evaluation.model.target_names[:MAX_TARGETS]


def _limits(evaluation: Evaluation) -> str:
    """Return a note on targets and rows that are not drawn."""
    count = len(evaluation.model.target_names)
    note = f" The first {MAX_TARGETS} of {count} targets." if count > MAX_TARGETS else ""
    if max(len(subset.rows) for subset in evaluation.predictions.values()) > charts.MAX_DOTS:
        note += (
            f" At most {charts.MAX_DOTS} training and {charts.MAX_DOTS} test rows are drawn, "
            "evenly spaced."
        )
    return note


def _error_section(results: Mapping[str, Any]) -> Section:
    metrics = results["metrics"]
    if "accuracy" in metrics["test"]:
        caption = (
            "Share of rows whose class was predicted correctly, and the share of the largest "
            "class: the accuracy of always predicting that class."
        )
        table = TableBlock(CLASS_HEADINGS, class_rows(metrics), caption)
        return Section("Accuracy", tables=[table])
    caption = (
        "Root mean square of measured − predicted in the units of each target (all: of the norm of "
        "the error vector), and R², the explained share of the variance (all: the mean)."
    )
    return Section("Errors", tables=[TableBlock(ERROR_HEADINGS, error_rows(metrics), caption)])


def _training_section(evaluation: Evaluation, description: FitDescription) -> Section:
    # The section already has a heading.
    curves = replace(training_curves(evaluation, description), title="")
    train = curves.train[0]
    networks = evaluation.model.networks
    which = f" These are the curves of the first of {networks} networks." if networks > 1 else ""
    chart = Chart(
        curve_charts.learning_curves(curves),
        "Loss after each iteration, and the angle by which the weights turned. The angle is "
        f"computed; there is no learning rate.{which}",
        f"The training loss falls from {train[0]:.4g} to {train[-1]:.4g} in {len(train) - 1} "
        "iterations.",
    )
    return Section("Training", f"End of training: {evaluation.training.reason}.", charts=[chart])


def _selection_sections(
    evaluation: Evaluation, description: FitDescription, results: Mapping[str, Any]
) -> list[Section]:
    """Return a section on the candidates if held-out error chose among them."""
    table = evaluation.training.selection
    if table is None:
        return []
    unit = evaluation.bounds.unit
    return [selection_section(table, description.loss, results["selection"], unit)]


def _confusion_section(table: Confusion) -> Section:
    correct, rows = int(np.trace(table.counts)), int(table.counts.sum())
    chart = Chart(
        charts.confusion(table),
        "Number of test rows by true and predicted class; the colour is the share of the true "
        "class.",
        f"{correct} of {rows} test rows are on the diagonal.",
    )
    return Section("Confusion matrix", charts=[chart])


def _predicted_section(evaluation: Evaluation) -> Section:
    chart = Chart(
        charts.predicted(evaluation.predictions, shown_targets(evaluation)),
        "On the dotted line, predicted and measured values are equal." + _limits(evaluation),
        "Dots for training and test rows around the line of equal values.",
    )
    return Section("Predicted and measured", charts=[chart])


def _residual_section(evaluation: Evaluation) -> Section:
    targets, predictions = shown_targets(evaluation), evaluation.predictions
    rms = np.sqrt(np.mean(evaluation.test.residuals**2, axis=0))
    words = ", ".join(f"{t} {value:.3g}" for t, value in zip(targets, rms, strict=False))
    histograms = Chart(
        charts.histograms(predictions, targets),
        "Distribution of the residuals. A wider distribution for the test rows indicates "
        "overfitting, or test data unlike the training data.",
        f"Root mean square of the test residuals: {words}.",
    )
    trends = Chart(
        charts.residuals(predictions, targets),
        "A trend is something the network has not learned." + _limits(evaluation),
        "Residuals of training and test rows around zero.",
    )
    return Section("Residuals", charts=[histograms, trends])


def _bound_section(evaluation: Evaluation) -> Section:
    bounds = evaluation.bounds
    text = (
        "If two inputs are a distance d apart, the outputs differ by at most the bound times d. "
        "`greatcircle.certificate.verify` checks the proof of the certified bound. The product of "
        "the layers' operator norms is a larger bound; the bound before training comes from the "
        "norms of the weights, which training does not change, or from the given budget. The "
        "steepest slope is the largest norm of the Jacobian at rows of the data: no valid bound "
        "can be lower."
    )
    if bounds.per_deviation is not None:
        text += (
            "\n\nWith each input in units of its standard deviation, the certified bound is "
            f"{bounds.per_deviation:.4g}. The bound in the units of the data depends most on the "
            "input that varies least."
        )
    chart = Chart(
        charts.bars(bounds.bars, bounds.unit),
        f"Bounds on the Lipschitz constant per {bounds.unit}, on a logarithmic axis.",
        "; ".join(f"{bar.name} {bar.value:.4g}" for bar in bounds.bars),
    )
    return Section("Lipschitz bounds", text, charts=[chart])


def _saturation_sections(evaluation: Evaluation, results: Mapping[str, Any]) -> list[Section]:
    """Return a section with the ranges of inputs and outputs if any are clipped."""
    saturation, ranges = evaluation.model.saturation, results["saturation"]
    if not saturation.kind:
        return []
    text = f"In this model {saturation}. Clipping moves no two numbers apart and raises no bound."
    if saturation.clips_inputs:
        text += " The certified bound is that inside the box, and it holds everywhere."
    rows = [
        (name, kind.removesuffix("s"), f"{low:.6g}", f"{high:.6g}")
        for kind in ("inputs", "outputs")
        for name, (low, high) in (ranges[kind] or {}).items()
    ]
    caption = "Range of each clipped input and output, in the units of the data."
    table = TableBlock(("column", "kind", "from", "to"), rows, caption)
    return [Section("Saturation", text, tables=[table])]


def _slice_section(evaluation: Evaluation) -> Section:
    table = evaluation.slices.most_important(MAX_INPUTS, MAX_OUTPUTS)
    count = evaluation.model.sizes[0]
    note = "" if len(table.inputs) == count else f" The {MAX_INPUTS} most important of {count}."
    chart = Chart(
        charts.slices(table),
        "Each input over its range in the training rows, with the other inputs at their medians; "
        f"one scale for all panels.{note}",
        "One curve per input.",
    )
    return Section("The learned function", charts=[chart])
