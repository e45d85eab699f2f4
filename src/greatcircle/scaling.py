"""Inputs and targets to the problem that is trained, and exactly back; and where training starts.

A scaling is fitted on the training part alone and then applied to any data. It carries the factors
that it puts on the network's Lipschitz bound. Three of them:

| scaling | inputs | the bound holds |
|---|---|---|
| "paper" | each row to norm one (Algorithm 1) | per unit of x/‖x‖ |
| "standard" | each column to mean zero and variance one, all by one divisor | everywhere |
| "max" | everything divided by the largest norm of a row | everywhere |

The scale of the targets is the other choice. It decides how far the weights have to turn, and with
that which bound the trained network has (`docs/scaling.md`):

| target scale | the scaled targets are |
|---|---|
| "gain" | at most ∏‖W_i‖_op long (Algorithm 1) |
| "output" | as large as the outputs of the initial network, in the mean square |
| a number | such that ∏μ_i is that Lipschitz bound, in the units of the data: never exceeded |

Everything here is NumPy float64: it runs once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, DTypeLike

from greatcircle.memory import room_for
from greatcircle.network import Network, Weights, checked_radii
from greatcircle.precision import checked_dtype, optimised, precision
from greatcircle.rows import pieces

SCALINGS = ("paper", "standard", "max")
TARGET_SCALES = ("gain", "output")


@dataclass(frozen=True)
class Scaling:
    """How data become the network's data: (x − shift) / spread / divisor, and the targets' factor.

    Parameters
    ----------
    name
        One of `SCALINGS`.
    shift, spread
        Of each input column.
    divisor
        Of all inputs.
    target_shift
        Subtracted from the targets: a bias of the output, which costs no Lipschitz constant.
    factor
        What the targets are then multiplied by.
    """

    name: str
    shift: np.ndarray
    spread: np.ndarray
    divisor: float
    target_shift: np.ndarray
    factor: float = 1.0

    @classmethod
    def fit(
        cls,
        name: str,
        inputs: np.ndarray,
        targets: np.ndarray,
        *,
        centred: bool = False,
        sample_weight: np.ndarray | None = None,
    ) -> "Scaling":
        """From the training part. Rows of weight zero do not count; `factor` is left at one.

        Parameters
        ----------
        name
            One of `SCALINGS`.
        inputs, targets
            Rows in their own units.
        centred
            Whether the mean of the targets is taken off.
        sample_weight
            Weight of each row.
        """
        if name not in SCALINGS:
            raise ValueError(f"scaling is {name!r}; expected one of {', '.join(SCALINGS)}")
        share = checked_share(sample_weight, len(inputs))
        columns = inputs.shape[1]
        shift, spread, divisor = np.zeros(columns), np.ones(columns), 1.0
        if name == "standard":
            shift = share @ inputs
            squares = (share[some] @ (inputs[some] - shift) ** 2 for some in pieces(len(inputs)))
            deviation = np.sqrt(sum(squares))
            # A column that does not vary, up to rounding, says nothing: the network never sees it.
            varies = deviation > 1e-12 * np.maximum(np.abs(shift), 1e-300)
            spread = np.where(varies, deviation, np.inf)
            divisor = float(np.sqrt(max(np.sum(varies), 1)))
        elif name == "max":
            largest = float(np.max(_row_norms(inputs[share > 0])))
            divisor = largest if largest > 0 else 1.0
        middle = share @ targets if centred else np.zeros(targets.shape[1])
        return cls(name, shift, spread, divisor, middle)

    def inputs(self, x: np.ndarray) -> np.ndarray:
        """Rows in their own units to the network's; a row of norm zero stays zero."""
        x = np.asarray(x, np.float64)
        if self.name == "paper":
            size = _row_norms(x)
            return np.divide(x, size, out=np.zeros_like(x), where=size > 0)
        x = x - self.shift
        x /= self.spread * self.divisor  # in place: a second copy of many rows takes as long again
        return x

    def targets(self, y: np.ndarray) -> np.ndarray:
        """Their own units to the network's."""
        return (np.asarray(y, np.float64) - self.target_shift) * self.factor

    def outputs(self, f: np.ndarray) -> np.ndarray:
        """The network's units back."""
        return np.asarray(f, np.float64) / self.factor + self.target_shift

    @property
    def is_global(self) -> bool:
        """Whether a Lipschitz bound holds for all inputs, and not only per unit of x/‖x‖."""
        return self.name != "paper"

    @property
    def scale(self) -> np.ndarray:
        """What each input is multiplied by; ones for "paper", per unit of x/‖x‖."""
        return 1 / (self.spread * self.divisor)

    def bound(self, gain: float) -> float:
        """Lipschitz bound in the units of the data of a network whose own bound is `gain`.

        For "paper" it is per unit of x/‖x‖.
        """
        return gain / (self.divisor * float(np.min(self.spread)) * self.factor)

    def chained(self, jacobian: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Jacobians (rows, outputs, inputs) of the network at `inputs(x)`, in the data's units."""
        jacobian = np.asarray(jacobian, np.float64) / self.factor
        if self.name != "paper":
            return jacobian / (self.spread * self.divisor)
        size, z = _row_norms(x), self.inputs(x)
        along = np.einsum("roi,ri->ro", jacobian, z)[:, :, None] * z[:, None, :]
        return np.divide(
            jacobian - along,
            size[:, :, None],
            out=np.zeros_like(jacobian),
            where=size[:, :, None] > 0,
        )

    def standard_bound(self, gain: float) -> float:
        """The same per standard deviation of the inputs, where the inputs are standardised."""
        return gain / (self.divisor * self.factor)


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
    share = checked_share(sample_weight, len(inputs))
    sample, sample_share = _looked_at(share)
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
            parameters = sum(w.size for w in weights)
            headroom = automatic_headroom(inputs, targets, parameters, sample_weight)
            line = _line(scaled, once * near, sample_share)
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


def automatic_headroom(
    inputs: np.ndarray,
    targets: np.ndarray,
    parameters: int,
    sample_weight: np.ndarray | None = None,
) -> float:
    """Headroom for the noise there may be: 35 × noise / signal × parameters / rows, in bounds.

    The noise is what a linear fit leaves, or half the mean squared difference between neighbours,
    whichever is less: each of them holds all of the noise, and what the function does besides. The
    signal is the rest. Rows count by their weight, and of very many a sample is looked at. The
    factor 35 and the bounds 1 and 100 are from the data sets of `docs/scaling.md`.
    """
    rows = len(inputs) if sample_weight is None else float(np.sum(sample_weight))
    sample, share = _looked_at(checked_share(sample_weight, len(inputs)))
    inputs, targets = inputs[sample], targets[sample]
    scaling = Scaling.fit("standard", inputs, targets, centred=True, sample_weight=share)
    x, y = scaling.inputs(inputs), scaling.targets(targets)
    all_of_it = float(share @ np.sum(y**2, axis=1))
    if all_of_it <= (1e-12 * np.max(np.abs(targets))) ** 2:  # targets that do not vary
        return HEADROOM[0]
    noise = min(_left_by_a_line(x, y, share), _between_neighbours(x, y, share))
    signal = max(all_of_it - noise, np.finfo(float).tiny)
    return float(np.clip(35 * noise / signal * parameters / rows, *HEADROOM))


def largest_headroom(network: Network, radii: Sequence[float], line: np.ndarray) -> float:
    """Half of the headroom at which matrices of these norms could just make a linear function.

    Matrices with the product B have norms whose product is at least the Schatten quasi-norm of
    order 2/L of B, with L the number of matrices. With more headroom than that, a network could not
    even be the best `line` (`docs/scaling.md`).
    """
    gains = np.linalg.svd(line, compute_uv=False)[: min(network.sizes)]
    needed = float(np.sum(gains ** (2 / network.depth)) ** (network.depth / 2))
    return 0.5 * float(np.prod(radii)) / needed if needed > 0 else np.inf


def _looked_at(share: np.ndarray) -> tuple[np.ndarray | slice, np.ndarray]:
    """Which rows to look at, and their weights: all, or a random sample by their weights."""
    if len(share) <= LOOKED_AT:
        return slice(None), share
    rng, alike = np.random.default_rng(0), share.min() == share.max()
    sample = (
        rng.choice(len(share), LOOKED_AT, replace=False)
        if alike
        else rng.choice(len(share), LOOKED_AT, p=share)
    )
    return np.sort(sample), np.full(LOOKED_AT, 1 / LOOKED_AT)


def _line(x: np.ndarray, y: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Best linear function, with a ridge that keeps it from leaning on inputs next to zero."""
    weighted = x.T * share
    square = weighted @ x
    ridge = 0.01 * np.trace(square) / len(square)
    return np.linalg.solve(square + (ridge or 1.0) * np.eye(len(square)), weighted @ y)


def _left_by_a_line(x: np.ndarray, y: np.ndarray, share: np.ndarray) -> float:
    """Mean square of what the best linear function leaves of centred targets."""
    root = np.sqrt(share)[:, None]
    left = root * (y - x @ np.linalg.lstsq(root * x, root * y, rcond=None)[0])
    return float(np.sum(left**2))


def _between_neighbours(x: np.ndarray, y: np.ndarray, share: np.ndarray) -> float:
    """Half the mean squared difference to the target of the nearest row, from some of the rows.

    A row that is there twice is no neighbour of itself: it counts once, with its weight.
    """
    rng = np.random.default_rng(0)
    counted = np.flatnonzero(share)
    some = rng.permutation(counted)[: 2 * NEIGHBOURS] if len(counted) > 2 * NEIGHBOURS else counted
    # Rows are the same where a random combination of their entries is.
    rows = np.hstack([x[some], y[some]])
    combined = np.sum(rows * rng.standard_normal(rows.shape[1]), axis=1)
    _, first, which = np.unique(combined, return_index=True, return_inverse=True)
    weight = np.bincount(which, share[some])
    if len(first) < 2:
        return np.inf
    chosen = rng.permutation(len(first))[:NEIGHBOURS]
    x, y, weight = x[some[first[chosen]]], y[some[first[chosen]]], weight[chosen]
    # As one product: squared distances, less what all of a row have in common. Which of two rows is
    # nearer by a millionth does not matter.
    x = x.astype(np.float32)
    ends = np.column_stack([-2 * x, np.sum(x**2, axis=1)]).T
    asked = np.arange(min(ASKED, len(x)))
    nearest = np.empty(len(asked), np.intp)
    for block in np.array_split(asked, -(-len(asked) // 200)):  # few enough for the cache
        distance = np.column_stack([x[block], np.ones(len(block), x.dtype)]) @ ends
        distance[np.arange(len(block)), block] = np.inf
        nearest[block] = np.argmin(distance, axis=1)
    apart = np.sum((y[asked] - y[nearest]) ** 2, axis=1)
    return 0.5 * float(np.average(apart, weights=weight[asked]))


HEADROOM = (1.0, 100.0)

LOOKED_AT = 32_768
"""Most rows that initial weights and headroom are taken from: more of them tell the same."""

NEIGHBOURS, ASKED = 10_000, 2_000
"""Among how many rows neighbours are looked for, and for how many of them."""


def _gain_factor(network: Network, weights: Sequence[np.ndarray], targets: np.ndarray) -> float:
    """∏‖W_i‖_op / Y_max. Targets that are all zero leave nothing to scale: Y_max is then one."""
    largest = float(np.max(_row_norms(targets)))
    gains = [np.linalg.norm(np.asarray(w, np.float64), 2) for w in network.linear(weights)]
    return float(np.prod(gains)) / (largest if largest > 0 else 1.0)


def _even_radii(
    network: Network, weights: Sequence[np.ndarray], inputs: np.ndarray, share: np.ndarray
) -> tuple[float, ...]:
    """Radii that make the mean square of the units of every layer one, one layer at a time."""
    with precision(np.float64):
        return tuple(np.asarray(_radii_one_by_one(network, tuple(weights), inputs, share)).tolist())


# It runs once: a program that is quickly compiled is worth more than a quick one.
@partial(jax.jit, static_argnums=0, compiler_options=optimised(0))
def _radii_one_by_one(network: Network, weights: Weights, inputs: Array, share: Array) -> Array:
    radii, h = [], inputs.T
    for w in weights:
        z = network.layer(h, w)
        size = jnp.sqrt(jnp.mean(z**2 @ share))
        radii.append(jnp.where(size > 0, 1 / jnp.where(size > 0, size, 1), 1.0))
        h = network.activation(z * radii[-1])
    return jnp.stack(radii)


def checked_share(sample_weight: ArrayLike | None, rows: int) -> np.ndarray:
    """Weight of each row, summing to one."""
    if sample_weight is None:
        return np.full(rows, 1 / rows)
    try:
        share = np.asarray(sample_weight, np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"sample_weight has entries that are not numbers; expected one weight for each of the "
            f"{rows} rows"
        ) from None
    if share.shape != (rows,):
        raise ValueError(
            f"sample_weight has shape {share.shape}; expected one weight for each of the "
            f"{rows} rows"
        )
    if not np.all(np.isfinite(share) & (share >= 0)) or share.sum() == 0:
        raise ValueError(
            "sample_weight must be finite, not negative, and not all zero; its entries are from "
            f"{share.min():g} to {share.max():g}"
        )
    return share / share.sum()


def _row_norms(x: np.ndarray) -> np.ndarray:
    """‖x‖ of each row as a column, without overflow or underflow of the squares."""
    largest = np.max(np.abs(x), axis=1, keepdims=True)
    scaled = np.divide(x, largest, out=np.zeros_like(x, np.float64), where=largest > 0)
    return largest * np.linalg.norm(scaled, axis=1, keepdims=True)
