"""Selection by held-out error: what is chosen, when, and that it resumes and repeats."""

import itertools
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold

import greatcircle
from greatcircle import LipschitzClassifier, LipschitzRegressor
from greatcircle.training import ladder, selection, train, trials
from greatcircle.training.ensemble import averaged
from greatcircle.training.trials import Trials

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (120, 2))
Y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * RNG.standard_normal(120)
LABELS = np.digitize(Y, [-0.5, 0.5])


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Few narrow candidates with few iterations."""
    monkeypatch.setattr(ladder, "WIDTHS", (5, 10))
    monkeypatch.setattr(ladder, "DEPTHS", (1, 2))
    monkeypatch.setattr(selection, "ITERATIONS", 20)


def model(kind=LipschitzRegressor, **options):
    return kind(**{"max_iter": 40, "ensemble": 2, "random_state": 0, **options})


def fit(kind=LipschitzRegressor, **options):
    return model(kind, **options).fit(X, Y if kind is LipschitzRegressor else LABELS)


def chosen(fitted):
    (row,) = [row for row in fitted.selection_.rows() if row.chosen]
    return row


@pytest.fixture
def candidates(monkeypatch):
    """Return a list of the candidates whose training has begun."""
    begun = []
    original = Trials.start

    def start(self, candidate, iterations, rival):
        begun.append(candidate)
        return original(self, candidate, iterations, rival)

    monkeypatch.setattr(Trials, "start", start)
    return begun


@pytest.mark.parametrize("kind", [LipschitzRegressor, LipschitzClassifier])
def test_the_model_is_the_chosen_candidate(kind):
    fitted = fit(kind)
    table, row = fitted.selection_, chosen(fitted)
    assert len({row[:2] for row in table.rows()}) == len(table.rows()) >= 3
    hidden = tuple(units // fitted.model_.networks for units in fitted.model_.sizes[1:-1])
    assert hidden == row.hidden_layer_sizes
    assert fitted.n_iter_ <= row.iterations <= 40
    assert set(table["parts"]) <= {2, 5}
    assert np.all(table["held_out_loss"] > 0)
    assert np.all(table["standard_error"] > 0)
    assert "chosen" in repr(table)
    # Only candidates that differ from it by less than their noise may be lower.
    assert row.held_out_loss <= np.min(table["held_out_loss"]) + 3 * row.standard_error


def test_same_seed_same_bits():
    one, two, other = fit(), fit(), fit(random_state=1)
    np.testing.assert_array_equal(one.predict(X), two.predict(X))
    assert repr(one.selection_) == repr(two.selection_) != repr(other.selection_)


@pytest.mark.parametrize("kind", [LipschitzRegressor, LipschitzClassifier])
def test_repeating_a_row_is_doubling_its_weight(kind):
    y = Y if kind is LipschitzRegressor else LABELS
    times = 1 + np.arange(len(X)) % 3
    weighted = model(kind).fit(X, y, sample_weight=times)
    repeated = model(kind).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_allclose(
        repeated.selection_["held_out_loss"], weighted.selection_["held_out_loss"], rtol=1e-6
    )
    np.testing.assert_allclose(
        repeated.selection_["standard_error"], weighted.selection_["standard_error"], rtol=1e-6
    )
    np.testing.assert_allclose(repeated.jacobian(X), weighted.jacobian(X), rtol=1e-3, atol=1e-4)


def test_rows_of_weight_zero_are_left_out():
    weight = np.ones(2 * len(X))
    weight[len(X) :] = 0
    with_zeros = model().fit(np.vstack([X, 10 + X]), np.append(Y, 100 * Y), sample_weight=weight)
    np.testing.assert_allclose(with_zeros.predict(X), fit().predict(X), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"selection": False},
        {"method": "ad"},
        {"method": "mm"},
        {"method": ("steepest", "curvature")},
    ],
)
def test_nothing_is_chosen_where_nothing_is_open(options, candidates):
    assert fit(**options, max_iter=3, ensemble=1).selection_ is None
    assert candidates == []


def test_nothing_is_chosen_in_partial_fit_and_warm_starts(candidates):
    fitted = model(warm_start=True)
    for _ in range(2):
        fitted.partial_fit(X, Y)
    assert candidates == []
    sizes = fitted.fit(X, Y).model_.sizes
    assert candidates == []
    fresh = model(warm_start=True).fit(X, Y)
    count = len(candidates)
    assert count > 0
    before = fresh.model_.sizes
    assert fresh.fit(X, Y).model_.sizes == before
    assert len(candidates) == count
    assert fitted.model_.sizes == sizes


def test_too_few_rows_give_one_fit():
    assert model().fit(X[:9], Y[:9]).selection_ is None


def test_what_is_given_is_respected(candidates):
    assert fit(hidden_layer_sizes=(7, 4), ensemble="auto").model_.sizes == (2, 7, 4, 1)
    assert {candidate.hidden_layer_sizes for candidate in candidates} == {(7, 4)}
    candidates.clear()
    fit(target_gain=2.5, hidden_layer_sizes=(6,))
    assert {candidate.target_gain for candidate in candidates} == {2.5}
    candidates.clear()
    fitted = fit(lipschitz=0.8, max_iter=20)
    assert fitted.certificate_.value <= 0.8
    assert {candidate.target_gain for candidate in candidates} == {None}
    assert len({candidate.hidden_layer_sizes for candidate in candidates}) > 1


def test_max_iter_is_an_upper_limit():
    fitted = fit(max_iter=7)
    assert fitted.n_iter_ <= 7
    assert max(fitted.selection_["iterations"]) <= 7


def test_early_stopping_shares_its_part(monkeypatch):
    seen = []
    original = selection.Trials
    monkeypatch.setattr(
        selection, "Trials", lambda *args, **more: seen.append(args) or original(*args, **more)
    )
    fitted = fit(early_stopping=True, hidden_layer_sizes=(6, 6), validation_fraction=0.25)
    ((_, _, _, rows, (part,), *_),) = seen
    assert (len(part.training), len(part.held_out)) == (90, 30)
    assert len(rows) == 120
    assert np.all(np.isfinite(fitted.history_["validation_loss"]))
    assert set(fitted.selection_["parts"]) == {1}


@pytest.mark.parametrize(
    ("cv", "parts"), [(3, 3), (KFold(4, shuffle=True, random_state=0), 4), ("time", 5)]
)
def test_cv_says_what_is_held_out(cv, parts):
    assert max(fit(cv=cv, hidden_layer_sizes=(6,)).selection_["parts"]) == parts


def test_groups_are_routed_through_a_grid_search():
    groups = np.repeat(np.arange(12), 10)
    estimator = model(hidden_layer_sizes=(5,), cv=GroupKFold(3), max_iter=20)
    with pytest.raises(ValueError, match="groups"):
        model(hidden_layer_sizes=(5,), cv=GroupKFold(3)).fit(X, Y)
    from sklearn import config_context

    with config_context(enable_metadata_routing=True):
        estimator = estimator.set_fit_request(groups=True)
        grid = GridSearchCV(estimator, {"activation": ["relu", "tanh"]}, cv=GroupKFold(2))
        grid.fit(X, Y, groups=groups)
    assert max(grid.best_estimator_.selection_["parts"]) == 3


class Stop(Exception):
    """Ends a fit from inside."""


def after(count, error, original):
    """Return a method of `Trials` that raises at its last call but one."""
    calls = itertools.count(1)

    def method(self, *args):
        if next(calls) > count:
            raise error
        return original(self, *args)

    return method


@pytest.mark.parametrize("finished", [1, 3])
def test_a_selection_resumes_with_the_same_bits(tmp_path, monkeypatch, candidates, finished):
    whole = fit(checkpoint=tmp_path / "whole")
    total = len(candidates)
    with monkeypatch.context() as patch:
        patch.setattr(Trials, "start", after(finished, Stop, Trials.start))
        with pytest.raises(Stop):
            fit(checkpoint=tmp_path / "cut", random_state=0)
    candidates.clear()
    again = fit(checkpoint=tmp_path / "cut", resume=True, random_state=5)
    assert len(candidates) == total - finished
    np.testing.assert_array_equal(again.predict(X), whole.predict(X))
    assert repr(again.selection_) == repr(whole.selection_)


def test_an_extension_resumes_with_the_same_bits(tmp_path, monkeypatch, candidates):
    # Nearly linear data without noise: the loss falls for a long time.
    y = X[:, 0] + 0.1 * X[:, 1]
    options = {"hidden_layer_sizes": (5,), "target_gain": 1.0, "max_iter": 80}
    whole = model(**options).fit(X, y)
    assert max(whole.selection_["iterations"]) > 20
    with monkeypatch.context() as patch:
        patch.setattr(Trials, "extend", after(0, Stop, Trials.extend))
        with pytest.raises(Stop):
            model(**options, checkpoint=tmp_path).fit(X, y)
    candidates.clear()
    again = model(**options, checkpoint=tmp_path, resume=True).fit(X, y)
    assert candidates == []
    np.testing.assert_array_equal(again.predict(X), whole.predict(X))


@pytest.mark.parametrize("change", [{"max_iter": 120}, {"tol": 0.02}])
def test_a_fit_resumed_with_another_limit_is_that_of_the_new_limit(tmp_path, change):
    options = {"hidden_layer_sizes": (6,), "ensemble": 1}
    fit(**options, max_iter=20, checkpoint=tmp_path)
    resumed = fit(**{**options, "max_iter": 20, **change}, checkpoint=tmp_path, resume=True)
    fresh = fit(**{**options, "max_iter": 20, **change})
    assert resumed.scaling_.factor == fresh.scaling_.factor
    if "max_iter" in change:
        np.testing.assert_array_equal(resumed.predict(X), fresh.predict(X))


def test_a_finished_fit_resumes_without_training(tmp_path, candidates):
    first = fit(checkpoint=tmp_path)
    candidates.clear()
    again = fit(checkpoint=tmp_path, resume=True)
    assert candidates == []
    np.testing.assert_array_equal(again.predict(X), first.predict(X))


def test_the_file_of_another_selection_is_refused(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trials, "start", after(1, Stop, Trials.start))
        with pytest.raises(Stop):
            fit(checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"selection.*belongs to another fit.* activation"):
        fit(checkpoint=tmp_path, resume=True, activation="tanh")
    (tmp_path / "selection.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="cannot resume from"):
        fit(checkpoint=tmp_path, resume=True)


@pytest.mark.parametrize("kind", [LipschitzRegressor, LipschitzClassifier])
def test_ctrl_c_keeps_the_best_candidate_and_trains_no_further(kind, monkeypatch):
    monkeypatch.setattr(Trials, "start", after(2, KeyboardInterrupt, Trials.start))
    monkeypatch.setattr(train, "fit", lambda *_, **__: pytest.fail("a new training began"))
    with pytest.warns(ConvergenceWarning, match="while candidates were compared"):
        fitted = fit(kind)
    assert fitted.outcome_ == "interrupted"
    assert len(fitted.selection_.rows()) == 2
    assert fitted.model_.networks == 1
    assert fitted.score(X, Y if kind is LipschitzRegressor else LABELS) > 0.3
    assert np.isfinite(fitted.loss_)


def test_ctrl_c_stops_runs_at_their_iteration(monkeypatch):
    """A worker thread does not see Ctrl-C: the first thread tells it to stop."""
    stopped = []

    def wait_interrupted(futures):
        raise KeyboardInterrupt

    original = trials.Trials._trained

    def trained(self, candidate, number, run, iterations, stop):
        result = original(self, candidate, number, run, iterations, stop)
        stopped.append((result.iterations, iterations))
        return result

    monkeypatch.setattr(trials, "wait", wait_interrupted)
    monkeypatch.setattr(trials.Trials, "_trained", trained)
    monkeypatch.setattr(selection, "ITERATIONS", 1000)
    with pytest.raises(KeyboardInterrupt):
        fit(max_iter=2000)
    assert all(done < allowed for done, allowed in stopped)


def test_targets_of_any_size_choose_the_same():
    folds = KFold(5, shuffle=True, random_state=0)  # the automatic ones depend on the content
    whole = fit(cv=folds)
    for size in (2.0**320, 2.0**-320):
        scaled = model(cv=folds).fit(X, Y * size)
        np.testing.assert_allclose(scaled.predict(X) / size, whole.predict(X), rtol=1e-9)
        for name, power in (("target_gain", 0), ("held_out_loss", 2), ("standard_error", 2)):
            np.testing.assert_allclose(
                scaled.selection_[name] / size**power, whole.selection_[name], rtol=1e-6
            )


def test_groups_are_held_out_by_early_stopping_too(monkeypatch):
    seen = []
    original = selection.Trials
    monkeypatch.setattr(
        selection, "Trials", lambda *args, **more: seen.append(args) or original(*args, **more)
    )
    groups = np.repeat(np.arange(12), 10)
    model(early_stopping=True, hidden_layer_sizes=(6,)).fit(X, Y, groups=groups)
    ((_, _, _, rows, (part,), *_),) = seen
    order = [int(np.flatnonzero((x == X).all(axis=1))[0]) for x in rows.inputs]
    of_rows = groups[order]
    assert not {*of_rows[part.training]} & {*of_rows[part.held_out]}


def test_groups_must_fit_the_rows():
    with pytest.raises(ValueError, match=r"groups has shape \(3,\)"):
        model(selection=False).fit(X, Y, groups=[1, 2, 3])


def test_radii_decide_the_depth(candidates):
    fit(radius=(1.0, 2.0, 1.5))
    assert {len(candidate.hidden_layer_sizes) for candidate in candidates} == {2}
    assert {candidate.target_gain for candidate in candidates} == {None}


def test_partial_fit_trains_one_network():
    fitted = model(hidden_layer_sizes=(6,), ensemble=3)
    for _ in range(2):
        assert fitted.partial_fit(X, Y).model_.sizes == (2, 6, 1)


def test_callbacks_see_only_the_final_fit():
    records = []
    fitted = fit(callbacks=[records.append], ensemble=1)
    assert [record.iteration for record in records] == list(range(1, fitted.n_iter_ + 1))


def test_a_stream_selects_on_its_sample(monkeypatch, candidates):
    from greatcircle.training import data

    monkeypatch.setattr(data, "SAMPLE", 60)
    monkeypatch.setattr(data, "FIRST_BATCH", 60)
    with pytest.raises(ValueError, match="groups are given with data larger than memory"):
        model().fit([(X, Y)] * 3, groups=np.zeros(360))
    fitted = model(max_iter=10, ensemble=1).fit([(X, Y)] * 3)
    assert len(candidates) >= 3
    assert chosen(fitted).hidden_layer_sizes == fitted.model_.sizes[1:-1]


def test_many_rows_continue_from_the_candidate(monkeypatch, candidates):
    monkeypatch.setattr(selection, "ROWS", 100)
    fitted = model(ensemble="auto").fit(X, Y)
    assert fitted.model_.networks == 1
    # It starts with trained weights, not with random ones.
    assert fitted.history_["loss"][0] < 2 * fitted.loss_


def test_many_inputs_are_compared_on_fewer_rows(monkeypatch, candidates):
    monkeypatch.setattr(selection, "CANDIDATE_OPERATIONS", 1.0)
    monkeypatch.setattr(selection, "FOLD_ROWS", 60)
    seen = []
    original = selection.Trials
    monkeypatch.setattr(
        selection, "Trials", lambda *args, **more: seen.append(args[3]) or original(*args, **more)
    )
    model(hidden_layer_sizes=(5,)).fit(X, Y)
    assert [len(rows) for rows in seen] == [60]


def test_several_networks_of_many_rows_differ(monkeypatch):
    monkeypatch.setattr(selection, "ROWS", 100)
    fitted = model(ensemble=2, hidden_layer_sizes=(5,), max_iter=10).fit(X, Y)
    first = fitted.weights_[0]
    assert first.shape == (3, 10)
    assert np.max(np.abs(first[:, :5] - first[:, 5:])) > 0.1


def test_the_mean_of_networks_is_one_network():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        options = {"selection": False, "hidden_layer_sizes": (5, 4), "saturation": False}
        one = fit(**options, ensemble=3, max_iter=15, dtype="float64")
        state = np.random.RandomState(0).randint(2**31)
    assert one.model_.networks == 3
    assert one.model_.sizes == (2, 15, 12, 1)
    separate = []
    for number in range(3):
        seeded = model(**options, ensemble=1, max_iter=15, dtype="float64")
        seeded.set_params(random_state=_FixedSeed(state + number))
        separate.append(seeded.fit(X, Y))
    mean = np.mean([fitted.predict(X) for fitted in separate], axis=0)
    np.testing.assert_allclose(one.predict(X), mean, rtol=1e-10)
    bounds = [fitted.certificate_.value for fitted in separate]
    assert one.certificate_.value <= np.mean(bounds) * (1 + 1e-6)
    assert one.loss_ == pytest.approx(np.mean((one.predict(X) - Y) ** 2) / 2)


class _FixedSeed(np.random.RandomState):
    """A random state whose first number is given."""

    def __init__(self, seed):
        super().__init__(0)
        self.given = seed

    def randint(self, *_, **__):
        return self.given


@pytest.mark.parametrize("bias", [True, False])
def test_averaged_weights_have_the_mean_output(bias):
    rng = np.random.default_rng(1)
    shapes = [(3 + bias, 4), (4 + bias, 5), (5 + bias, 2)]
    networks = [[rng.standard_normal(shape) for shape in shapes] for _ in range(4)]
    x = rng.standard_normal((7, 3))

    def outputs(weights):
        h = x
        for i, w in enumerate(weights):
            h = (np.hstack([h, np.ones((len(h), 1))]) if bias else h) @ w
            h = np.maximum(h, 0) if i < len(weights) - 1 else h
        return h

    mean = np.mean([outputs(weights) for weights in networks], axis=0)
    np.testing.assert_allclose(outputs(averaged(networks, bias=bias)), mean, rtol=1e-12)


def test_the_table_is_stored_with_the_model(tmp_path):
    fitted = fit()
    fitted.save(tmp_path / "m.safetensors")
    again = greatcircle.load(tmp_path / "m.safetensors")
    assert repr(again.selection_) == repr(fitted.selection_)
    assert again.model_.networks == fitted.model_.networks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"selection": "yes"}, "selection is 'yes'; expected True or False"),
        ({"cv": "shuffle"}, "cv is 'shuffle'"),
        ({"target_gain": -1.0}, "target_gain is -1.0"),
        ({"ensemble": 0}, "ensemble is 0"),
    ],
)
def test_wrong_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        fit(**options)
