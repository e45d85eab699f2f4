import os

# Tests compile hundreds of programs and run each for an instant: compile quickly, to slower code, a
# quarter of the time. What XLA_FLAGS already says counts, to test with the compiler as users have
# it: XLA_FLAGS='--xla_backend_optimization_level=3 --xla_cpu_use_fusion_emitters=true'. Must be set
# before JAX starts.
os.environ["XLA_FLAGS"] = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1 "
) + os.environ.get("XLA_FLAGS", "")

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
    """Each compiled program holds mapped memory, of which a process has a limited number."""
    yield
    jax.clear_caches()


@pytest.fixture
def x64():
    """JAX in float64 for the whole test."""
    with precision(np.float64):
        yield


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Folder of the data files that the project does not ship."""
    folder = os.environ.get("GREATCIRCLE_DATA", "")
    if not folder:
        pytest.skip("GREATCIRCLE_DATA is not set: the shared data files are not here")
    return Path(folder)


@pytest.fixture(scope="session")
def surrogate(data_folder: Path) -> Table:
    """The stand-in for the paper's Neural-Lander data."""
    path = data_folder / "neural_lander_surrogate.csv.gz"
    values = np.loadtxt(path, delimiter=",", skiprows=1)
    names = np.loadtxt(path, delimiter=",", max_rows=1, dtype=str).tolist()
    columns = dict(zip(names, values.T, strict=True))
    return Table(columns, ground_effect.INPUTS, ground_effect.TARGETS)
