"""The floating-point types that the library computes in."""

import numpy as np
from numpy.typing import DTypeLike

__all__ = ["FLOATS", "checked_dtype"]

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def checked_dtype(dtype: DTypeLike, *, also: str = "") -> np.dtype:
    """Return `dtype` as a NumPy dtype, or raise ValueError for other than float32 and float64.

    `also` lists other values that the caller accepts, for the error.
    """
    for known in FLOATS:
        if dtype is not None and known == dtype:
            return known
    raise ValueError(f"dtype is {dtype!r}; expected {also}'float32' or 'float64'")
