"""One of several processes that train together, for `test_scale.py`.

    python scale_script.py PROCESS COUNT PORT FOLDER [ITERATION AT WHICH PROCESS 1 DIES]

With a COUNT of 1 there is no `jax.distributed`. The result goes to FOLDER/PROCESS.npz.
"""

import os
import signal
import sys

import jax
import numpy as np

ROWS = 501


def main() -> None:
    process, count, port = map(int, sys.argv[1:4])
    folder, dies = sys.argv[4], int(sys.argv[5]) if len(sys.argv) > 5 else 0
    if count > 1:
        # At the end, processes wait for each other; do not wait long for one that died.
        wait = 5 if dies else 120
        address = f"127.0.0.1:{port}"
        jax.distributed.initialize(address, count, process, shutdown_timeout_seconds=wait)
    from greatcircle import Checkpoint, Network, Problem, descend, directions, shard, stopping
    from greatcircle.optimise import iterations
    from greatcircle.optimise.random_batches import RandomBatches
    from greatcircle.optimise.steps import LinearDecay

    iterations.MAX_LENGTH = 1  # so that process 1 can die between two iterations

    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, 4))
    Y = np.abs(X[:, :2]) + 0.1 * rng.standard_normal((ROWS, 2))
    weight = rng.uniform(0, 2, ROWS)
    network = Network((4, 8, 2))
    mine = np.array_split(np.arange(ROWS), [200] if count == 2 else count)[process]
    problem = Problem(network, X[mine], Y[mine], sample_weight=weight[mine])
    problem = shard(problem, weight[mine].sum())

    def callback(record, weights):
        if process == 1 and record.iteration == dies:
            os.kill(os.getpid(), signal.SIGKILL)

    result = descend(
        problem,
        network.initial_weights(0),
        checkpoint=Checkpoint(f"{folder}/checkpoint", resume=True),
        direction=directions.Kronecker(),
        stop=stopping.MaxIter(12),
        callback=callback,
    )
    found = {"loss": result.loss, "devices": jax.device_count()}
    if not dies:
        batches = descend(
            problem,
            network.initial_weights(0),
            direction=directions.Soap(),
            step=LinearDecay(128),
            rows=RandomBatches(problem, 32),
        )
        found |= {f"batches_{i}": w for i, w in enumerate(batches.weights)}
        found |= {"batches_loss": batches.loss, "batches_initial_loss": batches.initial_loss}
    np.savez(f"{folder}/{process}.npz", *result.weights, **found)


if __name__ == "__main__":
    main()
