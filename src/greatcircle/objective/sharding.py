"""Shard the rows of a problem over devices, of one process or of many.

The rows become global JAX arrays over a mesh of all devices, and every sum over rows ends with one
`psum` (`chunks.py`). With `jax.distributed`, each process calls `shard` with its own rows, and then
all call the same `descend`. Its decisions depend on such sums only, which are the same in all
processes, so all decide alike.
"""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import Array
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from greatcircle._runtime.precision import precision
from greatcircle.objective.chunks import AXIS, DeviceRows
from greatcircle.objective.problem import Problem

__all__ = ["shard"]


def shard(problem: Problem, weight: float | None = None) -> Problem:
    """Shard a problem's rows over all devices; with several processes, over the rows of all.

    Parameters
    ----------
    problem
        With the rows of this process. Network, loss and precision must be the same in all.
    weight
        Sum of the sample weights of these rows; by default their number. Only several processes
        need it, to weight their rows relative to each other.

    Returns
    -------
    Problem
        For `descend`. Every device has the same number of rows, padded with rows of weight zero.

    Examples
    --------
    >>> import numpy as np
    >>> from greatcircle import Network, Problem, descend, shard
    >>> x = np.linspace(-1, 1, 50).reshape(-1, 1)
    >>> network = Network((1, 8, 1), "abs")
    >>> problem = shard(Problem(network, x, 0.2 * np.abs(x)))
    >>> descend(problem, network.initial_weights(seed=0)).loss < 1e-3
    True
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem is a {type(problem).__name__}; expected a Problem")
    if problem.rows.mesh is not None:
        raise ValueError("the problem is already sharded over devices; pass the original problem")
    if problem.rows.window is not None:
        raise ValueError("the problem is a window, with part of its rows; pass the whole problem")
    rows = problem.count
    weight = float(rows if weight is None else weight)
    if not 0 < weight < np.inf:
        raise ValueError(
            f"weight is {weight:g}; expected a positive number, the sum of the sample weights"
        )
    local = [rows, weight, float(problem.unit), float(problem.mean_square_input)]
    gathered = _gathered(np.array(local))
    fractions = gathered[:, 1] / np.sum(gathered[:, 1])
    # Units differ between processes; their weighted mean is the loss of the zero function.
    unit, mean_square = fractions @ gathered[:, 2:]
    mesh = Mesh(np.array(jax.devices()), (AXIS,))
    per_device = int(-(-np.max(gathered[:, 0]) // jax.local_device_count()))
    dtype, padded = problem.dtype, per_device * jax.local_device_count()

    def sharded(values: Any) -> Array:
        array = np.asarray(values)
        if rows < padded:
            array = np.concatenate([array, np.zeros((padded - rows, *array.shape[1:]), dtype)])
        shape = (per_device * mesh.size, *array.shape[1:])
        sharding = NamedSharding(mesh, PartitionSpec(AXIS))
        return jax.make_array_from_process_local_data(sharding, array, shape)

    def replicated(value: float) -> Array:
        sharding = NamedSharding(mesh, PartitionSpec())
        return jax.make_array_from_process_local_data(sharding, np.asarray(value, dtype), ())

    with precision(dtype):
        local_weight = np.asarray(problem.rows.sample_weight)
        local_weight = local_weight * dtype.type(fractions[jax.process_index()])
        x, y, shares = map(sharded, (problem.inputs, problem.targets, local_weight))
        return eqx.tree_at(
            lambda p: (p.rows, p.unit, p.mean_square_input),
            problem,
            (DeviceRows(x, y, shares, mesh=mesh), replicated(unit), replicated(mean_square)),
        )


def _gathered(numbers: np.ndarray) -> np.ndarray:
    """Return a row of numbers from every process."""
    if jax.process_count() == 1:
        return numbers[None]
    with precision(np.float64):
        return np.asarray(multihost_utils.process_allgather(numbers))
