"""From a list of jobs to a folder with everything: store, results, figures."""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from greatcircle import report
from greatcircle._runtime import versions as provenance
from greatcircle.datasets import Table
from greatcircle.experiments import exp1, exp2
from greatcircle.experiments.run import paper_numbers
from greatcircle.experiments.sweep import Job, Row, Store, fingerprint
from greatcircle.figures import files
from greatcircle.figures import heatmaps as heatmap_figure
from greatcircle.figures import learning_curves as curve_figure
from greatcircle.figures.tables import GridComparison, LearningCurves
from greatcircle.report.charts.heatmaps import heatmaps
from greatcircle.report.charts.learning_curves import learning_curves

STORE = "runs.jsonl"


def store(folder: Path) -> Store:
    """Where the runs of an experiment are kept."""
    return Store(folder / STORE)


def results(experiment: str, table: Table, rows: Mapping[Job, Row], *, data: str) -> dict[str, Any]:
    """What happened, in the layout of the paper's `reference.json`."""
    layers = (len(table.inputs), *next(iter(rows)).hidden, len(table.targets))
    summary = exp1.summary(rows, layers) if experiment == "exp1" else exp2.summary(rows)
    return {
        "source": f"greatcircle {version('greatcircle')}",
        "machine": provenance.machine("float32", "one thread for each run"),
        "data": data,
        "data_fingerprint": fingerprint(table),
        "rows": len(table),
        "failed_runs": [row["error"] for row in rows.values() if "error" in row],
        f"experiment_{experiment[-1]}": summary,
    }


def write(
    experiment: str,
    folder: Path,
    rows: Mapping[Job, Row],
    summary: dict[str, Any],
    command: str,
) -> list[Path]:
    """`results.json`, the figures as PNG and PDF, and `report.html`; the files written."""
    path = folder / "results.json"
    path.write_text(json.dumps(summary, indent=2) + "\n", "utf-8")
    written = [path]
    paper = paper_numbers()
    if experiment == "exp1":
        panels = exp1.panels(rows)
        figure = curve_figure.learning_curves(list(panels.values()))
        written += files.save(figure, folder / "learning_curves")
        sections = _sections_1(summary["experiment_1"], paper["experiment_1"], panels)
    else:
        grids = exp2.grids(summary["experiment_2"], paper["experiment_2"])
        written += files.save(heatmap_figure.heatmaps(grids), folder / "heatmaps")
        sections = _sections_2(grids, summary["experiment_2"]["seeds"])
    page = report.Report(
        title=f"Experiment {experiment[-1]} of the paper, rerun",
        lead='Cho & Shin, "Automatic Optimisation of Normalised Neural Networks", L4DC 2024: '
        f"rerun by greatcircle on {summary['data']} ({summary['rows']} rows), beside the "
        "published numbers. Other data than the paper's give other numbers: compare the level "
        "and the trends.",
        sections=sections,
        command=command,
        facts=[
            ("software", summary["source"]),
            ("machine", summary["machine"]),
            ("data", f"{summary['data']}, fingerprint {summary['data_fingerprint']}"),
            ("failed runs", str(len(summary["failed_runs"]))),
            ("the paper's machine", paper["machine"]),
        ],
    )
    return [*written, report.write(page, folder / "report.html")]


def _sections_1(
    ours: dict[str, Any], paper: dict[str, Any], panels: Mapping[str, LearningCurves]
) -> list[report.Section]:
    """Table 1, then Figure 1 for each method."""
    table = report.TableBlock(
        headings=("", "train RMS [N]", "test RMS [N]", "seconds", "iterations", "seeds"),
        rows=[
            (name, *_numbers(numbers[method], numbers["seeds"]))
            for method in panels
            for name, numbers in ((exp1.TITLES[method], ours), ("paper", paper))
        ],
        caption="Mean ± standard deviation over the seeds.",
    )
    curves = [
        report.Section(
            panel.title,
            charts=[
                report.Chart(
                    learning_curves(panel),
                    "Training and test objective of the scaled problem, and the computed angle.",
                    f"The training objective falls from {panel.train[:, 0].mean():.2e} to "
                    f"{panel.train[:, -1].mean():.2e} in {panel.train.shape[1] - 1} iterations.",
                )
            ],
        )
        for panel in panels.values()
    ]
    return [report.Section("Errors and times", tables=[table]), *curves]


def _numbers(method: dict[str, Any], seeds: int) -> tuple[str, ...]:
    spread = [f"{method[k][0]:.4f} ± {method[k][1]:.4f}" for k in ("train_rms", "test_rms")]
    seconds = f"{method['seconds'][0]:.2f} ± {method['seconds'][1]:.2f}"
    return *spread, seconds, str(method["iterations"]), str(method.get("seeds", seeds))


def _sections_2(grids: Sequence[GridComparison], seeds: int) -> list[report.Section]:
    """Heatmaps of each quantity."""
    sections = []
    for grid in grids:
        (low, high), (paper_low, paper_high) = (
            (np.nanmin(cells), np.nanmax(cells)) for cells in (grid.ours, grid.paper)
        )
        description = (
            f"Mean over {seeds} seeds, from {low:.3f} to {high:.3f}; the paper's values are from "
            f"{paper_low:.3f} to {paper_high:.3f}."
        )
        label = f"{grid.label} [{grid.unit}]"
        sections.append(
            report.Section(label, charts=[report.Chart(heatmaps(grid), label, description)])
        )
    return sections
