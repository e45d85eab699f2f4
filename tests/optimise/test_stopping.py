"""Stopping rules: thresholds, combinations, reasons."""

import pytest

from greatcircle.optimise.record import Record
from greatcircle.optimise.stopping import DecreaseBelow, LossBelow, MaxIter, SlopeBelow, since
from small import unless_types_are_checked


def record(loss=1.0, slope=-1.0, actual=0.1):
    return Record(1, loss, 0.1, slope, 1.0, 0.1, actual, 0, 1, 1, 1, 0, 0, 0.0)


def test_each_rule_fires_at_its_threshold_and_not_before():
    assert MaxIter(2).fired([record()]) is None
    assert MaxIter(2).fired([record()] * 2) == MaxIter(2)
    assert MaxIter(0).fired([]) == MaxIter(0)
    assert SlopeBelow(1e-3).fired([]) is None
    assert SlopeBelow(1e-3).fired([record(slope=-2e-3)]) is None
    assert SlopeBelow(1e-3).fired([record(slope=-1e-3)])
    assert DecreaseBelow(0.01, patience=3).fired([record(actual=0)] * 2) is None
    assert DecreaseBelow(0.01, patience=3).fired([record(actual=0.004)] * 3) is None
    assert DecreaseBelow(0.01, patience=3).fired([record(actual=0.003)] * 3)
    assert LossBelow(0.5).fired([record(loss=0.6)]) is None
    assert LossBelow(0.5).fired([record(loss=0.5)])


def test_rules_do_not_depend_on_the_unit_of_the_loss():
    for unit in (1e-12, 1e12):
        assert SlopeBelow(1e-3).fired([record(loss=unit, slope=-1e-4 * unit)])
        assert not SlopeBelow(1e-3).fired([record(loss=unit, slope=-1e-2 * unit)])


def test_joined_rules_return_the_one_that_fired():
    rule = MaxIter(5) | SlopeBelow(1e-3) | LossBelow(0.1)
    assert rule.fired([record()]) is None
    assert rule.fired([record(slope=-1e-9)]) == SlopeBelow(1e-3)
    assert rule.fired([record()] * 5) == MaxIter(5)


@pytest.mark.parametrize("swapped", [False, True])
def test_since_ignores_the_first_records_for_convergence_only(swapped):
    rules = [MaxIter(5), DecreaseBelow(0.01, patience=2)]
    both = rules[swapped] | rules[not swapped]
    rule, flat = since(both, 2), record(actual=0)
    assert both.fired([flat] * 2) == rules[1]
    assert rule.fired([flat] * 3) is None
    assert rule.fired([flat] * 4) == rules[1]
    assert rule.fired([record()] * 5) == rules[0]
    assert since(rules[1], 2).converged


def test_reaching_the_iteration_limit_is_not_convergence():
    assert not MaxIter(1).converged
    assert all(r.converged for r in (SlopeBelow(1), DecreaseBelow(1), LossBelow(1)))


@unless_types_are_checked
@pytest.mark.parametrize("iterations", [-1, 2.5])
def test_invalid_iterations_are_rejected(iterations):
    with pytest.raises(ValueError, match="max_iter is"):
        MaxIter(iterations)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (DecreaseBelow(0.002), "the loss fell by less than 0.2 % in 10 iterations"),
        (DecreaseBelow(0.05, 1), "the loss fell by less than 5 % in one iteration"),
        (MaxIter(200), "the limit of 200 iterations"),
        (SlopeBelow(1e-8), "the slope fell below 1e-06 % of the loss per radian"),
        (LossBelow(0.5), "the loss fell to 0.5"),
    ],
)
def test_reasons_are_in_words(rule, reason):
    assert rule.reason == reason
