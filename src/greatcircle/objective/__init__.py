"""Objectives to minimise: losses, objective protocols, and a network with its data."""

__all__: list[str] = []
