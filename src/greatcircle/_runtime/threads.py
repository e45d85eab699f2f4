"""The number of cores, and a context that runs linear algebra on one thread.

Where other work keeps the cores busy, the threads of a linear algebra library wait for each other:
0.9 s instead of 1.4 ms, once, for the singular values of a layer of 128 units. Afterwards they spin
for a while, which takes cores from XLA: `docs/scale.md`.
"""

import os
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

__all__ = ["cores", "one_thread"]


def one_thread() -> AbstractContextManager[Any]:
    """Return a context in which the linear algebra of NumPy and SciPy uses one thread.

    JAX's programs call SciPy's libraries for factorisations and singular values, so it holds for
    them as well. The earlier limits are restored when the context ends.
    """
    return _libraries().limit(limits=1, user_api="blas")


@cache
def cores() -> int:
    """Return the number of cores this process may use, as of the first call.

    Compiled programs depend on it, so it must not change later.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _libraries() -> Any:
    """Find the libraries once: the search takes longer than bounding a small network."""
    import scipy.linalg  # noqa: F401, only loaded libraries are found, and JAX loads it late
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
