"""Matplotlib figures of learning curves and of fitted models."""

__all__: list[str] = []
