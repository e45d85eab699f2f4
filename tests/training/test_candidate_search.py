"""The search over target gains and layers, on error surfaces that are known."""

import math
from dataclasses import dataclass

import pytest

from greatcircle.training.search import FACTOR, GAINS, Candidate, Ladder, search

WIDTHS = [(8, 8), (16, 16), (32, 32)]


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


def find(error_of, ladder, noise=0.0):
    """Return the result and all candidates that were evaluated."""
    tried = []

    def evaluate(candidate, rival):
        error = error_of(candidate)
        hopeless = rival is not None and error > rival.error + noise
        tried.append(candidate)
        return Point(candidate, error, noise, hopeless)

    return search(ladder, evaluate), tried


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
