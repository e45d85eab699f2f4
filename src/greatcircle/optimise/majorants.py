"""Majorants of the loss along an arc: the paper's, a tighter one, and a proved one.

Each is a handful of numbers taken at the start of the arc, with its value at any angle, less L(w).
`steps.py` minimises them; `docs/method2.md` derives them and says what is proved and what rests on
the paper's Assumption 1.
"""

import math
from typing import NamedTuple, Protocol

import jax.numpy as jnp
from jax import Array

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Tree
from greatcircle.network import gains
from greatcircle.objective.problem import Problem
from greatcircle.optimise.arc import Here


class Terms(Protocol):
    """A majorant along an arc, less L(w)."""

    def value(self, t: Array) -> Array:
        """At angle t."""
        ...

    def lowest(self) -> Array:
        """An angle that is surely below the minimum's."""
        ...


class Turning(NamedTuple):
    """How the layers turn, one entry for each, for layers of any speed."""

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
        """A tenth of an angle that the minimum is not below, where E‖Δf‖² ≈ growth² t²."""
        rate = jnp.sum(self.speed * self.rate / self.gain)
        curvature = self.curvature * growth**2 + jnp.sum(jnp.abs(self.alpha))
        newton = jnp.sum(self.beta * self.speed) / jnp.where(curvature > 0, curvature, 1)
        return 0.1 * jnp.minimum(newton, 1 / (1 + rate))


def _through(changes: Array, gain: Array) -> Array:
    """Σ_i change_i ∏_{j>i} gain_j: what is left at the output of each layer's change."""
    total = jnp.zeros_like(changes[0])
    for change, g in zip(changes, gain, strict=True):
        total = g * total + change
    return total


class MajorantTerms(NamedTuple):
    """The numbers of Eq. (22) and (23)."""

    turning: Turning
    seen: Array
    """Bound on the root mean square of what each layer sees: √Q ∏_{j<i} ‖W_j‖_op."""

    def value(self, t: Array) -> Array:
        """Right-hand side of Eq. (22) at angle t, less L(w)."""
        # P1 − P2 as a sum of products of positive numbers, which does not cancel for small t.
        moved = self.turning.moved(t)
        growth = _through(moved * self.seen, self.turning.gain + moved)
        return self.turning.linear(t) + 0.5 * self.turning.curvature * growth**2

    def lowest(self) -> Array:
        """See `docs/method2.md`."""
        turning = self.turning
        return turning.newton(_through(turning.speed * turning.rate * self.seen, turning.gain))


class DataMajorantTerms(NamedTuple):
    """Three numbers for each layer, means over the rows."""

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

    def lowest(self) -> Array:
        """As for the paper's majorant."""
        turning = self.turning
        return turning.newton(_through(turning.speed * jnp.sqrt(self.uu), turning.gain))


class SmoothMajorantTerms(NamedTuple):
    """What bounds the second derivative along the arc."""

    turning: Turning
    slope: Array
    """L̄'(0)."""
    largest: Array
    """Norm of the largest input."""
    pull: Array
    """Root mean square of the loss's gradient in the outputs, at the start."""
    bent: float
    """Bound on `|ρ''|`."""
    constant: bool
    """Whether layers also see a constant unit."""

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
            h = jnp.hypot(h, 1.0) if self.constant else h
            ddz = ddh * first[i] + 2 * dh * second[i] + h * third[i]
            dh = dh * first[i] + h * second[i]
            h = h * first[i]
            ddh = ddz + (self.bent * dh**2 if i < len(first) - 1 else 0)
        c = turning.curvature
        return c * dh**2 + (self.pull + c * dh * t) * ddh

    def lowest(self) -> Array:
        """The bound grows with t, so the minimum is not above that of its start; a thousandth."""
        return -1e-3 * self.slope / self.curvature(jnp.full_like(self.slope, 1e-3))


def _turning(here: Here) -> tuple[Turning, Tree]:
    """α, β and the norms of Eq. (23) at the start of an arc; and the unit headings U."""
    arc, objective = here.arc, here.objective
    assert isinstance(objective, Problem)  # `check` has made sure
    tangent = sphere.project(arc.weights, here.gradient, arc.radii)
    units = sphere.normalise(arc.heading, arc.radii)
    W, U = (gains.aligned(sphere.unpack(x)) for x in (arc.weights, units))
    WW, WU, UU = gains.grams(W, W), gains.grams(W, U), gains.grams(U, U)
    gain, rate = jnp.split(gains.gains(jnp.concatenate([WW, UU])), 2)
    return Turning(
        alpha=sphere.inner(here.gradient, arc.weights),
        beta=-sphere.inner(tangent, units),
        speed=arc.speeds,
        gain=gain,
        rate=rate,
        WW=WW,
        WU=WU + WU.swapaxes(1, 2),
        UU=UU,
        curvature=objective.criterion.curvature / objective.unit,
    ), units


def majorant_terms(here: Here) -> MajorantTerms:
    """α, β, P1, P2 and Q of Eq. (23) at the start of an arc."""
    turning, _ = _turning(here)
    assert isinstance(here.objective, Problem)
    return MajorantTerms(turning, seen(here.objective, turning.gain))


def seen(problem: Problem, gain: Array) -> Array:
    """Bound on the root mean square of what each layer sees, constant unit included."""
    square, roots = problem.mean_square_input, []
    for g in gain:
        square = square + problem.network.bias
        roots.append(jnp.sqrt(square))
        square = g**2 * square
    return jnp.stack(roots)


def data_majorant_terms(here: Here) -> DataMajorantTerms:
    """The means over the rows, at the start of an arc."""
    turning, units = _turning(here)
    assert isinstance(here.objective, Problem)
    return DataMajorantTerms(turning, *here.objective.moments(sphere.unpack(units), here.left))


def smooth_majorant_terms(here: Here) -> SmoothMajorantTerms:
    """Norms, at the start of an arc."""
    turning, _ = _turning(here)
    assert isinstance(here.objective, Problem)
    network = here.objective.network
    return SmoothMajorantTerms(
        turning,
        here.slope,
        here.objective.largest_input(),
        here.objective.pull(here.left),
        network.activation.max_second_derivative or 0.0,
        network.bias,
    )
