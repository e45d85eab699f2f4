"""Layout of interactive charts: empty figures, axis titles, panels side by side."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from greatcircle._runtime.extras import require

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = [
    "LEGEND_BELOW",
    "add_menu",
    "axis_names",
    "axis_title",
    "empty_chart",
    "lay_out_panels",
    "on_panel",
    "panel_title",
]

LEGEND_BELOW = {
    "orientation": "h",
    "x": 0,
    "y": 0,
    "yref": "container",
    "yanchor": "bottom",
    "groupclick": "togglegroup",
    "tracegroupgap": 0,
}

# In pixels: space above the panels and below them; the menu bar above them is missing on a phone.
_TOP, _BOTTOM, _BUTTONS = 60, 96, 30


def empty_chart() -> "Figure":
    """Return a Plotly figure without traces and without Plotly's default style."""
    require("plotly", "app", "an interactive chart")
    from plotly.graph_objects import Figure

    return Figure(layout={"template": {}})


def axis_title(text: str, standoff: int = 6) -> dict[str, Any]:
    """Return the title of an axis."""
    return {"text": text, "font": {"size": 13}, "standoff": standoff}


def axis_names(letter: str, count: int) -> list[str]:
    """Return the names of the first axes: xaxis, xaxis2, ..."""
    return [f"{letter}axis{_number(index)}" for index in range(count)]


def on_panel(index: int) -> dict[str, str]:
    """Return the axes of a trace on this panel."""
    return {"xaxis": f"x{_number(index)}", "yaxis": f"y{_number(index)}"}


def panel_title(figure: "Figure", title: str, index: int) -> None:
    """Add a title above a panel."""
    # Plotly interprets some HTML in annotations, but a column's name is plain text.
    text = title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    figure.add_annotation(
        text=f"<b>{text}</b>",
        xref=f"x{_number(index)} domain",
        yref=f"y{_number(index)} domain",
        x=0,
        y=1,
        xanchor="left",
        yanchor="bottom",
        showarrow=False,
    )


def add_menu(figure: "Figure", labels: Sequence[str], updates: Sequence[list[Any]]) -> None:
    """Add a drop-down menu above the chart; each label has its updates of traces and layout."""
    buttons = [
        {"label": label, "method": "update", "args": update}
        for label, update in zip(labels, updates, strict=True)
    ]
    place = {"x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom"}
    figure.update_layout(updatemenus=[{"type": "dropdown", **place, "buttons": buttons}])


def lay_out_panels(
    figure: "Figure",
    titles: Sequence[str],
    axis_titles: tuple[str, str],
    *,
    columns: int = 3,
    narrow_columns: int = 1,
    panel: int = 230,
    gap: int = 84,
) -> None:
    """Place one panel per title: `columns` side by side, `narrow_columns` on a phone.

    Panels are `panel` pixels high, with `gap` pixels between the rows.
    """
    x_title, y_title = axis_titles
    count, columns = len(titles), min(columns, len(titles))
    bottom = _BOTTOM if x_title else 36
    wide = _domains(count, columns, panel, gap, 0.07)
    phone = _domains(count, min(narrow_columns, count), panel, gap, 0.16)
    x_axes, y_axes = axis_names("x", count), axis_names("y", count)
    changes: dict[str, Any] = {}
    for index, title in enumerate(titles):
        common = {"zeroline": False, "nticks": 5}
        figure.update_layout(
            {
                x_axes[index]: common
                | {
                    "domain": wide[index][0],
                    "anchor": on_panel(index)["yaxis"],
                    "title": axis_title(x_title),
                    "exponentformat": "none",
                },
                y_axes[index]: common
                | {
                    "domain": wide[index][1],
                    "anchor": on_panel(index)["xaxis"],
                    "title": axis_title(y_title if index % columns == 0 else ""),
                },
            }
        )
        changes[f"{x_axes[index]}.domain"] = list(phone[index][0])
        changes[f"{y_axes[index]}.domain"] = list(phone[index][1])
        panel_title(figure, title, index)
    figure.update_layout(
        height=_height(count, columns, panel, gap) + _TOP + bottom,
        margin={"l": 64, "r": 12, "t": _TOP, "b": bottom},
        hovermode="closest",
        legend=LEGEND_BELOW | {"itemsizing": "constant"},
        meta={
            "narrow": {
                "height": _height(count, narrow_columns, panel, gap) + _TOP + bottom - _BUTTONS,
                "margin.t": _TOP - _BUTTONS,
                "margin.l": 56,
                "margin.r": 8,
                "dragmode": False,
                **changes,
            }
        },
    )


def _number(index: int) -> str:
    """Return the number in the name of Plotly's axis: none for the first."""
    return "" if index == 0 else str(index + 1)


def _height(count: int, columns: int, panel: int, gap: int) -> int:
    rows = -(-count // columns)
    return rows * panel + (rows - 1) * gap


def _domains(
    count: int, columns: int, panel: int, gap: int, between: float
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Return horizontal and vertical domain of each panel, row by row from the top.

    `between` is the space between two columns as a share of the width.
    """
    width = (1 - between * (columns - 1)) / columns
    height = _height(count, columns, panel, gap)
    domains = []
    for index in range(count):
        row, column = divmod(index, columns)
        left = column * (width + between)
        top = 1 - row * (panel + gap) / height
        domains.append(((left, min(left + width, 1.0)), (max(top - panel / height, 0.0), top)))
    return domains
