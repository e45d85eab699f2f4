"""Matplotlib figures of learning curves, fitted models and grids, and the tables they draw.

`tables` prepares the data once; `figures` draws them with Matplotlib, `report.charts` with Plotly.
"""

__all__: list[str] = []
