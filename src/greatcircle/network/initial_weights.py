"""Random initial weights on their spheres, by one of four schemes."""

from collections.abc import Sequence

import numpy as np

from greatcircle.geometry.sphere import random_point

__all__ = ["SCHEMES", "checked_radii", "draw"]

SCHEMES = ("uniform", "normal", "orthogonal", "identity")

ORTHOGONAL_PART = 0.1
"""Factor of the orthogonal matrix that "identity" adds to the identity."""


def draw(
    rng: np.random.Generator,
    shapes: Sequence[tuple[int, int]],
    radii: Sequence[float],
    *,
    scheme: str,
    bias: bool,
) -> tuple[np.ndarray, ...]:
    """Return one float64 matrix for each shape, of the given Frobenius norms.

    With `bias` the last row of each matrix is zero.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"scheme is {scheme!r}; expected one of {', '.join(SCHEMES)}")
    matrices = []
    for i, (rows, columns) in enumerate(shapes):
        hidden = 0 < i < len(shapes) - 1
        linear = _matrix(rng, scheme, (rows - bias, columns), hidden)
        matrices.append(np.vstack([linear, np.zeros((int(bias), columns))]))
    return tuple(w * (r / np.linalg.norm(w)) for w, r in zip(matrices, radii, strict=True))


def checked_radii(radius: float | Sequence[float], depth: int) -> tuple[float, ...]:
    """Return one positive radius for each layer."""
    try:
        radii = np.asarray(radius, np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"radius is {radius!r}; expected one number or one for each of the {depth} layers"
        ) from None
    if radii.ndim == 0:
        radii = np.full(depth, float(radii))
    if radii.shape != (depth,):
        raise ValueError(
            f"radius has {radii.size} entries; expected one number or one for each of the "
            f"{depth} layers"
        )
    if not np.all((radii > 0) & np.isfinite(radii)):
        raise ValueError(f"radius is {radius!r}; expected positive, finite numbers")
    return tuple(radii.tolist())


def _matrix(
    rng: np.random.Generator, scheme: str, shape: tuple[int, int], hidden: bool
) -> np.ndarray:
    """Draw one matrix of any norm; `hidden` if it maps hidden units to hidden units."""
    if scheme == "uniform":
        bound = np.sqrt(6 / sum(shape))  # Xavier; normalisation removes the scale
        return rng.uniform(-bound, bound, shape)
    if scheme == "normal":
        return random_point(rng, shape, dtype=np.float64)
    tall = max(shape), min(shape)
    q, r = np.linalg.qr(rng.standard_normal(tall))
    q = q * np.sign(np.diagonal(r))  # uniform over the orthogonal matrices (Mezzadri 2007)
    q = q if tall == shape else q.T
    return np.eye(*shape) + ORTHOGONAL_PART * q if scheme == "identity" and hidden else q
