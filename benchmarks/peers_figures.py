"""Draw the figures of docs/benchmarks.md."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter

from contenders import CONTENDERS, OURS
from peers_summary import Entry

# Okabe and Ito's palette for the colour-blind. Red-orange is reserved for ours.
OUR_COLOUR = "#D55E00"
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#000000", "#8C8C8C")
STYLES = ("-", (0, (4, 1.5)))
SIZE, DPI = 8.0, 100
FLOOR = 0.05
"""Lower end of the logarithmic axis, in per cent above the lowest error."""


def is_tuned(name: str) -> bool:
    return not CONTENDERS[name].rate_free


def look(name: str) -> dict[str, Any]:
    """Return colour and line style of a contender, the same in every figure."""
    if name.startswith(OURS):
        return {"color": OUR_COLOUR, "linestyle": STYLES[name != OURS]}
    others = [n for n in CONTENDERS if not n.startswith(OURS) and is_tuned(n) == is_tuned(name)]
    turn, place = divmod(others.index(name), len(PALETTE))
    return {"color": PALETTE[place], "linestyle": STYLES[turn]}


def colour(name: str) -> str:
    return look(name)["color"]


def spread_out(heights: np.ndarray, gap: float, low: float, high: float) -> np.ndarray:
    """Move values apart to at least `gap`, in the same order and between low and high."""
    order = np.argsort(heights)
    placed = heights[order].copy()
    for _ in range(200):
        for i in range(1, len(placed)):
            lacking = gap - (placed[i] - placed[i - 1])
            if lacking > 0:
                placed[i - 1] -= lacking / 2
                placed[i] += lacking / 2
        placed = np.clip(placed, low, high)
    result = np.empty_like(placed)
    result[order] = placed
    return result


def averaged(entry: Entry, times: np.ndarray) -> np.ndarray:
    """Return the mean over the seeds of the test RMS at these times; NaN before the first one."""
    curves = []
    for row in entry.runs.values():
        seconds, rms = np.asarray(row["seconds"]), np.asarray(row["rms"])
        place = np.searchsorted(seconds, times, side="right") - 1
        curves.append(np.where(place >= 0, rms[np.maximum(place, 0)], np.nan))
    return np.mean(curves, axis=0)


def curves(path: Path, data: str, found: dict[str, Entry]) -> None:
    """Draw test error above the lowest of all against time, with labels at the curves' ends."""
    found = {name: entry for name, entry in found.items() if entry.runs}
    longest = max(row["seconds"][-1] for e in found.values() for row in e.runs.values())
    times = np.geomspace(5e-3, longest, 300)
    errors = {name: averaged(entry, times) for name, entry in found.items()}
    best = min(np.nanmin(curve) for curve in errors.values())
    figure, axes = plt.subplots(2, 1, figsize=(SIZE, 8.6), layout="constrained", sharex=True)
    seeds = max(len(entry.runs) for entry in found.values())
    for axis, rated in zip(axes, (True, False), strict=True):
        names = [n for n in found if n.startswith(OURS) or is_tuned(n) == rated]
        shown = {n: np.maximum(100 * (errors[n] / best - 1), FLOOR) for n in names}
        for name, curve in shown.items():
            axis.plot(times, curve, linewidth=2.6 if name == OURS else 1.3, **look(name))
        axis.set(xscale="log", yscale="log", ylim=(FLOOR, 30), xlim=(times[0], longest))
        axis.set_ylabel(f"test RMS above {best:.4g} N [%]")
        axis.set_yticks([0.1, 0.3, 1, 3, 10, 30], ["0.1", "0.3", "1", "3", "10", "30"])
        kind = "a learning rate was tuned" if rated else "no learning rate to tune"
        axis.set_title(
            f"{data}, {kind}; mean of {seeds} seed{'s' * (seeds > 1)}", fontsize=11, loc="left"
        )
        axis.grid(alpha=0.3)
        name_the_ends(axis, shown, {n: found[n].rate for n in names}, longest)
    axes[1].set_xlabel("training time [s], test and compilation not counted")
    figure.savefig(path, dpi=DPI)
    plt.close(figure)


def name_the_ends(
    axis: Any, shown: dict[str, np.ndarray], rates: dict[str, float | None], longest: float
) -> None:
    low, high = np.log(axis.get_ylim())
    ends = np.log([np.clip(curve[-1], *axis.get_ylim()) for curve in shown.values()])
    places = spread_out(ends, (high - low) / 15, low, high)
    for name, end, place in zip(shown, ends, places, strict=True):
        axis.annotate(
            name + (f" (rate {rates[name]:g})" if rates[name] else ""),
            xy=(longest, np.exp(end)),
            xytext=(1.35 * longest, np.exp(place)),
            color=colour(name),
            fontsize=9,
            fontweight="bold" if name == OURS else "normal",
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colour(name),
                "linewidth": 0.6,
                "relpos": (0, 0.5),
            },
        )


def bars(path: Path, main: dict[str, Any]) -> None:
    """Draw the seconds to the final RMS of tuned Adam, and in a pale colour the tuning time."""
    figure, axes = plt.subplots(
        1, len(main), figsize=(SIZE, 5.0), layout="constrained", sharey=True, squeeze=False
    )
    names = [n for n in CONTENDERS if any(n in part["contenders"] for part in main.values())]
    for axis, (data, part) in zip(axes[0], main.items(), strict=True):
        found = part["contenders"]
        times = [found.get(n, {}).get("seconds_to_target") for n in names]
        known = [t for t in times if t]
        known += [t + found[n]["tuning_seconds"] for n, t in zip(names, times, strict=True) if t]
        left, right = (min(known) / 2, max(known) * 3) if known else (0.1, 1.0)
        for place, (name, seconds) in enumerate(zip(names, times, strict=True)):
            entry = found.get(name, {"failed": "not run"})
            if not seconds:
                text = "failed" if "failed" in entry else "never"
                axis.text(1.08 * left, place, text, va="center", fontsize=8)
                continue
            axis.barh(place, seconds - left, left=left, color=colour(name))
            end = seconds + entry["tuning_seconds"]
            axis.barh(place, end - seconds, left=seconds, color=colour(name), alpha=0.25)
            axis.text(1.08 * end, place, f"{seconds:.2g} s", va="center", fontsize=8)
        axis.set(xscale="log", xlim=(left, right), xlabel="seconds")
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_title(f"{data}: time to {part['target_rms']:.4g} N", fontsize=10, loc="left")
        axis.grid(axis="x", alpha=0.3)
    axes[0][0].set_yticks(range(len(names)), names, fontsize=8.5)
    figure.savefig(path, dpi=DPI)
    plt.close(figure)


def scales(path: Path, results: dict[str, Any]) -> None:
    """Draw the time to within 1 % of the lowest RMS against width and rows, and iteration costs."""
    figure, grid = plt.subplots(2, 2, figsize=(SIZE, 6.6), layout="constrained")
    axes = grid.flat
    parts = (("widths", "units of each hidden layer"), ("rows", "rows"))
    for axis, (part, label) in zip(axes, parts, strict=False):
        cases, points = results[part], {}
        for case in cases:
            place = case["hidden"][0] if part == "widths" else int(case["data"].split()[1])
            for name, entry in case["contenders"].items():
                time = entry.get("seconds_to_target")
                points.setdefault(name, []).append((place, time))
        times = [t for found in points.values() for _, t in found if t is not None]
        top = 2 * max(times, default=1.0)
        for name, found in points.items():
            line(axis, sorted(found), name, never=top)
        axis.set(xscale="log", yscale="log", xlabel=label, title="time to within 1 % of the best")
        axis.set_ylabel("seconds; × at the top: never")
        plain_ticks(axis, sorted({x for found in points.values() for x, _ in found}))
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter(NullFormatter())
    for kind, shade in (("Method 1", PALETTE[2]), (OURS, OUR_COLOUR)):
        rows = [r for r in results["steps"] if r["contender"] == kind and "ratio" in r]
        found = sorted((r["hidden"][0], r["ratio"]) for r in rows if len(r["hidden"]) == 2)
        line(axes[2], found, kind, shade)
        axes[2].set(xscale="log", xlabel=parts[0][1], title="iteration / full-batch Adam step")
        plain_ticks(axes[2], [x for x, _ in found])
    axes[2].set_ylim(bottom=0)
    axes[3].axis("off")
    for axis in axes[:3]:
        axis.title.set_fontsize(10)
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=8)
    figure.savefig(path, dpi=DPI)
    plt.close(figure)


def plain_ticks(axis: Any, places: list[float]) -> None:
    """Put ticks at the measured values only."""
    if places:
        axis.set_xticks(places, [f"{x:,}" for x in places])
    axis.xaxis.set_minor_formatter(NullFormatter())


def line(
    axis: Any, points: Iterable[tuple[float, Any]], name: str, shade: str = "", never: float = 0.0
) -> None:
    """Mark a target that was never reached by a cross at the top."""
    points, shade = list(points), shade or colour(name)
    known = [(x, y) for x, y in points if y is not None]
    x, y = zip(*known, strict=True) if known else ((), ())
    axis.plot(x, y, marker="o", markersize=4, color=shade, label=name)
    if missed := [x for x, y in points if y is None]:
        axis.plot(missed, [never] * len(missed), "x", markersize=6, color=shade, clip_on=False)
