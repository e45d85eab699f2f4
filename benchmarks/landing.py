"""What else was flown for docs/landing.md: stronger integral action, and a vertical descent.

    python benchmarks/landing.py

prints means with their 95% intervals over 500 landings, in the weather of `greatcircle demo
landing`.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

from greatcircle.experiments.landing import study, weather
from greatcircle.experiments.landing.approach import Approach
from greatcircle.experiments.landing.compiled import compiled
from greatcircle.experiments.landing.controller import Gains
from greatcircle.experiments.landing.flight import Pilot, fly
from greatcircle.experiments.landing.page import cell

LANDINGS, INTEGRAL = 500, 15.0
SLOPE, VERTICAL = Approach(), Approach(distance=0.0)


def main() -> None:
    gains = Gains()
    strong = replace(gains, integral=INTEGRAL)
    certified = study.certify(study.learn(), gains)
    with tempfile.TemporaryDirectory() as folder:
        force = compiled(certified.model, Path(folder))
        known = {"force": force, "iterations": certified.iterations}
        for title, pilot, plan in (
            (f"baseline + integral, {INTEGRAL:g} N/m", Pilot(strong), SLOPE),
            (f"compensated + integral, {INTEGRAL:g} N/m", Pilot(strong, **known), SLOPE),
            ("vertical descent, baseline", Pilot(gains), VERTICAL),
            ("vertical descent, compensated", Pilot(gains, **known), VERTICAL),
        ):
            values = study.measured(fly(pilot, weather.draw(LANDINGS, seed=0), plan), plan)
            print(title)
            for metric, (name, unit, factor) in study.METRICS.items():
                print(f"  {name:<20} {cell(study.interval(values[metric]), factor):>15} {unit}")


if __name__ == "__main__":
    main()
