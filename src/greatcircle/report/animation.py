"""Things that fly in a vertical plane, as a moving picture that needs no script.

It is an SVG whose parts CSS moves, and it stands still until its box is ticked: no one is shown
motion who has not asked for it. What stands still says the same: paths, and where everything is at
each second.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

WIDTH = 760
"""Of the picture, in its own units."""
_TOP, _BOTTOM = 16, 40  # room above, and for the axis below


@dataclass(frozen=True, eq=False)
class Track:
    """The way of one vehicle."""

    name: str
    colour: str
    """As #RRGGBB."""
    time: np.ndarray
    """In seconds from the beginning, rising."""
    x: np.ndarray
    z: np.ndarray
    tilt: np.ndarray
    """Radians, forward."""


@dataclass(frozen=True)
class Animation:
    """Vehicles over the ground, with caption and description as for a chart."""

    tracks: Sequence[Track]
    plan: Sequence[tuple[float, float]]
    """The way that was asked for, to its end on the ground."""
    standing: float
    """Height of a vehicle's centre when it stands, in metres."""
    caption: str
    description: str
    slower: float = 2.0
    """How much slower than in life."""


def svg(animation: Animation, number: int) -> Markup:
    """The picture and its style; the number tells several on one page apart."""
    picture = _Picture(animation)
    end = max(track.time[-1] for track in animation.tracks) + 0.5  # and rest for a moment
    styles, parts = [], []
    for index, track in enumerate(animation.tracks):
        name = f"flight-{number}-{index}"
        styles.append(_keyframes(name, track, picture, end))
        drawn = Markup('<g class="flyer" style="animation-name:{}">{}</g>')
        shape = _vehicle(picture.scale, animation.standing)
        parts.append(
            Markup(
                '<g stroke="{}" fill="none" stroke-width="2"><path class="way" d="{}"/>{}{}</g>'
            ).format(
                track.colour,
                picture.way(track.x, track.z),
                Markup("").join(_ghosts(track, picture, shape)),
                drawn.format(name, shape),
            )
        )
        label = '<text x="{}" y="{}" fill="{}" font-weight="600">{}</text>'
        parts.append(Markup(label).format(WIDTH - 310, 34 + 34 * index, track.colour, track.name))
    seconds = f"{animation.slower * end:.2f}s"
    style = Markup(
        "<style>{}#picture-{} .flyer{{animation-duration:{};animation-iteration-count:infinite;"
        "animation-timing-function:linear}}</style>"
    ).format(Markup("".join(styles)), number, seconds)
    return style + Markup(
        '<svg id="picture-{}" viewBox="0 0 {} {}" aria-hidden="true">{}</svg>'
    ).format(number, WIDTH, round(picture.height), picture.ground() + Markup("").join(parts))


class _Picture:
    """From metres to the units of the picture."""

    def __init__(self, animation: Animation) -> None:
        xs = np.concatenate([track.x for track in animation.tracks])
        self.plan, top = animation.plan, max(track.z.max() for track in animation.tracks) + 0.15
        self.left, self.right = float(np.min(xs)) - 0.25, float(np.max(xs)) + 0.35
        self.scale = WIDTH / (self.right - self.left)
        self.floor = _TOP + top * self.scale
        self.height = self.floor + _BOTTOM

    def at(self, x: float, z: float) -> tuple[float, float]:
        return (x - self.left) * self.scale, self.floor - z * self.scale

    def way(self, x: np.ndarray, z: np.ndarray) -> str:
        points = (self.at(float(a), float(b)) for a, b in zip(x, z, strict=True))
        return "M" + " ".join(f"{a:.1f},{b:.1f}" for a, b in points)

    def ground(self) -> Markup:
        """Ground, pad, plan and a scale of decimetres."""
        pad, floor = self.at(0.0, 0.0)
        marks = np.arange(np.ceil(self.left * 2) / 2, self.right, 0.5)
        texts = Markup("").join(
            Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{} m</text>').format(
                self.at(float(mark), 0)[0], floor + 30, f"{mark:g}".replace("-", "−")
            )
            for mark in marks
        )
        plan = np.array(self.plan)
        return Markup(
            '<g class="scene"><path d="M0,{0:.1f} H{1}"/><path class="plan" d="{4}"/>{5}'
            '<path class="pad" d="M{2:.1f},{0:.1f} h{3:.1f}"/></g>'
        ).format(
            floor,
            WIDTH,
            pad - 0.1 * self.scale,
            0.2 * self.scale,
            self.way(plan[:, 0], plan[:, 1]),
            texts,
        )


def _vehicle(scale: float, standing: float) -> Markup:
    """Body, rotors and legs about the centre, as large as a quadrotor of this size is."""
    arm, disc, up, down = 0.127 * scale, 0.1 * scale, 0.06 * scale, standing * scale
    halves = (
        f"M0,0 H{side * arm:.1f} V{-up:.1f} m{-disc:.1f},0 h{2 * disc:.1f} "
        f"M{side * arm / 2:.1f},0 L{side * 0.7 * arm:.1f},{down:.1f}"
        for side in (-1, 1)
    )
    return Markup('<path d="{}"/>').format(" ".join(halves))


def _pose(track: Track, picture: _Picture, time: float) -> tuple[float, float, float]:
    x, z, tilt = (
        float(np.interp(time, track.time, part)) for part in (track.x, track.z, track.tilt)
    )
    return *picture.at(x, z), float(np.degrees(tilt))


def _ghosts(track: Track, picture: _Picture, shape: Markup) -> list[Markup]:
    """Where it is at each second, and at the end."""
    times = [*np.arange(1.0, track.time[-1] - 0.4), track.time[-1]]
    placed = Markup('<g class="ghost" transform="translate({:.1f} {:.1f}) rotate({:.2f})">{}</g>')
    return [placed.format(*_pose(track, picture, time), shape) for time in times]


def _keyframes(name: str, track: Track, picture: _Picture, end: float) -> str:
    frames = []
    for time in np.linspace(0.0, end, 100):
        x, y, tilt = _pose(track, picture, time)  # after its end it stays there
        share = f"{100 * time / end:.4g}%"
        frames.append(f"{share}{{transform:translate({x:.1f}px,{y:.1f}px) rotate({tilt:.2f}deg)}}")
    return f"@keyframes {name}{{{''.join(frames)}}}"
