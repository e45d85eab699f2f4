"""Command line: arguments in, one call, words out. Progress goes to standard error.

Each command is a module here with `add_arguments(parser)` and `run(options)`. Only the one that is
asked for is imported.
"""

import argparse
import io
import os
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from greatcircle import __version__

COMMANDS = {
    "certify": "every Lipschitz bound of a model that fit has written, with proofs",
    "demo": "train the paper's network by its two methods and by ours, or land a quadrotor",
    "fit": "train a network on your own CSV or Parquet file, with a report",
    "predict": "apply a model that fit has written to new rows",
    "export": "turn a model into C, ONNX, CasADi, PyTorch or NumPy",
    "reproduce": "rerun the paper's experiments, beside its numbers",
}

EXAMPLES = """examples:
  greatcircle demo
  greatcircle demo landing
  greatcircle fit flight.csv --targets fx fy fz --out runs/flight
  greatcircle predict runs/flight/model.safetensors new.csv --out predictions.csv
  greatcircle certify runs/flight/model.safetensors --blocks u=u1,u2,u3,u4
  greatcircle export runs/flight/model.safetensors --to c --dtype float32 --out force.c
  greatcircle fit --help"""

WRONG_USE, INTERRUPTED, NOBODY_READS = 2, 130, 141
"""Exit codes; the last two as a shell counts them, 128 and the number of the signal."""


def command() -> NoReturn:
    """Entry point of the command `greatcircle`."""
    code = main()
    if code == INTERRUPTED:
        # At once: threads of XLA that are still compiling would crash an orderly end.
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """What the command does; its exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser(given).parse_args(given)
    options.command = f"greatcircle {shlex.join(given)}"
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without ‖ still gets its table
    try:
        return options.run(options)
    except KeyboardInterrupt:
        print("greatcircle: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # As in `greatcircle predict … | head`. Python would complain again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOBODY_READS
    except (ValueError, ImportError, OSError) as error:
        print(f"greatcircle: {error}", file=sys.stderr)
        return WRONG_USE


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="greatcircle",
        description="Networks with a known Lipschitz bound, trained without a learning rate.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, words in COMMANDS.items():
        command = commands.add_parser(
            name, help=words, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name in arguments[:1]:
            module = import_module(f"greatcircle.cli.{name}")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser
