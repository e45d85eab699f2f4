"""Command line: arguments in, one call, words out. Progress goes to standard error."""

import argparse
import io
import json
import os
import shlex
import sys
import tempfile
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
from greatcircle.datasets import Table as Data
from greatcircle.datasets import files, ground_effect, neural_fly, neural_lander
from greatcircle.experiments import demo as demos
from greatcircle.experiments import exp1, exp2
from greatcircle.experiments import reproduce as reproductions
from greatcircle.experiments.run import Run, paper_numbers
from greatcircle.experiments.sweep import sweep
from greatcircle.methods import DIRECTIONS, METHODS, STARTS, STEPS
from greatcircle.record import Record
from greatcircle.scaling import SCALINGS


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the command `greatcircle`."""
    options = _parser().parse_args(arguments)
    options.arguments = sys.argv[1:] if arguments is None else list(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without ‖ still gets its table
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
        help="train the paper's network by its two methods and by ours",
        description="Generate flight data near the ground, train the paper's network 12-25-30-15-3 "
        "with Method 1 (200 iterations), Method 2 (1000) and the library's own method, and compare "
        "with the paper.",
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
    _add_reproduce(commands)
    return parser


def _check_writable(folder: Path) -> None:
    """Fail now, not after training."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"--out is {folder}; expected a folder that can be written ({error.strerror})"
        ) from None


def _add_reproduce(commands: Any) -> None:
    reproduce = commands.add_parser(
        "reproduce",
        help="rerun the paper's experiments, beside its numbers",
        description="Rerun Section 4 of the paper. Interrupt it whenever you like: the same "
        "command goes on where it was.",
        epilog="examples:\n"
        "  greatcircle reproduce exp1 --seeds 10 --jobs 2\n"
        "  greatcircle reproduce exp1 --methods ad --data flight.csv --targets fx fy fz\n"
        "  greatcircle reproduce exp2 --step taylor3",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = reproduce.add_argument
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
    add("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: all cores)")
    add("--cluster", metavar="ADDRESS", help="of a Dask scheduler, instead of --jobs")
    add("--out", type=Path, metavar="DIR", help="default: runs/exp1 or runs/exp2")
    add("--json", action="store_true", help="print the results as JSON on standard output")
    reproduce.set_defaults(run=_reproduce)


def _reproduce(options: argparse.Namespace) -> int:
    messages = Console(stderr=True)
    for name in ("seeds", "jobs", "iterations"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name} is {value}; expected a whole number of at least 1")
    folder = options.out or Path("runs") / options.experiment
    _check_writable(folder)
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
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("remaining"),
        TimeRemainingColumn(elapsed_when_finished=False),
        console=messages,
    ) as bars:
        task = bars.add_task("runs", total=len(jobs))

        def progress(row: dict[str, Any]) -> None:
            if "error" in row:
                bars.console.print(f"a run failed and is recorded: {row['error']}", soft_wrap=True)
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
            messages.print(
                f"\n{len(store.rows())} runs are kept in {store.path}; "
                "the same command goes on from there",
                soft_wrap=True,
            )
            raise
    summary = reproductions.results(options.experiment, table, rows, data=data)
    command = f"greatcircle {shlex.join(options.arguments)}"
    written = reproductions.write(options.experiment, folder, rows, summary, command)
    if options.json:
        print(json.dumps(summary, indent=2))
    elif options.experiment == "exp1":
        Console().print(_table_1(summary["experiment_1"], paper_numbers()["experiment_1"]))
    else:
        for name, label in exp2.QUANTITIES.items():
            Console().print(_grid(name, label, summary["experiment_2"]))
    for path in written:
        messages.print(f"wrote {path}", highlight=False, soft_wrap=True)
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


def _demo(options: argparse.Namespace) -> int:
    messages = Console(stderr=True)
    if options.seed < 0:
        raise ValueError(f"--seed is {options.seed}; expected a whole number, not negative")
    _check_writable(options.out)
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


if __name__ == "__main__":
    sys.exit(main())
