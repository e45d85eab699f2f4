"""`greatcircle demo`: the paper's network on generated flight data, or the landing."""

import argparse
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from greatcircle._runtime.versions import __version__
from greatcircle.cli import landing, output
from greatcircle.datasets import ground_effect
from greatcircle.experiments import demo as demos
from greatcircle.experiments.run import Run, paper_numbers
from greatcircle.optimise.record import Record

OUT = Path("runs/demo")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Generate flight data near the ground, train the paper's network 12-25-30-15-3 with\n"
        "Method 1 (200 iterations), Method 2 (1000) and the library's own method, and compare\n"
        "with the paper.\n\n"
        "With `landing`: land a simulated quadrotor many times, with and without the learned\n"
        "force in its controller, and hold the tracking error against its bound. The force is\n"
        "called as exported C code, which needs a C compiler."
    )
    parser.epilog = (
        "examples:\n"
        "  greatcircle demo --seed 1 --out runs/second\n"
        "  greatcircle demo landing\n"
        "  greatcircle demo landing --landings 50 --json"
    )
    parser.add_argument(
        "what",
        nargs="?",
        choices=("paper", "landing"),
        default="paper",
        help="the paper's network (default), or the landing",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where to write results.json, figures and report "
        f"(default: {OUT}, {landing.OUT} for the landing)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="decides split and initial weights, and the weather of the landings (default: 0)",
    )
    parser.add_argument(
        "--landings",
        type=int,
        metavar="N",
        help=f"landings with each controller (default: {landing.LANDINGS})",
    )
    output.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Train, print, write."""
    if options.what == "landing":
        return landing.run(options)
    if options.landings is not None:
        raise ValueError(
            f"--landings is {options.landings}, and nothing lands here; expected it with the "
            "landing: greatcircle demo landing --landings 50"
        )
    messages = Console(stderr=True)
    out = OUT if options.out is None else options.out
    output.check_seed(options.seed)
    output.check_writable(out)
    table = ground_effect.generate()
    with output.bars(
        messages,
        TextColumn("{task.fields[words]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    ) as bars:
        tasks = {
            method: bars.add_task(title, total=iterations, words="", start=False)
            for method, (title, iterations) in demos.METHODS.items()
        }

        def progress(method: str, record: Record) -> None:
            task = tasks[method]
            if record.iteration == 1:
                bars.start_task(task)
            words = f"loss {record.loss:.3e} angle {record.angle:.1e}"
            bars.update(task, completed=record.iteration, words=words)

        runs = demos.demo(table, seed=options.seed, progress=progress)
        for method, run in runs.items():  # one that stopped early is complete, too
            bars.update(tasks[method], total=run.iterations)

    summary = demos.results(
        runs,
        data=f"ground-effect generator, {len(table)} rows, seed 0",
        seed=options.seed,
        version=__version__,
    )
    written = demos.write(out, runs, summary)
    if options.json:
        output.print_json(summary)
    else:
        Console().print(_results_table(runs, paper_numbers()["experiment_1"]))
    output.say_written(messages, written)
    return 0


def _results_table(runs: dict[str, Run], paper: dict[str, Any]) -> Table:
    table = Table(
        title="RMS in N, bounds in N per unit of x/‖x‖; auto: per standard deviation",
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
        theirs = paper.get(method)
        if theirs is None:
            continue
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
