"""Interactive charts: what they draw, and their menus."""

from dataclasses import replace
from typing import Any

import numpy as np

from greatcircle.figures.candidates import CandidateErrors
from greatcircle.figures.tables import GridComparison
from greatcircle.report.charts.heatmaps import heatmaps
from greatcircle.report.charts.learning_curves import learning_curves
from greatcircle.report.charts.selection import selection
from report_examples import candidates, curves, model_page


def shown(figure: Any, choice: int) -> list[Any]:
    button = figure.layout.updatemenus[0].buttons[choice]
    return [t for t, seen in zip(figure.data, button.args[0]["visible"], strict=True) if seen]


def test_learning_curves_show_means_bands_and_seeds() -> None:
    table: Any = replace(curves(4, 50), seeds=[3, 5, 8, 9])
    figure: Any = learning_curves(table)
    drawn = (table.train, table.test, table.angle)
    means = [t for t in shown(figure, 0) if t.fill is None]
    for trace, rows in zip(means, drawn, strict=True):
        np.testing.assert_allclose(trace.y, rows.mean(axis=0), rtol=1e-6)
        np.testing.assert_allclose(trace.customdata, rows.std(axis=0), rtol=1e-5)
    assert len(shown(figure, 0)) == 6
    assert len(shown(figure, 1)) == 12
    assert figure.layout.updatemenus[0].buttons[3].label == "seed 5"
    for trace, rows in zip(shown(figure, 3), drawn, strict=True):
        np.testing.assert_allclose(trace.y, rows[1], rtol=1e-6)
    # The first view is what the figure shows before anyone chooses.
    assert shown(figure, 0) == [t for t in figure.data if t.visible is not False]
    assert figure.layout.yaxis.type == figure.layout.yaxis2.type == "log"
    assert min(min(t.y) for t in figure.data) > 0


def test_one_seed_has_no_band_and_no_menu() -> None:
    figure: Any = learning_curves(replace(curves(1, 50), seeds=[7]))
    assert len(figure.data) == 3
    assert not figure.layout.updatemenus
    assert all(trace.visible for trace in figure.data)


def test_runs_that_ended_early_leave_the_mean_to_the_others() -> None:
    table: Any = curves(3, 50)
    for rows in (table.train, table.test, table.angle):
        rows[1, 20:] = np.nan
        rows[:, 45:] = np.nan
    mean = shown(learning_curves(table), 0)[1]
    assert len(mean.x) == 45
    np.testing.assert_allclose(mean.y[30], table.train[[0, 2], 30].mean(), rtol=1e-6)


def test_long_runs_are_thinned_and_the_menu_says_so() -> None:
    figure: Any = learning_curves(curves(3, 3000))
    seed, _, angle = shown(figure, 2)
    assert len(seed.x) <= 302
    assert (seed.x[0], seed.x[-1]) == (0, 3000)
    assert list(angle.x) == list(seed.x[1:])  # so that one place shows all three
    assert figure.layout.updatemenus[0].buttons[2].label == "seed 0 (every 10th iteration)"


def test_heatmaps_share_one_scale_and_centre_the_difference() -> None:
    ours, paper = np.array([[0.9, 0.5], [np.nan, 0.7]]), np.array([[0.8, 0.6], [0.4, 0.7]])
    figure: Any = heatmaps(GridComparison("RMS", "N", [4, 6], [15, 20], ours, paper))
    assert [trace.name for trace in figure.data] == ["ours", "paper", "ours − paper"]
    assert [trace.coloraxis for trace in figure.data] == ["coloraxis", "coloraxis", "coloraxis2"]
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (0.4, 0.9)
    assert figure.layout.coloraxis2.cmin == -figure.layout.coloraxis2.cmax
    written = [list(row) for row in figure.data[2].text]
    assert written == [["+0.100", "−0.100"], ["", "0.000"]]


def test_heatmaps_colour_by_logarithm_but_write_the_values() -> None:
    ours, paper = np.array([[1.0, 2.0]]), np.array([[100.0, 400.0]])
    figure: Any = heatmaps(GridComparison("time", "s", [4], [15, 20], ours, paper, log=True))
    np.testing.assert_allclose(figure.data[1].z, np.log10(paper))
    assert list(figure.data[1].text[0]) == ["100.0", "400.0"]


def test_heatmaps_without_any_result_yet_are_drawn() -> None:
    empty = np.full((1, 2), np.nan)
    figure: Any = heatmaps(GridComparison("time", "s", [4], [15, 20], empty, empty, log=True))
    assert len(figure.data) == 3


def test_menus_of_panels_show_one_view_at_a_time() -> None:
    charts = model_page().sections[0].charts
    for chart in (charts[2], charts[4]):
        figure: Any = chart.figure
        buttons = figure.layout.updatemenus[0].buttons
        visible = np.array([button.args[0]["visible"] for button in buttons])
        assert np.all(visible.sum(axis=0) == 1)
        assert [t.visible for t in figure.data] == visible[0].tolist()


def test_the_selection_has_error_bars_a_ring_and_hollow_markers() -> None:
    errors = CandidateErrors.of(candidates(), "held-out loss [unit]", squared=False)
    figure: Any = selection(errors)
    narrow, wide, fewer, ring = figure.data
    first = np.array([True, False])
    for trace, series in ((narrow, errors.series[0]), (wide, errors.series[1].where(first))):
        assert trace.mode == "lines+markers"
        np.testing.assert_array_equal(trace.x, series.gain)
        np.testing.assert_array_equal(trace.y, series.error)
        np.testing.assert_array_equal(trace.error_y.array, series.standard_error)
    assert (fewer.mode, fewer.marker.symbol) == ("markers", f"{wide.marker.symbol}-open")
    assert (fewer.legendgroup, fewer.showlegend) == (wide.name, False)
    assert (list(ring.x), list(ring.y), ring.name) == ([30], [0.32], "chosen")
    assert figure.layout.xaxis.type == "log"
    assert figure.layout.yaxis.title.text == "held-out loss [unit]"


def test_without_target_gains_the_shapes_are_on_the_horizontal_axis() -> None:
    table = candidates(target_gain=np.full(6, np.nan))
    figure: Any = selection(CandidateErrors.of(table, "loss [unit]", squared=False))
    assert [set(trace.x) for trace in figure.data] == [{"8-8"}, {"16-16"}, {"16-16"}, {"8-8"}]
    assert figure.layout.xaxis.title.text == "units of the hidden layers"
