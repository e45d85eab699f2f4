"""Evaluation of a fitted model, against scikit-learn and against the definitions."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, r2_score

from greatcircle import LipschitzClassifier, LipschitzRegressor
from greatcircle.data.split import split
from greatcircle.datasets import ground_effect
from greatcircle.figures.tables import Predictions
from greatcircle.model import Model
from greatcircle.report.evaluation import Evaluation, evaluate
from greatcircle.report.metrics import confusion, errors

ROWS = 200


def with_targets(model: Model, targets) -> Model:
    return replace(model, target_names=tuple(targets))


def regression(**parameters) -> tuple[Evaluation, LipschitzRegressor, np.ndarray]:
    table = ground_effect.generate(ROWS)
    train, test = split(ROWS)
    estimator = LipschitzRegressor((4,), selection=False, max_iter=3, random_state=0, **parameters)
    estimator.fit(table.X[train], table.y[train])
    model = with_targets(estimator.model_, table.targets)
    return evaluate(model, table.X, table.y, train, test), estimator, table.X


def test_errors_are_those_of_scikit_learn():
    evaluation, estimator, inputs = regression()
    metrics = evaluation.metrics()
    for name, part in evaluation.predictions.items():
        assert metrics[name]["rows"] == len(part.rows)
        score = estimator.score(inputs[part.rows], part.measured)
        np.testing.assert_allclose(metrics[name]["r2"], score, rtol=1e-10)
        for target, measured, predicted in zip(
            evaluation.model.target_names, part.measured.T, part.predicted.T, strict=True
        ):
            own = metrics[name]["targets"][target]
            np.testing.assert_allclose(own["r2"], r2_score(measured, predicted), rtol=1e-10)
        squares = [m["rms"] ** 2 for m in metrics[name]["targets"].values()]
        np.testing.assert_allclose(metrics[name]["rms"], np.sqrt(sum(squares)), rtol=1e-10)


@pytest.mark.parametrize("unit", [1e-300, 1e-160, 1e160, 1e300])
def test_errors_in_very_small_and_very_large_units(unit):
    """Their squares are zero or infinite."""
    measured = np.array([[1.0, 2.0], [3.0, 5.0], [2.0, 1.0]])
    predicted = np.array([[1.5, 2.0], [2.5, 4.0], [2.0, 1.5]])
    usual, scaled = (
        errors(Predictions(np.arange(3), u * measured, u * predicted), ("a", "b"))
        for u in (1, unit)
    )
    np.testing.assert_allclose(scaled["rms"], unit * usual["rms"], rtol=1e-12)
    np.testing.assert_allclose(scaled["r2"], usual["r2"], rtol=1e-12)


@pytest.mark.parametrize("scaling", ["standard", "max", "paper"])
def test_bounds_are_in_order_and_no_step_is_steeper_than_the_lower_one(scaling):
    evaluation, _, rows = regression(scaling=scaling)
    bounds, model = evaluation.bounds, evaluation.model
    assert 0 < bounds.lower <= bounds.operator_norms * (1 + 1e-9)
    assert bounds.operator_norms < bounds.a_priori
    assert bounds.certified == model.certificate.value
    assert (bounds.per_deviation is None) == (scaling != "standard")
    # The slope of a small step at a row is at most the steepest slope.
    if scaling == "paper":
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    step = 1e-4 * np.random.default_rng(0).standard_normal(rows.shape)
    near, far = (model.predict(x) for x in (rows, rows + step))
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
    evaluation, _, inputs = regression()
    cut, train = evaluation.slices, inputs[evaluation.train.rows]
    np.testing.assert_allclose(cut.grid[:, [0, -1]], np.stack([train.min(0), train.max(0)], axis=1))
    row = np.median(train, axis=0)
    row[3] = cut.grid[3, 17]
    expected = evaluation.model.predict(row[None])[0]
    np.testing.assert_allclose(cut.values[3, 17], expected, rtol=1e-6)


def test_learning_curves_start_before_the_first_iteration():
    curves = regression(early_stopping=True)[0].learning_curves()
    assert curves.train.shape[1] == curves.angle.shape[1] + 1
    assert np.all(np.diff(curves.train) < 0)
    assert curves.test is not None
    assert np.isnan(curves.test[0, 0])
    assert regression()[0].learning_curves().test is None


def test_a_constant_target_has_no_r2():
    inputs, measured = np.arange(20.0)[:, None], np.ones((20, 1))
    estimator = LipschitzRegressor((2,), selection=False, max_iter=1, random_state=0)
    estimator.fit(inputs, measured[:, 0])
    rows = np.arange(20)
    model = with_targets(estimator.model_, ["y"])
    metrics = evaluate(model, inputs, measured, rows[:15], rows[15:]).metrics()
    assert metrics["test"]["r2"] is None
    assert metrics["test"]["targets"]["y"]["rms"] < 1e-6


def test_a_model_without_history_is_rejected():
    evaluation, _, inputs = regression()
    model = replace(evaluation.model, training=None)
    with pytest.raises(ValueError, match="no training history"):
        evaluate(model, inputs, evaluation.train.measured, np.arange(2), np.arange(2))


def test_classes():
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((90, 2))
    labels = np.where(inputs[:, 0] > 0.4, "high", "low")
    train, test = split(90, strata=labels)
    estimator = LipschitzClassifier((3,), selection=False, max_iter=3, random_state=0)
    estimator.fit(inputs[train], labels[train])
    evaluation = evaluate(with_targets(estimator.model_, ["level"]), inputs, labels, train, test)
    metrics = evaluation.metrics()["test"]
    assert metrics["accuracy"] == estimator.score(inputs[test], labels[test])
    counted = metrics["confusion"]
    assert counted["labels"] == ["high", "low"]
    expected = confusion_matrix(evaluation.test.measured, evaluation.test.predicted)
    np.testing.assert_array_equal(counted["counts"], expected)
    np.testing.assert_allclose(evaluation.slices.values.sum(axis=2), 1, rtol=1e-6)
    # A label that only the test rows have counts as an error.
    rows = evaluation.test._replace(measured=np.full(len(test), "other"))
    table = confusion(rows, estimator.classes_)
    assert table.labels == ["high", "low", "other"]
    assert np.sum(table.counts[2]) == len(test)
