"""The optimisers that are compared, by name: their functions and their learning rates to try.

A module is imported when one of its optimisers first runs, so that a missing package affects only
its own rows.
"""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

import numpy as np

from contenders.contest import Case, Watch

RATES = tuple(float(f"{r:.2g}") for r in np.geomspace(1e-4, 3e-1, 12))
SPHERE_RATES = tuple(float(f"{r:.2g}") for r in np.geomspace(1e-5, 3e-2, 12))
"""Ten times lower than `RATES`, because on that grid the lowest rate was the best."""


class Contender(NamedTuple):
    """Where its function is, and which learning rates are tried."""

    module: str
    function: str
    rates: tuple[float, ...] = ()
    rate_free: bool = True
    """Whether it has no learning rate to tune; `auto` then has to take at most half its time."""

    @property
    def compiles(self) -> bool:
        """Whether it runs in JAX, which chooses its number of threads itself."""
        return self.module in ("ours", "optax_networks", "trust_regions")

    @property
    def run(self) -> Callable[[Case, Watch], None]:
        return getattr(import_module(f"contenders.{self.module}"), self.function)


def tuned(module: str, function: str, rates: tuple[float, ...] = RATES) -> Contender:
    return Contender(module, function, rates, rate_free=False)


OURS = "auto"
OURS_TO_THE_END = "auto, tol=0"

CONTENDERS: dict[str, Contender] = {
    OURS: Contender("ours", "auto"),
    OURS_TO_THE_END: Contender("ours", "auto_without_tol"),
    "scikit-learn adam": tuned("sklearn_networks", "adam", RATES[2:7:2]),
    "scikit-learn lbfgs": Contender("sklearn_networks", "lbfgs"),
    "torch Adam, all rows": tuned("torch_networks", "adam_full"),
    "torch Adam, batches": tuned("torch_networks", "adam_batches"),
    "torch L-BFGS": Contender("torch_networks", "lbfgs"),
    "Prodigy": Contender("torch_networks", "prodigy"),
    "D-Adaptation": Contender("torch_networks", "d_adaptation"),
    "Schedule-Free": Contender("torch_networks", "schedule_free"),
    "DoG": Contender("torch_networks", "dog"),
    "optax L-BFGS": Contender("optax_networks", "lbfgs"),
    "geoopt Adam": tuned("spheres", "riemannian_adam"),
    "geoopt line-search CG": Contender("spheres", "line_search_cg"),
    "pymanopt trust regions": Contender("trust_regions", "trust_regions"),
    "hyperspherical descent": tuned("spheres", "hyperspherical", SPHERE_RATES),
}
