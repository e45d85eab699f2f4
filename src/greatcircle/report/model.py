"""From an evaluated model to a folder with everything: model, results, figures, report."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from greatcircle import report
from greatcircle.estimators import files as estimator_files
from greatcircle._runtime import atomic
from greatcircle._runtime import versions as provenance
from greatcircle.figures import curves as figures
from greatcircle.figures import model as model_figures
from greatcircle.report.evaluation import Evaluation, Model, Slices
from greatcircle.report import model_charts

MOST_TARGETS, MOST_INPUTS = 12, 12
"""Panels that a chart has, at the most."""

MODEL, UNCERTIFIED, RESULTS, PAGE = (
    "model.safetensors",
    "uncertified.safetensors",
    "results.json",
    "report.html",
)
FIGURES = ("training", "lipschitz", "slices", "confusion", "predicted", "residuals")
NAMES = frozenset(
    {MODEL, UNCERTIFIED, RESULTS, PAGE, *(f"{f}{s}" for f in FIGURES for s in (".png", ".pdf"))}
)
"""Of all files that `make` may make."""


@dataclass(frozen=True)
class Source:
    """Where the rows came from, and how they were parted."""

    file: str
    rows: int
    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    left_out: tuple[str, ...]
    """Columns that are neither."""
    split: str
    test_fraction: float
    seed: int


def results(evaluation: Evaluation, source: Source) -> dict[str, Any]:
    """What happened, as JSON can say it."""
    model, bounds = evaluation.model, evaluation.bounds
    history = model.history_
    return {
        "source": f"greatcircle {provenance.versions()['greatcircle']}, fit",
        "machine": provenance.machine(),
        "versions": provenance.versions(),
        "data": {
            "file": source.file,
            "rows": source.rows,
            "inputs": list(source.inputs),
            "targets": list(source.targets),
            "left_out": list(source.left_out),
        },
        "split": {
            "kind": source.split,
            "test_fraction": source.test_fraction,
            "seed": source.seed,
            "train_rows": len(evaluation.train.rows),
            "test_rows": len(evaluation.test.rows),
        },
        "estimator": type(model).__name__,
        "parameters": {
            name: value
            for name, value in model.get_params().items()
            if name not in ("verbose", "callbacks", "warm_start")
        },
        "network": list(model.network_.sizes),
        "metrics": evaluation.metrics(),
        "lipschitz": {
            "a_priori": bounds.a_priori,
            "operator_norms": bounds.operator_norms,
            "certified": bounds.certified,
            "lower": bounds.lower,
            "per_standard_deviation": bounds.per_deviation,
            "unit": f"units of the outputs per {bounds.unit}",
        },
        "training": {
            "iterations": model.n_iter_,
            "seconds": float(history["seconds"].sum()),
            "loss": model.loss_,
            "outcome": model.outcome_,
            "reason": model.reason_,
        },
        "history": {name: _without_nan(column) for name, column in history.items()},
    }


@dataclass
class Made:
    """Files made of a fitted model, in memory. A stage that fails leaves the others' files."""

    files: dict[str, bytes] = field(default_factory=dict)
    summary: dict[str, Any] | None = None
    """As in `results.json`."""
    failures: dict[str, Exception] = field(default_factory=dict)
    """By the name of the stage."""

    @property
    def certified(self) -> bool:
        """Whether there is a model with its certificate."""
        return MODEL in self.files

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Keep an exception in `failures`."""
        try:
            yield
        except Exception as error:
            self.failures.setdefault(name, error)


def make(model: Model, evaluate: Callable[[], Evaluation], source: Source, command: str) -> Made:
    """Make `model.safetensors`, figures, `report.html` and `results.json`.

    A model whose bound cannot be computed becomes `uncertified.safetensors`, and nothing else is
    made of it.
    """
    made, evaluation = Made(), None
    files = made.files
    with made.stage(MODEL):
        files[MODEL] = estimator_files.encoded(model)
    if not made.certified:
        with made.stage(UNCERTIFIED):
            files[UNCERTIFIED] = estimator_files.encoded(model, certified=False)
        return made
    with made.stage("the evaluation"):
        evaluation = evaluate()
        made.summary = summary = results(evaluation, source)
    if evaluation is None or made.summary is None:
        return made
    with made.stage("the figures"):
        drawn = {name: figures.drawn(f) for name, f in _figures(evaluation, source).items()}
        files |= {f"{name}{s}": data for name, both in drawn.items() for s, data in both.items()}
    with made.stage(PAGE):
        files[PAGE] = report.render(_page(evaluation, source, summary, command)).encode("utf-8")
    with made.stage(RESULTS):
        summary["files"] = sorted([*files, RESULTS])
        files[RESULTS] = (json.dumps(summary, indent=2, allow_nan=False) + "\n").encode("utf-8")
    return made


def write(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write the files together, in the place of an older result; return their paths."""
    # The weights of a model without a bound go beside an older result, which stays whole.
    remove = _files_of_older(folder) if MODEL in files else set()
    atomic.atomic_write_all(folder, files, remove)
    return [folder / name for name in files]


def check_folder(folder: Path) -> None:
    """Refuse a folder in which a file of the results could not be replaced."""
    atomic.check_replaceable(folder, NAMES)


def _files_of_older(folder: Path) -> set[str]:
    """Names of the files of an older result; others of the same name may be the user's own."""
    try:
        listed = json.loads((folder / RESULTS).read_text("utf-8"))["files"]
        return {MODEL, UNCERTIFIED} | NAMES.intersection(listed)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {MODEL, UNCERTIFIED}


def _without_nan(column: np.ndarray) -> list[Any]:
    return [value if np.isfinite(value) else None for value in column.tolist()]


def _figures(evaluation: Evaluation, source: Source) -> dict[str, Any]:
    train, validation, angle = evaluation.curves()
    panel = figures.Panel(
        _network(evaluation),
        train[None],
        None if validation is None else validation[None],
        angle[None],
        names=_LOSSES,
        axis=_loss_axis(evaluation),
    )
    drawn = {
        "training": figures.learning_curves([panel]),
        "lipschitz": model_figures.bars(
            model_charts.bound_bars(evaluation.bounds), evaluation.bounds.unit
        ),
        "slices": model_figures.slices(_most_telling(evaluation.slices, outputs=6)),
    }
    if evaluation.classes is not None:
        counted = evaluation.metrics()["test"]["confusion"]
        return drawn | {"confusion": model_figures.confusion(counted["labels"], counted["counts"])}
    targets, parts = evaluation.targets[:MOST_TARGETS], evaluation.parts
    return drawn | {
        "predicted": model_figures.predicted(parts, targets),
        "residuals": model_figures.residuals(parts, targets, against_row=source.split == "time"),
    }


_LOSSES = ("training loss", "validation loss")


def _loss_axis(evaluation: Evaluation) -> str:
    classes, loss = evaluation.classes, evaluation.model.loss
    return "loss, ½ mean ‖error‖²" if classes is None and loss != "huber" else "loss"


def _network(evaluation: Evaluation) -> str:
    return "network " + "-".join(map(str, evaluation.model.network_.sizes))


def _most_telling(cut: Slices, *, outputs: int = 24) -> Slices:
    """The inputs along which an output changes most, in the order of the table."""
    change = np.ptp(cut.values, axis=1)
    reach = np.max(change / np.maximum(change.max(axis=0), 1e-300), axis=1)
    kept = np.sort(np.argsort(-reach, kind="stable")[:MOST_INPUTS])
    return Slices(
        tuple(cut.inputs[index] for index in kept),
        cut.outputs[:outputs],
        cut.grid[kept],
        cut.values[kept, :, :outputs],
    )


def _page(
    evaluation: Evaluation, source: Source, summary: dict[str, Any], command: str
) -> report.Report:
    model, metrics = evaluation.model, summary["metrics"]
    seconds = summary["training"]["seconds"]
    sections = [
        _errors(evaluation, metrics),
        _training(evaluation),
        *([] if evaluation.classes is None else [_confusion(metrics["test"]["confusion"])]),
        *([_predicted(evaluation), _residuals(evaluation)] if evaluation.classes is None else []),
        _bounds(evaluation),
        _slices(evaluation),
    ]
    parameters = ", ".join(f"{k}={v!r}" for k, v in summary["parameters"].items())
    return report.Report(
        title=f"{', '.join(source.targets[:4])}{' …' if len(source.targets) > 4 else ''} "
        f"from {source.file}",
        lead=f"A network with a known Lipschitz bound, {_network(evaluation).split()[1]}, trained "
        f"on {len(evaluation.train.rows)} rows and tested on {len(evaluation.test.rows)} "
        f"{'later ones' if source.split == 'time' else 'others, chosen at random'}.",
        highlights=[
            *_highlights(evaluation, metrics),
            report.Highlight(
                "Lipschitz bound",
                f"{evaluation.bounds.certified:.4g}",
                f"per {evaluation.bounds.unit}",
            ),
            report.Highlight("Iterations", str(model.n_iter_), f"{seconds:.2f} s"),
        ],
        sections=sections,
        command=command,
        facts=[
            ("software", summary["source"]),
            ("machine", summary["machine"]),
            ("data", f"{source.file}, {source.rows} rows"),
            ("inputs", ", ".join(source.inputs)),
            ("targets", ", ".join(source.targets)),
            ("columns left out", ", ".join(source.left_out) or "none"),
            ("split", f"{source.split}, {source.test_fraction:g} for testing, seed {source.seed}"),
            ("parameters", parameters),
            ("how training ended", model.reason_),
        ],
    )


def _highlights(evaluation: Evaluation, metrics: dict[str, Any]) -> list[report.Highlight]:
    train, test = metrics["train"], metrics["test"]
    if evaluation.classes is not None:
        return [
            report.Highlight(
                "Test accuracy", f"{test['accuracy']:.1%}", f"train {train['accuracy']:.1%}"
            ),
            report.Highlight(
                "Largest class", f"{test['largest_class']:.1%}", "of the test rows, as a guess"
            ),
        ]
    return [
        report.Highlight("Test RMS", f"{test['rms']:.4g}", f"train {train['rms']:.4g}"),
        report.Highlight("Test R²", number(test["r2"]), f"train {number(train['r2'])}"),
    ]


def number(value: float | None, form: str = ".4f") -> str:
    """For a table; a dash where there is none."""
    return "–" if value is None else f"{value:{form}}"


def error_rows(metrics: dict[str, Any]) -> list[tuple[str, ...]]:
    """Of a regression: name, train and test RMS, train and test R², the total last."""
    train, test = metrics["train"], metrics["test"]
    pairs = [(name, train["targets"][name], test["targets"][name]) for name in train["targets"]]
    if len(pairs) > 1:
        pairs.append(("all", train, test))
    return [
        (name, *(number(m["rms"], ".4g") for m in both), *(number(m["r2"]) for m in both))
        for name, *both in pairs
    ]


ERROR_HEADINGS = ("target", "train RMS", "test RMS", "train R²", "test R²")


def class_rows(metrics: dict[str, Any]) -> list[tuple[str, ...]]:
    """Of a classification: part, rows, accuracy, share of the largest class."""
    return [
        (part, str(m["rows"]), f"{m['accuracy']:.4f}", f"{m['largest_class']:.4f}")
        for part, m in metrics.items()
    ]


CLASS_HEADINGS = ("part", "rows", "accuracy", "largest class")


def _errors(evaluation: Evaluation, metrics: dict[str, Any]) -> report.Section:
    if evaluation.classes is not None:
        table = report.TableBlock(
            CLASS_HEADINGS,
            class_rows(metrics),
            "Share of rows whose class was found; guessing the largest class would find its share.",
        )
        return report.Section("Accuracy", tables=[table])
    table = report.TableBlock(
        ERROR_HEADINGS,
        error_rows(metrics),
        "Root mean square of measured − predicted in the units of each target (all: of the length "
        "of the error vector), and the explained part of the variance (all: the mean).",
    )
    return report.Section("Errors", tables=[table])


def _training(evaluation: Evaluation) -> report.Section:
    train, validation, angle = evaluation.curves()
    figure = report.learning_curves(
        "",
        [0],
        train[None],
        None if validation is None else validation[None],
        angle[None],
        names=_LOSSES,
        axis=_loss_axis(evaluation),
    )
    chart = report.Chart(
        figure,
        "Loss after each iteration and the angle by which the weights were turned, which is "
        "computed, not tuned.",
        f"The training loss falls from {train[0]:.4g} to {train[-1]:.4g} in {len(angle)} "
        "iterations.",
    )
    return report.Section("Training", f"How it ended: {evaluation.model.reason_}.", charts=[chart])


def _confusion(counted: dict[str, Any]) -> report.Section:
    counts = np.array(counted["counts"])
    chart = report.Chart(
        model_charts.confusion(counted["labels"], counts),
        "Test rows by their class and by the class that was predicted; colour is the share of "
        "the class.",
        f"{int(np.trace(counts))} of {int(counts.sum())} test rows are on the diagonal.",
    )
    return report.Section("Confusion", charts=[chart])


def _shown_note(evaluation: Evaluation) -> str:
    count = len(evaluation.targets)
    note = f" The first {MOST_TARGETS} of {count} targets." if count > MOST_TARGETS else ""
    if max(len(part.rows) for part in evaluation.parts.values()) > model_charts.DOTS:
        note += f" At most {model_charts.DOTS} rows of each part are drawn, evenly spaced."
    return note


def _predicted(evaluation: Evaluation) -> report.Section:
    chart = report.Chart(
        model_charts.predicted(evaluation.parts, evaluation.targets[:MOST_TARGETS]),
        "On the dotted line prediction and measurement agree." + _shown_note(evaluation),
        "Dots for the rows of both parts around the line of equal values.",
    )
    return report.Section("Predicted against measured", charts=[chart])


def _residuals(evaluation: Evaluation) -> report.Section:
    targets = evaluation.targets[:MOST_TARGETS]
    spread = np.sqrt(np.mean(evaluation.test.residuals**2, axis=0))
    words = ", ".join(f"{t} {s:.3g}" for t, s in zip(targets, spread, strict=False))
    histograms = report.Chart(
        model_charts.histograms(evaluation.parts, targets),
        "How the residuals are spread. Test rows that reach further than training rows are a sign "
        "of overfitting, or of test data unlike the training data.",
        f"Root mean square of the test residuals: {words}.",
    )
    trends = report.Chart(
        model_charts.residuals(evaluation.parts, targets),
        "A trend here is something the network has not learnt." + _shown_note(evaluation),
        "Residuals of the rows of both parts around zero.",
    )
    return report.Section("Residuals", charts=[histograms, trends])


def _bounds(evaluation: Evaluation) -> report.Section:
    bounds = evaluation.bounds
    text = (
        "Two inputs that differ by a length d have outputs that differ by at most the bound times "
        "d. The certified bound comes with a proof, which `greatcircle.certificate.verify` checks; "
        "the product of the layers' operator norms is larger, and that of the radii was known "
        "before training. The steepest slope is the largest Jacobian at rows of the data: no true "
        "bound can be lower."
    )
    if bounds.per_deviation is not None:
        text += (
            f"\n\nWith every input counted in its own standard deviation, the certified bound is "
            f"{bounds.per_deviation:.4g}. The bound in the data's units is set by the input that "
            "varies least."
        )
    named = model_charts.bound_bars(bounds)
    chart = report.Chart(
        model_charts.bars(named, bounds.unit),
        f"Bounds on the Lipschitz constant, per {bounds.unit}, on a logarithmic axis.",
        "; ".join(f"{name} {value:.4g}" for name, value, _ in named),
    )
    return report.Section("Lipschitz bounds", text, charts=[chart])


def _slices(evaluation: Evaluation) -> report.Section:
    cut = _most_telling(evaluation.slices)
    every = evaluation.model.n_features_in_
    note = "" if len(cut.inputs) == every else f" The {MOST_INPUTS} of {every} that matter most."
    chart = report.Chart(
        model_charts.slices(cut),
        "Each input over its range in the training rows, the others at their medians; one scale "
        f"for all panels.{note}",
        "One curve for each input.",
    )
    return report.Section("The learned function", charts=[chart])
