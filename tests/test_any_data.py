"""The benchmark on any data: rows, comparisons over splits, and a page without typed numbers."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import any_data
import any_data_page
from any_classes import cover
from any_data_page import Rows, compared, is_worse
from any_data_sets import FEW, LOOKED_AT, PUBLISHED, SETS, UNTOUCHED, DataSet, load

ROOT = Path(__file__).parents[1]


def test_every_public_set_is_looked_at_or_untouched(data_folder):
    public = {path.stem for path in (data_folder / "uci").glob("*.npz")}
    assert {*LOOKED_AT} | {*UNTOUCHED} == public
    assert not {*LOOKED_AT} & {*UNTOUCHED}
    assert {*PUBLISHED} < public < {*SETS}


@pytest.mark.parametrize("name", ["friedman1", "friedman2 noisy", "step", "sine", "digits"])
def test_made_sets_have_splits_without_overlap(name):
    data = load(name, Path())
    assert len(data.tests) == FEW
    for test in data.tests:
        assert np.sum(test) == len(data.X) // 5
    assert len({test.tobytes() for test in data.tests}) == FEW


def test_cover_is_like_covertype():
    X, y = cover()
    assert X.shape == (12_000, 54)
    assert np.all(np.isin(X[:, 10:], (0, 1)))
    counts = np.bincount(y, minlength=7)
    assert counts.min() > 50
    assert counts.max() > 10 * counts.min()


def test_worse_means_beyond_two_standard_errors():
    theirs = dict(enumerate([1.0, 1.1, 0.9, 1.0]))
    noisy = compared(dict(enumerate([1.5, 0.9, 1.0, 1.1])), theirs)
    clear = compared({k: 1.1 * error for k, error in theirs.items()}, theirs)
    assert noisy is not None
    assert clear is not None
    assert clear["ratio"] == pytest.approx(1.1)
    assert is_worse(clear, 1.03)
    assert not is_worse(clear, 1.2)
    assert noisy["ratio"] > 1.03
    assert not is_worse(noisy, 1.03)
    assert compared({0: 1.0}, theirs) is None


def test_a_run_appends_rows_and_repeats_none(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    tests = [np.arange(60) % 5 == k for k in range(2)]
    monkeypatch.setattr(any_data, "load", lambda *_, **__: DataSet(X, X[:, 0], tests))
    monkeypatch.setattr(any_data, "MLP_LAYERS", ((3,),))
    rows = tmp_path / "rows.jsonl"
    words = ["any_data.py", "--data", ".", "--sets", "sine", "--rows", str(rows), "--methods"]
    monkeypatch.setattr("sys.argv", [*words, "mlp", "mlp-tuned", "trees"])
    any_data.main()
    once = rows.read_text()
    any_data.main()
    assert rows.read_text() == once
    found = Rows([json.loads(line) for line in once.splitlines()])
    assert set(found.errors("sine", "mlp")) == {0, 1}
    # The whole grid on the first split, the best of it on the others.
    assert len(once.splitlines()) == 2 + 2 + len(any_data.RATES) + 1
    assert set(found.tuned("sine")) == {0, 1}


def test_the_page_is_that_of_the_results():
    """Each ratio on the page is in any_data.json, and the sets are those of the rows."""
    results = json.loads(any_data_page.RESULTS.read_text())
    page = any_data_page.PAGE.read_text("utf-8")
    listed = re.findall(r"^\| ([a-z0-9 ]+?)(?: \\\*)? \| [\d,]+ × \d+ \|", page, re.MULTILINE)
    assert listed == list(results["sets"])
    rows = Rows(any_data.stored(any_data.ROWS))
    for name, entry in results["sets"].items():
        assert entry["errors"]["auto"] == pytest.approx(
            np.mean(list(rows.errors(name, "auto").values())), abs=1e-4
        )
        assert f"{entry['against']['mlp']['ratio']:.2f} |" in page
