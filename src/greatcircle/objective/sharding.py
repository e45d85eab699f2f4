"""Rows on several devices, of one process or of many.

JAX's own sharding: the rows of a problem become global arrays over a mesh of all devices, and every
sum over rows ends with one `psum` (`parts.py`). With `jax.distributed`, each process calls `spread`
with the rows that it has, and then all of them the same `descend`. What the loop decides by are
sums, the same everywhere, so all processes decide alike.
"""

from typing import Any

import jax
import numpy as np
from jax import Array
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from greatcircle._runtime.precision import precision
from greatcircle.objective.chunks import AXIS
from greatcircle.objective.problem import Problem, Structure


def spread(problem: Problem, weight: float | None = None) -> Problem:
    """The same problem with its rows on all devices; of several processes, with the rows of all.

    Parameters
    ----------
    problem
        With the rows of this process. Network, loss and precision are the same in all of them.
    weight
        Sum of the sample weights of these rows; by default their number. Only several processes
        need it, to weigh their rows against each other.

    Returns
    -------
    Problem
        For `descend`. On every device it has equally many rows: those that are missing are filled
        up with rows that do not count.

    Examples
    --------
    >>> import numpy as np
    >>> from greatcircle import Network, Problem, descend, spread
    >>> x = np.linspace(-1, 1, 50).reshape(-1, 1)
    >>> network = Network((1, 8, 1), "abs")
    >>> problem = spread(Problem(network, x, 0.2 * np.abs(x)))
    >>> descend(problem, network.initial_weights(seed=0)).loss < 1e-3
    True
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem is a {type(problem).__name__}; expected a Problem")
    if problem.mesh is not None:
        raise ValueError("the problem is spread over devices already; expected one that is not")
    if problem.window is not None:
        raise ValueError("the problem is a window of its rows; expected one with all of them")
    rows = problem.count
    weight = float(rows if weight is None else weight)
    if not 0 < weight < np.inf:
        raise ValueError(f"weight is {weight:g}; expected a positive number: a sum of weights")
    local = [rows, weight, float(problem.unit), float(problem.mean_square_input)]
    everyone = _gathered(np.array(local))
    fractions = everyone[:, 1] / np.sum(everyone[:, 1])
    # Units differ by process, and one of them will do: their mean is the loss of the zero function.
    unit, square = fractions @ everyone[:, 2:]
    mesh = Mesh(np.array(jax.devices()), (AXIS,))
    each = int(-(-np.max(everyone[:, 0]) // jax.local_device_count()))
    dtype, total = problem.dtype, each * jax.local_device_count()

    def placed(values: Any) -> Array:
        array = np.asarray(values)
        if rows < total:
            array = np.concatenate([array, np.zeros((total - rows, *array.shape[1:]), dtype)])
        return jax.make_array_from_process_local_data(
            NamedSharding(mesh, PartitionSpec(AXIS)), array, (each * mesh.size, *array.shape[1:])
        )

    def everywhere(value: float) -> Array:
        return jax.make_array_from_process_local_data(
            NamedSharding(mesh, PartitionSpec()), np.asarray(value, dtype), ()
        )

    with precision(dtype):
        share = np.asarray(problem.share) * dtype.type(fractions[jax.process_index()])
        leaves = [placed(values) for values in (problem.inputs, problem.targets, share)]
        structure = Structure(problem.network, problem.criterion, turned=False, mesh=mesh)
        return Problem.tree_unflatten(
            structure, [*leaves, everywhere(unit), everywhere(square), None]
        )


def _gathered(numbers: np.ndarray) -> np.ndarray:
    """A row of numbers from every process."""
    if jax.process_count() == 1:
        return numbers[None]
    with precision(np.float64):
        return np.asarray(multihost_utils.process_allgather(numbers))
