"""Command line `greatcircle`: parse the arguments, run one command, report errors in one line.

Each command is a module in this package with `add_arguments(parser)` and `run(options)`, which
returns the exit code. Only the chosen command is imported. Progress goes to standard error.
"""

import argparse
import io
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from greatcircle._runtime.extras import require
from greatcircle._runtime.versions import __version__
from greatcircle.cli.signals import Phase, handler

__all__ = [
    "BROKEN_PIPE",
    "COMMANDS",
    "DEBUG_HINT",
    "FAILED",
    "INTERRUPTED",
    "USAGE_ERROR",
    "command",
    "error_line",
    "main",
]

COMMANDS = {
    "demo": "train the paper's network with three methods on generated flight data",
    "fit": "train a network on a CSV or Parquet file and write a report",
    "predict": "apply a model file to new rows",
    "certify": "compute and verify the Lipschitz bounds of a model file",
    "export": "export a model file to C, ONNX, CasADi, PyTorch or NumPy",
    "reproduce": "rerun the paper's experiments and compare with its numbers",
}

EXAMPLES = """examples:
  greatcircle demo
  greatcircle fit flight.csv --targets fx fy fz --out runs/flight
  greatcircle predict runs/flight/model.safetensors new.csv --out predictions.csv
  greatcircle certify runs/flight/model.safetensors --groups u=u1,u2,u3,u4
  greatcircle export runs/flight/model.safetensors --to c --dtype float32 --out force.c
  greatcircle fit --help"""

FAILED, USAGE_ERROR, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141
"""Exit codes; the last two are 128 plus the number of the signal, as in a shell."""

DEBUG_HINT = "; rerun with --debug for the traceback"


def command() -> NoReturn:
    """Run the command `greatcircle`: the entry point of the installed script."""
    handler.install()
    try:
        code = main()
        interrupted = code != 0 and code == handler.exit_code
        if interrupted and "multiprocessing.util" in sys.modules:
            sys.modules["multiprocessing.util"]._exit_function()  # end workers, free semaphores
    finally:
        handler.ignore()
        try:
            _flush()
        except OSError:  # Python would report it again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if interrupted:
        # Exit at once: XLA threads that are still compiling would crash an orderly shutdown.
        os._exit(code)
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    try:
        return _run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        print("greatcircle: interrupted", file=sys.stderr)
        return handler.exit_code or INTERRUPTED


def _run(arguments: list[str]) -> int:
    """Parse the arguments and run the command; print an exception as one line."""
    debug = "--debug" in arguments
    handler.enter(Phase.STARTING)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for terminals that cannot show ‖
    try:
        options = _parser(arguments).parse_args(arguments)
        options.command = f"greatcircle {shlex.join(arguments)}"
        handler.enter(Phase.RUNNING)
        code = options.run(options)
        handler.enter(Phase.DONE)
        _flush()
        return code or handler.exit_code
    except BrokenPipeError:  # as in `greatcircle predict … | head`
        return BROKEN_PIPE
    except Exception as error:
        if handler.number and handler.phase in (Phase.RUNNING, Phase.CHOOSING):
            raise KeyboardInterrupt from error  # other code turned the interrupt into this error
        if debug:
            traceback.print_exception(error)
        expected = isinstance(error, ValueError | ImportError | OSError)
        text = error_line(error) if expected else f"unexpected error: {error_line(error)}"
        hint = "" if expected or debug else DEBUG_HINT
        print(f"greatcircle: {text}{hint}", file=sys.stderr)
        return USAGE_ERROR if expected else FAILED


def _flush() -> None:
    """Flush standard output, which may be None."""
    print(end="", flush=True)


def error_line(error: BaseException) -> str:
    """Return the message of an error in one line, with its type if users do not expect it."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    text = " ".join(str(error).split())
    if text and isinstance(error, ValueError | ImportError | OSError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser, with the options of the chosen command only."""
    parser = argparse.ArgumentParser(
        prog="greatcircle",
        description="Train neural networks with a known Lipschitz bound and no learning rate.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    debug_help = "show the traceback of an error"
    parser.add_argument("--debug", action="store_true", help=debug_help)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(
            name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == chosen:
            require("rich", "app", "the command line")
            module = import_module(f"greatcircle.cli.{name}")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
        # Without a default, which would reset a --debug before the command.
        command.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help=debug_help
        )
    return parser
