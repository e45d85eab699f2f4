"""Example pages for the tests of reports, and a parser that checks their HTML."""

from html.parser import HTMLParser
from typing import Any

import numpy as np

from greatcircle import report
from greatcircle.experiments.run import paper_numbers
from greatcircle.figures.tables import (
    Confusion,
    GridComparison,
    LearningCurves,
    Predictions,
    Slices,
    bound_bars,
)
from greatcircle.model import SelectionRow, SelectionTable
from greatcircle.report.charts import model as charts
from greatcircle.report.charts.heatmaps import heatmaps
from greatcircle.report.charts.learning_curves import learning_curves

HOSTILE = (
    "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>&\"'`{{ 7*7 }}"
)
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Outline(HTMLParser):
    """Elements with their attributes and the text of each; every element must be closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[int] = []
        self.feed(page)
        self.close()
        assert not self._open, [self.elements[i][0] for i in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), (tag, attrs)
        self.elements.append((tag, dict(attrs)))
        self.texts.append("")
        if tag not in VOID:
            self._open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        assert self.elements[self._open[-1]][0] == tag, (tag, self.getpos())
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for index in self._open:
            self.texts[index] += data

    def of(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [
            (attributes, text)
            for (name, attributes), text in zip(self.elements, self.texts, strict=True)
            if name == tag
        ]


def curves(seeds: int, iterations: int) -> LearningCurves:
    """Return curves that fall, with noise from seed to seed."""
    rng = np.random.default_rng(0)
    t = np.arange(iterations + 1)
    train = (0.15 + 0.35 * np.exp(-5 * t / iterations)) * rng.lognormal(0, 0.05, (seeds, 1))
    angle = np.exp(-3 - 3 * t[1:] / iterations) * rng.lognormal(0, 0.3, (seeds, iterations))
    return LearningCurves("Method 1", train, 1.1 * train, angle, seeds=range(seeds))


def candidates(**changes: Any) -> SelectionTable:
    """Return six candidates of three shapes, the second one chosen; `changes` replaces columns."""
    rows = [
        SelectionRow((8, 8), 3.0, 50, 5, 0.5, 0.02, 400.0, 9.0, chosen=False),
        SelectionRow((8, 8), 30.0, 40, 5, 0.32, 0.016, 300.0, 4.0, chosen=True),
        SelectionRow((8, 8), 10.0, 50, 5, 0.38, 0.02, 300.0, 6.0, chosen=False),
        SelectionRow((16, 16), 30.0, 20, 5, 0.32, 0.01, 200.0, 5.0, chosen=False),
        SelectionRow((16, 16), 90.0, 10, 2, 0.29, 0.05, 100.0, 1.0, chosen=False),
        SelectionRow((8,), 9.0, 50, 2, np.inf, np.nan, 100.0, np.inf, chosen=False),
    ]
    return SelectionTable(SelectionTable.of(rows) | changes)


def example_report(seeds: int = 3, iterations: int = 40, **changes: Any) -> report.Report:
    """Return a report with learning curves and a grid; `changes` replaces its fields."""
    paper = paper_numbers()["experiment_2"]
    published = np.array(paper["train_rms"])
    ours = published + 0.01 * np.cos(np.arange(published.size)).reshape(published.shape)
    learning = report.Section(
        "Learning",
        "First paragraph, see https://example.org/paper.\n\nSecond, with `code`.",
        tables=[
            report.TableBlock(
                ["method", "train RMS [N]", "outcome"],
                [["Method 1", "0.836 ± 0.005", "converged"], ["Method 2", "–", "no descent"]],
                "As the paper's Table 1.",
            )
        ],
        charts=[
            report.Chart(
                learning_curves(curves(seeds, iterations)),
                "Objectives and angle.",
                "Both objectives fall.",
            )
        ],
    )
    grid = report.Section(
        "Grid",
        charts=[
            report.Chart(
                heatmaps(
                    GridComparison(
                        "train RMS", "N", paper["depths"], paper["widths"], ours, published
                    )
                ),
                "Train RMS.",
                "Worse with depth.",
            )
        ],
    )
    parts: dict[str, Any] = {
        "title": "Experiment & more",
        "lead": "A summary.",
        "sections": [learning, grid],
        "command": "greatcircle reproduce exp1 --seeds 40 --out 'runs/exp 1' && echo "
        + 30 * "long ",
        "facts": [("Python", "3.11"), ("Data", "`ground-effect`, " + 90 * "x")],
        "highlights": [report.Highlight("Train RMS", "0.836 N", "paper 0.837 N")],
    }
    return report.Report(**(parts | changes))


def model_page() -> report.Report:
    """Return a report with all charts of a fitted model; one name looks like HTML."""
    rng = np.random.default_rng(0)
    predictions = {
        name: Predictions(np.arange(30), rng.standard_normal((30, 3)), rng.standard_normal((30, 3)))
        for name in ("train", "test")
    }
    targets = ["fx", "<b>fy", "fz"]
    grid = np.linspace(np.zeros(5), np.ones(5), 7).T
    slices = Slices(tuple("abcde"), ("fx", "fy"), grid, rng.standard_normal((5, 7, 2)))
    bars = bound_bars({"before training": 800.0, "certified": 20.0, "lower": 12.0, "tight": 0.0})
    figures = {
        "predicted": charts.predicted(predictions, targets),
        "histograms": charts.histograms(predictions, targets),
        "residuals": charts.residuals(predictions, targets),
        "bars": charts.bars(bars, "unit of the inputs"),
        "slices": charts.slices(slices),
        "confusion": charts.confusion(Confusion(["a", "b"], np.array([[8, 1], [0, 5]]))),
    }
    drawn = [report.Chart(figure, name, name) for name, figure in figures.items()]
    return example_report(sections=[report.Section("Model", charts=drawn)])
