"""Memory that one iteration leaves to the next.

What the layers of a network have seen takes megabytes, which JAX gives back after each iteration.
The C library of Linux returns large pieces to the system, which fills new ones with zeros: up to
half of an iteration's time (`docs/scale.md`). While rows are passed over, it is told to keep them.

Threads have heaps of their own, of at most 64 MB. What wide networks need beyond that is kept only
where there is one heap for all. That must be said before JAX starts its threads, so it is said when
the first problem, or the start of one, is made (`room_for`). For small networks it is not: with one
heap, compilation takes a quarter longer, since its threads wait for each other.
"""

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

# Parameters of mallopt(3).
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -3, -4, -8

NEVER = 2**31 - 1

USUAL = {MMAP_THRESHOLD: 32 << 20, TRIM_THRESHOLD: 64 << 20, MMAP_MAX: 65_536}
"""Where glibc's own thresholds end when a program gives large pieces back, as numerical ones do."""

SETTINGS = ("GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "MALLOC_MMAP_", "MALLOC_TRIM_")
"""Variables by which users set these parameters themselves."""

KEEP = ":".join(
    f"glibc.malloc.{setting}"
    for setting in (
        "mmap_threshold=8589934592",
        "trim_threshold=8589934592",
        "arena_max=1",
        "hugetlb=1",
    )
)
"""GLIBC_TUNABLES of a new process that keeps all of its memory, in one heap and huge pages."""

_lock = threading.Lock()
_users = 0


@contextmanager
def kept() -> Iterator[None]:
    """While the context lasts, freed memory stays with the process; then more than 64 MB go back.

    Nothing happens where there is no glibc, or where the user has set its parameters.
    """
    library = _glibc()
    if library is None:
        yield
        return
    _count(library, 1)
    try:
        yield
    finally:
        _count(library, -1)


@cache
def one_heap() -> None:
    """One heap for all threads that start from now on, as long as the process lasts."""
    if library := _glibc():
        library.mallopt(ARENA_MAX, 1)


def _count(library: ctypes.CDLL, change: int) -> None:
    """Descents may run in several threads, and the parameters are those of all of them."""
    global _users
    with _lock:
        before, _users = _users, _users + change
        if before == 0:
            library.mallopt(MMAP_MAX, 0)
            library.mallopt(TRIM_THRESHOLD, NEVER)
        elif _users == 0:
            for parameter, value in USUAL.items():
                library.mallopt(parameter, value)


@cache
def _glibc() -> ctypes.CDLL | None:
    if any(name.startswith(SETTINGS) for name in os.environ):
        return None
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):  # no library that way, as on Windows
        return None
    return library if hasattr(library, "gnu_get_libc_version") else None
