"""`greatcircle demo landing`: a quadrotor lands with a certified force in its loop."""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TimeElapsedColumn
from rich.table import Table

from greatcircle.cli import output

OUT, LANDINGS = Path("runs/landing"), 500


def run(options: argparse.Namespace) -> int:
    """Train, land, compare, write."""
    landings = LANDINGS if options.landings is None else options.landings
    output.check_whole("landings", landings, 2)  # one has no confidence interval
    output.check_seed(options.seed)
    out = OUT if options.out is None else options.out
    output.check_writable(out)
    from greatcircle import report
    from greatcircle.experiments.landing import compiled, figures, page, study

    compiled.compiler()
    messages = Console(stderr=True)
    with messages.status("training the force"):
        model = study.learn(seed=options.seed)
    bars = Progress(*Progress.get_default_columns()[:3], TimeElapsedColumn(), console=messages)
    with bars, tempfile.TemporaryDirectory() as there:
        tasks: dict[str, Any] = {}

        def progress(title: str, share: float) -> None:
            if title not in tasks:
                tasks[title] = bars.add_task(title, total=1.0)
            bars.update(tasks[title], completed=share)
            if share == 1:
                bars.stop_task(tasks[title])

        done = study.study(
            landings,
            seed=options.seed,
            folder=Path(there),
            model=model,
            calibration=study.CALIBRATION,
            progress=progress,
        )
    summary = study.results(done)
    path = out / "results.json"
    path.write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n", "utf-8")
    written = [path, *figures.write(out, done)]
    written.append(report.write(page.page(done, summary, options.command), out / "report.html"))
    if options.json:
        output.print_json(summary)
    else:
        _print(summary)
    output.say_written(messages, written)
    return 0


def _print(summary: dict[str, Any]) -> None:
    from greatcircle.experiments.landing import flight, page, study

    console = Console()
    table = Table(
        title=f"{summary['landings']} landings each: mean ± half of the 95% interval",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 0, 0, 1),
    )
    table.add_column("", no_wrap=True)
    for title in study.TITLES.values():
        table.add_column(title.replace(" + ", "\n+ "), justify="right", no_wrap=True)
    for row in page.comparison_rows(summary):
        table.add_row(*map(escape, row))  # units stand in brackets
    console.print(table)
    bound, rule = summary["bounds"]["compensated"], summary["contraction"]
    console.print(
        f"fixed-point iteration: contracts by {rule['rate']:.3f} = {rule['gain']:.4f} × "
        f"{summary['model']['in_motor_speeds']:.3f} (certified), {rule['iterations']} iterations "
        f"every {1000 * flight.PERIOD:g} ms\n"
        f"bound of the tracking error: {page.cm(bound['ultimate_error'])}, "
        f"{bound['bound_over_99th_percentile']:.1f} × the 99th percentile of the error\n"
        f"assumptions kept in {100 * bound['all_assumptions_kept']:.1f} % of the landings; bound "
        f"exceeded in {bound['exceeded_where_kept']} of them",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
