"""Command line: arguments in, one call, words out. Progress goes to standard error."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

import greatcircle
from greatcircle.datasets import ground_effect
from greatcircle.experiments import demo as demos
from greatcircle.experiments.run import Run, paper_numbers
from greatcircle.record import Record


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the command `greatcircle`."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except KeyboardInterrupt:
        print("greatcircle: interrupted", file=sys.stderr)
        return 130
    except (ValueError, OSError) as error:
        print(f"greatcircle: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="greatcircle",
        description="Networks with a known Lipschitz bound, trained without a learning rate.",
    )
    parser.add_argument("--version", action="version", version=greatcircle.__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="train the paper's network by both of its methods",
        description="Generate flight data near the ground, train the paper's network 12-25-30-15-3 "
        "with Method 1 (200 iterations) and Method 2 (1000), and compare with the paper.",
        epilog="example: greatcircle demo --seed 1 --out runs/second",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    demo.add_argument(
        "--out",
        type=Path,
        default=Path("runs/demo"),
        metavar="DIR",
        help="where to write results.json and the figures (default: runs/demo)",
    )
    demo.add_argument(
        "--seed", type=int, default=0, help="decides split and initial weights (default: 0)"
    )
    demo.add_argument(
        "--json",
        action="store_true",
        help="print the results as JSON on standard output, and nothing else there",
    )
    demo.set_defaults(run=_demo)
    return parser


def _demo(options: argparse.Namespace) -> int:
    messages = Console(stderr=True)
    if options.seed < 0:
        raise ValueError(f"--seed is {options.seed}; expected a whole number, not negative")
    options.out.mkdir(parents=True, exist_ok=True)  # fail now, not after training
    table = ground_effect.generate()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[words]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=messages,
    ) as bars:
        tasks = {
            method: bars.add_task(title, total=iterations, words="", start=False)
            for method, (title, _, iterations) in demos.METHODS.items()
        }

        def progress(method: str, record: Record) -> None:
            task = tasks[method]
            if record.iteration == 1:
                bars.start_task(task)
            words = f"loss {record.loss:.4e}  angle {record.angle:.2e}"
            bars.update(task, completed=record.iteration, words=words)

        runs = demos.demo(table, seed=options.seed, progress=progress)

    summary = demos.results(
        runs,
        data=f"ground-effect generator, {len(table)} rows, seed 0",
        seed=options.seed,
        version=greatcircle.__version__,
    )
    written = demos.write(options.out, runs, summary)
    if options.json:
        print(json.dumps(summary, indent=2))
    else:
        Console().print(_results_table(runs, paper_numbers()["experiment_1"]))
    for path in written:
        messages.print(f"wrote {path}", highlight=False, soft_wrap=True)
    return 0


def _results_table(runs: dict[str, Run], paper: dict[str, Any]) -> Table:
    table = Table(
        title="RMS in N, Lipschitz bounds in N per unit of x/‖x‖",
        caption="The paper flew real data, these are generated: compare the level.",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 0, 0, 1),
    )
    table.add_column("", no_wrap=True)
    for heading in ("train RMS", "test RMS", "steps", "seconds", "∏μ", "∏‖W‖op"):
        table.add_column(heading, justify="right", no_wrap=True)
    for method, run in runs.items():
        table.add_row(
            demos.METHODS[method][0],
            f"{run.train_rms:.3f}",
            f"{run.test_rms:.3f}",
            str(run.iterations),
            f"{run.seconds:.1f}",
            f"{run.bound_a_priori:.1f}",
            f"{run.bound:.1f}",
        )
        theirs = paper[method]
        table.add_row(
            "  paper",
            *(f"{theirs[k][0]:.3f} ± {theirs[k][1]:.3f}" for k in ("train_rms", "test_rms")),
            str(theirs["iterations"]),
            f"{theirs['seconds'][0]:.1f}",
            "–",
            "–",
            style="dim",
            end_section=True,
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
