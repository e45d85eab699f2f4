"""`greatcircle fit`: a network on the user's own table, with everything there is to say of it."""

import argparse
import traceback
import warnings
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from greatcircle.cli import DEBUG_HINT, FAILED, INTERRUPTED, in_a_line, output
from greatcircle.cli.signals import Phase, handler

# Everything that needs JAX is imported where it is used: `fit --help` answers at once.
if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from greatcircle.report.evaluation import Model
    from greatcircle.report.model import Made

METHODS = ("auto", "ad", "mm")
SCALINGS = ("paper", "standard", "max")
LOSSES = ("auto", "squared", "huber")
SPLITS = ("random", "time")

SHOWN = 40
"""How many columns are listed on the screen; results.json has all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Train a network with a known Lipschitz bound on a CSV or Parquet file. Writes\n"
        "model.safetensors, results.json, figures (PNG and PDF) and report.html. Ctrl-C ends\n"
        "training; what was learnt so far is kept and written, if there is a first iteration."
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
    add("--inputs", nargs="+", metavar="COLUMN", help="default: all other columns of numbers")
    add("--classify", action="store_true", help="the target is a class label, not a number")
    add("--out", type=Path, metavar="DIR", help="default: runs/ and the name of the file")
    add(
        "--hidden",
        nargs="+",
        type=int,
        metavar="UNITS",
        help="units of each hidden layer (default: 25 30 15; with --classify: 100)",
    )
    add("--method", choices=METHODS, default="auto", help="ad and mm are the paper's")
    add("--scaling", choices=SCALINGS, help="default: standard, or paper for ad and mm")
    add("--lipschitz", type=float, metavar="L", help="a certified bound to stay within")
    add("--loss", choices=LOSSES, default="auto", help="default: squared, or cross-entropy")
    add("--max-iter", type=int, default=200, metavar="N", help="default: 200")
    add("--early-stopping", action="store_true", help="hold out a tenth of the training rows")
    add("--test-fraction", type=float, default=0.2, metavar="F", help="default: 0.2")
    add(
        "--split",
        choices=SPLITS,
        default="random",
        help="test on rows chosen at random, or on the last ones of a time series",
    )
    add("--seed", type=int, default=0, help="of split and initial weights (default: 0)")
    output.add_json(parser)
    add("--quiet", action="store_true", help="no progress bar, no list of files")


class Data(NamedTuple):
    """The file's rows as an estimator takes them."""

    inputs: "pl.DataFrame"
    measured: "np.ndarray"
    """(rows, targets), or one label for each row."""
    targets: tuple[str, ...]
    left_out: tuple[str, ...]
    """Columns that hold no numbers, or were not named."""


def run(options: argparse.Namespace) -> int:
    """Read, split, train, evaluate, write, print."""
    handler.enter(Phase.STARTING)
    messages = Console(stderr=True)
    _check(options)
    data = _read(options)
    folder = options.out or Path("runs") / options.data.name.split(".")[0]
    output.check_writable(folder)

    from greatcircle.data.split import split
    from greatcircle.report import evaluation
    from greatcircle.report import model as report

    report.check_folder(folder)
    count = len(data.inputs)
    train, test = split(
        count,
        fraction=options.test_fraction,
        kind=options.split,
        seed=options.seed,
        strata=data.measured if options.classify else None,
    )
    if options.classify:
        _check_classes(messages, data.measured[train], data.measured[test], options)
    model = _fitted(options, data, train, messages)
    if model.outcome_ == "interrupted" and model.n_iter_ == 0:
        _say(messages, "nothing was learnt yet, and nothing is written")
        return INTERRUPTED
    source = report.Source(
        options.data.name,
        count,
        tuple(data.inputs.columns),
        data.targets,
        data.left_out,
        options.split,
        options.test_fraction,
        options.seed,
    )
    made = report.make(
        model,
        partial(evaluation.evaluate, model, data.inputs, data.measured, train, test, data.targets),
        source,
        options.command,
    )
    written = _write(folder, made)
    if made.failures:
        _say_failures(messages, made, written, options.debug)
    elif not options.quiet:
        output.say_written(messages, written)
    if made.summary is not None and report.RESULTS in made.files:
        if options.json:
            output.print_json(made.summary)
        else:
            _print(made.summary)
    if made.failures:
        return FAILED
    return handler.exit_code or (INTERRUPTED if model.outcome_ == "interrupted" else 0)


def _write(folder: Path, made: "Made") -> list[Path]:
    """Write all files or, where that fails, the model alone; return the paths written."""
    from greatcircle.report import model as report

    attempts = [made.files] if made.files else []
    if made.certified:
        attempts.append({report.MODEL: made.files[report.MODEL]})
    for files in attempts:
        with made.stage("writing"), handler.held():
            written = report.write(folder, files)
            handler.enter(Phase.DONE)
            return written
    return []


def _say_failures(messages: Console, made: "Made", written: list[Path], debug: bool) -> None:
    """Say which stages failed, and what was written nevertheless."""
    for stage, error in made.failures.items():
        if debug:
            traceback.print_exception(error)
        _say(messages, f"{stage} failed: {in_a_line(error)}{'' if debug else DEBUG_HINT}")
    if not written:
        _say(messages, "nothing was written")
        return
    _say(messages, f"results are incomplete; written: {', '.join(map(str, written))}")
    if not made.certified:
        _say(
            messages,
            "this file has the weights without a proved bound, and predict does not accept it; "
            "safetensors.numpy.load_file reads it",
        )


def _check(options: argparse.Namespace) -> None:
    """Check the options before the data are read."""
    for width in options.hidden or ():
        output.check_whole("hidden", width, 1)
    output.check_whole("max-iter", options.max_iter, 1)
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
    if options.classify and options.loss != "auto":
        raise ValueError(
            f"--loss is {options.loss} with --classify, which minimises the cross-entropy; leave "
            "one of them out"
        )
    if options.classify and len(options.targets) > 1:
        raise ValueError(
            f"--targets are {', '.join(options.targets)} with --classify; expected one column of "
            "labels"
        )


def _read(options: argparse.Namespace) -> Data:
    """Read and check the data; columns that are left out are named on standard error."""
    import numpy as np
    import polars as pl

    from greatcircle.data import files

    path = options.data
    table = files.frame(path)
    given, wanted, _ = files.choose(table, path, targets=options.targets, inputs=options.inputs)
    words = set(wanted) - set(files.columns_of_numbers(table, wanted))
    if words and not options.classify:
        raise ValueError(
            f"--targets has columns without any number, {', '.join(sorted(words))}; expected "
            "numbers: add --classify to predict classes"
        )
    columns = files.numbers(table, given if options.classify else (*given, *wanted), path)
    from greatcircle.data.checks import check_range

    for name, column in columns.items():
        check_range(f"column {name!r} of {path}", column)
    measured = (
        files.labels(table, wanted[0], path)
        if options.classify
        else np.stack([columns[name] for name in wanted], axis=1)
    )
    left_out = tuple(name for name in table.columns if name not in (*given, *wanted))
    if options.inputs is None:
        messages = Console(stderr=True)
        unnamed = [name for name in left_out if files.is_unnamed(name)]
        others = [name for name in left_out if name not in unnamed]
        if unnamed:
            _say(
                messages,
                f"ignored unnamed columns: {_listed(map(repr, unnamed))} (--inputs to use them)",
            )
        if others:
            _say(messages, f"ignored non-numeric columns: {_listed(others)}")
    return Data(pl.DataFrame({n: columns[n] for n in given}), measured, wanted, left_out)


def _check_classes(
    messages: Console, train: "np.ndarray", test: "np.ndarray", options: argparse.Namespace
) -> None:
    """Check that every class has training rows and that labels are not continuous."""
    import numpy as np

    classes = np.unique(train)
    name = options.targets[0]
    if len(classes) < 2:
        raise ValueError(
            f"column {name!r} has one class in the training rows, {classes[0]}; expected at least "
            "two: check --targets, or use --split random"
        )
    if len(classes) > len(train) / 2:
        raise ValueError(
            f"column {name!r} has {len(classes)} different labels in {len(train)} training rows; "
            "expected classes with several rows each: leave out --classify to predict numbers"
        )
    unseen = np.setdiff1d(test, classes)
    if len(unseen):
        words = ", ".join(map(str, unseen))
        _say(messages, f"only in the test rows, so never predicted: {words}")


def _fitted(
    options: argparse.Namespace, data: Data, train: "np.ndarray", messages: Console
) -> "Model":
    from greatcircle.estimators import LipschitzClassifier, LipschitzRegressor

    model: Any = (LipschitzClassifier if options.classify else LipschitzRegressor)(
        hidden_layer_sizes=tuple(options.hidden) if options.hidden else "auto",
        method=options.method,
        scaling=options.scaling,
        lipschitz=options.lipschitz,
        loss=options.loss,
        max_iter=options.max_iter,
        early_stopping=options.early_stopping,
        callbacks=(handler.end_training,),
        verbose=not options.quiet,
        random_state=options.seed,
    )
    measured = data.measured[train]
    with warnings.catch_warnings(record=True) as caught:
        from sklearn.exceptions import ConvergenceWarning

        warnings.simplefilter("always", ConvergenceWarning)
        # One target is a column, not a matrix: predictions then have the same shape.
        one = measured.ndim == 2 and measured.shape[1] == 1
        model.fit(data.inputs[train], measured[:, 0] if one else measured)
    handler.enter(Phase.WRITING)
    for warning in caught:
        _say(messages, str(warning.message))
    if handler.stopped_training:
        model.outcome_, model.reason_ = "interrupted", f"interrupted by {handler.name}"
        _say(messages, f"training was interrupted after {model.n_iter_} iterations")
    model.target_names_ = data.targets
    return model


def _say(messages: Console, words: str) -> None:
    output.say(messages, f"greatcircle: {words}")


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _print(summary: dict[str, Any]) -> None:
    from greatcircle.report import model as report

    metrics, training = summary["metrics"], summary["training"]
    if summary["estimator"] == "LipschitzClassifier":
        headings, rows = report.CLASS_HEADINGS, report.class_rows(metrics)
    else:
        headings, rows = report.ERROR_HEADINGS, report.error_rows(metrics)
    console = Console()
    console.print(output.table(headings, rows))
    bounds = summary["lipschitz"]
    lines = [
        f"inputs           {_listed(summary['data']['inputs'])}",
        f"Lipschitz bound  {bounds['certified']:.4g} {bounds['unit']}",
        f"                 {bounds['operator_norms']:.4g} by operator norms, "
        f"{bounds['a_priori']:.4g} before training, steepest slope seen {bounds['lower']:.4g}",
    ]
    if bounds["per_standard_deviation"] is not None:
        lines.append(
            f"                 {bounds['per_standard_deviation']:.4g} per standard deviation of "
            "the inputs"
        )
    lines.append(
        f"training         {training['iterations']} iterations, {training['seconds']:.2f} s"
    )
    lines.append(f"                 {training['reason']}")
    output.say(console, "\n".join(lines))
