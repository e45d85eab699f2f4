"""Other optimisers on the same spheres, for the same scaled problem as ours.

Scaling, radii and initial weights are those of `auto`. Each layer is its radius times a point of a
unit sphere, which the optimiser moves.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from contenders.contest import GRADIENT, Case, Layers, Watch
from contenders.ours import unscaled
from contenders.torch_networks import BATCH, batches, squared_error
from greatcircle.data.scaling import Scaling
from greatcircle.training.initialisation import initial_network
from greatcircle.training.methods import INITIALISATIONS, METHODS


class Scaled(NamedTuple):
    """Return the problem that `auto` solves."""

    X: np.ndarray
    y: np.ndarray
    points: list[np.ndarray]
    """Initial matrices of unit norm."""
    radii: list[float]
    scaling: Scaling

    def layers(self, points: list[np.ndarray]) -> Layers:
        pairs = zip(points, self.radii, strict=True)
        return unscaled([r * np.asarray(p) for p, r in pairs], self.scaling)


def scaled(case: Case) -> Scaled:
    method, rng = METHODS["auto"], np.random.default_rng(case.seed)
    start = INITIALISATIONS[method.initialisation]
    _, weights, scaling = initial_network(
        start, case.sizes, case.X, case.y, rng, scaling=method.scaling
    )
    radii = [float(np.linalg.norm(w)) for w in weights]
    points = [w / r for w, r in zip(weights, radii, strict=True)]
    X, y = scaling.inputs(case.X), scaling.targets(case.y)
    return Scaled(X.astype(np.float32), y.astype(np.float32), points, radii, scaling)


def outputs(points: list[Tensor], problem: Scaled, h: Tensor) -> Tensor:
    for i, (p, r) in enumerate(zip(points, problem.radii, strict=True)):
        w = r * p.view(problem.points[i].shape)
        h = torch.addmm(w[-1], h.relu() if i else h, w[:-1])
    return h


def looked_at(problem: Scaled, points: list[Tensor]) -> Layers:
    shapes = [p.shape for p in problem.points]
    flat = [p.detach().numpy().reshape(s) for p, s in zip(points, shapes, strict=True)]
    return problem.layers(flat)


def on_batches(
    case: Case,
    watch: Watch,
    points_of: Callable[[Scaled], list[Tensor]],
    step_of: Callable[[list[Tensor]], Callable[[], None]],
) -> None:
    problem = scaled(case)
    X, y, points = torch.tensor(problem.X), torch.tensor(problem.y), points_of(problem)
    step, done = step_of(points), 0.0
    watch.start()
    for some, targets in batches(X, y, BATCH, case.seed):
        for p in points:
            p.grad = None
        squared_error(outputs(points, problem, some), targets).backward()
        step()
        done += GRADIENT * len(some) / len(X)
        watch.look(done, lambda: looked_at(problem, points))


def on_geoopt(problem: Scaled, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Flatten each matrix, because geoopt's spheres consist of vectors."""
    import geoopt

    sphere = geoopt.Sphere()
    flat = (torch.tensor(p, dtype=dtype).flatten() for p in problem.points)
    return [geoopt.ManifoldParameter(p, manifold=sphere) for p in flat]


def riemannian_adam(case: Case, watch: Watch) -> None:
    from geoopt.optim import RiemannianAdam

    rate = 1e-3 if case.rate is None else case.rate
    on_batches(case, watch, on_geoopt, lambda points: RiemannianAdam(points, lr=rate).step)


def hyperspherical(case: Case, watch: Watch) -> None:
    """Step along the tangent part of the gradient, then divide by the norm."""
    rate = 1e-1 if case.rate is None else case.rate

    def points_of(problem: Scaled) -> list[Tensor]:
        return [torch.tensor(p, dtype=torch.float32, requires_grad=True) for p in problem.points]

    def step_of(points: list[Tensor]) -> Callable[[], None]:
        @torch.no_grad()
        def step() -> None:
            for p in points:
                tangent = p.grad - (p.grad * p).sum() * p
                p.sub_(tangent, alpha=rate)
                p.div_(p.norm())

        return step

    on_batches(case, watch, points_of, step_of)


def line_search_cg(case: Case, watch: Watch) -> None:
    """geoopt's conjugate gradients on all rows, with a strong Wolfe search.

    In float64, because in float32 the search soon finds no step and uses its fallback.
    """
    from geoopt.optim import RiemannianLineSearch

    problem = scaled(case)
    X, y = torch.tensor(problem.X).double(), torch.tensor(problem.y).double()
    points, done = on_geoopt(problem, torch.float64), 0
    optimiser = RiemannianLineSearch(
        points, line_search_method="wolfe", cg_method="pr", fallback_stepsize=1e-3
    )

    def closure() -> Tensor:
        nonlocal done
        optimiser.zero_grad()
        loss = squared_error(outputs(points, problem, X), y)
        loss.backward()
        done += 1
        return loss.detach()

    watch.start()
    while True:
        optimiser.step(closure)
        watch.look(GRADIENT * done, lambda: looked_at(problem, points))
