"""What a notebook shows of a fitted model: a few numbers, and the loss as a small plot."""

from typing import Any

import numpy as np
from jinja2 import Environment

WIDTH, HEIGHT = 240, 60

_PAGE = Environment(autoescape=True).from_string("""
<div style="display:flex;flex-wrap:wrap;gap:2em;align-items:center;margin:.5em 0;\
font:13px system-ui,sans-serif">
<table style="border-collapse:collapse;font-size:13px">
{% for name, value in facts %}<tr>\
<td style="padding:0 1em 0 0;opacity:.7;white-space:nowrap;text-align:left">{{ name }}</td>\
<td style="text-align:left">{{ value }}</td></tr>
{% endfor %}</table>
{% if points %}<div style="flex:none;width:{{ width }}px">\
<svg width="{{ width }}" height="{{ height }}" role="img" \
aria-label="loss by iteration, from {{ first }} to {{ last }}">
<polyline points="{{ points }}" fill="none" stroke="#2a6fbb" stroke-width="1.5"/>
{% if unseen %}<polyline points="{{ unseen }}" fill="none" stroke="#c2571a" stroke-width="1.5"/>
{% endif %}</svg>
<div style="font-size:11px;opacity:.7">loss by iteration, {{ first }} to {{ last }}\
{% if unseen %}; orange: on unseen rows{% endif %}</div></div>{% endif %}
</div>""")


def html(model: Any) -> str:
    """Summary of a fitted estimator, as a piece of HTML that needs nothing else."""
    history = model.history_
    curves = [history["loss"], history["validation_loss"]]
    values = np.concatenate(curves)
    values = values[np.isfinite(values) & (values > 0)]
    parameters = sum(np.size(w) for w in model.weights_)
    facts = [
        ("network", "-".join(map(str, model.network_.sizes)) + f", {parameters} parameters"),
        ("Lipschitz bound", f"{model.certificate_.value:.4g}"),
        ("loss", f"{model.loss_:.4g}"),
        ("iterations", f"{model.n_iter_}, {history['seconds'].sum():.2f} s"),
        ("ended", model.reason_),
    ]
    points, unseen = (_points(curve, values) for curve in curves)
    first, last = (f"{history['loss'][i]:.3g}" if len(history["loss"]) else "" for i in (0, -1))
    return _PAGE.render(
        facts=facts, points=points, unseen=unseen, first=first, last=last, width=WIDTH,
        height=HEIGHT,
    )  # fmt: skip


def _points(curve: np.ndarray, values: np.ndarray) -> str:
    """A polyline on a logarithmic scale; empty where there is nothing to draw."""
    good = np.isfinite(curve) & (curve > 0)
    if np.sum(good) < 2:
        return ""
    low, high = np.log(values.min()), np.log(values.max())
    x = np.linspace(2, WIDTH - 2, len(curve))[good]
    y = 2 + (HEIGHT - 4) * (high - np.log(curve[good])) / max(high - low, 1e-9)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
