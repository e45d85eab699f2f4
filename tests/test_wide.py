"""The benchmark of wide networks: its competitors, its clock, and the numbers of its page."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("optax")

import wide
import wide_page
import wide_peers
from wide_cases import Case


@pytest.fixture
def case() -> Case:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3)).astype(np.float32)
    y = np.sin(X[:, :1]).astype(np.float32)
    return Case(X[:300], y[:300], X[300:], y[300:], (16, 16), 40)


def of_zero(case: Case) -> float:
    return float(np.sqrt(np.mean(case.test_y**2)))


SETTINGS = {"gain": 1.0, "direction": "soap", "steps": 300, "iterations": 3}
SETTINGS |= {"rate": 0.01, "batch": 32}


@pytest.mark.parametrize("name", ["greatcircle", "greatcircle, 1/4", "Adam", "AdamW", "Muon"])
def test_competitors_learn_and_end_at_one(case, name):
    parts = list(wide.parts(wide_peers.COMPETITORS[name](case, SETTINGS, 0, case.passes)))
    fractions = [part.fraction for part in parts]
    assert fractions == sorted(fractions)
    assert fractions[0] == 0
    assert fractions[-1] == pytest.approx(1)
    assert wide.error(case, parts[-1].layers()) < 0.5 * of_zero(case)
    assert all(part.wall > 0 for part in parts)


def test_the_iterations_on_all_rows_follow_the_steps(case):
    both = list(wide_peers.ours(case, SETTINGS, 0, 0.0))
    without = list(wide_peers.ours(case, SETTINGS | {"iterations": 0}, 0, 0.0))
    assert len(both) > len(without)
    errors = [wide.error(case, layers()) for _, layers in (both[len(without) - 1], without[-1])]
    assert errors[0] == errors[1]


def test_the_unscaled_layers_predict_as_the_estimator(case):
    from contenders.ours import unscaled
    from greatcircle import LipschitzRegressor

    model = LipschitzRegressor((8,), selection=False, saturation=False, max_iter=5, random_state=0)
    fitted = model.fit(case.X, case.y).model_
    found = wide.outputs(unscaled(fitted.weights, fitted.scaling), case.test_X)
    np.testing.assert_allclose(found, model.predict(case.test_X).reshape(-1, 1), atol=1e-5)


def test_each_pass_has_every_row_once():
    drawn = np.concatenate(list(islice(wide_peers.orders(10, 4, seed=0), 5)))
    assert sorted(drawn[:10]) == sorted(drawn[10:]) == list(range(10))
    assert list(drawn[:10]) != list(drawn[10:])


def row(case: str, name: str, curve: list[list[float]], seed: int = 0) -> dict:
    return {"case": case, "competitor": name, "seed": seed, "compile_cpu": 1.0, "curve": curve}


def test_time_ratios_end_at_the_first_point_that_is_as_good():
    adam = [[0, 0.0, 0.0, 1.0], [0.5, 4.0, 4.0, 0.2], [1, 8.0, 8.0, 0.3]]
    ours = [[0, 0.0, 0.0, 1.0], [0.5, 1.0, 1.0, 0.4], [1, 2.0, 2.0, 0.2]]
    runs = wide_page.Runs([row("a", "Adam", adam), row("a", "greatcircle", ours)])
    assert runs.ratios("a", "greatcircle", "Adam") == [0.5]
    assert runs.ratios("a", "greatcircle", "Adam", compiled=True) == [pytest.approx(3 / 5)]
    assert runs.ratios("a", "Adam", "greatcircle") == [2.0]
    assert wide_page.time_to(ours, 0.1) == np.inf
    assert wide_page.number(np.inf) == "–"


def test_settings_come_from_committed_rows():
    if not wide.TUNED_ROWS.exists() or not wide.CHOSEN.exists():
        pytest.skip("no rows of the benchmark")
    found = wide.best_settings("kin40k 64-64")
    best = min(r["best"] for r in wide.read(wide.TUNED_ROWS) if r["case"] == "kin40k 64-64")
    assert {**found, "best": best}.items() <= next(
        r for r in wide.read(wide.TUNED_ROWS) if r["case"] == "kin40k 64-64" and r["best"] == best
    ).items()
    assert wide.chosen_settings("kin40k 64-64")["steps"] > 0


def test_rows_survive_a_round_trip(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    assert wide.read(path) == []
    for number in range(2):
        wide.append(path, {"number": number})
    assert wide.read(path) == [{"number": 0}, {"number": 1}]
