"""The contenders by name: who they are, whether they have a rate to tune, and what to import.

A family is imported when one of its contenders first runs, so that a package that is missing costs
its own rows only.
"""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

import numpy as np

from contenders.contest import Case, Watch

RATES = tuple(float(f"{r:.2g}") for r in np.geomspace(1e-4, 3e-1, 12))
SPHERE_RATES = tuple(float(f"{r:.2g}") for r in np.geomspace(1e-5, 3e-2, 12))
"""Ten times lower: the best of a higher grid was its lowest."""


class Contender(NamedTuple):
    """Where to find its function, and which rates are tried for it."""

    module: str
    function: str
    rates: tuple[float, ...] = ()
    rate_free: bool = True
    """Whether its users choose no learning rate, so that `auto` has to beat it by half."""

    @property
    def compiles(self) -> bool:
        """Whether it is JAX that computes, whose threads nobody chooses."""
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
