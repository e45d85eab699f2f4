"""Summarise the rows of peers.py: errors, times, bounds, and which targets are met."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from contenders import CONTENDERS, OURS
from greatcircle.experiments.run import TRAIN_FRACTION

Row = dict[str, Any]
ADAMS = ("torch Adam, all rows", "torch Adam, batches")
CLOSE = 1.01
"""Target of the scaling tables: within one per cent of the lowest RMS of all contenders."""

NEVER = float("inf")


def until(row: Row, rms: float) -> float:
    """Return the seconds until the test RMS is that low, or infinity."""
    return at_first(row, rms)[0]


def at_first(row: Row, rms: float) -> tuple[float, float]:
    """Return the seconds and forward passes until the test RMS is that low, or infinity."""
    found = np.flatnonzero(np.asarray(row["rms"]) <= rms)
    if not len(found):
        return NEVER, NEVER
    return row["seconds"][found[0]], row["passes"][found[0]]


def mean_until(runs: list[Row], rms: float) -> float:
    """Return the seconds until the mean test RMS of the runs is that low, or infinity."""
    times = np.unique(np.concatenate([row["seconds"] for row in runs]))
    curves = []
    for row in runs:
        last = np.searchsorted(row["seconds"], times, side="right")
        curves.append(np.concatenate([[NEVER], row["rms"]])[last])
    found = np.flatnonzero(np.mean(curves, axis=0) <= rms)
    return float(times[found[0]]) if len(found) else NEVER


def median(values: Iterable[float]) -> float | None:
    """Return the median, or None if it is infinite: JSON has no infinity."""
    middle = float(np.median(list(values)))
    return float(f"{middle:.4g}") if np.isfinite(middle) else None


def mean(values: Iterable[float]) -> float:
    return float(f"{np.mean(list(values)):.5g}")


class Entry:
    """All runs of one contender on one case: its rate, its runs at that rate, its tuning."""

    def __init__(self, name: str, rows: list[Row]) -> None:
        self.name = name
        self.failed = next((r["failed"] for r in rows if r.get("failed")), None)
        good = [row for row in rows if row.get("rms")]
        trials = [row for row in good if row["seed"] == 0]
        self.rate, self.runs = None, {row["seed"]: row for row in good}
        self.tuning = 0.0
        if len(rows) > 1 and rows[0]["rate"] is not None and trials:
            best = min(trials, key=lambda row: row["rms"][-1])
            self.rate = best["rate"]
            self.runs = {row["seed"]: row for row in good if row["rate"] == self.rate}
            self.tuning = sum(row["seconds"][-1] for row in trials if row is not best)

    @property
    def end(self) -> float:
        return mean(row["rms"][-1] for row in self.runs.values())

    def summary(self, goals: dict[int, float]) -> dict[str, Any]:
        """Return medians of times and means of errors; `goals` has the RMS to reach by seed."""
        if not self.runs:
            return {"failed": self.failed or "no finite number"}
        runs = list(self.runs.values())
        reached = [at_first(row, goals[s]) for s, row in self.runs.items() if s in goals]
        return {
            "rate": self.rate,
            "tuning_seconds": float(f"{self.tuning:.4g}"),
            "seeds": len(runs),
            "threads": runs[0]["threads"],
            "best_rms": mean(min(row["rms"]) for row in runs),
            "end_rms": self.end,
            "seconds_to_best": median(until(row, min(row["rms"])) for row in runs),
            "seconds": median(row["seconds"][-1] for row in runs),
            "passes": median(row["passes"][-1] for row in runs),
            "seconds_to_target": median(t for t, _ in reached) if reached else None,
            "passes_to_target": median(p for _, p in reached) if reached else None,
            "reached": f"{sum(t < NEVER for t, _ in reached)} of {len(reached)}",
            "bound": mean(row["bound"] for row in runs),
            "certificate": runs[0]["certificate"],
        }


def entries(rows: list[Row], part: str) -> dict[tuple[str, tuple[int, ...]], dict[str, Entry]]:
    """Group the rows by case (data and hidden layers) and contender."""
    groups: dict[Any, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["part"] == part:
            groups[row["data"], tuple(row["hidden"])][row["contender"]].append(row)
    return {
        case: {name: Entry(name, found) for name, found in contenders.items()}
        for case, contenders in groups.items()
    }


def verdict(
    name: str, ours: Entry, goals: dict[int, float], theirs: dict[int, float], limit: float
) -> dict[str, Any]:
    """Return a row of the table of targets: our time over theirs, computed in two ways.

    One is the median over the seeds, each with its own RMS to reach. The other is the time until
    the mean RMS of all seeds is as low as the mean of theirs, over the mean of their times. Both
    must be below the limit.
    """
    seeds = sorted(set(goals) & set(ours.runs))
    if not seeds:
        return {"target": name, "value": None, "limit": limit, "met": False, "why": "no seed"}
    times = {s: until(ours.runs[s], goals[s]) for s in seeds}
    ratio = median(times[s] / max(theirs[s], 1e-4) for s in seeds)
    goal, own = mean(goals[s] for s in seeds), mean(min(ours.runs[s]["rms"]) for s in seeds)
    of_means = mean_until([ours.runs[s] for s in seeds], np.mean([goals[s] for s in seeds]))
    of_means = median([of_means / max(np.mean([theirs[s] for s in seeds]), 1e-4)])
    met = all(value is not None and value <= limit for value in (ratio, of_means))
    reached = [s for s in seeds if times[s] < NEVER]
    if len(reached) < len(seeds):
        why = f"RMS {goal:.5f} reached on {len(reached)} of {len(seeds)} seeds,"
        why += f" not on {', '.join(str(s) for s in seeds if s not in reached)};"
        why += f" our lowest is {own:.5f}"
    else:
        why = f"RMS {goal:.5f}: ours {median(times.values()):.3g} s,"
        why += f" theirs {median(theirs[s] for s in seeds):.3g} s"
    result = {"target": name, "value": ratio, "of_means": of_means, "limit": limit, "met": met}
    return result | {"why": why}


def targets(main: dict[Any, dict[str, Entry]], steps: list[Row]) -> list[dict[str, Any]]:
    results = []
    for (data, _), found in main.items():
        ours = found.get(OURS)
        if not ours or not ours.runs:
            continue
        for name in ADAMS:
            if name not in found or not found[name].runs:
                continue
            adam = found[name]
            goals = {s: row["rms"][-1] for s, row in adam.runs.items()}
            times = {s: until(row, goals[s]) for s, row in adam.runs.items()}
            all_of_it = {s: t + adam.tuning for s, t in times.items()}
            what = f"{data}: time to the final RMS of {name} / its time"
            results.append(verdict(what, ours, goals, times, 1.0))
            results.append(verdict(f"{what}, tuning included", ours, goals, all_of_it, 0.1))
        for name, peer in found.items():
            if name.startswith(OURS) or not CONTENDERS[name].rate_free or not peer.runs:
                continue
            goals = {s: min(row["rms"]) for s, row in peer.runs.items()}
            times = {s: until(row, goals[s]) for s, row in peer.runs.items()}
            what = f"{data}: time to the best RMS of {name} / its time"
            results.append(verdict(what, ours, goals, times, 0.5))
    for row in steps:
        if row["contender"] == "Method 1" and "ratio" in row and len(row["hidden"]) == 3:
            why = f"ours {row['iteration_ms']:.2f} ms, theirs {row['adam_step_ms']:.2f} ms"
            what = "one iteration of Method 1 / one full-batch step of torch's Adam"
            value = row["ratio"]
            result = {"target": what, "value": value, "limit": 2.0, "met": value <= 2.0}
            results.append(result | {"why": why})
    return results


def scaling(rows: list[Row], part: str) -> list[dict[str, Any]]:
    """Return for each case the seconds to within one per cent of the lowest RMS."""
    results = []
    for (data, hidden), found in entries(rows, part).items():
        best = min((min(e.runs[0]["rms"]) for e in found.values() if e.runs), default=NEVER)
        goals = {0: CLOSE * best}
        case = {"data": data, "hidden": list(hidden), "target_rms": float(f"{CLOSE * best:.5g}")}
        case["contenders"] = {name: entry.summary(goals) for name, entry in found.items()}
        results.append(case)
    return results


def summarise(rows: list[Row], machine: dict[str, Any], *, quick: bool) -> dict[str, Any]:
    """Return the contents of benchmarks/results.json."""
    main, steps = entries(rows, "main"), [row for row in rows if row["part"] == "steps"]
    results: dict[str, Any] = {"quick": quick, "machine": machine, "main": {}}
    ended = sorted(row["ended"] for row in rows if row.get("ended"))
    results["first_and_last_run_ended"] = ended[:1] + ended[-1:]
    loads = [row["load"] for row in rows if row.get("load") is not None]
    results["load"] = median(loads) if loads else None
    results["budget_seconds"] = max((r["budget"] for r in rows if r["part"] == "main"), default=0)
    for (data, hidden), found in main.items():
        adams = [found[name] for name in ADAMS if name in found and found[name].runs]
        best = min(adams, key=lambda adam: adam.end, default=None)
        goals = {s: row["rms"][-1] for s, row in best.runs.items()} if best else {}
        results["main"][data] = {
            "hidden": list(hidden),
            "target": f"{best.name} at its best rate" if best else None,
            "target_rms": mean(goals.values()) if goals else None,
            "contenders": {name: entry.summary(goals) for name, entry in found.items()},
        }
    results["targets"] = targets(main, steps)
    for part in ("widths", "rows", "sets"):
        results[part] = scaling(rows, part)
    for row in steps:
        row["rows"] = int(TRAIN_FRACTION * int(row["data"].split()[1]))
    keep = (
        "rows",
        "hidden",
        "contender",
        "ratio",
        "iteration_ms",
        "adam_step_ms",
        "threads",
        "failed",
    )
    results["steps"] = [{k: row[k] for k in keep if k in row} for row in steps]
    return results
