"""Where training starts: initial weights, and the scaling that goes with them.

The scale of the targets decides how far the weights have to turn, and with that which bound the
trained network has (`docs/scaling.md`):

| target scale | the scaled targets are |
|---|---|
| "gain" | at most ∏‖W_i‖_op long (Algorithm 1) |
| "output" | `headroom` times the outputs of the initial network, in the root mean square |
| a number | such that ∏μ_i is that Lipschitz bound, in the units of the data: never exceeded |
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from numbers import Real

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import DTypeLike

from greatcircle._runtime.dtypes import checked_dtype
from greatcircle._runtime.precision import optimisation_level, precision
from greatcircle.data.checks import normalised_weights
from greatcircle.data.rows import row_norms, sample_rows
from greatcircle.data.scaling import Scaling
from greatcircle.network.network import Network, Weights, checked_radii
from greatcircle.objective.chunks import room_for
from greatcircle.training.target_gain import automatic_headroom, best_line, largest_headroom


def spectral_initialisation(
    network: Network,
    targets: np.ndarray,
    seed: int | np.random.Generator,
    *,
    scheme: str = "uniform",
    radius: float | Sequence[float] = 1.0,
    dtype: DTypeLike = np.float32,
) -> tuple[tuple[np.ndarray, ...], Scaling]:
    """Algorithm 1: random weights on their spheres, and the scaling that goes with them.

    Parameters
    ----------
    network
        The network to start.
    targets
        Of the training part: Y_max comes from them alone.
    seed, scheme, radius, dtype
        As for `Network.initial_weights`.
    """
    return initialise(
        network,
        np.ones((len(targets), network.sizes[0])),  # which this scaling does not look at
        targets,
        seed,
        scaling="paper",
        target_scale="gain",
        centred=False,
        scheme=scheme,
        radius=radius,
        dtype=dtype,
    )


def initialise(
    network: Network,
    inputs: np.ndarray,
    targets: np.ndarray,
    seed: int | np.random.Generator,
    *,
    scaling: str = "standard",
    target_scale: str | float = "output",
    centred: bool = True,
    scheme: str = "orthogonal",
    radius: float | Sequence[float] | None = None,
    headroom: float | None = None,
    sample_weight: np.ndarray | None = None,
    dtype: DTypeLike = np.float32,
) -> tuple[tuple[np.ndarray, ...], Scaling]:
    """Weights to start from, and the scaling that goes with them.

    Parameters
    ----------
    network
        The network to start.
    inputs, targets
        Of the training part, in their own units.
    seed, scheme, dtype
        As for `Network.initial_weights`.
    scaling
        One of `SCALINGS`.
    target_scale
        "gain", "output", or a Lipschitz bound in the units of the data.
    centred
        Whether the mean of the targets is taken off.
    radius
        As for `Network.initial_weights`; None chooses the radii so that the units of every layer
        start with a mean square of one, like the constant unit.
    headroom
        For "output": how many times larger than the initial outputs the targets are. The larger,
        the lower the bound that training ends with, and the less the network follows noise. None
        takes it from the data and the size of the network, see `automatic_headroom` and
        `largest_headroom`.
    sample_weight
        Weight of each row.
    """
    if headroom is not None and not 0 < headroom < np.inf:
        raise ValueError(f"headroom is {headroom!r}; expected a positive number, or None")
    dtype = checked_dtype(dtype)
    room_for(network.sizes, len(inputs), dtype)
    fitted = Scaling.fit(scaling, inputs, targets, centred=centred, sample_weight=sample_weight)
    share = normalised_weights(sample_weight, len(inputs))
    sample, sample_share = sample_rows(share)
    scaled, near = fitted.inputs(inputs[sample]), targets[sample] - fitted.target_shift
    unit = network.initial_weights(seed, scheme=scheme, dtype=np.float64)
    radii = (
        _even_radii(network, unit, scaled, sample_share)
        if radius is None
        else checked_radii(radius, network.depth)
    )
    weights = tuple(w * r for w, r in zip(unit, radii, strict=True))
    if target_scale == "gain":
        factor = _gain_factor(network, weights, (targets - fitted.target_shift)[share > 0])
    elif target_scale == "output":
        if radius is None:
            have = float(np.sqrt(network.sizes[-1]))  # that is what the radii were chosen for
        else:
            outputs = network.predict(weights, scaled)
            have = float(np.sqrt(sample_share @ np.sum(outputs**2, axis=1)))
        want = float(np.sqrt(share @ np.sum((targets - fitted.target_shift) ** 2, axis=1)))
        once = have / want if want > 0 and have > 0 else 1.0
        if headroom is None:
            headroom = automatic_headroom(inputs, targets, network, sample_weight)
            line = best_line(scaled, once * near, sample_share)
            headroom = min(headroom, largest_headroom(network, radii, line))
        factor = headroom * once
    elif isinstance(target_scale, Real) and 0 < float(target_scale) < np.inf:
        # A millionth to spare: float32 weights keep their norms only so well.
        factor = (1 + 1e-6) * fitted.bound(float(np.prod(radii))) / float(target_scale) or 1.0
    else:
        raise ValueError(
            f"target_scale is {target_scale!r}; expected 'gain', 'output' or a positive number"
        )
    return tuple(w.astype(dtype) for w in weights), replace(fitted, factor=factor)


def absorbed(
    weights: Sequence[np.ndarray], scaling: Scaling
) -> tuple[tuple[np.ndarray, ...], Scaling]:
    """The same start with the targets' factor moved into the last layer's radius.

    Then the loss sees outputs in the units of the targets, which matters for every loss but the
    squared one. For classes the factor is the scale of the logits, and in a radius it is counted
    in every bound.
    """
    last = np.asarray(weights[-1] / scaling.factor, weights[-1].dtype)
    return (*weights[:-1], last), replace(scaling, factor=1.0)


def _gain_factor(network: Network, weights: Sequence[np.ndarray], targets: np.ndarray) -> float:
    """∏‖W_i‖_op / Y_max. Targets that are all zero leave nothing to scale: Y_max is then one."""
    largest = float(np.max(row_norms(targets)))
    gains = [np.linalg.norm(np.asarray(w, np.float64), 2) for w in network.linear(weights)]
    return float(np.prod(gains)) / (largest if largest > 0 else 1.0)


def _even_radii(
    network: Network, weights: Sequence[np.ndarray], inputs: np.ndarray, share: np.ndarray
) -> tuple[float, ...]:
    """Radii that make the mean square of the units of every layer one, one layer at a time."""
    with precision(np.float64):
        return tuple(np.asarray(_radii_one_by_one(network, tuple(weights), inputs, share)).tolist())


# It runs once: a program that is quickly compiled is worth more than a quick one.
@partial(jax.jit, static_argnums=0, compiler_options=optimisation_level(0))
def _radii_one_by_one(network: Network, weights: Weights, inputs: Array, share: Array) -> Array:
    radii, h = [], inputs.T
    for w in weights:
        z = network.layer(h, w)
        size = jnp.sqrt(jnp.mean(z**2 @ share))
        radii.append(jnp.where(size > 0, 1 / jnp.where(size > 0, size, 1), 1.0))
        h = network.activation(z * radii[-1])
    return jnp.stack(radii)
