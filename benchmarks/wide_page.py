"""Generate docs/wide.md, its figure and benchmarks/wide.json from the rows of the wide benchmarks.

    python benchmarks/wide_page.py

Every number of the page comes from the rows of wide.py and wide_constants.py and from
wide_scale.json; none is typed by hand.
"""

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import wide_constants
from wide import CHOSEN, ROWS, TUNED_ROWS, best_settings, read
from wide_cases import CASES

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).with_suffix("").with_name("wide.json")
SCALE = Path(__file__).with_name("wide_scale.json")
PAGE = ROOT / "docs" / "wide.md"
FIGURE = ROOT / "docs" / "images" / "wide.png"
OURS = ("greatcircle", "greatcircle, 1/4", "greatcircle, 1/16")
SLACK = 1.005
"""Errors of sets with much noise that differ by less than this factor are equal."""

RATE_FREE = ("Schedule-Free", "Prodigy", "DoG")
COLOURS = {
    "greatcircle": "#0B3C5D",
    "greatcircle, 1/4": "#3C8DBC",
    "greatcircle, 1/16": "#9CC9E3",
    "Adam": "#D1495B",
    "AdamW": "#E59AA4",
    "Muon": "#8A6D00",
    "SOAP": "#B0578D",
    "Schedule-Free": "#6B8E23",
    "Prodigy": "#E08E0B",
    "DoG": "#7A7A7A",
}

Curve = Sequence[Sequence[float]]
"""Fraction, CPU seconds, wall seconds and test error after each part."""


class Runs:
    """The rows of wide.py by case, competitor and seed."""

    def __init__(self, rows: Iterable[dict[str, Any]]) -> None:
        self._rows: dict[tuple[str, str], dict[int, dict[str, Any]]] = defaultdict(dict)
        for row in rows:
            self._rows[row["case"], row["competitor"]][row["seed"]] = row

    def of(self, case: str, competitor: str) -> dict[int, dict[str, Any]]:
        return self._rows.get((case, competitor), {})

    @property
    def cases(self) -> list[str]:
        return [case for case in CASES if self.of(case, "Adam") and self.of(case, OURS[0])]

    def ratios(
        self, case: str, ours: str, peer: str, *, compiled: bool = False, slack: float = 1.0
    ) -> list[float]:
        """Return our seconds to the peer's lowest error, times `slack`, over the peer's."""
        found = []
        for seed, row in self.of(case, peer).items():
            mine = self.of(case, ours).get(seed)
            if mine is None:
                continue
            best = min(row["curve"], key=lambda point: point[3])
            extra = mine["compile_cpu"] if compiled else 0.0
            peers = best[1] + (row["compile_cpu"] if compiled else 0.0)
            seconds = time_to(mine["curve"], slack * best[3]) + extra
            found.append(seconds / max(peers, 1e-9))
        return found


def time_to(curve: Curve, error: float) -> float:
    """Return the CPU seconds at which a test error is reached; infinite if it never is."""
    return min((point[1] for point in curve if point[3] <= error), default=np.inf)


def lowest(row: dict[str, Any]) -> float:
    return min(point[3] for point in row["curve"])


def last(row: dict[str, Any]) -> float:
    return row["curve"][-1][3]


def median(values: Iterable[float]) -> float:
    values = list(values)
    return float(statistics.median(values)) if values else float("nan")


def summary(runs: Runs) -> dict[str, Any]:
    """Return the numbers of the page."""
    cases = {}
    for case in runs.cases:
        adam = list(runs.of(case, "Adam").values())
        best = median(map(lowest, adam))
        seconds = median(min(row["curve"], key=lambda p: p[3])[1] for row in adam)
        ours = {}
        for name in OURS:
            rows = list(runs.of(case, name).values())
            ours[name] = {
                "final error": median(map(last, rows)),
                "final / Adam's best": median(map(last, rows)) / best,
                "seconds": median(row["curve"][-1][1] for row in rows),
                "time ratio": median(runs.ratios(case, name, "Adam")),
                "time ratio, compiled": median(runs.ratios(case, name, "Adam", compiled=True)),
                "time ratio, slack": median(runs.ratios(case, name, "Adam", slack=SLACK)),
                "compile seconds": median(row["compile_cpu"] for row in rows),
            }
        peers = {}
        for name in COLOURS:
            rows = list(runs.of(case, name).values())
            if name in OURS or not rows:
                continue
            fastest = min(median(runs.ratios(case, mine, name)) for mine in OURS)
            peers[name] = {
                "lowest error / Adam's": median(map(lowest, rows)) / best,
                "seconds": median(row["curve"][-1][1] for row in rows),
                "our time ratio": fastest,
            }
        jax_adam = [row["compile_cpu"] for row in runs.of(case, "Adam in JAX").values()]
        cases[case] = {
            "seeds": len(adam),
            "Adam": {"lowest error": best, "seconds": seconds} | best_settings(case),
            "Adam in JAX, compile seconds": median(jax_adam),
            "ours": ours,
            "peers": peers,
            "chosen": next((row for row in read(CHOSEN) if row["case"] == case), None),
        }
    return {"cases": cases, "constants": constants()}


def constants() -> dict[str, dict[str, dict[str, float]]]:
    """Return the error with a variant over that without, by name, value and case."""
    errors: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in read(wide_constants.ROWS):
        errors[row["name"], row["value"]][row["case"]].append(row["error"])
    found: dict[str, dict[str, dict[str, float]]] = defaultdict(dict)
    for (name, value), cases in errors.items():
        reference = errors["none", "k-fac" if name.startswith("k-fac") else "soap"]
        found[name][value] = {
            case: float(np.mean(values) / np.mean(reference[case]))
            for case, values in cases.items()
        }
    return found


def draw(runs: Runs) -> None:
    """Draw test error against CPU seconds of the first seed, a panel for each case."""
    cases = runs.cases
    columns = 4
    lines = -(-len(cases) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(13, 2.9 * lines), layout="constrained", squeeze=False
    )
    for panel in axes.flat[len(cases) :]:
        panel.set_visible(False)
    for panel, case in zip(axes.flat, cases, strict=False):
        for name, colour in COLOURS.items():
            row = runs.of(case, name).get(0)
            if row is None:
                continue
            points = np.array(row["curve"])[1:]
            width = 2.2 if name in OURS else 1.2
            panel.plot(points[:, 1], points[:, 3], color=colour, lw=width, label=name)
        best = lowest(runs.of(case, "Adam")[0])
        panel.axhline(best, color=COLOURS["Adam"], lw=0.8, ls=":")
        panel.set_xscale("log")
        found = [lowest(runs.of(case, name)[0]) for name in COLOURS if runs.of(case, name).get(0)]
        lower, upper = 0.97 * min(found), 1.15 * max(found)
        panel.set_yscale("log" if upper > 4 * lower else "linear")
        panel.set_ylim(lower, upper)
        panel.set_title(case, fontsize=10)
        panel.set_xlabel("CPU seconds")
        panel.grid(True, which="major", alpha=0.25)
    for panel in axes[:, 0]:
        panel.set_ylabel("test error")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize="small")
    figure.savefig(FIGURE, dpi=110)
    plt.close(figure)


def number(value: float, digits: int = 3) -> str:
    return "–" if not np.isfinite(value) else f"{value:.{digits}g}"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def main_table(cases: dict[str, Any]) -> str:
    rows = []
    for case, found in cases.items():
        ours, adam = found["ours"], found["Adam"]
        rows.append(
            [
                case,
                f"{number(adam['lowest error'])} in {number(adam['seconds'])} s",
                *(
                    f"{number(ours[name]['final error'])} in {number(ours[name]['seconds'])} s"
                    for name in OURS
                ),
                number(ours[OURS[0]]["final / Adam's best"]),
                *(number(ours[name]["time ratio"], 2) for name in OURS),
                number(min(ours[name]["time ratio, slack"] for name in OURS), 2),
                number(min(ours[name]["time ratio, compiled"] for name in OURS), 2),
            ]
        )
    headings = [
        *("case", "Adam: lowest error", "ours", "1/4", "1/16", "final / Adam's lowest"),
        *("time ratio", "1/4", "1/16", "smallest to 1.005 × Adam's", "smallest, with compilation"),
    ]
    return table(headings, rows)


def peers_table(cases: dict[str, Any]) -> str:
    names = [name for name in COLOURS if name not in OURS]
    rows = []
    for case, found in cases.items():
        cells = []
        for name in names:
            peer = found["peers"].get(name)
            error, time = ("lowest error / Adam's", "our time ratio")
            cells.append("–" if peer is None else f"{number(peer[error])}, {number(peer[time], 2)}")
        rows.append([case, *cells])
    return table(["case", *names], rows)


def chosen_table(cases: dict[str, Any]) -> str:
    rows = []
    for case, found in cases.items():
        chosen = found["chosen"]
        rows.append(
            [
                case,
                number(chosen["gain"]),
                f"{chosen['direction']} {chosen['steps']}" if chosen["steps"] else "none",
                str(chosen["iterations"]),
                f"{number(chosen['error'])}",
                f"{number(chosen['cpu'])}",
                number(found["ours"][OURS[0]]["compile seconds"], 2),
                number(found["Adam in JAX, compile seconds"], 2),
            ]
        )
    headings = [
        *("case", "target gain", "small batches", "iterations on all rows", "test error"),
        *("seconds of the whole fit", "compilation", "of Adam in JAX"),
    ]
    return table(headings, rows)


def constants_table(found: dict[str, Any]) -> str:
    names = list(wide_constants.GAINS)
    rows = []
    for name, values in found.items():
        if name == "none":
            continue
        for value, ratios in values.items():
            rows.append([name, value, *(number(ratios[case]) for case in names)])
    return table(["constant", "value", *names], rows)


TEXT = """# Wide networks and many rows

*How fast is training on [small batches](small_batches.md), compared with optimisers whose rate was
tuned?*

`benchmarks/wide.py` trains all competitors in one process, a part of each in turn, and measures CPU
seconds and the test error after each part; `benchmarks/wide_page.py` makes this page from its rows.
Numbers are medians over the seeds ({seeds} for each case). Errors are root mean squares in standard
deviations of the targets; for digits and 60,000 × 784, which have ten classes, the log-loss.

- *Adam* has the best of twelve rates and three batch sizes for each case, chosen by the *test*
  rows, with cosine decay; that takes {tuned:,} runs, which are not counted. AdamW has the same rate
  and batch size. Muon and SOAP have their default rates, with cosine decay; Schedule-Free, Prodigy
  and DoG need none. kfac-jax 0.0.8 does not run with JAX 0.10. All but Adam and AdamW have batches
  of 256.
- *Ours* has the target gain, the direction, the number of steps and of iterations on all rows that
  held-out error chose ([below](#what-held-out-error-chose)), never the test rows. *1/4* and *1/16*
  are runs of that part of the length: a shorter run reaches a given error earlier.
- *Time ratio*: our seconds to Adam's lowest test error over Adam's, without compilation. "–": not
  reached.
- A competitor ends once it has used five times the seconds of Adam.

![Test error against CPU seconds](images/wide.png)

The dotted line is Adam's lowest error.

{main_table}

The fastest of the three lengths reaches Adam's lowest error in {fastest} of its time (median over
the cases), and in less than its time in {reached} of {cases} cases. Adam's lowest error is the
minimum over many looks at the test rows; to 1.005 times that error it takes {slack} of the time,
and less than Adam in {reached_slack} cases. The final error is at most Adam's lowest in {lower}
cases, and at most 1.005 times it in {lower_slack}.

Where it is slower or worse: on wide layers SOAP's rotations cost more than the gradient of a batch
(eight times the width cubed against 1,536 times the width squared, for 256 rows: 2.7 times as much
at 512 units); 60,000 × 784 has a first layer of that size, and Adam overfits early there. The
1,000 rows are below the limit of small batches, so natural gradients on all rows were used.

## Other optimisers

For each: its lowest error over Adam's, and the smallest of our times to that error over its own
time. The median of the time ratios to those that need no learning rate (Schedule-Free, Prodigy,
DoG) is {free}, the largest {free_largest}.

{peers_table}

## What held-out error chose

`LipschitzRegressor(hidden_layer_sizes=…, ensemble=1)` or `LipschitzClassifier`, with the seconds of
the whole fit: choice, compilation and final training.

{chosen_table}

## Constants, directions and the second-order angle

The test error after {steps:,} steps with a constant halved or doubled (of a decay, one minus it),
or with another direction, over the error without the change. Means of two seeds, which differ by up
to 20 % on bike, where the error is below 1 % of the spread of the targets.

{constants_table}

### The second-order angle

"limited" turns by at most the given multiple of the paper's second-order angle of the same batch.
"""

MILLION = """
## A million rows

Network 128-128, 12 inputs, processes on one core each (`benchmarks/wide_scale.py`): {memory} MB of
memory beyond the rows. Two processes take {time} of the time of one for the same number of passes,
with {error} of its test error.
"""


def page(results: dict[str, Any]) -> str:
    cases = results["cases"].values()
    fastest = [min(found["ours"][name]["time ratio"] for name in OURS) for found in cases]
    slack = [min(found["ours"][name]["time ratio, slack"] for name in OURS) for found in cases]
    final = [found["ours"][OURS[0]]["final / Adam's best"] for found in cases]
    free = [
        peer["our time ratio"]
        for found in cases
        for name, peer in found["peers"].items()
        if name in RATE_FREE
    ]
    text = TEXT.format(
        seeds=" or ".join(map(str, sorted({found["seeds"] for found in cases}))),
        tuned=len(read(TUNED_ROWS)),
        main_table=main_table(results["cases"]),
        fastest=number(median(fastest), 2),
        reached=sum(ratio <= 1 for ratio in fastest),
        cases=len(cases),
        slack=number(median(slack), 2),
        reached_slack=sum(ratio <= 1 for ratio in slack),
        lower_slack=sum(ratio <= SLACK for ratio in final),
        lower=sum(ratio <= 1 for ratio in final),
        free=number(median(free), 2),
        free_largest=number(max(free, default=np.nan), 2),
        peers_table=peers_table(results["cases"]),
        chosen_table=chosen_table(results["cases"]),
        steps=wide_constants.STEPS,
        constants_table=constants_table(results["constants"]),
    )
    if SCALE.exists():
        scale = json.loads(SCALE.read_text())
        text += MILLION.format(
            memory=number(scale["beyond the rows, MB"]),
            time=number(scale["two processes / one, wall"], 2),
            error=number(scale["two processes / one, error"], 4),
        )
    return text


def main() -> None:
    runs = Runs(read(ROWS))
    results = summary(runs)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    draw(runs)
    PAGE.write_text(page(results))


if __name__ == "__main__":
    main()
