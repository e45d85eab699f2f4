"""torch: Adam on all rows and on batches, L-BFGS, and the optimisers that need no learning rate.

All train the same module from torch's default initial weights. Batches are drawn from tensors in
memory, which is several times faster than a `DataLoader` for data of this size.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn

from contenders.contest import GRADIENT, Case, Layers, Watch

BATCH = 256
"""The power of two nearest to scikit-learn's 200."""


def network(case: Case) -> nn.Sequential:
    torch.manual_seed(case.seed)
    layers: list[nn.Module] = []
    for fan_in, out in pairwise(case.sizes):
        layers += [nn.Linear(fan_in, out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def layers_of(model: nn.Module) -> Layers:
    linear = [m for m in model.modules() if isinstance(m, nn.Linear)]
    return [(m.weight.detach().numpy().T.copy(), m.bias.detach().numpy().copy()) for m in linear]


def tensors(case: Case) -> tuple[Tensor, Tensor]:
    return torch.tensor(case.X).float(), torch.tensor(case.y).float()


def batches(X: Tensor, y: Tensor, size: int | None, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches without end, in a new order in each epoch; `None` stands for all rows."""
    if size is None or size >= len(X):
        while True:
            yield X, y
    order = torch.Generator().manual_seed(seed)
    while True:
        for rows in torch.randperm(len(X), generator=order).split(size):
            yield X[rows], y[rows]


def squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs - y).square().sum(1).mean()


def first_order(
    case: Case,
    watch: Watch,
    optimiser_of: Callable[[nn.Module], torch.optim.Optimizer],
    batch: int | None = BATCH,
    averaged: Callable[[nn.Module], object] | None = None,
) -> None:
    """Run the usual training loop; test the evaluation weights of an optimiser that has some."""
    model, (X, y) = network(case), tensors(case)
    optimiser, done = optimiser_of(model), 0.0
    average = averaged(model) if averaged else None
    modes = hasattr(optimiser, "eval")

    def layers() -> Layers:
        if average:
            return layers_of(average.averaged_model)
        if not modes:
            return layers_of(model)
        optimiser.eval()
        found = layers_of(model)
        optimiser.train()
        return found

    if modes:
        optimiser.train()
    watch.start()
    for some, targets in batches(X, y, batch, case.seed):
        optimiser.zero_grad()
        squared_error(model(some), targets).backward()
        optimiser.step()
        if average:
            average.step()
        done += GRADIENT * len(some) / len(X)
        watch.look(done, layers)


def adam_full(case: Case, watch: Watch) -> None:
    first_order(case, watch, lambda m: adam_of(m, case.rate), None)


def adam_batches(case: Case, watch: Watch) -> None:
    first_order(case, watch, lambda m: adam_of(m, case.rate))


def adam_of(model: nn.Module, rate: float | None) -> torch.optim.Adam:
    """Train with fused Adam, the fastest in torch."""
    return torch.optim.Adam(model.parameters(), lr=1e-3 if rate is None else rate, fused=True)


def lbfgs(case: Case, watch: Watch) -> None:
    """Train with strong Wolfe search, measured at each evaluation."""
    model, (X, y) = network(case), tensors(case)
    optimiser = torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")
    done = 0

    def closure() -> Tensor:
        nonlocal done
        optimiser.zero_grad()
        loss = squared_error(model(X), y)
        loss.backward()
        done += 1
        watch.look(GRADIENT * done, lambda: layers_of(model))
        return loss

    watch.start()
    gains = True
    while gains:
        before = done
        optimiser.step(closure)
        gains = done > before + 1  # a call with one evaluation has found no step
    watch.look(GRADIENT * done, lambda: layers_of(model), last=True)


def prodigy(case: Case, watch: Watch) -> None:
    """Train with two options that its authors suggest; trial runs without them were worse."""
    from prodigyopt import Prodigy

    options = {"use_bias_correction": True, "safeguard_warmup": True}
    first_order(case, watch, lambda m: Prodigy(m.parameters(), **options))


def d_adaptation(case: Case, watch: Watch) -> None:
    """Train with two options that its authors suggest; trial runs without them diverged."""
    from dadaptation import DAdaptAdam

    options = {"use_bias_correction": True, "growth_rate": 1.02}
    first_order(case, watch, lambda m: DAdaptAdam(m.parameters(), **options))


def schedule_free(case: Case, watch: Watch) -> None:
    """Train without a schedule, at the default learning rate."""
    from schedulefree import AdamWScheduleFree

    first_order(case, watch, lambda m: AdamWScheduleFree(m.parameters()))


def dog(case: Case, watch: Watch) -> None:
    """Train with the averaging that its authors call crucial."""
    from dog import DoG, PolynomialDecayAverager

    first_order(case, watch, lambda m: DoG(m.parameters()), averaged=PolynomialDecayAverager)
