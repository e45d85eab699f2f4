"""`greatcircle fit`: train a network on a table, evaluate it, and write model and report."""

import argparse
import traceback
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from greatcircle.cli import DEBUG_HINT, FAILED, INTERRUPTED, error_line, fit_selection, output
from greatcircle.cli.signals import Phase, handler

# Imported where they are used: `fit --help` answers at once.
if TYPE_CHECKING:
    import numpy as np

    from greatcircle.cli.fit_files import FitFiles
    from greatcircle.data.table import Table

__all__ = ["LOSSES", "METHODS", "SATURATIONS", "SCALINGS", "SPLITS", "add_arguments", "run"]

METHODS = ("auto", "ad", "mm")
SCALINGS = ("paper", "standard", "max")
LOSSES = ("auto", "squared", "huber")
SATURATIONS = ("auto", "none", "outputs", "inputs", "both")
SPLITS = ("random", "time")

MAX_NAMES = 40
"""Number of columns listed on the screen; results.json lists all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Train a network with a known Lipschitz bound on a CSV or Parquet file. Writes\n"
        "model.safetensors, results.json, figures (PNG and PDF) and report.html. Ctrl-C ends\n"
        "training after the current iteration; the model so far is evaluated and written."
    )
    parser.epilog = (
        "examples:\n"
        "  greatcircle fit flight.csv --targets fx fy fz\n"
        "  greatcircle fit flight.csv --targets fx fy fz --inputs z vx vy vz --split time\n"
        "  greatcircle fit flight.parquet --targets fz --lipschitz 20 --hidden 64 64 --out fz\n"
        "  greatcircle fit iris.csv --targets species --classify --json"
    )
    add = parser.add_argument
    add("data", type=Path, help="a .csv, .csv.gz or .parquet file with named columns")
    add("--targets", nargs="+", required=True, metavar="COLUMN", help="columns to predict")
    add("--inputs", nargs="+", metavar="COLUMN", help="default: all other numeric columns")
    add("--classify", action="store_true", help="the target is a class label, not a number")
    add("--out", type=Path, metavar="DIR", help="default: runs/ and the name of the file")
    add(
        "--method",
        choices=METHODS,
        default="auto",
        help="training method; ad and mm are the paper's Methods 1 and 2 (default: auto)",
    )
    add("--scaling", choices=SCALINGS, help="default: standard, or paper for ad and mm")
    add("--lipschitz", type=float, metavar="L", help="upper limit of the certified bound")
    add("--loss", choices=LOSSES, default="auto", help="default: squared, or cross-entropy")
    add(
        "--saturation",
        choices=SATURATIONS,
        default="auto",
        help="clip predictions to the range of the training targets, inputs to that of the "
        "training rows, or both (default: outputs, or none for ad and mm)",
    )
    fit_selection.add_arguments(parser)
    add("--max-iter", type=int, metavar="N", help="default: 1000, or 200 without a selection")
    add(
        "--early-stopping",
        action="store_true",
        help="hold out a tenth of the training rows and keep the best weights on them",
    )
    add("--test-fraction", type=float, default=0.2, metavar="F", help="default: 0.2")
    add(
        "--split",
        choices=SPLITS,
        default="random",
        help="test on random rows, or on the last rows of a time series (default: random)",
    )
    add("--seed", type=int, default=0, help="of split and initial weights (default: 0)")
    output.add_json(parser)
    add("--quiet", action="store_true", help="no progress bar, no list of files")


def run(options: argparse.Namespace) -> int:
    """Read, split, train, evaluate, write and print."""
    handler.enter(Phase.STARTING)
    messages = Console(stderr=True)
    _check(options)
    output.require_app("polars", "matplotlib", "plotly", "jinja2")
    from greatcircle.data import files
    from greatcircle.data.split import split

    table = files.read(
        options.data, targets=options.targets, inputs=options.inputs, classify=options.classify
    )
    if options.inputs is None:
        _print_ignored(messages, table.ignored)
    folder = options.out or Path("runs") / options.data.name.split(".")[0]
    output.check_folder(folder)

    from greatcircle.cli import fit_files

    fit_files.check(folder)
    measured = table.labels if options.classify else table.y
    train, test = split(
        len(table),
        fraction=options.test_fraction,
        kind=options.split,
        seed=options.seed,
        strata=measured if options.classify else None,
    )
    if options.classify:
        _check_classes(messages, measured[train], measured[test], options.targets[0])
    estimator = _fit(options, table, train, messages)
    interrupted = estimator.outcome_ == "interrupted"
    if interrupted and estimator.n_iter_ == 0:
        output.message(messages, "interrupted before the first iteration; nothing is written")
        return INTERRUPTED
    made = _make(options, table, measured, (train, test), estimator)
    written, made = fit_files.write(folder, made)
    _print_outcome(options, messages, made, written)
    if made.failures:
        return FAILED
    return handler.exit_code or (INTERRUPTED if interrupted else 0)


def _check(options: argparse.Namespace) -> None:
    """Check the options before reading the data."""
    fit_selection.check(options)
    output.check_integer("max-iter", options.max_iter, 1)
    output.check_seed(options.seed)
    if not 0 < options.test_fraction < 1:
        raise ValueError(
            f"--test-fraction is {options.test_fraction:g}; expected a number between 0 and 1"
        )
    if options.lipschitz is not None and not 0 < options.lipschitz < float("inf"):
        raise ValueError(f"--lipschitz is {options.lipschitz:g}; expected a positive number")
    scaling = options.scaling or ("standard" if options.method == "auto" else "paper")
    if options.lipschitz is not None and scaling == "paper":
        raise ValueError(
            f"--lipschitz is {options.lipschitz:g} with the scaling 'paper', which has no bound "
            "for all inputs; use --scaling standard or --scaling max"
        )
    if options.saturation in ("inputs", "both") and scaling == "paper":
        raise ValueError(
            f"--saturation is {options.saturation} with the scaling 'paper', whose bound is per "
            "unit of x/‖x‖; use --saturation outputs, or --scaling standard or max"
        )
    if options.classify and options.saturation != "auto":
        raise ValueError(
            f"--saturation is {options.saturation} with --classify, whose logits have no range in "
            "the data; omit one of them"
        )
    if options.classify and options.loss != "auto":
        raise ValueError(
            f"--loss is {options.loss} with --classify, which minimises the cross-entropy; omit "
            "one of them"
        )
    if options.classify and len(options.targets) > 1:
        raise ValueError(
            f"--targets are {', '.join(options.targets)} with --classify; expected one column of "
            "labels"
        )


def _print_ignored(messages: Console, ignored: Iterable[str]) -> None:
    """Print which columns of the file are not used."""
    from greatcircle.data.files import is_unnamed

    unnamed = [name for name in ignored if is_unnamed(name)]
    others = [name for name in ignored if name not in unnamed]
    if unnamed:
        names = _listed(map(repr, unnamed))
        output.message(messages, f"ignored unnamed columns: {names} (--inputs to use them)")
    if others:
        output.message(messages, f"ignored non-numeric columns: {_listed(others)}")


def _check_classes(messages: Console, train: "np.ndarray", test: "np.ndarray", target: str) -> None:
    """Check that the training rows have several classes, and that labels are not continuous."""
    import numpy as np

    classes = np.unique(train)
    if len(classes) < 2:
        raise ValueError(
            f"column {target!r} has one class in the training rows, {classes[0]}; expected at "
            "least two: check --targets, or use --split random"
        )
    if len(classes) > len(train) / 2:
        raise ValueError(
            f"column {target!r} has {len(classes)} different labels in {len(train)} training "
            "rows; expected classes with several rows each: omit --classify to predict numbers"
        )
    unseen = np.setdiff1d(test, classes)
    if len(unseen):
        labels = ", ".join(map(str, unseen))
        output.message(messages, f"classes without training rows, never predicted: {labels}")


def _fit(
    options: argparse.Namespace, table: "Table", train: "np.ndarray", messages: Console
) -> Any:
    """Return the fitted estimator, with a note in its model if training was interrupted."""
    from sklearn.exceptions import ConvergenceWarning

    from greatcircle.estimators import LipschitzClassifier, LipschitzRegressor

    estimator: Any = (LipschitzClassifier if options.classify else LipschitzRegressor)(
        method=options.method,
        scaling=options.scaling,
        lipschitz=options.lipschitz,
        loss=options.loss,
        **fit_selection.parameters(options),
        max_iter=options.max_iter,
        early_stopping=options.early_stopping,
        callbacks=(handler.end_training,),
        verbose=not options.quiet,
        random_state=options.seed,
    )
    if not options.classify:
        kind = options.saturation
        estimator.set_params(saturation=False if kind == "none" else kind)
    if fit_selection.chooses(options):
        handler.enter(Phase.CHOOSING)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        estimator.fit(*table.frames(train))
    handler.enter(Phase.WRITING)
    for warning in caught:
        output.message(messages, str(warning.message))
    if handler.stopped_training:
        model, reason = estimator.model_, f"interrupted by {handler.name}"
        training = replace(model.training, outcome="interrupted", reason=reason)
        estimator.model_ = replace(model, training=training)
        output.message(messages, f"training was interrupted after {estimator.n_iter_} iterations")
    return estimator


def _make(
    options: argparse.Namespace,
    table: "Table",
    measured: "np.ndarray",
    split: tuple["np.ndarray", "np.ndarray"],
    estimator: Any,
) -> "FitFiles":
    """Make the files of the fit."""
    from greatcircle.cli import fit_files
    from greatcircle.report.evaluation import evaluate
    from greatcircle.report.results import FitDescription

    omitted = ("verbose", "callbacks", "warm_start")
    description = FitDescription(
        file=options.data.name,
        rows=len(table),
        inputs=table.inputs,
        targets=table.targets,
        ignored=table.ignored,
        split=options.split,
        test_fraction=options.test_fraction,
        seed=options.seed,
        estimator=type(estimator).__name__,
        parameters={n: v for n, v in estimator.get_params().items() if n not in omitted},
    )
    evaluation = partial(evaluate, estimator.model_, table.X, measured, *split)
    return fit_files.make(estimator, evaluation, description, options.command)


def _print_outcome(
    options: argparse.Namespace, messages: Console, made: "FitFiles", written: list[Path]
) -> None:
    """Print the results, the files written, and the stages that failed."""
    from greatcircle.cli.fit_files import RESULTS

    if made.failures:
        _print_failures(messages, made, written, debug=options.debug)
    elif not options.quiet:
        output.print_written(messages, written)
    if made.summary is not None and RESULTS in made.files:
        if options.json:
            output.print_json(made.summary)
        else:
            _print_summary(made.summary)


def _print_failures(
    messages: Console, made: "FitFiles", written: list[Path], *, debug: bool
) -> None:
    """Print which stages failed, and which files were written nevertheless."""
    for stage, error in made.failures.items():
        if debug:
            traceback.print_exception(error)
        hint = "" if debug else DEBUG_HINT
        output.message(messages, f"{stage} failed: {error_line(error)}{hint}")
    if not written:
        output.message(messages, "nothing was written")
        return
    output.message(messages, f"results are incomplete; written: {', '.join(map(str, written))}")
    if not made.certified:
        output.message(
            messages,
            "this file has the weights without a certificate, so predict rejects it; read it with "
            "safetensors.numpy.load_file",
        )


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def _print_summary(summary: Mapping[str, Any]) -> None:
    from greatcircle.report import results

    metrics, training = summary["metrics"], summary["training"]
    if summary["estimator"] == "LipschitzClassifier":
        headings, rows = results.CLASS_HEADINGS, results.class_rows(metrics)
    else:
        headings, rows = results.ERROR_HEADINGS, results.error_rows(metrics)
    console = Console()
    console.print(output.table(headings, rows))
    bounds = summary["lipschitz"]
    lines = [
        f"inputs           {_listed(summary['data']['inputs'])}",
        *fit_selection.summary_lines(summary),
        f"Lipschitz bound  {bounds['certified']:.4g} {bounds['unit']}",
        f"                 {bounds['operator_norms']:.4g} by operator norms, "
        f"{bounds['a_priori']:.4g} before training, largest slope found {bounds['lower']:.4g}",
    ]
    if bounds["per_standard_deviation"] is not None:
        lines.append(
            f"                 {bounds['per_standard_deviation']:.4g} per standard deviation of "
            "the inputs"
        )
    ranges = [
        f"{name} to {low:.4g} … {high:.4g}"
        for kind in ("inputs", "outputs")
        for name, (low, high) in (summary["saturation"][kind] or {}).items()
    ]
    if ranges:
        lines.append(f"clipped          {_listed(ranges)}")
    which = ", the first network" if (summary["selection"] or {}).get("networks", 1) > 1 else ""
    lines.append(
        f"training         {training['iterations']} iterations, {training['seconds']:.2f} s{which}"
    )
    lines.append(f"                 {training['reason']}")
    output.print_plain(console, "\n".join(lines))
