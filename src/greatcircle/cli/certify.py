"""`greatcircle certify`: Lipschitz bounds of a model file, for all inputs and groups of inputs."""

import argparse
import re
from pathlib import Path
from typing import Any

from rich.console import Console

from greatcircle.cli import output

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Compute the Lipschitz bounds of a model file written by `greatcircle fit`, from cheap to\n"
        "tight, and verify their proofs. The bound of a group of inputs holds while the other\n"
        "inputs are fixed, as a controller needs it for its controls."
    )
    parser.epilog = (
        "examples:\n"
        "  greatcircle certify runs/flight/model.safetensors\n"
        "  greatcircle certify model.safetensors --groups u=u1,u2,u3,u4 v=vx,vy,vz\n"
        "  greatcircle certify model.safetensors --groups u=u1,u2,u3,u4 --gain u=0.08\n"
        "  greatcircle certify model.safetensors --sdp --out runs/bounds --json"
    )
    add = parser.add_argument
    add("model", type=Path, help="a model.safetensors")
    add(
        "--groups",
        nargs="+",
        default=[],
        metavar="NAME=INPUT,INPUT",
        help="groups of inputs, by name or by number from 0",
    )
    add(
        "--gain",
        metavar="NAME=G",
        help="for a group of controls: change of the controls per unit of force; checks whether "
        "the fixed-point iteration of a controller that compensates the model contracts",
    )
    add("--sdp", action="store_true", help="also solve the semidefinite program by Clarabel")
    add(
        "--min-input-norm",
        type=float,
        metavar="R",
        help="for the scaling 'paper': smallest norm of the inputs (default: 1)",
    )
    add("--out", type=Path, metavar="DIR", help="folder for results.json, figures and report.html")
    output.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Load the model, compute and verify the bounds, and print or write them."""
    groups = _parse_groups(options.groups)
    gain = None if options.gain is None else _parse_gain(options.gain, groups)
    model = output.load_model(options.model)
    if options.out is not None:
        output.check_folder(options.out)
        output.require_app("matplotlib", "plotly", "jinja2")
    from greatcircle.report import bounds

    names = model.feature_names or ()
    inputs = {group: [_parse_input(part, names) for part in g] for group, g in groups.items()}
    messages = Console(stderr=True)
    with messages.status("computing bounds"):
        found = bounds.bound_groups(
            model, inputs, min_input_norm=options.min_input_norm, sdp=options.sdp
        )
        summary = bounds.results(found, gain)
    if options.out is not None:
        _write(options.out, summary, options.model.name, options.command, messages)
    if options.json:
        output.print_json(summary)
    else:
        _print(summary)
    return 0


def _write(
    folder: Path, summary: dict[str, Any], name: str, command: str, messages: Console
) -> None:
    """Write all files together, or none."""
    from greatcircle._runtime.atomic import atomic_write_all
    from greatcircle.report.bounds_page import files

    made = {"results.json": output.json_bytes(summary)} | files(summary, name, command)
    atomic_write_all(folder, made)
    output.print_written(messages, [folder / file for file in made])


def _parse_groups(given: list[str]) -> dict[str, list[str]]:
    """Return the inputs of each group, as typed."""
    from greatcircle.report.bounds import ALL_INPUTS

    groups: dict[str, list[str]] = {}
    for text in given:
        name, _, inputs = text.partition("=")
        chosen = [part.strip() for part in inputs.split(",") if part.strip()]
        if not name or not chosen:
            raise ValueError(
                f"--groups has {text!r}; expected a name and its inputs, as in u=u1,u2,u3,u4"
            )
        if name in (ALL_INPUTS, *groups):
            raise ValueError(
                f"--groups has {text!r}, but there already is a group {name!r}; expected a "
                "different name for each group"
            )
        groups[name] = chosen
    return groups


def _parse_input(text: str, names: tuple[str, ...]) -> str | int:
    """Return a name that the model knows, or else a number."""
    return int(text) if text not in names and re.fullmatch("[0-9]{1,9}", text) else text


def _parse_gain(text: str, groups: dict[str, list[str]]) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise ValueError(f"--gain is {text!r}; expected a group and a positive number: u=0.08")
    if name not in groups:
        raise ValueError(
            f"--gain names the group {name!r}; expected one of --groups: "
            f"{', '.join(groups) or 'none is given'}"
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
            f"fixed-point iteration over {rule['group']}: {verdict}, rate {rule['rate']:.4g} = "
            f"{rule['gain']:g} × {rule['bound']:.5g}"
        )
    output.print_plain(console, "\n".join(lines))
