"""Train, certify, export, calibrate, land many times with each controller, compare."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats

from greatcircle import certificate
from greatcircle._runtime import versions as provenance
from greatcircle.certificate import control
from greatcircle.datasets import ground_effect
from greatcircle.estimators import LipschitzRegressor
from greatcircle.experiments.landing import bound as bounds
from greatcircle.experiments.landing import vehicle, weather
from greatcircle.experiments.landing.approach import Approach
from greatcircle.experiments.landing.bound import Bound
from greatcircle.experiments.landing.compiled import compiled, compiler
from greatcircle.experiments.landing.controller import Force, Gains
from greatcircle.experiments.landing.flight import Flight, Pilot, fly

Array = NDArray[np.float64]

LIPSCHITZ = 15.0  # N per unit of the inputs, the budget for training
HIDDEN = (25, 30, 15)
CALIBRATION = 200
"""Landings from which two of the limits are taken."""
TOLERANCE = 2e-3  # of the motor speeds: how exactly the fixed point is computed
INTEGRAL = 5.0  # N/m

TITLES = {
    "baseline": "baseline",
    "integral": "baseline + integral",
    "compensated": "compensated",
    "compensated_integral": "compensated + integral",
}
"""The controllers, in the order of the tables."""

METRICS = {
    "touchdown_error": ("touchdown error", "cm", 100.0),
    "lateness": ("touchdown late", "ms", 1000.0),
    "sink_speed": ("sinking speed", "cm/s", 100.0),
    "contact_speed": ("contact speed", "cm/s", 100.0),
    "tracking_rms": ("tracking RMS", "cm", 100.0),
    "tracking_max": ("tracking max", "cm", 100.0),
}
"""Title, unit of the tables, and how many of that are one SI unit."""

Progress = Callable[[str, float], None]
"""Called with what is being flown, and which share of it."""


@dataclass(frozen=True)
class Certified:
    """A learned force with what the controller needs to know of it."""

    model: Any
    in_control: certificate.Certificate
    """Lipschitz bound in the motor speeds."""
    slopes: Mapping[str, float]
    """Lipschitz bounds of the blocks that sensors measure."""
    rule: control.Contraction
    iterations: int


@dataclass(frozen=True, eq=False)
class Study:
    """Everything that was flown."""

    certified: Certified
    flights: Mapping[str, Flight]
    bounds: Mapping[str, Bound]
    """Of the two controllers without integral action."""
    approach: Approach
    gains: Gains
    seed: int
    calibration: int


def learn(rows: int = 28_001, *, seed: int = 0, **parameters: Any) -> LipschitzRegressor:
    """Train the force on flight data of the generator, noise included, within the budget."""
    table = ground_effect.generate(rows)
    chosen: dict[str, Any] = {"hidden_layer_sizes": HIDDEN, "lipschitz": LIPSCHITZ} | parameters
    model = LipschitzRegressor(**chosen, random_state=seed)
    frame = pl.DataFrame(dict(table.columns))
    return model.fit(frame.select(table.inputs), frame.select(table.targets))


def certify(model: Any, gains: Gains | None = None) -> Certified:
    """Prove that the controller's iteration contracts, and how many it needs."""
    gains = gains or Gains()
    in_control = certificate.tight(model, inputs=["u1", "u2", "u3", "u4"])
    slopes = {
        name: certificate.tight(model, inputs=list(inputs)).value
        for name, inputs in bounds.BLOCKS.items()
    }
    rule = control.contraction(gains.force_to_motors, in_control)
    iterations = rule.iterations(gains.motor_range, TOLERANCE)
    return Certified(model, in_control, slopes, rule, iterations)


def pilots(gains: Gains, force: Force, iterations: int) -> dict[str, Pilot]:
    """The controllers that are compared, all with the same gains."""
    integral = replace(gains, integral=INTEGRAL)
    return {
        "baseline": Pilot(gains),
        "integral": Pilot(integral),
        "compensated": Pilot(gains, force, iterations),
        "compensated_integral": Pilot(integral, force, iterations),
    }


def study(
    landings: int,
    *,
    seed: int,
    folder: Path,
    model: Any = None,
    approach: Approach | None = None,
    calibration: int = CALIBRATION,
    progress: Progress | None = None,
) -> Study:
    """Land with each controller in the same weather.

    Parameters
    ----------
    landings
        With each controller.
    seed
        Decides the start of training and the weather; the calibration has weather of its own.
    folder
        For the exported C code.
    model
        The force if it is trained already.
    approach
        The plan; by default `Approach()`.
    calibration
        Landings from which limits are taken, before the others.
    progress
        Hears what is being flown.
    """
    compiler()  # fail now, not after training
    gains, approach = Gains(), approach or Approach()
    model = learn(seed=seed) if model is None else model
    certified = certify(model, gains)
    crew = pilots(gains, compiled(model, folder), certified.iterations)

    def flown(name: str, title: str, count: int, weather_seed: int) -> Flight:
        def heard(share: float) -> None:
            if progress is not None:
                progress(title, share)

        return fly(crew[name], weather.draw(count, weather_seed), approach, heard)

    # The limits are fixed before the landings that they are held against are flown.
    limits = {
        name: bounds.calibrate(
            flown(name, f"calibration, {TITLES[name]}", calibration, 2 * seed + 1),
            gains,
            certified.slopes if crew[name].force else {},
            certified.in_control.value,
        )
        for name in ("baseline", "compensated")
    }
    flights = {name: flown(name, title, landings, 2 * seed) for name, title in TITLES.items()}
    return Study(certified, flights, limits, approach, gains, seed, calibration)


def measured(flight: Flight, approach: Approach) -> dict[str, Array]:
    """Each metric of each landing, in SI units; NaN for one that has not landed."""
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
    """Mean with its 95% confidence interval by Student's t."""
    values = values[np.isfinite(values)]
    mean, n = float(np.mean(values)), len(values)
    half = stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n) if n > 1 else np.inf
    return {"mean": mean, "low": float(mean - half), "high": float(mean + half)}


def verdict(flight: Flight, bound: Bound) -> dict[str, Any]:
    """How the bound fared."""
    kept, beyond = bounds.kept(flight, bound), bounds.exceeded(flight, bound)
    every = np.all(list(kept.values()), axis=0)
    percentile = float(np.nanquantile(flight.audit.error, 0.99))
    parts = {"gust": flight.audit.gust, "noise": flight.audit.noise}
    parts |= {"model": flight.audit.model, "loop": flight.audit.loop, "total": flight.audit.total}
    limits = bound.limits
    return {
        "limits": {name: getattr(limits, name) for name in parts},
        "largest_seen": {name: float(np.nanmax(part)) for name, part in parts.items()},
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


def results(done: Study) -> dict[str, Any]:
    """What happened, as JSON can say it; SI units."""
    values = {name: measured(flight, done.approach) for name, flight in done.flights.items()}
    certified, model = done.certified, done.certified.model
    fresh = ground_effect.generate(6000, seed=1, noise_variance=0.0)
    left = model.predict(pl.DataFrame(dict(fresh.columns)).select(fresh.inputs)) - fresh.y
    return {
        "source": f"greatcircle {provenance.versions()['greatcircle']}, demo landing",
        "machine": provenance.machine(),
        "versions": provenance.versions(),
        "units": "SI; motor speeds over 8000 rpm; intervals are 95% by Student's t",
        "landings": len(next(iter(done.flights.values())).touchdown.time),
        "calibration": done.calibration,
        "seed": done.seed,
        "model": {
            "lipschitz": model.certificate_.value,
            "digest": model.certificate_.digest,
            "in_motor_speeds": certified.in_control.value,
            "blocks": dict(certified.slopes),
            "rms_on_another_flight": float(np.sqrt(np.mean(np.sum(left**2, axis=1)))),
            "force_rms_on_another_flight": float(np.sqrt(np.mean(np.sum(fresh.y**2, axis=1)))),
        },
        "contraction": {
            "gain": done.gains.force_to_motors,
            "rate": certified.rule.rate,
            "holds": certified.rule.holds,
            "iterations": certified.iterations,
            "tolerance": TOLERANCE,
        },
        "controllers": {
            name: {
                "landed": int(np.sum(np.isfinite(flight.touchdown.time))),
                **{metric: interval(part) for metric, part in values[name].items()},
            }
            for name, flight in done.flights.items()
        },
        "less_than_baseline": {
            name: {
                metric: interval(values["baseline"][metric] - values[name][metric])
                for metric in METRICS
            }
            for name in TITLES
            if name != "baseline"
        },
        "bounds": {name: verdict(done.flights[name], b) for name, b in done.bounds.items()},
    }
