"""Initial weights, and the scaling of the targets that goes with them (Algorithm 1).

The scale of the targets determines how far the weights have to turn, and therefore the bound of the
trained network (`docs/scaling.md`):

| target scale | the scaled targets are |
|---|---|
| "gain" | of norm ∏‖W_i‖_op at most (Algorithm 1) |
| "output" | `target_gain` times the initial outputs of the network, in root mean square |
| a number | such that ∏μ_i is that Lipschitz bound in the units of the data |
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
from greatcircle.network.activations import Activation
from greatcircle.network.network import Network, Weights, checked_radii
from greatcircle.training.methods import Initialisation
from greatcircle.training.target_gain import automatic_target_gain, best_line, largest_target_gain

__all__ = ["absorb_factor", "initial_network", "initialise", "spectral_initialisation"]


def initial_network(
    initialisation: Initialisation,
    sizes: Sequence[int],
    inputs: np.ndarray,
    targets: np.ndarray,
    rng: np.random.Generator,
    *,
    scaling: str,
    activation: str | Activation = "relu",
    sample_weight: np.ndarray | None = None,
    dtype: DTypeLike = np.float32,
) -> tuple[Network, tuple[np.ndarray, ...], Scaling]:
    """Return a network, its initial weights and its scaling, from unscaled training rows."""
    network = Network(sizes, activation, bias=initialisation.bias)
    weights, fitted = initialise(
        network,
        inputs,
        targets,
        rng,
        scaling=scaling,
        target_scale=initialisation.target_scale,
        centred=initialisation.centred,
        scheme=initialisation.scheme,
        radius=initialisation.radius,
        target_gain=initialisation.target_gain,
        sample_weight=sample_weight,
        dtype=dtype,
    )
    return network, weights, fitted


def spectral_initialisation(
    network: Network,
    targets: np.ndarray,
    seed: int | np.random.Generator,
    *,
    scheme: str = "uniform",
    radius: float | Sequence[float] = 1.0,
    dtype: DTypeLike = np.float32,
) -> tuple[tuple[np.ndarray, ...], Scaling]:
    """Return random weights on their spheres and the scaling of the targets, Algorithm 1.

    Parameters
    ----------
    network
        The network to start.
    targets
        Targets of the training part, which determine Y_max.
    seed, scheme, radius, dtype
        As for `Network.initial_weights`.
    """
    return initialise(
        network,
        np.ones((len(targets), network.sizes[0])),  # not used by this scaling
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
    target_gain: float | None = None,
    sample_weight: np.ndarray | None = None,
    dtype: DTypeLike = np.float32,
) -> tuple[tuple[np.ndarray, ...], Scaling]:
    """Return initial weights, and the scaling that goes with them.

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
        Whether the mean of the targets is subtracted.
    radius
        As for `Network.initial_weights`; None chooses the radii so that the units of every layer
        start with a mean square of one, like the constant unit.
    target_gain
        For "output": root mean square of the scaled targets relative to the initial outputs. The
        larger it is, the lower the bound that training ends with, and the less the network follows
        noise. None chooses it from the data and the size of the network, see
        `automatic_target_gain` and `largest_target_gain`.
    sample_weight
        Weight of each row.
    """
    if target_gain is not None and not 0 < target_gain < np.inf:
        raise ValueError(f"target_gain is {target_gain!r}; expected a positive number, or None")
    dtype = checked_dtype(dtype)
    fitted = Scaling.fit(scaling, inputs, targets, centred=centred, sample_weight=sample_weight)
    weight = normalised_weights(sample_weight, len(inputs))
    sample, weight_in_sample = sample_rows(weight)
    scaled, centred_targets = fitted.inputs(inputs[sample]), targets - fitted.target_shift
    unit = network.initial_weights(seed, scheme=scheme, dtype=np.float64)
    radii = (
        _even_radii(network, unit, scaled, weight_in_sample)
        if radius is None
        else checked_radii(radius, network.depth)
    )
    weights = tuple(w * r for w, r in zip(unit, radii, strict=True))
    if target_scale == "gain":
        factor = _gain_factor(network, weights, centred_targets[weight > 0])
    elif target_scale == "output":
        # Automatic radii give every output a mean square of one.
        initial = float(np.sqrt(network.sizes[-1]))
        if radius is not None:
            initial = _root_mean_square(network.predict(weights, scaled), weight_in_sample)
        final = _root_mean_square(centred_targets, weight)
        factor = initial / final if final > 0 and initial > 0 else 1.0
        if target_gain is None:
            line = best_line(scaled, factor * centred_targets[sample], weight_in_sample)
            target_gain = min(
                automatic_target_gain(inputs, targets, network, sample_weight),
                largest_target_gain(network, radii, line),
            )
        factor *= target_gain
    elif isinstance(target_scale, Real) and 0 < float(target_scale) < np.inf:
        # A margin of 1e-6, because float32 weights keep their norms only approximately.
        factor = (1 + 1e-6) * fitted.bound(float(np.prod(radii))) / float(target_scale) or 1.0
    else:
        raise ValueError(
            f"target_scale is {target_scale!r}; expected 'gain', 'output' or a positive number"
        )
    return tuple(w.astype(dtype) for w in weights), replace(fitted, factor=factor)


def absorb_factor(
    weights: Sequence[np.ndarray], scaling: Scaling
) -> tuple[tuple[np.ndarray, ...], Scaling]:
    """Move the factor of the targets into the radius of the last layer.

    The loss then sees outputs in the units of the targets, which matters for every loss except the
    squared one. For a classifier the factor is the scale of the logits, and as part of a radius it
    counts in every bound.
    """
    last = np.asarray(weights[-1] / scaling.factor, weights[-1].dtype)
    return (*weights[:-1], last), replace(scaling, factor=1.0)


def _root_mean_square(values: np.ndarray, weight: np.ndarray) -> float:
    """Return the root of the mean squared norm of rows, weighted."""
    return float(np.sqrt(weight @ np.sum(values**2, axis=1)))


def _gain_factor(network: Network, weights: Sequence[np.ndarray], targets: np.ndarray) -> float:
    """Return ∏‖W_i‖_op / Y_max, where Y_max is one if all targets are zero."""
    largest = float(np.max(row_norms(targets)))
    gains = [np.linalg.norm(np.asarray(w, np.float64), 2) for w in network.linear(weights)]
    return float(np.prod(gains)) / (largest if largest > 0 else 1.0)


def _even_radii(
    network: Network, weights: Sequence[np.ndarray], inputs: np.ndarray, weight: np.ndarray
) -> tuple[float, ...]:
    """Return radii for which the units of every layer have a mean square of one."""
    with precision(np.float64):
        return tuple(np.asarray(_layer_by_layer(network, tuple(weights), inputs, weight)).tolist())


# Run once: a short compilation matters more than a fast program.
@partial(jax.jit, static_argnums=0, compiler_options=optimisation_level(0))
def _layer_by_layer(network: Network, weights: Weights, inputs: Array, weight: Array) -> Array:
    radii, h = [], inputs.T
    for w in weights:
        z = network.layer(h, w)
        size = jnp.sqrt(jnp.mean(z**2 @ weight))
        radii.append(jnp.where(size > 0, 1 / jnp.where(size > 0, size, 1), 1.0))
        h = network.activation(z * radii[-1])
    return jnp.stack(radii)
