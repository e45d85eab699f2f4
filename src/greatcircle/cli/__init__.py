"""Command line: arguments in, one call, words out. Progress goes to standard error.

Each command is a module here with `add_arguments(parser)` and `run(options)`. Only the one that is
asked for is imported.
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

from greatcircle._runtime.versions import __version__
from greatcircle.cli.signals import Phase, handler

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

FAILED, WRONG_USE, INTERRUPTED, NOBODY_READS = 1, 2, 130, 141
"""Exit codes; the last two as a shell counts them, 128 and the number of the signal."""


def command() -> NoReturn:
    """Entry point of the command `greatcircle`."""
    handler.install()
    try:
        code = main()
        interrupted = code != 0 and code == handler.exit_code
        if interrupted and "multiprocessing.util" in sys.modules:
            sys.modules["multiprocessing.util"]._exit_function()  # workers and their semaphores
    finally:
        handler.ignore()
        try:
            _flush()
        except OSError:  # Python would complain again when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if interrupted:
        # At once: threads of XLA that are still compiling would crash an orderly end.
        os._exit(code)
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    try:
        return _run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        print("greatcircle: interrupted", file=sys.stderr)
        return handler.exit_code or INTERRUPTED


def _run(given: list[str]) -> int:
    """Parse, import, run; turn exceptions into one line and an exit code."""
    debug = "--debug" in given
    handler.enter(Phase.STARTING)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without ‖ still gets its table
    try:
        options = _parser(given).parse_args(given)
        options.command = f"greatcircle {shlex.join(given)}"
        handler.enter(Phase.RUNNING)
        code = options.run(options)
        handler.enter(Phase.DONE)
        _flush()
        return code or handler.exit_code
    except BrokenPipeError:  # as in `greatcircle predict … | head`
        return NOBODY_READS
    except Exception as error:
        if handler.number and handler.phase is Phase.RUNNING:
            raise KeyboardInterrupt from error  # which other code has turned into this error
        if debug:
            traceback.print_exception(error)
        expected = isinstance(error, ValueError | ImportError | OSError)
        words = in_a_line(error) if expected else f"unexpected error: {in_a_line(error)}"
        hint = "" if expected or debug else DEBUG_HINT
        print(f"greatcircle: {words}{hint}", file=sys.stderr)
        return WRONG_USE if expected else FAILED


def _flush() -> None:
    """Write what standard output still buffers, if there is a standard output."""
    print(end="", flush=True)


DEBUG_HINT = "; run again with --debug for the traceback"


def in_a_line(error: BaseException) -> str:
    """Say what went wrong; an error whose message was not written for users is named."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    words = " ".join(str(error).split())
    if words and isinstance(error, ValueError | ImportError | OSError):
        return words
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="greatcircle",
        description="Networks with a known Lipschitz bound, trained without a learning rate.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    show = "show the traceback of an error"
    parser.add_argument("--debug", action="store_true", help=show)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    for name, words in COMMANDS.items():
        command = commands.add_parser(
            name, help=words, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == chosen:
            module = import_module(f"greatcircle.cli.{name}")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
        # Without a default, which would undo a --debug before the command's name.
        command.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=show)
    return parser
