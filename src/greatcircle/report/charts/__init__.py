"""Interactive charts as Plotly figures, drawn from the tables of `figures.tables`.

They have no background, font or grid colours: the page sets these for its light and dark theme.
"""

__all__: list[str] = []
