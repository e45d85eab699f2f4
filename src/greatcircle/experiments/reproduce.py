"""Results of a rerun experiment: summary, figures and report, beside the paper's numbers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from greatcircle import report
from greatcircle._runtime import versions
from greatcircle.data.table import Table
from greatcircle.experiments import exp1, exp2
from greatcircle.experiments.run import Job, paper_numbers
from greatcircle.experiments.sweep import Row, Store, fingerprint
from greatcircle.figures import files as figure_files
from greatcircle.figures import heatmaps as heatmap_figures
from greatcircle.figures import learning_curves as curve_figures
from greatcircle.figures.tables import GridComparison, LearningCurves
from greatcircle.report.charts.heatmaps import heatmaps
from greatcircle.report.charts.learning_curves import learning_curves

__all__ = ["files", "results", "store"]


def store(folder: Path) -> Store:
    """Return the store of the runs of an experiment."""
    return Store(folder / "runs.jsonl")


def results(experiment: str, table: Table, rows: Mapping[Job, Row], *, data: str) -> dict[str, Any]:
    """Return the content of `results.json`, with the keys of `reference.json`."""
    layers = (len(table.inputs), *next(iter(rows)).hidden, len(table.targets))
    summary = exp1.summary(rows, layers) if experiment == "exp1" else exp2.summary(rows)
    return {
        "source": f"greatcircle {versions.versions()['greatcircle']}",
        "machine": versions.machine("float32", "one thread per run"),
        "data": data,
        "data_fingerprint": fingerprint(table),
        "rows": len(table),
        "failed_runs": [row["error"] for row in rows.values() if "error" in row],
        f"experiment_{experiment[-1]}": summary,
    }


def files(
    experiment: str, rows: Mapping[Job, Row], summary: dict[str, Any], command: str
) -> dict[str, bytes]:
    """Return `results.json`, the figures as PNG and PDF, and `report.html`."""
    paper = paper_numbers()
    ours, theirs = (x[f"experiment_{experiment[-1]}"] for x in (summary, paper))
    if experiment == "exp1":
        curves = exp1.curves(rows)
        stem, figure = "learning_curves", curve_figures.learning_curves(list(curves.values()))
        sections = _curve_sections(ours, theirs, curves)
    else:
        grids = exp2.grids(ours, theirs)
        stem, figure = "heatmaps", heatmap_figures.heatmaps(list(grids.values()))
        sections = [_grid_section(grid, ours["seeds"]) for grid in grids.values()]
    page = report.Report(
        title=f"Experiment {experiment[-1]} of the paper, rerun",
        lead='Cho & Shin, "Automatic Optimisation of Normalised Neural Networks", L4DC 2024: '
        f"rerun by greatcircle on {summary['data']} ({summary['rows']} rows), beside the "
        "published numbers. On data other than the paper's, compare levels and trends.",
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
    return {
        "results.json": (json.dumps(summary, indent=2) + "\n").encode("utf-8"),
        **{f"{stem}{suffix}": data for suffix, data in figure_files.encode(figure).items()},
        "report.html": report.render(page).encode("utf-8"),
    }


def _curve_sections(
    ours: dict[str, Any], paper: dict[str, Any], curves: Mapping[str, LearningCurves]
) -> list[report.Section]:
    """Return Table 1, then Figure 1 for each method."""
    table = report.TableBlock(
        headings=exp1.HEADINGS,
        rows=exp1.table_rows(ours, paper),
        caption="RMS in N, mean ± standard deviation over the seeds.",
    )
    sections = [report.Section("Errors and times", tables=[table])]
    for method in curves.values():
        chart = report.Chart(
            learning_curves(method),
            "Training and test objective of the scaled problem, and the computed angle.",
            f"The training objective falls from {method.train[:, 0].mean():.2e} to "
            f"{method.train[:, -1].mean():.2e} in {method.train.shape[1] - 1} iterations.",
        )
        sections.append(report.Section(method.title, charts=[chart]))
    return sections


def _grid_section(grid: GridComparison, seeds: int) -> report.Section:
    """Return the heatmaps of one quantity, as in Figure 2."""
    title = f"{grid.label} [{grid.unit}]"
    (low, high), (paper_low, paper_high) = (
        (np.nanmin(cells), np.nanmax(cells)) for cells in (grid.ours, grid.paper)
    )
    description = (
        f"Mean over {seeds} seeds, from {low:.3f} to {high:.3f}; the paper's values are from "
        f"{paper_low:.3f} to {paper_high:.3f}."
    )
    return report.Section(title, charts=[report.Chart(heatmaps(grid), title, description)])
