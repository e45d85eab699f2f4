"""Colours and captions that figures and interactive charts share, and an empty figure."""

from typing import TYPE_CHECKING

from greatcircle._runtime.extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ANGLE", "BOUND_COLOURS", "COLOURS", "CONSTANT_NETWORK", "TEST", "TRAIN", "empty_figure"]

# Okabe and Ito's colours: readers with colour blindness can tell them apart, also in grey.
TRAIN, TEST, ANGLE = "#0072B2", "#D55E00", "#009E73"

COLOURS = {"train": TRAIN, "test": TEST}

# Dark enough for white numbers on them.
BOUND_COLOURS = {
    "before training": "#8A6D00",
    "frobenius": "#8A6D00",
    "product of operator norms": "#6C6C6C",
    "spectral": "#6C6C6C",
    "fast": "#00757F",
    "certified": TRAIN,
    "tight": "#0B5FA5",
    "sdp": "#5B3FA0",
    "steepest slope found": "#B34700",
    "lower": "#B34700",
}

CONSTANT_NETWORK = "The network is constant: every bound is 0."


def empty_figure(width: float, height: float) -> "Figure":
    """Return an empty Matplotlib figure of this size in inches."""
    require("matplotlib", "app", "drawing figures")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")
