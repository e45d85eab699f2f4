"""Parts to hold out: by content, by groups, in time order, stratified, and as given."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold

from greatcircle.data import folds
from greatcircle.data.folds import check_cv, checked_groups, distinct_rows, held_out_parts
from greatcircle.data.rows import Rows


def rows(count, seed=0, targets=1):
    rng = np.random.default_rng(seed)
    return Rows(rng.standard_normal((count, 3)), rng.standard_normal((count, targets)))


def assert_partition(parts, count):
    """Every row is held out once, and trained on in all other parts."""
    held_out = np.concatenate([part.held_out for part in parts])
    np.testing.assert_array_equal(np.sort(held_out), np.arange(count))
    for part in parts:
        together = np.concatenate([part.training, part.held_out])
        np.testing.assert_array_equal(np.sort(together), np.arange(count))


@given(st.integers(10, 200), st.integers(2, 5), st.integers(0, 2**31 - 1))
def test_folds_are_a_partition_of_equal_parts(count, number, seed):
    parts = held_out_parts(rows(count, seed), number, seed)
    assert len(parts) == number
    assert_partition(parts, count)
    sizes = [len(part.held_out) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_duplicates_are_in_one_fold_and_the_order_does_not_matter():
    once = rows(50)
    order = np.random.default_rng(1).permutation(np.tile(np.arange(50), 3))
    parts = held_out_parts(once.take(order), "auto", 7)
    for part, of_once in zip(parts, held_out_parts(once, "auto", 7), strict=True):
        assert not {*order[part.held_out]} & {*order[part.training]}
        assert {*order[part.held_out]} == {*of_once.held_out}


def test_the_seed_decides():
    first, same, other = (
        [part.held_out.tolist() for part in held_out_parts(rows(100), "auto", seed)]
        for seed in (0, 0, 1)
    )
    assert first == same != other


def test_weights_do_not_matter_and_a_negative_zero_is_a_zero():
    plain = rows(60)
    weighted = Rows(plain.inputs, plain.targets, np.arange(60.0))
    for one, two in zip(held_out_parts(plain, 5, 3), held_out_parts(weighted, 5, 3), strict=True):
        np.testing.assert_array_equal(one.held_out, two.held_out)
    zeros = Rows(np.array([[0.0], [-0.0]]), np.array([[1.0], [1.0]]))
    assert len(set(distinct_rows(zeros))) == 1


def test_many_rows_have_one_part(monkeypatch):
    monkeypatch.setattr(folds, "FOLD_ROWS", 40)
    (part,) = held_out_parts(rows(50), "auto", 0)
    assert (len(part.training), len(part.held_out)) == (40, 10)
    assert len(held_out_parts(rows(50), 5, 0)) == 5


def test_classes_have_equal_fractions_in_all_folds():
    labels = np.repeat([0.0, 1.0, 2.0], [50, 25, 10])[:, None]
    data = rows(85)
    for part in held_out_parts(data, "auto", 0, strata=labels):
        counts = np.bincount(labels[part.held_out, 0].astype(int), minlength=3)
        np.testing.assert_allclose(counts, [10, 5, 2], atol=1)


def test_groups_are_held_out_as_a_whole():
    groups = np.repeat(list("abcdefghijkl"), 6)
    for part in held_out_parts(rows(72), 4, 0, groups=groups):
        assert not {*groups[part.held_out]} & {*groups[part.training]}
    with pytest.raises(ValueError, match=r"groups has shape \(3,\)"):
        checked_groups([1, 2, 3], 72)
    with pytest.raises(ValueError, match="use one of them"):
        held_out_parts(rows(72), "time", 0, groups=groups)


def test_in_time_order_training_rows_come_first(monkeypatch):
    for part in held_out_parts(rows(60), "time", 0):
        assert part.training.max() < part.held_out.min()
    monkeypatch.setattr(folds, "FOLD_ROWS", 50)
    (last,) = held_out_parts(rows(60), "time", 0)
    np.testing.assert_array_equal(last.held_out, np.arange(48, 60))


def test_too_few_distinct_rows_have_no_parts():
    assert held_out_parts(rows(9), "auto", 0) == []
    assert held_out_parts(rows(4).take(np.tile(np.arange(4), 20)), "auto", 0) == []
    assert held_out_parts(rows(9), "time", 0) == []


def test_a_splitter_or_pairs_are_used_as_given():
    data = rows(30)
    splitter = KFold(3, shuffle=True, random_state=0)
    expected = list(splitter.split(data.inputs))
    for given_cv in (splitter, expected, iter(expected)):
        for part, pair in zip(held_out_parts(data, given_cv, 0), expected, strict=True):
            np.testing.assert_array_equal(part.training, pair[0])
            np.testing.assert_array_equal(part.held_out, pair[1])
    groups = np.repeat(np.arange(6), 5)
    for part in held_out_parts(data, GroupKFold(3), 0, groups=groups):
        assert not {*groups[part.held_out]} & {*groups[part.training]}
    masks = [(np.arange(30) < 20, np.arange(30) >= 20)]
    np.testing.assert_array_equal(held_out_parts(data, masks, 0)[0].held_out, np.arange(20, 30))


def test_pairs_name_rows_of_the_data_whichever_are_used():
    pairs = [(np.arange(20), np.arange(20, 30)), (np.arange(10, 30), np.arange(10))]
    counted = np.arange(1, 30, 2)
    for part, pair in zip(held_out_parts(rows(30), pairs, 0, counted=counted), pairs, strict=True):
        for positions, numbers in zip(part, pair, strict=True):
            np.testing.assert_array_equal(counted[positions], numbers[numbers % 2 == 1])


def test_a_splitter_by_label_gets_labels():
    labels = np.eye(3)[np.repeat([0, 1, 2], 10)]
    for part in held_out_parts(rows(30), StratifiedKFold(5), 0, strata=labels):
        np.testing.assert_array_equal(labels[part.held_out].sum(axis=0), [2, 2, 2])


@pytest.mark.parametrize("wrong", ["random", 1, 1.5, True, None])
def test_a_wrong_cv_is_named(wrong):
    with pytest.raises(ValueError, match="cv is"):
        check_cv(wrong)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([([0, 1], [])], "part without rows"),
        ([([0, 1], [30])], "numbers of rows, from 0 to 29"),
        ([([0, 1], [-1])], "numbers of rows, from 0 to 29"),
        ([(np.ones(29, bool), [0])], "numbers of rows, from 0 to 29"),
        (iter([]), "cv has no parts"),
    ],
)
def test_wrong_pairs_are_named(pairs, message):
    with pytest.raises(ValueError, match=message):
        held_out_parts(rows(30), pairs, 0)
