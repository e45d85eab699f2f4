"""Tables that figures and charts draw: shapes, histograms, scales, texts of cells."""

from dataclasses import replace

import numpy as np
import pytest

from greatcircle.figures.candidates import CandidateErrors, held_out_error
from greatcircle.figures.tables import GridComparison, Predictions, Slices, residual_histograms
from report_examples import candidates, curves


def test_learning_curves_of_the_wrong_shape_are_rejected() -> None:
    table = curves(3, 50)
    with pytest.raises(ValueError, match="one row for each seed"):
        replace(table, seeds=range(2))
    with pytest.raises(ValueError, match=r"expected \(3, 50\)"):
        replace(table, angle=table.train)


def test_histograms_share_their_bins_and_count_nearly_all_rows() -> None:
    rng = np.random.default_rng(0)
    predictions = {
        name: Predictions(np.arange(count), rng.standard_normal((count, 1)), np.zeros((count, 1)))
        for name, count in (("train", 900), ("test", 100))
    }
    shares = residual_histograms(predictions, 0)
    np.testing.assert_array_equal(shares["train"][0], shares["test"][0])
    for centres, share in shares.values():
        assert 0.95 < share.sum() <= 1
        assert share[0] == share[-1] == 0
        assert np.all(np.diff(centres) > 0)
    # Equal residuals still have bins.
    equal = {name: rows._replace(measured=rows.predicted) for name, rows in predictions.items()}
    assert residual_histograms(equal, 0)["test"][1].max() == 1


def test_the_most_important_inputs_keep_their_order() -> None:
    change = np.array([1.0, 5.0, 0.1, 3.0])
    values = change[:, None, None] * np.linspace(0, 1, 7)[:, None]
    table = Slices(tuple("abcd"), ("y",), np.zeros((4, 7)), values)
    chosen = table.most_important(2, 1)
    assert chosen.inputs == ("b", "d")
    np.testing.assert_array_equal(chosen.values, values[[1, 3]])


def test_grids_that_cannot_be_compared_are_rejected() -> None:
    cells = np.array([[1.0, 2.0]])
    grid = GridComparison("time", "s", [4], [15, 20], cells, cells, log=True)
    with pytest.raises(ValueError, match="no logarithm"):
        replace(grid, ours=0 * cells)
    with pytest.raises(ValueError, match=r"expected \(1, 2\) for both"):
        replace(grid, paper=cells.T)


def test_cells_have_fewer_decimals_for_large_values_and_differences_a_sign() -> None:
    ours, paper = np.array([[0.9, np.nan]]), np.array([[0.8, 0.4]])
    grid = GridComparison("RMS", "N", [4], [15, 20], ours, paper)
    assert grid.texts("ours") == [["0.900", ""]]
    assert grid.texts("ours − paper") == [["+0.100", ""]]
    large = replace(grid, ours=100 * ours, paper=100 * paper)
    assert large.texts("paper") == [["80.00", "40.00"]]


def test_the_squared_loss_is_shown_as_root_mean_square() -> None:
    """By comparison with residuals of known size, and with differences of the square root."""
    residuals = np.random.default_rng(0).standard_normal((50, 3))
    loss = 0.5 * np.mean(np.sum(residuals**2, axis=1))
    table = candidates(held_out_loss=np.full(6, loss), standard_error=np.full(6, 1e-6))
    error, standard_error = held_out_error(table, squared=True)
    np.testing.assert_allclose(error, np.sqrt(np.mean(np.sum(residuals**2, axis=1))))
    difference = np.sqrt(2 * (loss + 1e-6)) - np.sqrt(2 * loss)
    np.testing.assert_allclose(standard_error, difference, rtol=1e-4)
    assert held_out_error(table, squared=False)[0][0] == loss
    exact = candidates(held_out_loss=np.zeros(6))
    assert np.all(held_out_error(exact, squared=True)[1] == 0)


def test_candidates_are_grouped_by_shape_and_ordered_by_target_gain() -> None:
    errors = CandidateErrors.of(candidates(), "loss", squared=False)
    assert [series.layers for series in errors.series] == ["8-8", "16-16"]  # (8,) has no error
    narrow, wide = errors.series
    np.testing.assert_array_equal(narrow.gain, [3, 10, 30])
    np.testing.assert_array_equal(narrow.error, [0.5, 0.38, 0.32])
    np.testing.assert_array_equal(narrow.chosen, [False, False, True])
    np.testing.assert_array_equal(wide.comparable, [True, False])
    assert len({series.colour for series in errors.series}) == 2
    assert errors.by_gain
    assert not errors.log
    automatic = candidates(target_gain=np.full(6, np.nan))
    assert not CandidateErrors.of(automatic, "loss", squared=False).by_gain
    far = candidates(held_out_loss=np.array([0.5, 0.3, 9.0, 0.3, 0.3, 0.3]))
    assert CandidateErrors.of(far, "loss", squared=False).log
