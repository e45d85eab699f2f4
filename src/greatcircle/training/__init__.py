"""Training: method presets, initial weights, and a fit from settings and data to a model."""

__all__: list[str] = []
