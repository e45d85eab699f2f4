import pickle

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import NotFittedError

from greatcircle import LipschitzRegressor, certificate, directions, steps
from greatcircle.bounded import budget
from greatcircle.datasets import ground_effect
from small import ACTIVATION_NAMES, thinned

TABLE = ground_effect.generate(3000)
TWO = (10, 8)  # where any widths will do, the same ones: most of a test is compiling


def model(**changes):
    """Return an estimator of a single fit: the selection has tests of its own."""
    return LipschitzRegressor(**{"selection": False, "max_iter": 15, "random_state": 0, **changes})


@pytest.mark.parametrize(("method", "score"), [("auto", 0.1), ("ad", -1.0), ("mm", -5)])
@pytest.mark.parametrize("scaling", ["paper", "standard"])
def test_fit_predict_score(method, score, scaling):
    m = model(method=method, scaling=scaling, hidden_layer_sizes=TWO).fit(TABLE.X, TABLE.y)
    assert m.predict(TABLE.X).shape == TABLE.y.shape
    assert m.n_iter_ == len(m.history_["loss"]) == 15
    assert np.all(np.diff(m.history_["loss"]) < 0)
    residual = m.predict(TABLE.X) - TABLE.y
    # The loss is half the mean square in the units of y: the way back is exact.
    assert m.loss_ == pytest.approx(0.5 * np.mean(np.sum(residual**2, axis=1)), rel=1e-4)
    assert m.loss_ == m.history_["loss"][-1]
    assert m.score(TABLE.X, TABLE.y) > score


def test_the_papers_methods_start_by_algorithm_1_and_auto_does_not():
    for method in ("ad", "mm"):
        m = model(method=method, scaling="paper", max_iter=1).fit(TABLE.X, TABLE.y)
        assert not m.network_.bias
        assert [np.linalg.norm(w) for w in m.weights_] == pytest.approx([1.0] * 4, rel=1e-6)
        np.testing.assert_array_equal(m.scaling_.target_shift, 0)
    m = model(max_iter=1).fit(TABLE.X, TABLE.y)
    assert m.network_.bias
    np.testing.assert_allclose(m.scaling_.target_shift, TABLE.y.mean(axis=0))


def test_the_default_fits_better_than_the_papers_methods():
    errors = {
        method: np.mean(
            (model(method=method).fit(TABLE.X, TABLE.y).predict(TABLE.X) - TABLE.y) ** 2
        )
        for method in ("auto", "ad")
    }
    assert errors["auto"] < errors["ad"]


@pytest.mark.parametrize(
    "pair",
    [
        ("steepest", "data-majorant"),
        ("conjugate-gradient", "taylor3"),
        (directions.GaussNewton(max_products=4), steps.Curvature()),
        ("auto", steps.Majorant()),
    ],
    ids=str,
)
def test_a_pair_is_a_method(pair):
    m = model(method=pair, hidden_layer_sizes=(6,), max_iter=5).fit(TABLE.X, TABLE.y)
    assert m.network_.bias
    assert m.n_iter_ == 5
    assert np.all(np.diff(m.history_["loss"]) < 0)


def test_names_and_objects_are_the_same_method():
    X, y = TABLE.X[:200], TABLE.y[:200]

    def predicted(method):
        return model(method=method, hidden_layer_sizes=(6,), max_iter=4).fit(X, y).predict(X)

    names = predicted(("hager-zhang", "taylor4"))
    objects = predicted((directions.ConjugateGradient(directions.HagerZhang()), steps.Taylor(4)))
    np.testing.assert_array_equal(names, objects)
    assert np.any(names != predicted(("steepest", "taylor4")))


def moved(m, seed=0):
    """How far predictions and inputs of random pairs are apart: of the data, and far from it."""
    rng = np.random.default_rng(seed)
    i, j = rng.integers(0, len(TABLE), (2, 2000))
    a = TABLE.X[i]
    near = a + 10.0 ** rng.uniform(-4, 1, (len(a), 1)) * rng.standard_normal(a.shape) * a.std(
        axis=0
    )
    a, b = np.concatenate([a, a]), np.concatenate([TABLE.X[j], near])
    return np.linalg.norm(m.predict(a) - m.predict(b), axis=1), a, b


@pytest.mark.parametrize("scaling", ["standard", "max"])
def test_predictions_respect_the_bound_in_the_units_of_the_data(scaling):
    m = model(scaling=scaling, dtype="float64").fit(TABLE.X, TABLE.y)
    far, a, b = moved(m)
    assert np.all(far <= m.certificate_.value * np.linalg.norm(a - b, axis=1) + 1e-9)
    if scaling == "standard":  # the direction that the bound is about is hardly ever drawn
        weights = np.linalg.norm((a - b) / m.scaling_.spread, axis=1)
        gain = m.scaling_.standard_bound(certificate.tight(m.layers()[0]).value)
        assert np.all(far <= gain * weights + 1e-9)
        assert m.certificate_.value <= gain / m.scaling_.spread.min() * (1 + 1e-9)
        assert m.certificate_.value <= m.history_["spectral_bound"][-1]


def test_with_the_papers_scaling_the_bound_is_per_unit_of_the_scaled_inputs():
    m = model(scaling="paper", dtype="float64").fit(TABLE.X, TABLE.y)
    far, a, b = moved(m)
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    assert np.all(far <= m.certificate_.value * np.linalg.norm(a - b, axis=1) + 1e-9)


@pytest.mark.parametrize(
    ("method", "scaling", "activation"),
    [
        ("auto", "standard", "relu"),
        ("auto", "max", "abs"),
        pytest.param("ad", "max", "relu", marks=pytest.mark.slow),
        pytest.param("mm", "standard", "tanh", marks=pytest.mark.slow),
    ],
)
def test_a_lipschitz_budget_is_respected_and_used(method, scaling, activation):
    kept = {"method": method, "scaling": scaling, "activation": activation}
    for lipschitz in (0.01, 0.3):
        m = model(**kept, lipschitz=lipschitz, hidden_layer_sizes=TWO).fit(TABLE.X, TABLE.y)
        assert 0.98 * lipschitz <= m.certificate_.value <= lipschitz
        assert certificate.verify(m.certificate_, m)
        far, a, b = moved(m)
        assert np.all(far <= lipschitz * np.linalg.norm(a - b, axis=1) + 1e-5)
        assert m.history_["spectral_bound"][-1] >= m.certificate_.value


def test_a_budget_that_does_not_bind_does_not_raise_the_bound():
    free = model(hidden_layer_sizes=TWO).fit(TABLE.X, TABLE.y)
    wide = model(hidden_layer_sizes=TWO, lipschitz=1e6).fit(TABLE.X, TABLE.y)
    assert wide.certificate_.value <= free.certificate_.value
    assert wide.loss_ < free.loss_


def test_ctrl_c_before_the_first_round_within_a_budget_keeps_the_free_fit(monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("greatcircle.bounded.budget.fit_within", interrupt)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        m = model(lipschitz=0.5, max_iter=3).fit(TABLE.X, TABLE.y)
    assert (m.outcome_, m.n_iter_) == ("interrupted", 3)
    assert m.certificate_.value <= 0.5


@pytest.mark.parametrize("early_stopping", [False, True])
def test_ctrl_c_after_the_last_iteration_within_a_budget(early_stopping, monkeypatch):
    """Until then the bound has been computed once, before the run within the budget."""
    bound, calls = budget.certified_bound, []

    def interrupt(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return bound(*arguments)

    monkeypatch.setattr(budget, "certified_bound", interrupt)
    X, y = TABLE.X[:300], TABLE.y[:300]
    settings = {"max_iter": 3, "early_stopping": early_stopping, "dtype": "float64"}
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        m = model(lipschitz=0.5, **settings).fit(X, y)
    assert (m.outcome_, m.n_iter_) == ("interrupted", 3)
    assert m.certificate_.value <= 0.5
    loss = np.mean(np.sum((m.predict(X) - y) ** 2, axis=1)) / 2
    assert m.loss_ == pytest.approx(loss, rel=0.2 if early_stopping else 1e-9)  # of fewer rows


@pytest.mark.parametrize("more", [{"early_stopping": True}, {"batch_size": 64}])
def test_a_budget_goes_with_the_other_ways_to_train(more):
    m = model(hidden_layer_sizes=TWO, lipschitz=0.3, **more).fit(TABLE.X, TABLE.y)
    assert m.certificate_.value <= 0.3
    m.set_params(warm_start=True).fit(TABLE.X, TABLE.y)
    assert m.certificate_.value <= 0.3
    m.partial_fit(TABLE.X, TABLE.y)
    assert m.certificate_.value <= 0.3
    loss = 0.5 * np.mean(np.sum((m.predict(TABLE.X) - TABLE.y) ** 2, axis=1))
    assert m.loss_ == pytest.approx(loss, rel=1e-4)


def test_a_fit_within_a_budget_that_is_cut_short_stays_within_it():
    def stop(record):
        return record.iteration == 3

    m = model(hidden_layer_sizes=TWO, lipschitz=0.3, callbacks=[stop]).fit(TABLE.X, TABLE.y)
    assert (m.n_iter_, m.outcome_) == (3, "stopped")
    assert m.certificate_.value <= 0.3


def test_a_larger_budget_fits_better():
    settings = {"hidden_layer_sizes": TWO, "max_iter": 20}
    scores = [
        model(lipschitz=budget, **settings).fit(TABLE.X, TABLE.y).score(TABLE.X, TABLE.y)
        for budget in (1e-3, 1.0)
    ]
    assert scores[0] < scores[1]


def test_one_column_of_targets_comes_back_as_one():
    m = model().fit(TABLE.X, TABLE.y[:, 2])
    assert m.predict(TABLE.X).shape == (len(TABLE),)


def test_same_seed_same_bits_and_clone():
    m = model(random_state=3).fit(TABLE.X, TABLE.y)
    again = clone(m).fit(TABLE.X, TABLE.y)
    other = model(random_state=4).fit(TABLE.X, TABLE.y)
    np.testing.assert_array_equal(m.predict(TABLE.X), again.predict(TABLE.X))
    assert np.any(m.predict(TABLE.X) != other.predict(TABLE.X))


def test_tol_ends_a_run_whose_loss_hardly_falls():
    m = model(max_iter=500, tol=0.5).fit(TABLE.X, TABLE.y)
    assert m.outcome_ == "converged"
    assert m.n_iter_ < 500
    assert model(max_iter=15, tol=0).fit(TABLE.X, TABLE.y).outcome_ == "max_iter"


@pytest.mark.parametrize(("method", "tol"), [("auto", 2e-3), ("ad", 1e-6), ("mm", 1e-6)])
def test_without_a_tol_the_method_has_its_own(method, tol):
    mine, given = (
        model(method=method, tol=t, max_iter=60, hidden_layer_sizes=TWO).fit(TABLE.X, TABLE.y)
        for t in (None, tol)
    )
    assert (mine.n_iter_, mine.reason_) == (given.n_iter_, given.reason_)


def test_all_zero_targets_shrink_the_outputs():
    m = model(method="ad").fit(TABLE.X[:5], np.zeros((5, 2)))
    assert np.all(np.isfinite(m.predict(TABLE.X)))
    assert m.loss_ < m.history_["loss"][0]


def test_constant_targets():
    m = model(max_iter=200).fit(TABLE.X[:50], np.full((50, 2), 2.0))
    assert np.sqrt(np.mean((m.predict(TABLE.X[:50]) - 2) ** 2)) < 0.5


@pytest.mark.parametrize("activation", thinned(ACTIVATION_NAMES, 3))
def test_a_fitted_model_can_be_pickled(activation):
    m = model(method="ad", activation=activation, max_iter=1).fit(TABLE.X[:50], TABLE.y[:50])
    again = pickle.loads(pickle.dumps(m))
    np.testing.assert_array_equal(again.predict(TABLE.X), m.predict(TABLE.X))


def test_huber_is_not_moved_by_outliers_as_squared_is():
    y = TABLE.y.copy()
    y[::50] += 100
    errors = {}
    for loss in ("squared", "huber"):
        m = model(loss=loss, max_iter=100).fit(TABLE.X, y)
        errors[loss] = np.sqrt(np.mean((m.predict(TABLE.X) - TABLE.y) ** 2))
    assert errors["huber"] < 0.8 * errors["squared"]


def test_training_that_fails_warns():
    with pytest.warns(ConvergenceWarning, match=r"0 iterations.*float64"):
        model(method="ad", scaling="paper", hidden_layer_sizes=(20,) * 20).fit(TABLE.X, TABLE.y)


def test_one_sample():
    m = model(max_iter=100, hidden_layer_sizes=12).fit(TABLE.X[:1], TABLE.y[:1])
    assert np.linalg.norm(m.predict(TABLE.X[:1]) - TABLE.y[:1]) < np.linalg.norm(TABLE.y[:1])


def test_a_row_of_zeros_predicts_zero_by_the_papers_methods():
    m = model(method="ad", scaling="paper").fit(TABLE.X, TABLE.y)
    np.testing.assert_array_equal(m.predict(np.zeros((1, 12))), 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "adam"}, "method is 'adam'; expected one of auto, ad, mm"),
        ({"method": ("steepest",)}, "method is .* or a pair"),
        ({"method": None}, "method is None"),
        ({"method": ("downhill", "curvature")}, "method's direction is 'downhill'"),
        ({"method": ("steepest", "adam")}, "method's step is 'adam'"),
        ({"scaling": "none"}, "scaling is 'none'; expected one of paper, standard, max"),
        ({"scaling": False}, "scaling is False; expected one of paper, standard, max"),
        ({"lipschitz": 1.0, "scaling": "paper"}, "lipschitz is 1.0 with scaling='paper'"),
        ({"lipschitz": 0.0}, "lipschitz is 0.0"),
        ({"lipschitz": -1}, "lipschitz is -1"),
        ({"lipschitz": np.inf}, "lipschitz is inf"),
        ({"lipschitz": "1"}, "lipschitz is '1'"),
        ({"loss": "mae"}, "loss is 'mae'"),
        ({"loss": "logistic"}, "loss is 'logistic'; expected one of auto, squared, huber"),
        ({"activation": "gelu"}, "activation 'gelu' is refused"),
        ({"hidden_layer_sizes": (5, 0)}, "hidden_layer_sizes is"),
        ({"hidden_layer_sizes": (5, -1)}, "hidden_layer_sizes is"),
        ({"hidden_layer_sizes": 2.5}, "hidden_layer_sizes is"),
        ({"radius": -1.0}, "radius is -1.0"),
        ({"radius": (1.0, 2.0)}, "radius has 2 entries"),
        ({"max_iter": -1}, "max_iter is -1"),
        ({"tol": -1.0}, "tol is -1.0"),
        ({"tol": np.nan}, "tol is nan"),
        ({"tol": "1e-4"}, "tol is '1e-4'"),
        ({"max_iter": "10"}, "max_iter is '10'"),
        ({"loss": None}, "loss is None"),
        ({"dtype": None}, "dtype is None"),
        ({"dtype": "float16"}, "dtype is 'float16'"),
    ],
)
def test_bad_arguments_are_named_before_training(change, message):
    with pytest.raises(ValueError, match=message):
        model(**change).fit(TABLE.X[:20], TABLE.y[:20])


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.full((3, 2), np.nan), np.ones(3), "Input X contains NaN"),
        (np.ones((3, 2)), np.array([1, np.inf, 2]), "Input y contains infinity"),
        (np.ones((3, 2)), np.ones(4), "inconsistent numbers of samples"),
        (np.ones((0, 2)), np.ones(0), "0 sample"),
        (np.ones(3), np.ones(3), "Reshape your data"),
    ],
)
def test_bad_data_is_named(X, y, message):
    with pytest.raises(ValueError, match=message):
        model().fit(X, y)


def test_predict_before_fit_and_with_other_columns():
    with pytest.raises(NotFittedError):
        model().predict(TABLE.X)
    with pytest.raises(ValueError, match="expecting 12 features"):
        model().fit(TABLE.X, TABLE.y).predict(TABLE.X[:, :5])


def test_a_weight_of_two_is_a_row_twice():
    rng = np.random.default_rng(0)
    weight = rng.integers(0, 4, 60)
    X, y = TABLE.X[:60], TABLE.y[:60]
    weighted = model(hidden_layer_sizes=(6,)).fit(X, y, sample_weight=weight)
    repeated = model(hidden_layer_sizes=(6,)).fit(np.repeat(X, weight, 0), np.repeat(y, weight, 0))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-7)
    assert np.any(weighted.predict(X) != model(hidden_layer_sizes=(6,)).fit(X, y).predict(X))


def noisy(rows, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 3))
    return X, X[:, 0] + rng.standard_normal(rows)


def test_early_stopping_keeps_the_weights_that_were_best_on_unseen_rows():
    X, y = noisy(120)
    network = {"hidden_layer_sizes": (20, 20), "early_stopping": True, "tol": 0}
    m = model(**network, max_iter=200, n_iter_no_change=5).fit(X, y)
    unseen = m.history_["validation_loss"]
    best = int(np.argmin(unseen))
    assert len(unseen) == best + 6
    assert (m.outcome_, m.reason_) == (
        "stopped",
        "the validation loss has not fallen for 5 iterations",
    )
    assert m.loss_ == m.history_["loss"][best]
    again = model(**network, max_iter=best + 1).fit(X, y)
    np.testing.assert_array_equal(again.predict(X), m.predict(X))


def test_a_warm_start_continues():
    X, y = TABLE.X[:200], TABLE.y[:200]
    m = model(hidden_layer_sizes=(6,), max_iter=5, warm_start=True).fit(X, y)
    first = m.loss_
    m.fit(X, y)
    assert m.history_["loss"][0] < first
    assert m.n_iter_ == 5
    cold = model(hidden_layer_sizes=(6,), max_iter=5).fit(X, y)
    assert cold.loss_ == first
    m.set_params(hidden_layer_sizes=(7,))
    with pytest.raises(ValueError, match=r"hidden_layer_sizes is \(7,\) and the fitted.*\(6,\)"):
        m.fit(X, y)
    with pytest.raises(ValueError, match="y has 1 columns, but LipschitzRegressor was fitted"):
        m.set_params(hidden_layer_sizes=(6,)).fit(X, y[:, 0])


def test_a_warm_start_may_change_the_method():
    X, y = TABLE.X[:200], TABLE.y[:200]
    m = model(hidden_layer_sizes=(6,), max_iter=3, warm_start=True).fit(X, y)
    for method in ("gauss-newton", "conjugate-gradient", "steepest", "auto"):
        before = m.loss_
        m.set_params(method=method if method == "auto" else (method, "curvature")).fit(X, y)
        assert m.loss_ < before


def test_partial_fit_is_one_iteration_a_call():
    m = model(hidden_layer_sizes=(6,))
    for first in (0, 200, 400, 0, 200, 400):
        m.partial_fit(TABLE.X[first : first + 200], TABLE.y[first : first + 200])
    assert m.n_iter_ == 6
    assert m.history_["iteration"].tolist() == [1, 2, 3, 4, 5, 6]
    one = model(hidden_layer_sizes=(6,)).partial_fit(TABLE.X[:200], TABLE.y[:200])
    assert m.score(TABLE.X[:600], TABLE.y[:600]) > one.score(TABLE.X[:600], TABLE.y[:600])


def test_callbacks_see_every_iteration_and_may_stop():
    seen, late = [], []

    def third(row):
        seen.append(row)
        return row.iteration == 3

    m = model(hidden_layer_sizes=(6,), callbacks=[third, late.append])
    m.fit(TABLE.X[:200], TABLE.y[:200])
    assert (m.n_iter_, m.outcome_, m.reason_) == (3, "stopped", "a callback asked to stop")
    assert [r.iteration for r in late] == [1, 2, 3]
    assert [r.loss for r in seen] == m.history_["loss"].tolist()
    assert seen[-1].spectral_bound >= m.certificate_.value


def test_history_is_a_table():
    m = model(hidden_layer_sizes=(6,), tol=0).fit(TABLE.X[:200], TABLE.y[:200])
    text = repr(m.history_)
    assert text.splitlines()[0].split() == list(m.history_.SHOWN)
    assert len(text.splitlines()) == 13
    assert "15 iterations" in text
    assert pl.DataFrame(dict(m.history_)).shape == (15, len(m.history_))
    assert m.history_.of(m.history_.rows()).keys() == m.history_.keys()


def test_progress_goes_to_standard_error(capsys):
    m = model(hidden_layer_sizes=(6,), verbose=True).fit(TABLE.X[:200], TABLE.y[:200])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{m.n_iter_}/{m.n_iter_}" in captured.err
    assert "bound" in captured.err


def test_a_notebook_shows_a_summary_with_a_plot():
    m = model(hidden_layer_sizes=(6,), early_stopping=True)
    assert "Lipschitz bound" not in m._repr_html_()
    m.fit(TABLE.X[:200], TABLE.y[:200])
    html = m._repr_html_()
    assert html.count("<polyline") == 2
    assert "Lipschitz bound" in html
    assert f"{m.certificate_.value:.4g}" in html
    assert m._repr_mimebundle_()["text/html"].count("<polyline") == 2


@pytest.mark.parametrize("scaling", ["standard", "max", "paper"])
def test_jacobian_is_the_derivative_of_predict(scaling):
    m = model(hidden_layer_sizes=(6,), activation="tanh", scaling=scaling, dtype="float64")
    m.fit(TABLE.X[:200], TABLE.y[:200])
    X, h = TABLE.X[:5], 1e-6
    numeric = [(m.predict(X + h * e) - m.predict(X - h * e)) / (2 * h) for e in np.eye(X.shape[1])]
    np.testing.assert_allclose(m.jacobian(X), np.stack(numeric, -1), atol=1e-6)


def test_names_of_features_are_kept_and_checked():
    frame = pl.DataFrame(TABLE.X[:100], schema=list(TABLE.inputs))
    m = model(hidden_layer_sizes=(3,), max_iter=2).fit(frame, TABLE.y[:100])
    assert m.feature_names_in_.tolist() == list(TABLE.inputs)
    columns = frame.select(reversed(frame.columns))
    with pytest.raises(ValueError, match="same order"):
        m.predict(columns)
    with pytest.raises(ValueError, match="feature names should match"):
        m.predict(frame.rename({TABLE.inputs[0]: "height"}))


def test_ctrl_c_leaves_a_model_that_works():
    def interrupt(row):
        if row.iteration == 4:
            raise KeyboardInterrupt

    m = model(hidden_layer_sizes=(6,), callbacks=[interrupt])
    with pytest.warns(ConvergenceWarning, match="after 4 iterations: interrupted"):
        m.fit(TABLE.X[:200], TABLE.y[:200])
    assert m.outcome_ == "interrupted"
    assert np.all(np.isfinite(m.predict(TABLE.X)))


def test_a_grid_search_over_a_pipeline():
    X = np.random.default_rng(0).standard_normal((100, 2))
    search = GridSearchCV(
        make_pipeline(StandardScaler(), model(hidden_layer_sizes=(4,))),
        {"lipschitzregressor__lipschitz": [0.001, 10.0]},
        cv=2,
    )
    search.fit(X, X[:, 0])
    assert search.best_params_ == {"lipschitzregressor__lipschitz": 10.0}


@pytest.mark.parametrize("scaling", ["standard", "max", "paper"])
def test_data_beyond_the_range_are_named_before_training(scaling):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    model = LipschitzRegressor((3,), selection=False, max_iter=2, scaling=scaling)
    y = X @ [1.0, 2.0, -1.0]
    for power in (-165, -101, 101, 165):
        for name, a, b in (("X", 10.0**power, 1.0), ("y", 1.0, 10.0**power)):
            with pytest.raises(ValueError, match=f"{name} is .*expected 1e-100 to 1e\\+100"):
                model.fit(a * X, b * y)
    expected = model.set_params(random_state=0).fit(X, y).predict(X)
    for a, b in ((1e-98, 1e98), (1e98, 1e-98), (1e-98, 1e-98), (1e98, 1e98)):
        model.fit(a * X, b * y)
        assert certificate.verify(model.certificate_, model)
        np.testing.assert_allclose(model.predict(a * X) / b, expected, rtol=1e-6, atol=1e-9)


def test_rounding_never_looks_like_a_steeper_slope():
    """Inputs that are large beside their differences, and float32 weights."""
    rng = np.random.default_rng(0)
    X = 1e8 + rng.standard_normal((100, 2))
    for scaling in ("max", "standard"):
        model = LipschitzRegressor((5,), selection=False, scaling=scaling, max_iter=5)
        model.set_params(dtype="float32", random_state=0).fit(X, X[:, 0] - 1e8)
        f = model.predict(X)
        run = np.linalg.norm(X[:, None] - X[None], axis=2) + np.eye(100)
        assert np.max(np.abs(f[:, None] - f) / run) <= model.certificate_.value


def test_weights_of_any_size():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 2))
    for size in (1e-300, 1.0, 1e307):
        model = LipschitzRegressor((3,), selection=False, max_iter=2, random_state=0)
        model.fit(X, X[:, 0], sample_weight=rng.uniform(0.5, 1, 30) * size)
        assert np.all(np.isfinite(model.predict(X)))
