"""Models that clip inputs and outputs: predictions, derivatives, certificates, files."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from greatcircle import certificate, storage
from greatcircle._runtime.container import pack
from greatcircle.certificate import verify
from greatcircle.data.saturation import KINDS, Saturation
from greatcircle.data.scaling import Scaling
from greatcircle.model import Model
from greatcircle.network.activations import ACTIVATIONS
from greatcircle.storage.describe import describe
from greatcircle.storage.rebuild import rebuild
from small import ACTIVATION_NAMES, ROUNDING_FACTOR, random_network, rounding

SIZES = (3, 8, 6, 2)


def saturated(kind="both", activation="tanh", scaling="standard", seed=0, width=0.3):
    """Return a model of random weights; its third input has a range of one number."""
    rng = np.random.default_rng(seed)
    weights, biases = random_network(seed, SIZES, bias=True)
    X = [3, 0, 1] + rng.standard_normal((40, 3)) * [1, 5, 0.1]
    spread = Scaling.fit(scaling, X, np.zeros((40, 2)))
    model = Model(
        tuple(np.vstack([4 * w, b]) for w, b in zip(weights, biases, strict=True)),
        True,
        ACTIVATIONS[activation],
        replace(spread, target_shift=np.array([1.0, -2.0]), factor=0.7),
    )
    inside = X.mean(axis=0) + width * (X - X.mean(axis=0))
    inside[:, 2] = 1.1
    return replace(model, saturation=Saturation.fit(kind, inside, model.outputs(inside)))


def rows(model, count=300, seed=1):
    """Return rows around the box: a third inside, others up to a hundred deviations away."""
    rng = np.random.default_rng(seed)
    size = np.resize([0.1, 2.0, 100.0], count)[:, None]
    return np.array([3, 0, 1.1]) + size * rng.standard_normal((count, 3)) * [1, 5, 0.1]


@pytest.mark.parametrize("kind", [False, *KINDS])
def test_predictions_are_those_of_the_clipped_rows_clipped(kind):
    model, X = saturated(kind), rows(saturated())
    plain, limits = model.unsaturated(), model.saturation
    expected = limits.outputs(plain.outputs(limits.inputs(X)))
    assert np.array_equal(model.outputs(X), expected)
    if not kind:
        assert np.array_equal(model.jacobian(X), plain.jacobian(X))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scaling", ["standard", "max"])
def test_derivatives_are_those_of_differences(kind, scaling):
    model = saturated(kind, "tanh", scaling)
    X, step = rows(model), 1e-6
    X[:, 2] += 1e-3  # off the only number of its range
    found = model.jacobian(X)
    for i in range(3):
        move = step * np.eye(3)[i]
        difference = (model.outputs(X + move) - model.outputs(X - move)) / (2 * step)
        limits = model.saturation
        crosses = np.zeros(len(X), bool)
        for a, b in ((X + move, X - move),):
            if limits.clips_inputs:
                crosses |= np.any((limits.inputs(a) == a) != (limits.inputs(b) == b), axis=1)
            if limits.clips_outputs:
                plain = replace(model, saturation=replace_outputs(limits))
                fa, fb = plain.outputs(a), plain.outputs(b)
                crosses |= np.any((limits.outputs(fa) == fa) != (limits.outputs(fb) == fb), axis=1)
        assert crosses.mean() < 0.1
        scale = np.max(np.abs(found))
        assert np.max(np.abs(found[:, :, i] - difference)[~crosses]) <= 1e-6 * scale


def replace_outputs(limits):
    return replace(limits, output_lower=None, output_upper=None)


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
@pytest.mark.parametrize("scaling", ["standard", "max"])
def test_no_slope_and_no_pair_exceeds_a_bound(activation, scaling):
    for seed, kind in enumerate(KINDS):
        model = saturated(kind, activation, scaling, seed)
        plain = model.unsaturated()
        bounds = [model.certificate, certificate.fast(model), certificate.spectral(model)]
        group = certificate.tight(model, inputs=[0, 2])
        X = rows(model, seed=seed)
        found = certificate.lower(model, X=X, starts=32)
        slopes = np.linalg.norm(model.jacobian(X), 2, axis=(1, 2))
        at = np.linalg.norm(model.jacobian(found.at[None]), 2, axis=(1, 2))
        assert np.array_equal(model.saturation.inputs(found.at), found.at)
        assert at == pytest.approx([found.value], rel=1e-9)
        a, b = X[:-1], X[1:]
        c = np.where([True, False, True], b, a)
        rise, along = (np.linalg.norm(model.outputs(a) - model.outputs(e), axis=1) for e in (b, c))
        room = rounding(model, a) + rounding(model, b)
        for bound in bounds:
            assert verify(bound, model), str(verify(bound, model))
            assert max(found.value, slopes.max()) <= bound.value * ROUNDING_FACTOR
            assert np.all(rise <= bound.value * np.linalg.norm(a - b, axis=1) + room)
        assert verify(group, model)
        assert np.all(along <= group.value * np.linalg.norm(a - c, axis=1) + room)
        assert model.certificate.value <= plain.certificate.value * (1 + 1e-6)
        assert certificate.sdp(model).value >= model.certificate.value * (1 - 1e-3)


def test_the_bound_of_a_model_that_clips_its_inputs_is_that_inside_the_box():
    for activation in ("tanh", "relu", "softsign"):
        model = saturated("inputs", activation, "max")
        limits = model.saturation
        varying = [0, 1]  # the third input has a range of one number
        inside = certificate.local(model.unsaturated(), limits.lower, limits.upper, inputs=varying)
        bound = model.certificate
        assert bound.value == pytest.approx(inside.value, rel=1e-6)
        assert "everywhere" in str(bound)
        assert bound.value < 0.95 * model.unsaturated().certificate.value
        assert bound.scale[2] == 0


def test_local_bounds_of_boxes_that_reach_outside():
    """Far outside, clipping leads to the nearest inputs inside, which may be steeper."""
    model = saturated("inputs", "tanh")
    limits, rng = model.saturation, np.random.default_rng(0)
    size = np.maximum(limits.upper - limits.lower, 0.1)
    for shift in (0.0, 0.7, 3.0, [100.0, 0.5, 0.0]):
        low = limits.lower + shift * size
        high = low + 0.5 * size
        found = certificate.local(model, low, high)
        assert verify(found, model)
        assert "in a box" in found.holds
        assert not verify(found, model.unsaturated())
        assert found.value <= model.certificate.value * ROUNDING_FACTOR
        a, b = rng.uniform(low, high, (2, 400, 3))
        rise = np.linalg.norm(model.outputs(a) - model.outputs(b), axis=1)
        assert np.all(rise <= found.value * np.linalg.norm(a - b, axis=1) + rounding(model, a))
        assert np.all(np.linalg.norm(model.jacobian(a), 2, (1, 2)) <= found.value * ROUNDING_FACTOR)
    whole = certificate.local(model, np.full(3, -np.inf), np.full(3, np.inf))
    assert whole.value == pytest.approx(model.certificate.value)
    assert whole.holds == model.certificate.holds


def test_certificates_rely_on_the_box_of_the_model():
    model = saturated("inputs", "tanh")
    bound, limits = model.certificate, model.saturation
    assert "clipping of inputs" in str(verify(bound, model.matrices, model.biases))
    for change in (
        {"lower": limits.lower - 1},
        {"upper": limits.upper + np.array([1.0, 0, 0])},
        {"lower": None, "upper": None},
        {"upper": None},
        {"lower": limits.lower[:2]},
        {"lower": np.full(3, np.nan)},
        {"lower": limits.upper, "upper": limits.lower},
        {"low": limits.lower},
    ):
        assert not verify(replace(bound, box=replace(bound.box, **change)), model)
    assert not verify(replace(bound, box=None, holds="everywhere"), model)
    other = replace(model, saturation=replace(limits, upper=limits.upper + np.array([1.0, 0, 0])))
    assert "differently" in str(verify(bound, other))
    assert not verify(model.unsaturated().certificate, model)  # its third input varies


def test_a_network_that_normalises_rows_cannot_clip_them():
    model = saturated("outputs")
    paper = replace(model, scaling=replace(model.scaling, name="paper"))
    X = rows(model)
    assert np.array_equal(
        paper.outputs(X), paper.saturation.outputs(paper.unsaturated().outputs(X))
    )
    assert verify(paper.certificate, paper)
    with pytest.raises(ValueError, match="input box"):
        replace(paper, saturation=saturated("both").saturation)


def test_a_model_of_constant_outputs():
    model = saturated("outputs")
    limits = replace(model.saturation, output_upper=model.saturation.output_lower)
    constant = replace(model, saturation=limits)
    X = rows(model)
    assert np.all(constant.outputs(X) == limits.output_lower)
    assert not constant.jacobian(X).any()
    assert certificate.lower(constant, X=X, starts=8).value == 0


@pytest.mark.parametrize("kind", [False, *KINDS])
@pytest.mark.parametrize("activation", ["tanh", "relu", "leaky_relu", "abs"])
def test_files_keep_the_saturation_bit_for_bit(kind, activation, tmp_path):
    model, X = saturated(kind, activation), rows(saturated())
    storage.save(model, tmp_path / "model.safetensors")
    loaded = storage.load(tmp_path / "model.safetensors")
    copied = pickle.loads(pickle.dumps(loaded))
    for again in (loaded, copied):
        assert again.saturation.kind == kind
        for name, ends in vars(model.saturation).items():
            assert np.array_equal(getattr(again.saturation, name), ends)
        assert np.array_equal(again.outputs(X), model.outputs(X))
        assert np.array_equal(again.jacobian(X), model.jacobian(X))
        assert again.certificate == model.certificate


@pytest.mark.parametrize("kind", KINDS)
def test_altered_files_are_refused_or_sound(kind):
    model = saturated(kind, "tanh")
    tensors, texts = describe(model)
    rebuild(tensors, texts)
    names = [n for n in tensors if n.startswith(("saturation.", "certificate."))]
    for name in names:
        others = {n: t for n, t in tensors.items() if n != name}
        with pytest.raises(ValueError, match=r"no array|not part of a model|slopes"):
            rebuild(others, texts)
        for wrong in (np.full_like(tensors[name], np.nan), tensors[name][:-1], -tensors[name]):
            with pytest.raises(ValueError, match="its"):
                rebuild(tensors | {name: wrong}, texts)
    if model.saturation.clips_inputs:  # a larger box has steeper slopes, which are not proved
        for name, change in (("saturation.lower", -5.0), ("saturation.upper", 5.0)):
            with pytest.raises(ValueError, match="do not trust"):
                rebuild(tensors | {name: tensors[name] + change}, texts)
        with pytest.raises(ValueError, match="not part of a model"):
            rebuild(*describe_without_box(tensors, texts))
    assert len(pack(tensors, texts)) > 1000


def describe_without_box(tensors, texts):
    """Return the content of the unsaturated model, with the slopes of the box left in it."""
    model = saturated("both", "tanh").unsaturated()
    plain, texts = describe(model)
    slopes = {n: t for n, t in tensors.items() if n.startswith("certificate.slopes.")}
    return plain | slopes, texts
