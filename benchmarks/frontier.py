"""Compare test error against certified bound with four Lipschitz-bounded networks in torch.

    python benchmarks/frontier.py PART --data FOLDER --cache FOLDER

The first folder contains neural_lander_surrogate.csv.gz and neural_fly.csv.gz. The network of each
test is written to the second. Each finished run is a row of benchmarks/frontier_rows.jsonl and is
not repeated. The parts:

    rivals    train, test and certify the four networks in torch
    ours      the same for LipschitzRegressor(lipschitz=L), without a selection
    table     write means and differences to ours to benchmarks/frontier.json
    figure    draw docs/images/frontier.png from that file

All networks are 12-25-30-15-3, ReLU, with biases. Inputs are standardised by the training rows for
all methods, so L is in newtons per standardised unit; every bound is `certificate.tight` of the
trained weights. Splits are those of beyond.py. For each data set and L the learning rate of a torch
network is the best of six on splits 0 and 1, by the error on a held-out fifth of the training rows;
it is then trained with that rate on all training rows of ten splits.
"""

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils import parametrizations

from beyond import tables
from greatcircle import LipschitzRegressor, certificate
from greatcircle.datasets import Table
from greatcircle.experiments.run import PAPER_HIDDEN, TRAIN_FRACTION

SIZES = (12, *PAPER_HIDDEN, 3)
BOUNDS = {
    "surrogate": (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0),
    "fly": (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
}
RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
SPLITS, TRIAL_SPLITS = 10, 2
BATCH, STEPS = 256, 6000
TOGETHER = 35  # networks at once, because a single small one does not use a processor fully
RESULTS = Path(__file__).with_suffix(".json")
OURS = "greatcircle"
Row = dict[str, Any]
Rows = tuple[np.ndarray, np.ndarray]


class Rival(nn.Module):
    """Many networks with torch's default initial weights, a bound and a seed for each."""

    def __init__(self, bounds: list[float], seeds: list[int]) -> None:
        super().__init__()
        self.bounds = torch.tensor(bounds)[:, None, None]
        networks = []
        for seed in seeds:
            torch.manual_seed(seed)
            networks.append([self.layer(*ends) for ends in itertools.pairwise(SIZES)])
        same = zip(*networks, strict=True)
        layers = [[torch.stack(part) for part in zip(*pairs, strict=True)] for pairs in same]
        self.matrices, self.biases = (nn.ParameterList(part) for part in zip(*layers, strict=True))

    def layer(self, fan_in: int, out: int) -> tuple[Tensor, Tensor]:
        layer = nn.Linear(fan_in, out)
        return layer.weight.detach(), layer.bias.detach()[:, None]

    def weights(self) -> list[Tensor]:
        """Return the weights of equivalent ReLU networks, (networks, out, in) for each layer."""
        return list(self.matrices)

    def after_step(self) -> None:
        """Project the weights, in methods that do."""


class Spectral(Rival):
    """Spectral normalisation, with the output multiplied by L.

    Equals torch's `spectral_norm` up to rounding, for the layers of all networks at once.
    """

    def __init__(self, bounds: list[float], seeds: list[int]) -> None:
        super().__init__(bounds, seeds)
        self.right = [torch.randn(len(seeds), n, 1) for n in SIZES[:-1]]
        for _ in range(15):
            self.weights()

    def weights(self) -> list[Tensor]:
        weights = []
        for i, w in enumerate(self.matrices):
            with torch.no_grad():
                left = normalize(w @ self.right[i], dim=1)
                self.right[i] = normalize(w.mT @ left, dim=1)
            weights.append(w / (left.mT @ w @ self.right[i]))
        return [*weights[:-1], self.bounds * weights[-1]]


class Orthogonal(Rival):
    """Torch's orthogonal parametrisation, with the output multiplied by L."""

    def __init__(self, bounds: list[float], seeds: list[int]) -> None:
        super().__init__(bounds, seeds)
        for i in range(len(self.matrices)):
            parametrizations.orthogonal(self.matrices, str(i), orthogonal_map="cayley")

    def weights(self) -> list[Tensor]:
        weights = [getattr(self.matrices, str(i)) for i in range(len(SIZES) - 1)]
        return [*weights[:-1], self.bounds * weights[-1]]


class Sandwich(Rival):
    """Sandwich layers: Wang and Manchester, Lipschitz-bounded deep networks, ICML 2023.

    h₀ = √L x, hᵢ = √2 Aᵢᵀ Ψᵢ σ(√2 Ψᵢ⁻¹ Bᵢ hᵢ₋₁ + bᵢ), y = √L B h + b with A Aᵀ + B Bᵀ = I: the
    Cayley transform of a free matrix, X (out × out) above Y (in × out), gives such A and B. Its
    norm is a parameter, as in the authors' code: 0.3% better on fly; more steps are no better.
    """

    def __init__(self, bounds: list[float], seeds: list[int]) -> None:
        super().__init__(bounds, seeds)
        self.log_psi = nn.ParameterList(torch.zeros(len(seeds), n, 1) for n in SIZES[1:-1])
        self.norms = nn.ParameterList(m.data.norm(dim=(1, 2))[:, None, None] for m in self.matrices)

    def layer(self, fan_in: int, out: int) -> tuple[Tensor, Tensor]:
        free = nn.init.xavier_normal_(torch.empty(out + fan_in, out))
        return free, super().layer(fan_in, out)[1]

    def weights(self) -> list[Tensor]:
        weights, root = [], self.bounds.sqrt()
        before = root * torch.eye(SIZES[0])
        scales = [*(2**0.5 / log_psi.exp() for log_psi in self.log_psi), root]
        for free, norm, scale, out in zip(
            self.matrices, self.norms, scales, SIZES[1:], strict=True
        ):
            XY = free * (norm / free.norm(dim=(1, 2), keepdim=True))
            X, Y, one = XY[:, :out], XY[:, out:], torch.eye(out)
            inverse = torch.linalg.inv(one + X - X.mT + Y.mT @ Y)
            A, B = (2 * inverse - one).mT, (-2 * Y @ inverse).mT
            weights.append(scale * (B @ before))
            before = 2 * A.mT / scale.mT  # √2 Aᵀ Ψ
        return weights


class Clipped(Rival):
    """As in Neural-Lander, scale down matrices of norm above L^(1/layers) after each step."""

    @torch.no_grad()
    def after_step(self) -> None:
        limit = self.bounds ** (1 / len(self.matrices))
        for w in self.matrices:
            norm = torch.linalg.matrix_norm(w.double(), 2, keepdim=True)
            w.mul_((limit / norm).clamp(max=1))


RIVALS = {"clipped": Clipped, "spectral": Spectral, "orthogonal": Orthogonal, "LBDN": Sandwich}


def train(rival: Rival, rate: float, rows: list[Rows]) -> list[list[np.ndarray]]:
    """Train by Adam with a cosine schedule, each network on its own rows; return w, b, w, b, ..."""
    X, y = (torch.tensor(np.stack(part, 1)).float() for part in zip(*rows, strict=True))
    optimiser = torch.optim.Adam(rival.parameters(), lr=rate, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    order = torch.Generator().manual_seed(0)
    epochs = (torch.randperm(len(X), generator=order).split(BATCH) for _ in itertools.count())
    batches = (batch for epoch in epochs for batch in epoch if len(batch) == BATCH)
    for batch in itertools.islice(batches, STEPS):
        h, targets = (part[batch].permute(1, 2, 0).contiguous() for part in (X, y))
        for i, (w, b) in enumerate(zip(rival.weights(), rival.biases, strict=True)):
            h = torch.baddbmm(b, w, h.relu() if i else h)
        optimiser.zero_grad()
        ((h - targets).square().sum() / BATCH).backward()
        optimiser.step()
        schedule.step()
        rival.after_step()
    layers = zip(rival.weights(), rival.biases, strict=True)
    arrays = [a.detach().double().numpy() for w, b in layers for a in (w.mT, b[:, :, 0])]
    return [[array[k] for array in arrays] for k in range(len(rows))]


def split(table: Table, seed: int, trial: bool = False) -> tuple[Rows, Rows]:
    """Return training rows, and test rows or, in a trial, a held-out fifth of the training rows."""
    order = np.random.default_rng(seed).spawn(2)[0].permutation(len(table))
    order = order[: int(TRAIN_FRACTION * len(order))] if trial else order
    first = int(TRAIN_FRACTION * len(order))
    X, y = table.X[order], table.y[order]
    X, y = (X - X[:first].mean(0)) / X[:first].std(0), y - y[:first].mean(0)
    return (X[:first], y[:first]), (X[first:], y[first:])


def rms(error: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.sum(error**2, axis=1))))


class Store:
    """The rows of all finished runs by data, method, L, split and, in a trial, learning rate."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.file = folder, Path(__file__).with_name("frontier_rows.jsonl")
        self.file.touch()
        rows = map(json.loads, self.file.read_text("utf-8").splitlines())
        self.rows = {self.key(row): row for row in rows}

    def key(self, row: Row) -> tuple[Any, ...]:
        rate = row["rate"] if row["test_rms"] is None else None
        return row["data"], row["method"], row["L"], row["split"], rate

    def add(self, row: Row) -> None:
        self.rows[self.key(row)] = row
        with self.file.open("a", encoding="utf-8") as file:
            print(json.dumps(row), file=file)
        print(json.dumps(row), flush=True)

    def select(self, *start: Any, trial: bool = False) -> list[Row]:
        """Return the rows whose key starts like this, by split."""
        found = [row for key, row in self.rows.items() if key[: len(start)] == start]
        kind = [row for row in found if trial == (row["test_rms"] is None)]
        return sorted(kind, key=lambda row: row["split"])


def run(store: Store, case: Any, method: str, rate: float, wanted: Any, trial: bool) -> None:
    """Train those networks (L, split) that have no row yet."""
    (name, table), known = case, rate if trial else None
    todo = [(L, seed) for L, seed in wanted if (name, method, L, seed, known) not in store.rows]
    for some in (todo[i : i + TOGETHER] for i in range(0, len(todo), TOGETHER)):
        parts = {seed: split(table, seed, trial) for _, seed in some}
        start = time.perf_counter()
        rival = RIVALS[method]([L for L, _ in some], [seed for _, seed in some])
        networks = train(rival, rate, [parts[seed][0] for _, seed in some])
        seconds = round((time.perf_counter() - start) / len(some), 2)
        for (L, seed), network in zip(some, networks, strict=True):
            h, y = parts[seed][1]
            for i in range(0, len(network), 2):
                h = (np.maximum(h, 0) if i else h) @ network[i] + network[i + 1]
            row: Row = {"data": name, "method": method, "L": L, "split": seed, "rate": rate}
            row |= {"test_rms": None, "validation_rms": None, "certified": None}
            row["validation_rms" if trial else "test_rms"] = rms(h - y)
            if not trial:
                row["certified"] = certificate.tight(
                    network[::2], biases=network[1::2], orientation="in-out"
                ).value
                np.savez(store.folder / f"{name}_{method}_{L}_{seed}.npz", *network)
            store.add(row | {"seconds": seconds})


def rivals(store: Store, data: dict[str, Table]) -> None:
    torch.set_num_threads(1)
    for method, case in itertools.product(RIVALS, data.items()):
        bounds, best = BOUNDS[case[0]], {}
        for rate in RATES:
            wanted = itertools.product(bounds, range(TRIAL_SPLITS))
            run(store, case, method, rate, wanted, trial=True)
        for L in bounds:
            trials = store.select(case[0], method, L, trial=True)
            errors = {r: [t["validation_rms"] for t in trials if t["rate"] == r] for r in RATES}
            best[L] = RATES[np.nanargmin([np.mean(errors[rate]) for rate in RATES])]
        for rate in RATES:
            wanted = itertools.product([L for L in best if best[L] == rate], range(SPLITS))
            run(store, case, method, rate, wanted, trial=False)


def ours(store: Store, data: dict[str, Table]) -> None:
    """Start at half the smallest L, because certified bounds can be below the given ones."""
    bounds = [(name, L) for name, all_of in BOUNDS.items() for L in (all_of[0] / 2, *all_of)]
    for seed, (name, L) in itertools.product(range(SPLITS), bounds):
        if (name, OURS, L, seed, None) in store.rows:
            continue
        (X, y), (test_X, test_y) = split(data[name], seed)
        model = LipschitzRegressor(
            PAPER_HIDDEN, lipschitz=L, selection=False, saturation=False, random_state=seed
        )
        start = time.perf_counter()
        model.fit(X, y)
        seconds = round(time.perf_counter() - start, 2)
        row = {"data": name, "method": OURS, "L": L, "split": seed, "rate": None}
        row |= {"test_rms": rms(model.predict(test_X) - test_y), "validation_rms": None}
        store.add(row | {"certified": certificate.tight(model).value, "seconds": seconds})


def compare(rows: list[Row], ours: list[Row], L: float) -> dict[str, Any]:
    """Return mean and standard error of each rival's RMS minus ours, at equal L and at equal bound.

    At equal bound, our curve of each split is interpolated in log L. Above its last point that
    point is used, which favours the rival; below its first, the difference is undefined.
    """
    differences = []
    for row in rows:
        curve = sorted((o["certified"], o["test_rms"]) for o in ours if o["split"] == row["split"])
        bounds, errors = np.array(curve).T
        level = np.interp(np.log(row["certified"]), np.log(bounds), errors, left=np.nan)
        same = [o["test_rms"] for o in ours if (o["L"], o["split"]) == (L, row["split"])]
        differences.append((row["test_rms"] - same[0], row["test_rms"] - float(level)))
    errors = np.std(differences, 0, ddof=1) / len(rows) ** 0.5
    asked, level = np.round([np.mean(differences, 0), errors], 5).T.tolist()
    return {"less ours, L asked": asked, "less ours, L certified": level}


def table(store: Store, _: dict[str, Table]) -> None:
    """Summarise complete results: all splits of an L, and differences if all of ours exist."""
    results: Row = {name: {method: [] for method in (OURS, *RIVALS)} for name in BOUNDS}
    for name, method in itertools.product(BOUNDS, (OURS, *RIVALS)):
        own = store.select(name, OURS)
        for L in sorted({row["L"] for row in store.select(name, method)}):
            rows = store.select(name, method, L)
            if len(rows) < SPLITS:
                continue
            entry: Row = {"L": L, "rate": rows[0]["rate"]}
            for column in ("test_rms", "certified", "seconds"):
                entry[column] = round(float(np.mean([row[column] for row in rows])), 5)
            entry["test_rms_each"] = [round(row["test_rms"], 5) for row in rows]
            if method != OURS and len(own) == SPLITS * (1 + len(BOUNDS[name])):
                entry |= compare(rows, own, L)
            results[name][method].append(entry)
            print(name, method, json.dumps(entry), flush=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def figure(_: Store, __: dict[str, Table]) -> None:
    results = json.loads(RESULTS.read_text("utf-8"))
    drawing, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    for axis, (name, methods) in zip(axes, results.items(), strict=True):
        for (method, entries), marker in zip(methods.items(), "osd^v", strict=True):
            bounds, errors = ([e[k] for e in entries] for k in ("certified", "test_rms"))
            width = 2.2 if method == OURS else 1.2
            axis.plot(bounds, errors, marker=marker, markersize=4, linewidth=width, label=method)
        axis.set(xscale="log", title=name, xlabel="certified L [N per standardised unit]")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel(f"test RMS [N], mean of {SPLITS} splits")
    axes[1].legend()
    drawing.savefig(RESULTS.parent.parent / "docs" / "images" / "frontier.png", dpi=110)


PARTS = {f.__name__: f for f in (rivals, ours, table, figure)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--data", type=Path, default=Path("."))
    parser.add_argument("--cache", type=Path, default=Path("runs/frontier"))
    options = parser.parse_args()
    data = tables(options.data) if options.part in ("rivals", "ours") else {}
    PARTS[options.part](Store(options.cache), data)


if __name__ == "__main__":
    main()
