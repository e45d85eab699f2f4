"""HTML summary of a fitted model for notebooks: key numbers, and the loss as a small plot."""

from html import escape

import numpy as np

from greatcircle.model import Model

__all__ = ["html"]

WIDTH, HEIGHT = 240, 60


def html(model: Model) -> str:
    """Return the summary as self-contained HTML."""
    facts = [
        ("network", f"{'-'.join(map(str, model.sizes))}, {_parameters(model)} parameters"),
        ("Lipschitz bound", f"{model.certificate.value:.4g}"),
    ]
    if model.saturation.kind:
        facts.append(("saturation", str(model.saturation)))
    plot = ""
    if training := model.training:
        history = training.history
        iterations, seconds = len(history["iteration"]), history["seconds"].sum()
        facts += [
            ("loss", f"{training.loss:.4g}"),
            ("iterations", f"{iterations}, {seconds:.2f} s"),
            ("end of training", training.reason),
        ]
        plot = _plot(history["loss"], history["validation_loss"])
    rows = "\n".join(
        '<tr><td style="padding:0 1em 0 0;opacity:.7;white-space:nowrap;text-align:left">'
        f'{name}</td><td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in facts
    )
    return (
        '<div style="display:flex;flex-wrap:wrap;gap:2em;align-items:center;margin:.5em 0;'
        'font:13px system-ui,sans-serif">\n'
        f'<table style="border-collapse:collapse;font-size:13px">\n{rows}\n</table>\n{plot}</div>'
    )


def _parameters(model: Model) -> int:
    return sum(np.size(w) for w in model.weights)


def _plot(loss: np.ndarray, validation: np.ndarray) -> str:
    """Return both losses as lines on a logarithmic scale; nothing without two positive losses."""
    drawn = [curve for curve in (loss, validation) if np.sum(_drawable(curve)) >= 2]
    if not _drawable(loss).sum() >= 2:
        return ""
    values = np.concatenate([curve[_drawable(curve)] for curve in (loss, validation)])
    lines = "".join(
        f'<polyline points="{_points(curve, values)}" fill="none" stroke="{colour}" '
        'stroke-width="1.5"/>'
        for curve, colour in zip(drawn, ("#2a6fbb", "#c2571a"), strict=False)
    )
    first, last = (f"{value:.3g}" for value in loss[[0, -1]])
    note = "; orange: validation rows" if len(drawn) > 1 else ""
    return (
        f'<div style="flex:none;width:{WIDTH}px">'
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="loss by iteration, from {first} to {last}">{lines}</svg>'
        f'<div style="font-size:11px;opacity:.7">loss by iteration, {first} to {last}{note}</div>'
        "</div>"
    )


def _drawable(curve: np.ndarray) -> np.ndarray:
    return np.isfinite(curve) & (curve > 0)


def _points(curve: np.ndarray, values: np.ndarray) -> str:
    """Return the points of a line; the scale covers all `values`."""
    kept = _drawable(curve)
    low, high = np.log(values.min()), np.log(values.max())
    x = np.linspace(2, WIDTH - 2, len(curve))[kept]
    y = 2 + (HEIGHT - 4) * (high - np.log(curve[kept])) / max(high - low, 1e-9)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
