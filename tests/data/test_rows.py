"""Chunks and samples of rows."""

import numpy as np
import pytest

from greatcircle import Network, Problem
from greatcircle.data.rows import CHUNK, SAMPLE, chunks, sample_rows


def test_rows_are_checked_and_summed_in_chunks():
    rows = CHUNK + 5
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((rows, 2)), rng.standard_normal((rows, 1))
    problem = Problem(Network((2, 3, 1)), X, Y)
    assert float(problem.unit) == pytest.approx(0.5 * np.mean(Y**2), rel=1e-6)
    square = np.mean(np.sum(X**2, axis=1))
    assert float(problem.mean_square_input) == pytest.approx(square, rel=1e-6)
    X[[7, CHUNK + 2], 1] = np.nan
    with pytest.raises(ValueError, match="2 entries that are NaN or infinite, the first in row 7"):
        Problem(Network((2, 3, 1)), X, Y)
    X[7, 1] = 0
    with pytest.raises(ValueError, match=f"the first in row {CHUNK + 2}, column 1"):
        Problem(Network((2, 3, 1)), X, Y)


@pytest.mark.parametrize("rows", [1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_chunks_cover_all_rows_once(rows):
    numbers = np.arange(rows)
    parts = [numbers[some] for some in chunks(rows)]
    np.testing.assert_array_equal(np.concatenate(parts), numbers)
    assert max(map(len, parts)) <= CHUNK


def test_a_sample_has_no_rows_of_weight_zero():
    few = np.full(SAMPLE, 1 / SAMPLE)
    assert sample_rows(few) == (slice(None), few)
    weight = np.arange(2 * SAMPLE) % 2 / SAMPLE
    rows, sampled = sample_rows(weight)
    assert len(rows) == len(sampled) == SAMPLE
    assert np.all(rows % 2 == 1)
    assert np.all(np.diff(rows) >= 0)
    assert sampled.sum() == pytest.approx(1)
    rows, _ = sample_rows(np.full(2 * SAMPLE, 0.5 / SAMPLE))
    assert len(np.unique(rows)) == SAMPLE  # equal weights: no row twice
