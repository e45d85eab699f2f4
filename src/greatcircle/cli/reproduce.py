"""`greatcircle reproduce`: the paper's experiments, resumable, beside its numbers."""

import argparse
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from greatcircle._runtime import threads
from greatcircle.cli import output
from greatcircle.data import files
from greatcircle.data.scaling import SCALINGS
from greatcircle.datasets import Table as Data
from greatcircle.datasets import ground_effect, neural_fly, neural_lander
from greatcircle.experiments import exp1, exp2
from greatcircle.experiments import reproduce as reproductions
from greatcircle.experiments.run import paper_numbers
from greatcircle.experiments.sweep import sweep
from greatcircle.training.methods import DIRECTIONS, METHODS, STARTS, STEPS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Rerun Section 4 of the paper. Interrupt it whenever you like: rerun the command to resume."
    )
    parser.epilog = (
        "examples:\n"
        "  greatcircle reproduce exp1 --seeds 10 --jobs 2\n"
        "  greatcircle reproduce exp1 --methods ad --data flight.csv --targets fx fy fz\n"
        "  greatcircle reproduce exp2 --step taylor3"
    )
    add = parser.add_argument
    add("experiment", choices=("exp1", "exp2"), help="learning curves, or the grid of networks")
    add(
        "--data",
        default="ground-effect",
        help="ground-effect (default), neural-lander, neural-lander-raw, neural-fly, or a CSV or "
        "Parquet file",
    )
    add("--path", type=Path, help="of your copy of the neural-fly data")
    add("--conditions", nargs="+", default=["nowind"], help="of neural-fly (default: nowind)")
    add("--inputs", nargs="+", metavar="COLUMN", help="of a file; default: all other numbers")
    add("--targets", nargs="+", metavar="COLUMN", help="of a file")
    add("--seeds", type=int, default=exp1.SEEDS, help=f"runs of each kind (default: {exp1.SEEDS})")
    add(
        "--methods",
        nargs="+",
        default=list(exp1.ITERATIONS),
        choices=list(exp1.ITERATIONS),
        help="of exp1 (default: ad mm)",
    )
    add("--method", default="ad", choices=list(METHODS), help="of exp2 (default: ad)")
    add("--direction", choices=list(DIRECTIONS), help="of exp2, instead of the method's")
    add("--step", choices=list(STEPS), help="of exp2, instead of the method's")
    add("--start", choices=list(STARTS), help="of exp2: initial weights, instead of the method's")
    add("--scaling", choices=list(SCALINGS), help="of exp2 (default: paper, or standard for auto)")
    add("--iterations", type=int, help="instead of the paper's")
    add("--jobs", type=int, default=threads.cores(), help="processes (default: all cores)")
    add("--cluster", metavar="ADDRESS", help="of a Dask scheduler, instead of --jobs")
    add("--out", type=Path, metavar="DIR", help="default: runs/exp1 or runs/exp2")
    output.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run what is missing, print, write."""
    messages = Console(stderr=True)
    for name in ("seeds", "jobs", "iterations"):
        output.check_whole(name, getattr(options, name), 1)
    folder = options.out or Path("runs") / options.experiment
    output.check_writable(folder)
    table, data = _table(options)
    if options.experiment == "exp1":
        iterations = {m: options.iterations or exp1.ITERATIONS[m] for m in options.methods}
        jobs = exp1.jobs(options.methods, options.seeds, iterations)
    else:
        method = METHODS[options.method]
        jobs = exp2.jobs(
            options.seeds,
            direction=options.direction or method.direction,
            step=options.step or method.step,
            start=options.start or method.start,
            scaling=options.scaling or method.scaling,
            iterations=options.iterations or exp2.ITERATIONS,
            tol=method.tol,
        )
    store = reproductions.store(folder)
    with output.bars(
        messages,
        TimeElapsedColumn(),
        TextColumn("remaining"),
        TimeRemainingColumn(elapsed_when_finished=False),
    ) as bars:
        task = bars.add_task("runs", total=len(jobs))

        def progress(row: dict[str, Any]) -> None:
            if "error" in row:
                output.say(bars.console, f"a run failed and is recorded: {row['error']}")
            bars.advance(task)

        try:
            rows = sweep(
                table,
                jobs,
                store,
                workers=options.jobs,
                cluster=options.cluster,
                cache=folder / "compiled",
                started=lambda done: bars.update(task, total=len(jobs) - done),
                progress=progress,
            )
        except KeyboardInterrupt:
            kept = f"\n{len(store.rows())} runs are kept in {store.path}"
            output.say(messages, f"{kept}; rerun the command to resume")
            raise
    summary = reproductions.results(options.experiment, table, rows, data=data)
    written = reproductions.write(options.experiment, folder, rows, summary, options.command)
    if options.json:
        output.print_json(summary)
    elif options.experiment == "exp1":
        Console().print(_table_1(summary["experiment_1"], paper_numbers()["experiment_1"]))
    else:
        for name, label in exp2.QUANTITIES.items():
            Console().print(_grid(name, label, summary["experiment_2"]))
    output.say_written(messages, written)
    return 0


def _table(options: argparse.Namespace) -> tuple[Data, str]:
    """The data, and what to call them."""
    if options.data == "ground-effect":
        return ground_effect.generate(), "ground-effect generator, seed 0"
    if options.data == "neural-lander":
        return neural_lander.load(), "Neural-Lander, the file of the paper's authors"
    if options.data == "neural-lander-raw":
        return neural_lander.load_raw(), "Neural-Lander, built from the raw flight"
    if options.data == "neural-fly":
        table = neural_fly.load(options.path, conditions=options.conditions)
        return table, f"Neural-Fly, {', '.join(options.conditions)}"
    if not options.targets:
        raise ValueError("--targets is missing; name the columns of the file to predict")
    table = files.read(options.data, inputs=options.inputs, targets=options.targets)
    return table, Path(options.data).name


def _table_1(ours: dict[str, Any], paper: dict[str, Any]) -> Table:
    table = Table(title="Experiment 1: RMS in N, mean ± standard deviation", box=box.SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    for heading in ("train RMS", "test RMS", "seconds", "steps", "seeds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for method in (m for m in exp1.TITLES if m in ours):
        for name, numbers in ((exp1.TITLES[method], ours), ("  paper", paper)):
            m = numbers[method]
            spread = (f"{m[k][0]:.3f} ± {m[k][1]:.3f}" for k in ("train_rms", "test_rms"))
            seconds = f"{m['seconds'][0]:.1f} ± {m['seconds'][1]:.1f}"
            seeds = str(m.get("seeds", numbers["seeds"]))
            style = "dim" if numbers is paper else ""
            table.add_row(name, *spread, seconds, str(m["iterations"]), seeds, style=style)
    return table


def _grid(name: str, label: str, ours: dict[str, Any]) -> Table:
    table = Table(title=f"Experiment 2: {label}, mean of {ours['seeds']}", box=box.SIMPLE_HEAD)
    table.add_column("depth \\ width", justify="right")
    for width in ours["widths"]:
        table.add_column(str(width), justify="right")
    for depth, cells in zip(ours["depths"], ours[name], strict=True):
        table.add_row(str(depth), *("–" if c is None else f"{c:.3f}" for c in cells))
    return table
