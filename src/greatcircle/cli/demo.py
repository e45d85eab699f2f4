"""`greatcircle demo`: train the paper's network on generated flight data and compare."""

import argparse
from pathlib import Path

from rich.console import Console
from rich.progress import TextColumn, TimeElapsedColumn, TimeRemainingColumn

from greatcircle._runtime.atomic import atomic_write_all
from greatcircle.cli import output
from greatcircle.data.table import Table
from greatcircle.datasets import ground_effect
from greatcircle.experiments import demo as experiment
from greatcircle.experiments.run import Run, paper_numbers
from greatcircle.optimise.record import Record

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Generate flight data near the ground, train the paper's network 12-25-30-15-3 with\n"
        "Method 1 (200 iterations), Method 2 (1000) and the library's default method, and compare\n"
        "with the paper's numbers. Takes about a minute."
    )
    parser.epilog = "examples:\n  greatcircle demo\n  greatcircle demo --seed 1 --out runs/second"
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/demo"),
        metavar="DIR",
        help="folder for results.json and figures (default: runs/demo)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of split and initial weights (default: 0)"
    )
    output.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Train with each method, then print and write the results."""
    messages = Console(stderr=True)
    output.check_seed(options.seed)
    output.check_folder(options.out)
    output.require_app("matplotlib")
    table = ground_effect.generate()
    runs = _train(table, options.seed, messages)
    data = f"ground-effect generator, {len(table)} rows, seed 0"
    summary = experiment.results(runs, data=data, seed=options.seed)
    files = experiment.files(runs, summary)
    atomic_write_all(options.out, files)
    if options.json:
        output.print_json(summary)
    else:
        rows = experiment.table_rows(runs, paper_numbers()["experiment_1"])
        Console().print(
            output.table(
                experiment.HEADINGS,
                rows,
                title="RMS in N, bounds in N per unit of x/‖x‖; auto: per standard deviation",
                caption="The paper's data are real, these are generated: compare levels.",
            )
        )
    output.print_written(messages, [options.out / name for name in files])
    return 0


def _train(table: Table, seed: int, messages: Console) -> dict[str, Run]:
    """Train with each method, with a progress bar for each."""
    with output.progress_bars(
        messages,
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    ) as bars:
        tasks = {
            method: bars.add_task(title, total=iterations, text="", start=False)
            for method, (title, iterations) in experiment.METHODS.items()
        }

        def progress(method: str, record: Record) -> None:
            task = tasks[method]
            if record.iteration == 1:
                bars.start_task(task)
            text = f"loss {record.loss:.3e} angle {record.angle:.1e}"
            bars.update(task, completed=record.iteration, text=text)

        runs = experiment.demo(table, seed=seed, progress=progress)
        for method, run in runs.items():  # a run that converged early is complete, too
            bars.update(tasks[method], total=run.iterations)
    return runs
