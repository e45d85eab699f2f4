"""Majorants of the loss along an arc: the paper's, a tighter one, and a proved one.

Each is a small set of numbers computed at the start of the arc, and its value at any angle, less
L(w). `majorised.py` minimises them; `docs/method2.md` derives them and says what is proved and what
rests on the paper's Assumption 1.
"""

import math
from typing import NamedTuple, Protocol

import jax.numpy as jnp
from jax import Array

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Tree
from greatcircle.network import gains
from greatcircle.objective.objective import LayeredObjective, layered
from greatcircle.optimise.arc import ArcStart

__all__ = [
    "DataMajorantTerms",
    "MajorantTerms",
    "SmoothMajorantTerms",
    "Terms",
    "data_majorant_terms",
    "input_bounds",
    "majorant_terms",
    "smooth_majorant_terms",
]


class Terms(Protocol):
    """A majorant along an arc, less L(w)."""

    def value(self, t: Array) -> Array:
        """At angle t."""
        ...

    def lower_limit(self) -> Array:
        """Return an angle below the minimiser."""
        ...


class Turning(NamedTuple):
    """Terms of Eq. (23) for each layer, at any speed."""

    alpha: Array
    """⟨∇_i, W_i⟩."""
    beta: Array
    """−⟨∇_i, U_i⟩ with U_i = μ_i V_i / s_i."""
    speed: Array
    """s_i."""
    gain: Array
    """‖W_i‖_op."""
    rate: Array
    """‖U_i‖_op."""
    WW: Array
    """W Wᵀ of each layer (or Wᵀ W, where that is smaller; so for the next two)."""
    WU: Array
    """W Uᵀ + U Wᵀ."""
    UU: Array
    """U Uᵀ."""
    curvature: Array
    """Of the loss, in units of the problem's `unit`."""

    def linear(self, t: Array) -> Array:
        """Σ ⟨∇_i, ΔΓ_i(t)⟩."""
        falls = self.beta * jnp.sin(self.speed * t)
        return jnp.sum(-2 * self.alpha * jnp.sin(self.speed * t / 2) ** 2 - falls)

    def moved(self, t: Array) -> Array:
        """‖ΔΓ_i(t)‖_op: ΔΓ = 2 sin(st/2) (U cos(st/2) − W sin(st/2))."""
        half = self.speed * t / 2
        return 2 * jnp.sin(half) * self._gains(-jnp.sin(half), jnp.cos(half))

    def gains(self, t: Array) -> Array:
        """‖Γ_i(t)‖_op: Γ = W cos(st) + U sin(st)."""
        return self._gains(jnp.cos(self.speed * t), jnp.sin(self.speed * t))

    def _gains(self, w: Array, u: Array) -> Array:
        """‖w W + u U‖_op of each layer."""
        w, u = w[:, None, None], u[:, None, None]
        return gains.gains(w**2 * self.WW + w * u * self.WU + u**2 * self.UU)

    def newton(self, growth: Array) -> Array:
        """Return a tenth of a lower bound on the minimiser, where E‖Δf‖² ≈ growth² t²."""
        rate = jnp.sum(self.speed * self.rate / self.gain)
        curvature = self.curvature * growth**2 + jnp.sum(jnp.abs(self.alpha))
        newton = jnp.sum(self.beta * self.speed) / jnp.where(curvature > 0, curvature, 1)
        return 0.1 * jnp.minimum(newton, 1 / (1 + rate))


def _through(changes: Array, gain: Array) -> Array:
    """Return Σ_i change_i ∏_{j>i} gain_j, the effect of all changes on the output."""
    total = jnp.zeros_like(changes[0])
    for change, g in zip(changes, gain, strict=True):
        total = g * total + change
    return total


class MajorantTerms(NamedTuple):
    """The majorant of Eqs. (22) and (23)."""

    turning: Turning
    inputs: Array
    """Bound on the root mean square of each layer's input: √Q ∏_{j<i} ‖W_j‖_op."""

    def value(self, t: Array) -> Array:
        """Right-hand side of Eq. (22) at angle t, less L(w)."""
        # P1 − P2 as a sum of products of positive numbers, which does not cancel for small t.
        moved = self.turning.moved(t)
        growth = _through(moved * self.inputs, self.turning.gain + moved)
        return self.turning.linear(t) + 0.5 * self.turning.curvature * growth**2

    def lower_limit(self) -> Array:
        """See `docs/method2.md`."""
        turning = self.turning
        return turning.newton(_through(turning.speed * turning.rate * self.inputs, turning.gain))


class DataMajorantTerms(NamedTuple):
    """The tighter majorant: three means over the rows for each layer."""

    turning: Turning
    hh: Array
    """Of ‖h W‖²."""
    hu: Array
    """Of ⟨h W, h U⟩."""
    uu: Array
    """Of ‖h U‖²."""

    def value(self, t: Array) -> Array:
        """The tighter majorant at angle t, less L(w)."""
        half = self.turning.speed * t / 2
        sine, cosine = jnp.sin(half), jnp.cos(half)
        square = cosine**2 * self.uu - 2 * sine * cosine * self.hu + sine**2 * self.hh
        moved = 2 * sine * jnp.sqrt(jnp.maximum(square, 0))
        growth = _through(moved, self.turning.gains(t))
        return self.turning.linear(t) + 0.5 * self.turning.curvature * growth**2

    def lower_limit(self) -> Array:
        """As for the paper's majorant."""
        turning = self.turning
        return turning.newton(_through(turning.speed * jnp.sqrt(self.uu), turning.gain))


class SmoothMajorantTerms(NamedTuple):
    """The proved majorant: bounds on the second derivative along the arc."""

    turning: Turning
    slope: Array
    """L̄'(0)."""
    largest: Array
    """Norm of the largest input."""
    output_gradient: Array
    """Root mean square of the loss's gradient in the outputs, at the start."""
    max_second_derivative: float
    """Bound on `|ρ''|`."""
    bias: bool
    """Whether layers also have a constant input."""

    def value(self, t: Array) -> Array:
        """slope·t + ½ t² max L̄'' over [0, t]."""
        return self.slope * t + 0.5 * self.curvature(t) * t**2

    def curvature(self, t: Array) -> Array:
        """Bound on L̄'' over [0, t]: of h, h' and h'', one layer after the other."""
        turning = self.turning
        sine = jnp.sin(jnp.minimum(turning.speed * t, math.pi / 2))
        first = turning.gain + sine * turning.rate  # ‖Γ‖
        second = turning.speed * (turning.rate + sine * turning.gain)  # ‖Γ'‖
        third = turning.speed**2 * first  # ‖Γ''‖
        h, dh, ddh = self.largest, jnp.zeros_like(t), jnp.zeros_like(t)
        for i in range(len(first)):
            h = jnp.hypot(h, 1.0) if self.bias else h
            ddz = ddh * first[i] + 2 * dh * second[i] + h * third[i]
            dh = dh * first[i] + h * second[i]
            h = h * first[i]
            ddh = ddz + (self.max_second_derivative * dh**2 if i < len(first) - 1 else 0)
        c = turning.curvature
        return c * dh**2 + (self.output_gradient + c * dh * t) * ddh

    def lower_limit(self) -> Array:
        """The bound grows with t, so the minimum is not above that of its start; a thousandth."""
        return -1e-3 * self.slope / self.curvature(jnp.full_like(self.slope, 1e-3))


def _layered(start: ArcStart) -> LayeredObjective:
    return layered(start.objective, "a majorant", "steps.Curvature()")


def _turning(start: ArcStart) -> tuple[Turning, Tree]:
    """α, β and the norms of Eq. (23) at the start of an arc; and the unit headings U."""
    arc, objective = start.arc, _layered(start)
    tangent = sphere.project(arc.weights, start.gradient, arc.radii)
    units = sphere.normalise(arc.heading, arc.radii)
    W, U = (gains.aligned(sphere.unpack(x)) for x in (arc.weights, units))
    WW, WU, UU = gains.grams(W, W), gains.grams(W, U), gains.grams(U, U)
    gain, rate = jnp.split(gains.gains(jnp.concatenate([WW, UU])), 2)
    return Turning(
        alpha=sphere.inner(start.gradient, arc.weights),
        beta=-sphere.inner(tangent, units),
        speed=arc.speeds,
        gain=gain,
        rate=rate,
        WW=WW,
        WU=WU + WU.swapaxes(1, 2),
        UU=UU,
        curvature=objective.criterion.curvature / objective.unit,
    ), units


def majorant_terms(start: ArcStart) -> MajorantTerms:
    """α, β, P1, P2 and Q of Eq. (23) at the start of an arc."""
    turning, _ = _turning(start)
    return MajorantTerms(turning, input_bounds(_layered(start), turning.gain))


def input_bounds(objective: LayeredObjective, gain: Array) -> Array:
    """Return bounds on the root mean square of each layer's input, constant unit included."""
    square, roots = objective.mean_square_input, []
    for g in gain:
        square = square + objective.network.bias
        roots.append(jnp.sqrt(square))
        square = g**2 * square
    return jnp.stack(roots)


def data_majorant_terms(start: ArcStart) -> DataMajorantTerms:
    """The means over the rows, at the start of an arc."""
    turning, units = _turning(start)
    return DataMajorantTerms(turning, *_layered(start).moments(sphere.unpack(units), start.cache))


def smooth_majorant_terms(start: ArcStart) -> SmoothMajorantTerms:
    """Norms, at the start of an arc."""
    turning, _ = _turning(start)
    objective = _layered(start)
    network = objective.network
    return SmoothMajorantTerms(
        turning,
        start.slope,
        objective.largest_input(),
        objective.output_gradient(start.cache),
        network.activation.max_second_derivative or 0.0,
        network.bias,
    )
