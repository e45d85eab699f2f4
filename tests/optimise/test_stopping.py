"""Stopping rules: thresholds, combinations, reasons, and the same inside compiled programs."""

import operator
from functools import reduce
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greatcircle import Network, Problem, descend
from greatcircle._runtime.precision import precision
from greatcircle.optimise.record import Record
from greatcircle.optimise.stopping import (
    DecreaseBelow,
    FirstOf,
    LossBelow,
    MaxIter,
    Rule,
    SlopeBelow,
    fired_rule,
    limits,
    restart,
)
from small import unless_types_are_checked


def record(loss=1.0, slope=-1.0, actual=0.1):
    return Record(1, loss, 0.1, slope, 1.0, 0.1, actual, 0, 1, 1, 1, 0, 0, 0.0)


def state_after(rule, records, state=None):
    """Return the state of a rule after records."""
    return reduce(rule.update, records, rule.init() if state is None else state)


def fired(rule, records):
    """Return the rule that fired after records, or None."""
    return fired_rule(rule, state_after(rule, records))


RULES = [MaxIter(2), SlopeBelow(1e-3), DecreaseBelow(0.01, patience=3), LossBelow(0.5)]


def test_each_rule_fires_at_its_threshold_and_not_before():
    assert fired(MaxIter(2), [record()]) is None
    assert fired(MaxIter(2), [record()] * 2) == MaxIter(2)
    assert fired(MaxIter(0), []) == MaxIter(0)
    assert fired(SlopeBelow(1e-3), []) is None
    assert fired(SlopeBelow(1e-3), [record(slope=-2e-3)]) is None
    assert fired(SlopeBelow(1e-3), [record(slope=-1e-3)])
    assert fired(DecreaseBelow(0.01, patience=3), []) is None
    assert fired(DecreaseBelow(0.01, patience=3), [record(actual=0)] * 2) is None
    assert fired(DecreaseBelow(0.01, patience=3), [record(actual=0.004)] * 3) is None
    assert fired(DecreaseBelow(0.01, patience=3), [record(actual=0.003)] * 3)
    assert fired(LossBelow(0.5), []) is None
    assert fired(LossBelow(0.5), [record(loss=0.6)]) is None
    assert fired(LossBelow(0.5), [record(loss=0.5)])


def test_only_the_last_iterations_count():
    small, large = record(loss=0.1, slope=-1e-9, actual=0), record()
    for rule in (SlopeBelow(1e-3), LossBelow(0.5), DecreaseBelow(0.01, patience=3)):
        assert fired(rule, [small] * 5)
        assert fired(rule, [small] * 5 + [large]) is None
        assert fired(rule, [large] * 5 + [small] * 3)
    assert fired(MaxIter(5), [large] * 4 + [small])


def test_rules_do_not_depend_on_the_unit_of_the_loss():
    for unit in (1e-12, 1e12):
        assert fired(SlopeBelow(1e-3), [record(loss=unit, slope=-1e-4 * unit)])
        assert not fired(SlopeBelow(1e-3), [record(loss=unit, slope=-1e-2 * unit)])
        assert fired(DecreaseBelow(0.01, 2), [record(loss=unit, actual=4e-3 * unit)] * 2)
        assert not fired(DecreaseBelow(0.01, 2), [record(loss=unit, actual=6e-3 * unit)] * 2)


def test_numbers_that_are_not_finite_never_mean_convergence():
    nan = record(loss=np.nan, slope=np.nan, actual=np.nan)
    for rule in (SlopeBelow(1e-3), LossBelow(0.5), DecreaseBelow(0.01, patience=3)):
        assert fired(rule, [nan] * 5) is None


def test_joined_rules_return_the_one_that_fired():
    rule = MaxIter(5) | SlopeBelow(1e-3) | LossBelow(0.1)
    assert fired(rule, [record()]) is None
    assert fired(rule, [record(slope=-1e-9)]) == SlopeBelow(1e-3)
    assert fired(rule, [record()] * 5) == MaxIter(5)


def test_of_several_rules_that_fired_the_first_is_returned():
    both = [MaxIter(1), LossBelow(2.0)]
    for first, second in permutations(both):
        assert fired(first | second, [record()]) == first


def test_joined_rules_are_one_flat_list():
    a, b, c, d = RULES
    expected = FirstOf((a, b, c, d))
    for joined in (a | b | c | d, a | (b | (c | d)), (a | b) | (c | d)):
        assert isinstance(joined, FirstOf)
        assert joined.rules == (a, b, c, d)
        assert joined == expected
    nested = FirstOf((FirstOf((a, b)), FirstOf((c, d))))
    assert (nested | a).rules == (a, b, c, d, a)
    assert fired(nested, [record(loss=0.4)]) == d
    with pytest.raises(TypeError):
        operator.or_(a, 200)


def test_no_rules_never_fire():
    assert fired(FirstOf(()), [record(loss=0.0, slope=0.0, actual=0.0)] * 20) is None


@pytest.mark.parametrize("swapped", [False, True])
def test_restart_forgets_earlier_records_for_convergence_only(swapped):
    rules = [MaxIter(5), DecreaseBelow(0.01, patience=2)]
    both, flat = rules[swapped] | rules[not swapped], record(actual=0)
    state = state_after(both, [flat] * 2)
    assert fired_rule(both, state) == rules[1]
    state = restart(both, state)
    assert fired_rule(both, state) is None
    assert fired_rule(both, state_after(both, [flat], state)) is None
    assert fired_rule(both, state_after(both, [flat] * 2, state)) == rules[1]
    assert fired_rule(both, state_after(both, [record()] * 2, state)) is None
    assert fired_rule(both, state_after(both, [record()] * 3, state)) == rules[0]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_restart_of_a_single_rule(rule):
    state = state_after(rule, [record(loss=0.1, slope=0.0, actual=0.0)] * 3)
    assert fired_rule(rule, state) == rule
    assert fired_rule(rule, restart(rule, state)) == (None if rule.converged else rule)


def test_limits_are_the_rules_that_do_not_mean_convergence():
    rule = SlopeBelow(1e-3) | MaxIter(5) | (LossBelow(0.1) | MaxIter(7))
    assert limits(rule) == FirstOf((MaxIter(5), MaxIter(7)))
    assert limits(MaxIter(5)) == FirstOf((MaxIter(5),))
    assert limits(DecreaseBelow(0.1)) == FirstOf(())


def test_reaching_the_iteration_limit_is_not_convergence():
    assert not MaxIter(1).converged
    assert all(r.converged for r in (SlopeBelow(1), DecreaseBelow(1), LossBelow(1)))


NUMBERS = st.sampled_from([0.0, 1e-6, 1e-3, 0.01, 0.1, 1.0])


@given(
    records=st.lists(
        st.builds(lambda a, b, c: record(loss=a, slope=-b, actual=c), NUMBERS, NUMBERS, NUMBERS),
        max_size=8,
    ),
    tolerance=NUMBERS,
    patience=st.integers(1, 4),
    most=st.integers(0, 8),
)
def test_rules_are_what_they_say(records, tolerance, patience, most):
    """Every rule against its definition, on the whole list of records."""
    with precision(np.float64):
        last = records[-1] if records else None
        assert bool(fired(MaxIter(most), records)) == (len(records) >= most)
        assert bool(fired(SlopeBelow(tolerance), records)) == (
            last is not None and -last.slope <= tolerance * last.loss
        )
        assert bool(fired(LossBelow(tolerance), records)) == (
            last is not None and last.loss <= tolerance
        )
        gained, allowed = sum(r.actual for r in records[-patience:]), None
        if last is not None:
            allowed = tolerance * last.loss
        if allowed is None or abs(gained - allowed) > 1e-12:
            assert bool(fired(DecreaseBelow(tolerance, patience), records)) == (
                len(records) >= patience and gained <= allowed
            )


def folded(rule, losses, slopes, decreases):
    """Return whether a rule has fired after each record, by a scan."""

    def step(state, values):
        loss, slope, actual = values
        state = rule.update(state, record(loss, slope, actual))
        return state, rule.fired(state)

    return jax.lax.scan(step, rule.init(), (losses, slopes, decreases))[1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rule", [*RULES, reduce(operator.or_, RULES)], ids=str)
def test_rules_are_the_same_inside_a_compiled_program(rule, dtype):
    rng = np.random.default_rng(0)
    losses, decreases = rng.uniform(0.3, 1, 20), rng.choice([0, 0.002, 0.1], 20)
    slopes = -rng.choice([1e-4, 1e-2], 20)
    with precision(dtype):
        columns = [jnp.asarray(values, dtype) for values in (losses, slopes, decreases)]
        compiled = np.asarray(jax.jit(folded)(rule, *columns))
        records = [record(*values) for values in zip(*map(np.asarray, columns), strict=True)]
        python = [fired(rule, records[: i + 1]) is not None for i in range(20)]
    assert compiled.tolist() == python
    assert any(python)


@pytest.mark.parametrize(
    ("rule", "others"),
    [
        (MaxIter(3), [MaxIter(0), MaxIter(10**12), MaxIter(np.int64(7))]),
        (SlopeBelow(1e-3), [SlopeBelow(0.0), SlopeBelow(0.5)]),
        (DecreaseBelow(0.01, 3), [DecreaseBelow(0.0, 3), DecreaseBelow(0.5, 3)]),
        (LossBelow(0.5), [LossBelow(0.0), LossBelow(7.0)]),
        (MaxIter(3) | SlopeBelow(1e-3), [MaxIter(9) | SlopeBelow(0.1)]),
    ],
    ids=str,
)
def test_other_numbers_compile_nothing(rule, others):
    traces = []

    @jax.jit
    def compiled(rule, values):
        traces.append(1)
        return folded(rule, values, -values, values)

    for each in (rule, *others):
        compiled(each, jnp.ones(4))
    assert len(traces) == 1


def test_a_rule_of_the_user_is_joined_and_stops_a_run():
    class AngleBelow(Rule):
        angle: float

        def init(self):
            return jnp.asarray(False)

        def update(self, state, record):
            return jnp.asarray(record.angle < self.angle)

        def fired(self, state):
            return state

        @property
        def reason(self):
            return f"the angle fell below {self.angle:g}"

    x = np.linspace(-1, 1, 50).reshape(-1, 1)
    problem = Problem(Network((1, 8, 1), "abs"), x, 0.2 * np.abs(x))
    weights = problem.network.initial_weights(seed=0)
    whole = descend(problem, weights, stop=MaxIter(30))
    angles = [r.angle for r in whole.records]
    limit = float(np.median(angles))
    result = descend(problem, weights, stop=MaxIter(30) | AngleBelow(limit))
    first = next(i for i, angle in enumerate(angles) if angle < limit)
    assert len(result.records) == first + 1 < 30
    assert (result.outcome, result.reason) == ("max_iter", f"the angle fell below {limit:g}")


@unless_types_are_checked
@pytest.mark.parametrize("iterations", [-1, 2.5, "10", None])
def test_invalid_iterations_are_rejected(iterations):
    with pytest.raises(ValueError, match=r"max_iter is .*; expected a non-negative whole number"):
        MaxIter(iterations)


@unless_types_are_checked
def test_other_invalid_numbers_are_rejected():
    for kind in (SlopeBelow, DecreaseBelow):
        with pytest.raises(ValueError, match="tolerance is 'a'; expected a number"):
            kind("a")
    with pytest.raises(ValueError, match="value is None; expected a number"):
        LossBelow(None)
    for patience in (0, 1.5):
        with pytest.raises(
            ValueError, match=r"patience is .*; expected a whole number of at least"
        ):
            DecreaseBelow(0.1, patience)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (DecreaseBelow(0.002), "the loss fell by less than 0.2 % in 10 iterations"),
        (DecreaseBelow(0.05, 1), "the loss fell by less than 5 % in one iteration"),
        (MaxIter(200), "reached the limit of 200 iterations"),
        (MaxIter(1), "reached the limit of one iteration"),
        (SlopeBelow(1e-8), "the slope fell below 1e-08 of the loss per radian"),
        (LossBelow(0.5), "the loss reached 0.5"),
        (
            MaxIter(2) | LossBelow(0.5),
            "reached the limit of 2 iterations, or the loss reached 0.5",
        ),
    ],
)
def test_reasons_are_in_words(rule, reason):
    assert rule.reason == reason
