"""Land a simulated quadrotor many times, with and without a certified learned force.

    python examples/landing/land.py --landings 500 --out runs/landing

Compares four controllers in the same weather and checks the tracking error against its bound. The
force is called as exported C code, which needs a C compiler. Writes results.json, figures (PNG and
PDF) and report.html.
"""

import argparse
import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import figures
import flight
import page
import study
from greatcircle import report


def main(arguments: list[str] | None = None) -> None:
    options = _parsed(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        done = study.run(
            options.landings,
            seed=options.seed,
            folder=Path(folder),
            progress=lambda stage: print(stage, file=sys.stderr),
        )
    summary = study.results(done)
    path = options.out / "results.json"
    path.write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n", "utf-8")
    command = shlex.join(["python", *(sys.argv if arguments is None else ["land.py", *arguments])])
    written = [path, *figures.write(options.out, done)]
    written.append(report.write(page.page(done, summary, command), options.out / "report.html"))
    print(json.dumps(summary, indent=2) if options.json else _text(summary))
    for path in written:
        print(f"wrote {path}", file=sys.stderr)


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--landings", type=int, default=500, help="with each controller (default: 500)")
    add("--seed", type=int, default=0, help="of initial weights and weather (default: 0)")
    add("--out", type=Path, default=Path("runs/landing"), help="folder (default: runs/landing)")
    add("--json", action="store_true", help="print the results as JSON")
    options = parser.parse_args(arguments)
    if options.landings < 2:
        parser.error("--landings must be at least 2: one landing has no confidence interval")
    if options.seed < 0:
        parser.error("--seed must not be negative")
    return options


def _text(summary: dict[str, Any]) -> str:
    """Return a table of the controllers and what became of the bound."""
    rows = [["", *study.TITLES.values()], *page.comparison_rows(summary)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        f"{summary['landings']} landings with each controller: mean ± half of the 95 % interval",
        *("  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in rows),
    ]
    bound, rule = summary["bounds"]["compensated"], summary["contraction"]
    return "\n".join(lines) + (
        f"\nfixed-point iteration: contracts by {rule['rate']:.3f} = {rule['gain']:.4f} × "
        f"{summary['model']['in_motor_speeds']:.3f} (certified), {rule['iterations']} iterations "
        f"every {1000 * flight.PERIOD:g} ms\n"
        f"bound of the tracking error: {page.centimetres(bound['ultimate_error'])}, "
        f"{bound['bound_over_99th_percentile']:.1f} × the 99th percentile of the error\n"
        f"assumptions kept in {100 * bound['all_assumptions_kept']:.1f} % of the landings; bound "
        f"exceeded in {bound['exceeded_where_kept']} of these"
    )


if __name__ == "__main__":
    main()
