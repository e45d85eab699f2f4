"""Thread limits hold inside their context only; optional packages are named if they are missing."""

import numpy as np
import pytest
import scipy.linalg  # noqa: F401, its library would otherwise be loaded during the test
from threadpoolctl import threadpool_info

from greatcircle._runtime.extras import require
from greatcircle._runtime.threads import one_thread


def blas_threads() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_one_thread_restores_the_limits() -> None:
    before = blas_threads()
    with one_thread():
        assert set(blas_threads()) == {1}
        with one_thread():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
    assert blas_threads() == before


def test_one_thread_restores_the_limits_after_an_error() -> None:
    before = blas_threads()
    with pytest.raises(ZeroDivisionError), one_thread():
        raise ZeroDivisionError
    assert blas_threads() == before


def test_require_imports_a_package_or_names_the_extra() -> None:
    assert require("numpy", "app", "nothing") is np
    message = r"a test needs the package no_such_package: pip install 'greatcircle\[app\]'"
    with pytest.raises(ImportError, match=message):
        require("no_such_package", "app", "a test")
