"""Vary each constant of training on small batches, its directions, and the rule of its angle.

    python benchmarks/wide_constants.py --data FOLDER [--seeds N]

Trains the networks of some cases of `wide_cases.py` with a fixed number of steps. Each constant is
halved and doubled (of a decay, one minus it). Muon is tried, too, and two directions that the
library does not have are defined here: Adam's scaling without a basis, and SOAP in the eigenbasis
of the Kronecker factors. `limited` also turns by no more than the paper's second-order angle of the
batch, times a factor. Appends rows to wide_constants.jsonl; rows that are there are not measured
again. wide_page.py draws them.
"""

import argparse
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from greatcircle._runtime.threads import one_thread
from greatcircle.geometry import sphere
from greatcircle.objective.objective import layered
from greatcircle.optimise import arc as arcs
from greatcircle.optimise import random_batches
from greatcircle.optimise.directions import Muon, Soap, kronecker_momentum, soap
from greatcircle.optimise.directions.direction import Choice, Position, unit_speeds
from greatcircle.optimise.steps import Curvature, LinearDecay, Proposal, linear_decay
from greatcircle.training import methods
from wide import append, error, read
from wide_cases import load
from wide_peers import ours

ROWS = Path(__file__).with_name("wide_constants.jsonl")
STEPS = 2048
GAINS = {
    "kin40k 64-64": 0.3,
    "bike 128-128": 1.0,
    "elevators 128-128": 3.0,
    "protein 128-128": 0.3,
    "surrogate 25-30-15": 10.0,
}
"""The cases, with a target gain that suits them."""


def decays(name: str, module: Any, value: float) -> Iterator[tuple[str, str, Any, str, float]]:
    for factor in (0.5, 2.0):
        yield name, f"{factor:g}", module, name, 1 - factor * (1 - value)


def values(name: str, module: Any, value: float) -> Iterator[tuple[str, str, Any, str, float]]:
    for factor in (0.5, 2.0):
        found = factor * value
        yield name, f"{factor:g}", module, name, int(found) if isinstance(value, int) else found


OF_SOAP = [
    *values("DISTANCE", linear_decay, linear_decay.DISTANCE),
    *values("BATCH", random_batches, random_batches.BATCH),
    *decays("MEAN_DECAY", soap, soap.MEAN_DECAY),
    *decays("SQUARE_DECAY", soap, soap.SQUARE_DECAY),
    *decays("FACTOR_DECAY", soap, soap.FACTOR_DECAY),
    *values("SHORTEST_INTERVAL", soap, soap.SHORTEST_INTERVAL),
]
OF_KFAC = [
    *decays("MEAN_DECAY", kronecker_momentum, kronecker_momentum.MEAN_DECAY),
    *decays("FACTOR_DECAY", kronecker_momentum, kronecker_momentum.FACTOR_DECAY),
    *values("DAMPING", kronecker_momentum, kronecker_momentum.DAMPING),
]


@dataclass(frozen=True)
class AdamScaled:
    """The mean gradient, each entry divided by its root mean square."""

    def check(self, objective: Any) -> None:
        """Accept every objective."""

    def init(self, weights: Any) -> Any:
        return sphere.scale(weights, 0.0), sphere.scale(weights, 0.0)

    def choose(self, position: Position, state: Any) -> Choice:
        weights, gradient = position.weights, sphere.normalise(position.gradient)
        mean = sphere.scale(sphere.project(weights, state[0], position.radii), 0.9)
        mean = sphere.add(mean, gradient, 0.1)
        square = replace(state[1], rows=0.95 * state[1].rows + 0.05 * gradient.rows**2)
        tree = replace(mean, rows=-mean.rows / (jnp.sqrt(square.rows) + soap.TINY))
        heading = unit_speeds(sphere.project(weights, tree, position.radii))
        return Choice(heading, (mean, square))


@dataclass(frozen=True)
class KroneckerSoap:
    """SOAP in the eigenbasis of the Kronecker factors instead of Shampoo's."""

    def check(self, objective: Any) -> None:
        """Accept every objective."""

    def init(self, weights: Any) -> Any:
        return Soap().init(weights)

    def choose(self, position: Position, state: Any) -> Choice:
        objective = layered(position.objective, "direction KroneckerSoap", "Soap()")

        def factors() -> list[Any]:
            inputs, slopes = objective.kronecker(position.cache)
            pairs = zip(inputs, slopes, position.weights.shapes, strict=True)
            found = [(a[:m, :m], g[:n, :n]) for a, g, (m, n) in pairs]
            return [f / (jnp.trace(f) + soap.TINY) for pair in found for f in pair]

        # The factors of a refresh replace those of the gradient; the decay stays the same.
        interval = soap.refresh_interval(position.weights.shapes)
        refresh = state.steps % interval == 0
        given = jax.lax.cond(
            refresh, factors, lambda: [jnp.zeros_like(side.factor) for side in state.sides]
        )
        sides = tuple(
            side._replace(factor=jnp.where(refresh, (side.factor + 0.1 * f / 0.9), side.factor))
            for side, f in zip(state.sides, given, strict=True)
        )
        with patch.object(soap, "FACTOR_DECAY", 0.9999):  # hardly any of the gradient's own
            return Soap().choose(position, state._replace(sides=sides))


class Limited(eqx.Module):
    """Linear decay, but at most a multiple of the paper's second-order angle of the batch."""

    total: Any
    distance: Any
    factor: float = 1.0

    @property
    def cost(self) -> Any:
        return Curvature().cost

    def check(self, objective: Any) -> None:
        """Accept every objective."""

    def propose(self, start: Any) -> Proposal:
        slope = arcs.slope(start.arc, start.gradient)
        second = arcs.second_derivative(start.objective, start.arc, start.gradient, start.cache)
        limit = jnp.where(second > 0, -slope / second, jnp.inf)
        angle = LinearDecay(self.total, self.distance).propose(start).angle
        nan = jnp.full_like(angle, np.nan)
        return Proposal(jnp.minimum(angle, self.factor * jnp.maximum(limit, 0)), nan, nan)


def variants() -> Iterator[tuple[str, str, str, list[Any]]]:
    """Yield name, value, direction, and the patches of a variant."""
    for direction in ("soap", "k-fac"):
        yield "none", direction, direction, []
    for direction, constants in (("soap", OF_SOAP), ("k-fac", OF_KFAC)):
        for name, factor, module, attribute, value in constants:
            patches = [patch.object(module, attribute, value)]
            yield f"{direction}: {name}", factor, direction, patches
    others = {"muon": Muon(), "adam": AdamScaled(), "soap in Kronecker basis": KroneckerSoap()}
    for name, direction in others.items():
        yield "direction", name, "soap", [patch.dict(methods.BATCH_DIRECTIONS, soap=direction)]
    for factor in (1.0, 10.0):
        limited = [patch("wide_peers.LinearDecay", limited_by(factor))]
        yield "limited", f"{factor:g}", "soap", limited


def limited_by(factor: float) -> Any:
    return lambda total, distance: Limited(total, distance, factor)


@contextmanager
def patched(patches: list[Any]) -> Iterator[None]:
    """Apply patches; constants are compiled into programs, which are therefore forgotten."""
    with ExitStack() as stack:
        for one in patches:
            stack.enter_context(one)
        if patches:
            jax.clear_caches()
        yield
    if patches:
        jax.clear_caches()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("GREATCIRCLE_DATA"))
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    done = {(r["case"], r["name"], r["value"], r["seed"]) for r in read(ROWS)}
    for name, value, direction, patches in variants():
        with patched(patches), one_thread():
            for case_name, gain in GAINS.items():
                case = load(case_name, given.data)
                settings = {"gain": gain, "direction": direction, "steps": STEPS, "iterations": 0}
                for seed in range(given.seeds):
                    if (case_name, name, value, seed) in done:
                        continue
                    *_, last = ours(case, settings, seed, 0.0)
                    row = {"case": case_name, "name": name, "value": value, "seed": seed}
                    append(ROWS, row | {"error": error(case, last[1]())})
                    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
