"""The paper's experiments, rerun as in the paper and compared with its numbers."""

__all__: list[str] = []
