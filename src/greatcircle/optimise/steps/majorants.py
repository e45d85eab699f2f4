"""Majorants of the loss along an arc: the paper's, a tighter one, and a proved one.

Each consists of a few numbers, computed at the start of the arc, and a function of the angle: the
majorant minus L(w).
`majorised.py` minimises them; `docs/method2.md` derives them and says what is proved and what rests
on the paper's Assumption 1.
"""

import math
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from greatcircle.geometry import sphere
from greatcircle.geometry.sphere import Tree
from greatcircle.network import gains
from greatcircle.objective.objective import LayeredObjective, layered
from greatcircle.optimise.arc import ArcStart

__all__ = [
    "DataMajorantTerms",
    "LayerTerms",
    "MajorantTerms",
    "SmoothMajorantTerms",
    "Terms",
    "data_majorant_terms",
    "input_bounds",
    "majorant_terms",
    "smooth_majorant_terms",
]

Scalar = Float[Array, ""]
PerLayer = Float[Array, " layers"]
Grams = Float[Array, "layers short short"]


@runtime_checkable
class Terms(Protocol):
    """A majorant along an arc, minus L(w)."""

    def value(self, t: Scalar) -> Scalar:
        """Return its value at angle t."""
        ...

    def lower_limit(self) -> Scalar:
        """Return an angle below the minimiser."""
        ...


class LayerTerms(eqx.Module):
    """Terms of Eq. (23) for each layer, for layers of any speed."""

    alpha: PerLayer
    """⟨∇_i, W_i⟩."""
    beta: PerLayer
    """−⟨∇_i, U_i⟩ with U_i = μ_i V_i / s_i."""
    speed: PerLayer
    """s_i."""
    gain: PerLayer
    """‖W_i‖_op."""
    rate: PerLayer
    """‖U_i‖_op."""
    WW: Grams
    """W Wᵀ of each layer, or Wᵀ W if that is smaller; likewise for the next two."""
    WU: Grams
    """W Uᵀ + U Wᵀ."""
    UU: Grams
    """U Uᵀ."""
    loss_curvature: Scalar
    """c, the bound on the loss's Hessian with respect to the outputs, in the objective's units."""

    def linear(self, t: Scalar) -> Scalar:
        """Return Σ ⟨∇_i, ΔΓ_i(t)⟩."""
        falls = self.beta * jnp.sin(self.speed * t)
        return jnp.sum(-2 * self.alpha * jnp.sin(self.speed * t / 2) ** 2 - falls)

    def change_norms(self, t: Scalar) -> PerLayer:
        """Return ‖ΔΓ_i(t)‖_op: ΔΓ = 2 sin(st/2) (U cos(st/2) − W sin(st/2))."""
        half = self.speed * t / 2
        return 2 * jnp.sin(half) * self._operator_norms(-jnp.sin(half), jnp.cos(half))

    def gains(self, t: Scalar) -> PerLayer:
        """Return ‖Γ_i(t)‖_op: Γ = W cos(st) + U sin(st)."""
        return self._operator_norms(jnp.cos(self.speed * t), jnp.sin(self.speed * t))

    def _operator_norms(self, w: PerLayer, u: PerLayer) -> PerLayer:
        """Return ‖w W + u U‖_op of each layer."""
        w, u = w[:, None, None], u[:, None, None]
        grams = w**2 * self.WW + w * u * self.WU + u**2 * self.UU
        return gains.roots_of_largest_eigenvalues(grams)

    def short_newton_step(self, growth_rate: Scalar) -> Scalar:
        """Return a tenth of a lower bound on the minimiser, if √E‖Δf‖² ≈ growth_rate · t."""
        rate = jnp.sum(self.speed * self.rate / self.gain)
        curvature = self.loss_curvature * growth_rate**2 + jnp.sum(jnp.abs(self.alpha))
        newton = jnp.sum(self.beta * self.speed) / jnp.where(curvature > 0, curvature, 1)
        return 0.1 * jnp.minimum(newton, 1 / (1 + rate))


def _at_output(changes: PerLayer, gain: PerLayer) -> Scalar:
    """Return Σ_i change_i ∏_{j>i} gain_j, a bound on the change of the outputs."""
    total = jnp.zeros_like(changes[0])
    for change, g in zip(changes, gain, strict=True):
        total = g * total + change
    return total


class MajorantTerms(eqx.Module):
    """The majorant of Eqs. (22) and (23)."""

    layers: LayerTerms
    inputs: PerLayer
    """Bound on the root mean square of each layer's input: √Q ∏_{j<i} ‖W_j‖_op."""

    def value(self, t: Scalar) -> Scalar:
        """Return the right-hand side of Eq. (22) at angle t, minus L(w)."""
        # P1 − P2 as a sum of products of positive numbers, which does not cancel for small t.
        change = self.layers.change_norms(t)
        growth = _at_output(change * self.inputs, self.layers.gain + change)
        return self.layers.linear(t) + 0.5 * self.layers.loss_curvature * growth**2

    def lower_limit(self) -> Scalar:
        """Return a shortened Newton step (`docs/method2.md`)."""
        layers = self.layers
        rates = layers.speed * layers.rate * self.inputs
        return layers.short_newton_step(_at_output(rates, layers.gain))


class DataMajorantTerms(eqx.Module):
    """The tighter majorant: three means over the rows for each layer."""

    layers: LayerTerms
    hh: PerLayer
    """Mean of ‖h W‖²."""
    hu: PerLayer
    """Mean of ⟨h W, h U⟩."""
    uu: PerLayer
    """Mean of ‖h U‖²."""

    def value(self, t: Scalar) -> Scalar:
        """Return the majorant at angle t, minus L(w)."""
        half = self.layers.speed * t / 2
        sine, cosine = jnp.sin(half), jnp.cos(half)
        square = cosine**2 * self.uu - 2 * sine * cosine * self.hu + sine**2 * self.hh
        change = 2 * sine * jnp.sqrt(jnp.maximum(square, 0))
        growth = _at_output(change, self.layers.gains(t))
        return self.layers.linear(t) + 0.5 * self.layers.loss_curvature * growth**2

    def lower_limit(self) -> Scalar:
        """Return a shortened Newton step, as for the paper's majorant."""
        layers = self.layers
        rates = layers.speed * jnp.sqrt(self.uu)
        return layers.short_newton_step(_at_output(rates, layers.gain))


class SmoothMajorantTerms(eqx.Module):
    """The proved majorant: a bound on the second derivative along the arc."""

    layers: LayerTerms
    slope: Scalar
    """L̄'(0)."""
    largest_input: Scalar
    """Largest ‖x‖."""
    output_gradient: Scalar
    """Root mean square of the loss's gradient in the outputs, at the start."""
    max_second_derivative: float = eqx.field(static=True)
    """Bound on `|ρ''|`."""
    bias: bool = eqx.field(static=True)

    def value(self, t: Scalar) -> Scalar:
        """Return slope·t + ½ t² max L̄'' over [0, t]."""
        return self.slope * t + 0.5 * self.curvature(t) * t**2

    def curvature(self, t: Scalar) -> Scalar:
        """Return a bound on L̄'' over [0, t], from bounds on h, h' and h'' layer by layer."""
        layers = self.layers
        sine = jnp.sin(jnp.minimum(layers.speed * t, math.pi / 2))
        gain = layers.gain + sine * layers.rate  # ‖Γ‖
        first = layers.speed * (layers.rate + sine * layers.gain)  # ‖Γ'‖
        second = layers.speed**2 * gain  # ‖Γ''‖
        h, dh, ddh = self.largest_input, jnp.zeros_like(t), jnp.zeros_like(t)
        for i in range(len(gain)):
            h = jnp.hypot(h, 1.0) if self.bias else h
            ddz = ddh * gain[i] + 2 * dh * first[i] + h * second[i]
            dh = dh * gain[i] + h * first[i]
            h = h * gain[i]
            ddh = ddz + (self.max_second_derivative * dh**2 if i < len(gain) - 1 else 0)
        c = layers.loss_curvature
        return c * dh**2 + (self.output_gradient + c * dh * t) * ddh

    def lower_limit(self) -> Scalar:
        """Return a thousandth of the Newton step with the curvature bound near the start.

        The bound grows with t, so the minimiser is not above −slope / curvature(0).
        """
        return -1e-3 * self.slope / self.curvature(jnp.full_like(self.slope, 1e-3))


def majorant_terms(start: ArcStart) -> MajorantTerms:
    """Return α, β, P1, P2 and Q of Eq. (23) at the start of an arc."""
    layers, _ = _layer_terms(start)
    return MajorantTerms(layers, input_bounds(_layered(start), layers.gain))


def data_majorant_terms(start: ArcStart) -> DataMajorantTerms:
    """Return the terms of the tighter majorant, from one pass over the rows."""
    layers, units = _layer_terms(start)
    return DataMajorantTerms(layers, *_layered(start).moments(sphere.unpack(units), start.cache))


def smooth_majorant_terms(start: ArcStart) -> SmoothMajorantTerms:
    """Return the terms of the proved majorant."""
    layers, _ = _layer_terms(start)
    objective = _layered(start)
    network = objective.network
    return SmoothMajorantTerms(
        layers,
        start.slope,
        objective.largest_input(),
        objective.output_gradient(start.cache),
        network.activation.max_second_derivative or 0.0,
        network.bias,
    )


def input_bounds(objective: LayeredObjective, gain: PerLayer) -> PerLayer:
    """Return bounds on the root mean square of each layer's input, constant included."""
    square, roots = objective.mean_square_input, []
    for g in gain:
        square = square + objective.network.bias
        roots.append(jnp.sqrt(square))
        square = g**2 * square
    return jnp.stack(roots)


def _layered(start: ArcStart) -> LayeredObjective:
    return layered(start.objective, "a majorant", "steps.Curvature()")


def _layer_terms(start: ArcStart) -> tuple[LayerTerms, Tree]:
    """Return α, β and the norms of Eq. (23) at the start of an arc, and the unit headings U."""
    arc, objective = start.arc, _layered(start)
    tangent = sphere.project(arc.weights, start.gradient, arc.radii)
    units = sphere.normalise(arc.heading, arc.radii)
    W, U = (gains.stacked_wide(sphere.unpack(x)) for x in (arc.weights, units))
    WW, WU, UU = (gains.gram_matrices(*pair) for pair in ((W, W), (W, U), (U, U)))
    norms = gains.roots_of_largest_eigenvalues(jnp.concatenate([WW, UU]))
    gain, rate = jnp.split(norms, 2)
    terms = LayerTerms(
        alpha=sphere.inner(start.gradient, arc.weights),
        beta=-sphere.inner(tangent, units),
        speed=arc.speeds,
        gain=gain,
        rate=rate,
        WW=WW,
        WU=WU + WU.swapaxes(1, 2),
        UU=UU,
        loss_curvature=objective.criterion.curvature / objective.unit,
    )
    return terms, units
