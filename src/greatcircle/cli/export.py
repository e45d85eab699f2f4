"""`greatcircle export`: a stored model to where it will run."""

import argparse
from pathlib import Path

from rich.console import Console

from greatcircle.cli import output

# Everything that needs JAX is imported where it is used: `export --help` answers at once.

SUFFIXES = {"c": ".c", "onnx": ".onnx", "casadi": ".casadi", "torch": ".py", "numpy": ".py"}
DTYPES = ("float64", "float32")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Turn a model that `greatcircle fit` has written into code or a graph that needs nothing\n"
        "of this library. The scaling is inside, and the Lipschitz bound is proved again for the\n"
        "numbers of the file. A classifier exports its logits."
    )
    parser.epilog = (
        "examples:\n"
        "  greatcircle export runs/flight/model.safetensors --to c --dtype float32\n"
        "  greatcircle export runs/flight/model.safetensors --out force.onnx --jacobian\n"
        "  greatcircle export runs/flight/model.safetensors --to torch --out force.py\n"
        "  greatcircle export runs/flight/model.safetensors --to c --units z=m vz=m/s fz=N"
    )
    add = parser.add_argument
    add("model", type=Path, help="a model.safetensors")
    add("--to", choices=tuple(SUFFIXES), help="default: what the ending of --out says")
    add("--out", type=Path, metavar="FILE", help="default: beside the model, under its name")
    add("--dtype", choices=DTYPES, default="float64", help="what the file computes in")
    add("--name", help="what functions and classes are called (default: made of the file's name)")
    add("--jacobian", action="store_true", help="ONNX: a second output; the others have it anyway")
    add("--units", nargs="+", metavar="NAME=UNIT", help="units of inputs and outputs, as comments")
    output.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Load, export, say what was written."""
    if options.to is None and options.out is None:
        raise ValueError(
            f"neither --to nor --out is given; expected the format, --to {'|'.join(SUFFIXES)}, or "
            "a file whose ending says it"
        )
    output.check_model(options.model)
    units = _units(options.units)
    path: Path = options.out
    if path is None:
        path = options.model.with_suffix(SUFFIXES[options.to])
    output.check_writable(path.parent)
    from greatcircle.estimators import load

    model = load(options.model)
    written = model.export(
        path,
        to=options.to,
        dtype=options.dtype,
        name=options.name,
        jacobian=options.jacobian,
        units=units,
    )
    output.say_written(Console(stderr=True), written)
    if options.json:
        output.print_json(
            {
                "files": [str(file) for file in written],
                "lipschitz": model.certificate_.value,
                "model_sha256": model.certificate_.digest,
            }
        )
    return 0


def _units(given: list[str] | None) -> dict[str, str] | None:
    if given is None:
        return None
    pairs = [entry.rpartition("=") for entry in given]
    for entry, (name, _, unit) in zip(given, pairs, strict=True):
        if not name or not unit:
            raise ValueError(f"--units has {entry!r}; expected a name and its unit, as in z=m")
    return {name: unit for name, _, unit in pairs}
