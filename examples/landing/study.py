"""Monte Carlo study: train, certify, export, calibrate, land with four controllers, compare."""

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats

import error_bound
import vehicle
import weather
from approach import Approach
from c_code import compile_force, find_compiler
from controller import Force, Gains
from error_bound import Bound
from flight import Flight, Pilot, fly
from greatcircle import LipschitzRegressor, certificate, control
from greatcircle.datasets import ground_effect

__all__ = [
    "CALIBRATION",
    "METRICS",
    "TITLES",
    "TOLERANCE",
    "Certified",
    "Study",
    "certify",
    "controllers",
    "interval",
    "learn",
    "metrics",
    "results",
    "run",
]

Array = NDArray[np.float64]

LIPSCHITZ = 15.0  # N per unit of the inputs, the budget for training
HIDDEN = (25, 30, 15)
CALIBRATION = 200
"""Number of calibration landings, which fix two of the limits."""
TOLERANCE = 2e-3  # error of the motor speeds after the fixed-point iteration
INTEGRAL = 5.0  # N/m

TITLES = {
    "baseline": "baseline",
    "integral": "baseline + integral",
    "compensated": "compensated",
    "compensated_integral": "compensated + integral",
}
"""Titles of the controllers, in the order of the tables."""

METRICS = {
    "touchdown_error": ("touchdown error", "cm", 100.0),
    "lateness": ("touchdown late", "ms", 1000.0),
    "sink_speed": ("sinking speed", "cm/s", 100.0),
    "contact_speed": ("contact speed", "cm/s", 100.0),
    "tracking_rms": ("tracking RMS", "cm", 100.0),
    "tracking_max": ("tracking max", "cm", 100.0),
}
"""Title, unit in the tables, and the factor from SI units to that unit."""


@dataclass(frozen=True)
class Certified:
    """A learned force with the bounds that the controller needs."""

    model: Any
    in_control: certificate.Certificate
    """Lipschitz bound with respect to the motor speeds."""
    slopes: Mapping[str, float]
    """Lipschitz bound with respect to each group of measured inputs."""
    rule: control.Contraction
    iterations: int


@dataclass(frozen=True, eq=False)
class Study:
    """All landings of a study, with their bounds and settings."""

    certified: Certified
    flights: Mapping[str, Flight]
    bounds: Mapping[str, Bound]
    """For the two controllers without integral action."""
    approach: Approach
    gains: Gains
    seed: int
    calibration: int


def learn(
    rows: int = 28_001,
    *,
    seed: int = 0,
    hidden: tuple[int, ...] = HIDDEN,
    lipschitz: float | None = LIPSCHITZ,
    max_iter: int = 200,
) -> LipschitzRegressor:
    """Train the force on noisy generated flight data, within the Lipschitz budget."""
    table = ground_effect.generate(rows)
    model = LipschitzRegressor(hidden, lipschitz=lipschitz, max_iter=max_iter, random_state=seed)
    frame = pl.DataFrame(dict(table.columns))
    return model.fit(frame.select(table.inputs), frame.select(table.targets))


def certify(model: Any, gains: Gains | None = None) -> Certified:
    """Prove that the controller's fixed-point iteration contracts, and count its iterations."""
    gains = gains or Gains()
    in_control = certificate.tight(model, inputs=["u1", "u2", "u3", "u4"])
    slopes = {
        name: certificate.tight(model, inputs=list(inputs)).value
        for name, inputs in error_bound.GROUPS.items()
    }
    rule = control.contraction(gains.force_to_motors, in_control)
    iterations = rule.iterations(gains.motor_range, TOLERANCE)
    return Certified(model, in_control, slopes, rule, iterations)


def controllers(gains: Gains, force: Force, iterations: int) -> dict[str, Pilot]:
    """Return the controllers to compare, all with the same gains."""
    integral = replace(gains, integral=INTEGRAL)
    return {
        "baseline": Pilot(gains),
        "integral": Pilot(integral),
        "compensated": Pilot(gains, force, iterations),
        "compensated_integral": Pilot(integral, force, iterations),
    }


def run(
    landings: int,
    *,
    seed: int,
    folder: Path,
    model: Any = None,
    approach: Approach | None = None,
    calibration: int = CALIBRATION,
    progress: Callable[[str], None] = lambda stage: None,
) -> Study:
    """Land with each controller in the same weather.

    Parameters
    ----------
    landings
        Number of landings with each controller.
    seed
        Random seed of the initial weights and the weather; the calibration uses different weather.
    folder
        For the exported C code.
    model
        The learned force; None trains one.
    approach
        The reference trajectory; by default `Approach()`.
    calibration
        Number of calibration landings, which are flown first.
    progress
        Called with the title of each stage when it begins.
    """
    find_compiler()  # fail now, not after training
    gains, approach = Gains(), approach or Approach()
    if model is None:
        progress("training the force")
        model = learn(seed=seed)
    certified = certify(model, gains)
    pilots = controllers(gains, compile_force(model, folder), certified.iterations)
    bounds = {}
    # The limits are fixed before the landings that they are compared with.
    for name in ("baseline", "compensated"):
        progress(f"{calibration} calibration landings, {TITLES[name]}")
        flight = fly(pilots[name], weather.draw(calibration, 2 * seed + 1), approach)
        slopes = certified.slopes if pilots[name].force else {}
        bounds[name] = error_bound.calibrate(flight, gains, slopes, certified.in_control.value)
    flights = {}
    for name, title in TITLES.items():
        progress(f"{landings} landings, {title}")
        flights[name] = fly(pilots[name], weather.draw(landings, 2 * seed), approach)
    return Study(certified, flights, bounds, approach, gains, seed, calibration)


def metrics(flight: Flight, approach: Approach) -> dict[str, Array]:
    """Return each metric of each landing in SI units; NaN for one that has not landed."""
    state, error = flight.touchdown.state, flight.audit.error
    return {
        "touchdown_error": np.abs(state[:, vehicle.X]),
        "lateness": flight.touchdown.time - approach.duration,
        "sink_speed": -state[:, vehicle.VZ],
        "contact_speed": np.hypot(state[:, vehicle.VX], state[:, vehicle.VZ]),
        "tracking_rms": np.sqrt(np.nanmean(error**2, axis=0)),
        "tracking_max": np.nanmax(error, axis=0),
    }


def interval(values: Array) -> dict[str, float]:
    """Return the mean with its 95 % confidence interval by Student's t."""
    values = values[np.isfinite(values)]
    mean, n = float(np.mean(values)), len(values)
    half = stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n) if n > 1 else np.inf
    return {"mean": mean, "low": float(mean - half), "high": float(mean + half)}


def results(study: Study) -> dict[str, Any]:
    """Return all results of a study as JSON values, in SI units."""
    values = {name: metrics(flight, study.approach) for name, flight in study.flights.items()}
    packages = ("greatcircle", "jax", "numpy", "scipy")
    return {
        "source": f"greatcircle {version('greatcircle')}, examples/landing/land.py",
        "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": {name: version(name) for name in packages},
        "units": "SI; motor speeds divided by 8000 rpm; 95 % intervals by Student's t",
        "landings": len(next(iter(study.flights.values())).touchdown.time),
        "calibration": study.calibration,
        "seed": study.seed,
        "model": _model_results(study.certified),
        "contraction": {
            "gain": study.gains.force_to_motors,
            "rate": study.certified.rule.rate,
            "holds": study.certified.rule.holds,
            "iterations": study.certified.iterations,
            "tolerance": TOLERANCE,
        },
        "controllers": {
            name: {
                "landed": int(np.sum(np.isfinite(flight.touchdown.time))),
                **{metric: interval(part) for metric, part in values[name].items()},
            }
            for name, flight in study.flights.items()
        },
        "less_than_baseline": {
            name: {
                metric: interval(values["baseline"][metric] - values[name][metric])
                for metric in METRICS
            }
            for name in TITLES
            if name != "baseline"
        },
        "bounds": {name: _bound_checks(study.flights[name], b) for name, b in study.bounds.items()},
    }


def _model_results(certified: Certified) -> dict[str, Any]:
    """Return the errors and bounds of the learned force."""
    model = certified.model
    fresh = ground_effect.generate(6000, seed=1, noise_variance=0.0)
    residuals = model.predict(pl.DataFrame(dict(fresh.columns)).select(fresh.inputs)) - fresh.y
    return {
        "lipschitz": model.certificate_.value,
        "digest": model.certificate_.digest,
        "in_motor_speeds": certified.in_control.value,
        "groups": dict(certified.slopes),
        "rms_on_another_flight": float(np.sqrt(np.mean(np.sum(residuals**2, axis=1)))),
        "force_rms_on_another_flight": float(np.sqrt(np.mean(np.sum(fresh.y**2, axis=1)))),
    }


def _bound_checks(flight: Flight, bound: Bound) -> dict[str, Any]:
    """Return the limits, the largest values seen, and how often assumptions and bound held."""
    kept, beyond = error_bound.assumptions_kept(flight, bound), error_bound.exceeded(flight, bound)
    every = np.all(list(kept.values()), axis=0)
    percentile = float(np.nanquantile(flight.audit.error, 0.99))
    parts = ("gust", "noise", "model", "loop", "total")
    return {
        "limits": {name: getattr(bound.limits, name) for name in parts},
        "largest_seen": {name: float(np.nanmax(getattr(flight.audit, name))) for name in parts},
        "ultimate_error": bound.ultimate.position,
        "ultimate_composite": bound.ultimate.composite,
        "assumptions_kept": {name: float(np.mean(part)) for name, part in kept.items()},
        "all_assumptions_kept": float(np.mean(every)),
        "exceeded_where_kept": int(np.sum(beyond & every)),
        "exceeded": int(np.sum(beyond)),
        "largest_error": float(np.nanmax(flight.audit.error)),
        "error_99th_percentile": percentile,
        "bound_over_99th_percentile": bound.ultimate.position / percentile,
    }
