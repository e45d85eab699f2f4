"""Animations: still until the reader starts them, without any script."""

import re

import numpy as np

from greatcircle import report
from greatcircle.report.animation import svg
from report_examples import Outline


def moving(name: str = "baseline") -> report.Animation:
    time = np.linspace(0, 2, 30)
    track = report.Track(name, "#0072B2", time, time - 2, 1.2 - 0.54 * time, 0.1 * np.sin(time))
    plan = [(-2.0, 1.2), (0.0, 0.12)]
    return report.Animation([track, track], plan, 0.12, "A landing.", "It lands at 0 m.")


def test_animation_is_paused_at_first_and_needs_no_script() -> None:
    section = report.Section("Flight", animations=[moving(), moving("<b>other</b>")])
    page = report.render(report.Report("Landing", "", [section]))
    Outline(page)
    assert "&lt;b&gt;other&lt;/b&gt;" in page
    assert "<b>other" not in page
    assert page.count("@keyframes flight-1-") == page.count("@keyframes flight-2-") == 2
    assert '<input type="checkbox" class="play" id="animation-1-play">' in page
    assert "checked>" not in page
    assert ".flyer { animation-play-state: paused; }" in page
    assert "It lands at 0 m." in page
    assert len(re.findall(r"<script", page)) == 1  # the script of every page; no Plotly


def test_animation_ends_where_the_track_ends() -> None:
    last = re.findall(
        r"100%\{transform:translate\(([-\d.]+)px,([-\d.]+)px\)", str(svg(moving(), 1))
    )
    pad = re.search(r'class="pad" d="M([-\d.]+),([-\d.]+) h([-\d.]+)"', str(svg(moving(), 1)))
    assert pad
    left, floor, width = map(float, pad.groups())
    x, y = map(float, last[0])
    assert abs(x - (left + width / 2)) < 0.2
    assert y < floor  # it stands on its legs
