"""What is minimised: losses, the objective protocols, and a network with its data."""

__all__: list[str] = []
