"""From settings and data to a model: method presets, the start, and training."""

__all__: list[str] = []
