"""Matplotlib figures: drawn from the same tables as the charts, encoded as PNG and PDF."""

from typing import Any

import numpy as np
import pytest

from greatcircle.figures import model
from greatcircle.figures.candidates import CandidateErrors
from greatcircle.figures.files import encode, save
from greatcircle.figures.heatmaps import heatmaps
from greatcircle.figures.learning_curves import learning_curves
from greatcircle.figures.selection import selection
from greatcircle.figures.tables import Confusion, GridComparison
from report_examples import candidates, curves


def test_learning_curves_show_means_and_bands():
    table: Any = curves(4, 50)
    left, right = learning_curves([table]).axes
    for axes, rows_of_axes in ((left, (table.train, table.test)), (right, (table.angle,))):
        assert axes.get_yscale() == "log"
        assert len(axes.collections) == len(rows_of_axes)  # the bands
        for line, rows in zip(axes.get_lines(), rows_of_axes, strict=True):
            np.testing.assert_allclose(np.asarray(line.get_ydata()), rows.mean(axis=0))


@pytest.mark.parametrize("log", [False, True])
def test_heatmaps_write_the_texts_of_the_table(log):
    ours, paper = np.array([[1.0, np.nan]]), np.array([[2.0, 40.0]])
    grid = GridComparison("time", "s", [4], [15, 20], ours, paper, log=log)
    panels = heatmaps([grid]).axes[:3]
    for axes, title in zip(panels, grid.panels, strict=True):
        assert [text.get_text() for text in axes.texts] == grid.texts(title)[0]


def test_a_grid_without_results_and_a_constant_network_are_drawn():
    empty = np.full((1, 2), np.nan)
    figure = heatmaps([GridComparison("time", "s", [4], [15, 20], empty, empty, log=True)])
    assert encode(figure)[".png"].startswith(b"\x89PNG")
    texts = [text.get_text() for text in model.bars([], "unit").axes[0].texts]
    assert texts == ["The network is constant: every bound is 0."]


@pytest.mark.parametrize("gains", [None, np.full(6, np.nan), np.logspace(0, 0.1, 6)])
def test_the_selection_is_drawn_with_error_bars_and_a_ring(gains):
    table = candidates() if gains is None else candidates(target_gain=gains)
    errors = CandidateErrors.of(table, "held-out loss [unit]", squared=False)
    figure = selection(errors)
    axes = figure.axes[0]
    assert axes.get_ylabel() == "held-out loss [unit]"
    assert axes.get_xscale() == ("log" if errors.by_gain else "linear")
    assert len(axes.containers) == 3  # 8-8, 16-16, and 16-16 on fewer parts
    hollow = axes.containers[2][0]
    assert hollow.get_markerfacecolor() == "none"
    assert hollow.get_linestyle() == "None"
    ring = axes.get_lines()[-1]
    np.testing.assert_array_equal(np.asarray(ring.get_ydata()), [0.32])
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["8-8", "16-16", "chosen"]
    assert encode(figure)[".png"].startswith(b"\x89PNG")


def test_names_with_dollars_are_no_formula(tmp_path):
    table = Confusion(["$a", "b$_{"], np.array([[1, 0], [0, 2]]))
    paths = save(model.confusion(table), tmp_path / "confusion")
    assert [path.suffix for path in paths] == [".png", ".pdf"]
    assert all(path.stat().st_size > 1000 for path in paths)


def test_the_same_figure_gives_the_same_files():
    first, second = (encode(learning_curves([curves(2, 20)])) for _ in range(2))
    assert first == second
