"""The search over target gains and layers, on error surfaces that are known."""

import math
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
import pytest

from greatcircle.training.search import (
    FACTOR,
    GAINS,
    BatchPhase,
    Candidate,
    Ladder,
    search,
    search_on_batches,
)

WIDTHS = [(8, 8), (16, 16), (32, 32)]

BATCHES = BatchPhase("soap", 16)

WORTH = 0.9
"""Part of the error that four times the cost must reach."""


@dataclass(frozen=True)
class Point:
    """A candidate with a known error; differences below `noise` are not clear."""

    candidate: Candidate
    error: float
    noise: float = 0.0
    hopeless: bool = False

    def below(self, other):
        return self.error < other.error

    def clearly_below(self, other):
        return self.error < other.error - self.noise

    def worth_four_times(self, other):
        return self.error < WORTH * other.error


def find(error_of, ladder, noise=0.0, method=search):
    """Return the result and all candidates that were evaluated."""
    tried = []

    def evaluate(candidate, rival):
        error = error_of(candidate)
        hopeless = rival is not None and error > rival.error + noise
        tried.append(candidate)
        return Point(candidate, error, noise, hopeless)

    return method(ladder, evaluate), tried


def find_on_batches(error_of, widths=WIDTHS, depths=lambda _: (), noise=0.0, **options):
    """Return the result on small batches and all candidates that were evaluated."""
    ladder = Ladder(widths, depths, batches=BATCHES, **options)
    return find(error_of, ladder, noise, search_on_batches)


def bowl(best_gain, best_width):
    def error(candidate):
        width = candidate.hidden_layer_sizes[0]
        gain = math.log(candidate.target_gain / best_gain) ** 2
        return 1 + gain + math.log(width / best_width) ** 2

    return error


@pytest.mark.parametrize("gain", [0.05, 0.5, 3.0, 40.0, 900.0])
@pytest.mark.parametrize("width", [8, 16, 32])
def test_the_walk_ends_next_to_the_lowest_error(gain, width):
    best, tried = find(bowl(gain, width), Ladder(WIDTHS))
    assert best.candidate.hidden_layer_sizes == (width, width)
    layers = 3
    assert abs(math.log(best.candidate.target_gain / gain)) <= math.log(FACTOR) * layers / 4
    assert best.error == min(map(bowl(gain, width), tried))


def test_no_candidate_is_tried_twice():
    _, tried = find(bowl(30.0, 32), Ladder(WIDTHS, lambda sizes: [sizes[:1], sizes[:1] * 4]))
    assert len(tried) == len(set(tried))


def test_an_error_that_always_falls_ends_at_the_limit():
    best, tried = find(lambda c: 1 / c.target_gain, Ladder(WIDTHS[:1]))
    assert GAINS[1] / FACTOR < best.candidate.target_gain <= GAINS[1]
    assert len(tried) < 30


def test_another_depth_must_be_clearly_better():
    ladder = Ladder(WIDTHS[:1], lambda sizes: [sizes * 2])

    def error(candidate):
        return 1.0 - 0.01 * len(candidate.hidden_layer_sizes)

    assert find(error, ladder, noise=0.5)[0].candidate.hidden_layer_sizes == (8, 8)
    assert find(error, ladder)[0].candidate.hidden_layer_sizes == (8,) * 4


def test_a_wider_network_must_only_be_better():
    def error(candidate):
        return 1.0 - 0.01 * candidate.hidden_layer_sizes[0]

    assert find(error, Ladder(WIDTHS), noise=0.5)[0].candidate.hidden_layer_sizes == (32, 32)
    assert find(lambda c: 1 / error(c), Ladder(WIDTHS))[0].candidate.hidden_layer_sizes == (8, 8)


def test_other_depths_are_tried_at_the_chosen_width():
    def error(candidate):
        return abs(len(candidate.hidden_layer_sizes) - 4) + 1 / candidate.hidden_layer_sizes[0]

    best, _ = find(error, Ladder(WIDTHS, lambda sizes: [sizes[:1], sizes[:1] * 4]))
    assert best.candidate.hidden_layer_sizes == (32,) * 4


def test_without_a_walk_the_target_gain_is_the_given_one():
    for gain in (None, 2.0):
        _, tried = find(lambda c: 1.0, Ladder(WIDTHS[:1], walks=False, first_gain=gain))
        assert [candidate.target_gain for candidate in tried] == [gain]


def test_other_layers_keep_the_stiffness_of_each_layer():
    candidate = Candidate((8, 8, 8), 16.0).with_sizes((8,))
    assert candidate.target_gain == pytest.approx(4.0)
    assert Candidate((8, 8), None).with_sizes((16, 16)).target_gain is None


def test_a_second_hopeless_candidate_ends_the_walk_of_a_wider_network():
    def error(candidate):
        wide = candidate.hidden_layer_sizes[0] > 8
        return 10.0 if wide else bowl(3.0, 8)(candidate)

    _, tried = find(error, Ladder(WIDTHS))
    assert sum(candidate.hidden_layer_sizes == (16, 16) for candidate in tried) == 2
    assert (32, 32) not in {candidate.hidden_layer_sizes for candidate in tried}


# On small batches


def shape(candidate):
    return candidate.hidden_layer_sizes[0], candidate.batches.steps


def costs_at_most(limit):
    """Return a test of the cost of a candidate."""

    def affords(candidate):
        width, steps = shape(candidate)
        return steps * width**2 * len(candidate.hidden_layer_sizes) <= limit

    return affords


def other_depths(sizes):
    return [sizes[:1] * depth for depth in (1, 4)]


def any_error(seed):
    """Return an error function without any order: a random number for each candidate."""
    errors = {}
    rng = np.random.default_rng(seed)
    return lambda candidate: errors.setdefault(candidate, float(rng.lognormal(0, 2)))


def test_target_gain_and_depth_come_first_with_the_narrowest_network():
    def error(candidate):
        width, steps = shape(candidate)
        depth = len(candidate.hidden_layer_sizes)
        gain = math.log(candidate.target_gain / 30 ** ((depth + 1) / 4)) ** 2
        return gain + abs(depth - 4) + 100 / width + 100 / steps

    affords = costs_at_most(16 * 64 * 32**2 * 4)
    best, tried = find_on_batches(error, depths=other_depths, affords=affords)
    first = list(takewhile(lambda c: shape(c) == (8, 16), tried))
    assert {len(c.hidden_layer_sizes) for c in first} == {1, 2, 4}
    for depth in (1, 2, 4):
        assert len({c.target_gain for c in first if len(c.hidden_layer_sizes) == depth}) > 1
    rest = tried[len(first) :]
    assert {len(c.hidden_layer_sizes) for c in rest} == {4} == {len(best.candidate[0])}
    assert (8, 16) not in map(shape, rest)
    # Longer training of the same network keeps its target gain.
    (gain,) = {c.target_gain for c in rest if shape(c)[0] == 8}
    assert gain == min(first, key=error).target_gain


def test_another_depth_must_be_clearly_better_on_batches_too():
    def error(candidate):
        return 1.0 - 0.01 * len(candidate.hidden_layer_sizes)

    assert len(find_on_batches(error, depths=other_depths, noise=0.5)[0].candidate[0]) == 2
    assert len(find_on_batches(error, depths=other_depths)[0].candidate[0]) == 4


def test_each_round_keeps_the_better_of_four_times_the_steps_and_the_next_width():
    errors = {
        (8, 16): 10.0,
        **{(8, 64): 5.0, (16, 16): 4.0},
        **{(16, 64): 2.0, (32, 16): 3.0},
        **{(16, 256): 1.98, (32, 64): 1.95},  # neither is worth the cost
    }
    best, tried = find_on_batches(lambda c: errors[shape(c)], walks=False)
    assert [shape(candidate) for candidate in tried] == list(errors)
    assert shape(best.candidate) == (32, 64)


@pytest.mark.parametrize(("factor", "rounds"), [(0.95, 1), (0.85, 5)])
def test_rounds_end_when_four_times_the_cost_gains_too_little(factor, rounds):
    def error(candidate):
        return factor ** math.log(shape(candidate)[1] / 16, 4)

    def affords(candidate):
        return shape(candidate)[1] <= 16 * 4**5

    best, tried = find_on_batches(error, WIDTHS[:1], walks=False, affords=affords)
    assert [shape(c)[1] for c in tried] == [16 * 4**i for i in range(rounds + 1)]
    assert best.candidate == tried[-1]  # the last one is kept: it has been measured anyway


def test_the_last_round_is_dropped_if_its_error_is_higher():
    best, tried = find_on_batches(lambda c: shape(c)[1], walks=False)
    assert [shape(candidate) for candidate in tried] == [(8, 16), (8, 64), (16, 16)]
    assert best.candidate == tried[0]


def test_a_wider_network_has_a_target_gain_of_its_own():
    def error(candidate):
        width, _ = shape(candidate)
        return math.log(candidate.target_gain / width) ** 2 + 100 / width

    best, _ = find_on_batches(error)
    assert shape(best.candidate) == (32, 16)
    assert abs(math.log(best.candidate.target_gain / 32)) <= math.log(FACTOR) * 3 / 4


@pytest.mark.parametrize("limit", [0, 2**11, 2**15, 2**20])
def test_what_costs_too_much_is_not_evaluated(limit):
    """Whatever the errors are, only the first candidate is evaluated without asking."""
    affords = costs_at_most(limit)
    for seed in range(50):
        error = any_error(seed)
        best, tried = find_on_batches(
            error, depths=other_depths, affords=affords, directions=("k-fac", "another")
        )
        assert all(map(affords, tried[1:]))
        assert best.error == error(best.candidate) <= error(tried[0])
        assert best.candidate in tried
        assert len(tried) == len(set(tried))
        assert (len(tried) == 1) == (limit == 0)


def test_other_directions_come_last_and_once():
    directions = ("k-fac", "another")

    def error(candidate):
        width, steps = shape(candidate)
        return 100 / width + 100 / steps + (candidate.batches.direction == "k-fac")

    affords = costs_at_most(2**20)
    without, before = find_on_batches(error, affords=affords)
    for penalty, direction in ((0.0, "soap"), (-1.0, "k-fac")):

        def other(candidate, penalty=penalty):
            if candidate.batches.direction == "soap":
                return error(candidate)
            return without.error + (penalty if candidate.batches.direction == "k-fac" else 1)

        best, tried = find_on_batches(other, affords=affords, directions=directions)
        assert tried[:-2] == before
        assert {c.batches.direction for c in before} == {"soap"}
        assert [c.batches.direction for c in tried[-2:]] == list(directions)
        assert tried[-2] == without.candidate.with_direction("k-fac")
        assert best.candidate == without.candidate.with_direction(direction)


@pytest.mark.parametrize(
    "error",
    [
        lambda c: 1.0,
        lambda c: math.inf,
        lambda c: math.nan,
        lambda c: 1 / (c.target_gain * shape(c)[0] * shape(c)[1]),
        lambda c: c.target_gain * shape(c)[0] * shape(c)[1],
    ],
    ids=["equal", "infinite", "NaN", "always falling", "always rising"],
)
def test_the_search_on_batches_always_ends(error):
    """With a limited cost there are few rounds, even if the error always falls."""
    limit = 2**30
    _, tried = find_on_batches(error, depths=other_depths, affords=costs_at_most(limit))
    most_rounds = math.log(limit, 4)
    assert len(tried) < 30 * (most_rounds + 3)
