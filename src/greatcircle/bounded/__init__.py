"""Networks with a given Lipschitz bound by construction."""

__all__: list[str] = []
