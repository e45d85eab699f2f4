"""Animated side view of vehicles, as an SVG with CSS that needs no script.

It does not move until the reader ticks its box. The still picture shows the same: the paths, and
the vehicles at each second.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

__all__ = ["Animation", "Track", "svg"]

WIDTH = 760
"""Width of the picture in its own units."""

_TOP, _BOTTOM = 16, 40
"""Space above the tracks, and below them for the axis."""


@dataclass(frozen=True, eq=False)
class Track:
    """The path of one vehicle."""

    name: str
    colour: str
    """As #RRGGBB."""
    time: np.ndarray
    """In seconds from the start, increasing."""
    x: np.ndarray
    z: np.ndarray
    tilt: np.ndarray
    """Forward, in radians."""


@dataclass(frozen=True)
class Animation:
    """Vehicles above the ground, with a caption and a description as for a chart."""

    tracks: Sequence[Track]
    plan: Sequence[tuple[float, float]]
    """Points of the planned path, which ends on the ground."""
    standing: float
    """Height of the centre of a vehicle that stands on the ground, in metres."""
    caption: str
    description: str
    slower: float = 2.0
    """How many times slower than real time."""


def svg(animation: Animation, number: int) -> str:
    """Return the picture and its style as HTML; `number` makes its names unique."""
    frame = _frame(animation)
    end = max(track.time[-1] for track in animation.tracks) + 0.5  # then a short pause
    shape = _vehicle(frame.scale, animation.standing)
    styles, parts = [], [_ground(frame, animation.plan)]
    for index, track in enumerate(animation.tracks):
        name, colour = f"flight-{number}-{index}", escape(track.colour)
        styles.append(_keyframes(name, track, frame, end))
        parts.append(
            f'<g stroke="{colour}" fill="none" stroke-width="2">'
            f'<path class="track" d="{frame.path(track.x, track.z)}"/>'
            f"{_ghosts(track, frame, shape)}"
            f'<g class="flyer" style="animation-name:{name}">{shape}</g></g>'
            f'<text x="{WIDTH - 310}" y="{34 + 34 * index}" fill="{colour}" font-weight="600">'
            f"{escape(track.name)}</text>"
        )
    return (
        f"<style>{''.join(styles)}#picture-{number} .flyer{{"
        f"animation-duration:{animation.slower * end:.2f}s;animation-iteration-count:infinite;"
        "animation-timing-function:linear}</style>"
        f'<svg id="picture-{number}" viewBox="0 0 {WIDTH} {round(frame.height)}" '
        f'aria-hidden="true">{"".join(parts)}</svg>'
    )


@dataclass(frozen=True)
class _Frame:
    """Conversion from metres to the units of the picture."""

    left: float
    right: float
    scale: float
    floor: float
    height: float

    def point(self, x: float, z: float) -> tuple[float, float]:
        return (x - self.left) * self.scale, self.floor - z * self.scale

    def path(self, x: np.ndarray, z: np.ndarray) -> str:
        points = (self.point(float(a), float(b)) for a, b in zip(x, z, strict=True))
        return "M" + " ".join(f"{a:.1f},{b:.1f}" for a, b in points)


def _frame(animation: Animation) -> _Frame:
    x = np.concatenate([track.x for track in animation.tracks])
    top = max(track.z.max() for track in animation.tracks) + 0.15
    left, right = float(np.min(x)) - 0.25, float(np.max(x)) + 0.35
    scale = WIDTH / (right - left)
    floor = _TOP + top * scale
    return _Frame(left, right, scale, floor, floor + _BOTTOM)


def _ground(frame: _Frame, plan: Sequence[tuple[float, float]]) -> str:
    """Return ground, pad, plan and a scale with a mark every half metre."""
    pad, floor = frame.point(0.0, 0.0)
    marks = np.arange(np.ceil(frame.left * 2) / 2, frame.right, 0.5)
    texts = "".join(
        f'<text x="{frame.point(float(mark), 0)[0]:.1f}" y="{floor + 30:.1f}" '
        f'text-anchor="middle">{f"{mark:g}".replace("-", "−")} m</text>'
        for mark in marks
    )
    return (
        f'<g class="scene"><path d="M0,{floor:.1f} H{WIDTH}"/>'
        f'<path class="plan" d="{frame.path(*np.array(plan).T)}"/>{texts}'
        f'<path class="pad" d="M{pad - 0.1 * frame.scale:.1f},{floor:.1f} '
        f'h{0.2 * frame.scale:.1f}"/></g>'
    )


def _vehicle(scale: float, standing: float) -> str:
    """Return body, rotors and legs around the centre, in the size of a small quadrotor."""
    arm, disc, up, down = 0.127 * scale, 0.1 * scale, 0.06 * scale, standing * scale
    halves = (
        f"M0,0 H{side * arm:.1f} V{-up:.1f} m{-disc:.1f},0 h{2 * disc:.1f} "
        f"M{side * arm / 2:.1f},0 L{side * 0.7 * arm:.1f},{down:.1f}"
        for side in (-1, 1)
    )
    return f'<path d="{" ".join(halves)}"/>'


def _pose(track: Track, frame: _Frame, time: float) -> tuple[float, float, float]:
    """Return place and tilt in degrees; after the end of the track, those at its end."""
    x, z, tilt = (
        float(np.interp(time, track.time, values)) for values in (track.x, track.z, track.tilt)
    )
    return *frame.point(x, z), float(np.degrees(tilt))


def _ghosts(track: Track, frame: _Frame, shape: str) -> str:
    """Return the vehicle at each second and at the end."""
    times = [*np.arange(1.0, track.time[-1] - 0.4), track.time[-1]]
    poses = (_pose(track, frame, time) for time in times)
    return "".join(
        f'<g class="ghost" transform="translate({x:.1f} {y:.1f}) rotate({tilt:.2f})">{shape}</g>'
        for x, y, tilt in poses
    )


def _keyframes(name: str, track: Track, frame: _Frame, end: float) -> str:
    frames = []
    for time in np.linspace(0.0, end, 100):
        x, y, tilt = _pose(track, frame, time)
        moment = f"{100 * time / end:.4g}%"
        frames.append(f"{moment}{{transform:translate({x:.1f}px,{y:.1f}px) rotate({tilt:.2f}deg)}}")
    return f"@keyframes {name}{{{''.join(frames)}}}"
