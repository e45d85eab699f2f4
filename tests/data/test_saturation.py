"""Saturation: intervals of the training rows, and clipping as a 1-Lipschitz function."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greatcircle.data.saturation import KINDS, UNSATURATED, WIDENING, Saturation

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((50, 3)), RNG.standard_normal((50, 2))


@given(st.integers(0, 10**6))
def test_clipping_moves_no_two_rows_apart(seed):
    rng = np.random.default_rng(seed)
    found = Saturation.fit("both", X, Y)
    a, b = 10 ** rng.uniform(-2, 3) * rng.standard_normal((2, 100, 3))
    weight = 10 ** rng.uniform(-3, 3, 3)
    moved, distance = found.inputs(a) - found.inputs(b), a - b
    assert np.all(np.abs(moved) <= np.abs(distance))
    for order in (1, 2, np.inf):
        before = np.linalg.norm(weight * distance, order, axis=1)
        assert np.all(np.linalg.norm(weight * moved, order, axis=1) <= before)


@pytest.mark.parametrize("kind", [False, *KINDS])
def test_the_kind_decides_what_is_clipped(kind):
    found = Saturation.fit(kind, X, Y)
    assert found.kind == kind
    assert found.clips_inputs == (kind in ("inputs", "both"))
    assert found.clips_outputs == (kind in ("outputs", "both"))
    assert np.array_equal(found.inputs(X), X)  # the training rows are inside
    assert np.array_equal(found.outputs(Y), Y)
    assert np.array_equal(found.inputs(9 * X), np.clip(9 * X, *found_or_all(found, "")))
    assert np.array_equal(found.outputs(9 * Y), np.clip(9 * Y, *found_or_all(found, "output_")))
    assert np.isnan(found.inputs(np.full((1, 3), np.nan))).all()
    assert np.isnan(found.outputs(np.full((1, 2), np.nan))).all()
    assert str(found)


def found_or_all(found, kind):
    ends = (getattr(found, f"{kind}{end}") for end in ("lower", "upper"))
    return [default if e is None else e for e, default in zip(ends, (-np.inf, np.inf), strict=True)]


def test_ranges_of_the_targets_are_widened_and_those_of_the_inputs_are_not():
    found = Saturation.fit("both", X, Y)
    assert np.array_equal([found.lower, found.upper], [X.min(0), X.max(0)])
    widening = WIDENING * (Y.max(0) - Y.min(0))
    assert found.output_lower == pytest.approx(Y.min(0) - widening)
    assert found.output_upper == pytest.approx(Y.max(0) + widening)
    constant = Saturation.fit("both", X[:, :1] * 0 + 0.1, Y[:, :1] * 0 + 0.3)
    assert constant.lower == constant.upper == 0.1
    assert constant.output_lower == constant.output_upper == 0.3


def test_rows_of_weight_zero_do_not_count_and_repeated_rows_change_nothing():
    weight = np.arange(50) % 3 * 1.0
    found = Saturation.fit("both", X, Y, weight)
    others = Saturation.fit("both", X[weight > 0], Y[weight > 0])
    repeated = Saturation.fit("both", *(np.repeat(v[weight > 0], 4, axis=0) for v in (X, Y)))
    for name, ends in vars(found).items():
        assert np.array_equal(ends, getattr(others, name))
        assert np.array_equal(ends, getattr(repeated, name))
    assert np.any(found.upper < X.max(axis=0))


def test_unions_contain_both_where_both_are_clipped():
    a, b = Saturation.fit("both", X[:20], Y[:20]), Saturation.fit("both", X[20:], Y[20:])
    whole = Saturation.fit("inputs", X, Y)
    assert np.array_equal(a.union(b).lower, whole.lower)
    assert np.array_equal(b.union(a).upper, whole.upper)
    assert np.all(a.union(b).output_lower <= np.minimum(a.output_lower, b.output_lower))
    assert a.union(UNSATURATED).lower is a.lower
    assert UNSATURATED.union(a).kind is False


def test_derivatives_of_clipped_numbers_are_zero():
    found = Saturation(np.zeros(2), np.array([1.0, 0.0]), np.zeros(1), np.ones(1))
    J = np.full((1, 1, 2), np.inf)
    for x, y, expected in (
        ([0.5, 0.0], 0.5, [np.inf, 0.0]),  # an interval of one number has no inside
        ([0.0, 5.0], 1.0, [np.inf, 0.0]),  # at an end, those of the inside
        ([1.5, 0.0], 0.5, [0.0, 0.0]),
        ([0.5, 0.0], 1.5, [0.0, 0.0]),
        ([np.nan, 0.0], 0.5, [0.0, 0.0]),
    ):
        assert found.chained(J, np.array([x]), np.array([[y]]))[0, 0].tolist() == expected
    assert UNSATURATED.chained(J, X[:1, :2], Y[:1, :1]) is J
