"""Variants in docs/landing.md: stronger integral action, and a vertical descent.

    python examples/landing/variants.py

prints means with 95 % intervals over 500 landings, in the weather of `land.py`.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import study
import weather
from approach import Approach
from c_code import compile_force
from controller import Gains
from flight import Pilot, fly
from page import cell

LANDINGS, INTEGRAL = 500, 15.0
SLOPE, VERTICAL = Approach(), Approach(distance=0.0)


def main() -> None:
    gains = Gains()
    strong = replace(gains, integral=INTEGRAL)
    certified = study.certify(study.learn(), gains)
    with tempfile.TemporaryDirectory() as folder:
        force, iterations = compile_force(certified.model, Path(folder)), certified.iterations
        for title, pilot, approach in (
            (f"baseline + integral, {INTEGRAL:g} N/m", Pilot(strong), SLOPE),
            (f"compensated + integral, {INTEGRAL:g} N/m", Pilot(strong, force, iterations), SLOPE),
            ("vertical descent, baseline", Pilot(gains), VERTICAL),
            ("vertical descent, compensated", Pilot(gains, force, iterations), VERTICAL),
        ):
            flight = fly(pilot, weather.draw(LANDINGS, seed=0), approach)
            values = study.metrics(flight, approach)
            print(title)
            for metric, (name, unit, factor) in study.METRICS.items():
                print(f"  {name:<20} {cell(study.interval(values[metric]), factor):>15} {unit}")


if __name__ == "__main__":
    main()
