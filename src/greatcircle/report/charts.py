"""What the interactive charts have in common.

They are Plotly figures without background, font or grid colour: the page sets these for light and
dark.
"""

import plotly.graph_objects as go

LEGEND_BELOW = {
    "orientation": "h",
    "x": 0,
    "y": 0,
    "yref": "container",
    "yanchor": "bottom",
    "groupclick": "togglegroup",
    "tracegroupgap": 0,
}


def panel_title(figure: go.Figure, name: str, number: str) -> None:
    """A name over the panel of the axes x and y with that number."""
    # Plotly reads some HTML in annotations: the name of a column is none.
    plain = name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    figure.add_annotation(
        text=f"<b>{plain}</b>",
        xref=f"x{number} domain",
        yref=f"y{number} domain",
        x=0,
        y=1,
        xanchor="left",
        yanchor="bottom",
        showarrow=False,
    )
