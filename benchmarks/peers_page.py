"""Generate docs/benchmarks.md, its figures and benchmarks/results.json from the rows of peers.py.

Every number on the page comes from the rows; none is typed by hand.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from contenders import CONTENDERS, OURS
from peers_figures import bars, curves, scales
from peers_summary import entries, summarise

ROOT = Path(__file__).parent.parent

QUICK = """> **Quick run.** One seed and {budget:g} s for each optimiser, to test that
> everything runs. These figures are not measurements; run `make bench` for those.
"""

INTRODUCTION = """# Benchmarks

All optimisers are compared with `auto`, one fit of given layers: `LipschitzRegressor(layers,
selection=False)`.
All ran on one machine, one after the other, each in the code that its users would write. `make
bench` generates this page from the rows that `benchmarks/peers.py` stores.

{warning}
Machine: {cpu}, {cores} cores, {system}; Python {python}; {packages}.
{when}{load}

How it is measured:

- All networks have ReLU layers with biases and are trained on the same standardised rows: 80 % of
  the data, in the same splits. The error is the root of the mean of ‖error‖² over the other 20 %.
- The clock is stopped while the test error is computed. Compilation is not counted for any
  optimiser: each first runs for a moment without being timed. For `auto` and scikit-learn the whole
  `fit` counts, including the scaling of `auto`; for the others only the training loop.
- All optimisers use the same two cores. torch and scikit-learn run with one thread, or with two if
  that was a fifth faster in the untimed run; JAX chooses by itself. All processes keep freed memory
  ([how](scale.md#memory)).
- The learning rate is the one of its grid with the lowest final test error on seed 0. The test rows
  choose it, which favours optimisers with a learning rate. The time for the others is "tuning".
- The unit of work is a forward pass over all rows: a gradient is three, a product with the Hessian
  six, a batch its fraction. An iteration of `auto` is counted by
  [its passes](directions.md#cost-per-iteration).
- The bound is certified by `certificate.tight` in units of the targets per standard deviation of
  the inputs, for the final weights.
- `auto` stops by itself when the loss falls too slowly; "auto, tol=0" uses the same time as the
  others. geoopt, pymanopt and hyperspherical descent use the spheres, the scaling and the initial
  weights of `auto`. Prodigy, D-Adaptation, Schedule-Free and DoG train on batches of 256 rows.
  L-BFGS, line-search CG and trust regions train on all rows. Schedule-Free has a learning rate, for
  which we use its default.
- The following was chosen by hand, by test errors of single short runs on the same data, always in
  favour of the competitors: two options of Prodigy (of four settings tried), two of D-Adaptation
  (of six), and the grid of hyperspherical descent, whose first version was best at its lowest rate.
"""


HOW_JUDGED = """ Each ratio is computed in two ways, and both must be below the limit:

- **median of seeds**: for each seed, the RMS to reach is the competitor's with that seed. A seed on
  which it is never reached counts as infinite.
- **of the means**: the time until the mean test RMS of all seeds is as low as the competitor's
  mean, divided by the mean of the competitor's times.

The last column names each seed on which the RMS is never reached, even if both ratios are below
their limits. The final error of a single run depends partly on chance: with other initial weights
on the same rows, the final error of `auto` varies with a standard deviation of 0.0003 N on the
surrogate and 0.0035 N on fly (`benchmarks/beyond.py luck`).
"""


def number(value: float | None, digits: int = 3) -> str:
    if value is None:
        return "never"
    return f"{value:.{digits}g}" if abs(value) < 1e5 else f"{value:.1e}"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def main_table(part: dict[str, Any]) -> str:
    head = ("", "rate", "best RMS [N]", "after [s]", "RMS at the end [N]", "time to target [s]")
    head += ("passes to target", "bound", "tuning [s]")
    lines = []
    for name in CONTENDERS:
        entry = part["contenders"].get(name)
        if entry is None:
            continue
        title = f"**{name}**" if name == OURS else name
        if "failed" in entry:
            lines.append((title, f"failed: {entry['failed']}", *[""] * 7))
            continue
        lines.append(
            (
                title,
                "" if entry["rate"] is None else f"{entry['rate']:g}",
                f"{entry['best_rms']:.4f}",
                number(entry["seconds_to_best"]),
                f"{entry['end_rms']:.4f}",
                number(entry["seconds_to_target"]),
                number(entry["passes_to_target"]),
                number(entry["bound"]),
                number(entry["tuning_seconds"]) if entry["tuning_seconds"] else "",
            )
        )
    return table(head, lines)


def target_table(targets: list[dict[str, Any]], quick: bool) -> str:
    """Return the table of targets; a quick run does not judge them."""
    return table(
        ("target", "median of seeds", "of the means", "limit", "", "details"),
        (
            (
                t["target"],
                number(t["value"]),
                number(t["of_means"]) if "of_means" in t else "",
                f"{t['limit']:g}",
                "not judged" if quick else "met" if t["met"] else "**missed**",
                t["why"],
            )
            for t in targets
        ),
    )


def scaling_table(cases: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(n for case in cases for n in case["contenders"]))
    lines = []
    for case in cases:
        cells = []
        for name in names:
            entry = case["contenders"].get(name)
            if entry is None or "failed" in entry:
                cells.append("failed" if entry else "–")
                continue
            cells.append(f"{number(entry['seconds_to_target'])}; {number(entry['best_rms'], 4)}")
        layers = "-".join(map(str, case["hidden"]))
        lines.append((case["data"], layers, *cells))
    return table(("data", "hidden layers", *names), lines)


def page(results: dict[str, Any]) -> str:
    machine, budget = results["machine"], results["budget_seconds"]
    packages = ", ".join(f"{n} {v}" for n, v in machine["packages"].items() if v)
    warning = QUICK.format(budget=budget) if results["quick"] else ""
    load, ended = results["load"], results["first_and_last_run_ended"]
    busy = ""
    if load is not None and load > machine["cores"] + 1:
        busy = "**Other programs used the machine, to a varying extent: the times below cannot be"
        busy += " compared.**"
    when = f"The first run ended at {ended[0]}, the last at {ended[1]}. " if ended else ""
    text = INTRODUCTION.format(
        warning=warning,
        **{**machine, "packages": packages},
        when=when,
        load="" if load is None else f"Median load average during the runs: {load:.1f}. {busy}",
    )
    count = len(results["targets"])
    met = sum(t["met"] for t in results["targets"])
    for data, part in results["main"].items():
        sizes = "-".join(map(str, part["hidden"]))
        text += f"\n## {data}\n\nHidden layers {sizes}, {budget:g} s for each optimiser."
        if part["target"]:
            text += f" The target is the final RMS of {part['target']}: {part['target_rms']:.4f} N"
            text += " on average over the seeds."
        text += "\n"
        text += f"\n![test RMS against time](images/bench_curves_{data}.png)\n\n"
        text += main_table(part)
    if any(part["target"] for part in results["main"].values()):
        text += "\n## Time to the target\n\n![time to target](images/bench_targets.png)\n\n"
        text += "Pale: the time for the other learning rates.\n"
    judged = (
        "A quick run does not judge them." if results["quick"] else f"{met} of {count} are met."
    )
    text += f"\n## Targets\n\n{judged}{HOW_JUDGED}\n"
    text += target_table(results["targets"], results["quick"])
    text += "\n## Width, rows and other data\n\n![scaling](images/bench_scaling.png)\n\n"
    text += (
        "Seconds to within 1 % of the lowest test RMS in the row, and the optimiser's own lowest"
    )
    text += " RMS. The learning rates are the best of three; the generated data are those of"
    text += " `greatcircle.datasets.ground_effect`; digits has one target for each digit.\n\n"
    text += scaling_table([*results["widths"], *results["rows"], *results["sets"]])
    text += (
        "\nOne iteration compared with one full-batch step of torch's Adam, timed alternately:\n\n"
    )
    text += table(
        ("", "rows", "hidden layers", "iteration [ms]", "Adam step [ms]", "ratio"),
        (
            (
                row["contender"],
                f"{row['rows']:,}",
                "-".join(map(str, row["hidden"])),
                number(row["iteration_ms"]),
                number(row["adam_step_ms"]),
                number(row["ratio"]),
            )
            for row in results["steps"]
            if "ratio" in row
        ),
    )
    return text


def write(
    rows: list[dict[str, Any]], machine: dict[str, Any], *, quick: bool, root: Path = ROOT
) -> None:
    """Write the page to root/docs, its figures to root/docs/images, and the results to JSON."""
    results = summarise(rows, machine, quick=quick)
    images = root / "docs" / "images"
    images.mkdir(parents=True, exist_ok=True)
    (root / "benchmarks").mkdir(exist_ok=True)
    text = json.dumps(results, indent=2, allow_nan=False) + "\n"
    (root / "benchmarks" / "results.json").write_text(text, encoding="utf-8")
    for (data, _), found in entries(rows, "main").items():
        if any(entry.runs for entry in found.values()):
            curves(images / f"bench_curves_{data}.png", data, found)
    with_target = {data: part for data, part in results["main"].items() if part["target"]}
    if with_target:
        bars(images / "bench_targets.png", with_target)
    scales(images / "bench_scaling.png", results)
    (root / "docs" / "benchmarks.md").write_text(page(results), encoding="utf-8")
