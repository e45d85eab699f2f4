"""Options of `greatcircle fit` on layers and selection, their checks, and lines of the summary."""

import argparse
from collections.abc import Mapping
from typing import Any

from greatcircle.cli import output

__all__ = ["add_arguments", "check", "chooses", "parameters", "summary_lines"]

AUTO = ["auto"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options on the network, and on how it is chosen."""
    add = parser.add_argument
    add(
        "--hidden",
        nargs="+",
        type=_units,
        default=AUTO,
        metavar="UNITS",
        help="units of each hidden layer, or auto: chosen by held-out error; without a selection "
        "25 30 15, with --classify 100 (default: auto)",
    )
    add(
        "--target-gain",
        type=float,
        metavar="G",
        help="scaled targets relative to the initial outputs: larger means a lower bound and a "
        "stiffer network (default: chosen by held-out error)",
    )
    add(
        "--no-selection",
        action="store_true",
        help="do not choose layers, target gain and number of iterations by held-out error; "
        "ad and mm never do",
    )
    add(
        "--cv",
        type=_folds,
        metavar="FOLDS",
        help="rows held out to choose: a number of folds, or time (default: time with --split "
        "time; otherwise 5, or one fifth of more than 5000 rows)",
    )
    add(
        "--ensemble",
        type=int,
        metavar="N",
        help="number of networks whose mean is the model (default: up to 4, or 1 with --hidden, "
        "--lipschitz or --no-selection)",
    )


def _units(text: str) -> int | str:
    """Return the units of a layer, or "auto"."""
    return _number_or(text, "auto", "whole numbers separated by spaces, or auto")


def _folds(text: str) -> int | str:
    """Return a number of folds, or "time"."""
    return _number_or(text, "time", "a number of folds, or time")


def _number_or(text: str, word: str, expected: str) -> int | str:
    if text == word:
        return text
    try:
        return int(text)
    except ValueError:
        message = f"invalid value: {text!r}; expected {expected}"
        raise argparse.ArgumentTypeError(message) from None


def check(options: argparse.Namespace) -> None:
    """Check these options before reading the data."""
    if options.hidden != AUTO:
        if "auto" in options.hidden:
            raise ValueError(
                f"--hidden is {' '.join(map(str, options.hidden))}; expected the units of each "
                "hidden layer, or auto alone"
            )
        for units in options.hidden:
            output.check_integer("hidden", units, 1)
    output.check_integer("ensemble", options.ensemble, 1)
    gain = options.target_gain
    if gain is not None and not 0 < gain < float("inf"):
        raise ValueError(f"--target-gain is {gain:g}; expected a positive number")
    if options.cv is None:
        return
    if options.cv != "time":
        output.check_integer("cv", options.cv, 2)
    conflicts = (
        (options.no_selection, "--no-selection", "makes no choice on held-out rows"),
        (
            options.method != "auto",
            f"--method {options.method}",
            "makes no choice on held-out rows",
        ),
        (options.early_stopping, "--early-stopping", "holds out other rows for the choice, too"),
    )
    for given, option, reason in conflicts:
        if given:
            raise ValueError(
                f"--cv is {options.cv} with {option}, which {reason}; omit one of them"
            )


def chooses(options: argparse.Namespace) -> bool:
    """Return whether candidates are compared by held-out error, unless there are too few rows."""
    return options.method == "auto" and not options.no_selection


def parameters(options: argparse.Namespace) -> dict[str, Any]:
    """Return these options as parameters of the estimator."""
    return {
        "hidden_layer_sizes": "auto" if options.hidden == AUTO else tuple(options.hidden),
        "selection": not options.no_selection,
        "cv": options.cv or ("time" if options.split == "time" else "auto"),
        "target_gain": options.target_gain or "auto",
        "ensemble": options.ensemble or "auto",
    }


def summary_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return what the network is and how it was chosen."""
    from greatcircle.report.selection import held_out_words

    selection, networks = summary["selection"], summary["networks"]
    inputs, *hidden, outputs = summary["network"]
    each = [units // networks for units in hidden]
    line = f"network          {'-'.join(map(str, (inputs, *each, outputs)))}"
    if selection is not None:
        count, words = len(selection["candidates"]), held_out_words(selection["held_out"])
        what = f"chosen among {count}" if count > 1 else "number of iterations chosen"
        line += f", {what} by held-out error ({words})"
    elif summary["parameters"]["selection"] and summary["parameters"]["method"] == "auto":
        line += ", not chosen by held-out error: too few rows"
    if networks == 1:
        return [line]
    stored = "-".join(map(str, summary["network"]))
    return [line, f"                 average of {networks} such networks, stored as {stored}"]
