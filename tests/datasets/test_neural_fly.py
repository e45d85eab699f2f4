"""Neural-Fly: the flights from one table and from the published folder."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from greatcircle.datasets import ground_effect, neural_fly

Array = NDArray[np.float64]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# Neural-Fly


def test_fly_without_a_path_says_where_the_data_are() -> None:
    with pytest.raises(ValueError, match=r"educational.*github.com/aerorobotics/neural-fly.*pass"):
        neural_fly.load()


@pytest.fixture(scope="module")
def all_flights(data_folder: Path) -> Path:
    return data_folder / "neural_fly.csv.gz"


def test_fly_conditions(all_flights: Path) -> None:
    calm = neural_fly.load(all_flights)
    assert len(calm) == 15_062
    assert (calm.inputs, calm.targets) == (ground_effect.INPUTS, ground_effect.TARGETS)
    assert set(calm.columns["condition"]) == {"nowind"}
    np.testing.assert_array_equal(calm.columns["wind_speed"], 0)
    assert np.all(np.isfinite(calm.X))
    np.testing.assert_allclose(np.linalg.norm(calm.X[:, 4:8], axis=1), 1, atol=1e-4)

    everything = neural_fly.load(all_flights, conditions=None)
    assert len(everything) == 75_326
    speeds = {
        str(condition): float(speed)
        for condition, speed in zip(
            everything.columns["condition"], everything.columns["wind_speed"], strict=True
        )
    }
    assert speeds == {name: neural_fly.WIND_SPEEDS[name] for name in speeds}
    assert len(neural_fly.load(all_flights, conditions="35wind")) < len(
        neural_fly.load(all_flights, conditions=["nowind", "35wind"])
    )


def test_fly_unknown_conditions(all_flights: Path) -> None:
    message = r"\['storm'\].*'100wind', '35wind', '70p20sint', '70wind', 'nowind'.*None"
    with pytest.raises(ValueError, match=message):
        neural_fly.load(all_flights, conditions=["nowind", "storm"])
    with pytest.raises(ValueError, match="no conditions"):
        neural_fly.load(all_flights, conditions=())


def test_fly_needs_its_columns(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"columns 'z'.*'condition' not found"):
        neural_fly.load(write(tmp_path / "table.csv", "t,a,y\n0,1,3\n1,4,6\n"))


def published_flight(rows: Array) -> str:
    """A flight in the form of the authors' repository; rows hold p, v, q, pwm and fa."""
    lines = [",t,p,v,q,pwm,fa"]
    for number, row in enumerate(rows):
        cells = [row[:3], row[3:6], row[6:10], row[10:14], row[14:]]
        text = ",".join(f'"{json.dumps(cell.tolist())}"' for cell in cells)
        lines.append(f"{number},{0.02 * number},{text}")
    return "\n".join(lines) + "\n"


def test_fly_reads_the_published_folder(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    calm, windy = rng.normal(size=(3, 17)), rng.normal(size=(2, 17))
    write(tmp_path / "custom_figure8_NF-T_nowind.csv", published_flight(calm))
    write(tmp_path / "custom_figure8_L1_70p20sint.csv", published_flight(windy))
    write(tmp_path / "notes.csv", "a\n1\n")

    table = neural_fly.load(tmp_path)
    np.testing.assert_allclose(table.columns["t"], [0, 0.02, 0.04])
    np.testing.assert_array_equal(table.columns["z"], calm[:, 2])
    np.testing.assert_array_equal(table.X[:, 1:8], calm[:, 3:10])
    np.testing.assert_allclose(table.X[:, 8:], calm[:, 10:14] / 1000)
    np.testing.assert_array_equal(table.y, calm[:, 14:])
    assert set(table.columns["controller"]) == {"NF-T"}

    both = neural_fly.load(tmp_path, conditions=None)
    assert tuple(both.columns) == neural_fly.COLUMNS
    assert both.columns["condition"].tolist() == ["70p20sint"] * 2 + ["nowind"] * 3
    assert both.columns["wind_speed"].tolist() == [8.5] * 2 + [0.0] * 3

    with pytest.raises(ValueError, match=r"\['35wind'\].*\['70p20sint', 'nowind'\]"):
        neural_fly.load(tmp_path, conditions="35wind")


def test_fly_folder_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no flights; expected files named like.*data/experiment"):
        neural_fly.load(tmp_path)
    text = published_flight(np.ones((2, 17)))
    path = tmp_path / "custom_figure8_NF_nowind.csv"
    write(path, text.replace('"[1.0, 1.0, 1.0]"', '"[1.0, 1.0"', 1))
    with pytest.raises(ValueError, match=r"column 'p' cannot be read.*lists of 3 numbers"):
        neural_fly.load(tmp_path)
    write(path, text.replace("[1.0, 1.0, 1.0, 1.0]", "[1.0, 1.0]"))
    with pytest.raises(ValueError, match=r"column 'q' has the shape \(2, 2\).*expected \(2, 4\)"):
        neural_fly.load(tmp_path)
