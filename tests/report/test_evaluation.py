"""What is said of a fitted model, against scikit-learn and against the definition."""

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import confusion_matrix, r2_score

from greatcircle import LipschitzClassifier, LipschitzRegressor
from greatcircle.data.split import split
from greatcircle.datasets import ground_effect
from greatcircle.report.evaluation import Evaluation, Part, _errors, confusion, evaluate

ROWS = 200


def regression(**parameters) -> tuple[Evaluation, pl.DataFrame]:
    table = ground_effect.generate(ROWS)
    inputs = pl.DataFrame({name: table.columns[name] for name in table.inputs})
    train, test = split(ROWS)
    model = LipschitzRegressor((4,), max_iter=3, random_state=0, **parameters)
    model.fit(inputs[train], table.y[train])
    return evaluate(model, inputs, table.y, train, test, table.targets), inputs


def test_errors_are_those_of_scikit_learn():
    evaluation, inputs = regression()
    metrics = evaluation.metrics()
    for name, part in evaluation.parts.items():
        assert metrics[name]["rows"] == len(part.rows)
        score = evaluation.model.score(inputs[part.rows], part.measured)
        np.testing.assert_allclose(metrics[name]["r2"], score, rtol=1e-10)
        for target, measured, predicted in zip(
            evaluation.targets, part.measured.T, part.predicted.T, strict=True
        ):
            own = metrics[name]["targets"][target]
            np.testing.assert_allclose(own["r2"], r2_score(measured, predicted), rtol=1e-10)
        squares = [m["rms"] ** 2 for m in metrics[name]["targets"].values()]
        np.testing.assert_allclose(metrics[name]["rms"], np.sqrt(sum(squares)), rtol=1e-10)


@pytest.mark.parametrize("unit", [1e-300, 1e-160, 1e160, 1e300])
def test_errors_in_very_small_and_very_large_units(unit):
    """The square of such a number is zero or infinite."""
    measured = np.array([[1.0, 2.0], [3.0, 5.0], [2.0, 1.0]])
    predicted = np.array([[1.5, 2.0], [2.5, 4.0], [2.0, 1.5]])
    usual, scaled = (
        _errors(Part(np.arange(3), u * measured, u * predicted), ("a", "b")) for u in (1, unit)
    )
    np.testing.assert_allclose(scaled["rms"], unit * usual["rms"], rtol=1e-12)
    np.testing.assert_allclose(scaled["r2"], usual["r2"], rtol=1e-12)


@pytest.mark.parametrize("scaling", ["standard", "max", "paper"])
def test_bounds_are_in_order_and_the_lower_one_is_met(scaling):
    evaluation, inputs = regression(scaling=scaling)
    bounds, model = evaluation.bounds, evaluation.model
    assert 0 < bounds.lower <= bounds.operator_norms * (1 + 1e-9)
    assert bounds.operator_norms < bounds.a_priori
    assert bounds.certified == model.certificate_.value
    assert (bounds.per_deviation is None) == (scaling != "standard")
    # A small step at a row goes no further than the steepest slope.
    rows = inputs.to_numpy()
    if scaling == "paper":
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    step = 1e-4 * np.random.default_rng(0).standard_normal(rows.shape)
    near, far = (model.predict(pl.DataFrame(x, schema=inputs.columns)) for x in (rows, rows + step))
    if scaling == "paper":
        moved = rows + step
        step = moved / np.linalg.norm(moved, axis=1, keepdims=True) - rows
    slopes = np.linalg.norm(far - near, axis=1) / np.linalg.norm(step, axis=1)
    assert np.median(slopes) < bounds.lower
    assert slopes.max() <= bounds.operator_norms


def test_bounds_are_in_order():
    bounds = regression()[0].bounds
    assert bounds.lower <= bounds.certified <= bounds.operator_norms <= bounds.a_priori


def test_slices_go_through_the_medians_over_the_range():
    evaluation, inputs = regression()
    cut, train = evaluation.slices, inputs[evaluation.train.rows].to_numpy()
    np.testing.assert_allclose(cut.grid[:, [0, -1]], np.stack([train.min(0), train.max(0)], axis=1))
    row = np.median(train, axis=0)
    row[3] = cut.grid[3, 17]
    expected = evaluation.model.predict(pl.DataFrame(row[None], schema=inputs.columns))[0]
    np.testing.assert_allclose(cut.values[3, 17], expected, rtol=1e-6)


def test_curves_begin_at_the_start():
    evaluation, _ = regression(early_stopping=True)
    train, validation, angle = evaluation.curves()
    assert len(train) == len(angle) + 1
    assert np.all(np.diff(train) < 0)
    assert validation is not None
    assert np.isnan(validation[0])
    assert regression()[0].curves()[1] is None


def test_a_constant_target_has_no_explained_part():
    inputs = pl.DataFrame({"x": np.arange(20.0)})
    measured = np.ones((20, 1))
    model = LipschitzRegressor((2,), max_iter=1, random_state=0).fit(inputs, measured[:, 0])
    rows = np.arange(20)
    metrics = evaluate(model, inputs, measured, rows[:15], rows[15:], ["y"]).metrics()
    assert metrics["test"]["r2"] is None
    assert metrics["test"]["targets"]["y"]["rms"] < 1e-6


def test_classes():
    rng = np.random.default_rng(0)
    inputs = pl.DataFrame({"a": rng.standard_normal(90), "b": rng.standard_normal(90)})
    labels = np.where(inputs["a"].to_numpy() > 0.4, "high", "low")
    train, test = split(90, strata=labels)
    model = LipschitzClassifier((3,), max_iter=3, random_state=0)
    model.fit(inputs[train], labels[train])
    evaluation = evaluate(model, inputs, labels, train, test, ["level"])
    metrics = evaluation.metrics()["test"]
    assert metrics["accuracy"] == model.score(inputs[test], labels[test])
    counted = metrics["confusion"]
    assert counted["labels"] == ["high", "low"]
    expected = confusion_matrix(evaluation.test.measured, evaluation.test.predicted)
    np.testing.assert_array_equal(counted["counts"], expected)
    np.testing.assert_allclose(evaluation.slices.values.sum(axis=2), 1, rtol=1e-6)
    # A label that only the test rows have is counted as missed.
    part = evaluation.test._replace(measured=np.full(len(test), "other"))
    counted = confusion(part, model.classes_)
    assert counted["labels"] == ["high", "low", "other"]
    assert np.sum(counted["counts"][2]) == len(test)
