"""`greatcircle export`: convert a model file to C, ONNX, CasADi, PyTorch or NumPy."""

import argparse
from pathlib import Path

from rich.console import Console

from greatcircle.cli import output

__all__ = ["DTYPES", "SUFFIXES", "add_arguments", "run"]

SUFFIXES = {"c": ".c", "onnx": ".onnx", "casadi": ".casadi", "torch": ".py", "numpy": ".py"}
DTYPES = ("float64", "float32")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Convert a model file written by `greatcircle fit` to code or a graph that does not need\n"
        "this library. The scaling is included, and the Lipschitz bound is proved again for the\n"
        "numbers in the file. A classifier exports its logits."
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
    add("--to", choices=tuple(SUFFIXES), help="format (default: by the ending of --out)")
    add("--out", type=Path, metavar="FILE", help="default: the model's name with another ending")
    add("--dtype", choices=DTYPES, default="float64", help="type of the arithmetic in the file")
    add("--name", help="name of functions and classes (default: from the name of the file)")
    add(
        "--jacobian",
        action="store_true",
        help="add the Jacobian as a second output to ONNX; the other formats always have it",
    )
    add(
        "--no-saturation",
        action="store_true",
        help="omit the clipping of inputs and outputs, whose zero derivatives stall an optimiser",
    )
    add("--units", nargs="+", metavar="NAME=UNIT", help="units of inputs and outputs, as comments")
    output.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Load the model, export it, and print the files written."""
    if options.to is None and options.out is None:
        raise ValueError(
            f"neither --to nor --out is given; expected a format, --to {'|'.join(SUFFIXES)}, or "
            "a file with the ending of one, --out force.c"
        )
    units = _parse_units(options.units)
    path = options.out or options.model.with_suffix(SUFFIXES[str(options.to)])
    model = output.load_model(options.model)
    if options.no_saturation:
        model = model.unsaturated()
    output.check_folder(path.parent)
    from greatcircle.export import export

    written = export(
        model,
        path,
        to=options.to,
        dtype=options.dtype,
        name=options.name,
        jacobian=options.jacobian,
        units=units,
    )
    output.print_written(Console(stderr=True), written)
    if options.json:
        output.print_json(
            {
                "files": [str(file) for file in written],
                "lipschitz": model.certificate.value,
                "model_sha256": model.certificate.digest,
            }
        )
    return 0


def _parse_units(given: list[str] | None) -> dict[str, str] | None:
    if given is None:
        return None
    pairs = [entry.rpartition("=") for entry in given]
    for entry, (name, _, unit) in zip(given, pairs, strict=True):
        if not name or not unit:
            raise ValueError(f"--units has {entry!r}; expected a name and its unit, as in z=m")
    return {name: unit for name, _, unit in pairs}
