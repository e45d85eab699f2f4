"""Training and test parts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greatcircle.data.split import SPLITS, split


@given(st.integers(2, 300), st.floats(0.01, 0.99), st.sampled_from(SPLITS), st.integers(0, 9))
def test_every_row_is_in_one_part(count, fraction, kind, seed):
    train, test = split(count, fraction=fraction, kind=kind, seed=seed)
    assert len(train) > 0
    assert len(test) > 0
    assert sorted([*train, *test]) == list(range(count))
    assert abs(len(test) - fraction * count) <= 1
    if kind == "time":
        assert train.max() < test.min()


@given(st.lists(st.integers(2, 40), min_size=2, max_size=6), st.floats(0.05, 0.45))
def test_labels_are_in_both_parts_in_proportion(sizes, fraction):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    train, test = split(len(labels), fraction=fraction, strata=labels)
    assert len(np.unique(labels[train])) == len(sizes)
    for label, size in enumerate(sizes):
        assert abs(np.sum(labels[test] == label) - fraction * size) <= len(sizes)


def test_wrong_arguments():
    for arguments, message in (
        ({"count": 1}, "1 row cannot be split"),
        ({"count": 9, "fraction": 1.0}, "test fraction is 1"),
        ({"count": 9, "kind": "odd"}, "split is 'odd'; expected one of random, time"),
    ):
        with pytest.raises(ValueError, match=message):
            split(**arguments)
