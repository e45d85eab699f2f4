"""Load the flights of Neural-Fly [1]_: a quadrotor in the wind of a fan array.

The authors publish the flights for personal and educational use only. So they are neither shipped
nor downloaded: download them from the authors' repository [2]_ and give the path.

Two forms are read, with the same result:

* the folder of flights as published, ``data/experiment`` of the repository, one CSV for each flight
  named ``<vehicle>_<trajectory>_<controller>_<condition>.csv``;
* one table of all flights (CSV, gzipped CSV or Parquet) with the columns of `COLUMNS`.

The published fields [2]_ give z = p_z, v, q in the order x, y, z, w, u = pwm / 1000, and the
residual force F = fa, which the authors computed from the derivative of the velocity. The wind
speed of a condition is the one in their README, or its mean if it varies.

References
----------
.. [1] M. O'Connell, G. Shi et al., "Neural-Fly enables rapid learning for agile flight in strong
   conditions_of_rows", Science Robotics 7(66), 2022.
.. [2] https://github.com/aerorobotics/neural-fly, README.md and utils.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from greatcircle.data.columns import numbers
from greatcircle.data.frames import find_columns, read_frame
from greatcircle.data.table import Table
from greatcircle.datasets.ground_effect import INPUTS, TARGETS

__all__ = ["COLUMNS", "REPOSITORY", "WIND_SPEEDS", "load"]

REPOSITORY = "https://github.com/aerorobotics/neural-fly"

COLUMNS = ("t", *INPUTS, *TARGETS, "wind_speed", "controller", "condition")

# m/s, from the README of the repository.
WIND_SPEEDS = {
    "nowind": 0.0,
    "10wind": 1.3,
    "20wind": 2.5,
    "30wind": 3.7,
    "35wind": 4.2,
    "40wind": 4.9,
    "50wind": 6.1,
    "70wind": 8.5,
    "70p20sint": 8.5,  # 8.5 + 2.4 sin(t)
    "100wind": 12.1,
}

# Fields of the published files, with the count of numbers in each of their cells.
_FIELDS = {"p": 3, "v": 3, "q": 4, "pwm": 4, "fa": 3}


def load(
    path: str | PathLike[str] | None = None,
    *,
    conditions: str | Sequence[str] | None = ("nowind",),
) -> Table:
    """Load the flights under some wind conditions.

    Parameters
    ----------
    path : path
        The folder ``data/experiment`` of a copy of the authors' repository, or a file with the
        table of all flights.
    conditions : str or sequence of str, optional
        Wind conditions to keep, such as "nowind", "35wind" or "70p20sint"; all if None.

    Returns
    -------
    Table
        Columns t [s], z [m], vx vy vz [m/s], qx qy qz qw, u1..u4 [1000 µs], fx fy fz [N],
        wind_speed [m/s], controller and condition (text). The forces are targets, z to u4 are
        inputs. Time starts again with each flight.
    """
    if path is None:
        raise ValueError(
            "neural_fly.load was given no path; the flights are for personal and educational use "
            "only, so they are not downloaded automatically: clone or download "
            f"{REPOSITORY} and pass the path of its folder data/experiment"
        )
    path = Path(path)
    requested = (conditions,) if isinstance(conditions, str) else conditions
    if requested is not None and not requested:
        raise ValueError(
            "neural_fly.load was given no conditions; expected at least one, or None for all"
        )
    return _load_folder(path, requested) if path.is_dir() else _load_table(path, requested)


def _load_table(path: Path, requested: Sequence[str] | None) -> Table:
    table = read_frame(path)
    find_columns(table.columns, COLUMNS, path)
    condition = table["condition"].cast(str)
    available = condition.drop_nulls().unique(maintain_order=True).to_list()
    if requested is not None:
        _check(requested, available, path)
        table = table.filter(condition.is_in(requested))
    columns: dict[str, np.ndarray] = dict(numbers(table, COLUMNS[:-2], path))
    for name in COLUMNS[-2:]:
        columns[name] = np.array(table[name].cast(str).fill_null("").to_list(), np.str_)
    return Table(columns, INPUTS, TARGETS)


def _load_folder(path: Path, requested: Sequence[str] | None) -> Table:
    # vehicle_trajectory_controller_condition.csv; other files do not end in a condition.
    flights = [
        (file, parts[-2], parts[-1])
        for file in sorted(path.glob("*.csv"))
        if len(parts := file.stem.split("_")) == 4 and parts[-1] in WIND_SPEEDS
    ]
    if not flights:
        raise ValueError(
            f"the folder {path} holds no flights; expected files named like "
            "custom_figure8_NF_nowind.csv: pass the folder data/experiment of a copy of "
            f"{REPOSITORY}"
        )
    if requested is not None:
        _check(requested, list(dict.fromkeys(condition for *_, condition in flights)), path)
        flights = [flight for flight in flights if flight[-1] in requested]
    blocks, controllers, conditions_of_rows = [], [], []
    for file, controller, condition in flights:
        block = _flight(file)
        blocks.append(block)
        controllers += [controller] * len(block)
        conditions_of_rows += [condition] * len(block)
    values = np.concatenate(blocks)
    columns: dict[str, np.ndarray] = dict(zip(COLUMNS[:-3], values.T, strict=True))
    columns["wind_speed"] = np.array([WIND_SPEEDS[condition] for condition in conditions_of_rows])
    columns["controller"] = np.array(controllers, np.str_)
    columns["condition"] = np.array(conditions_of_rows, np.str_)
    return Table(columns, INPUTS, TARGETS)


def _flight(path: Path) -> NDArray[np.float64]:
    """Return one published flight: the columns t to fz of `COLUMNS`."""
    table = read_frame(path)
    find_columns(table.columns, ("t", *_FIELDS), path)
    time = numbers(table, ("t",), path)["t"]
    fields = {}
    for name, size in _FIELDS.items():
        try:
            # Each cell is the text of a list of numbers.
            field = np.array([json.loads(text) for text in table[name]], np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: column {name!r} cannot be read ({error}); expected lists of {size} "
                "numbers such as [0.1, 0.2]: download the file again"
            ) from error
        if field.shape != (len(time), size) or not np.all(np.isfinite(field)):
            raise ValueError(
                f"{path}: column {name!r} has the shape {field.shape}, or values that are not "
                f"finite; expected ({len(time)}, {size}): download the file again"
            )
        fields[name] = field
    return np.column_stack(
        [time, fields["p"][:, 2], fields["v"], fields["q"], fields["pwm"] / 1000, fields["fa"]]
    )


def _check(requested: Sequence[str], available: Sequence[str], path: Path) -> None:
    unknown = [name for name in requested if name not in available]
    if unknown:
        raise ValueError(
            f"{path} has no flights under the conditions {unknown}; expected some of "
            f"{sorted(available)}: correct the names, or pass None for all"
        )
