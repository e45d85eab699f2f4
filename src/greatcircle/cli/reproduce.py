"""`greatcircle reproduce`: rerun the paper's experiments (resumable) and compare the results."""

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import TextColumn, TimeElapsedColumn, TimeRemainingColumn

from greatcircle._runtime import threads
from greatcircle._runtime.atomic import atomic_write_all
from greatcircle.cli import output
from greatcircle.data import files
from greatcircle.data.scaling import SCALINGS
from greatcircle.data.table import Table
from greatcircle.datasets import ground_effect, neural_fly, neural_lander
from greatcircle.experiments import exp1, exp2
from greatcircle.experiments import reproduce as experiments
from greatcircle.experiments.run import Job, paper_numbers
from greatcircle.experiments.sweep import Row, Store, sweep
from greatcircle.training.methods import DIRECTIONS, INITIALISATIONS, METHODS, STEPS

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Rerun the experiments in Section 4 of the paper. Finished runs are stored: after an\n"
        "interruption, rerun the command to resume."
    )
    parser.epilog = (
        "examples:\n"
        "  greatcircle reproduce exp1 --seeds 10 --jobs 2\n"
        "  greatcircle reproduce exp1 --methods ad --data flight.csv --targets fx fy fz\n"
        "  greatcircle reproduce exp2 --step taylor3"
    )
    add = parser.add_argument
    add("experiment", choices=("exp1", "exp2"), help="learning curves, or a grid of networks")
    add(
        "--data",
        default="ground-effect",
        help="ground-effect (default), neural-lander, neural-lander-raw, neural-fly, or a CSV or "
        "Parquet file",
    )
    add("--path", type=Path, help="neural-fly: path of your copy of the data")
    add(
        "--conditions",
        nargs="+",
        default=["nowind"],
        help="neural-fly: wind conditions (default: nowind)",
    )
    add(
        "--inputs",
        nargs="+",
        metavar="COLUMN",
        help="input columns of a data file (default: all other numeric columns)",
    )
    add("--targets", nargs="+", metavar="COLUMN", help="target columns of a data file")
    add("--seeds", type=int, default=exp1.SEEDS, help=f"runs of each kind (default: {exp1.SEEDS})")
    add(
        "--methods",
        nargs="+",
        default=list(exp1.ITERATIONS),
        choices=list(exp1.ITERATIONS),
        help="exp1: methods to compare (default: ad mm)",
    )
    add("--method", default="ad", choices=list(METHODS), help="exp2: method (default: ad)")
    add("--direction", choices=list(DIRECTIONS), help="exp2: instead of the method's direction")
    add("--step", choices=list(STEPS), help="exp2: instead of the method's step")
    add(
        "--start",
        choices=list(INITIALISATIONS),
        help="exp2: instead of the method's initial weights",
    )
    add("--scaling", choices=list(SCALINGS), help="exp2: instead of the method's scaling")
    add("--iterations", type=int, help="iterations of each run (default: as in the paper)")
    add("--jobs", type=int, default=threads.cores(), help="processes (default: all cores)")
    add("--cluster", metavar="ADDRESS", help="address of a Dask scheduler; replaces --jobs")
    add("--out", type=Path, metavar="DIR", help="output folder (default: runs/exp1 or runs/exp2)")
    output.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the missing jobs, then print and write the results of all."""
    messages = Console(stderr=True)
    for name in ("seeds", "jobs", "iterations"):
        output.check_integer(name, getattr(options, name), 1)
    folder = options.out or Path("runs") / options.experiment
    output.check_folder(folder)
    output.require_app("matplotlib", "plotly", "jinja2")
    table, data = _table(options)
    rows = _sweep(options, folder, table, messages)
    summary = experiments.results(options.experiment, table, rows, data=data)
    made = experiments.files(options.experiment, rows, summary, options.command)
    atomic_write_all(folder, made)
    if options.json:
        output.print_json(summary)
    else:
        _print(options.experiment, summary)
    output.print_written(messages, [folder / name for name in made])
    return 0


def _jobs(options: argparse.Namespace) -> list[Job]:
    """Return all runs of the experiment."""
    if options.experiment == "exp1":
        iterations = {m: options.iterations or exp1.ITERATIONS[m] for m in options.methods}
        return exp1.jobs(options.methods, options.seeds, iterations)
    method = METHODS[options.method]
    settings = Job(
        direction=options.direction or method.direction,
        step=options.step or method.step,
        start=options.start or method.initialisation,
        scaling=options.scaling or method.scaling,
        hidden=(),
        iterations=options.iterations or exp2.ITERATIONS,
        seed=0,
        tol=method.tol,
    )
    return exp2.jobs(settings, options.seeds)


def _sweep(
    options: argparse.Namespace, folder: Path, table: Table, messages: Console
) -> dict[Job, Row]:
    """Run the missing jobs with a progress bar; return the rows of all jobs."""
    jobs, store = _jobs(options), experiments.store(folder)
    with output.progress_bars(
        messages,
        TimeElapsedColumn(),
        TextColumn("remaining"),
        TimeRemainingColumn(elapsed_when_finished=False),
    ) as bars:
        task = bars.add_task("runs", total=len(jobs))

        def progress(row: Row) -> None:
            if "error" in row:
                output.print_plain(bars.console, f"a run failed: {row['error']}")
            bars.advance(task)

        try:
            return sweep(
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
            _print_kept(messages, store)
            raise


def _print_kept(messages: Console, store: Store) -> None:
    kept = f"\n{len(store.rows())} runs are kept in {store.path}"
    output.print_plain(messages, f"{kept}; rerun the command to resume")


def _table(options: argparse.Namespace) -> tuple[Table, str]:
    """Return the data and their name."""
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


def _print(experiment: str, summary: dict[str, Any]) -> None:
    """Print Table 1, or a grid for each quantity."""
    console = Console()
    if experiment == "exp1":
        rows = exp1.table_rows(summary["experiment_1"], paper_numbers()["experiment_1"])
        title = "Experiment 1: RMS in N, mean ± standard deviation"
        console.print(output.table(exp1.HEADINGS, rows, title=title))
        return
    ours = summary["experiment_2"]
    for name, (label, unit) in exp2.QUANTITIES.items():
        rows = [
            (str(depth), *("–" if cell is None else f"{cell:.3f}" for cell in cells))
            for depth, cells in zip(ours["depths"], ours[name], strict=True)
        ]
        title = f"Experiment 2: {label} [{unit}], mean of {ours['seeds']}"
        headings = ("depth \\ width", *map(str, ours["widths"]))
        console.print(output.table(headings, rows, title=title))
