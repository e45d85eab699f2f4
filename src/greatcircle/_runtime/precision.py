"""How JAX programs are compiled: in float32 or float64, without touching JAX's configuration.

JAX allows float64 only where its `enable_x64` is on. The library turns it on or off for its own
blocks of code, so that a result never depends on the user's configuration.
"""

import os
from contextlib import AbstractContextManager

import jax
import numpy as np
from numpy.typing import DTypeLike

__all__ = ["optimisation_level", "precision"]


def precision(dtype: DTypeLike) -> AbstractContextManager[None]:
    """Return a context in which JAX computes in `dtype`, whatever its configuration says."""
    return jax.enable_x64(np.dtype(dtype) == np.float64)


def optimisation_level(level: int) -> dict[str, int]:
    """Return compiler options that set LLVM's optimisation level, unless XLA_FLAGS sets it."""
    option = "xla_backend_optimization_level"
    return {} if option in os.environ.get("XLA_FLAGS", "") else {option: level}
