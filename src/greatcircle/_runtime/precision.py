"""How programs are compiled: in float32 or float64, without touching JAX's global configuration.

JAX allows float64 only where its `enable_x64` is on. The library turns it on for the block that
needs it, and off for the block that does not, so that a result never depends on what the user has
configured elsewhere.
"""

import os
from contextlib import AbstractContextManager

import jax
import numpy as np
from numpy.typing import DTypeLike

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def checked_dtype(dtype: DTypeLike, *, also: str = "") -> np.dtype:
    """Return `dtype` as a NumPy dtype, refusing what the library does not train in.

    `also` is what the caller takes besides, for the error.
    """
    for known in FLOATS:
        if dtype is not None and known == dtype:
            return known
    raise ValueError(f"dtype is {dtype!r}; expected {also}'float32' or 'float64'")


def precision(dtype: DTypeLike) -> AbstractContextManager[None]:
    """Context in which JAX computes in `dtype`, whatever the global configuration says."""
    return jax.enable_x64(np.dtype(dtype) == np.float64)


def optimised(level: int) -> dict[str, int]:
    """Compiler options for LLVM's effort, unless the user's XLA_FLAGS say something of it."""
    option = "xla_backend_optimization_level"
    return {} if option in os.environ.get("XLA_FLAGS", "") else {option: level}
