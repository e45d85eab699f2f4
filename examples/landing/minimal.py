"""A learned force in the controller of a landing quadrotor, from flight data to touchdown.

Train within a Lipschitz budget, prove that the controller's iteration contracts, export to C, and
land without and with the learned force. Needs a C compiler.
"""

import tempfile
from pathlib import Path

import numpy as np
import polars as pl

import vehicle
import weather
from c_code import compile_force
from controller import Gains
from flight import Flight, Pilot, fly
from greatcircle import LipschitzRegressor, certificate, control
from greatcircle.datasets import ground_effect

LANDINGS = 20
TOLERANCE = 2e-3  # of the motor speeds, divided by 8000 rpm

# The force near the ground, from two minutes of noisy flight data.
table = ground_effect.generate(12_000)
frame = pl.DataFrame(dict(table.columns))
model = LipschitzRegressor((15, 10), lipschitz=10.0, max_iter=30, random_state=0)
model.fit(frame.select(table.inputs), frame.select(table.targets))

# The motor speeds u solve u = U(force − f(x, u)). The iteration contracts: one solution exists.
gains = Gains()
in_control = certificate.tight(model, inputs=["u1", "u2", "u3", "u4"])
rule = control.contraction(gains.force_to_motors, in_control)
iterations = rule.iterations(gains.motor_range, TOLERANCE)
verified = certificate.verify(in_control, model)
print(f"certified       {in_control.value:.2f} N per motor speed, {verified}")
print(f"contraction     {rule.rate:.3f}, {iterations} iterations")


def print_row(name: str, flight: Flight) -> None:
    touchdown = flight.touchdown.state
    distance = 100 * np.abs(touchdown[:, vehicle.X])
    error = 100 * np.sqrt(np.nanmean(flight.audit.error**2))
    sinking = -100 * touchdown[:, vehicle.VZ].mean()
    print(f"{name:<15} {distance.mean():8.2f} {distance.max():8.2f} {error:8.2f} {sinking:8.2f}")


print(f"\n{LANDINGS} landings     touchdown error   tracking   sinking")
print("                mean [cm] max [cm] RMS [cm] at contact [cm/s]")
with tempfile.TemporaryDirectory() as folder:
    force = compile_force(model, Path(folder))  # force.c and force.h, compiled and loaded
    wind = weather.draw(LANDINGS, seed=0)
    print_row("baseline", fly(Pilot(gains), wind))
    print_row("compensated", fly(Pilot(gains, force, iterations), wind))
