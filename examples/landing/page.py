"""The HTML report: tables, an animation and interactive charts."""

from typing import Any

import plotly.graph_objects as go

import plot_data
from greatcircle import report
from greatcircle.report.charts.layout import LEGEND_BELOW
from study import METRICS, TITLES, Study, metrics

__all__ = ["cell", "centimetres", "comparison_rows", "page"]

SHOWN = ("baseline", "compensated")


def page(study: Study, summary: dict[str, Any], command: str) -> report.Report:
    """Return the report of a study."""
    bound = summary["bounds"]["compensated"]
    rows = summary["controllers"]
    base, ours = (rows[name]["touchdown_error"]["mean"] for name in SHOWN)
    return report.Report(
        title="Landings with a certified force",
        lead=(
            f"{summary['landings']} landings of a simulated quadrotor with each controller, in the "
            "same wind. Near the ground the air pushes it up and the baseline floats past the pad; "
            "the compensated controller predicts that force with a network that has a Lipschitz "
            "certificate, as exported C code."
        ),
        highlights=[
            report.Highlight("Touchdown error", centimetres(ours), f"baseline {centimetres(base)}"),
            report.Highlight(
                "Iteration contracts",
                f"{summary['contraction']['rate']:.2f}",
                f"proved; {summary['contraction']['iterations']} iterations",
            ),
            report.Highlight(
                "Assumptions kept",
                f"{100 * bound['all_assumptions_kept']:.1f} %",
                "of the landings",
            ),
            report.Highlight(
                "Bound exceeded", str(bound["exceeded_where_kept"]), "times where they were kept"
            ),
        ],
        sections=[_comparison(study, summary), _bound(study, summary)],
        command=command,
        facts=[
            ("software", summary["source"]),
            ("machine", summary["machine"]),
            ("seed", str(summary["seed"])),
            ("SHA-256 of the weights", summary["model"]["digest"]),
        ],
    )


def centimetres(metres: float) -> str:
    """Return a length as text."""
    return f"{100 * metres:.1f} cm"


def cell(value: dict[str, float], factor: float) -> str:
    """Return a mean ± the half-width of its confidence interval as text."""
    half = factor * (value["high"] - value["low"]) / 2
    digits = 2 if abs(factor * value["mean"]) < 100 else 1
    return f"{factor * value['mean']:.{digits}f} ± {half:.{digits}f}"


def comparison_rows(summary: dict[str, Any]) -> list[list[str]]:
    """Return a row for each metric with a column for each controller."""
    controllers = summary["controllers"]
    return [
        [f"{title} [{unit}]", *(cell(controllers[name][metric], factor) for name in TITLES)]
        for metric, (title, unit, factor) in METRICS.items()
    ]


def bound_rows(summary: dict[str, Any]) -> list[list[str]]:
    """Return a row for each part of ε with its limit and largest value, and one for the error."""
    both = [summary["bounds"][name] for name in SHOWN]
    parts = {
        "gust": "gusts",
        "noise": "sensor noise",
        "model": "force − model",
        "loop": "lag, sampling, iteration",
        "total": "together",
    }
    return [
        *(
            [f"{title} [N]"]
            + [
                text
                for b in both
                for text in (f"{b['limits'][p]:.2f}", f"{b['largest_seen'][p]:.2f}")
            ]
            for p, title in parts.items()
        ),
        ["tracking error [cm]"]
        + [
            f"{100 * value:.1f}"
            for b in both
            for value in (b["ultimate_error"], b["largest_error"])
        ],
    ]


def _comparison(study: Study, summary: dict[str, Any]) -> report.Section:
    typical = plot_data.typical_landing(study)
    tracks = []
    for name in SHOWN:
        time, x, z, pitch = plot_data.trajectory(study.flights[name], typical).T
        tracks.append(report.Track(TITLES[name], plot_data.COLOURS[name], time, x, z, pitch))
    late = [track.time[-1] - study.approach.duration for track in tracks]
    return report.Section(
        "Four controllers",
        "All have the same gains. The touchdown error is the distance from the pad, along the "
        "ground, where the legs first touch; contact speeds are those at that moment, and lateness "
        "is relative to the planned touchdown. RMS and max are those of the tracking error.\n\n"
        "The reference descends a glide slope and continues through the ground, so that a vehicle "
        "held up by the air lands late, and beyond the pad.\n\n"
        "Integral action estimates the force in every landing, with a delay; the network predicts "
        "it. It does not predict the wind, which integral action also compensates.",
        tables=[
            report.TableBlock(
                ["", *TITLES.values()],
                comparison_rows(summary),
                "Means over the landings, ± half of the 95% confidence interval.",
            )
        ],
        animations=[
            report.Animation(
                tracks,
                [(float(x), float(z)) for x, z in plot_data.planned_path(study)],
                study.approach.standing_height,
                "A typical landing at half speed: the one with the median touchdown error of the "
                "baseline. Dotted: reference. Faint: position at each second and at contact.",
                f"The baseline touches {late[0]:.2f} s late at x = {tracks[0].x[-1]:.3f} m, the "
                f"compensated controller {late[1]:.2f} s late at x = {tracks[1].x[-1]:.3f} m.",
            )
        ],
        charts=[_touchdown_chart(study)],
    )


def _bound(study: Study, summary: dict[str, Any]) -> report.Section:
    b, rule = summary["bounds"]["compensated"], summary["contraction"]
    kept = "; ".join(f"{name} {100 * x:.1f} %" for name, x in b["assumptions_kept"].items())
    return report.Section(
        "The bound",
        "The composite error s = de/dt + Λe obeys m ds/dt = −K s + ε. Gusts and noise are bounded "
        "by construction, and with them their parts of ε; the other two limits are the largest "
        f"in {summary['calibration']} calibration landings with other seeds. A landing that "
        "keeps all of them stays within the bound.\n\n"
        f"Kept: {kept}. All of them: {100 * b['all_assumptions_kept']:.1f} % of the landings, of "
        f"which {b['exceeded_where_kept']} exceeded the bound. It is "
        f"{b['bound_over_99th_percentile']:.1f} times the 99th percentile of the error.\n\n"
        "The motor speeds solve an equation with the learned force in it. The iteration contracts "
        f"by {rule['rate']:.3f}: {rule['gain']:.4f} motor speeds per newton times the certified "
        f"{summary['model']['in_motor_speeds']:.3f} newtons per motor speed.",
        tables=[
            report.TableBlock(
                [
                    "",
                    *(f"{TITLES[name]}, {kind}" for name in SHOWN for kind in ("limit", "largest")),
                ],
                bound_rows(summary),
                "Each part of ε: its limit, fixed before the landings, and its largest value.",
            )
        ],
        charts=[_tracking_chart(study, b)],
    )


def _touchdown_chart(study: Study) -> report.Chart:
    figure = go.Figure()
    words = []
    for name, flight in study.flights.items():
        x, share = plot_data.shares(metrics(flight, study.approach)["touchdown_error"])
        line = {"color": plot_data.COLOURS[name], "dash": plot_data.DASHES[name], "width": 2}
        figure.add_trace(
            go.Scatter(
                x=(100 * x).round(3),
                y=share.round(4),
                mode="lines",
                name=TITLES[name],
                line=line,
                hovertemplate="%{x:.1f} cm: %{y:.0%}<extra>%{fullData.name}</extra>",
            )
        )
        words.append(f"{TITLES[name]}: half within {100 * x[(len(x) - 1) // 2]:.1f} cm")
    _layout(figure, "touchdown error [cm]", "share of the landings", len(words))
    figure.update_yaxes(tickformat=".0%", range=[0, 1.02])
    figure.update_xaxes(rangemode="tozero")
    return report.Chart(
        figure,
        "Share of the landings within a distance of the pad.",
        "; ".join(words),
    )


def _tracking_chart(study: Study, bound: dict[str, Any]) -> report.Chart:
    figure = go.Figure()

    def line(x: Any, y: Any, name: str, **style: Any) -> None:
        hover = "%{y:.3f} m<extra>%{fullData.name}</extra>"
        figure.add_trace(
            go.Scatter(x=x.round(3), y=y.round(5), name=name, line=style, hovertemplate=hover)
        )

    for name in SHOWN:
        e, colour = plot_data.errors(study.flights[name]), plot_data.COLOURS[name]
        line(e.time, e.median, f"{TITLES[name]}, median", color=colour, width=2.2)
        line(
            e.time, e.high, f"{TITLES[name]}, 99th percentile", color=colour, width=1.6, dash="dash"
        )
        line(e.time, e.largest, f"{TITLES[name]}, largest", color=colour, width=1.2, dash="dot")
    e = plot_data.errors(study.flights["compensated"])
    high = study.bounds["compensated"].error(e.time)
    line(e.time, high, "bound, compensated", color=plot_data.BOUND, width=3)
    _layout(figure, "time [s]", "tracking error ‖e‖ [m]", 3 * len(SHOWN) + 1)
    marks = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5]
    figure.update_yaxes(type="log", tickvals=marks, ticktext=[f"{mark:g}" for mark in marks])
    figure.update_layout(hovermode="x unified", height=480)
    return report.Chart(
        figure,
        "Tracking error over time, on a logarithmic axis, and the bound of the compensated "
        "controller.",
        f"The bound ends at {centimetres(bound['ultimate_error'])}; the largest error of the "
        f"compensated controller is {centimetres(bound['largest_error'])}.",
    )


def _layout(figure: go.Figure, across: str, up: str, lines: int) -> None:
    below = 70 + 21 * lines  # on a phone the legend has a line for each curve
    figure.update_layout(
        template=go.layout.Template(),
        height=420,
        margin={"l": 64, "r": 16, "t": 24, "b": 96},
        legend=LEGEND_BELOW,
        xaxis={"title": {"text": across, "standoff": 8}, "zeroline": False},
        yaxis={"title": {"text": up, "standoff": 8}, "automargin": True},
        meta={
            "narrow": {"height": 360 + below, "margin.b": below, "margin.r": 4, "dragmode": False}
        },
    )
