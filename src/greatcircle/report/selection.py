"""Choice of the network by held-out error: content of `results.json`, and section of the page."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from greatcircle.figures.candidates import CandidateErrors, gain_text, held_out_error, layers_text
from greatcircle.model import Model, SelectionRow, SelectionTable
from greatcircle.model.selection import batches_text
from greatcircle.report.charts import selection as charts
from greatcircle.report.page import Chart, Section, TableBlock

__all__ = [
    "candidate_errors",
    "held_out_words",
    "selection_results",
    "selection_section",
]

HEADINGS = (
    *("hidden layers", "target gain", "small batches", "iterations", "held-out error"),
    *("passes", "bound", "note"),
)


def selection_results(model: Model, parameters: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the content of `results.json`; None without a selection.

    Parameters
    ----------
    model
        The fitted model.
    parameters
        Those of the estimator.
    """
    table = model.training.selection if model.training is not None else None
    if table is None:
        return None
    kind = "time" if parameters.get("cv") == "time" else "folds"
    parts = max(row.parts for row in table.rows() if row.chosen)
    return {
        "candidates": [
            {
                name: None if isinstance(value, float) and not np.isfinite(value) else value
                for name, value in row._asdict().items()
            }
            | {"hidden_layer_sizes": list(row.hidden_layer_sizes)}
            for row in table.rows()
        ],
        "networks": model.networks,
        "held_out": {
            "kind": "early stopping" if parameters.get("early_stopping") else kind,
            "parts": parts,
        },
    }


def held_out_words(held_out: Mapping[str, Any]) -> str:
    """Return in words which rows were held out, as in "5 folds"."""
    kind, parts = held_out["kind"], held_out["parts"]
    if kind == "early stopping":
        return "the rows of early stopping"
    if parts == 1:
        return "the last fifth of the rows" if kind == "time" else "a fifth of the rows"
    return f"{parts} parts in time order" if kind == "time" else f"{parts} folds"


def candidate_errors(table: SelectionTable, loss: str) -> CandidateErrors | None:
    """Return what figure and chart draw; None if there is nothing to compare.

    Parameters
    ----------
    table
        The candidates.
    loss
        Name of the loss: "squared", "huber", "cross-entropy", or another one.
    """
    quantity, unit = _quantity(loss)
    errors = CandidateErrors.of(table, f"{quantity} [{unit}]", squared=loss == "squared")
    drawn = sum(len(series.error) for series in errors.series)
    return errors if drawn > 1 else None


def selection_section(
    table: SelectionTable, loss: str, results: Mapping[str, Any], unit: str
) -> Section:
    """Return the section of the page.

    Parameters
    ----------
    table
        The candidates.
    loss
        As for `candidate_errors`.
    results
        Of `selection_results`.
    unit
        Unit of the inputs of the bounds.
    """
    quantity, loss_unit = _quantity(loss)
    caption = (
        f"Candidates in the order in which they were tried. {_capital(quantity)} in "
        f"{loss_unit} ± its standard error; passes over the rows of every kind, for all parts "
        f"together; bound: the product of operator norms in units of the outputs per {unit}, "
        "mean over the parts."
    )
    errors = candidate_errors(table, loss)
    return Section(
        "Choice of the network",
        _text(table, loss, results),
        tables=[TableBlock(HEADINGS, _rows(table, loss), caption)],
        charts=[] if errors is None else [_chart(errors, quantity, results)],
    )


def _chart(errors: CandidateErrors, quantity: str, results: Mapping[str, Any]) -> Chart:
    """Return the chart of the section."""
    shapes = "by target gain, one line for each shape" if errors.by_gain else "for each shape"
    caption = (
        f"{_capital(quantity)} {shapes} of the hidden layers; bars are one standard error, the "
        "ring is the chosen candidate."
    )
    parts = results["held_out"]["parts"]
    if any(candidate["parts"] < parts for candidate in results["candidates"]):
        caption += (
            " Hollow markers without a line: measured on fewer parts of the rows than the chosen "
            "candidate, because another one was clearly better there; their errors cannot be "
            "compared with the others."
        )
    comparable = [series.where(series.comparable) for series in errors.series]
    lowest = ", ".join(f"{s.layers} {s.error.min():.4g}" for s in comparable if len(s.error))
    return Chart(charts.selection(errors), caption, f"Lowest error of each shape: {lowest}.")


def _text(table: SelectionTable, loss: str, results: Mapping[str, Any]) -> str:
    """Return what was chosen, on which rows, and how many networks are averaged."""
    words = held_out_words(results["held_out"])
    errors, standard_errors = held_out_error(table, squared=loss == "squared")
    index = int(np.argmax(table["chosen"]))
    row, count, networks = table.rows()[index], len(errors), results["networks"]
    sizes, (quantity, unit) = row.hidden_layer_sizes, _quantity(loss)
    what = f"hidden layers {layers_text(sizes)}"
    if len(sizes) == 1:
        what = f"one hidden layer of {sizes[0]} units"
    if not np.isnan(row.target_gain):
        what += f" with target gain {gain_text(row.target_gain)}"
    error = _plus_minus(errors[index], standard_errors[index])
    measured = f"{quantity} {error} ({unit}) after {_length_text(row)}"
    if count == 1:
        text = f"Held-out error ({words}) chose only the length of training, for {what}: "
    else:
        text = f"Of {count} candidates, held-out error ({words}) chose {what}: "
    text += f"{measured}."
    if len({each.hidden_layer_sizes for each in table.rows()}) > 1 and not row.steps:
        text += (
            " Wider networks and other depths are chosen only if they lower the error by more than "
            "the standard error of the difference."
        )
    if networks > 1:
        return (
            f"{text} The model is the average of {networks} such networks from different initial "
            "weights, stored as one network."
        )
    return text + " The model is one such network."


def _rows(table: SelectionTable, loss: str) -> list[tuple[str, ...]]:
    """Return a row of text for each candidate."""
    errors, standard_errors = held_out_error(table, squared=loss == "squared")
    parts = int(np.max(table["parts"][table["chosen"]]))
    return [
        (
            layers_text(row.hidden_layer_sizes),
            gain_text(row.target_gain),
            batches_text(row),
            str(row.iterations),
            _plus_minus(error, standard_error),
            f"{row.evaluations:.0f}",
            f"{row.spectral_bound:.3g}",
            "chosen" if row.chosen else _part_note(row.parts, parts),
        )
        for row, error, standard_error in zip(table.rows(), errors, standard_errors, strict=True)
    ]


def _length_text(row: SelectionRow) -> str:
    """Return how long the chosen candidate was trained, in words."""
    iterations = f"{row.iterations} iterations"
    if not row.steps:
        return iterations
    steps = f"{row.steps} steps on small batches"
    return f"{steps} and {iterations} on all rows" if row.iterations else steps


def _plus_minus(error: float, standard_error: float) -> str:
    """Return both with the decimals of two digits of the standard error, as in "0.811 ± 0.015"."""
    if not np.isfinite(error):
        return "not finite"
    if not 0 < standard_error < error:
        return f"{error:.4g}"
    decimals = 1 - int(np.floor(np.log10(standard_error)))
    if not 0 <= decimals <= 6:
        return f"{error:.4g} ± {standard_error:.2g}"
    return f"{error:.{decimals}f} ± {standard_error:.{decimals}f}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _part_note(parts: int, of: int) -> str:
    return "" if parts >= of else f"{parts} of {of} parts"


def _quantity(loss: str) -> tuple[str, str]:
    """Return what is drawn, and its unit."""
    if loss == "squared":
        return "held-out RMS error", "units of the targets"
    if loss == "huber":
        return "held-out Huber loss", "units of the targets, squared"
    if loss == "cross-entropy":
        return "held-out cross-entropy", "nats"
    return "held-out loss", "units of the loss"
