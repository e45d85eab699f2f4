"""Section of a selection: its text and table, and the content of `results.json`."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from greatcircle import LipschitzRegressor
from greatcircle.model import Model, SelectionTable
from greatcircle.report.selection import held_out_words, selection_results, selection_section
from report_examples import candidates


@pytest.fixture(scope="module")
def plain() -> Model:
    X = np.linspace(-1, 1, 12)[:, None]
    estimator = LipschitzRegressor((8, 8), selection=False, max_iter=1, random_state=0)
    return estimator.fit(X, X[:, 0]).model_


def with_selection(plain: Model, table: SelectionTable | None, networks: int = 1) -> Model:
    assert plain.training is not None
    return replace(plain, training=replace(plain.training, selection=table), networks=networks)


def results(plain: Model, table: SelectionTable, networks: int = 1, **parameters: Any) -> Any:
    return selection_results(with_selection(plain, table, networks), parameters)


def test_results_are_json_with_null_for_what_is_not_finite(plain):
    assert selection_results(with_selection(plain, None), {}) is None
    automatic = candidates(target_gain=np.full(6, np.nan))
    found = json.loads(json.dumps(results(plain, automatic, 3), allow_nan=False))
    assert found["networks"] == 3
    assert found["held_out"] == {"kind": "folds", "parts": 5}
    assert [c["chosen"] for c in found["candidates"]] == [False, True] + 4 * [False]
    assert found["candidates"][3]["hidden_layer_sizes"] == [16, 16]
    assert {c["target_gain"] for c in found["candidates"]} == {None}
    last = found["candidates"][-1]
    assert last["held_out_loss"] is last["standard_error"] is last["spectral_bound"] is None


@pytest.mark.parametrize(
    ("parameters", "parts", "words"),
    [
        ({"cv": "auto"}, 5, "5 folds"),
        ({"cv": 3}, 3, "3 folds"),
        ({"cv": "auto"}, 1, "a fifth of the rows"),
        ({"cv": "time"}, 5, "5 parts in time order"),
        ({"cv": "time"}, 1, "the last fifth of the rows"),
        ({"cv": "auto", "early_stopping": True}, 1, "the rows of early stopping"),
    ],
)
def test_held_out_rows_in_words(plain, parameters, parts, words):
    found = results(plain, candidates(parts=np.full(6, parts)), **parameters)
    assert held_out_words(found["held_out"]) == words


def test_the_section_states_what_was_chosen(plain):
    table = candidates()
    section = selection_section(table, "squared", results(plain, table, 4), "unit of the inputs")
    assert section.text.startswith(
        "Of 6 candidates, held-out error (5 folds) chose hidden layers 8-8 with target gain 30: "
        "held-out RMS error 0.800 ± 0.020 (units of the targets) after 40 iterations."
    )
    assert "the average of 4 such networks" in section.text
    (block,), (chart,) = section.tables, section.charts
    assert [row[0] for row in block.rows] == ["8-8", "8-8", "8-8", "16-16", "16-16", "8"]
    assert [row[-1] for row in block.rows] == ["", "chosen", "", "", "2 of 5 parts", "2 of 5 parts"]
    assert block.rows[1][4] == "0.800 ± 0.020"
    assert block.rows[5][4] == "not finite"
    assert "cannot be compared" in chart.caption
    figure: Any = chart.figure
    assert figure.layout.yaxis.title.text == "held-out RMS error [units of the targets]"


@pytest.mark.parametrize(
    ("loss", "axis"),
    [
        ("huber", "held-out Huber loss [units of the targets, squared]"),
        ("cross-entropy", "held-out cross-entropy [nats]"),
        ("log-cosh", "held-out loss [units of the loss]"),
    ],
)
def test_other_losses_are_shown_as_they_are(plain, loss, axis):
    table = candidates()
    section = selection_section(table, loss, results(plain, table), "unit of the inputs")
    figure: Any = section.charts[0].figure
    assert figure.layout.yaxis.title.text == axis
    assert section.tables[0].rows[1][4] == "0.320 ± 0.016"
    assert section.text.endswith("The model is one such network.")


def test_a_single_candidate_has_no_chart(plain):
    table = SelectionTable.of(candidates().rows()[1:2])
    section = selection_section(table, "squared", results(plain, table), "unit of the inputs")
    assert section.text.startswith("Held-out error (5 folds) chose only the length of training")
    assert not section.charts
    one = SelectionTable.of([candidates().rows()[1]._replace(hidden_layer_sizes=(8,))])
    section = selection_section(one, "squared", results(plain, one), "unit of the inputs")
    assert "one hidden layer of 8 units with target gain 30" in section.text


def test_complete_candidates_need_no_warning(plain):
    table = candidates(parts=np.full(6, 5))
    section = selection_section(table, "squared", results(plain, table), "unit of the inputs")
    assert "cannot be compared" not in section.charts[0].caption


def test_training_on_small_batches_is_shown(plain):
    steps, directions = [0, 1024, 1024, 4096, 1024, 1024], ["", *["soap"] * 4, "k-fac"]
    table = candidates(steps=np.array(steps), direction=np.array(directions))
    section = selection_section(table, "squared", results(plain, table), "unit of the inputs")
    after = "after 1024 steps on small batches and 40 iterations on all rows."
    assert after in section.text
    column = ["none", "soap 1024", "soap 1024", "soap 4096", "soap 1024", "k-fac 1024"]
    assert [row[2] for row in section.tables[0].rows] == column
    figure: Any = section.charts[0].figure
    assert "8-8, soap 1024" in {trace.name for trace in figure.data}
    alone = candidates(
        iterations=np.zeros(6, int), steps=np.full(6, 512), direction=np.full(6, "soap")
    )
    section = selection_section(alone, "squared", results(plain, alone), "unit of the inputs")
    assert "after 512 steps on small batches." in section.text
