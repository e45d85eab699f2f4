import numpy as np
import pytest

from greatcircle import Network, Problem
from greatcircle.data.rows import PIECE, pieces


def test_rows_are_checked_and_summed_piece_by_piece():
    rows = PIECE + 5
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((rows, 2)), rng.standard_normal((rows, 1))
    problem = Problem(Network((2, 3, 1)), X, Y)
    assert float(problem.unit) == pytest.approx(0.5 * np.mean(Y**2), rel=1e-6)
    square = np.mean(np.sum(X**2, axis=1))
    assert float(problem.mean_square_input) == pytest.approx(square, rel=1e-6)
    X[[7, PIECE + 2], 1] = np.nan
    with pytest.raises(ValueError, match="2 entries that are NaN or infinite, the first in row 7"):
        Problem(Network((2, 3, 1)), X, Y)
    X[7, 1] = 0
    with pytest.raises(ValueError, match=f"the first in row {PIECE + 2}, column 1"):
        Problem(Network((2, 3, 1)), X, Y)


@pytest.mark.parametrize("rows", [1, PIECE, PIECE + 1, 3 * PIECE])
def test_pieces_are_all_rows_once(rows):
    numbers = np.arange(rows)
    parts = [numbers[some] for some in pieces(rows)]
    np.testing.assert_array_equal(np.concatenate(parts), numbers)
    assert max(map(len, parts)) <= PIECE
