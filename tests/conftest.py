import os

# Tests compile hundreds of programs and run each only briefly, so compile without optimisation,
# which takes a quarter of the time. Flags in the environment take precedence. To test with
# the compiler settings of users, set
# XLA_FLAGS='--xla_backend_optimization_level=3 --xla_cpu_use_fusion_emitters=true'.
# Must be set before JAX starts.
os.environ["XLA_FLAGS"] = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1 "
) + os.environ.get("XLA_FLAGS", "")

# GREATCIRCLE_CHECK_SHAPES=1 checks types and array shapes at every call of the packages that work
# on JAX arrays. Must be installed before the library is imported.
if os.environ.get("GREATCIRCLE_CHECK_SHAPES"):
    from jaxtyping import install_import_hook

    packages = ("geometry", "network", "objective", "optimise")
    install_import_hook([f"greatcircle.{name}" for name in packages], "shape_checks.checked")

from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import settings

from greatcircle._runtime.precision import precision
from greatcircle.datasets import Table, ground_effect

# Compilation makes the first example of a property slow; the same examples on every machine.
settings.register_profile("greatcircle", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("greatcircle")


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_programs():
    """Free the mapped memory of compiled programs: a process may have only so many mappings."""
    yield
    jax.clear_caches()


@pytest.fixture
def x64():
    """Run the whole test with JAX in float64."""
    with precision(np.float64):
        yield


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Return the folder of the data files, which the project does not ship."""
    folder = os.environ.get("GREATCIRCLE_DATA", "")
    if not folder:
        pytest.skip("GREATCIRCLE_DATA is not set: the shared data files are not here")
    return Path(folder)


@pytest.fixture(scope="session")
def surrogate(data_folder: Path) -> Table:
    """Return the stand-in for the paper's Neural-Lander data."""
    path = data_folder / "neural_lander_surrogate.csv.gz"
    values = np.loadtxt(path, delimiter=",", skiprows=1)
    names = np.loadtxt(path, delimiter=",", max_rows=1, dtype=str).tolist()
    columns = dict(zip(names, values.T, strict=True))
    return Table(columns, ground_effect.INPUTS, ground_effect.TARGETS)
