"""The competitors of `wide.py`: generators that train a ReLU network part by part.

A competitor is a function of (case, settings, seed, passes). It first yields before training, and
then after each part. It yields the fraction of its training that is done, and a function that
returns its layers. Everything that happens between two yields is training, and is timed.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from torch.nn import functional

from contenders.contest import Layers
from contenders.ours import unscaled
from greatcircle.geometry import sphere
from greatcircle.objective.losses import SoftmaxCrossEntropy, Squared
from greatcircle.objective.problem import Problem
from greatcircle.optimise import directions, stopping
from greatcircle.optimise.loop import initial_state, iterate
from greatcircle.optimise.random_batches import RandomBatches, batch_size
from greatcircle.optimise.schedules import AllRows
from greatcircle.optimise.steps import Curvature, LinearDecay, linear_decay
from greatcircle.training.initialisation import absorb_factor, initial_network
from greatcircle.training.methods import BATCH_DIRECTIONS, INITIALISATIONS
from wide_cases import Case

__all__ = ["BATCH", "COMPETITORS", "OURS", "TUNED", "Competitor"]

BATCH = 256
"""Rows of a batch, where it is not tuned."""

PARTS = 30
"""A run is measured at least this many times, and at least once per pass."""

Training = Iterator[tuple[float, Callable[[], Layers]]]
Competitor = Callable[[Case, dict[str, Any], int, float], Training]


def targets_of(case: Case) -> np.ndarray:
    """Return targets as a matrix; classes are one-hot."""
    return case.y if case.classes is None else np.eye(case.classes, dtype=np.float32)[case.y]


def ours(case: Case, settings: dict[str, Any], seed: int, passes: float) -> Training:
    """Train as `LipschitzRegressor` and `LipschitzClassifier` do once they have chosen.

    Steps on small batches come first, then iterations on all rows; either may be zero.
    """
    regression, targets = case.classes is None, targets_of(case)
    network, weights, scaling = initial_network(
        INITIALISATIONS["auto"]._replace(target_gain=settings["gain"], centred=regression),
        case.sizes,
        case.X,
        targets,
        np.random.default_rng(seed),
        scaling="standard",
    )
    if not regression:
        weights, scaling = absorb_factor(weights, scaling)
    loss = Squared() if regression else SoftmaxCrossEntropy()
    problem = Problem(network, scaling.inputs(case.X), scaling.targets(targets), loss=loss)
    steps, iterations, last = settings["steps"], settings["iterations"], weights
    yield 0.0, lambda: unscaled(weights, scaling)
    # All rows cost about seven passes an iteration.
    total = steps * batch_size(len(case.X)) + 7 * iterations * len(case.X)
    done = 0.0
    if steps:
        direction = BATCH_DIRECTIONS[settings["direction"]]
        batches, stop = RandomBatches(problem, seed=seed), stopping.FirstOf(())
        # Not the default argument, which `wide_constants.py` could not change.
        step = LinearDecay(steps, linear_decay.DISTANCE)
        for update in _updates(batches, last, direction, step, stop):
            last = sphere.unpack(jax.device_get(update.state.point.weights))
            done = int(update.state.point.iteration) * batch_size(len(case.X))
            yield done / total, lambda w=last: unscaled(w, scaling)
    if iterations:
        direction, stop = directions.automatic(problem), stopping.MaxIter(iterations)
        for update in _updates(AllRows(problem), last, direction, Curvature(), stop):
            last = sphere.unpack(jax.device_get(update.state.point.weights))
            done += 7 * len(update.records) * len(case.X)
            yield done / total, lambda w=last: unscaled(w, scaling)


def shorter(
    divisor: int, case: Case, settings: dict[str, Any], seed: int, passes: float
) -> Training:
    """Train for a part of the steps and of the iterations."""
    part = {name: -(-settings[name] // divisor) for name in ("steps", "iterations")}
    return ours(case, settings | part, seed, passes)


def _updates(rows: Any, weights: Any, direction: Any, step: Any, stop: Any) -> Iterator[Any]:
    """Yield the updates of a run that have records."""
    radii = np.asarray(sphere.norm(sphere.pack(weights)))
    state = initial_state(weights, radii, direction, stop, rows)
    return (update for update in iterate(rows, state, direction, step, stop) if update.records)


def parts_of(rows: int, batch: int, passes: float) -> tuple[int, int]:
    """Return the number of parts of a run, and the steps of each."""
    steps = max(1, round(passes * rows / batch))
    parts = min(steps, max(PARTS, round(passes)))
    return parts, max(1, round(steps / parts))


def orders(rows: int, count: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the next `count` rows again and again, each pass in a new order."""
    rng, left = np.random.default_rng(seed), np.empty(0, int)
    while True:
        while len(left) < count:
            left = np.concatenate([left, rng.permutation(rows)])
        yield left[:count]
        left = left[count:]


def cosine(step: int, steps: int) -> float:
    return (1 + math.cos(math.pi * step / steps)) / 2


def on_torch(
    make: Callable[[Any, dict[str, Any]], torch.optim.Optimizer],
    case: Case,
    settings: dict[str, Any],
    seed: int,
    passes: float,
    *,
    scheduled: bool = True,
) -> Training:
    """Train with a torch optimiser from torch's default weights, by default with cosine decay."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    linear = [torch.nn.Linear(a, b) for a, b in pairwise(case.sizes)]
    pairs = [(layer.weight, layer.bias) for layer in linear]
    optimiser = make([p for pair in pairs for p in pair], settings)
    loss_of = functional.mse_loss if case.classes is None else functional.cross_entropy
    X, y = torch.from_numpy(case.X), torch.from_numpy(case.y)
    size = min(settings.get("batch", BATCH), len(X))
    parts, steps = parts_of(len(X), size, passes)
    drawn, rate = orders(len(X), steps * size, seed), optimiser.param_groups[0]["lr"]
    modes = hasattr(optimiser, "eval")

    def layers() -> Layers:
        if modes:
            optimiser.eval()
        found = [(w.detach().numpy().T.copy(), b.detach().numpy().copy()) for w, b in pairs]
        if modes:
            optimiser.train()
        return found

    yield 0.0, layers
    if modes:
        optimiser.train()
    for part in range(parts):
        rows = torch.from_numpy(next(drawn))
        batches = zip(X[rows].split(size), y[rows].split(size), strict=True)
        for number, (h, targets) in enumerate(batches, start=part * steps):
            if scheduled:
                optimiser.param_groups[0]["lr"] = rate * cosine(number, parts * steps)
            for w, b in pairs[:-1]:
                h = functional.linear(h, w, b).relu()
            loss = loss_of(functional.linear(h, *pairs[-1]), targets)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        yield (part + 1) / parts, layers


def adam(parameters: Any, settings: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=settings["rate"], fused=True)


def adamw(parameters: Any, settings: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=settings["rate"], weight_decay=0.01, fused=True)


def of_package(name: str, **options: Any) -> Callable[..., torch.optim.Optimizer]:
    """Return an optimiser of pytorch_optimizer, with defaults except for the options."""

    def make(parameters: Any, _: dict[str, Any]) -> torch.optim.Optimizer:
        import pytorch_optimizer

        return getattr(pytorch_optimizer, name)(parameters, **options)

    return make


def outputs_of(layers: Any, h: jax.Array) -> jax.Array:
    for w, b in layers[:-1]:
        h = jnp.maximum(h @ w + b, 0)
    return h @ layers[-1][0] + layers[-1][1]


def loss_of(layers: Any, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Return the mean loss of a batch, squared or, for integer targets, logarithmic."""
    found, targets = outputs_of(layers, batch[0]), batch[1]
    if targets.ndim == 1:
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(found, targets))
    return jnp.mean(jnp.sum((found - targets) ** 2, axis=1))


def glorot(case: Case, seed: int) -> list[tuple[jax.Array, jax.Array]]:
    keys = jax.random.split(jax.random.key(seed), len(case.sizes) - 1)
    make = jax.nn.initializers.glorot_uniform()
    pairs = zip(keys, pairwise(case.sizes), strict=True)
    return [(make(key, shape), jnp.zeros(shape[1])) for key, shape in pairs]


def host(layers: Any) -> Layers:
    return [(np.asarray(w), np.asarray(b)) for w, b in layers]


def blocks(case: Case, size: int, steps: int, seed: int) -> Iterator[tuple[jax.Array, jax.Array]]:
    """Yield the batches of each part, stacked."""
    for rows in orders(len(case.X), steps * size, seed):
        yield tuple(jnp.asarray(a[rows].reshape(steps, size, *a.shape[1:])) for a in case[:2])


@partial(jax.jit, static_argnames=("make", "averaged"))
def optax_part(layers, state, average, count, block, rate, total, *, make, averaged):
    """Take a step on each batch of a block."""

    def step(carry, batch):
        layers, state, average, count = carry
        optimiser = make(rate * (1 + jnp.cos(jnp.pi * count / total)) / 2)
        gradient = jax.grad(loss_of)(layers, batch)
        updates, state = optimiser.update(gradient, state, layers)
        layers = optax.apply_updates(layers, updates)
        if averaged:  # polynomial decay of order eight, as DoG's authors recommend
            part = 9.0 / (9.0 + count)
            average = jax.tree.map(lambda a, w: a + part * (w - a), average, layers)
        return (layers, state, average, count + 1), None

    return jax.lax.scan(step, (layers, state, average, count), block)[0]


def on_optax(
    make: Callable[[Any], optax.GradientTransformation],
    default: float,
    case: Case,
    settings: dict[str, Any],
    seed: int,
    passes: float,
    *,
    averaged: bool = False,
) -> Training:
    """Train with an optax optimiser in compiled scans, with cosine decay."""
    size, rate = min(settings.get("batch", BATCH), len(case.X)), settings.get("rate", default)
    parts, steps = parts_of(len(case.X), size, passes)
    layers = glorot(case, seed)
    state = (layers, make(rate).init(layers), layers, jnp.zeros(()))
    yield 0.0, partial(host, layers)
    drawn = blocks(case, size, steps, seed)
    for part in range(parts):
        state = optax_part(*state, next(drawn), rate, parts * steps, make=make, averaged=averaged)
        jax.block_until_ready(state)
        yield (part + 1) / parts, partial(host, state[2 if averaged else 0])


def muon(rate: Any) -> optax.GradientTransformation:
    return optax.contrib.muon(rate)


def dog(_: Any) -> optax.GradientTransformation:
    return optax.contrib.dog()


OURS = {"greatcircle": 1, "greatcircle, 1/4": 4, "greatcircle, 1/16": 16}
"""With the length of training that held-out error chose, and with a part of it."""

TUNED = ("Adam", "AdamW")
"""Those that get the rate and batch that are best for Adam."""

COMPETITORS: dict[str, Competitor] = {
    "Adam": partial(on_torch, adam),
    **{name: partial(shorter, divisor) for name, divisor in OURS.items()},
    "Adam in JAX": partial(on_optax, optax.adam, 3e-3),
    "AdamW": partial(on_torch, adamw),
    "Muon": partial(on_optax, muon, 0.02),
    "SOAP": partial(on_torch, of_package("SOAP")),
    "Schedule-Free": partial(on_torch, of_package("ScheduleFreeAdamW"), scheduled=False),
    "Prodigy": partial(on_torch, of_package("Prodigy")),
    "DoG": partial(on_optax, dog, 1.0, averaged=True),
}
