"""Fully connected networks: activations, the network and its derivatives, gain bounds."""

__all__: list[str] = []
