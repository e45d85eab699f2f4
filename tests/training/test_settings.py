"""Settings of a fit from the parameters of an estimator, and the names of methods."""

from dataclasses import FrozenInstanceError
from types import SimpleNamespace

import numpy as np
import pytest

from greatcircle import LipschitzClassifier, LipschitzRegressor, activations, directions, steps
from greatcircle.optimise.directions import Direction
from greatcircle.optimise.steps import Step
from greatcircle.optimise.stopping import DecreaseBelow, MaxIter
from greatcircle.training.methods import (
    DIRECTIONS,
    INITIALISATIONS,
    METHODS,
    STEPS,
    lookup,
    method_of,
)
from greatcircle.training.search import Candidate
from greatcircle.training.settings import (
    FLOAT64_ROWS,
    FLOAT64_ROWS_SELECTED,
    MAY_CHANGE,
    fit_settings,
)
from small import unless_types_are_checked


def settings(**changes):
    """Return the settings of an estimator's parameters, by default 8 and 4 hidden units."""
    parameters = LipschitzRegressor().get_params(deep=False) | changes
    return fit_settings(SimpleNamespace(**parameters), (8, 4))


@pytest.mark.parametrize(("selection", "iterations"), [(True, 1000), (False, 200)])
def test_the_defaults(selection, iterations):
    found = settings(selection=selection)
    assert found.direction is None  # `directions.automatic` chooses
    assert found.step == steps.Curvature()
    assert found.initialisation == INITIALISATIONS["auto"]
    assert found.scaling == "standard"
    assert found.max_iter == iterations
    assert found.stop == MaxIter(iterations) | DecreaseBelow(2e-3)
    assert found.stop_after(7) == MaxIter(7) | DecreaseBelow(1e-4)
    assert found.hidden_layer_sizes == (8, 4)
    assert found.activation is activations.get("relu")
    assert (found.budget, found.budget_iterations, found.batch_size) == (None, 60, None)
    assert found.starts_with_chunk
    assert (found.dtype, found.validation_fraction, found.patience) == ("auto", None, 10)
    assert found.callbacks == ()
    assert found.selects is selection
    assert (found.chooses_sizes, found.chooses_gain) == (True, True)
    assert (found.cv, found.ensemble, found.saturation) == ("auto", None, "auto")


def test_the_default_is_to_select():
    for kind in (LipschitzRegressor, LipschitzClassifier):
        assert kind().selection is True


@pytest.mark.parametrize(("method", "step"), [("ad", steps.Curvature()), ("mm", steps.Majorant())])
def test_the_papers_methods(method, step):
    found = settings(method=method)
    assert (found.direction, found.step) == (directions.Steepest(), step)
    assert found.initialisation == INITIALISATIONS["paper"]
    assert found.scaling == "paper"
    assert found.stop == MaxIter(200) | DecreaseBelow(0.0)
    assert not found.starts_with_chunk


@pytest.mark.parametrize("method", ["ad", "mm", ("auto", "curvature"), ("steepest", "curvature")])
def test_only_the_automatic_method_selects(method):
    found = settings(method=method, selection=True)
    assert not found.selects
    assert found.max_iter == 200


def test_what_is_given_is_not_chosen():
    assert not settings(hidden_layer_sizes=(5,)).chooses_sizes
    for given in ({"target_gain": 2.5}, {"lipschitz": 1.0}, {"radius": 1.0}):
        found = settings(**given)
        assert (found.selects, found.chooses_sizes, found.chooses_gain) == (True, True, False)
    found = settings(target_gain=np.float32(2.5), ensemble=np.int64(3), max_iter=7, tol=0.1)
    assert found.initialisation == INITIALISATIONS["auto"]._replace(target_gain=2.5)
    assert (found.ensemble, found.max_iter) == (3, 7)
    assert found.stop_after(5) == MaxIter(5) | DecreaseBelow(0.1)


def test_the_settings_of_a_candidate():
    found = settings(radius=2.0).with_candidate(Candidate((3, 2), 4.0))
    assert found.hidden_layer_sizes == (3, 2)
    expected = INITIALISATIONS["auto"]._replace(radius=2.0, target_gain=4.0)
    assert found.initialisation == expected
    assert found.step == settings().step


def test_parameters_replace_what_the_method_says():
    found = settings(method="ad", scaling="max", tol=0.1, max_iter=7, radius=2.0)
    assert found.scaling == "max"
    assert found.stop == MaxIter(7) | DecreaseBelow(0.1)
    assert found.budget_iterations == 7
    assert found.initialisation == INITIALISATIONS["paper"]._replace(radius=2.0)
    calls = [print, len]
    found = settings(early_stopping=True, validation_fraction=0.3, callbacks=calls, lipschitz=2)
    assert (found.validation_fraction, found.callbacks) == (0.3, (print, len))
    assert found.budget == 2.0
    assert isinstance(found.budget, float)


@pytest.mark.parametrize(
    ("batch_size", "expected", "starts_with_chunk"),
    [("auto", None, True), (None, None, False), (1, 1, False), (np.int64(50), 50, False)],
)
def test_batch_sizes(batch_size, expected, starts_with_chunk):
    found = settings(batch_size=batch_size)
    assert (found.batch_size, found.starts_with_chunk) == (expected, starts_with_chunk)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ("auto", (8, 4)),
        (5, (5,)),
        (np.int64(5), (5,)),
        ([5, 6], (5, 6)),
        (np.array([5, 6]), (5, 6)),
        ((), ()),
    ],
    ids=str,
)
def test_hidden_layer_sizes(sizes, expected):
    assert settings(hidden_layer_sizes=sizes).hidden_layer_sizes == expected


@pytest.mark.parametrize(
    ("selection", "most"), [(True, FLOAT64_ROWS_SELECTED), (False, FLOAT64_ROWS)]
)
def test_precision_follows_the_number_of_rows(selection, most):
    automatic = settings(selection=selection)
    assert automatic.dtype_for(most) == np.float64
    assert automatic.dtype_for(most + 1) == np.float32
    for dtype in ("float32", np.float32, np.dtype("float32")):
        assert settings(dtype=dtype).dtype_for(1) == np.float32
    assert settings(dtype="float64").dtype_for(10**9) == np.float64


def test_settings_are_frozen():
    with pytest.raises(FrozenInstanceError):
        settings().patience = 3


@unless_types_are_checked
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(
            ({"batch_size": wrong}, "expected a whole number of at least 1, 'auto', or None")
            for wrong in (0, -5, 2.5, True, "all")
        ),
        *(
            ({"hidden_layer_sizes": wrong}, "expected positive whole numbers, or 'auto'")
            for wrong in ((5, 0), (True,), 2.5, "wide", None, [[3, 4]])
        ),
        *(
            ({"callbacks": wrong}, "expected a list of functions")
            for wrong in (print, [print, 3], None)
        ),
        *(
            ({"validation_fraction": wrong}, r"expected a number in \(0, 1\)")
            for wrong in (0.0, 1.0, -0.1, np.nan, "0.1", None)
        ),
        *(
            ({"n_iter_no_change": wrong}, "expected a whole number of at least 1")
            for wrong in (0, 2.5, True, None)
        ),
        *(
            ({"tol": wrong}, "expected a non-negative number, or None")
            for wrong in (-1e-9, np.nan, "0")
        ),
        *(
            ({"lipschitz": wrong}, "expected a positive number, or None")
            for wrong in (0, -1.0, np.inf, np.nan, "1")
        ),
        *(
            ({"selection": wrong}, "expected True or False")
            for wrong in (0, 1, None, "auto", "yes")
        ),
        *(
            ({"target_gain": wrong}, "expected a positive number, or 'auto'")
            for wrong in (0, -1.0, np.inf, np.nan, "1", None)
        ),
        *(
            ({"ensemble": wrong}, "expected a whole number of at least 1, or 'auto'")
            for wrong in (0, -2, 2.5, True, None, "all")
        ),
        *(({"cv": wrong}, "expected 'auto', 'time'") for wrong in (1, 0, True, 2.5, None, "five")),
        ({"max_iter": -1}, "expected a non-negative whole number"),
        ({"dtype": "float16"}, "expected 'auto', 'float32' or 'float64'"),
        ({"dtype": None}, "expected 'auto', 'float32' or 'float64'"),
        ({"activation": "gelu"}, "is refused"),
        ({"method": "adam"}, "expected one of auto, ad, mm"),
    ],
    ids=str,
)
def test_wrong_parameters_are_named(changes, message):
    (name,) = changes
    with pytest.raises(ValueError, match=message) as caught:
        settings(**changes)
    assert str(caught.value).startswith(name)


@pytest.mark.parametrize("paper", [{"scaling": "paper"}, {"method": "ad"}, {"method": "mm"}])
def test_a_budget_needs_a_global_bound(paper):
    with pytest.raises(ValueError, match="has no global bound; use scaling='standard' or 'max'"):
        settings(lipschitz=1.0, **paper)
    if "method" in paper:
        assert settings(lipschitz=1.0, scaling="max", **paper).budget == 1.0


def test_parameters_that_may_change_are_parameters():
    assert set(MAY_CHANGE) <= set(LipschitzRegressor().get_params())
    assert set(MAY_CHANGE) - {"saturation"} <= set(LipschitzClassifier().get_params())


# Methods


def test_every_method_is_made_of_known_names():
    for name, names in METHODS.items():
        method = method_of(name)
        assert method.direction == DIRECTIONS[names.direction]
        assert method.step == STEPS[names.step]
        assert method.initialisation == INITIALISATIONS[names.initialisation]
        assert (method.scaling, method.tol, method.all_rows) == names[3:]
    assert all(d is None or isinstance(d, Direction) for d in DIRECTIONS.values())
    assert all(isinstance(s, Step) for s in STEPS.values())
    for named in (DIRECTIONS, STEPS):
        assert len(set(named.values())) == len(named)  # no two names of one thing


def test_a_pair_of_names_or_objects_is_a_method():
    automatic = method_of("auto")
    direction, step = directions.GaussNewton(fraction=0.5), steps.Taylor(4)
    for pair, expected in (
        (("gauss-newton", "taylor4"), (directions.GaussNewton(), steps.Taylor(4))),
        ((direction, step), (direction, step)),
        ((direction, "majorant"), (direction, steps.Majorant())),
        (("auto", step), (None, step)),
    ):
        method = method_of(pair)
        assert (method.direction, method.step) == expected
        assert method[2:] == automatic[2:]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("sgd", "method is 'sgd'; expected one of auto, ad, mm"),
        (("sgd", "curvature"), "method's direction is 'sgd'; expected one of auto, steepest"),
        (("auto", "sgd"), "method's step is 'sgd'; expected one of curvature, compare"),
        (("auto", "curvature", "paper"), "expected one of auto, ad, mm, or a pair"),
        (["auto", "curvature"], "expected one of auto, ad, mm, or a pair"),
        (None, "method is None"),
    ],
    ids=str,
)
def test_wrong_methods_are_named(choice, message):
    with pytest.raises(ValueError, match=message):
        method_of(choice)


def test_lookup_lists_the_names():
    assert lookup({"a": 1, "b": 2}, "b", "letter") == 2
    with pytest.raises(ValueError, match="letter is 'c'; expected one of a, b"):
        lookup({"a": 1, "b": 2}, "c", "letter")
