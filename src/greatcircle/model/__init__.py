"""A fitted model as plain NumPy arrays, and its evaluation."""

__all__: list[str] = []
