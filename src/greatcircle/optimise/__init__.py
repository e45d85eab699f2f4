"""Optimisation on products of spheres: directions, steps, stopping rules and the loop."""

__all__: list[str] = []
