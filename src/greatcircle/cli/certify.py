"""`greatcircle certify`: every bound of a stored model, for all inputs and for blocks of them."""

import argparse
import re
from collections.abc import Container
from pathlib import Path
from typing import Any

from rich.console import Console

from greatcircle.cli import output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Compute the Lipschitz bounds of a model that `greatcircle fit` has written, from cheap\n"
        "to tight, and verify their proofs. Blocks of inputs get bounds of their own, with the\n"
        "other inputs held fixed: that is what a controller needs of its controls."
    )
    parser.epilog = (
        "examples:\n"
        "  greatcircle certify runs/flight/model.safetensors\n"
        "  greatcircle certify model.safetensors --blocks u=u1,u2,u3,u4 v=vx,vy,vz\n"
        "  greatcircle certify model.safetensors --blocks u=u1,u2,u3,u4 --gain u=0.08\n"
        "  greatcircle certify model.safetensors --exact --out runs/bounds --json"
    )
    add = parser.add_argument
    add("model", type=Path, help="a model.safetensors")
    add(
        "--blocks",
        nargs="+",
        default=[],
        metavar="NAME=INPUT,INPUT",
        help="blocks of inputs, by their names, or by their numbers from 0",
    )
    add(
        "--gain",
        metavar="NAME=G",
        help="for a block of controls: G controls for one unit of force; says whether the "
        "fixed-point iteration of a controller that compensates the model contracts",
    )
    add("--exact", action="store_true", help="also by Clarabel, an independent solver (seconds)")
    add(
        "--at-least",
        type=float,
        metavar="R",
        help="for the scaling 'paper': the least norm of the inputs (default: 1)",
    )
    add("--out", type=Path, metavar="DIR", help="folder for results.json, figure and report.html")
    output.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Load, bound, verify, say."""
    output.check_model(options.model)
    blocks = _blocks(options.blocks)
    gain = None if options.gain is None else _gain(options.gain, blocks)
    if options.out is not None:
        output.check_writable(options.out)
    from greatcircle.estimators import load
    from greatcircle.report import bounds as report

    model: Any = load(options.model)
    names: Container[str] = set(getattr(model, "feature_names_in_", ()))
    inputs = {block: [_input(part, names) for part in parts] for block, parts in blocks.items()}
    messages = Console(stderr=True)
    with messages.status("bounding"):
        found = report.bounded(model, inputs, min_input_norm=options.at_least, sdp=options.exact)
    summary = report.results(found, gain)
    if options.out is not None:
        written = report.write(options.out, found, summary, options.model.name, options.command)
        output.say_written(messages, written)
    if options.json:
        output.print_json(summary)
    else:
        _print(summary)
    return 0


def _blocks(given: list[str]) -> dict[str, list[str]]:
    """Parse --blocks: the inputs of each block, as they were typed."""
    from greatcircle.report.bounds import ALL

    blocks: dict[str, list[str]] = {}
    for words in given:
        name, equals, inputs = words.partition("=")
        chosen = [part.strip() for part in inputs.split(",") if part.strip()]
        if not name or not equals or not chosen:
            raise ValueError(
                f"--blocks has {words!r}; expected a name and its inputs, as in u=u1,u2,u3,u4"
            )
        if name in (ALL, *blocks):
            raise ValueError(
                f"--blocks has {words!r}, and there is a block {name!r} already; expected a name "
                "of its own for each block"
            )
        blocks[name] = chosen
    return blocks


def _input(part: str, names: Container[str]) -> str | int:
    """Read an input of a block: a name that the model knows, or else a number."""
    return int(part) if part not in names and re.fullmatch("[0-9]{1,9}", part) else part


def _gain(words: str, blocks: dict[str, Any]) -> tuple[str, float]:
    name, _, number = words.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise ValueError(f"--gain is {words!r}; expected a block and a positive number: u=0.08")
    if name not in blocks:
        raise ValueError(
            f"--gain names the block {name!r}; expected one of --blocks: "
            f"{', '.join(blocks) or 'none is given'}"
        )
    return name, value


def _print(summary: dict[str, Any]) -> None:
    console = Console()
    methods = summary["methods"]
    rows = [
        (name, *(f"{row[method]:.5g}" for method in methods))
        for name, row in summary["bounds"].items()
    ]
    console.print(output.table(("inputs", *methods), rows))
    lines = [f"units of the outputs per unit of the inputs, {summary['holds']}"]
    lines.append(f"proofs verified: {summary['verified']} of {summary['certificates']}")
    if rule := summary["contraction"]:
        verdict = "contracts" if rule["holds"] else "NEED NOT contract"
        lines.append(
            f"fixed-point iteration over {rule['block']}: {verdict}, rate {rule['rate']:.4g} = "
            f"{rule['gain']:g} × {rule['bound']:.5g}"
        )
    output.say(console, "\n".join(lines))
