"""Average networks of one shape: the mean of their outputs is one wider network.

Its hidden layers are theirs side by side, with blocks of weights between them, so certificates,
files and exports need nothing new. The mean has at most the mean of their Lipschitz constants, and
less variance than each of them (`docs/selection.md`).
"""

from collections.abc import Sequence

import numpy as np
import scipy.linalg

__all__ = ["averaged"]


def averaged(networks: Sequence[Sequence[np.ndarray]], *, bias: bool) -> tuple[np.ndarray, ...]:
    """Return the weights of the mean of some networks.

    Parameters
    ----------
    networks
        Weights of each, (fan_in, fan_out), of the same shapes.
    bias
        Whether the last row of each matrix is its bias.
    """
    count, depth = len(networks), len(networks[0])
    layers = []
    for i, matrices in enumerate(zip(*networks, strict=True)):
        linear = [w[:-1] if bias else w for w in matrices]
        biases = [w[-1] if bias else np.zeros(w.shape[1]) for w in matrices]
        if i == depth - 1:
            layer, row = np.concatenate(linear) / count, np.mean(biases, axis=0)
        else:
            row = np.concatenate(biases)
            layer = np.hstack(linear) if i == 0 else scipy.linalg.block_diag(*linear)
        merged = np.vstack([np.asarray(layer), row]) if bias else layer
        layers.append(np.asarray(merged, matrices[0].dtype))
    return tuple(layers)
