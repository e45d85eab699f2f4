"""Effect on Method 2 of searching linearly in t, in float32, instead of in log t.

These searches minimise the same majorant, on the same splits and initial weights:

- log t: `steps.Majorant` of the library;
- linear t: golden section over [0, π] with the library's formulas, to within √eps, the usual
  tolerance, or to within 1e-7;
- literal: the latter with Eq. (22) and (23) as printed: cos t − 1, P1 − P2, L(w) added.

    python benchmarks/linear_search.py data.csv.gz --targets fx fy fz --inputs ... --seeds 3 \
        --write
"""

import argparse
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from greatcircle import steps
from greatcircle.data import files
from greatcircle.datasets import Table
from greatcircle.experiments.run import PAPER_HIDDEN, job_of, train
from greatcircle.optimise.arc import ArcStart
from greatcircle.optimise.steps import Proposal, search
from greatcircle.optimise.steps.majorants import MajorantTerms, majorant_terms


def literal(terms: MajorantTerms, loss: Array, t: Array) -> Array:
    """Return the right-hand side of Eq. (22) as printed."""
    turning, Q = terms.turning, terms.inputs[0] ** 2 * terms.turning.curvature
    linear = jnp.sum(turning.alpha * (jnp.cos(t) - 1) - turning.beta * jnp.sin(t))
    cosine, sine = jnp.cos(t) - 1, jnp.sin(t)
    chord = cosine**2 * turning.WW + cosine * sine * turning.WU + sine**2 * turning.UU
    moved = jnp.sqrt(jnp.maximum(jnp.linalg.eigvalsh(chord)[..., -1], 0))
    P1, P2 = jnp.prod(turning.gain + moved), jnp.prod(turning.gain)
    return loss + linear + 0.5 * Q * (P1 - P2) ** 2


@dataclass(frozen=True)
class LinearSearch:
    """`Majorant`, searched linearly in t."""

    tolerance: float
    literal: bool = False
    cost: ClassVar = steps.Majorant().cost
    check: ClassVar = steps.Majorant().check

    def propose(self, start: ArcStart) -> Proposal:
        terms = majorant_terms(start)

        def value(t: Array) -> Array:
            return literal(terms, start.loss, t) if self.literal else terms.value(t)

        low, high = jnp.zeros_like(start.loss), jnp.full_like(start.loss, math.pi)
        angle, _ = search.golden(value, low, high, self.tolerance)
        return Proposal(angle, jnp.full_like(angle, jnp.nan), -terms.value(angle))


SEARCHES = {
    "log t": steps.Majorant(),
    "linear t, within √eps": LinearSearch(math.sqrt(np.finfo(np.float32).eps)),
    "linear t, within 1e-7": LinearSearch(1e-7),
    "literal, within 1e-7": LinearSearch(1e-7, literal=True),
}


def with_rms(table: Table, rms: float) -> Table:
    """Remove part of the targets' mean, so that their root mean square is `rms`."""
    mean = table.y.mean(axis=0)
    varying = table.y - mean
    part = math.sqrt(rms**2 - np.mean(np.sum(varying**2, axis=1))) / np.linalg.norm(mean)
    y = varying + part * mean
    changed = {name: y[:, i] for i, name in enumerate(table.targets)}
    return replace(table, columns={**table.columns, **changed})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--inputs", nargs="+")
    parser.add_argument("--targets", nargs="+", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=3000)
    parser.add_argument("--searches", nargs="+", choices=list(SEARCHES), default=list(SEARCHES))
    parser.add_argument(
        "--rms", type=float, help="remove part of the targets' mean to reach this root mean square"
    )
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    table = files.read(options.data, inputs=options.inputs, targets=options.targets)
    if options.rms:
        table = with_rms(table, options.rms)
    results = {}
    for name in options.searches:
        step = SEARCHES[name]
        runs = [
            train(table, replace(job_of("mm", PAPER_HIDDEN, options.iterations, seed), step=step))
            for seed in range(options.seeds)
        ]
        results[name] = {
            "train_rms": [round(r.train_rms, 4) for r in runs],
            "mean": round(float(np.mean([r.train_rms for r in runs])), 4),
            "iterations": [r.iterations for r in runs],
            "outcome": [r.outcome for r in runs],
            "halvings": sum(r.halvings for r in runs),
            "last_angle": [float(np.median(r.angle[-100:])) for r in runs],
        }
        print(name, results[name], flush=True)
    if options.write:
        path = Path(__file__).with_suffix(".json")
        path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
