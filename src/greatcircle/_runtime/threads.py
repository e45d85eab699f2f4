"""How many cores there are, and one thread for small matrices.

Where other work keeps the cores busy, the threads of a linear algebra library wait for each other:
0.9 s instead of 1.4 ms, once, for the singular values of a layer of 128 units. And when they are
done they go on looking for work for a while, which keeps cores from XLA: `docs/scale.md`.
"""

import os
from contextlib import AbstractContextManager
from functools import cache
from typing import Any


def one_thread() -> AbstractContextManager[Any]:
    """NumPy's and SciPy's linear algebra on one thread, as long as the context lasts.

    SciPy's is also the one that JAX's programs call for factors and singular values.
    """
    return _libraries().limit(limits=1, user_api="blas")


@cache
def cores() -> int:
    """Cores that this process may use, as it was when first asked: programs depend on it."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _libraries() -> Any:
    """The libraries, found once: looking for them takes longer than a small network's bound."""
    import scipy.linalg  # noqa: F401, JAX imports it late, and only what is there is found
    from threadpoolctl import ThreadpoolController  # scikit-learn brings it

    return ThreadpoolController()
